"""The training loop of one rank, the same for every framework."""

from __future__ import annotations

import logging
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import NoReturn

from ckptbench.checkpointing.levels import Levels, open_levels
from ckptbench.checkpointing.manager import CheckpointManager
from ckptbench.checkpointing.version import Version, read_version
from ckptbench.common.clock import clock
from ckptbench.common.errors import LaunchError
from ckptbench.common.objects import place_of
from ckptbench.failures.injector_client import InjectorClient
from ckptbench.failures.recovery.contract import RankRecovery, Regrouped
from ckptbench.frameworks.contract import AdamW, Framework, Optimizer, Sgd, TrainSpec
from ckptbench.inputs.datasets.dataset import Dataset
from ckptbench.inputs.datasets.order import BatchSlice, Reader, batch_slices, evaluation_shard
from ckptbench.matrix.cell import Cell
from ckptbench.matrix.networks.models import network_of
from ckptbench.matrix.registry import RECOVERIES
from ckptbench.matrix.training import Training, steps_per_epoch
from ckptbench.run.control.link import Link
from ckptbench.run.control.ranks import RankContext, world_among
from ckptbench.run.events import Epoch, Membership, Pause, Phase, Regroup, Stop
from ckptbench.run.footprints import Footprints, forget_peak
from ckptbench.run.layout import final_path
from ckptbench.run.plan import Plan
from ckptbench.run.position import Position
from ckptbench.run.recorder import Recorder
from ckptbench.training.ablation import Ablation
from ckptbench.training.digest import StateDigester
from ckptbench.training.evaluation import evaluate, predict_as_often
from ckptbench.training.restore import evict, timed_load
from ckptbench.training.state import checkpoint_format, state_of

log = logging.getLogger(__name__)

BEGINNING = Position(step=0, epoch=0, step_in_epoch=0)


class Stopped(Exception):  # noqa: N818 (nothing went wrong)
    """All ranks have stopped after the same step, as the launcher asked."""

    def __init__(self, steps_done: int) -> None:
        super().__init__(f"stopped after step {steps_done}")
        self.steps_done = steps_done


class Joined(Exception):  # noqa: N818 (nothing went wrong)
    """New ranks have joined between two steps."""

    def __init__(self, regrouped: Regrouped) -> None:
        super().__init__("newcomers have joined")
        self.regrouped = regrouped


class Trainer:
    """Trains one rank of a run from its first step, or from a checkpoint, to its last."""

    def __init__(
        self,
        plan: Plan,
        world: RankContext,
        link: Link,
        recorder: Recorder,
        framework: Framework,
        *,
        injector: InjectorClient,
        recovery: RankRecovery,
    ) -> None:
        self._plan = plan
        self._launched_world = world
        """The place in which this rank came up, when all ranks of the run were there."""
        self._world = world
        self._link = link
        self._recovery = recovery
        self._may_enter = link.may_enter
        self._recorder = recorder
        self._framework = framework
        self._injector = injector
        self._began = 0
        self._saved: int | None = None
        # A rank that comes again takes the state from the others. The version may be gone by now.
        loads = plan.resume_from is not None and not link.is_replacement
        self._version = read_version(plan.resume_from) if loads and plan.resume_from else None
        started_ns = clock()
        self._dataset = Dataset.open(plan.dataset_folder)
        self._steps_per_epoch = steps_per_epoch(
            len(self._dataset.train_labels),
            world.world_size,
            plan.cell.batch_size,
            plan.training.steps_per_epoch,
        )
        self._reader = Reader(
            self._dataset,
            seed=plan.seed,
            batch_slice=self._batch_slices(range(world.world_size))[world.rank],
            global_batch=world.world_size * plan.cell.batch_size,
            steps_per_epoch=self._steps_per_epoch,
        )
        recorder.write(Phase(name="data", start_ns=started_ns, end_ns=clock()))
        self._footprints = Footprints(recorder)
        self._digester = StateDigester(framework, recorder, proof=bool(plan.training.proof))
        self._levels = self._open_levels()
        self._manager = self._open_manager()
        framework.before_update = self._manager.hook
        self._reached = BEGINNING
        self._unrecorded: tuple[int, int, int] | None = None
        """The epoch that is not recorded yet: its number, when this rank began it, and this rank's first step in it."""

    def _open_levels(self) -> Levels:
        """The levels of storage. A node's own ones lose the versions of later steps, which training writes anew."""
        world = self._world
        levels = open_levels(self._plan, node=world.node if world.is_spread else None)
        if world.local_rank == 0:
            if world.is_spread and not self._link.is_replacement:
                levels.begin_local(self._version.position.step if self._version else 0)
            else:
                levels.make()  # a restart may find them lost
        return levels

    def _open_manager(self) -> CheckpointManager:
        return CheckpointManager(
            self._plan.cell.strategy,
            training_state=self._framework,
            world=self._world,
            format=checkpoint_format(self._plan),
            identity=self._plan.identity,
            levels=self._levels,
            recorder=self._recorder,
            on_stage=self._injector.at_stage,
            on_begin=lambda position: self._injector.report_save(position.step),
            barrier=self._recovery.barrier,
            gather=self._link.gather,
            attempt=self._plan.attempt,
            interval_steps=self._plan.cell.interval.steps(self._steps_per_epoch),
        )

    def _batch_slices(self, ranks: Sequence[int]) -> list[BatchSlice]:
        """What each of these ranks reads of every global batch."""
        kept = self._recovery.options.get("batch") != "shrunk"
        assignments = self._launched_world.world_size
        return batch_slices(ranks, assignments, self._plan.cell.batch_size, kept=kept)

    def build(self) -> None:
        started_ns = clock()
        network = network_of(
            self._plan.cell.model, self._dataset.sample_shape, self._dataset.classes
        )
        cell = self._plan.cell
        self._framework.build(
            TrainSpec(
                network,
                dict(network.initial_weights(self._plan.seed)),
                _optimizer(cell, self._plan.training),
                cell.precision,
                self._plan.training.accumulation,
            )
        )
        self._manager.ready()
        self._recorder.write(Phase(name="build", start_ns=started_ns, end_ns=clock()))
        # Of a rank that comes again the trace has it. Where ranks hold shards the others would have to gather.
        if not self._link.is_replacement:
            self._recorder.write(state_of(network, self._framework))

    def start(self) -> Position:
        """The position at which training begins. Loads the checkpoint to go on from, if there is one."""
        version = self._version
        if version is None:
            return BEGINNING
        if self._plan.cell.cache == "cold":
            is_first = self._world.local_rank == 0
            evicted = evict(version, first_of_node=is_first, barrier=self._recovery.barrier)
            self._recorder.write(evicted)
        ablation = Ablation(
            self._plan.cell.omit,
            self._framework,
            rank=self._world.rank,
            exchange=self._plan.run_folder,
        )
        self._recorder.write(timed_load(self._manager, version, self._world.rank))
        ablation.apply()
        self._began = version.position.step
        if self._plan.cell.omit == "position":
            self._reader.forgotten = version.position.step
        if self._plan.cell.is_struck:
            self._see("loaded", version.position)
        log.info("goes on from %s", version.folder)
        return version.position

    def train(self, position: Position) -> None:
        """Train to the end. Raises Stopped, after a checkpoint, if the launcher asks to stop.

        A rank that comes in place of a lost one first joins those that train. When a step fails or new ranks join, the run's
        recovery decides whether this rank goes on, and from where.
        """
        self._reached = position
        regrouped = self._recovery.join(position)
        while True:
            try:
                if regrouped is not None:
                    self._go_on(regrouped)
                self._train_from(self._reached)
                self._recovery.finish()
                return
            except Stopped:
                raise
            except Joined as joined:
                regrouped = joined.regrouped
            except Exception as error:  # noqa: BLE001 (regroup raises it again unless a peer's death has caused it)
                if RECOVERIES[self._plan.cell.recovery.name].keeps_survivors:
                    self._injector.recovering()
                regrouped = self._recovery.regroup(error, self._reached)

    def settle(self) -> None:
        """Wait until the strategy has written its last checkpoint. Raises CheckpointError or LaunchError as a save does."""
        self._manager.settle()

    def close(self) -> None:
        """End the strategy. A proof first loads every version that is left: is it the state of its step?"""
        if self._plan.training.proof:
            for level, version in self._manager.versions():
                self._manager.load(version)
                self._digester.see_version(version.position, level)
        self._manager.close(complete=True)
        self._footprints.sample("closed", self._reached.step)

    def _go_on(self, regrouped: Regrouped) -> None:
        """Continue after the agreed step, with the agreed ranks."""
        reached = self._reached
        self._saved = None  # the loss may have cut the last save short, on some ranks or on all
        self._recorder.write_steps(reached.epoch)
        version = self._newest() if regrouped.step is None else None
        step = regrouped.step if version is None else version.position.step
        assert step is not None
        if reached.step != step:
            self._reached = self._after(step)
        self._enter(regrouped, step)
        ready_ns, taken = regrouped.ready_ns, regrouped.bytes
        if version is not None:
            loaded = timed_load(self._manager, version, self._world.rank)
            ready_ns, taken = loaded.end_ns, loaded.bytes or 0
        self._recorder.write(
            Regroup(
                step=step,
                reached=reached.step,
                noticed_ns=regrouped.noticed_ns,
                agreed_ns=regrouped.agreed_ns,
                ready_ns=ready_ns,
                bytes=taken,
            )
        )
        self._recorder.sync()  # the launcher reads it, perhaps on another node
        log.info("goes on after step %d with ranks %s", step, list(regrouped.ranks))

    def _newest(self) -> Version:
        """The newest sound version, as the first rank finds it: the others must not look while it sets damaged ones aside.

        Raises LaunchError on all ranks if there is none.
        """
        found = self._levels.newest() if self._launched_world.rank == 0 else None
        folder, *_ = self._link.gather("version", found and str(found.folder))
        if folder is None:
            raise LaunchError("there is no sound version to go back to")
        return found or read_version(place_of(folder))

    def _enter(self, regrouped: Regrouped, step: int) -> None:
        """Take this rank's share of the work among the ranks that train from now on, after `step`."""
        ranks = regrouped.ranks
        self._world = world_among(self._launched_world, ranks)
        slices = self._batch_slices(ranks)
        self._reader.batch_slice = slices[self._world.rank]
        global_batch = self._launched_world.world_size * self._plan.cell.batch_size
        self._recovery.part_read = sum(each.samples for each in slices) / global_batch
        self._recorder.write(
            Membership(
                step=step,
                ranks=list(ranks),
                first=[each.first for each in slices],
                samples=[each.samples for each in slices],
                monotonic_ns=clock(),
            )
        )
        if self._world.rank == 0:
            self._levels.discard_partial()  # of a save that the loss has cut short
        self._recovery.barrier()
        self._manager = self._open_manager()
        assert self._manager.hook is None, (
            "survivors do not rebuild their frameworks: see the registry's RECOVERIES"
        )
        self._manager.ready()

    def _after(self, step: int) -> Position:
        """The position after this step of the run. After the last one of an epoch, the epoch's evaluation is still to come."""
        epoch, step_in_epoch = divmod(step, self._steps_per_epoch)
        if step and step_in_epoch == 0:
            return self._position(epoch - 1, self._steps_per_epoch)
        return self._position(epoch, step_in_epoch)

    def _train_from(self, position: Position) -> None:
        for epoch in range(position.epoch, self._plan.cell.epochs):
            first = position.step_in_epoch if epoch == position.epoch else 0
            # They are equal if the checkpoint was taken after the last step of this epoch, or if its save failed.
            if first < self._steps_per_epoch:
                self._train_epoch(epoch, first)
            self._record_epoch(epoch)
            self._see("epoch", self._position(epoch, self._steps_per_epoch))
            self._evaluate(epoch)
            # Not of the last epoch, which a loss after this would have evaluated again.
            if epoch + 1 < self._plan.cell.epochs:
                self._reached = self._position(epoch + 1, 0)
        end = self._position(self._plan.cell.epochs - 1, self._steps_per_epoch)
        self._digester.see_end(end, final_path(self._plan.run_folder, self._launched_world.rank))

    def _position(self, epoch: int, step_in_epoch: int) -> Position:
        step = epoch * self._steps_per_epoch + step_in_epoch
        return Position(step=step, epoch=epoch, step_in_epoch=step_in_epoch)

    def _see(self, when: str, position: Position) -> None:
        self._digester.see(when, position, self._reader.position(position.step))

    def _train_epoch(self, epoch: int, first: int) -> None:
        """Train an epoch from its step `first` on, and save the checkpoints that are due."""
        self._reader.prepare(epoch * self._steps_per_epoch + first)
        forget_peak()
        self._recovery.barrier()
        self._unrecorded = epoch, clock(), first
        for step_in_epoch in range(first, self._steps_per_epoch):
            before = self._position(epoch, step_in_epoch)
            if not self._may_enter(before.step + 1):
                self._stop(before)
            if (regrouped := self._recovery.admit(before)) is not None:
                raise Joined(regrouped)
            self._injector.report_step(before.step)
            self._step(before.step)
            if self._plan.cell.is_struck:
                # A failure would lose these steps. Writing here costs time, but a struck run is no timing of its steps.
                self._recorder.write_steps(epoch)
            after = self._reached = self._position(epoch, step_in_epoch + 1)
            if self._is_first_after_restart(before.step):
                self._see("stepped", after)
            if self._plan.cell.interval.due(
                steps_done=after.step, steps_per_epoch=self._steps_per_epoch
            ):
                self._checkpoint(after)

    def _step(self, index: int) -> None:
        start_ns = clock()
        loss = self._framework.step(*self._reader.batch(index))
        end_ns = clock()
        self._recorder.step(index, start_ns, end_ns, loss)
        if self._is_first_after_restart(index):
            self._recorder.write(Phase(name="first_step", start_ns=start_ns, end_ns=end_ns))

    def _is_first_after_restart(self, step: int) -> bool:
        return step == self._began and self._plan.resume_from is not None

    def _record_epoch(self, epoch: int) -> None:
        """Record the end of the epoch, if this rank was in it and has not done so."""
        if self._unrecorded is None or self._unrecorded[0] != epoch:
            return
        seconds = self._write_epoch(*self._unrecorded)
        steps = self._steps_per_epoch - self._unrecorded[2]
        self._unrecorded = None
        log.info(
            "epoch %d of %d: %d steps in %.2f s", epoch + 1, self._plan.cell.epochs, steps, seconds
        )
        self._footprints.sample("epoch", self._reached.step, self._framework.gpu_peak_bytes())

    def _write_epoch(self, epoch: int, start_ns: int, first: int) -> float:
        """Record the steps and the end of the epoch, and return its duration in s."""
        end_ns = clock()
        self._recorder.write_steps(epoch)
        samples = (self._steps_per_epoch - first) * self._reader.batch_slice.samples
        self._recorder.write(Epoch(epoch=epoch, start_ns=start_ns, end_ns=end_ns, samples=samples))
        return (end_ns - start_ns) / 1e9

    def _stop(self, position: Position) -> NoReturn:
        """Save at all levels what the last checkpoint does not already hold there, and raise Stopped."""
        self._recorder.write_steps(position.epoch)
        if position.step not in (self._began, self._saved):
            self._checkpoint(position, everywhere=True)
        elif position.step and not self._is_shared(position.step):
            self._manager.save_to_other_levels(position)
        self._recovery.finish()
        self._manager.close()
        self._recorder.write(Stop(step=position.step))
        raise Stopped(position.step)

    def _is_shared(self, step: int) -> bool:
        """Whether this attempt began at the step with a version of the level that every node reaches."""
        version = self._version
        if version is None or version.position.step != step:
            return False
        return bool(version.folder.parent == self._levels.shared.folder)

    def _checkpoint(self, position: Position, *, everywhere: bool = False) -> None:
        self._saved = position.step
        with self._pause(position):
            self._footprints.sample("before", position.step)
            self._record_progress(position)
            self._record_state(position)
            forget_peak()
            self._manager.sync_trace()
        self._manager.save(position, everywhere=everywhere)
        with self._pause(position):
            self._footprints.sample("saved", position.step)

    def _record_progress(self, position: Position) -> None:
        """Record what a restart from the next checkpoint would not do again: its steps, and the epoch that ends with them."""
        if position.step_in_epoch == self._steps_per_epoch and self._unrecorded is not None:
            self._write_epoch(*self._unrecorded)  # once more when the checkpoint is over
        else:
            self._recorder.write_steps(position.epoch)

    @contextmanager
    def _pause(self, position: Position) -> Iterator[None]:
        """Record a pause: its time counts neither as training nor as stall."""
        start_ns = clock()
        yield
        self._recorder.write(Pause(step=position.step, start_ns=start_ns, end_ns=clock()))

    def _record_state(self, position: Position) -> None:
        """Write the digest of a save, if this is a proof.

        Before the save, not after it: the extra time would let a slow background save finish and hide that it took tensors of
        a later step.
        """
        if self._plan.training.proof:
            self._see("saved", position)
            self._recovery.barrier()  # otherwise a save would wait for the digests of other ranks

    def _evaluate(self, epoch: int) -> None:
        """Evaluate this rank's shard of the test set. The analysis adds the shards up, so no rank waits for another."""
        ranks, limit = self._world.world_size, self._plan.training.test_samples
        shard, longest = (
            evaluation_shard(len(self._dataset.test_labels), rank, ranks, limit)
            for rank in (self._world.rank, ranks - 1)
        )
        if len(shard):
            self._recorder.write(evaluate(self._framework, self._dataset, shard, epoch))
        if self._framework.is_sharded:
            predict_as_often(self._framework, self._dataset, len(shard), len(longest))


def _optimizer(cell: Cell, training: Training) -> Optimizer:
    rates = {"learning_rate": training.learning_rate, "weight_decay": training.weight_decay}
    if cell.optimizer == "adamw":
        return AdamW(**rates)
    return Sgd(**rates, momentum=training.momentum)
