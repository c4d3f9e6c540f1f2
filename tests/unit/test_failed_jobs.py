"""After failed jobs the workflow ends with what failed, why, and how to go on."""

from __future__ import annotations

import os
import time
from collections.abc import Sequence
from pathlib import Path

import pytest

from ckptbench.common import remedies
from ckptbench.config.failed import MOST_SHOWN, FailedJob, advice


def told(failed: Sequence[FailedJob], results: Path, seals: Sequence[str] = ()) -> list[str]:
    return advice(failed, seals, results).splitlines()


def test_finished_runs_are_counted(tmp_path: Path) -> None:
    seals = [str(tmp_path / name) for name in ("a", "b", "c")]
    failed = [FailedJob("train_cell", {"cell": "b"})]
    assert told(failed, tmp_path, seals)[-1].startswith("0 of 3 runs are finished. Tables and")
    (tmp_path / "a").touch()
    lines = told(failed, tmp_path, seals)
    assert lines[1] == "FAILED: b"
    assert lines[-1].startswith("1 of 3 runs are finished. They stay and are not repeated.")


@pytest.mark.parametrize("age_s", [None, 60.0])
def test_of_a_job_that_was_never_started_no_log_is_named(
    tmp_path: Path, age_s: float | None
) -> None:
    log, now = tmp_path / "draw.log", time.time()
    if age_s is not None:
        log.write_text("RunFolderError: of yesterday: mended since\n")
        os.utime(log, (now - age_s, now - age_s))
    lines = told([FailedJob("draw_overhead", {}, (log,), now)], tmp_path)
    assert lines[1:3] == ["FAILED: draw_overhead", "    it has written no log: read the messages above"]  # fmt: skip


def test_a_figure_that_fails_takes_no_run_with_it(tmp_path: Path) -> None:
    log = tmp_path / "draw.log"
    log.write_text("reading\nRunFolderError: steps.parquet: not the table\n    more\n")
    lines = told([FailedJob("draw_overhead", {}, (log,))], tmp_path)
    assert lines[1:4] == [
        "FAILED: draw_overhead",
        "    RunFolderError: steps.parquet: not the table",
        f"    its log: {log}",
    ]
    assert lines[-1].startswith("Finished runs are kept.")


def test_many_failed_jobs_are_counted(tmp_path: Path) -> None:
    jobs = [FailedJob("draw", {"figure": str(n)}) for n in range(MOST_SHOWN + 3)]
    lines = told(jobs, tmp_path)
    assert f"FAILED: draw {MOST_SHOWN - 1}" in lines
    assert "and 3 more jobs failed" in lines


def test_a_full_results_folder_is_named_first(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("ckptbench.config.failed.is_full", lambda place: True)
    lines = told([FailedJob("decide", {}, (tmp_path / "gone.log",))], tmp_path)
    where = remedies.mount_of(tmp_path)
    assert lines[1].startswith(f"{tmp_path} is full: ")
    assert lines[1].endswith(f" MB are free on {where}. Free some, and start the study again.")


def test_the_error_of_a_rank_is_told_with_that_of_its_launcher(tmp_path: Path) -> None:
    log = tmp_path / "train.log"
    log.write_text(
        "[rank-1] rank 1: at work\nLaunchError: rank-1 ended with exit status 1; last lines:\n"
        "    [rank-1] rank 1: rank 1 died\n    [rank-1] rank 1: OSError: /x: No space left on device; free some\n"
    )
    assert FailedJob("train_cell", {}, (log,)).cause() == (
        "LaunchError: rank-1 ended with exit status 1; [rank-1] rank 1: OSError: /x: No space left on device; free some"
    )
