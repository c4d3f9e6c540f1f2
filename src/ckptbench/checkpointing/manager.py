"""The measurement of a strategy: the clocks, the sync and the commit, the same for every strategy.

The stall of a checkpoint is the duration of its `save` event and of its `hold` events, but for those in which the next save
or the end of training waited.

The files of a blocking strategy are written when its `save` returns. Then the training thread also syncs and
commits, and the ranks wait for one another in the recovery's barrier (by default the framework's). A commit
renames the folder, in which files and manifest are synced. The saves of any other strategy end in the
background, in a second thread. There the rank that commits waits for the other ranks' done markers in the staging folder,
because only the training thread may use collectives. In a blocking save it reads their lists of files from the same markers,
when a barrier has said that all are there.

Old versions are removed behind training, after the commit of every strategy's save. The next save waits for it.

The shared level is committed by rank 0. If the ranks are on several nodes, a local tier is committed on each node by its
first rank, and the ranks meet before each save. So no node begins the next version before all have committed this one.
"""

from __future__ import annotations

import threading
import weakref
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import Future
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from queue import SimpleQueue
from typing import Any, Literal, Self

from ckptbench.checkpointing.contract import Shard, Slot, Strategy, StrategyContext, TrainingState
from ckptbench.checkpointing.done_markers import gather_marked, mark_written
from ckptbench.checkpointing.levels import Levels, failed_save
from ckptbench.checkpointing.shard_assembly import newest_of_all_nodes
from ckptbench.checkpointing.version import Version
from ckptbench.common.clock import clock
from ckptbench.common.errors import CheckpointError, LaunchError
from ckptbench.common.objects import Place
from ckptbench.matrix.levels import SHARED, levels_of
from ckptbench.matrix.plugin_spec import PluginSpec
from ckptbench.matrix.registry import REMOVING, STRATEGIES, SYNCED, load
from ckptbench.run.control.ranks import RankContext
from ckptbench.run.events import Captured, Durable, File, Hold, Retained, Save, SaveFailed, Written
from ckptbench.run.footprints import Footprints
from ckptbench.run.identity import Identity
from ckptbench.run.position import Position
from ckptbench.run.recorder import Recorder

COMPARING = "before its versions were compared"


@dataclass(frozen=True, slots=True)
class PendingSave:
    """A save in progress. Each time is taken by the thread that finished that part."""

    position: Position
    shard: Shard
    captured_ns: Future[int]
    written_ns: Mapping[str, Future[int]]
    """By level."""
    finished: Future[list[Durable]] = field(default_factory=Future)
    """Done when this rank has finished the save. Result: one `durable` event a level on ranks that commit, else empty. Holds
    the error if the save failed in the background."""
    removed: Future[None] = field(default_factory=Future)
    """Done when old versions are removed as far as they can be, or need not be."""

    @classmethod
    def begin(cls, position: Position, shard: Shard) -> Self:
        # A future that is done by now gets its time here, so the capture is asked first.
        captured_ns = _ended(shard.captured)
        written_ns = {level: _ended(written) for level, written in shard.written.items()}
        return cls(position, shard, captured_ns, written_ns)


def _ended(future: Future[Any]) -> Future[int]:
    """The time at which a future is done, ns of `common.clock`, taken in the thread that ends it."""
    at_ns: Future[int] = Future()
    future.add_done_callback(lambda _: at_ns.set_result(clock()))
    return at_ns


def _alone(name: str, value: Any) -> Sequence[Any]:
    """`gather` of a run with one rank."""
    return [value]


class CheckpointManager:
    """One rank's strategy with its measurement. Every rank calls it at the same step."""

    def __init__(
        self,
        spec: PluginSpec,
        *,
        training_state: TrainingState,
        world: RankContext,
        format: str,
        identity: Identity,
        levels: Levels,
        recorder: Recorder,
        on_stage: Callable[[str], None],
        on_begin: Callable[[Position], None] = lambda position: None,
        barrier: Callable[[], None],
        gather: Callable[[str, Any], Sequence[Any]] = _alone,
        attempt: int = 1,
        interval_steps: int = 1,
    ) -> None:
        """Open the strategy registered under the spec's name.

        `identity` and `attempt`: each version records them, to say which training it is of.
        `levels`: has a store for every level that the spec writes to.
        `on_stage`: called at each stage, later if the save is in the background.
        `on_begin`: called at the start of a save, after the last one is finished. Both tell the failure injector.
        `barrier`: returns when every rank has called it.
        `gather`: exchanges values with all ranks, as `Link.gather` does.
        `interval_steps`: a checkpoint is due every so many steps of the run (0: never); the levels take turns at those.
        """
        entry = STRATEGIES[spec.name]
        self._blocking = entry.blocking
        self._recycles = entry.recycles
        self._world = world
        self._format = format
        self._identity = identity
        self._levels = levels
        self._stores = levels.stores
        self._local_spread = world.is_spread and bool(levels.local)
        self._every_nth = levels_of(spec)
        self._interval_steps = interval_steps
        self._slots: tuple[Slot, ...] = ()
        """Those of the save that has begun last, the nearest first."""
        self._recorder = recorder
        self._footprints = Footprints(recorder)
        self._on_stage = on_stage
        self._on_begin = on_begin
        self._barrier = barrier
        self._gather = gather
        self._attempt = attempt
        self._pending: PendingSave | None = None
        # One thread for all saves: training would wait while another one starts.
        self._behind: SimpleQueue[Callable[[], None] | None] = SimpleQueue()
        self._worker = threading.Thread(target=_work, args=(self._behind,), daemon=True)
        self._worker.start()
        weakref.finalize(self, self._behind.put, None)  # a recovery leaves it without `close`
        context = StrategyContext(
            training_state=training_state,
            world=world,
            format=format,
            options=spec.chosen(entry.options),
            on_stage=on_stage,
        )
        self._strategy: Strategy = load(entry.location)(context)

    @property
    def hook(self) -> Callable[[], None] | None:
        """A function that every step must call between gradients and update. None: the strategy does not need it."""
        overridden = type(self._strategy).before_update is not Strategy.before_update
        return self._before_update if overridden else None

    def ready(self) -> None:
        """Let the strategy and the stores prepare for their saves. Call it when the framework is built."""
        for level in self._every_nth:
            self._stores[level].ready()
        self._strategy.ready()

    def sync_trace(self) -> None:
        """Put the trace on stable storage, where the next save blocks. Call it on every rank, outside of all clocks.

        A restart from the version needs the trace up to it. A save in the background does this itself, before its commit.
        """
        if self._blocking:
            self._recorder.sync()
            # Else the save would wait for the slowest of these syncs.
            self._wait_for_ranks("before a checkpoint")

    def save(self, position: Position, *, everywhere: bool = False) -> None:
        """Save, write the cost for this rank into its trace, and return when training may go on.

        The version goes to those levels whose turn it is, or `everywhere`: to all of them.
        Raises CheckpointError if this checkpoint or the one before cannot be written, whatever error the format's
        library raised. Raises LaunchError if another rank died during the save.
        """
        self._wait_and_record("save")
        start_ns = clock()
        levels = [*self._every_nth] if everywhere else self._levels_due(position.step)
        pending = self._begin(position, levels)
        end_ns = clock()
        self._recorder.write(
            Save(step=position.step, epoch=position.epoch, start_ns=start_ns, end_ns=end_ns)
        )
        self._end_blocking(pending)

    def save_to_other_levels(self, position: Position) -> None:
        """Save to the levels that the last save, which must be of this step, has left out.

        For a run that is told to stop: it may be continued on other nodes. This save is not timed. Raises the same errors as `save`.
        """
        due = self._levels_due(position.step)
        levels = [level for level in self._every_nth if level not in due]
        if levels:
            self._wait_and_record("end")
            self._end_blocking(self._begin(position, levels))

    def _end_blocking(self, pending: PendingSave) -> None:
        if self._blocking:
            self._record_parts(pending, pending.finished.result())
            self._retain(pending)

    def _levels_due(self, step: int) -> list[str]:
        """The levels whose turn it is. Only the step decides, so that all attempts at a run agree.

        A save that is not due, as where the run is told to stop, counts with the due one before.
        """
        number = step // self._interval_steps if self._interval_steps else step
        return [level for level, n in self._every_nth.items() if number % n == 0]

    def settle(self) -> None:
        """Return when the last save, and the removal after it, are finished on this rank. Raises the same errors as `save`."""
        self._wait_and_record("end")

    def versions(self) -> Iterator[tuple[str, Version]]:
        """Every version that is still there, with its level: the nearest level first, and there the oldest version.

        Of a local tier of several nodes it is the newest one alone. Go through it on every rank, between `settle` and
        `close`, and use each version before the next one comes.

        Raises CheckpointError if one is damaged, or LaunchError if another rank died.
        """
        self._wait_for_ranks(COMPARING)  # the rank that commits has settled, too
        for level, store in self._stores.items():
            if level == SHARED or not self._world.is_spread:
                yield from ((level, version) for version in store.versions())
                continue
            meet = partial(self._wait_for_ranks, COMPARING)
            found = newest_of_all_nodes(
                level, self._levels, self._world, self._gather, meet=meet, identity=self._identity
            )
            yield from ((level, version) for version in found)

    def load(self, version: Version) -> None:
        """Load the state of a version, checked before, into the framework. Raises CheckpointError."""
        if version.format != self._format:
            raise CheckpointError(
                f"{version.folder} was written as {version.format}, this run writes {self._format}; remove the folder to start over"
            )
        with self._levels.fetched(version, self._world.rank) as folder:
            self._strategy.load(version, folder)

    def close(self, *, complete: bool = False) -> None:
        """Finish the last save and close the strategy. Raises the same errors as `save`.

        `complete` says that training is: local tiers of several nodes, which the launcher does not reach, are then removed.
        """
        self.settle()
        self._strategy.close()
        self._behind.put(None)
        self._worker.join()
        if complete and self._local_spread:
            self._wait_for_ranks("at the end of training")  # until then a restart may need them
            if self._world.local_rank == 0:
                self._levels.forget_local()

    def _begin(self, position: Position, levels: Sequence[str]) -> PendingSave:
        """Begin the save to these levels. For a blocking strategy also finish it."""
        self._slots = tuple(Slot.of(self._stores[level], level, position.step) for level in levels)
        with self._recording_failure(position):
            self._on_begin(position)
            pending = PendingSave.begin(position, self._strategy.save(position, self._slots))
            if self.hook is None:
                pending.shard.captured.result()
        if self._blocking:
            when = f"in the checkpoint of step {position.step}"
            pending.finished.set_result(
                self._finish(pending, meet=lambda: self._wait_for_ranks(when))
            )
        else:
            self._behind.put(partial(self._finish_behind, pending))
        self._pending = pending
        return pending

    def _finish(self, pending: PendingSave, *, meet: Callable[[], None]) -> list[Durable]:
        """Put this rank's shards on stable storage, level by level. The rank that commits then makes a version of each."""
        finished = []
        for slot in self._slots:
            with self._recording_failure(pending.position, slot.level):
                files = pending.shard.written[slot.level].result()
                finished.append(self._finish_level(slot, pending.position, files, meet))
        return [durable for durable in finished if durable is not None]

    def _writers_of(self, level: str) -> Sequence[int]:
        """The ranks that write one version of this level together. The first of them commits it."""
        if level != SHARED and self._world.is_spread:
            return self._world.ranks_here
        return range(self._world.world_size)

    def _commits(self, level: str) -> bool:
        return self._world.rank == self._writers_of(level)[0]

    def _finish_level(
        self, slot: Slot, position: Position, files: tuple[File, ...], meet: Callable[[], None]
    ) -> Durable | None:
        level, staging = slot.level, slot.place()
        store = self._stores[level]
        marks = store.marks(staging)
        if not self._commits(level):
            store.sync_shard(staging, files)
            mark_written(marks, self._world.rank, files)
            meet()  # wait until all shards are written
            meet()  # wait until the version is committed
            return None
        meet()
        others = gather_marked(
            marks,
            self._writers_of(level)[1:],
            are_written=self._blocking,
            staging=staging if isinstance(staging, Path) else None,
        )
        durable = self._commit(level, staging, position, [*files, *others])
        meet()
        return durable

    def _commit(self, level: str, staging: Place, position: Position, files: list[File]) -> Durable:
        store = self._stores[level]
        synced = store.sync(
            staging,
            files,
            identity=self._identity,
            position=position,
            world_size=self._world.world_size,
            format=self._format,
            attempt=self._attempt,
        )
        checked_ns = clock()
        self._on_stage(SYNCED)
        store.commit(staging, synced.version)
        return Durable(
            step=position.step,
            level=level,
            synced_ns=synced.synced_ns,
            checked_ns=checked_ns,
            committed_ns=clock(),
            files=files,
        )

    def _finish_behind(self, pending: PendingSave) -> None:
        step, last = pending.position.step, [*pending.shard.written.values()][-1]
        looked = self._footprints.look_after(last, "written", step)
        try:
            with self._recording_failure(pending.position):
                self._recorder.sync()  # while the strategy still writes: see `sync_trace`
            durable = self._finish(pending, meet=_not_at_all)
            with self._recording_failure(pending.position):
                self._record_parts(pending, durable)
                looked.result()
                self._footprints.sample("durable", step)
        except Exception as error:  # noqa: BLE001 (the training thread raises it)
            pending.finished.set_exception(error)
        else:
            pending.finished.set_result(durable)
            self._retain(pending)

    def _retain(self, pending: PendingSave) -> None:
        """Remove old versions behind training, if there are any and this rank commits. Call it when the save is finished."""
        own = [level for level in pending.shard.written if self._commits(level)]
        if any(self._stores[level].has_surplus() for level in own):
            self._behind.put(partial(self._retain_behind, pending, own))
        else:
            pending.removed.set_result(None)

    def _retain_behind(self, pending: PendingSave, levels: Sequence[str]) -> None:
        try:
            self._on_stage(REMOVING)
            start_ns = clock()
            for level in levels:
                self._stores[level].retain(recycle=self._recycles)
            end_ns = clock()
            self._recorder.write(
                Retained(step=pending.position.step, start_ns=start_ns, end_ns=end_ns)
            )
        except Exception as error:  # noqa: BLE001 (the training thread raises it)
            pending.removed.set_exception(error)
        else:
            pending.removed.set_result(None)

    def _record_parts(self, pending: PendingSave, durable: list[Durable]) -> None:
        step = pending.position.step
        self._recorder.write(Captured(step=step, at_ns=pending.captured_ns.result()))
        for level, written in pending.shard.written.items():
            at_ns = pending.written_ns[level].result()
            files = list(written.result())
            self._recorder.write(Written(step=step, level=level, at_ns=at_ns, files=files))
        for each in durable:
            self._recorder.write(each)

    def _wait_and_record(self, why: Literal["save", "end"]) -> None:
        pending = self._pending
        if pending is None:
            return
        saved, removed = pending.finished.done(), pending.removed.done()
        start_ns = clock()
        self._await_end(pending)
        if why == "save" and self._local_spread:
            # Else this node could commit the next version, and the one after, while another has not committed this one.
            self._wait_for_ranks(
                f"before the checkpoint after that of step {pending.position.step}"
            )
            saved = False
        if not saved:
            self._hold(pending, why, start_ns)
        elif not removed:
            self._hold(pending, "removal" if why == "save" else why, start_ns)

    def _await_end(self, pending: PendingSave) -> None:
        """Wait until the save and the removal after it are finished, and raise the error of the save if it has failed."""
        pending.finished.result()
        pending.removed.result()

    def _before_update(self) -> None:
        pending = self._pending
        if pending is None or pending.shard.captured.done():
            return
        start_ns = clock()
        self._strategy.before_update()
        self._hold(pending, "update", start_ns)

    def _hold(
        self, pending: PendingSave, why: Literal["update", "save", "removal", "end"], start_ns: int
    ) -> None:
        end_ns = clock()
        self._recorder.write(
            Hold(step=pending.position.step, why=why, start_ns=start_ns, end_ns=end_ns)
        )

    def _wait_for_ranks(self, when: str) -> None:
        try:
            self._barrier()
        except Exception as error:
            raise LaunchError(
                f"another rank died {when}, and its log says why ({type(error).__name__}: {error})"
            ) from error

    @contextmanager
    def _recording_failure(self, position: Position, level: str | None = None) -> Iterator[None]:
        """Record an error raised in the block and raise it as CheckpointError. A LaunchError (another rank died) passes unchanged."""
        try:
            yield
        except LaunchError:
            raise
        except Exception as error:
            said = f"{type(error).__name__}: {error}"
            self._recorder.write(SaveFailed(step=position.step, at_ns=clock(), error=said))
            levels = [slot.level for slot in self._slots]
            folders = {each: self._stores[each].folder for each in levels}
            raise failed_save(position.step, error, level, folders) from error


def _work(tasks: SimpleQueue[Callable[[], None] | None]) -> None:
    """Do one after the other, until None comes."""
    while (task := tasks.get()) is not None:
        task()
        del task  # else it would keep the strategy and its memory until the next one comes


def _not_at_all() -> None:
    """The `meet` of background saves does nothing: the rank that commits waits for the markers of the others instead."""
