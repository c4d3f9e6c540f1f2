"""`ckptbench-probe check stop`: what it says of a training without a framework, and where it cannot tell."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path
from typing import Any

import pytest
from probed import Bench, interpreters

from ckptbench_probe.check import stopped
from ckptbench_probe.check.runs import Ended
from ckptbench_probe.check.signals import LAUNCHER, Signalled

LOOP = """
import json, os, signal, sys
from ckptbench_probe import session
folder, how = sys.argv[1:]
os.makedirs(folder, exist_ok=True)
newest = os.path.join(folder, "newest.json")
done = json.load(open(newest)) if os.path.exists(newest) else 0
stop = []
if how == "handles":
    signal.signal(signal.SIGUSR1, lambda *_: stop.append(1))
with session() as s:
    while done < 12:
        done += 1
        s.step(state={"weight": float(done)}, update=done)
        if done % 4 == 0 or stop:
            with s.checkpoint(newest):
                json.dump(done, open(newest + ".new", "w"))
                os.replace(newest + ".new", newest)
        if stop:
            break
"""


def check(
    bench: Bench, how: str, *options: str, shell: str = "", folder: str = "{folder}"
) -> tuple[int, list[str]]:
    path = bench.write("train.py", LOOP)
    command = [bench.launcher, str(path), folder, how]
    if shell:
        command = ["sh", "-c", shell.format(" ".join(command))]
    words = [*bench.probe(), "check", "stop", "--grace", "60s", "--signal", "USR1", *options]
    done = subprocess.run(
        [*words, "--", *command], cwd=bench.folder, env=bench.environment(), capture_output=True, text=True, check=False, timeout=120,
    )  # fmt: skip
    return done.returncode, (done.stdout or done.stderr).splitlines()


def report(bench: Bench) -> dict[str, Any]:
    found: dict[str, Any] = json.loads((bench.folder / "ckptbench-check/stop.json").read_text())
    return found


@pytest.mark.parametrize("python", interpreters())
def test_a_session_is_stopped_at_its_update(python: str, bench: Bench) -> None:
    bench.launcher = python
    code, lines = check(bench, "handles", "--at", "6")
    assert code == 0, lines
    assert lines[0].startswith("saves and ends in ")
    assert lines[0].endswith(" of the 60 s: 0 updates lost, stopped after update 6, resumed from 6")
    assert report(bench)["paste"].startswith("#SBATCH --signal=B:USR1@")


def test_ranks_get_the_signal_without_their_launcher(bench: Bench) -> None:
    """The shell would die of it."""
    options = ("--at", "6", "--to", "ranks", "--output", "out")
    code, lines = check(bench, "handles", *options, shell="{0}; exit 0", folder="out")
    assert (code, report(bench)["resumed_from"]) == (0, 6), lines
    assert "(it reaches what srun has started, and not the batch script)" in lines[1]


def test_a_launcher_that_dies_leaves_its_ranks(bench: Bench) -> None:
    shell = "{0}; exit 0"
    (bench.folder / "slow").touch()
    program = LOOP.replace("    while done", "    import time\n    while done").replace("s.step(", "time.sleep(0.1 if done > 6 else 0); s.step(")  # fmt: skip
    bench.write("slow.py", program.replace("done < 12", "done < 1000"))
    code, lines = check(bench, "handles", "--at", "6", shell=shell.replace("{0}", f"{bench.launcher} slow.py {{{{folder}}}} handles"))  # fmt: skip
    assert code == 3, lines
    assert lines[0].startswith("ends without a save: SIGUSR1 ended the command itself, and left its ranks to SIGKILL: ")  # fmt: skip


def test_it_says_when_the_training_does_not_get_there(bench: Bench) -> None:
    code, lines = check(bench, "handles", "--at", "20")
    assert (code, lines[0]) == (2, "cannot tell: the training did not get to update 20 (it ended before): choose a smaller --at, below its last update")  # fmt: skip


def test_a_signal_without_a_handler_ends_it(bench: Bench) -> None:
    """A session says at its end that its saves are finished: that of update 4 is no half one."""
    code, lines = check(bench, "dies", "--at", "8")
    assert code == 3
    assert lines[0].startswith("ends without a save, in ")
    assert lines[0].endswith(": 4 updates lost, stopped after update 8, resumed from 4")


def test_the_pasted_time_is_twice_that_to_the_end_and_of_one_that_trains_on_twice_that_of_its_save() -> (
    None
):
    stop = stopped.Stop(at=25, signal="SIGTERM", to=LAUNCHER, grace_s=60.0)
    save = stopped.Save("newest", updates=26, begun_s=0.1, finished_s=0.4)
    rank = stopped.Rank(0, last=26, trained_s=0.05, saves=(save,), stands="")
    run = Ended(Path(), 0, False, 30.0)
    for ended_s, seconds in ((20.0, 70), (None, 40)):
        needed_s = stopped._needed(Signalled(run, True, ended_s), [rank])
        assert stopped._paste(stop, needed_s) == f"#SBATCH --signal=B:TERM@{seconds}"
