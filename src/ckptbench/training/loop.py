"""The training loop of one rank, the same for every framework."""

from __future__ import annotations

import logging
from typing import NoReturn

import numpy as np

from ckptbench.checkpoints.store import CheckpointStore
from ckptbench.checkpoints.version import Version, read_version
from ckptbench.data.dataset import Dataset
from ckptbench.data.order import Reader, evaluation_shard, steps_per_epoch
from ckptbench.errors import CkptbenchError
from ckptbench.faults.injector import Interrupter
from ckptbench.faults.schedule import Kill, kills_of
from ckptbench.frameworks.contract import Framework, Sgd
from ckptbench.machine import page_cache
from ckptbench.machine.clock import clock
from ckptbench.networks.models import ARCHITECTURES
from ckptbench.proof.controls import Control
from ckptbench.proof.witness import Witness
from ckptbench.recovery.contract import Regrouped
from ckptbench.recovery.loading import load_rank_recovery
from ckptbench.runs.events import Epoch, Evaluation, Phase, Stop
from ckptbench.runs.layout import final_path
from ckptbench.runs.plan import Plan
from ckptbench.runs.position import Position
from ckptbench.runs.recorder import Recorder
from ckptbench.strategies.clocked import Clocked
from ckptbench.training.evaluation import EVALUATION_BATCH, cross_entropy_sum
from ckptbench.training.state import checkpoint_format, state_of
from ckptbench.world.link import Link
from ckptbench.world.seats import Place

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
        self, plan: Plan, place: Place, link: Link, recorder: Recorder, framework: Framework
    ) -> None:
        self._plan = plan
        self._place = place
        self._may_enter = link.may_enter
        self._recorder = recorder
        self._framework = framework
        self._began = 0
        self._saved: int | None = None
        started_ns = clock()
        self._dataset = Dataset.open(plan.dataset_folder)
        self._steps_per_epoch = steps_per_epoch(
            len(self._dataset.train_labels),
            place.world_size,
            plan.cell.batch_size,
            plan.training.steps_per_epoch,
        )
        self._reader = Reader(
            self._dataset,
            seed=plan.seed,
            rank=place.rank,
            world_size=place.world_size,
            batch_size=plan.cell.batch_size,
            steps_per_epoch=self._steps_per_epoch,
        )
        recorder.write(Phase(name="data", start_ns=started_ns, end_ns=clock()))
        self._interrupter = Interrupter(self._next_kill(), place.rank, recorder)
        self._witness = Witness(framework, recorder, proof=plan.training.proof)
        self._strategy = Clocked.open(
            plan.cell.strategy,
            subject=framework,
            place=place,
            format=checkpoint_format(plan),
            identity=plan.identity,
            store=CheckpointStore(plan.checkpoint_folder, keep=plan.training.keep_during_run),
            recorder=recorder,
            reach=self._interrupter.at_stage,
            begin=self._interrupter.before_save,
        )
        framework.before_update = self._strategy.hook
        self._recovery = load_rank_recovery(plan.cell.recovery.name)
        self._reached = BEGINNING

    def _next_kill(self) -> Kill | None:
        """The kill that ends this attempt. None: no kill is planned, or all have happened."""
        cell = self._plan.cell
        kills = kills_of(
            cell,
            seed=self._plan.seed,
            steps=cell.epochs * self._steps_per_epoch,
            steps_between=cell.interval.steps(self._steps_per_epoch),
        )
        return dict(enumerate(kills)).get(self._plan.kills)

    def build(self) -> None:
        started_ns = clock()
        network = ARCHITECTURES[self._plan.cell.model](
            self._dataset.image_shape, self._dataset.classes
        )
        training = self._plan.training
        self._framework.build(
            network,
            dict(network.initial_weights(self._plan.seed)),
            Sgd(
                learning_rate=training.learning_rate,
                momentum=training.momentum,
                weight_decay=training.weight_decay,
            ),
            self._plan.cell.batch_size,
        )
        self._recorder.write(Phase(name="build", start_ns=started_ns, end_ns=clock()))
        self._recorder.write(state_of(network, self._framework))

    def start(self) -> Position:
        """The position at which training begins. Loads the checkpoint to go on from, if there is one."""
        if self._plan.resume_from is None:
            return BEGINNING
        version = read_version(self._plan.resume_from)
        if self._plan.cell.cache == "cold":
            self._evict(version)
        self._load(version)
        self._began = version.position.step
        if self._plan.cell.omit == "position":
            self._reader.forgotten = version.position.step
        if self._plan.cell.is_killed:
            self._see("loaded", version.position)
        log.info("goes on from %s", version.folder)
        return version.position

    def _evict(self, version: Version) -> None:
        """One rank of every node drops the checkpoint from the node's page cache, while no other reads it."""
        files = [version.folder / name for name in version.files]
        started_ns = clock()
        if self._place.local_rank == 0:
            page_cache.evict(files)
        self._framework.barrier()
        left = sum(page_cache.resident_bytes(path) for path in files)
        self._recorder.write(
            Phase(name="evict", start_ns=started_ns, end_ns=clock(), resident_bytes=left)
        )

    def _load(self, version: Version) -> None:
        """Load the version and record the time.

        A cell may ask that its restarts omit a part of the state. That part is removed afterwards, outside the clocks.
        """
        control = Control(
            self._plan.cell.omit,
            self._framework,
            rank=self._place.rank,
            exchange=self._plan.run_folder,
        )
        fetched = page_cache.read_bytes()
        started_ns = clock()
        self._strategy.load(version)
        ended_ns = clock()
        now = page_cache.read_bytes()
        self._recorder.write(
            Phase(
                name="load",
                start_ns=started_ns,
                end_ns=ended_ns,
                read_bytes=None if fetched is None or now is None else now - fetched,
                bytes=sum(path.stat().st_size for path in version.read_by(self._place.rank)),
            )
        )
        control.apply()

    def train(self, position: Position) -> None:
        """Train to the end. Raises Stopped, after a checkpoint, if the launcher asks to stop.

        When a step fails or new ranks join, the run's recovery decides whether this rank goes on, and from where.
        """
        while True:
            self._reached = position
            try:
                self._train_from(position)
                return
            except (Stopped, CkptbenchError):
                raise
            except Joined as joined:
                regrouped = joined.regrouped
            except Exception as error:  # noqa: BLE001 (regroup raises it again unless a peer's death has caused it)
                regrouped = self._recovery.regroup(error, self._reached)
            position = self._go_on(regrouped)

    def close(self) -> None:
        """Wait until the strategy has written its last checkpoint. Raises CheckpointError or LaunchError as a save does."""
        self._strategy.close()

    def _go_on(self, regrouped: Regrouped) -> Position:
        self._recorder.write_steps(self._reached.epoch)
        if regrouped.version is not None:
            self._strategy.load(regrouped.version)
        log.info("regrouped: goes on after step %d", regrouped.position.step)
        return regrouped.position

    def _train_from(self, position: Position) -> None:
        for epoch in range(position.epoch, self._plan.cell.epochs):
            first = position.step_in_epoch if epoch == position.epoch else 0
            # They are equal if the checkpoint was taken after the last step of this epoch.
            if first < self._steps_per_epoch:
                self._train_epoch(epoch, first)
            self._see("epoch", self._position(epoch, self._steps_per_epoch))
            self._evaluate(epoch)
        end = self._position(self._plan.cell.epochs - 1, self._steps_per_epoch)
        self._witness.see_end(end, final_path(self._plan.run_folder, self._place.rank))

    def _position(self, epoch: int, step_in_epoch: int) -> Position:
        step = epoch * self._steps_per_epoch + step_in_epoch
        return Position(step=step, epoch=epoch, step_in_epoch=step_in_epoch)

    def _see(self, when: str, position: Position) -> None:
        self._witness.see(when, position, self._reader.position(position.step))

    def _train_epoch(self, epoch: int, first: int) -> None:
        """Train an epoch from its step `first` on, and save the checkpoints that are due."""
        self._reader.prepare(epoch * self._steps_per_epoch + first)
        self._framework.barrier()
        epoch_start_ns = clock()
        for step_in_epoch in range(first, self._steps_per_epoch):
            before = self._position(epoch, step_in_epoch)
            if not self._may_enter(before.step + 1):
                self._stop(before)
            if (regrouped := self._recovery.admit(before)) is not None:
                raise Joined(regrouped)
            self._step(before.step)
            after = self._reached = self._position(epoch, step_in_epoch + 1)
            if self._is_first_after_restart(before.step):
                self._see("stepped", after)
            self._interrupter.after_step(after)
            if self._plan.cell.interval.due(
                steps_done=after.step, steps_per_epoch=self._steps_per_epoch
            ):
                self._checkpoint(after)
        self._record_epoch(epoch, epoch_start_ns, clock(), self._steps_per_epoch - first)

    def _step(self, index: int) -> None:
        start_ns = clock()
        loss = self._framework.step(*self._reader.batch(index))
        end_ns = clock()
        self._recorder.step(index, start_ns, end_ns, loss)
        if self._is_first_after_restart(index):
            self._recorder.write(Phase(name="first_step", start_ns=start_ns, end_ns=end_ns))

    def _is_first_after_restart(self, step: int) -> bool:
        return step == self._began and self._plan.resume_from is not None

    def _record_epoch(self, epoch: int, start_ns: int, end_ns: int, steps: int) -> None:
        self._recorder.write_steps(epoch)
        samples = steps * self._plan.cell.batch_size
        self._recorder.write(Epoch(epoch=epoch, start_ns=start_ns, end_ns=end_ns, samples=samples))
        seconds = (end_ns - start_ns) / 1e9
        log.info(
            "epoch %d of %d: %d steps in %.2f s", epoch + 1, self._plan.cell.epochs, steps, seconds
        )

    def _stop(self, position: Position) -> NoReturn:
        """Save a checkpoint, unless the last one already holds this step, and raise Stopped."""
        self._recorder.write_steps(position.epoch)
        if position.step not in (self._began, self._saved):
            self._checkpoint(position)
        self._strategy.close()
        self._recorder.write(Stop(step=position.step))
        raise Stopped(position.step)

    def _checkpoint(self, position: Position) -> None:
        self._saved = position.step
        self._strategy.save(position)
        if self._plan.cell.is_killed:
            # A kill later in this epoch would lose these steps. Writing here costs time, but a killed run is no timing.
            self._recorder.write_steps(position.epoch)
            self._see("saved", position)

    def _evaluate(self, epoch: int) -> None:
        """Evaluate this rank's shard of the test set. The analysis adds the shards up, so no rank waits for another."""
        shard = evaluation_shard(
            len(self._dataset.test_labels),
            self._place.rank,
            self._place.world_size,
            self._plan.training.test_samples,
        )
        start_ns = clock()
        loss_sum, correct = 0.0, 0
        for first in range(shard.start, shard.stop, EVALUATION_BATCH):
            indices = np.arange(first, min(first + EVALUATION_BATCH, shard.stop))
            images, labels = self._dataset.batch("test", indices)
            logits = self._framework.predict(images).astype(np.float64)
            loss_sum += cross_entropy_sum(logits, labels)
            correct += int((logits.argmax(axis=1) == labels).sum())
        if len(shard):
            self._recorder.write(
                Evaluation(
                    epoch=epoch,
                    start_ns=start_ns,
                    end_ns=clock(),
                    samples=len(shard),
                    loss_sum=loss_sum,
                    correct=correct,
                )
            )
