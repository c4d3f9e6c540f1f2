"""`ckptbench-probe check resume --resume-ranks`: what another number of ranks has restored; trainings without a framework name their state themselves."""

from __future__ import annotations

import subprocess
from dataclasses import replace
from typing import Any

import pytest
from probed import Bench, interpreters

from ckptbench_probe.check.other_ranks import Resharded, judge
from ckptbench_probe.check.parts import gathered
from ckptbench_probe.check.states import Rank, State

LAUNCH = """
import os, subprocess, sys
ranks, *command = sys.argv[1:]
found = [subprocess.Popen([sys.executable, *command], env={**os.environ, "RANK": str(one), "WORLD_SIZE": ranks}) for one in range(int(ranks))]
sys.exit(max(one.wait() for one in found))
"""
LOOP = """
import json, os, sys
from ckptbench_probe import session
folder, rank = sys.argv[1], int(os.environ["RANK"])
ranks = int(os.environ["WORLD_SIZE"])
os.makedirs(folder, exist_ok=True)
newest = os.path.join(folder, "newest.json")
weight, done = 0.0, 0
if os.path.exists(newest):
    saved = json.load(open(newest))
    weight, done = saved["weight"], saved["done"]
with session() as s:
    while done < 12:
        weight, done = weight + 0.5, done + 1
        s.step(state={"weight": weight, "own": rank}, update=done)
        if done % 4 == 0 and rank == 0:
            with s.checkpoint(newest), open(newest, "w") as file:
                json.dump({"weight": weight, "done": done}, file)
"""


def check(bench: Bench, *options: str, ranks: str = "{ranks}") -> tuple[int, list[str]]:  # fmt: skip
    bench.write("train.py", LOOP)
    launch = str(bench.write("launch.py", LAUNCH))
    done = subprocess.run(
        [*bench.probe(), "check", "resume", "--kill-at", "6", *options, "--", bench.launcher, launch, ranks, "train.py", "{folder}"],
        cwd=bench.folder, env=bench.environment(), capture_output=True, text=True, check=False, timeout=120,
    )  # fmt: skip
    return done.returncode, (done.stdout or done.stderr).splitlines()


OTHER = ("--ranks", "2", "--resume-ranks", "1")


def test_a_session_does_not_show_what_was_restored(bench: Bench) -> None:
    """The update after it depends on the number of ranks."""
    bench.launcher = interpreters()[0]
    code, lines = check(bench, *OTHER)
    assert code == 2, lines
    assert lines[0] == "cannot tell: the state before the first update cannot be seen in this framework"  # fmt: skip


def state(step: int, weight: str, **more: str) -> State:
    return State(step, {"weight": weight, **more}, {}, ())


HALVES = [
    {4: "4|0,0|1,2|0f", 6: "4|0,0|1,2|0fff"},
    {4: "4|1,0|1,2|f0", 6: "4|1,0|1,2|00"},
]


def resharded(**changes: Any) -> Resharded:
    """Two ranks have half of a weight each; one rank has all of that of update 4."""
    killed = {
        rank: Rank(state(0, "4|0,0|2,2|00"), {n: state(n, own[n], own=str(rank)) for n in own})
        for rank, own in enumerate(HALVES)
    }
    again = {0: Rank(state(4, "4|0,0|2,2|ff", own="0"), {1: state(5, "4|0,0|2,2|1ff", own="0")})}
    return replace(Resharded(killed, again, 2, 1, 6, {4: True}, None), **changes)


def test_one_rank_restores_what_two_had() -> None:
    found = judge(resharded())
    assert found.code == 0
    assert found.lines[:3] == (
        "same on 1 rank as on 2, bit by bit, at the resume from update 4: 1 tensor of model and optimizer, gathered from their parts",
        "lost work: 2 updates, killed after update 6, resumed from 4",
        "not compared: own (not alike on all ranks)",
    )


def begun(step: int, weight: str) -> dict[int, Rank]:
    return {0: Rank(state(step, weight), {1: state(step + 1, weight)})}


@pytest.mark.parametrize(
    ("changes", "code", "line"),
    [
        ({"again": begun(4, "4|0,0|2,2|f0f")}, 1, "DIFFERENT on 1 rank: 1 of 1 tensors are not those of update 4 on 2: weight"),
        ({"again": begun(0, "4|0,0|2,2|00")}, 1, "does not resume on 1 rank: it started from 0, although the save of update 4 was finished"),
        ({"again": begun(0, "4|0,0|2,2|00"), "saves": {}}, 2, "cannot tell: the training started from 0, as no save was finished"),
        ({"again": {}, "failure": "failed: exit code 1"}, 1, "does not resume on 1 rank: the restarted run failed: exit code 1"),
        ({"resume_ranks": 4}, 2, "cannot tell: 1 rank of 4 made an update"),
    ],
)  # fmt: skip
def test_what_another_number_of_ranks_does_wrong(
    changes: dict[str, Any], code: int, line: str
) -> None:
    found = judge(resharded(**changes))
    assert found.code == code
    assert found.lines[0].startswith(line)


@pytest.mark.parametrize(
    ("options", "ranks"), [(OTHER, "2"), (OTHER[:2], "{ranks}"), (OTHER[2:], "{ranks}")]
)
def test_the_number_of_ranks_has_its_place(
    options: tuple[str, ...], ranks: str, bench: Bench
) -> None:
    code, lines = check(bench, *options, ranks=ranks)
    assert code == 2
    assert "another number of ranks needs --ranks, --resume-ranks, and {ranks} in each command: " in lines[0]  # fmt: skip


@pytest.mark.parametrize(
    ("parts", "whole"),
    [
        (["6|0,0|1,3|0a", "6|1,0|1,3|01"], "6|000000000000000b"),
        (["6|0,0|2,3|0b"], "6|000000000000000b"),
        (["6|0,0|2,3|0b", "6|0,0|2,3|0b"], "6|000000000000000b"),
        (["6|0,0|2,3|0b", "6|0,0|0,3|00"], "6|000000000000000b"),
        (["1|||ffffffffffffffff"], "1|ffffffffffffffff"),
        (["6|0,0|1,3|0a"], None),
        (["6|0,0|2,3|0b", "6|0,0|2,3|0a"], None),
        (["of-a-value", "of-a-value"], "of-a-value"),
        (["of-a-value", "of-another"], None),
    ],
)
def test_parts_add_up_to_a_whole(parts: list[str], whole: str | None) -> None:
    """Sharded, whole, the same on all ranks, an empty part, a number; a part that is missing, and ranks that differ."""
    assert gathered(parts) == whole
