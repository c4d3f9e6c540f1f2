"""The launcher's part in a restart from local tiers of several nodes, and the program that it starts there."""

from __future__ import annotations

import dataclasses
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path

import pytest
from several_nodes import PATIENCE_S, Nodes

from ckptbench.checkpointing.levels import open_levels
from ckptbench.checkpointing.state_files import FORMAT
from ckptbench.launch import attempts
from ckptbench.launch.limits import Limits
from ckptbench.launch.shard_assembler import ShardAssembler
from ckptbench.launch.starters import Program
from ckptbench.matrix.levels import MEMORY
from ckptbench.matrix.plugin_spec import PluginSpec
from ckptbench.matrix.registry import NATIVE
from ckptbench.run.control import variables
from ckptbench.run.control.ranks import assign_ranks
from ckptbench.run.control.server import ControlServer
from ckptbench.run.plan import Plan

SOURCE = Path(__file__).resolve().parents[2] / "src"
MakePlan = Callable[..., Plan]
NEAR = PluginSpec("deepfreeze", (("memory", 1), ("shared", 2)))


@pytest.fixture
def plan(make_plan: MakePlan, tmp_path: Path) -> Plan:
    """Of three ranks, with every checkpoint in memory and every second one in the shared folder."""
    plan = make_plan("s1")
    cell = dataclasses.replace(
        plan.cell, framework="pytorch", model="small_cnn", strategy=NEAR, format=FORMAT, ranks=3, batch_size=1
    )  # fmt: skip
    return dataclasses.replace(plan, cell=cell, memory_folder=tmp_path / "shm", run_id="r" * 32)


def trained(plan: Plan, nodes: str, *steps: int) -> Nodes:
    """What an attempt on these nodes has left."""
    run = Nodes(
        plan.run_folder, nodes, levels_of=lambda node: open_levels(plan, node=node),
        identity=plan.identity, **dict(plan.cell.strategy.options),
    )  # type: ignore[arg-type]  # fmt: skip
    run.train(*steps)
    run.close()
    return run


# The program


@pytest.fixture
def processes() -> Iterator[list[subprocess.Popen[bytes]]]:
    started: list[subprocess.Popen[bytes]] = []
    yield started
    for process in started:
        process.kill()
        process.wait()


def run_program(
    plan: Plan, nodes: str, after: int, processes: list[subprocess.Popen[bytes]]
) -> list[int]:
    """Start it in a process for each rank, and return their exit statuses. The nodes are names alone."""
    assignments = assign_ranks(list(nodes))
    server = ControlServer(assignments, host="127.0.0.1")
    program = Program(
        command=[
            sys.executable,
            "-m",
            "ckptbench.training.assemble",
            str(plan.write()),
            str(after),
        ],
        logs=plan.run_folder,
    )
    shared = variables.rank_environment(
        assignments, threads=1, control=server.address, token=server.token, logs=str(plan.run_folder), launched="",
    )  # fmt: skip
    for assignment in assignments:
        own = {
            variables.RANK: str(assignment.rank),
            "SLURMD_NODENAME": assignment.node,
            "PYTHONPATH": str(SOURCE),
        }
        processes.append(subprocess.Popen(program.command, env={**os.environ, **shared, **own}))
    server.serve()
    try:
        return [process.wait(PATIENCE_S) for process in processes]
    finally:
        server.close()


def test_the_program_makes_the_parts_of_all_nodes_a_shared_version(
    plan: Plan, processes: list[subprocess.Popen[bytes]]
) -> None:
    trained(plan, "aab", 1, 2, 3)
    assert run_program(plan, "aab", 2, processes) == [0, 0, 0]
    version = open_levels(plan).shared.newest()
    assert version is not None
    assert version.position.step == 3
    assert version.identity == plan.identity
    said = (plan.run_folder / "rank-0.log").read_text()
    assert "step 3 is taken from the local tiers of the nodes" in said


def test_the_program_ends_with_an_error_that_its_log_tells(
    plan: Plan, processes: list[subprocess.Popen[bytes]]
) -> None:
    trained(plan, "aab", 1)
    plan.checkpoint_folder.write_text("no folder")
    ended = run_program(plan, "aab", 0, processes)
    assert ended[0] == 1
    said = (plan.run_folder / "rank-0.log").read_text()
    assert re.search(rf"NotADirectoryError: .*{plan.checkpoint_folder}", said)
    assert "Traceback" not in said


# The launcher


@dataclass(frozen=True, slots=True, kw_only=True)
class Recorded(ShardAssembler):
    """Starts nothing, and notes after which step it should have looked."""

    several: bool
    asked: list[int] = field(default_factory=list)

    def serves(self, plan: Plan) -> bool:
        return self.several

    def bring_together(self, plan: Plan, *, after: int) -> None:
        self.asked.append(after)


def shard_assembly(tmp_path: Path, *, several: bool) -> Recorded:
    return Recorded(python=Path("python"), logs=tmp_path, limits=Limits(), several=several)


def test_the_nodes_are_asked_for_what_is_newer_than_the_shared_version(
    plan: Plan, tmp_path: Path
) -> None:
    trained(plan, "aaa", 1, 2, 3)
    asked = shard_assembly(tmp_path, several=True)
    version = attempts.newest_version(plan, asked)
    assert version is not None
    assert (asked.asked, version.position.step) == ([2], 2)


def test_what_a_single_node_held_is_never_taken_for_that_of_several(
    plan: Plan, tmp_path: Path
) -> None:
    """No rank on another node could read it."""
    run = trained(plan, "aaa", 1)
    kept = run.levels[0].stores[MEMORY].folder
    own = open_levels(plan).stores[MEMORY].folder
    own.parent.mkdir(exist_ok=True)
    shutil.copytree(kept, own)
    asked = shard_assembly(tmp_path, several=False)
    version = attempts.newest_version(plan, asked)
    assert version is not None
    assert (version.folder.parent, asked.asked) == (own, [])
    assert attempts.newest_version(plan, shard_assembly(tmp_path, several=True)) is None


def on_hosts(monkeypatch: pytest.MonkeyPatch, folder: Path, *hosts: str) -> None:
    """As a job of Grid Engine on these hosts."""
    listed = folder / "hosts"
    listed.write_text("".join(f"{host} 1 all.q UNDEFINED\n" for host in hosts))
    for name, value in {"SGE_ROOT": "/sge", "JOB_ID": "1", "PE_HOSTFILE": str(listed)}.items():
        monkeypatch.setenv(name, value)


@pytest.mark.parametrize(("hosts", "serves"), [(("a", "b"), True), (("a",), False)])
def test_it_serves_runs_on_several_nodes(
    plan: Plan,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    hosts: tuple[str, ...],
    serves: bool,
) -> None:
    on_hosts(monkeypatch, tmp_path, *hosts)
    assert (
        ShardAssembler(python=Path("python"), logs=tmp_path, limits=Limits()).serves(plan) is serves
    )


def test_a_strategy_without_near_levels_asks_for_no_nodes(
    plan: Plan, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    on_hosts(monkeypatch, tmp_path, "a", "b")
    (tmp_path / "hosts").unlink()  # to read it would be an error
    plain = dataclasses.replace(plan, cell=dataclasses.replace(plan.cell, strategy=NATIVE))
    assert not ShardAssembler(python=Path("python"), logs=tmp_path, limits=Limits()).serves(plain)
