"""What becomes of the answers of qstat.

`recorded.dsv` comes from a server (OpenPBS 23.06.06); `qstat.dsv` is written after it, for the ends of
jobs that are hard to bring about.
"""

from __future__ import annotations

import re
import time
from collections.abc import Callable
from pathlib import Path

import pytest
from submitit.core.utils import JobPaths

from submitit_pbs import PbsInfoWatcher, qstat, verdict

Programs = Callable[..., Path]


@pytest.mark.parametrize(
    ("job_id", "state", "reason"),
    [
        ("301", "PENDING", "Not Running: Not enough free nodes available"),
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
    info = verdict.info(job_id, qstat.read((data / "qstat.dsv").read_text())[job_id])
    assert info["State"] == state
    assert re.fullmatch(reason, info["Reason"]), info["Reason"]


def test_a_value_may_hold_what_divides_values() -> None:
    answer = r"Job Id: 401.pbs1|Job_Name=a\|b=c|job_state=R|comment=one\nJob Id: 9|queue=q"
    record = {"Job_Name": "a|b=c", "job_state": "R", "queue": "q"}
    assert qstat.read(answer + "\n") == {"401": {**record, "comment": r"one\nJob Id: 9"}}


def test_a_value_may_span_lines() -> None:
    answer = "Job Id: 401.pbs1|Variable_List=F=() {\n true\n}|job_state=R\nJob Id: 402.pbs1|job_state=Q\n"
    assert {job: record["job_state"] for job, record in qstat.read(answer).items()} == {
        "401": "R",
        "402": "Q",
    }


@pytest.mark.parametrize(
    ("answer", "error"),
    [
        ("Connection refused", "listed no job, but said 'Connection refused'"),
        ("Job Id: 401.pbs1|Job_Name=tr", "about job 401.pbs1 is not complete"),
    ],
)
def test_another_answer_is_named(answer: str, error: str) -> None:
    with pytest.raises(qstat.QstatError, match=error):
        qstat.read(answer)


def test_one_question_for_any_number_of_jobs() -> None:
    assert qstat.command(["301", "302"]) == ["qstat", "-x", "-f", "-F", "dsv", "301", "302"]
    asked = qstat.command(["320[0]", "301", "320[1]"])
    assert asked == ["qstat", "-x", "-t", "-f", "-F", "dsv", "301", "320[]"]


def test_states_come_from_one_call(
    watcher: PbsInfoWatcher, programs: Programs, data: Path, tmp_path: Path
) -> None:
    programs("qstat", (data / "qstat.dsv").read_text())
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
        "qstat -x -t -f -F dsv 301 305 320[]",
        "qstat -x -t -f -F dsv 301 320[]",
    ]


def test_a_forgotten_job_hides_no_other(
    watcher: PbsInfoWatcher,
    programs: Programs,
    data: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    answer = (data / "qstat.dsv").read_text()
    programs("qstat", answer, status=153, complains="qstat: Unknown Job Id 999.pbs1")
    paths = JobPaths(tmp_path, "999")
    watcher.register_job("999", paths)
    watcher.register_job("302", JobPaths(tmp_path, "302"))
    assert watcher.get_state("302") == "RUNNING"
    assert watcher.get_state("999") == "COMPLETING"
    later_s = time.time() + 3600  # the wall clock was set
    monkeypatch.setattr(time, "time", lambda: later_s)
    watcher.update()
    assert watcher.get_state("999", mode="cache") == "COMPLETING"

    monkeypatch.setattr(PbsInfoWatcher, "unknown_s", 0)
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
    programs("qstat", (data / "qstat.dsv").read_text())
    watcher.register_job("306", JobPaths(tmp_path, "306"))
    watcher.cancelled.add("306")
    assert watcher.get_state("306") == "CANCELLED"


@pytest.mark.parametrize("answer", [("", 1), ("Job Id: 302.pbs1|Job", 0), ("no server", 111)])
def test_no_answer_changes_nothing(
    watcher: PbsInfoWatcher, programs: Programs, data: Path, answer: tuple[str, int]
) -> None:
    programs("qstat", (data / "qstat.dsv").read_text())
    watcher.register_job("302")
    assert watcher.get_state("302") == "RUNNING"
    programs("qstat", *answer)
    watcher.update()
    assert watcher.get_state("302", mode="cache") == "RUNNING"


def test_a_deleted_job_that_pbs_calls_ended_well_is_cancelled_unless_its_result_is_there(
    watcher: PbsInfoWatcher, programs: Programs, data: Path, tmp_path: Path
) -> None:
    """A subjob that had not yet run, and a job that stopped in good order."""
    programs("qstat", (data / "recorded.dsv").read_text())
    for job_id in ("29_0", "29_1", "31_0"):
        watcher.register_job(job_id, JobPaths(tmp_path, job_id))
    assert watcher.get_state("29_0") == "COMPLETED"
    assert watcher.get_state("29_1") == "CANCELLED"
    assert watcher.get_state("31_0") == "CANCELLED"
    assert watcher.get_info("31_0", mode="cache")["Reason"] == "deleted"
    JobPaths(tmp_path, "31_0").result_pickle.write_text("")
    watcher._finished.clear()
    assert watcher.get_state("31_0", mode="force") == "COMPLETED"


def test_a_server_without_history_is_asked_again_for_the_jobs_that_it_still_has(
    watcher: PbsInfoWatcher, programs: Programs, data: Path, tmp_path: Path
) -> None:
    programs("qstat")
    qstat_program = tmp_path / "programs" / "qstat"
    qstat_program.write_text(
        f'#!/bin/sh\necho "qstat $*" >> {tmp_path}/calls\ncase " $* " in\n'
        '*" -x "*) echo "qstat: PBS is not configured to maintain job history" >&2 ;;\n'
        f"*) grep 'Job Id: 302' {data / 'qstat.dsv'} ;;\nesac\n"
    )
    watcher.register_job("302", JobPaths(tmp_path, "302"))
    assert watcher.get_state("302") == "RUNNING"
    calls = (tmp_path / "calls").read_text().splitlines()
    assert calls == ["qstat -x -f -F dsv 302", "qstat -f -F dsv 302"]
