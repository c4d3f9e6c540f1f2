"""The progress line: what it counts and what it expects."""

from __future__ import annotations

import datetime
from pathlib import Path

from ckptbench.manifest import write_json
from ckptbench.progress import measure

CELLS = [
    f"{framework}-cnn-digits-r{ranks}-b8-n1-never-rep0"
    for framework in ("chainer", "pytorch")
    for ranks in (1, 2)
]
NOON = datetime.datetime(2026, 1, 2, 12, 0)


def finish(runs: Path, cell: str, seconds: float) -> None:
    (runs / cell).mkdir(parents=True)
    write_json(runs / cell / "manifest.json", {"duration_s": seconds})
    write_json(runs / cell / "seal.json", {})


def test_before_the_first_run_has_ended_no_end_is_promised(tmp_path: Path) -> None:
    line = measure(tmp_path, CELLS, CELLS[0]).line(CELLS[0], NOON)
    assert line == (
        f"cells: 0 done, 1 running ({CELLS[0]}), 3 left; "
        "expected end: unknown until the first run has ended"
    )


def test_what_is_left_takes_as_long_as_what_is_most_like_it(tmp_path: Path) -> None:
    finish(tmp_path, CELLS[0], 600)
    finish(tmp_path, CELLS[2], 60)
    measured = measure(tmp_path, CELLS, CELLS[1])
    assert (measured.done, measured.left) == (2, 1)
    assert measured.seconds_left == 600 + 60
    assert measured.line(CELLS[1], NOON).endswith("1 left; expected end: 2026-01-02 12:11")


def test_a_run_without_a_seal_is_not_done(tmp_path: Path) -> None:
    (tmp_path / CELLS[0]).mkdir()
    write_json(tmp_path / CELLS[0] / "manifest.json", {"duration_s": 1})
    assert measure(tmp_path, CELLS, CELLS[1]).done == 0


def test_on_a_cluster_no_end_is_promised(tmp_path: Path) -> None:
    finish(tmp_path, CELLS[0], 600)
    line = measure(tmp_path, CELLS, CELLS[1]).line_among_others(CELLS[1])
    assert line == f"cells: 1 done, 3 to do or running, among them {CELLS[1]}"
