"""A rank's end of its injector: it starts it, and tells it of the rank's work."""

from __future__ import annotations

import json
import os
import select
import socket
import subprocess
import sys
from collections.abc import Iterable, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any, NoReturn, Self

from ckptbench.common.clock import Instant, clock
from ckptbench.common.errors import CkptbenchError
from ckptbench.common.held_syncs import hold_syncs
from ckptbench.common.memory_kills import MemoryKills, ended
from ckptbench.common.remedies import cause
from ckptbench.failures.fault_injector import OVER, Orders
from ckptbench.runs.events import Strike
from ckptbench.runs.failure import Failure, Moment
from ckptbench.runs.layout import strikes_path
from ckptbench.runs.trace import whole_events
from ckptbench.world.ranks import RankContext
from ckptbench.world.variables import TOKEN

CLOSING_S = 300.0
"""How long an injector may take to finish when its rank has nothing more to tell."""


class InjectorClient:
    """Tells an injector of this rank's work. Without an injector it does nothing.

    Where a failure kills this rank at a moment of its work, the rank stands still at this moment until it is killed.
    """

    def __init__(
        self, injector: subprocess.Popen[bytes] | None = None, failures: Sequence[Failure] = ()
    ) -> None:
        """`failures` are those that are still to strike this rank, or it and others."""
        self._injector = injector
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
        comes_again: bool = False,
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
            told=Instant.now(),
        )
        # Without the token it is none of the processes that a node's failure ends, and in a session of its own it is
        # not ended with the rank's: it has something to write then.
        without = {name: value for name, value in os.environ.items() if name != TOKEN}
        command = [sys.executable, "-m", "ckptbench.failures.fault_injector", str(os.getpid())]
        ours, theirs = socket.socketpair()
        with ours, theirs:
            holds = any(failure.kind == "io_error" for failure in own.values())
            injector = subprocess.Popen(
                [*command, str(theirs.fileno())] if holds else command,
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                env=without,
                start_new_session=True,
                pass_fds=[theirs.fileno()] if holds else [],
                bufsize=0,
            )
            if holds:
                _hand_over_syncs(ours)
        target = cls(injector, list(orders.failures.values()))
        # Not in the command, which every user of the host can read: the token is a secret.
        target._write(orders.to_json())
        if attempt > 1 or comes_again:
            target.recovering()
        return target

    def tell_step(self, done: int) -> None:
        """A step begins, and `done` steps of the run are done. Before the first one the injector must be ready.

        Raises CkptbenchError if it is gone, as `save` does.
        """
        if self._injector is None:
            return
        if not self._is_ready:
            self._await_ready(self._injector)
        self._tell("step", done)

    def tell_save(self, done: int) -> None:
        """The checkpoint of this step begins, and the one before is finished."""
        self._saving = done
        if self._injector is not None:
            self._tell("save", done)

    def at_stage(self, stage: str) -> None:
        """The checkpoint comes to this stage. Threads of background saves may call it too."""
        if any(failure.waits_for("save", self._saving, stage) for failure in self._failures):
            self._tell("save", self._saving, stage)

    def recovering(self) -> None:
        """This rank begins to recover from a failure. That the injector is gone is said in the next step."""
        if self._injector is not None:
            with suppress(CkptbenchError):
                self._tell("recovery", None)

    def close(self) -> None:
        """Nothing more will be told. What is still due does not come. The injector goes on to answer syncs that are held.

        Raises CkptbenchError if it does not finish in time.
        """
        if self._injector is None:
            return
        assert self._injector.stdin is not None
        assert self._injector.stdout is not None
        self._injector.stdin.close()
        said = self._injector.stdout
        while select.select([said], [], [], CLOSING_S)[0]:
            if said.readline() in (OVER, b""):
                return
        raise CkptbenchError(f"the injector of this rank has not finished within {CLOSING_S:g} s")

    def _await_ready(self, injector: subprocess.Popen[bytes]) -> None:
        """A short training would be over before an injector that is still starting could strike it."""
        assert injector.stdout is not None
        if not injector.stdout.readline():
            raise self._ended(injector)
        self._is_ready = True

    def _tell(self, moment: Moment, step: int | None, stage: str | None = None) -> None:
        # With its time: the injector may still be starting.
        self._write({"moment": moment, "step": step, "stage": stage, "at_ns": clock()})
        if step is not None and any(
            failure.kills and not failure.delay_s and failure.waits_for(moment, step, stage)
            for failure in self._failures
        ):
            self._await_kill()

    def _await_kill(self) -> NoReturn:
        assert self._injector is not None
        assert self._injector.stdout is not None
        self._injector.stdout.read()  # to its end, which comes only if the injector fails
        raise self._ended(self._injector)

    def _write(self, line: dict[str, Any]) -> None:
        assert self._injector is not None
        assert self._injector.stdin is not None
        try:
            self._injector.stdin.write(json.dumps(line).encode() + b"\n")
        except BrokenPipeError:
            raise self._ended(self._injector) from None

    def _ended(self, injector: subprocess.Popen[bytes]) -> CkptbenchError:
        how = ended(injector.wait(), self._kills)
        return CkptbenchError(f"the injector of this rank {how}; see above")


def _hand_over_syncs(injector: socket.socket) -> None:
    """Hold the syncs of this process, and of all that it starts from now on, for its injector to answer."""
    try:
        syncs = hold_syncs()
    except OSError as error:
        raise CkptbenchError(
            f"failures of the kind io_error need seccomp's notifications (Linux 5.7), which are not to be had here ({cause(error)}): "
            "use another machine, or the kind full_disk"
        ) from error
    socket.send_fds(injector, [b"syncs"], [syncs])
    os.close(syncs)
