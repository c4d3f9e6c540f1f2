"""The recovery `torchft`: every rank is a replica group; survivors continue, and a lost rank is restarted.

All ranks are on one host. Before every step the lighthouse, a separate process, decides which ranks train; it excludes ranks
that are silent for a second. If a reduction in a step fails, the step is repeated with the same samples. The launcher restarts lost
ranks, which receive the state of a training rank over HTTP.

torchft has no authentication. Its servers listen only on loopback and load only tensors, but other users of the host
can read the model or send a rank another state: do not share the host with people you do not trust.
"""

from __future__ import annotations

import dataclasses
import gc
import logging
import os
import subprocess
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, wait
from contextlib import contextmanager
from datetime import timedelta
from pathlib import Path
from typing import Any, NoReturn

import numpy as np
from numpy.typing import NDArray

from ckptbench.common.clock import clock
from ckptbench.common.errors import LaunchError
from ckptbench.common.memory_kills import MemoryKills, ended
from ckptbench.failures.recovery.contract import Loss, Regrouped, Verdict
from ckptbench.failures.recovery.elastic import AveragingRank, Elastic
from ckptbench.matrix.plugin_spec import Option
from ckptbench.run.control.link import Link
from ckptbench.run.control.ranks import RankContext
from ckptbench.run.plan import Plan
from ckptbench.run.position import Position

log = logging.getLogger(__name__)

LIGHTHOUSE = "CKPTBENCH_LIGHTHOUSE"
"""The variable with its URL."""
HEARTBEAT_MS = 1000
"""A rank that is silent for so long is left out of the next quorum."""
JOIN_MS = 60_000
"""For so long the lighthouse waits for a rank that is alive and does not ask for the next quorum: it is slow, not lost."""
CONNECT = timedelta(seconds=30)
"""For so long the ranks of a quorum try to connect, and wait for one another's gradients. What hangs, the launcher ends."""
ANSWER = timedelta(seconds=60)
BARRIER = timedelta(minutes=10)
"""A barrier may wait until a checkpoint is on disk."""
QUORUM_S = BARRIER.total_seconds()
"""For so long a rank tries to be in a quorum whose connections stand: another one may evaluate or save meanwhile."""
AGAIN_S = 0.1
"""A rank waits so long before it looks again whether all have come up."""
NEW = 10**6
"""Added to the number of a rank that comes again, so that the others see it in the quorum."""


class TorchFt(Elastic):
    """The half that the launcher calls."""

    def command(self, rank: Sequence[str], plan: Plan) -> list[str]:
        self._python = rank[0]
        return list(rank)

    @contextmanager
    def environment(self) -> Iterator[Mapping[str, str]]:
        """Run the lighthouse. It ends with this process too. Raises LaunchError if it does not start."""
        source = str(Path(__file__).resolve().parents[4])
        kills = MemoryKills.now()
        process = subprocess.Popen(
            [
                self._python,
                "-m",
                "ckptbench.failures.recovery.lighthouse",
                str(HEARTBEAT_MS),
                str(JOIN_MS),
            ],
            stdin=subprocess.PIPE,  # which ends with this process, however it ends
            stdout=subprocess.PIPE,
            env={**os.environ, "PYTHONPATH": source, "RUST_LOG": "error"},
            start_new_session=True,  # a signal for the workflow's processes is none for it
        )
        try:
            assert process.stdout is not None
            port = process.stdout.readline().decode().strip()
            if not port:
                raise LaunchError(
                    f"torchft's lighthouse {ended(process.wait(), kills)} when it started; see above"
                )
            yield {LIGHTHOUSE: f"http://127.0.0.1:{port}", "RUST_LOG": "error"}
        finally:
            process.kill()
            process.communicate()

    def after(self, loss: Loss, plan: Plan) -> Verdict:
        verdict = super().after(loss, plan)
        return Verdict.REPLACE if verdict == Verdict.GO_ON else verdict


@dataclasses.dataclass(slots=True)
class Quorum:
    """The ranks that train together, as torchft has last said."""

    ranks: tuple[int, ...] = ()
    has_new: bool = False
    """Whether one of them comes again."""
    since_ns: int = 0
    is_new: bool = False
    """Whether it has not been answered yet with a Regrouped."""

    def change(self, replicas: Sequence[int]) -> None:
        """`replicas` are the numbers at the end of their names."""
        self.ranks = tuple(number % NEW for number in replicas)
        self.has_new = any(number >= NEW for number in replicas)
        self.since_ns = clock()
        self.is_new = True


class TorchFtRank(AveragingRank):
    """The half that every rank calls.

    torchft counts steps too, from those of the version that an attempt begins with. The rank with the highest count is
    never behind, and the others take its state.
    """

    def __init__(self, world: RankContext, link: Link, options: Mapping[str, Option]) -> None:
        super().__init__(world, link, options)
        if world.is_spread:
            raise LaunchError(
                "torchft is supported on one host only: its lighthouse listens on the loopback interface; use ulfm or restart"
            )
        self._manager: Any = None
        self._quorum = Quorum()
        self._is_in_step = False
        """Whether a quorum for the next step has been asked for."""
        self._broken: Exception | None = None
        """Why the last step does not count, or the last barrier has failed."""
        self._taken = 0
        """Bytes of the state that came from another rank since the last Regrouped."""

    def join(self, reached: Position) -> Regrouped | None:
        """Come into the quorum. Ranks that begin together wait there until all of them have come.

        One that comes again waits for the others. Where there are none any more, because they have finished or are lost,
        the launcher ends it.
        """
        self._open(reached.step)
        while True:
            self._ask_quorum()
            ranks = self._quorum.ranks
            if self.link.is_replacement:
                if len(ranks) > 1:
                    self.link.join()
                    return self._regrouped()
            elif self._quorum.has_new or self._manager.current_step() != reached.step:
                return self._regrouped()
            elif len(ranks) == self.world.world_size:
                self._quorum.is_new = False
                return None
            time.sleep(AGAIN_S)

    def admit(self, reached: Position) -> Regrouped | None:
        if self._is_in_step:
            return None
        self._ask_quorum()
        return self._regrouped() if self._quorum.is_new else None

    def regroup(self, error: Exception, reached: Position) -> Regrouped:
        """Ask for another quorum. A rank whose step does not count while it does for another takes over that one's state."""
        if self._broken is None:
            raise error
        noticed_ns = clock()
        log.info("step %d does not count: %s", reached.step + 1, self._broken)
        self._broken = None
        self._ask_quorum()
        return self._regrouped(noticed_ns)

    def barrier(self) -> None:
        if self._manager is None:
            if not self.link.is_replacement:
                self.link.gather("barrier", None)
            return
        try:
            self._wait_for_all()
        except RuntimeError as error:
            self._fail(error)
            raise

    def finish(self) -> None:
        """Without a rank that is lost in the last evaluation the others evaluate anew, its shard too."""
        self.barrier()

    def close(self) -> None:
        """Give the state to ranks that are behind, until all that train have finished."""
        finished = _soon(self.link.finish)
        serving = _soon(self._serve)
        wait((finished, serving), return_when=FIRST_COMPLETED)
        if not finished.done():
            serving.result()  # raises: by itself it does not end
        self.framework.close()

    def _serve(self) -> NoReturn:
        while True:
            self._ask_quorum()
            if self._quorum.is_new:
                self._quorum.is_new = False
                try:
                    self.barrier()  # as those do who go on with this one
                except RuntimeError as lost:
                    log.info("a rank was lost at the end: %s", lost)

    def _open(self, step: int) -> None:
        """Make torchft's objects, which begin to send heartbeats. `step` is what this rank's state is after."""
        import torch
        from torchft import ProcessGroupGloo

        from ckptbench.failures.recovery.torchft.loopback import open_manager, open_store

        # It writes tracebacks of errors that this recovery answers and tells of itself.
        logging.getLogger("torchft").setLevel(logging.CRITICAL)
        quorum = self._quorum

        class Group(ProcessGroupGloo):
            def configure(self, *given: Any) -> None:
                quorum.change(given[-1])
                super().configure(*given)

        new = NEW if self.link.is_replacement else 0
        self._torch = torch
        self._group = Group(timeout=CONNECT)
        self._store = open_store()
        self._manager = open_manager(
            self._store,
            timeout=ANSWER,
            pg=self._group,
            state_dict=self._state,
            load_state_dict=self._take,
            min_replica_size=1,
            use_async_quorum=False,  # else a rank that comes again would do its first step with its own state
            quorum_timeout=timedelta(seconds=QUORUM_S),
            connect_timeout=CONNECT,
            lighthouse_addr=os.environ[LIGHTHOUSE],
            # The lighthouse sorts by name, and torchft hands on the number at its end.
            replica_id=f"rank_{self.world.rank:06d}_{new + self.world.rank}",
            init_sync=False,  # all ranks begin with the same parameters
        )
        self._manager.load_state_dict({"step": step, "batches_committed": 0})

    def _state(self) -> dict[str, dict[str, Any]]:
        """What a rank takes over from this one: model, optimizer and running statistics."""
        own = self.framework.local_state()
        return {
            "tensors": {
                each.name: self._torch.from_numpy(each.read()) for each in self.framework.handles()
            },
            "statistics": {
                name: self._torch.from_numpy(array)
                for name, array in own.items()
                if name.startswith("buffer/")
            },
        }

    def _take(self, state: Mapping[str, Mapping[str, Any]]) -> None:
        """The state of this rank's random generators stays its own."""
        for handle in self.framework.handles():
            array = state["tensors"][handle.name].numpy()
            handle.write(array)
            self._taken += array.nbytes
        statistics = {name: each.numpy() for name, each in state["statistics"].items()}
        self._taken += sum(each.nbytes for each in statistics.values())
        self.framework.load_local_state({**self.framework.local_state(), **statistics})

    def _ask_quorum(self) -> None:
        """Return when this rank is in a quorum whose connections stand, with the state of its step.

        Raises LaunchError if that does not come about.
        """
        end = time.monotonic() + QUORUM_S
        while True:
            try:
                self._manager.start_quorum()
            except (RuntimeError, TimeoutError) as error:
                raise LaunchError(
                    f"torchft's lighthouse at {os.environ[LIGHTHOUSE]} gave no quorum within {QUORUM_S:g} s ({error}): its process is gone, or "
                    "other ranks were busy for longer"
                ) from error
            self._is_in_step = True
            failed = self._manager.errored()
            if failed is None:
                return
            log.info(
                "no connection to the ranks %s: %s", self._quorum.ranks, failed.original_exception
            )
            self._fail(failed.original_exception)
            if time.monotonic() > end:
                raise LaunchError(
                    f"no connection to the ranks {self._quorum.ranks}: {failed.original_exception}"
                )

    def _fail(self, error: Exception) -> None:
        """Nothing of this quorum counts for this rank any more. The others, who may wait for it, must notice."""
        # Gloo closes its connections when nothing refers to them any more. The frames of the traceback do.
        self._broken = error.with_traceback(None)
        self._group.abort()
        gc.collect()
        self._manager.report_error(error)
        self._manager.should_commit()  # it says no, and torchft then makes new connections for the next quorum
        self._is_in_step = False

    def _regrouped(self, noticed_ns: int | None = None) -> Regrouped:
        if not self._quorum.is_new:
            raise LaunchError(
                "torchft gave the same quorum again after a failure, whose connections are gone"
            )
        taken, self._taken = self._taken, 0
        self._quorum.is_new = False
        self._broken = None
        return Regrouped(
            step=self._manager.current_step(),
            ranks=self._quorum.ranks,
            noticed_ns=self._quorum.since_ns if noticed_ns is None else noticed_ns,
            agreed_ns=self._quorum.since_ns,
            ready_ns=clock(),
            bytes=taken,
        )

    def average(self, gradients: Sequence[NDArray[np.float32]]) -> None:
        """Average each array over the ranks, in place. Raises the error because of which the step does not count."""
        whole = [np.ascontiguousarray(gradient) for gradient in gradients]
        for each in whole:
            # One after another. With several under way, a rank in which one has failed would wait for the next one, which
            # waits for a rank that waits for the first.
            self._manager.allreduce(self._torch.from_numpy(each)).wait()
            failed = self._manager.errored()
            if failed is not None:
                self._fail(failed.original_exception)
                raise failed.original_exception
        if not self._manager.should_commit():
            raise RuntimeError("torchft discards a step without any error")
        self._is_in_step = False
        for gradient, averaged in zip(gradients, whole, strict=True):
            if averaged is not gradient:
                gradient[...] = averaged

    def _wait_for_all(self) -> None:
        from torch.distributed import AllreduceOptions

        options = AllreduceOptions()
        options.timeout = BARRIER
        self._group.allreduce([self._torch.zeros(1)], options).wait()


def _soon(call: Callable[[], object]) -> Future[object]:
    """Have a thread of its own call it, which does not keep this process from ending."""
    future: Future[object] = Future()

    def run() -> None:
        try:
            future.set_result(call())
        except BaseException as error:  # noqa: BLE001 (who asks for the result gets it)
            future.set_exception(error)

    threading.Thread(target=run, daemon=True).start()
    return future
