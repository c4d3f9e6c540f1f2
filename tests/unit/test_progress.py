"""The progress line: what it counts and what it expects."""

from __future__ import annotations

import dataclasses
import datetime
from pathlib import Path

import pytest

from ckptbench.machine.files import write_json
from ckptbench.matrix.catalogue import NO_FORMAT
from ckptbench.matrix.cell import Cell
from ckptbench.matrix.interval import NEVER, Interval
from ckptbench.study.progress import measure

CELLS = [
    Cell(
        framework=framework, model="small_cnn", dataset="digits", ranks=ranks, batch_size=8, epochs=1,
        format=NO_FORMAT, interval=NEVER,
    )
    for framework in ("chainer", "pytorch")
    for ranks in (1, 2)
]  # fmt: skip
NOON = datetime.datetime(2026, 1, 2, 12, 0)


def finish(runs: Path, cell: Cell, seconds: float) -> None:
    (runs / cell.id).mkdir(parents=True)
    write_json(runs / cell.id / "manifest.json", {"duration_s": seconds})
    write_json(runs / cell.id / "seal.json", {})


def test_before_the_first_run_has_ended_no_end_is_promised(tmp_path: Path) -> None:
    line = measure(tmp_path, CELLS, CELLS[0]).line(CELLS[0].id, NOON)
    assert line == (
        f"cells: 0 done, 1 running ({CELLS[0].id}), 3 left; "
        "expected end: unknown until the first run has ended"
    )


def test_what_is_left_takes_as_long_as_what_is_most_like_it(tmp_path: Path) -> None:
    finish(tmp_path, CELLS[0], 600)
    finish(tmp_path, CELLS[2], 60)
    measured = measure(tmp_path, CELLS, CELLS[1])
    assert (measured.done, measured.left) == (2, 1)
    assert measured.seconds_left == 600 + 60
    assert measured.line(CELLS[1].id, NOON).endswith("1 left; expected end: 2026-01-02 12:11")


def test_a_run_without_a_seal_is_not_done(tmp_path: Path) -> None:
    (tmp_path / CELLS[0].id).mkdir()
    write_json(tmp_path / CELLS[0].id / "manifest.json", {"duration_s": 1})
    assert measure(tmp_path, CELLS, CELLS[1]).done == 0


@pytest.mark.parametrize("manifest", ["{}", "", '{"duration_s":null}', '{"duration_s":"long"}'])
def test_a_sealed_run_with_a_damaged_manifest_ends_no_other_run(
    tmp_path: Path, manifest: str
) -> None:
    finish(tmp_path, CELLS[0], 600)
    (tmp_path / CELLS[0].id / "manifest.json").write_text(manifest)
    measured = measure(tmp_path, CELLS, CELLS[1])
    assert (measured.done, measured.seconds_left) == (1, None)


def test_on_a_cluster_no_end_is_promised(tmp_path: Path) -> None:
    finish(tmp_path, CELLS[0], 600)
    line = measure(tmp_path, CELLS, CELLS[1]).line_among_others(CELLS[1].id)
    assert line == f"cells: 1 done, 3 to do or running, among them {CELLS[1].id}"


def test_a_name_with_a_part_more_is_no_less_alike(tmp_path: Path) -> None:
    """The name of a cell in default mode lacks the part that the other has: the fields agree all the same."""
    whole = dataclasses.replace(CELLS[0], format="npz", interval=Interval.parse("e1"))
    again = dataclasses.replace(whole, history="again", repeat=1)
    deterministic = dataclasses.replace(whole, deterministic=True)
    finish(tmp_path, whole, 60)
    finish(tmp_path, deterministic, 600)
    assert measure(tmp_path, [whole, again, deterministic], again).seconds_left == 60
