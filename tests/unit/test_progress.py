"""The progress line: what it counts and what it expects."""

from __future__ import annotations

import dataclasses
import datetime

from ckptbench.config.progress import progress_line
from ckptbench.matrix.cell import Cell
from ckptbench.matrix.interval import NEVER, Interval
from ckptbench.matrix.registry import NO_FORMAT

CELLS = [
    Cell(
        framework=framework, model="small_cnn", dataset="digits", ranks=ranks, batch_size=8, epochs=1,
        format=NO_FORMAT, interval=NEVER,
    )
    for framework in ("chainer", "pytorch")
    for ranks in (1, 2)
]  # fmt: skip
NOON = datetime.datetime(2026, 1, 2, 12, 0)


def test_before_the_first_run_has_ended_no_end_is_promised() -> None:
    assert progress_line(CELLS, CELLS[0], {}, NOON) == (
        f"cells: 0 done, 1 running ({CELLS[0].id}), 3 left; "
        "expected end: unknown until the first run has ended"
    )
    assert ": unknown until" in progress_line(CELLS, CELLS[1], {CELLS[0]: None}, NOON)


def test_what_is_left_takes_as_long_as_what_is_most_like_it() -> None:
    line = progress_line(CELLS, CELLS[1], {CELLS[0]: 600, CELLS[2]: 60}, NOON)
    assert line == (
        f"cells: 2 done, 1 running ({CELLS[1].id}), 1 left; expected end: 2026-01-02 12:11"
    )


def test_a_run_is_like_another_by_the_fields_that_matter_most() -> None:
    same_framework = dataclasses.replace(CELLS[1], deterministic=True)
    durations = {same_framework: 600, CELLS[2]: 60}
    line = progress_line([CELLS[0]], CELLS[0], durations, NOON)
    assert line.endswith("expected end: 2026-01-02 12:10")


def test_on_a_cluster_no_end_is_promised() -> None:
    line = progress_line(CELLS, CELLS[1], {CELLS[0]: 600}, None)
    assert line == f"cells: 1 done, 3 to do or running, among them {CELLS[1].id}"


def test_a_name_with_a_part_more_is_no_less_alike() -> None:
    """The name of a cell in default mode lacks the part that the other has: the fields agree all the same."""
    whole = dataclasses.replace(CELLS[0], format="npz", interval=Interval.parse("e1"))
    again = dataclasses.replace(whole, history="again", repeat=1)
    deterministic = dataclasses.replace(whole, deterministic=True)
    line = progress_line([whole, again], again, {whole: 60, deterministic: 600}, NOON)
    assert line.endswith("expected end: 2026-01-02 12:01")
