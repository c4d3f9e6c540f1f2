"""What becomes of the answers of qstat and qacct: recorded from Son of Grid Engine 8.1.9, with
names and numbers made short."""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from pathlib import Path

import pytest
from submitit.core.utils import JobPaths

from submitit_gridengine import GridEngineInfoWatcher, accounting, qstat, watcher

Answer = Callable[[str, str], None]
Calls = Callable[[], list[str]]


def test_the_states_of_waiting_and_running_jobs(data: Path) -> None:
    infos = qstat.read((data / "qstat.xml").read_text())
    assert {job_id: info["State"] for job_id, info in infos.items()} == {
        "101": "RUNNING",
        "102_1": "RUNNING",
        "102_2": "COMPLETING",
        "103": "FAILED",
        "102_3": "PENDING",
        "102_5": "PENDING",
        "102_7": "PENDING",
        "102_9": "PENDING",
    }
    assert infos["102_1"]["NodeList"] == "node2"


@pytest.mark.parametrize(
    ("letters", "state"),
    [
        ("qw", "PENDING"),
        ("hRwq", "PENDING"),
        ("t", "RUNNING"),
        ("hr", "RUNNING"),
        ("ts", "RUNNING"),
        ("RS", "RUNNING"),
        ("T", "RUNNING"),
        ("dRr", "COMPLETING"),
        ("Ehqw", "FAILED"),
    ],
)
def test_the_letters_of_a_state(letters: str, state: str) -> None:
    assert qstat._state(letters) == state


@pytest.mark.parametrize(
    ("job_id", "state", "reason"),
    [
        ("201", "COMPLETED", ""),
        ("202", "FAILED", "ended with exit status 1"),
        ("203", "TIMEOUT", "killed after its time limit h_rt (20 s)"),
        ("204", "COMPLETED", ""),
        ("205_1", "COMPLETED", ""),
        ("205_2", "FAILED", "killed by SIGKILL: qdel, a limit, or no memory left on the host"),
        ("206", "FAILED", "Grid Engine could not run it: 26 (opening input/output file)"),
        ("207", "REQUEUED", "requeued"),
        ("208", "TIMEOUT", "ended with exit status 1, told to stop after 210 s (s_rt)"),
        ("209", "FAILED", "ended with exit status 3"),
    ],
)
def test_the_end_of_a_job(data: Path, job_id: str, state: str, reason: str) -> None:
    info = accounting.info(accounting.read((data / "qacct.txt").read_text())[job_id])
    assert (info["State"], info["Reason"]) == (state, reason)


@pytest.fixture
def cell(data: Path, answer: Answer) -> None:
    answer("qstat", (data / "qstat.xml").read_text())
    answer("qacct", (data / "qacct.txt").read_text())


@pytest.mark.usefixtures("cell")
def test_one_qstat_and_one_qacct_tell_of_any_number_of_jobs(
    watcher: GridEngineInfoWatcher, calls: Calls
) -> None:
    for job_id in ("101", "102_3", "201", "202", "205_2"):
        watcher.register_job(job_id)
    states = {job_id: watcher.get_state(job_id) for job_id in sorted(watcher._registered)}
    assert states == {
        "101": "RUNNING",
        "102_3": "PENDING",
        "201": "COMPLETED",
        "202": "FAILED",
        "205_2": "FAILED",
    }
    assert [call.split()[0] for call in calls()] == ["qstat", "qacct"]

    watcher.update()
    assert [call.split()[0] for call in calls()] == ["qstat"], "those that ended are asked again"


@pytest.mark.usefixtures("cell")
def test_accounting_is_asked_back_to_the_submission(
    watcher: GridEngineInfoWatcher, calls: Calls, tmp_path: Path
) -> None:
    paths = JobPaths(tmp_path, "201")
    paths.submission_file.write_text("")
    os.utime(paths.submission_file, (86_400, 86_400))
    watcher.register_job("201", paths)
    watcher.update()
    assert " -b 1970010" in calls()[1]


def test_a_broken_job_gives_the_error_of_its_host(
    watcher: GridEngineInfoWatcher, data: Path, tmp_path: Path, answer: Answer
) -> None:
    answer("qstat", "")
    lists = f"cat {data}/qstat.xml"
    details = f'[ "$*" = "-j 103" ] && cat {data}/qstat_reasons.txt'
    (tmp_path / "bin" / "qstat").write_text(f"#!/bin/sh\n{details} || {lists}\n")
    info = watcher.get_info("103")
    assert 'can\'t open output file "/nonexistent/103.out"' in info["Reason"]
    assert "`qdel 103`" in info["Reason"]
    assert watcher.is_done("103")


@pytest.mark.usefixtures("cell")
def test_a_requeued_job_between_two_runs_has_not_ended(
    watcher: GridEngineInfoWatcher, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert watcher.get_state("207") == "COMPLETING"
    monkeypatch.setattr(GridEngineInfoWatcher, "unknown_s", 0)
    watcher.update()
    assert watcher.get_state("207", mode="cache") == "CANCELLED"


@pytest.mark.usefixtures("cell")
def test_a_deleted_job_is_cancelled_with_and_without_a_record(
    watcher: GridEngineInfoWatcher,
) -> None:
    watcher.cancelled.update(["205_2", "207", "999"])
    for job_id in ("205_2", "207", "999"):
        assert watcher.get_info(job_id) | {"Reason": "deleted"} == watcher.get_info(job_id)
        assert watcher.get_state(job_id) == "CANCELLED"


@pytest.mark.usefixtures("cell")
def test_deletion_by_another_hand_is_noticed(
    watcher: GridEngineInfoWatcher, answer: Answer
) -> None:
    assert watcher.get_state("102_2") == "COMPLETING"
    answer("qstat", "<job_info/>")
    watcher.update()
    assert watcher.get_state("102_2", mode="cache") == "CANCELLED"


@pytest.mark.usefixtures("cell")
def test_a_wall_clock_that_is_set_ends_no_job(
    watcher: GridEngineInfoWatcher, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    watcher.register_job("998", JobPaths(tmp_path, "998"))
    assert watcher.get_state("998") == "COMPLETING"
    later_s = time.time() + 3600
    monkeypatch.setattr(time, "time", lambda: later_s)
    watcher.update()
    assert watcher.get_state("998", mode="cache") == "COMPLETING"


@pytest.mark.usefixtures("cell")
def test_a_result_counts_where_accounting_is_silent(
    watcher: GridEngineInfoWatcher, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(GridEngineInfoWatcher, "unknown_s", 0)
    paths = JobPaths(tmp_path, "998")
    watcher.register_job("998", paths)
    assert watcher.get_state("998") == "CANCELLED"
    watcher.clear()
    paths.result_pickle.write_text("")
    assert watcher.get_state("998", mode="force") == "COMPLETED"


@pytest.mark.parametrize("said", ["", "error: commlib error: got select error", "<job_info>"])
def test_no_answer_changes_nothing(
    watcher: GridEngineInfoWatcher, answer: Answer, data: Path, said: str
) -> None:
    answer("qacct", "")
    answer("qstat", (data / "qstat.xml").read_text())
    assert watcher.get_state("101") == "RUNNING"
    answer("qstat", said)
    watcher.update()
    assert watcher.get_state("101", mode="cache") == "RUNNING"


def test_a_user_without_a_name_is_a_number(monkeypatch: pytest.MonkeyPatch) -> None:
    def unknown(number: int) -> None:
        raise KeyError(number)

    monkeypatch.setattr("pwd.getpwuid", unknown)
    monkeypatch.delenv("USER", raising=False)
    assert watcher.user_name() == str(os.geteuid())
    monkeypatch.setenv("USER", "ada")
    assert watcher.user_name() == "ada"
