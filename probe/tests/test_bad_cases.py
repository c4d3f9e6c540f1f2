"""Trainings that end badly, or do odd things: they end as they do without, and the summary says what was seen."""

from __future__ import annotations

import sys

import pytest
from probed import Bench

STEPS = """
from safetensors.torch import save_file
from ckptbench_probe import session
with session() as s:
    for step in range(1, 6):
        s.step()
    save_file({}, "step-5")
    s.step()
    AT_THE_END
"""


@pytest.mark.parametrize(
    ("end", "code"),
    [
        ("import os; os._exit(4)", 4),
        ("raise RuntimeError('of the training')", 1),
        ("import sys; sys.exit(3)", 3),
        ("import os, signal; os.kill(os.getpid(), signal.SIGKILL)", -9),
        ("import os; os.close(1)", 0),
    ],
)
def test_a_training_ends_as_it_does_and_is_summarized(end: str, code: int, bench: Bench) -> None:
    bench.write("train.py", STEPS.replace("AT_THE_END", end))
    ended = bench.run(sys.executable, "train.py")
    assert ended.code == code
    lost = code in (4, -9)  # the steps of the last second, but for those before a save
    assert ended.summary["updates"] == (5 if lost else 6)
    assert len(ended.summary["checkpoints"]) == 1
    assert ("of the training" in ended.err) is ("of the training" in end)


def test_a_training_that_dies_at_import_is_said_to_have_no_rank(bench: Bench) -> None:
    ended = bench.run(sys.executable, "-c", "import no_module_of_this_name")
    assert ended.code == 1
    assert "No module named 'no_module_of_this_name'" in ended.err
    assert ended.told[0].startswith("no rank reported: the command failed (exit code 1) before")


def test_a_training_that_is_killed_at_import_is_said_to_have_no_rank(bench: Bench) -> None:
    ended = bench.run(sys.executable, "-c", "import os; os.kill(os.getpid(), 9)")
    assert ended.told[0].startswith("no rank reported: the command failed (ended by SIGKILL)")


def test_a_program_that_trains_nothing_hears_what_keeps_the_probe_out(bench: Bench) -> None:
    ended = bench.run(sys.executable, "-c", "")
    assert ended.told[0].startswith("no rank reported: no process updated a model")


def test_an_engine_that_raises_raises_as_it_does(bench: Bench) -> None:
    bench.write("train.py", STEPS.replace("AT_THE_END", "save_file({}, 'no/such/folder/file')"))
    ended = bench.run(sys.executable, "train.py")
    assert ended.code == 1
    assert (
        "FileNotFoundError: [Errno 2] No such file or directory: 'no/such/folder/file'" in ended.err
    )
    assert [one["failed"] for one in ended.summary["checkpoints"]] == [False, True]
    assert "1 of 2 checkpoints failed" in "\n".join(ended.told)


def test_an_engine_of_another_version_than_the_probe_knows_saves_as_it_does(bench: Bench) -> None:
    (bench.folder / "accelerate").mkdir()
    bench.write("accelerate/accelerator.py", "class Accelerator:\n    def save_state(self, output_dir):\n        return f'saved {output_dir}'\n")  # fmt: skip
    save = (
        "from accelerate.accelerator import Accelerator; print(Accelerator().save_state('there'))"
    )
    bench.write("train.py", STEPS.replace("AT_THE_END", save))
    ended = bench.run(sys.executable, "train.py")
    assert (ended.code, ended.out) == (0, "saved there\n")
    assert ended.told[0] == (
        "a part of a measurement is missing (_target: AttributeError: 'Accelerator' object has no attribute 'project_configuration')"
    )
    assert len(ended.summary["checkpoints"]) == 1


def test_a_call_that_the_engine_refuses_raises_as_it_does(bench: Bench) -> None:
    bench.write("train.py", "from safetensors.torch import save_file\nsave_file()")
    ended = bench.run(sys.executable, "train.py")
    assert ended.code == 1
    assert "TypeError: save_file() missing 2 required positional arguments" in ended.err


@pytest.mark.parametrize("method", ["fork", "spawn", "forkserver"])
def test_children_that_neither_step_nor_save_leave_no_trace(method: str, bench: Bench) -> None:
    text = """
import multiprocessing
def work(number):
    return number
if __name__ == "__main__":
    TRAINING
        with multiprocessing.get_context("METHOD").Pool(2) as pool:
            assert pool.map(work, [1, 2, 3]) == [1, 2, 3]
"""
    training = "\n    ".join(STEPS.replace("    AT_THE_END\n", "").strip().splitlines())
    bench.write("train.py", text.replace("TRAINING", training).replace("METHOD", method))
    ended = bench.run(sys.executable, "train.py")
    assert ended.code == 0, ended.err
    assert len(list(ended.folder.glob("trace-*"))) == 1
    assert ended.summary["updates"] == 6


@pytest.mark.parametrize("method", ["fork", "spawn", "forkserver"])
def test_children_that_step_are_ranks(method: str, bench: Bench) -> None:
    text = """
import multiprocessing
from safetensors.torch import save_file
from ckptbench_probe import session
def work(number):
    with session() as s:
        for step in range(1, 6):
            s.step()
        save_file({}, f"rank-{number}")
        s.step()
if __name__ == "__main__":
    own = multiprocessing.get_context("METHOD")
    ranks = [own.Process(target=work, args=(number,)) for number in range(2)]
    for rank in ranks: rank.start()
    for rank in ranks: rank.join()
"""
    bench.write("train.py", text.replace("METHOD", method))
    ended = bench.run(sys.executable, "train.py")
    assert ended.code == 0, ended.err
    assert (ended.summary["updates"], ended.summary["killed"]) == (6 * ended.summary["attempts"], 0)
    assert ended.summary["ranks"] * ended.summary["attempts"] == 2


def test_a_subprocess_that_saves_is_no_rank(bench: Bench) -> None:
    bench.write("save.py", "from safetensors.torch import save_file\nsave_file({}, 'other')")
    end = "import subprocess, sys; subprocess.run([sys.executable, 'save.py'], check=True)"
    bench.write("train.py", STEPS.replace("AT_THE_END", end))
    ended = bench.run(sys.executable, "train.py")
    assert (ended.summary["ranks"], ended.summary["other_saves"]) == (1, 1)
    assert len(ended.summary["checkpoints"]) == 1


def test_a_signal_handler_that_saves_in_the_middle_of_a_save_ends(bench: Bench) -> None:
    text = """
import os, signal
from safetensors.torch import save_file
from ckptbench_probe import session
signal.signal(signal.SIGUSR1, lambda *_: save_file({}, "of-the-handler"))
with session() as s:
    for step in range(1, 6):
        s.step()
        with s.checkpoint(f"step-{step}"):
            os.kill(os.getpid(), signal.SIGUSR1)
            open(f"step-{step}", "w").write("x")
"""
    bench.write("train.py", text)
    ended = bench.run(sys.executable, "train.py")
    assert ended.code == 0
    assert [one["kinds"] for one in ended.summary["checkpoints"]] == [["session"]] * 5


def test_a_clock_that_is_set_back_changes_no_time(bench: Bench) -> None:
    """The time of day goes back an hour at each look."""
    back = "import time; hours = iter(range(10**6)); time.time_ns = lambda: -next(hours) * 3600 * 10**9; time.time = lambda: time.time_ns() / 1e9\n"
    bench.write("train.py", back + STEPS.replace("AT_THE_END", "pass"))
    summary = bench.run(sys.executable, "train.py").summary
    assert (summary["attempts"], summary["updates"]) == (1, 6)
    assert 0 <= summary["run_s"] < 60
    assert 0 <= summary["checkpoints"][0]["stall_s"] < 60
