"""The attempts at one run, one after the other, and what the launcher sees of them (its own trace)."""

from __future__ import annotations

import dataclasses
import logging
import os
from contextlib import closing
from pathlib import Path
from typing import Any, Literal

from ckptbench.checkpointing.levels import open_levels
from ckptbench.common.clock import clock, day_ns
from ckptbench.common.counters import Counters
from ckptbench.common.files import write_json
from ckptbench.failures.recovery.contract import Loss, Recovery, Verdict, next_attempt
from ckptbench.launch.allocation import Allocation, granted_cores
from ckptbench.launch.attempts import newest_version
from ckptbench.launch.ranks import run_ranks
from ckptbench.launch.shard_assembler import ShardAssembler
from ckptbench.launch.starters import Program
from ckptbench.matrix.registry import FRAMEWORKS, RECOVERIES, load
from ckptbench.run.control.ranks import ranks_a_node
from ckptbench.run.events import AllEnded, Chosen, Counted, Event, Lost
from ckptbench.run.layout import LAUNCHER_TRACE, MANIFEST
from ckptbench.run.plan import PLAN, Plan
from ckptbench.run.recorder import Recorder
from ckptbench.run.strikes import await_lost_nodes, recorded_strikes

log = logging.getLogger(__name__)


class AttemptSeries:
    """Launches the ranks of a run, and launches them again as long as its recovery asks for it."""

    def __init__(
        self,
        plan: Plan,
        allocation: Allocation,
        assembler: ShardAssembler,
        manifest: dict[str, Any],
    ) -> None:
        """`manifest` is what the run folder's manifest says so far. `assembler` says how programs are started."""
        self.plan = plan
        """The plan of the attempt that runs, or is about to."""
        self._entry = RECOVERIES[plan.cell.recovery.name]
        self.recovery: Recovery = load(self._entry.launcher)()
        self._allocation = allocation
        self._assembler = assembler
        self._manifest = manifest
        self._recorder = Recorder(plan.run_folder / LAUNCHER_TRACE)

    def run(self) -> None:
        """Raises as `run_ranks` does."""
        with closing(self._recorder):
            self._begin(self.plan)
            while self.launch():
                self.all_ended()
                self.choose()
            self._count("end")

    def launch(self) -> bool:
        """Run every rank of the plan until all have ended. Returns and raises as `run_ranks` does."""
        cell, entry = self.plan.cell, self._entry
        limits = dataclasses.replace(
            self._assembler.limits, patience_s=self.recovery.patience_s(self.plan)
        )
        if entry.elastic or entry.starts_all or entry.starts_node:
            # The survivors do not wait either, and what starts several ranks has no exit status for one of them.
            limits = dataclasses.replace(limits, grace_s=0.0)
        ranks_here = ranks_a_node(self._allocation.assignments(cell.ranks))
        cores = granted_cores(os.environ)
        if cell.accelerator == "cpu" and ranks_here > cores:
            log.warning(
                "%d ranks share %d cores: do not trust the times of this run", ranks_here, cores
            )
        program = self._program()  # first: a recovery may need its Python for what it starts
        with self.recovery.environment() as variables:
            program = dataclasses.replace(program, variables=variables)
            return run_ranks(
                program, cell.ranks, self._allocation, limits, after=self.after, between=self
            )

    def _program(self) -> Program:
        """The program of a rank, without the environment variables of its recovery."""
        python, cell = self._assembler.python, self.plan.cell
        plan_file = str(self.plan.run_folder / PLAN)
        command = [str(python), "-m", "ckptbench.training.rank", cell.accelerator, plan_file]
        # mpiexec comes from the framework's environment, so that it belongs to the same MPI as the library there.
        speaks_mpi = FRAMEWORKS[cell.framework].launcher == "mpiexec"
        return Program(
            command=self.recovery.command(command, self.plan),
            logs=self._assembler.logs,
            mpiexec=python.parent / "mpiexec"
            if speaks_mpi and not self._entry.starts_all
            else None,
            starts_all=self._entry.starts_all,
            starts_node=self._entry.starts_node,
            libraries=_cuda_libraries(python) if cell.accelerator == "cuda" else (),
        )

    def after(self, loss: Loss) -> Verdict:
        """Write down the loss, and have the recovery decide."""
        how = loss.how.partition("\n")[0]
        self._write(
            Lost(attempt=self.plan.attempt, ranks=list(loss.ranks), how=how, unix_ns=day_ns())
        )
        return self.recovery.after(loss, self.plan)

    def all_ended(self) -> None:
        """No process of the attempt runs any more, and another attempt follows."""
        self._write(AllEnded(attempt=self.plan.attempt, unix_ns=day_ns()))
        self._count("end")

    def choose(self) -> None:
        """Choose what the next attempt goes on from, and begin it. No rank may run."""
        await_lost_nodes(self.plan)
        since_ns = day_ns()
        _damage_as_planned(self.plan)
        version = newest_version(self.plan, self._assembler)
        folder, step = (version.folder, version.position.step) if version else (None, 0)
        plan = next_attempt(self.plan, folder, attempt=self.plan.attempt + 1)
        self._write(
            Chosen(attempt=plan.attempt, step=step, since_unix_ns=since_ns, unix_ns=day_ns())
        )
        self._begin(plan)

    def _begin(self, plan: Plan) -> None:
        self.plan = plan
        plan.write()
        self._manifest["attempts"] = plan.attempt
        write_json(plan.run_folder / MANIFEST, self._manifest)
        self._count("begin")

    def _write(self, event: Event) -> None:
        if self.plan.cell.is_struck:
            self._recorder.write(event)

    def _count(self, when: Literal["begin", "end"]) -> None:
        now = Counters.now()
        # Ranks on other nodes, and then those beside the launcher too, are started by services of the scheduler.
        assignments = self._allocation.assignments(self.plan.cell.ranks)
        is_local = all(assignment.node == self._allocation.here for assignment in assignments)
        self._recorder.write(
            Counted(
                attempt=self.plan.attempt,
                when=when,
                at_ns=clock(),
                cores=now.cores,
                busy_s=now.busy_s,
                own_s=now.own_s if is_local else None,
                kernel_s=now.kernel_s,
                stolen_s=now.stolen_s,
            )
        )
        self._recorder.sync()


def _damage_as_planned(plan: Plan) -> None:
    """Change a byte of the newest version if a failure of the attempt that has ended asks for it. No rank may run."""
    strikes = recorded_strikes(plan.run_folder)[plan.strikes :]
    if any(strike.kind == "damage" for strike in strikes):
        damaged = open_levels(plan).damage_newest()
        log.info("damaged, as planned: %s", damaged or "there was no version yet")


def _cuda_libraries(python: Path) -> tuple[str, ...]:
    """Folders of the libraries in NVIDIA's wheels. CuPy finds cuDNN only where LD_LIBRARY_PATH names them."""
    wheels = python.parents[1].glob("lib/python3*/site-packages/nvidia/*/lib")
    return (*map(str, sorted(wheels)), *filter(None, [os.environ.get("LD_LIBRARY_PATH")]))
