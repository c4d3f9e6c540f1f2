"""Dangers that are told only where a trace shows them."""

from __future__ import annotations

from pathlib import Path

import pytest
from traces import Written

from ckptbench_probe.dangers import dangers
from ckptbench_probe.measures import measure
from ckptbench_probe.reading import read


@pytest.mark.parametrize("killed", [True, False])
def test_a_folder_of_trainer_that_a_kill_left_half_written_is_named(
    tmp_path: Path, killed: bool
) -> None:
    rank = Written().updates(1, 2).save(2.0, 2.1, after=2, path="/c/checkpoint-2", kind="transformers").updates(3, 4)  # fmt: skip
    rank.save(4.0, None if killed else 4.1, after=4, path="/c/checkpoint-4", kind="transformers")
    if not killed:
        rank.ended(5.0)
    run = read(rank.into(tmp_path))
    measures = measure(run)
    (told,) = (line for line in dangers(run, measures) if "get_last_checkpoint" in line)
    assert told.startswith("/c/checkpoint-4 is half written") is killed
    assert told.startswith("a checkpoint folder of Trainer that is half written") is not killed
    assert measures.stall is not None
    assert measures.stall.number == (
        1 if killed else 2
    )  # of a save that was cut off it is not known
