"""`ckptbench-probe check all`: each answer of a training without a framework, and what it says where it cannot ask."""

from __future__ import annotations

import json
import subprocess
from typing import Any
from xml.etree import ElementTree

import pytest
from probed import Bench

from ckptbench_probe.check.questions import CANNOT_TELL, DOES_NOT_APPLY, NO, QUESTIONS, YES
from ckptbench_probe.check.rhythm import NotApplicableError, Rhythm, updates_between

LOOP = """
import json, os, signal, sys
from ckptbench_probe import session
folder, how = sys.argv[1:]
os.makedirs(folder, exist_ok=True)
newest = os.path.join(folder, "newest.json")
done, drawn = json.load(open(newest)) if os.path.exists(newest) else (0, 0)
if how == "forgets":
    drawn = 0
stop = []
signal.signal(signal.SIGTERM, lambda *_: stop.append(1))
with session() as s:
    while done < 36:
        done, drawn = done + 1, drawn + 1
        s.step(state={"weight": float(drawn)}, update=done)
        if done % 4 == 0 or stop:
            with s.checkpoint(newest):
                with open(newest + ".new", "w") as file:
                    json.dump([done, drawn], file)
                    file.flush()
                    os.fsync(file.fileno())
                os.replace(newest + ".new", newest)
                within = os.open(folder, os.O_RDONLY)
                os.fsync(within)
                os.close(within)
        if stop:
            break
"""
SAFE = {
    "resume_epoch": YES,
    "resume_within": YES,
    "resume_ranks": DOES_NOT_APPLY,
    "kill": YES,
    "powercut": YES,
    "stop": YES,
    "fail": YES,
}


def check(bench: Bench, how: str, *options: str) -> tuple[int, list[str], dict[str, Any]]:
    command = [bench.launcher, str(bench.write("train.py", LOOP)), "{folder}", how]
    done = subprocess.run(
        [*bench.probe(), "check", "all", *options, "--", *command],
        cwd=bench.folder, env=bench.environment(), capture_output=True, text=True, check=False, timeout=300,
    )  # fmt: skip
    path = bench.folder / "ckptbench-check" / "all.json"
    report = json.loads(path.read_text()) if path.exists() else {}
    return done.returncode, (done.stdout or done.stderr).splitlines(), report


def verdicts(report: dict[str, Any]) -> dict[str, str]:
    return {one["name"]: one["verdict"] for one in report["answers"]}


def test_a_training_done_right_has_a_yes_for_each_question(bench: Bench) -> None:
    """How often it saves is found by its first run. The probe cannot read its files."""
    code, lines, report = check(bench, "right", "--epoch", "12", "--stop=--grace 20s")
    assert verdicts(report) == {**SAFE, "saves": CANNOT_TELL, "pointer": DOES_NOT_APPLY}, lines
    assert code == 2
    assert [line.split()[-len(one["why"].split()) :] for line, one in zip(lines, report["answers"])] == [one["why"].split() for one in report["answers"]]  # fmt: skip
    commands = {one["name"]: one["command"] for one in report["answers"]}
    assert "check resume --kill-at 15 --until 27 -- " in commands["resume_epoch"]
    assert "check resume --kill-at 23 --until 35 -- " in commands["resume_within"]
    assert "check stop --at 10 --grace 20s -- " in commands["stop"]


def test_a_part_that_is_not_saved_is_a_no_in_junit_as_well(bench: Bench) -> None:
    options = ("--only", "resume_within,saves", "--every", "4", "--epoch", "12", "--junit", "made/j.xml")  # fmt: skip
    code, _, report = check(bench, "forgets", *options)
    assert code == 1
    assert verdicts(report)["resume_within"] == NO
    suite = ElementTree.parse(bench.folder / "made" / "j.xml").getroot()
    assert (suite.get("tests"), suite.get("failures")) == ("2", "1")
    (failure,) = suite.iter("failure")
    assert failure.get("message") == report["answers"][0]["why"]


def test_a_training_that_fails_has_no_answer_and_says_why(bench: Bench) -> None:
    bench.write("crash.py", "raise SystemExit('no data')")
    command = [bench.launcher, "crash.py", "{folder}"]
    words = [*bench.probe(), "check", "all", "--json", "--only", "resume_within,saves", "--", *command]  # fmt: skip
    done = subprocess.run(words, cwd=bench.folder, env=bench.environment(), capture_output=True, text=True, check=False, timeout=60)  # fmt: skip
    report = json.loads(done.stdout)
    assert done.returncode == report["exit_code"] == 2
    assert verdicts(report) == dict.fromkeys(("resume_within", "saves"), CANNOT_TELL)
    assert "--every" in report["answers"][0]["why"]


@pytest.mark.parametrize(
    ("options", "said"),
    [
        (("--only", "resum"), '"resum" is not one of '),
        (("--every", "0"), "updates"),
        (("--resume", "again {ranks} {folder}"), "name their number by --ranks"),
    ],
)
def test_a_wrong_option_is_refused_in_one_line(
    options: tuple[str, ...], said: str, bench: Bench
) -> None:
    code, lines, _ = check(bench, "right", *options)
    assert code == 2
    assert said in lines[-1]


def test_kills_come_where_the_resume_shows_what_is_asked() -> None:
    rhythm = Rhythm(every=4, epoch=12)
    assert (rhythm.epoch_end, rhythm.after_save(rhythm.epoch_end)) == (12, 15)
    assert (rhythm.within_epoch, rhythm.after_save(rhythm.within_epoch)) == (20, 23)
    assert Rhythm(every=5, epoch=4).epoch_end == 20
    with pytest.raises(NotApplicableError, match="only at the end of an epoch"):
        assert Rhythm(every=12, epoch=12).within_epoch
    with pytest.raises(NotApplicableError, match="--epoch"):
        assert Rhythm(every=4).epoch_end
    with pytest.raises(NotApplicableError, match="--resume-ranks"):
        assert Rhythm(every=4, ranks=2).other_ranks
    assert (updates_between([4, 8, 12, 36]), updates_between([36])) == (4, None)


def test_the_number_of_ranks_is_filled_in_where_the_check_does_not_do_it() -> None:
    options = QUESTIONS["resume_ranks"].options(Rhythm(4, 12, ranks=2, resume_ranks=1))
    assert options == ["--kill-at", "11", "--ranks", "2", "--resume-ranks", "1"]


def resumed(start: int, code: int = 0) -> dict[str, Any]:
    return {"exit_code": code, "lines": ["told"], "resumed_from": start, "at": 10}


@pytest.mark.parametrize(
    ("name", "report", "verdict"),
    [
        ("resume_epoch", resumed(12), YES),
        ("resume_epoch", resumed(8), CANNOT_TELL),
        ("resume_within", resumed(20, 1), NO),
        ("resume_within", resumed(12), CANNOT_TELL),
        ("resume_within", resumed(0, 1), NO),
        ("stop", resumed(10), YES),
        ("stop", resumed(12), CANNOT_TELL),
        ("stop", resumed(8, 3), NO),
    ],
)
def test_an_answer_is_of_its_question(name: str, report: dict[str, Any], verdict: str) -> None:
    """A restart from elsewhere, or a save that would have come anyhow, answers none."""
    assert QUESTIONS[name].answer(report, Rhythm(4, 12))[0] == verdict


@pytest.mark.parametrize(
    ("changes", "saves", "pointer"),
    [
        ({"exit_code": 0, "verdict": "sound", "pointers": 3}, YES, YES),
        ({"exit_code": 1, "verdict": "torn", "pointers": 3}, NO, YES),
        ({"exit_code": 4, "verdict": "pointed too early", "pointed_too_early": ["latest"]}, YES, NO),
        ({"exit_code": 0, "verdict": "sound"}, YES, DOES_NOT_APPLY),
        ({"exit_code": 2, "verdict": "cannot tell", "command_exit_code": 1}, CANNOT_TELL, CANNOT_TELL),
    ],
)  # fmt: skip
def test_saves_and_their_pointer_are_two_answers_of_one_check(
    changes: dict[str, Any], saves: str, pointer: str
) -> None:
    report = {
        "lines": ["told"], "checkpoints": [{}], "pointers": 0, "pointed_too_early": [], "command_exit_code": 0, "troubles": [], "ranks": 1, **changes,
    }  # fmt: skip
    found = [QUESTIONS[name].answer(report, Rhythm(4))[0] for name in ("saves", "pointer")]
    assert found == [saves, pointer]


def test_each_question_is_one_of_a_check_that_is_there() -> None:
    from ckptbench_probe.check.verbs import VERBS, load

    assert {question.verb for question in QUESTIONS.values()} == set(VERBS) - {"all"}
    assert {load(one.verb).REPORT for one in QUESTIONS.values()} == {one.report for one in QUESTIONS.values()}  # fmt: skip
