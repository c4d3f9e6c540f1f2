"""What becomes of the answers of qstat.

They are written after the format of PBS Professional 18 to 2022 and OpenPBS, with the faults that
openpbs issues 1255, 2049 and 2541 report; none was recorded from a server of our own.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path

import pytest
from submitit.core.utils import JobPaths

from submitit_pbs import PbsInfoWatcher, qstat, verdict
from submitit_pbs import watcher as watcher_module

Programs = Callable[..., Path]


@pytest.mark.parametrize(
    ("job_id", "state", "reason"),
    [
        ("301", "PENDING", ""),
        ("302", "RUNNING", ""),
        ("303", "PENDING", ""),
        ("304", "COMPLETING", ""),
        ("305", "COMPLETED", ""),
        ("306", "FAILED", "ended with exit status 1; PBS says: Job run at .* and failed"),
        ("307", "TIMEOUT", r"killed after its time limit \(walltime\); .*"),
        ("308", "TIMEOUT", r"killed by SIGTERM, after its time limit \(walltime\); .*"),
        ("309", "OUT_OF_MEMORY", r"killed at its limit of memory \(mem\); .*"),
        ("310", "CANCELLED", "deleted before it ran; .*"),
        ("311", "CANCELLED", r"deleted \(killed by SIGKILL\); .*"),
        ("312", "RUNNING", ""),
        ("313", "FAILED", "PBS could not start it, and tried again; .*"),
        ("320[0]", "COMPLETED", ""),
        ("320[1]", "RUNNING", ""),
        ("320[2]", "PENDING", ""),
        ("320[3]", "UNKNOWN", ""),
    ],
)
def test_the_state_of_a_job(data: Path, job_id: str, state: str, reason: str) -> None:
    info = verdict.info(job_id, qstat.read((data / "qstat.json").read_text())[job_id])
    assert info["State"] == state
    assert re.fullmatch(reason, info["Reason"]), info["Reason"]


def test_an_answer_that_is_not_quite_json_is_read(data: Path) -> None:
    records = qstat.read((data / "qstat_broken.json").read_text())
    assert records["401"]["Job_Name"] == "007"
    assert verdict.info("401", records["401"])["State"] == "COMPLETED"
    assert verdict.info("402", records["402"])["State"] == "RUNNING"
    assert 'says "full"' in records["402"]["comment"]


def test_an_answer_that_is_no_json_at_all_is_named() -> None:
    with pytest.raises(qstat.QstatError, match=r"printed no JSON: .*'Connection refused'"):
        qstat.read("Connection refused")


def test_one_question_for_any_number_of_jobs() -> None:
    assert qstat.command(["301", "302"]) == ["qstat", "-x", "-f", "-F", "json", "301", "302"]
    asked = qstat.command(["320[0]", "301", "320[1]"])
    assert asked == ["qstat", "-x", "-t", "-f", "-F", "json", "301", "320[]"]


def test_states_come_from_one_call(
    watcher: PbsInfoWatcher, programs: Programs, data: Path, tmp_path: Path
) -> None:
    programs("qstat", (data / "qstat.json").read_text())
    for job_id in ("301", "305", "320_0", "320_2"):
        watcher.register_job(job_id, JobPaths(tmp_path, job_id))
    states = {job_id: watcher.get_state(job_id) for job_id in sorted(watcher._registered)}
    assert states == {
        "301": "PENDING",
        "305": "COMPLETED",
        "320_0": "COMPLETED",
        "320_2": "PENDING",
    }
    watcher.update()
    assert (tmp_path / "calls").read_text().splitlines() == [
        "qstat -x -t -f -F json 301 305 320[]",
        "qstat -x -t -f -F json 301 320[]",
    ]


def test_a_forgotten_job_hides_no_other(
    watcher: PbsInfoWatcher,
    programs: Programs,
    data: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    answer = (data / "qstat.json").read_text()
    programs("qstat", answer, status=153, complains="qstat: Unknown Job Id 999.pbs1")
    paths = JobPaths(tmp_path, "999")
    watcher.register_job("999", paths)
    watcher.register_job("302", JobPaths(tmp_path, "302"))
    assert watcher.get_state("302") == "RUNNING"
    assert watcher.get_state("999") == "COMPLETING"

    monkeypatch.setattr(watcher_module, "HISTORY_DELAY_S", 0)
    watcher.update()
    assert watcher.get_state("999", mode="cache") == "FAILED"
    assert "is its job history on?" in watcher.get_info("999", mode="cache")["Reason"]

    watcher._finished.discard("999")
    paths.result_pickle.write_text("")
    watcher.update()
    assert watcher.get_state("999", mode="cache") == "COMPLETED"


def test_a_job_deleted_from_here_is_cancelled_however_it_ended(
    watcher: PbsInfoWatcher, programs: Programs, data: Path, tmp_path: Path
) -> None:
    programs("qstat", (data / "qstat.json").read_text())
    watcher.register_job("306", JobPaths(tmp_path, "306"))
    watcher.cancelled.add("306")
    assert watcher.get_state("306") == "CANCELLED"


@pytest.mark.parametrize("answer", [("", 1), ("{", 0), ("no server", 111)])
def test_no_answer_changes_nothing(
    watcher: PbsInfoWatcher, programs: Programs, data: Path, answer: tuple[str, int]
) -> None:
    programs("qstat", (data / "qstat.json").read_text())
    watcher.register_job("302")
    assert watcher.get_state("302") == "RUNNING"
    programs("qstat", *answer)
    watcher.update()
    assert watcher.get_state("302", mode="cache") == "RUNNING"
