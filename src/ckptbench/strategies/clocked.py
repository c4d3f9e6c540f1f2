"""The measurement of a strategy: the clocks, the sync and the commit, the same for every strategy.

The stall of a checkpoint is the duration of its `save` event plus the durations of its `hold` events.

The files of a blocking strategy are written when its `save` returns. Then the training thread also syncs and
commits, and the ranks wait for one another in the framework's barrier. The saves of any other strategy end in the
background, in a second thread. There the rank that commits waits for the other ranks' notes in the staging folder,
because only the training thread may use collectives.

Old versions are removed behind training, after the commit of every strategy's save. The next save waits for it.
"""

from __future__ import annotations

import shutil
import threading
from collections.abc import Callable
from concurrent.futures import Future
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal, Protocol, Self

from ckptbench.checkpoints.shares import gather_shares, note_share
from ckptbench.checkpoints.store import CheckpointStore, fsync
from ckptbench.checkpoints.version import Version
from ckptbench.errors import CheckpointError, LaunchError
from ckptbench.machine.clock import clock
from ckptbench.matrix.catalogue import REMOVING, STRATEGIES, SYNCED
from ckptbench.matrix.variant import Variant
from ckptbench.runs.events import Captured, Durable, File, Hold, Retained, Save, SaveFailed, Written
from ckptbench.runs.identity import Identity
from ckptbench.runs.position import Position
from ckptbench.runs.recorder import Recorder
from ckptbench.strategies.contract import SHARED, Opening, Share, Strategy, Subject
from ckptbench.strategies.loading import load_strategy
from ckptbench.world.seats import Place

COMMITTING_RANK = 0


class Trained(Subject, Protocol):
    """A subject whose ranks can wait for one another."""

    def barrier(self) -> None:
        """Return when every rank has called it."""


@dataclass(frozen=True, slots=True)
class _Flight:
    """A save that has begun, and the times at which its parts end, each taken in the thread that ends the part."""

    position: Position
    share: Share
    captured_ns: Future[int]
    written_ns: Future[int]
    finished: Future[Durable | None]
    """Done when this rank has nothing more to do for the save. Its result is the `durable` event of the rank that
    commits.

    If the save fails in the background, it holds the first error.
    """
    removed: Future[None]
    """Done when old versions are removed, or need not be. It holds the first error of the removal."""

    @classmethod
    def begin(cls, position: Position, share: Share) -> Self:
        captured_ns, written_ns = _ended(share.captured), _ended(share.written[SHARED])
        return cls(position, share, captured_ns, written_ns, Future(), Future())


class Clocked:
    """One rank's strategy with its measurement. Every rank calls it at the same step."""

    def __init__(
        self,
        strategy: Strategy,
        *,
        blocking: bool,
        subject: Trained,
        place: Place,
        format: str,
        identity: Identity,
        store: CheckpointStore,
        recorder: Recorder,
        reach: Callable[[str], None],
        begin: Callable[[Position], None],
    ) -> None:
        self._strategy = strategy
        self._blocking = blocking
        self._subject = subject
        self._place = place
        self._format = format
        self._identity = identity
        self._store = store
        self._recorder = recorder
        self._reach = reach
        self._tell_begin = begin
        self._last: _Flight | None = None

    @classmethod
    def open(
        cls,
        variant: Variant,
        *,
        subject: Trained,
        place: Place,
        format: str,
        identity: Identity,
        store: CheckpointStore,
        recorder: Recorder,
        reach: Callable[[str], None],
        begin: Callable[[Position], None] = lambda position: None,
    ) -> Self:
        """Open the strategy registered under the variant's name.

        `begin` is called when a save begins and the one before is finished, `reach` with each of its stages, which a
        save in the background passes later.
        Every version that it commits says by `identity` of which training it is.
        """

        def staging(level: str, step: int) -> Path:
            if level != SHARED:
                raise CheckpointError(f"{variant.name} writes to the level {level}: use {SHARED}")
            return store.staging(step)

        opening = Opening(
            subject=subject,
            place=place,
            format=format,
            options=variant.chosen(STRATEGIES[variant.name].options),
            staging=staging,
            reach=reach,
        )
        return cls(
            load_strategy(variant.name)(opening),
            blocking=STRATEGIES[variant.name].blocking,
            subject=subject,
            place=place,
            format=format,
            identity=identity,
            store=store,
            recorder=recorder,
            reach=reach,
            begin=begin,
        )

    @property
    def hook(self) -> Callable[[], None] | None:
        """A function that every step must call between gradients and update. None: the strategy does not need it."""
        overridden = type(self._strategy).before_update is not Strategy.before_update
        return self._before_update if overridden else None

    def save(self, position: Position) -> None:
        """Save, write the cost for this rank into its trace, and return when training may go on.

        Raises CheckpointError if this checkpoint or the one before cannot be written, whatever error the format's
        library raised, or if old versions could not be removed after the one before. Raises LaunchError if another
        rank died during the save.
        """
        self._wait("save")
        start_ns = clock()
        try:
            flight = self._last = self._begin(position)
        except LaunchError:
            raise
        except Exception as error:
            raise self._failed(position, error) from error
        end_ns = clock()
        held = self._strategy.held_bytes()
        self._recorder.write(
            Save(step=position.step, epoch=position.epoch, start_ns=start_ns, end_ns=end_ns, held_bytes=held)
        )  # fmt: skip
        if self._blocking:
            self._record_parts(flight, flight.finished.result())
            self._retain(flight)

    def settle(self) -> None:
        """Return when the last save, and the removal after it, are finished on this rank. Raises the same errors as `save`."""
        self._wait("end")

    def load(self, version: Version) -> None:
        """Load the state of a version, checked before, into the framework. Raises CheckpointError."""
        self._strategy.load(version, version.folder)

    def close(self) -> None:
        """Finish the last save and close the strategy. Raises the same errors as `save`."""
        self.settle()
        self._strategy.close()

    def _begin(self, position: Position) -> _Flight:
        """Begin the save. For a blocking strategy also finish it."""
        self._tell_begin(position)
        flight = _Flight.begin(position, self._strategy.save(position))
        if self.hook is None:
            flight.share.captured.result()
        if self._blocking:
            flight.finished.set_result(self._finish(flight, meet=lambda: self._meet(position)))
        else:
            threading.Thread(target=self._finish_behind, args=(flight,), daemon=True).start()
        return flight

    def _finish(self, flight: _Flight, *, meet: Callable[[], None]) -> Durable | None:
        """Put this rank's share on stable storage. The rank that commits then makes a version from all shares."""
        position = flight.position
        files = flight.share.written[SHARED].result()
        staging = self._store.staging(position.step)
        if self._place.rank != COMMITTING_RANK:
            for file in files:
                # Each rank syncs its own files: another node cannot sync bytes that are still in this node's memory.
                fsync(staging / file.name)
            note_share(staging, self._place.rank, files)
            meet()  # wait until all shares are written
            meet()  # wait until the version is committed
            return None
        meet()
        others = [rank for rank in range(self._place.world_size) if rank != COMMITTING_RANK]
        durable = self._commit(
            staging,
            position,
            [*files, *gather_shares(staging, others, are_written=self._blocking)],
        )
        meet()
        return durable

    def _commit(self, staging: Path, position: Position, files: list[File]) -> Durable:
        synced = self._store.sync(staging)
        checked_ns = clock()
        self._reach(SYNCED)
        self._store.commit(
            staging,
            files,
            synced.checksums,
            identity=self._identity,
            position=position,
            world_size=self._place.world_size,
            format=self._format,
        )
        return Durable(
            step=position.step,
            level=SHARED,
            synced_ns=synced.synced_ns,
            checked_ns=checked_ns,
            committed_ns=clock(),
            files=files,
        )

    def _finish_behind(self, flight: _Flight) -> None:
        try:
            durable = self._finish(flight, meet=_not_at_all)
            self._record_parts(flight, durable)
        except Exception as error:  # noqa: BLE001 (the training thread raises it)
            flight.finished.set_exception(error)
        else:
            flight.finished.set_result(durable)
            self._retain(flight)

    def _retain(self, flight: _Flight) -> None:
        """Remove old versions in a thread, if there are any and this rank commits. Call it when the save is finished."""
        try:
            if self._place.rank == COMMITTING_RANK and self._store.surplus():
                threading.Thread(target=self._retain_behind, args=(flight,), daemon=True).start()
            else:
                flight.removed.set_result(None)
        except Exception as error:  # noqa: BLE001 (the training thread raises it)
            flight.removed.set_exception(error)

    def _retain_behind(self, flight: _Flight) -> None:
        try:
            self._reach(REMOVING)
            start_ns = clock()
            self._store.retain()
            self._recorder.write(
                Retained(step=flight.position.step, start_ns=start_ns, end_ns=clock())
            )
        except Exception as error:  # noqa: BLE001 (the training thread raises it)
            flight.removed.set_exception(error)
        else:
            flight.removed.set_result(None)

    def _record_parts(self, flight: _Flight, durable: Durable | None) -> None:
        step = flight.position.step
        files = list(flight.share.written[SHARED].result())
        written_ns = flight.written_ns.result()
        self._recorder.write(Captured(step=step, at_ns=flight.captured_ns.result()))
        self._recorder.write(Written(step=step, level=SHARED, at_ns=written_ns, files=files))
        if durable is not None:
            self._recorder.write(durable)

    def _wait(self, why: Literal["save", "end"]) -> None:
        flight = self._last
        if flight is None:
            return
        saved, removed = flight.finished.done(), flight.removed.done()
        start_ns = clock()
        self._raise_failure(flight)
        if not saved:
            self._hold(flight, why, start_ns)
        elif not removed:
            self._hold(flight, "removal" if why == "save" else why, start_ns)

    def _raise_failure(self, flight: _Flight) -> None:
        """Wait until the save and the removal after it are finished, and raise the error of the one that has failed."""
        try:
            flight.finished.result()
        except LaunchError:
            raise
        except Exception as error:
            raise self._failed(flight.position, error) from error
        try:
            flight.removed.result()
        except Exception as error:
            raise CheckpointError(
                f"{self._store.folder} keeps versions that should go since the checkpoint of step "
                f"{flight.position.step} ({type(error).__name__}: {error}): make the folder writable, and start the run again"
            ) from error

    def _before_update(self) -> None:
        flight = self._last
        if flight is None or flight.share.captured.done():
            return
        start_ns = clock()
        self._strategy.before_update()
        self._hold(flight, "update", start_ns)

    def _hold(
        self, flight: _Flight, why: Literal["update", "save", "removal", "end"], start_ns: int
    ) -> None:
        end_ns = clock()
        self._recorder.write(
            Hold(step=flight.position.step, why=why, start_ns=start_ns, end_ns=end_ns)
        )

    def _meet(self, position: Position) -> None:
        try:
            self._subject.barrier()
        except Exception as error:
            raise LaunchError(
                f"another rank died in the checkpoint of step {position.step}, and its log says why "
                f"({type(error).__name__}: {error})"
            ) from error

    def _failed(self, position: Position, error: Exception) -> CheckpointError:
        said = f"{type(error).__name__}: {error}"
        self._recorder.write(SaveFailed(step=position.step, at_ns=clock(), error=said))
        return CheckpointError(
            f"the checkpoint of step {position.step} cannot be written to {self._store.folder} ({said}); "
            f"{_free(self._store.folder)}"
        )


def _not_at_all() -> None:
    """The `meet` of background saves does nothing: the rank that commits waits for the notes of the others instead."""


def _ended(future: Future[Any]) -> Future[int]:
    """The time at which a future is done, ns of `machine.clock`, taken in the thread that ends it."""
    at_ns: Future[int] = Future()
    future.add_done_callback(lambda _: at_ns.set_result(clock()))
    return at_ns


def _free(folder: Path) -> str:
    nearest = next(path for path in (folder, *folder.parents) if path.exists())
    megabytes = shutil.disk_usage(nearest).free / 1e6
    return (
        f"{megabytes:.0f} MB are free there: free some, or set checkpoints.folder to another disk"
    )
