"""What becomes of the answers of qstat and qacct: recorded from Son of Grid Engine 8.1.9, with
names and numbers made short."""

from __future__ import annotations

import os
import re
import time
from collections.abc import Callable
from pathlib import Path

import pytest
from submitit.core.utils import JobPaths

from submitit_gridengine import GridEngineInfoWatcher, accounting, qstat, watcher
from submitit_gridengine.watcher import DELETION_S
from submitit_qsub import NoAnswerError
from submitit_qsub.watcher import SILENCE_S

Answer = Callable[..., None]
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
        ("208", "TIMEOUT", "ended with exit status 1, asked to stop after 210 s (s_rt)"),
        ("209", "FAILED", "ended with exit status 3"),
    ],
)
def test_the_end_of_a_job(data: Path, job_id: str, state: str, reason: str) -> None:
    info = accounting.info(accounting.read((data / "qacct.txt").read_text())[job_id])
    assert (info["State"], info["Reason"]) == (state, reason)


def test_a_limit_that_is_reached_exactly_is_told(data: Path) -> None:
    text = (data / "qacct.txt").read_text().replace("ru_wallclock 26s", "ru_wallclock 20s")
    info = accounting.info(accounting.read(text)["203"])
    assert info["State"] == "TIMEOUT"


def test_a_job_that_may_not_run_again_says_so(data: Path) -> None:
    """As recorded with FORBID_RESCHEDULE: an end like any other."""
    text = (data / "qacct.txt").read_text()
    refused = re.sub(r"exit_status( +)3\b", r"exit_status\g<1>99", text)
    info = accounting.info(accounting.read(refused)["209"])
    assert info["State"] == "FAILED"
    assert info["Reason"].startswith("asked to run again (exit status 99), which this Grid Engine")


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
    # The second and third ask who holds the tasks that are new and held.
    assert [call.split()[0] for call in calls()] == ["qstat", "qstat", "qstat", "qacct"]

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


LISTED = (
    '<?xml version="1.0"?><job_info><queue_info><job_list state="running"><JB_job_number>4711'
    "</JB_job_number><JB_name>{}</JB_name><state>r</state></job_list></queue_info><job_info/></job_info>\n"
)


@pytest.mark.parametrize(
    "said",
    [
        "warning: no master\n" + LISTED.format("train"),
        LISTED.format("a&b &amp; c"),
        LISTED.format("tr\x07in"),
        LISTED.format("train") + "bye\n",
    ],
)
def test_a_job_is_read_in_spite_of_notices_and_of_characters_that_xml_does_not_take(
    watcher: GridEngineInfoWatcher, answer: Answer, said: str
) -> None:
    answer("qstat", said)
    assert watcher.get_state("4711") == "RUNNING"


def test_a_name_in_another_encoding_hides_no_state(
    watcher: GridEngineInfoWatcher, answer: Answer, tmp_path: Path
) -> None:
    answer("qstat", "")
    (tmp_path / "bin" / "qstat.answer").write_bytes(LISTED.format("tr\xe4in").encode("latin-1"))
    assert watcher.get_state("4711") == "RUNNING"


@pytest.mark.parametrize("said", ["", "Notice of the site", LISTED.format("train")[:150]])
def test_a_job_is_never_given_up_for_want_of_an_answer(
    watcher: GridEngineInfoWatcher, answer: Answer, monkeypatch: pytest.MonkeyPatch, said: str
) -> None:
    answer("qstat", said)
    watcher.register_job("4711")
    for hour in range(3):
        now_s = 3600.0 * hour
        monkeypatch.setattr(time, "monotonic", lambda now_s=now_s: now_s)
        with pytest.raises(NoAnswerError):
            watcher.ask()
    assert watcher.get_state("4711", mode="cache") == "UNKNOWN"


@pytest.mark.parametrize(
    "last",
    [
        "pe_taskid    1",
        "exit_status  0                   \n",
        "jobnumber    209                 \n",
    ],
)
def test_accounting_that_was_cut_off_is_no_answer(data: Path, last: str) -> None:
    text = (data / "qacct.txt").read_text()
    with pytest.raises(NoAnswerError, match="cut off at job 209"):
        accounting.read(text[: text.rindex(last) + len(last)])


@pytest.mark.parametrize(
    ("qacct", "ends_after_s"),
    [
        (("", 0), GridEngineInfoWatcher.unknown_s),
        (("no jobs running since startup", 1), GridEngineInfoWatcher.unknown_s),
        (("", 1), SILENCE_S),
    ],
)
def test_a_job_that_qstat_does_not_list_is_waited_for_longer_where_accounting_fails(
    watcher: GridEngineInfoWatcher,
    answer: Answer,
    monkeypatch: pytest.MonkeyPatch,
    qacct: tuple[str, int],
    ends_after_s: int,
) -> None:
    answer("qstat", "<job_info/>")
    answer("qacct", *qacct)
    watcher.register_job("4711")
    ended_at = {}
    for now_s in (0, ends_after_s - 1, ends_after_s):
        monkeypatch.setattr(time, "monotonic", lambda now_s=now_s: float(now_s))
        watcher.ask()
        ended_at[now_s] = watcher.is_done("4711", mode="cache")
    assert ended_at == {0: False, ends_after_s - 1: False, ends_after_s: True}


def test_a_held_job_comes_with_the_command_that_lets_it_go(data: Path) -> None:
    infos = qstat.read((data / "qstat.xml").read_text())
    assert infos["102_9"]["Remedy"].startswith("`qrls 102.9` lets it go")
    assert "Remedy" not in infos["101"]


def test_a_suspended_job_comes_with_the_command_that_lets_it_go_on() -> None:
    """Of a job (s), and not of its queue (S, T), which goes on by itself."""
    remedies = {
        letters: qstat.read(LISTED.format("x").replace("<state>r", f"<state>{letters}"))["4711"]
        .get("Remedy", "")
        .partition(" lets")[0]
        for letters in ("s", "Rs", "S", "T", "r")
    }
    assert remedies == {
        "s": "`qmod -usj 4711`",
        "Rs": "`qmod -usj 4711`",
        "S": "",
        "T": "",
        "r": "",
    }


def test_a_job_that_waits_for_another_is_not_called_held(
    watcher: GridEngineInfoWatcher, answer: Answer, tmp_path: Path
) -> None:
    """Both are `hqw`; qstat lists those that somebody holds by themselves."""
    answer("qstat", "")
    both, one = "", ""
    for number in ("4711", "4712"):
        both += f"<job_list><JB_job_number>{number}</JB_job_number><state>hqw</state></job_list>"
        one = one or both
    (tmp_path / "bin" / "qstat").write_text(
        f'#!/bin/sh\ncase " $* " in\n*" -s huho "*) echo "<job_info>{one}</job_info>" ;;\n'
        f'*" -s hs "*) echo "<job_info/>" ;;\n'
        f'*) echo "<job_info>{both}</job_info>" ;;\nesac\n'
    )
    assert watcher.get_info("4711")["Remedy"].startswith("`qrls 4711` lets it go")
    watcher.register_job("4712")
    watcher.update()
    waits = watcher.get_info("4712", mode="cache")
    assert (waits["Reason"], waits["Remedy"]) == ("waits for another job", "")


def test_a_job_whose_deletion_does_not_end_comes_with_the_command_that_removes_it(
    watcher: GridEngineInfoWatcher, answer: Answer, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its host is gone."""
    answer("qstat", LISTED.format("x").replace("<state>r", "<state>dr"))
    watcher.register_job("4711")
    remedies = []
    for now_s in (0.0, DELETION_S - 1, DELETION_S):
        monkeypatch.setattr(time, "monotonic", lambda now_s=now_s: now_s)
        watcher.ask()
        remedies.append(watcher.get_info("4711", mode="cache").get("Remedy", ""))
        assert watcher.get_state("4711", mode="cache") == "COMPLETING"
    assert remedies[:2] == ["", ""]
    assert "`qdel -f 4711`" in remedies[2]


def test_a_user_without_a_name_is_a_number(monkeypatch: pytest.MonkeyPatch) -> None:
    def unknown(number: int) -> None:
        raise KeyError(number)

    monkeypatch.setattr("pwd.getpwuid", unknown)
    monkeypatch.delenv("USER", raising=False)
    assert watcher.user_name() == str(os.geteuid())
    monkeypatch.setenv("USER", "ada")
    assert watcher.user_name() == "ada"
