"""What is no whole state of this network is refused with one clear error, and nothing in it is ever executed."""

from __future__ import annotations

from pathlib import Path

import pytest
from ranks import run_scenario

from ckptbench.frameworks import FRAMEWORKS

CHECKPOINTS = [(name, format) for name, entry in FRAMEWORKS.items() for format in entry.formats]
UNREAD = ("lambda_layer",)
"""In a part of the file that no load looks at: all that counts of the checkpoint is whole."""


@pytest.mark.parametrize(("framework", "format"), CHECKPOINTS)
def test_code_in_a_checkpoint_is_never_run(tmp_path: Path, framework: str, format: str) -> None:
    (found,) = run_scenario(framework, "load_malicious", tmp_path, format=format)
    planted = sorted({name.rpartition("/")[0] for name in found})
    assert {name.partition("/")[0] for name in planted} > {"rank-0.npz"}
    for name in planted:
        assert found[f"{name}/live"], f"{name}: nothing would run it"
        assert not found[f"{name}/ran"], name
        _check_refusal(name, str(found[f"{name}/load"]))


HALVES = [(name, format) for name, format in CHECKPOINTS if format in ("npz", "hdf5", "torch_save")]


@pytest.mark.parametrize(("framework", "format"), HALVES)
def test_a_model_without_its_optimizer_is_no_checkpoint(
    tmp_path: Path, framework: str, format: str
) -> None:
    """Keras and PyTorch by themselves would go on with momenta that were never loaded."""
    (found,) = run_scenario(framework, "load_half", tmp_path, format=format)
    _check_refusal("model/half", str(found["load"]))


def _check_refusal(name: str, outcome: str) -> None:
    file, kind = name.split("/")
    if kind in UNREAD:
        assert outcome == "", name
        return
    assert outcome, f"{name} was loaded"
    assert file.partition(".")[0] in outcome, "which file"
    assert "resume from another version" in outcome, "what to do"
