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
from submitit_qsub import NoAnswerError
from submitit_qsub.watcher import SILENCE_S

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


def test_a_job_that_has_used_all_of_its_time_and_no_second_more_is_over_its_limit(
    data: Path,
) -> None:
    record = qstat.read((data / "qstat.dsv").read_text())["308"]
    record |= {"resources_used.walltime": record["Resource_List.walltime"]}
    assert verdict.info("308", record)["State"] == "TIMEOUT"


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
        ("Job Id: 401.pbs1|Job_Name=tr", "was cut off in '401.pbs1"),
        ("Job Id: 401.pbs1|Job_Name=tr\n", "about job 401.pbs1 is not complete"),
    ],
)
def test_another_answer_is_named(answer: str, error: str) -> None:
    with pytest.raises(NoAnswerError, match=error):
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


@pytest.mark.parametrize(
    ("prints", "status"),
    [
        ("", 0),
        ("Notice of the site: maintenance tonight\n", 0),
        ("Job Id: 302.pbs1|job_state=F", 0),
        ("Job Id: 301.pbs1|job_state=R\n", 1),
        ("", 1),
    ],
)
def test_a_job_is_never_given_up_for_want_of_an_answer(
    watcher: PbsInfoWatcher,
    programs: Programs,
    monkeypatch: pytest.MonkeyPatch,
    prints: str,
    status: int,
) -> None:
    programs("qstat", prints, status)
    watcher.register_job("302")
    for hour in range(3):
        now_s = 3600.0 * hour
        monkeypatch.setattr(time, "monotonic", lambda now_s=now_s: now_s)
        with pytest.raises(NoAnswerError):
            watcher.ask()
    assert watcher.get_state("302", mode="cache") == "UNKNOWN"
    assert not watcher.is_done("302", mode="cache")


def test_a_job_that_is_neither_listed_nor_named_as_gone_is_waited_for_longer(
    watcher: PbsInfoWatcher, programs: Programs, data: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    programs(
        "qstat",
        (data / "qstat.dsv").read_text(),
        complains="qstat: 998.pbs1 Job has finished\nqstat: Unknown Job Id 97[].pbs1",
    )
    states = {}
    for job_id in ("998", "97_0", "999"):
        watcher.register_job(job_id)
    for now_s in (0, watcher.unknown_s, SILENCE_S):
        monkeypatch.setattr(time, "monotonic", lambda now_s=now_s: float(now_s))
        watcher.ask()
        states[now_s] = [
            watcher.get_state(job_id, mode="cache") for job_id in ("998", "97_0", "999")
        ]
    assert states == {
        0: ["COMPLETING"] * 3,
        watcher.unknown_s: ["FAILED", "FAILED", "COMPLETING"],
        SILENCE_S: ["FAILED"] * 3,
    }


def test_a_time_without_answers_is_not_a_time_without_the_job(
    watcher: PbsInfoWatcher, programs: Programs, monkeypatch: pytest.MonkeyPatch
) -> None:
    watcher.register_job("999")
    for hour, complaint in enumerate(
        ("Unknown Job Id 999.pbs1", "no server", "Unknown Job Id 999.pbs1")
    ):
        programs("qstat", status=153, complains=f"qstat: {complaint}")
        now_s = 3600.0 * hour
        monkeypatch.setattr(time, "monotonic", lambda now_s=now_s: now_s)
        watcher.update()
        assert watcher.get_state("999", mode="cache") == "COMPLETING"


def test_a_name_in_another_encoding_hides_no_state(
    watcher: PbsInfoWatcher, programs: Programs, tmp_path: Path
) -> None:
    programs("qstat")
    (tmp_path / "programs" / "qstat.prints").write_bytes(
        b"Job Id: 4711.pbs1|Job_Name=tr\344in|job_state=R|queue=q\n"
    )
    assert watcher.get_state("4711") == "RUNNING"


@pytest.mark.parametrize(
    ("fields", "remedy"),
    [
        ("job_state=H|Hold_Types=s|substate=20", "`qrls -h s 4711` lets it go"),
        ("job_state=H|Hold_Types=us|substate=20", "`qrls -h us 4711` lets it go"),
        ("job_state=H|Hold_Types=s|substate=22", ""),
        ("job_state=Q|comment=Can Never Run: Insufficient amount of resource", "`qdel 4711`, and"),
        ("job_state=Q|comment=Not Running: Not enough free nodes available", ""),
        ("job_state=Q|Hold_Types=n|substate=10", ""),
        ("job_state=Q|comment=Not Running: Queue not started.|queue=q7", "`qstat -Qf q7` shows"),
        ("job_state=S|substate=43", "`qsig -s resume 4711` lets it go on"),
        ("job_state=S|substate=45", ""),
        ("job_state=W|substate=30|Hold_Types=n", ""),
        ("job_state=R|substate=42|Hold_Types=u", ""),
    ],
)
def test_a_job_that_waits_for_a_person_comes_with_the_command(
    watcher: PbsInfoWatcher, programs: Programs, fields: str, remedy: str
) -> None:
    programs("qstat", f"Job Id: 4711.pbs1|Job_Name=train|{fields}\n")
    said = watcher.get_info("4711")["Remedy"]
    assert said.startswith(remedy)
    assert bool(said) == bool(remedy)


@pytest.mark.parametrize(
    ("array", "subjob", "remedy"),
    [
        ("H|Hold_Types=s|substate=20", "Q|Hold_Types=s|substate=10", "`qrls -h s '47[]'` lets it"),
        ("H|Hold_Types=u|substate=20", "Q|Hold_Types=u|substate=10", "`qrls -h u '47[]'` lets it"),
        ("H|Hold_Types=o|substate=20", "Q|substate=10", "`qrls -h o '47[]'` lets it go, where"),
        ("H|Hold_Types=s|substate=22", "Q|Hold_Types=s|substate=10", ""),
        ("H|Hold_Types=s|substate=20", "R|substate=42", ""),
        ("B|Hold_Types=n|substate=70", "Q|Hold_Types=n|substate=10", ""),
    ],
)
def test_a_held_array_comes_with_the_command_for_all_of_it(
    watcher: PbsInfoWatcher, programs: Programs, array: str, subjob: str, remedy: str
) -> None:
    """PBS holds an array as a whole: after twenty failed starts of one subjob, say. Its subjobs stay in Q."""
    comment = "comment=Job Array Held, too many failed attempts to run subjob"
    programs(
        "qstat",
        f"Job Id: 47[].pbs1|job_state={array}|{comment}\nJob Id: 47[3].pbs1|job_state={subjob}|{comment}\n",
    )
    info = watcher.get_info("47_3")
    assert info["Remedy"].startswith(remedy)
    assert bool(info["Remedy"]) == bool(remedy)
    assert ("too many failed attempts" in info["Reason"]) == subjob.startswith("Q")


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
