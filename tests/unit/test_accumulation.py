"""Gradient accumulation: which parts a batch has, which configs can have it, and that trainings of before stay the same."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from ckptbench.common.errors import ConfigError
from ckptbench.config.expansion import expand
from ckptbench.config.study import load_config
from ckptbench.frameworks.contract import parts_of
from ckptbench.matrix.cell import Cell
from ckptbench.matrix.registry import FRAMEWORKS
from ckptbench.run.identity import training_fields


@pytest.mark.parametrize(
    ("samples", "accumulation", "sizes"),
    [(8, 1, [8]), (8, 4, [2, 2, 2, 2]), (7, 3, [2, 2, 3]), (2, 4, [1, 1])],
)
def test_parts_follow_one_another_and_hold_every_sample_once(
    samples: int, accumulation: int, sizes: list[int]
) -> None:
    parts = parts_of(samples, accumulation)
    assert [part.stop - part.start for part in parts] == sizes
    assert [sample for part in parts for sample in range(samples)[part]] == list(range(samples))


def test_it_needs_a_framework_and_a_batch_that_can_be_split(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def expanded(batch_size: int) -> list[Cell]:
        common = {"framework": "jax", "model": "small_cnn", "batch_size": batch_size, "ranks": 1}
        return expand(load_config({"matrix": common, "training": {"accumulation": 3}}))

    assert expanded(batch_size=6)
    words = "training.accumulation is 3, and batch_size 8 is not a multiple of it"
    with pytest.raises(ConfigError, match=words):
        expanded(batch_size=8)
    monkeypatch.setitem(FRAMEWORKS, "jax", replace(FRAMEWORKS["jax"], offers=()))
    words = "jax does not have training.accumulation: use it with pytorch, tensorflow, h"
    with pytest.raises(ConfigError, match=words):
        expanded(batch_size=6)


def test_a_training_of_before_there_was_a_choice_is_the_same() -> None:
    """Its result stays valid, and a checkpoint of it is gone on from."""

    def fields(**training: object) -> dict[str, Any]:
        return training_fields({}, {"seed": 1, **training}, "", "")

    assert fields() == fields(accumulation=1)
    assert fields() != fields(accumulation=2)
