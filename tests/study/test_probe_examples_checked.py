"""`ckptbench-probe check` of each training in `examples`: its files are sound, and what its resume gives back.

`test_probe_resume` checks the resume of those that `torchrun` starts with PyTorch alone.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.study.probed_examples import TRAINED, check_resume, check_saves, for_checks
from tests.study.selection import FULL


def each(*names: str) -> list[object]:
    return [
        pytest.param(name, marks=pytest.mark.frameworks(TRAINED[name].environment))
        for name in names
    ]


SAVED_AS_OTHERS = () if FULL else ("gpt_ddp", "gpt_fsdp", "lightning_gpt", "lightning_asynchronous", "keras_mlp")  # fmt: skip
"""test_probe_tearing.py has such saves, too: of each framework those that are whole beside those that are torn."""


@pytest.mark.parametrize("name", each(*(name for name in TRAINED if name not in SAVED_AS_OTHERS)))
def test_its_checkpoints_are_sound(name: str, tmp_path: Path) -> None:
    example = for_checks(name)
    found = check_saves(example, tmp_path).report
    assert found["verdict"] == "sound"
    assert found["ranks"] == example.ranks
    at_the_end = example.kind == "transformers"  # Trainer saves once more there
    assert len(found["checkpoints"]) == 2 + example.also_first + at_the_end
    assert all(one["compared"] > 0 for one in found["checkpoints"])


@pytest.mark.parametrize("name", each("hf_trainer", "keras_mlp", "jax_orbax"))
def test_its_resume_gives_back_the_same_training(name: str, tmp_path: Path) -> None:
    """Of a save that goes on in the background, the kill may be too early."""
    example = for_checks(name)
    found = check_resume(example, tmp_path).report
    assert found["verdict"] == "same", found["lines"]
    saved = 2 * example.save_every
    assert found["resumed_from"] in ({saved, example.save_every} if example.background else {saved})
    assert found["compared_until"] == example.kill_at + 3


@pytest.mark.frameworks("trainers")
def test_lightning_resumes_within_an_epoch_from_its_first_batch(tmp_path: Path) -> None:
    """Its checkpoint says how many batches of the epoch are done; the loader begins again."""
    example = for_checks("lightning_gpt")
    found = check_resume(example, tmp_path).report
    assert found["verdict"] == "different"
    assert found["resumed_from"] == 2 * example.save_every
    assert found["first"]["update"] == found["resumed_from"] + 1
    assert found["restored"] is None
    assert any(line.startswith("perhaps missing: the order of the data") for line in found["lines"])
