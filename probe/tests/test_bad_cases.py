"""Trainings that end badly, or do odd things: they end as they do without, and the summary says what was seen."""

from __future__ import annotations

import os
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
    lost = code == -9  # the steps of the last second, but for those before a save
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
    assert ended.told[0].startswith("no rank reported: the probe saw no process update a model")


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
        "a part of a measurement is missing (place: AttributeError: 'Accelerator' object has no attribute 'project_configuration')"
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


def test_a_pointer_that_is_moved_in_any_way_is_an_event_and_no_error(bench: Bench) -> None:
    """Also to what is not there yet, over a link to a folder, and by a text."""
    text = """
import os, shutil
from pathlib import Path
from safetensors.torch import save_file
from ckptbench_probe import session
os.makedirs("o/one"), os.makedirs("o/two")
with session() as s:
    for step in range(1, 4):
        s.step()
        save_file({}, f"o/step-{step}.pt")
        os.symlink(f"step-{step + 1}.pt", "o/ahead.new"); os.replace("o/ahead.new", "o/ahead")
        os.symlink("one" if step % 2 else os.path.abspath("o/two"), "o/folder.new"); os.rename("o/folder.new", "o/folder")
        if step > 1: os.unlink("o/link"), os.unlink("o/hard")
        os.symlink(f"step-{step}.pt", "o/link")
        os.link(f"o/step-{step}.pt", "o/hard")
        Path("o/latest").write_text(f"step-{step}.pt")
        Path("o/last.txt.new").write_text(f"{step}"); os.replace("o/last.txt.new", "o/last.txt")
        shutil.move("o/link", "o/moved"); os.symlink("nothing", "o/link")
        try: os.replace("o/nothing", "o/latest")
        except FileNotFoundError: pass
        folder = os.open("o", os.O_RDONLY)
        os.symlink("x", "beside", dir_fd=folder); os.unlink("beside", dir_fd=folder)
"""
    bench.write("train.py", text)
    ended = bench.run(sys.executable, "train.py", options=("--mtbf", "5h"))
    assert ended.code == 0
    assert "a part of a measurement is missing" not in ended.err
    found = [
        (one["event"], os.path.basename(one.get("path", "")), one.get("to")) for one in ended.events
    ]
    assert {("moved", "ahead", "step-4.pt"), ("moved", "folder", "one"), ("linked", "link", "step-3.pt")} < {*found}  # fmt: skip
    assert {("pointed", "latest", "step-3.pt"), ("moved", "last.txt", "3")} < {*found}
    (line,) = (line for line in ended.told if "was moved to" in line)
    assert line.startswith("unsafe        2 times ahead was moved to an unfinished checkpoint")  # fmt: skip


def test_ranks_that_end_by_os_exit_are_of_one_start(bench: Bench) -> None:
    """Each begins to write later than the one before; a loader's process ends so as well."""
    text = """
import multiprocessing, os, time
from safetensors.torch import save_file
from ckptbench_probe import session
def work(number, others):
    with session() as s:
        others.wait()
        time.sleep(0.2 * number)
        for step in range(1, 4):
            s.step()
        save_file({}, f"rank-{number}")
        if os.fork() == 0: os._exit(0)
        s.step()
        os._exit(number)
if __name__ == "__main__":
    own = multiprocessing.get_context("spawn")
    together = own.Barrier(2)
    ranks = [own.Process(target=work, args=(number, together)) for number in range(2)]
    for rank in ranks: rank.start()
    for rank in ranks: rank.join()
    print([rank.exitcode for rank in ranks])
"""
    bench.write("train.py", text)
    ended = bench.run(sys.executable, "train.py")
    assert ended.out == "[0, 1]\n"
    counts = {name: ended.summary[name] for name in ("ranks", "attempts", "updates", "killed")}
    assert counts == {"ranks": 2, "attempts": 1, "updates": 4, "killed": 0}
    assert [one["files"] for one in ended.summary["checkpoints"]] == [2]


def test_a_program_that_ends_itself_in_a_handler_while_it_hangs_ends_at_once(bench: Bench) -> None:
    end = "import signal, threading; signal.signal(signal.SIGALRM, lambda *_: os._exit(5)); signal.setitimer(signal.ITIMER_REAL, 0.2); threading.Lock().__enter__; lock = threading.Lock(); lock.acquire(); lock.acquire()"
    bench.write("train.py", "import os\n" + STEPS.replace("AT_THE_END", end))
    ended = bench.run(sys.executable, "train.py")
    assert (ended.code, ended.summary["updates"], ended.summary["killed"]) == (5, 6, 0)


@pytest.mark.parametrize("again", ["os.execv(sys.executable, [sys.executable, __file__, 'again'])", "subprocess.run([sys.executable, __file__, 'again'])"])  # fmt: skip
def test_a_program_that_starts_itself_again_has_two_starts(again: str, bench: Bench) -> None:
    once = f"import os, subprocess, sys\n    if len(sys.argv) == 1: {again}"
    bench.write("train.py", STEPS.replace("AT_THE_END", once))
    ended = bench.run(sys.executable, "train.py")
    assert (ended.summary["ranks"], ended.summary["attempts"]) == (1, 2)


def test_an_object_store_is_not_told_as_a_folder(bench: Bench) -> None:
    text = """
from safetensors.torch import save_file
from ckptbench_probe import session
with session() as s:
    for step in range(1, 7):
        s.step()
        if step % 2 == 0:
            with s.checkpoint("s3://bucket/run/last.ckpt"): pass
    FILE
"""
    bench.write("train.py", text.replace("FILE", "pass"))
    ended = bench.run(sys.executable, "train.py")
    assert ended.line("checkpoints").endswith("by session, to s3://bucket/run (s3)")
    assert ended.line("to storage") == "to storage    an object store: not seen"
    assert not [line for line in ended.told if line.startswith("synced")]
    assert ended.line("bytes") == "bytes         files not seen"
    assert not [line for line in ended.told if line.startswith("unsafe")]
