"""The recovery `ulfm`: MPI's user-level failure mitigation; survivors shrink the communicator and continue without a checkpoint.

After Amatya et al. 2017: every rank holds the whole network, so a lost rank costs no state. Each rank's
framework runs without communication; Open MPI 5 averages gradients over the remaining communicator.

After losing a rank, the others agree on the last step that any of them completed, adopt its state, and repeat the failed step with a new
dropout draw. With `replace` the survivors start a process in place of each lost rank and wait for it; if another
rank is lost meanwhile, all restart.
"""

from __future__ import annotations

import dataclasses
import logging
import os
import signal
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from typing import NoReturn

import numpy as np
from numpy.typing import NDArray

from ckptbench.common.clock import Instant, clock
from ckptbench.common.errors import LaunchError
from ckptbench.common.removal import remove_or_warn
from ckptbench.failures.recovery.contract import Loss, Regrouped, Verdict, flush
from ckptbench.failures.recovery.elastic import AveragingRank, Elastic
from ckptbench.matrix.plugin_spec import Option
from ckptbench.run.control.link import Link
from ckptbench.run.control.ranks import RankContext
from ckptbench.run.control.variables import LAUNCHED, RANK
from ckptbench.run.plan import Plan
from ckptbench.run.position import Position

log = logging.getLogger(__name__)

CHUNK = 2**20
"""Gradients are summed in parts of so many numbers: small enough for a cache, large enough that their number is no cost."""
UNKNOWN = -1
"""The step of a rank whose state is in part that of another step."""
COME_SECONDS = 600.0
"""For so long survivors wait for processes that they have started, until these have built their networks."""
VERDICT_SECONDS = 30.0
"""For so long a rank waits to be ended after an MPI error that may come from a loss. The launcher hears of a loss at once."""


OPTIONS = (
    "--with-ft", "ulfm",
    "--oversubscribe", "--bind-to", "none",  # ranks pin themselves
    "--allow-run-as-root",
)  # fmt: skip
"""Of Open MPI's mpiexec."""
SHARED_MEMORY = Path("/dev/shm")
PREFIX = f"ckptbench-{os.getuid()}-ulfm-"
"""Of the names of folders there. The id of the launcher's process follows."""


class Ulfm(Elastic):
    """The half that the launcher calls."""

    def command(self, rank: Sequence[str], plan: Plan) -> list[str]:
        mpiexec = Path(rank[0]).with_name("mpiexec")  # of the MPI in the environment of the ranks
        return [str(mpiexec), *OPTIONS, "-n", str(plan.cell.ranks), *rank]

    def after(self, loss: Loss, plan: Plan) -> Verdict:
        """All ranks start again, too, if one is lost before another has been replaced.

        MPI_Comm_spawn hears of no loss: survivors would wait in it for ever, or the new process would end them with an error.
        """
        verdict = super().after(loss, plan)
        if verdict != Verdict.GO_ON or not self.options(plan)["replace"]:
            return verdict
        if len(loss.ranks) > 1 or not self.is_whole(plan):
            return Verdict.RELAUNCH
        self.replaced[plan.attempt] += 1
        return verdict

    def was_planned(self, loss: Loss, plan: Plan) -> bool:
        """A process that comes up in place of a lost rank ends with an error if a survivor is lost meanwhile."""
        if not self.options(plan)["replace"] or self.is_whole(plan):
            return super().was_planned(loss, plan)
        alone = [dataclasses.replace(loss, ranks=(rank,)) for rank in loss.ranks]
        planned = [super(Ulfm, self).was_planned(each, plan) for each in alone]
        return any(planned)

    @contextmanager
    def environment(self) -> Iterator[Mapping[str, str]]:
        """Open MPI's own files go into a folder that is removed, and that the next run removes if this process is killed."""
        for left in SHARED_MEMORY.glob(f"{PREFIX}*"):
            process = left.name.removeprefix(PREFIX).partition("-")[0]
            with suppress(FileNotFoundError):  # another launcher has removed it meanwhile
                if left.lstat().st_uid == os.geteuid() and not Path("/proc", process).exists():
                    remove_or_warn(left)
        with tempfile.TemporaryDirectory(
            prefix=f"{PREFIX}{os.getpid()}-", dir=SHARED_MEMORY, ignore_cleanup_errors=True
        ) as folder:
            yield {
                "OMPI_MCA_btl_sm_backing_directory": folder,
                "PRTE_MCA_prte_tmpdir_base": folder,
            }


class UlfmRank(AveragingRank):
    """The half that every rank calls."""

    def __init__(self, world: RankContext, link: Link, options: Mapping[str, Option]) -> None:
        super().__init__(world, link, options)
        import mpi4py

        mpi4py.rc.finalize = False  # after a loss MPI_Finalize may hang
        from mpi4py import MPI

        self._mpi = MPI
        self._joins: Callable[[ExitStack], None] | None = None
        """How this rank meets the others, if it comes in place of a lost one."""
        self._broken: Exception | None = None
        """Why nothing can be sent over the communicator any more."""
        self._has_agreed = False
        """Whether this rank has taken part in an agreement on the communicator."""
        parent = MPI.Comm.Get_parent()
        if parent == MPI.COMM_NULL:
            self._world = MPI.COMM_WORLD.Dup()
            self._check_ranks(self._world.allgather(world.rank))
        else:
            self._world = parent.Merge(high=True)
            self._joins = lambda _: None

    def _check_ranks(self, ranks: Sequence[int]) -> None:
        if list(ranks) != list(range(self.world.world_size)):
            raise LaunchError(
                f"to MPI the ranks are {ranks}, not 0 to {self.world.world_size - 1}: they must be started by the mpiexec of "
                "the MPI in their environment"
            )

    def barrier(self) -> None:
        self._together(self._world.Barrier)

    def finish(self) -> None:
        if not self._agree(True):
            self._broken = LaunchError("a rank was lost before all had come to the end")
            raise self._broken

    def regroup(self, error: Exception, reached: Position) -> Regrouped:
        """Shrink the communicator, and go on after the last step that any survivor has done.

        A rank may have finished the step in which another was lost, while the sum failed on the rest. They then take over
        its state: parameters and optimizer slots, not what only a rank has. A rank that is lost meanwhile begins it anew.
        """
        if self._broken is None:
            raise error
        noticed_ns = clock()
        log.info("a rank is lost after step %d: %s", reached.step, self._broken)
        replaces = bool(self.options["replace"])
        return self._regrouped(
            reached.step, noticed_ns, self._make_whole if replaces else self._shrink
        )

    def join(self, reached: Position) -> Regrouped | None:
        """A rank that survivors have started gets their state."""
        return None if self._joins is None else self._regrouped(UNKNOWN, clock(), self._joins)

    def _regrouped(self, own: int, noticed_ns: int, meet: Callable[[ExitStack], None]) -> Regrouped:
        """Agree on a step after `meet`, and give its state to those that do not have it. `own` is this rank's step.

        `meet` gets a stack for what lasts until all have met.
        """
        taken = 0
        while True:
            try:
                with ExitStack() as until_met:
                    meet(until_met)
                    known = self._world.allgather((own, self.world.rank))
                step = max(each for each, _ in known)
                if step == UNKNOWN:
                    raise LaunchError("every rank with a whole state is lost")
                agreed_ns = clock()
                if any(each != step for each, _ in known):
                    is_behind = own != step
                    own = UNKNOWN if is_behind else own
                    sent = self._send_state([each for each, _ in known].index(step))
                    own, taken = step, taken + sent * is_behind
                self._world.Barrier()
                break
            except self._mpi.Exception as error:
                if self.options["replace"]:
                    self._await_end(error)
                log.info("another rank is lost: %s", error)
                self._broken, meet = error, self._shrink
        self._broken = self._joins = None
        return Regrouped(
            step=step,
            ranks=tuple(rank for _, rank in known),
            noticed_ns=noticed_ns,
            agreed_ns=agreed_ns,
            ready_ns=clock(),
            bytes=taken,
        )

    def close(self) -> None:
        """Wait for the others, without whom a rank that ends would be taken for a lost one."""
        self._await_others()
        self.framework.close()

    def abort(self) -> NoReturn:
        """End this process by a signal: of any other end with an error the others would hear nothing."""
        flush()
        os.kill(os.getpid(), signal.SIGKILL)
        raise AssertionError("not reached")

    def leave(self, status: int) -> NoReturn:
        """End this process without MPI_Finalize, which may hang after a loss, when all have nothing more to do.

        The first one that ends so may take the others with it, where some were started in place of lost ones.
        """
        self._await_others()
        super().leave(status)

    def _await_others(self) -> None:
        """Wait for all that are left: they are at the end too. A barrier would fail for a rank that is lost meanwhile."""
        while True:
            self._world.Ack_failed()
            try:
                self._world.Agree(True)
            except self._mpi.Exception as lost:
                log.info("a rank was lost at the end: %s", lost)
            else:
                return

    def average(self, gradients: Sequence[NDArray[np.float32]]) -> None:
        """Average each array over the ranks, in place."""
        self._together(lambda: self._sum_up(gradients))
        for gradient in gradients:
            np.divide(gradient, np.float32(self._world.size), out=gradient)

    def _sum_up(self, gradients: Sequence[NDArray[np.float32]]) -> None:
        for gradient in gradients:
            flat = np.ascontiguousarray(gradient).reshape(-1)
            for first in range(0, flat.size, CHUNK):
                part = flat[first : first + CHUNK]
                self._world.Allreduce(self._mpi.IN_PLACE, part, self._mpi.SUM)
            if not gradient.flags.c_contiguous:
                gradient[...] = flat.reshape(gradient.shape)

    def _together(self, call: Callable[[], object]) -> None:
        try:
            call()
        except self._mpi.Exception as error:
            # The others may wait in other calls, or be a step ahead: they must come out of them too.
            self._broken = error
            self._world.Revoke()
            raise

    def _agree(self, at_end: bool) -> bool:
        """Whether all that are left are at the end, and none is lost that was there before. All get the same answer.

        Each rank asks once before it shrinks the communicator, also where it knows the answer: another one may wait here, and
        `Revoke` does not bring it out.
        """
        self._has_agreed = True
        try:
            return bool(self._world.Agree(at_end))
        except self._mpi.Exception as lost:
            log.info("no agreement: %s", lost)
            return False

    def _shrink(self, _: ExitStack) -> None:
        """Raises LaunchError if no rank is lost."""
        self._world.Revoke()
        if not self._has_agreed:
            self._agree(False)
        # The broken one is not freed: Open MPI may use it still, and crash.
        before, self._world = self._world, self._world.Shrink()
        self._has_agreed = False
        if self._world.size == before.size:
            raise LaunchError(f"a call of MPI has failed, and no rank is lost: {self._broken}")

    def _make_whole(self, until_met: ExitStack) -> None:
        """Shrink the communicator, start a process in place of each lost rank, and take them in."""
        self._shrink(until_met)
        lost = sorted({*range(self.world.world_size)} - {*self._world.allgather(self.world.rank)})
        launched = f"{LAUNCHED}={Instant.now()}"
        until_met.enter_context(self._waiting_for(lost))
        others = self._world.Spawn_multiple(
            ["env"] * len(lost),
            [[f"{RANK}={rank}", launched, *sys.orig_argv] for rank in lost],
            [1] * len(lost),
        )
        self._world = others.Merge(high=False)

    @contextmanager
    def _waiting_for(self, ranks: Sequence[int]) -> Iterator[None]:
        """End this process if the block takes too long. MPI itself has no such limit."""
        named = " and ".join(f"rank {rank}" for rank in ranks)
        problem = f"no process came up in place of {named} within {COME_SECONDS:g} s"
        timer = threading.Timer(COME_SECONDS, self._give_up, [problem])
        timer.daemon = True
        timer.start()
        try:
            yield
        finally:
            timer.cancel()

    def _await_end(self, error: Exception) -> NoReturn:
        """Wait for the launcher, which has all ranks start again if one was lost meanwhile. Else the error has another cause."""
        log.info("no lost rank can be replaced: %s", error)
        time.sleep(VERDICT_SECONDS)
        self._give_up(f"a lost rank could not be replaced: {error}")

    def _give_up(self, problem: str) -> NoReturn:
        log.error("%s; the logs of all ranks say why", problem)
        self.link.hang_up()
        self.abort()

    def _send_state(self, source: int) -> int:
        """Send model and optimizer from the rank `source` of the communicator to all. Returns their bytes."""
        size = 0
        for handle in self.framework.handles():
            array = np.ascontiguousarray(handle.read()).copy()
            self._world.Bcast(array.reshape(-1).view(np.uint8), source)
            if self._world.rank != source:
                handle.write(array)
            size += array.nbytes
        return size
