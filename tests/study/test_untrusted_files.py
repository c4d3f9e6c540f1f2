"""What is no whole state of this network is refused with one clear error, and nothing in it is ever executed."""

from __future__ import annotations

import functools
import re
from collections.abc import Callable

import pytest
from malice import GAPS, HALVED
from ranks import Found, run_scenario
from scenario import BY, strategies_of
from selection import FULL

from ckptbench.matrix.registry import FRAMEWORKS

READING = [name for name, entry in FRAMEWORKS.items() if FULL or entry.recipe is None]
"""Frameworks with formats of their own: Horovod's read by the code of another."""
CHECKPOINTS = [(name, format) for name in READING for format in FRAMEWORKS[name].formats]
UNREAD = ("lambda_layer",)
"""In a part of the file that no load looks at: all that counts of the checkpoint is whole."""
PERHAPS_UNREAD = re.compile(
    r"(state|model)/(_CHECKPOINT_METADATA|commit_success\.txt|_sharding|array_metadatas/|ocdbt\.process_0/)"
)
"""Files of Orbax that a load does not need, or not all of them: which of the last kind hold values differs by run."""


PARTS = {
    "dcp": (".metadata", "is not there as a whole"),
    "torchsnapshot": (".snapshot_metadata", "is not there as a whole"),
    "torch_checkpointing": ("model_0.pt", "has shape (1, "),
}
"""By strategy: the file that has a part of a tensor, and the words of its refusal."""


@pytest.fixture(scope="module")
def outcomes(tmp_path_factory: pytest.TempPathFactory) -> Callable[[str, str], Found]:
    """What a scenario of `malice.py` found of all formats of a framework, in one launch."""

    @functools.cache
    def found(framework: str, scenario: str) -> Found:
        folder = tmp_path_factory.mktemp(f"{framework}-{scenario}")
        return run_scenario(framework, scenario, folder)[0]

    return found


WRITTEN = [
    *CHECKPOINTS,
    *((framework, f"{BY}{each}") for framework in READING for each in strategies_of(framework)),
]
"""By strategies with files of their own, too."""


@pytest.mark.parametrize(("framework", "format"), WRITTEN)
def test_code_in_a_checkpoint_is_never_run(
    outcomes: Callable[[str, str], Found], framework: str, format: str
) -> None:
    everything, own = outcomes(framework, "load_malicious"), f"{format}/"
    found = {name.removeprefix(own): a for name, a in everything.items() if name.startswith(own)}
    planted = sorted({name.rpartition("/")[0] for name in found})
    assert {name.partition("/")[0] for name in planted} > {"rank-0.safetensors"}
    for name in planted:
        assert found[f"{name}/live"], f"{name}: nothing would run it"
        assert not found[f"{name}/ran"], name
        _check_refusal(name, str(found[f"{name}/load"]))


@pytest.mark.parametrize(
    ("framework", "format"), [(name, format) for name, format in CHECKPOINTS if format in HALVED]
)
def test_a_model_without_its_optimizer_is_no_checkpoint(
    outcomes: Callable[[str, str], Found], framework: str, format: str
) -> None:
    """Keras and PyTorch by themselves would go on with momenta that were never loaded."""
    _check_refusal("model/half", str(outcomes(framework, "load_half")[format]))


@pytest.mark.parametrize(
    ("framework", "strategy"),
    [(name, each) for name in READING for each in strategies_of(name) if each in GAPS],
)
def test_a_tensor_of_which_a_version_has_a_part_is_refused(
    outcomes: Callable[[str, str], Found], framework: str, strategy: str
) -> None:
    """The engines by themselves would leave the rest as it is, or repeat the part."""
    said = str(outcomes(framework, "load_half")[strategy])
    file, words = PARTS[strategy]
    assert words in said
    _check_refusal(f"{file}/half", said)


def _check_refusal(name: str, outcome: str) -> None:
    file, _, kind = name.rpartition("/")
    if kind in UNREAD:
        assert outcome == "", name
        return
    if PERHAPS_UNREAD.match(file) and not outcome:
        return
    assert outcome, f"{name} was loaded"
    # Of Orbax, which writes a folder, it is the folder.
    folder = re.match("(state|model)/", file)
    where = f"/{folder[1]}: " if folder else file.partition(".")[0]
    assert where in outcome, "which file"
    assert "resume from another version" in outcome, "what to do"
