"""A rank's end of its injector: it starts it, and reports the rank's progress."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterable, Sequence
from contextlib import suppress
from multiprocessing.connection import Connection, Pipe
from pathlib import Path
from typing import NoReturn, Self

from ckptbench.common.clock import clock
from ckptbench.common.errors import CkptbenchError
from ckptbench.common.memory_kills import MemoryKills, ended
from ckptbench.failures import fault_injector
from ckptbench.failures.fault_injector import OVER, Orders, Progress
from ckptbench.run.control.ranks import RankContext
from ckptbench.run.control.variables import TOKEN
from ckptbench.run.events import Strike
from ckptbench.run.failure import Failure, Moment
from ckptbench.run.layout import strikes_path
from ckptbench.run.trace import whole_events

CLOSING_S = 300.0
"""How long an injector may take to finish when its rank has nothing more to report."""


class InjectorClient:
    """Reports this rank's progress to its injector. Without an injector it does nothing.

    Where a failure kills this rank at a moment of its work, the rank stands still at this moment until it is killed.
    """

    def __init__(
        self,
        injector: subprocess.Popen[bytes] | None = None,
        connection: Connection | None = None,
        failures: Sequence[Failure] = (),
    ) -> None:
        """`connection` leads to the injector. `failures` are those that are still to strike this rank, or it and others."""
        self._injector = injector
        self._connection = connection
        self._failures = failures
        self._saving: int | None = None
        self._is_ready = False
        self._kills = MemoryKills.now()

    @classmethod
    def open(
        cls,
        failures: Sequence[Failure],
        world: RankContext,
        *,
        run_folder: Path,
        attempt: int,
        near: Iterable[Path],
        is_replacement: bool = False,
    ) -> Self:
        """Start the injector, if this rank is the victim of a failure, or the first of its victims.

        `near` are the folders that are lost with the node. An attempt after the first one begins with a recovery, and so
        does a rank that comes again, in place of one that was lost.
        """
        nodes = world.nodes or (world.node,) * world.world_size
        own = {
            number: failure
            for number, failure in enumerate(failures)
            if failure.victims(nodes)[:1] == (world.rank,)
        }
        if not own:
            return cls()
        journal = strikes_path(run_folder, world.rank)
        struck = {event.failure for event in whole_events(journal) if isinstance(event, Strike)}
        orders = Orders(
            pid=os.getpid(),
            nodes=tuple(nodes),
            attempt=attempt,
            journal=journal,
            failures={number: each for number, each in own.items() if number not in struck},
            token=os.environ[TOKEN],
            near=tuple(near),
        )
        # Without the token it is none of the processes that a node's failure ends, and in a session of its own it is
        # not ended with the rank's: it has something to write then.
        without = {name: value for name, value in os.environ.items() if name != TOKEN}
        connection, other_end = Pipe()
        with other_end:
            command = [sys.executable, "-m", fault_injector.__name__, str(os.getpid())]
            injector = subprocess.Popen(
                [*command, str(other_end.fileno())],
                stdin=subprocess.DEVNULL,
                env=without,
                start_new_session=True,
                pass_fds=[other_end.fileno()],
            )
        client = cls(injector, connection, list(orders.failures.values()))
        # Not in the command, which every user of the host can read: the token is a secret.
        client._send(orders)
        if attempt > 1 or is_replacement:
            client.recovering()
        return client

    def report_step(self, done: int) -> None:
        """A step begins, and `done` steps of the run are done. Before the first one the injector must be ready.

        Raises CkptbenchError if it is gone, as `save` does.
        """
        if not self._is_ready:
            self._await_ready()
        self._report("step", done)

    def report_save(self, done: int) -> None:
        """The checkpoint of this step begins, and the one before is finished."""
        self._saving = done
        self._report("save", done)

    def at_stage(self, stage: str) -> None:
        """The checkpoint comes to this stage. Threads of background saves may call it too."""
        if any(failure.waits_for("save", self._saving, stage) for failure in self._failures):
            self._report("save", self._saving, stage)

    def recovering(self) -> None:
        """This rank begins to recover from a failure. That the injector is gone is said in the next step."""
        with suppress(CkptbenchError):
            self._report("recovery", None)

    def close(self) -> None:
        """Nothing more will be reported. What is still due does not come.

        Raises CkptbenchError if it does not finish in time.
        """
        if self._connection is None:
            return
        with suppress(
            EOFError, ConnectionError
        ):  # it is gone, and what it has not written is missed later
            self._connection.send(OVER)
            while self._connection.poll(CLOSING_S):
                if self._connection.recv() == OVER:
                    return
            raise CkptbenchError(
                f"the injector of this rank has not finished within {CLOSING_S:g} s"
            )

    def _await_ready(self) -> None:
        """A short training would be over before an injector that is still starting could strike it."""
        if self._connection is not None:
            self._hear(self._connection)
        self._is_ready = True

    def _report(self, moment: Moment, step: int | None, stage: str | None = None) -> None:
        # With its time: the injector may still be starting.
        self._send(Progress(moment, step, clock(), stage))
        if step is not None and any(
            failure.kills and not failure.delay_s and failure.waits_for(moment, step, stage)
            for failure in self._failures
        ):
            self._await_kill()

    def _await_kill(self) -> NoReturn:
        assert self._connection is not None
        while True:
            self._hear(self._connection)  # which raises if the injector fails

    def _send(self, message: Progress | Orders) -> None:
        if self._connection is not None:
            try:
                self._connection.send(message)
            except ConnectionError:
                raise self._ended() from None

    def _hear(self, connection: Connection) -> None:
        try:
            connection.recv()
        except (EOFError, ConnectionError):
            raise self._ended() from None

    def _ended(self) -> CkptbenchError:
        assert self._injector is not None
        how = ended(self._injector.wait(), self._kills)
        return CkptbenchError(f"the injector of this rank {how}; see above")
