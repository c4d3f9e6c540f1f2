"""`ckptbench-probe check resume`: what it compares, what it says, and how it ends; trainings without a framework name their state themselves."""

from __future__ import annotations

import json
import subprocess
import sys
import time
from dataclasses import replace
from pathlib import Path

import pytest
from probed import Bench, interpreters

from ckptbench_probe.check.alignment import Unknown, resumed_from
from ckptbench_probe.check.processes import below
from ckptbench_probe.check.seen import Seen
from ckptbench_probe.check.states import Rank, State
from ckptbench_probe.check.verdict import Verdict, judge

LOOP = """
import json, os, random, sys
from ckptbench_probe import session
folder = sys.argv[1]
os.makedirs(folder, exist_ok=True)
newest = os.path.join(folder, "newest.json")
random.seed(1)
weight, done = 0.0, 0
if os.path.exists(newest):
    saved = json.load(open(newest))
    weight, done = saved["weight"], saved["done"]
    RESTORE
with session() as s:
    while done < 12:
        weight += random.random()
        done += 1
        s.step(state={"weight": weight, "moments": [weight / 2]}, update=done)
        if done % 4 == 0:
            version, keys, gauss = random.getstate()
            with s.checkpoint(newest):
                json.dump({"weight": weight, "done": done, "random": [version, keys, gauss]}, open(newest, "w"))
"""
SOUND = "version, keys, gauss = saved['random']; random.setstate((version, tuple(keys), gauss))"


def check(bench: Bench, *words: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [*bench.probe(), "check", "resume", *words], cwd=bench.folder, env=bench.environment(), capture_output=True, text=True, check=False, timeout=120,
    )  # fmt: skip


def command(bench: Bench, restore: str, *after: str) -> list[str]:
    path = bench.write("train.py", LOOP.replace("RESTORE", restore))
    return ["--", sys.executable, str(path), *(after or ("{folder}",))]


@pytest.mark.parametrize("python", interpreters())
def test_a_training_that_names_its_state_is_checked(python: str, bench: Bench) -> None:
    bench.launcher = python
    _, _, *rest = command(bench, SOUND)
    done = check(bench, "--kill-at", "6", "--", python, *rest)
    assert done.returncode == 0, done.stdout + done.stderr
    assert done.stdout.splitlines()[:2] == [
        "same from update 5 to 12, bit by bit: 2 tensors of model and optimizer, random states and learning rates of the one rank",
        "lost work: 2 updates, killed after update 6, resumed from 4",
    ]


def test_a_check_that_fails_in_part_cannot_tell(bench: Bench) -> None:
    """The training goes on: also where a library raises what is no `Exception`."""
    odd = """
class OddError(BaseException): pass
class Odd:
    def __repr__(self):
        if done == 9: raise OddError("no bits")
        return "odd"
"""
    program = odd + LOOP.replace("weight / 2]", "weight / 2, Odd()]").replace("RESTORE", SOUND)
    bench.write("train.py", program)
    done = check(bench, "--kill-at", "6", "--", sys.executable, "train.py", "{folder}")
    assert done.returncode == 2
    assert done.stdout.startswith(
        "cannot tell: a part of the check is missing (_digests: OddError: no bits)"
    )


def test_a_random_state_that_is_not_restored_is_named(bench: Bench) -> None:
    done = check(bench, "--kill-at", "6", *command(bench, "pass"))
    assert done.returncode == 1
    assert done.stdout.splitlines()[:2] == [
        "SILENTLY DIFFERENT from update 5 on (rank 0): 2 of 2 tensors, rng different (python), lr same; resumed from 4",
        "missing: the random state of python",
    ]
    report = json.loads((bench.folder / "ckptbench-check" / "resume.json").read_text())
    assert report["first"]["tensors"] == ["weight", "moments.0"]
    assert (report["lost_updates"], report["verdict"]) == (2, "different")


def test_a_difference_after_the_kill_is_tried_a_second_time_without_one(bench: Bench) -> None:
    """After the update at which the first run is killed, a random number of the system is added: no two runs are the same."""
    noise = "import os\n" + LOOP.replace(
        "        done += 1\n", "        done += 1\n        weight += os.urandom(8)[0] + 1 if done > 6 else 0\n"
    )  # fmt: skip
    bench.write("train.py", noise.replace("RESTORE", SOUND))
    done = check(bench, "--kill-at", "6", "--", sys.executable, "train.py", "{folder}")
    assert done.returncode == 2
    assert done.stdout.startswith(
        "cannot tell: two undisturbed runs differ from update 7 on (2 of 2"
    )
    assert "undisturbed-again run" in done.stderr


def test_runs_end_at_the_last_update_that_is_compared(bench: Bench) -> None:
    done = check(bench, "--kill-at", "5", "--until", "7", *command(bench, SOUND))
    assert done.returncode == 0, done.stdout
    assert done.stdout.startswith("same from update 5 to 7, bit by bit:")


@pytest.mark.parametrize(
    ("restore", "told"),
    [
        ("raise RuntimeError('no key of this name')", "failed: exit code 1, its last line: RuntimeError: no key of this name"),
        ("import time; time.sleep(600)", "hangs: it had not ended after"),
        ("sys.exit()", "ended without an update"),
    ],
)  # fmt: skip
def test_a_resume_that_fails_or_hangs_is_told(restore: str, told: str, bench: Bench) -> None:
    done = check(bench, "--kill-at", "6", "--timeout", "0.1", *command(bench, restore))
    assert done.returncode == 1
    assert done.stdout.startswith("does not resume: the restarted run")
    assert told in done.stdout.splitlines()[0]


def test_a_fixed_folder_is_moved_aside_and_comes_back(bench: Bench) -> None:
    """The command by which the training is restarted may be another."""
    out = bench.folder / "out"
    out.mkdir()
    (out / "of-the-user").touch()
    bench.write("again.py", LOOP.replace("RESTORE", "pass"))
    options = ("--kill-at", "6", "--output", "out", "--resume", f"{sys.executable} again.py out")
    done = check(bench, *options, *command(bench, SOUND, "out"))
    assert done.returncode == 1
    assert "missing: the random state of python" in done.stdout
    assert [path.name for path in out.iterdir()] == ["of-the-user"]
    kept = {path.name.rpartition("-")[2]: path for path in bench.folder.glob("out-*")}
    assert sorted(kept) == ["resumed", "undisturbed"]
    assert all((path / "newest.json").exists() for path in kept.values())


@pytest.mark.parametrize(
    ("words", "told"),
    [
        (["--kill-at", "6", "--"], "no command: write it after --"),
        (["--kill-at", "0", "--", "true"], '"0" is not a number of updates'),
        (["--kill-at", "6", "--", "python", "train.py"], "has no {folder}, so the runs would find"),
        (["--kill-at", "6", "--resume", "python train.py", "--", "python", "train.py", "{folder}"], "`python train.py` has no {folder}"),
        (["--kill-at", "6", "--resume", "a 'b", "--", "python", "{folder}"], "No closing quotation: correct its quotes"),
        (["--kill-at", "6", "--output", "o", "--", "python", "{folder}"], "leave out --output"),
        (["--kill-at", "6", "--until", "6", "--", "python", "{folder}"], "--until 6 is not after"),
        (["--kill-at", "6", "--", "no-such-program", "{folder}"], "no such program"),
        (["--kill-at", "6", "--", sys.executable, "-c", "pass", "{folder}"], "no state was seen"),
        (["--kill-at", "6", "--", sys.executable, "-c", "exit(3)", "{folder}"], "the undisturbed run failed: exit code 3"),
        (["--kill-at", "6", "--folder", "/proc/none", "--", "python", "{folder}"], "name another folder by --folder"),
    ],
)  # fmt: skip
def test_bad_input_gets_one_sentence_and_exit_code_2(
    words: list[str], told: str, bench: Bench
) -> None:
    done = check(bench, *words)
    assert done.returncode == 2
    assert told in done.stdout + done.stderr
    assert "Traceback" not in done.stderr


def test_a_state_that_cannot_be_read_is_told_with_its_reason(bench: Bench) -> None:
    text = LOOP.replace('"weight": weight, "moments"', '"weight": Unreadable(), "moments"')
    bench.write("train.py", f"class Unreadable:\n    __array__ = None\n{text.replace('RESTORE', SOUND)}")  # fmt: skip
    done = check(bench, "--kill-at", "6", "--", sys.executable, "train.py", "{folder}")
    assert done.returncode == 2
    assert "no state was seen" in done.stdout
    assert "a part of a measurement is missing (_digests: KeyError: 'numpy')" in done.stdout


def test_a_kill_after_the_end_is_refused(bench: Bench) -> None:
    done = check(bench, "--kill-at", "12", *command(bench, SOUND))
    assert done.returncode == 2
    assert "the undisturbed run has 12 updates: choose a smaller --kill-at than 12" in done.stdout


def test_a_kill_before_the_first_save_tells_nothing(bench: Bench) -> None:
    done = check(bench, "--kill-at", "3", *command(bench, SOUND))
    assert done.returncode == 2
    assert "started from 0, as no save was seen before the kill" in done.stdout


def test_an_interrupted_check_leaves_no_process_and_no_moved_folder(bench: Bench) -> None:
    (bench.folder / "out").mkdir()
    (bench.folder / "out" / "of-the-user").touch()
    words = command(bench, SOUND, "out")
    waits = bench.write("waits.py", "import subprocess, sys; subprocess.run(['sleep', '600'])")
    started = subprocess.Popen(
        [*bench.probe(), "check", "resume", "--kill-at", "6", "--output", "out", "--", words[1], str(waits)],
        cwd=bench.folder, env=bench.environment(), stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
    )  # fmt: skip
    limit = time.monotonic() + 60
    while len(own := below(started.pid)) < 2 and time.monotonic() < limit:
        time.sleep(0.02)
    assert len(own) == 2
    started.terminate()
    _, told = started.communicate(timeout=60)
    assert started.returncode == 2
    assert "interrupted" in told
    assert not [pid for pid in own if Path(f"/proc/{pid}").exists()]
    assert (bench.folder / "out" / "of-the-user").exists()


def state(step: int | None = None, random: str = "r", **tensors: str) -> State:
    return State(step, tensors, {"torch": random}, (0.1,))


def counted(*weights: str) -> Rank:
    """A rank whose optimizer counts. The weight at its begin, and after each update."""
    return Rank(state(w=weights[0]), {n: state(n, w=w) for n, w in enumerate(weights) if n}, 1)


def uncounted(*weights: str) -> Rank:
    return Rank(state(w=weights[0]), {n: state(w=w) for n, w in enumerate(weights) if n}, 1)


def judged(whole: Rank, killed: Rank, again: Rank, *, saves: dict[int, bool]) -> Verdict:
    return judge(
        Seen(
            {0: whole}, {0: killed}, {0: again}, max(killed.after), saves, None, lambda: {0: whole}
        )
    )


def test_the_update_resumed_from_is_that_of_the_same_state() -> None:
    killed = uncounted("a", "b", "c", "d")
    assert resumed_from(killed, uncounted("c", "d")) == 2
    assert resumed_from(killed, uncounted("a", "b")) == 0
    assert resumed_from(killed, uncounted("x", "y")) == Unknown(odd=True)
    assert resumed_from(uncounted("a", "b", "b", "c"), uncounted("b", "c")) == Unknown(odd=False)


def test_an_optimizer_that_counts_tells_the_update_whatever_the_weights_are() -> None:
    again = Rank(state(2, w="x"), {1: state(3, w="y")}, 1)
    assert resumed_from(counted("a", "b", "c", "d"), again) == 2


def test_the_first_update_tells_where_the_begin_is_not_seen() -> None:
    killed = counted("a", "b", "c", "d")
    assert resumed_from(killed, Rank(None, {1: state(3, w="y")}, 1)) == 2
    assert resumed_from(killed, Rank(None, {1: state(1, w="y")}, 1)) == 0
    assert resumed_from(killed, Rank(None, {1: state(4, w="y")}, 1)) == 3
    assert resumed_from(uncounted("a", "b", "c"), Rank(None, {1: state(w="c")}, 1)) == 1


def test_a_state_of_no_update_is_different() -> None:
    whole = uncounted("a", "b", "c", "d", "e")
    found = judged(whole, uncounted("a", "b", "c"), uncounted("x", "y"), saves={1: True})
    assert found.code == 1
    assert "neither the initial one nor that of any update before the kill" in found.lines[0]


def test_trainings_that_begin_differently_cannot_be_judged() -> None:
    whole, killed = uncounted("a", "b", "c", "d"), uncounted("x", "y", "z")
    found = judged(whole, killed, uncounted("y", "z"), saves={1: True})
    assert found.code == 2
    assert found.lines[0].startswith("cannot tell: two undisturbed runs differ from their begin")


def test_a_begin_that_is_not_seen_leaves_the_reason_open() -> None:
    whole = counted("a", "b", "c", "d", "e")
    again = Rank(None, {1: state(3, w="x"), 2: state(4, w="y")}, 1)
    found = judged(whole, counted("a", "b", "c", "d"), again, saves={2: True})
    assert found.code == 1
    assert found.lines[0].startswith("SILENTLY DIFFERENT from update 3 on (rank 0): 1 of 1 tensors")
    assert found.lines[1] == "unknown what is missing, as the state at the resume was not seen; these differ: w"  # fmt: skip


def test_a_save_that_is_finished_and_not_used_is_told() -> None:
    whole = counted("a", "b", "c", "d", "e")
    again = Rank(state(1, w="b"), {n: state(n + 1, w=w) for n, w in enumerate("bcde") if n}, 1)
    found = judged(whole, counted("a", "b", "c", "d"), again, saves={1: True, 2: True})
    assert found.code == 0
    assert found.lines[0].startswith(
        "same from update 2 to 4, bit by bit: 1 tensor of model and optimizer, "
    )
    assert found.lines[1] == "the save of update 2 was finished, and was not used"


def test_a_random_state_that_nobody_draws_from_is_no_difference() -> None:
    whole = counted("a", "b", "c", "d", "e")
    again = Rank(state(2, w="c"), {1: state(3, "other", w="d"), 2: state(4, "other", w="e")}, 1)
    found = judged(whole, counted("a", "b", "c", "d"), again, saves={2: True})
    assert found.code == 0
    assert found.lines[-2].startswith("not restored: the random state of torch, and no update has drawn from it")  # fmt: skip


def test_ranks_that_resume_from_different_updates_are_told() -> None:
    whole = counted("a", "b", "c", "d", "e")
    killed = counted("a", "b", "c", "d")
    first, second = (Rank(state(n, w="x"), {1: state(n + 1, w="y")}, 1) for n in (2, 1))
    found = judge(
        Seen({0: whole, 1: whole}, {0: killed, 1: killed}, {0: first, 1: second}, 3, {}, None, dict)
    )
    assert found.code == 1
    assert found.lines[0].endswith("from different updates: rank 0 from 2, rank 1 from 1")


def test_nothing_of_a_check_is_imported_where_a_training_is_only_measured(bench: Bench) -> None:
    text = "\nimport sys; print([name for name in sys.modules if 'ckptbench_probe.check' in name])"
    bench.write("train.py", LOOP.replace("RESTORE", SOUND) + "import safetensors.torch" + text)
    ended = bench.run(sys.executable, "train.py", "out")
    assert (ended.code, ended.out) == (0, "[]\n")
    assert ended.summary["updates"] == 12


def test_what_is_saved_beside_the_model_is_compared() -> None:
    """As an average of the weights, which no optimizer has."""
    whole, again = counted("a", "b", "c", "d", "e"), counted("c", "d", "e")
    for number, one in again.after.items():
        again.after[number] = replace(one, step=number + 2)
    again.begin = state(2, w="c")
    whole.after[4].saved.update({"c#.pt: ema.w": "1", "c#.pt: time": "2", "c#.pt: old": "3"})
    again.after[2].saved.update({"c#.pt: ema.w": "x", "c#.pt: time": "2", "c#.pt: new": "3"})
    found = judged(whole, counted("a", "b", "c", "d"), again, saves={2: True})
    assert found.code == 1
    assert found.lines[:2] == (
        "SILENTLY DIFFERENT from update 4 on (rank 0): 0 of 1 tensors, 1 tensors that it saves, rng same, lr same; resumed from 2",
        "missing: what the program saves beside its model: c#.pt: ema.w",
    )


def test_what_two_undisturbed_runs_save_differently_does_not_count() -> None:
    whole, killed, again = counted("a", "b", "c", "d"), counted("a", "b", "c"), counted("b", "c")
    again = Rank(state(1, w="b"), {1: state(2, w="c"), 2: state(3, w="d")}, 1)
    for rank, update, value in ((whole, 2, "1"), (killed, 2, "2"), (whole, 3, "3"), (again, 2, "4")):  # fmt: skip
        rank.after[update].saved["c.pt: seconds"] = value
    assert judged(whole, killed, again, saves={1: True}).code == 0


def test_a_resumed_run_that_ends_early_is_not_the_same() -> None:
    whole = counted("a", "b", "c", "d", "e", "f")
    again = Rank(state(2, w="c"), {1: state(3, w="d")}, 1)
    found = judged(whole, counted("a", "b", "c", "d"), again, saves={2: True})
    assert found.code == 1
    assert found.lines[0].startswith(
        "DIFFERENT: ends after 3 updates, where the undisturbed run went on to update 5; same from update 3 to 3, "
    )


def test_a_buffer_that_is_not_seen_at_the_resume_is_named_as_missing() -> None:
    whole = Rank(state(w="a"), {n: state(n, w=str(n), mean=str(n)) for n in range(1, 6)}, 1)
    killed = Rank(state(w="a"), {n: state(n, w=str(n), mean=str(n)) for n in range(1, 4)}, 1)
    again = Rank(state(2, w="2"), {1: state(3, w="3", mean="x"), 3: state(5, w="5", mean="x")}, 1)
    found = judged(whole, killed, again, saves={2: True})
    assert found.lines[1] == "missing: mean, or what it is made from: the probe sees it only after an update"  # fmt: skip


def test_an_optimizer_that_steps_later_is_compared_from_its_first_step_on() -> None:
    """As the second one of a GAN: the first update of the resumed run does not show it yet."""

    def both(n: int, second: str) -> State:
        return State(n, {"w": f"w{n}", "1:w": f"{second}{n}"}, {}, (0.1, 0.2))

    whole = Rank(None, {n: both(n, "v") for n in range(1, 7)}, 1)
    killed = Rank(None, {n: both(n, "v") for n in range(1, 5)}, 1)
    for second, code in (("v", 0), ("x", 1)):
        first = State(3, {"w": "w3"}, {}, (0.1,))
        later = {n - 2: both(n, second) for n in range(4, 7)}
        again = Rank(State(2, {"w": "w2"}, {}, (0.1,)), {1: first, **later}, 1)
        assert judged(whole, killed, again, saves={2: True}).code == code
