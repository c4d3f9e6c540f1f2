"""The explicit way in, without a launcher and beside it."""

from __future__ import annotations

import subprocess
import sys

from probed import SOURCE, Bench

LOOP = """
import time
from ckptbench_probe import session
with session() as s:
    for step in range(1, 21):
        time.sleep(0.002)
        s.step()
        if step % 5 == 0:
            with s.checkpoint(f"step-{step}"):
                open(f"step-{step}", "w").write("x" * 100)
                time.sleep(0.004)
            DURABLE
"""


def test_a_loop_is_measured_without_a_launcher(bench: Bench) -> None:
    bench.write("train.py", LOOP.replace("DURABLE", "pass"))
    done = subprocess.run(
        [sys.executable, "train.py"], cwd=bench.folder, env=bench.environment(PYTHONPATH=str(SOURCE)), capture_output=True, text=True, check=True,
    )  # fmt: skip
    assert done.stdout == ""
    assert "1 rank, 20 steps" in done.stderr
    assert "4, every 5 steps, by session" in done.stderr
    assert (bench.folder / "ckptbench-probe" / "costs.yaml").exists()


def test_a_checkpoint_that_is_durable_later_goes_on_in_the_background(bench: Bench) -> None:
    bench.write("train.py", LOOP.replace("DURABLE", "s.captured(); time.sleep(0.003); s.durable()"))
    summary = bench.run(sys.executable, "train.py").summary
    assert [one["background"] for one in summary["checkpoints"]] == [True] * 4
    for one in summary["checkpoints"]:
        assert one["finished_s"] >= one["stall_s"] + 0.003


def test_a_checkpoint_of_which_no_more_is_said_is_finished_at_the_end_of_its_block(
    bench: Bench,
) -> None:
    bench.write("train.py", LOOP.replace("DURABLE", "pass"))
    summary = bench.run(sys.executable, "train.py").summary
    assert [one["background"] for one in summary["checkpoints"]] == [False] * 4
    assert all(one["finished_s"] == one["stall_s"] >= 0.004 for one in summary["checkpoints"])


def test_a_checkpoint_that_is_not_yet_durable_at_the_end_is_not_finished(bench: Bench) -> None:
    bench.write("train.py", LOOP.replace("DURABLE", "\n            if step < 20: s.durable()"))
    summary = bench.run(sys.executable, "train.py").summary
    assert [one["finished_s"] is None for one in summary["checkpoints"]] == [False] * 3 + [True]


def test_a_durable_too_many_is_told(bench: Bench) -> None:
    bench.write("train.py", LOOP.replace("DURABLE", "s.durable(); s.durable()"))
    ended = bench.run(sys.executable, "train.py")
    assert ended.code == 0
    assert sum("more often than checkpoint()" in line for line in ended.told) == 1
