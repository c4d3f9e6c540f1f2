"""The training loop of one rank, the same for every framework."""

from __future__ import annotations

import dataclasses
import logging
from typing import NoReturn

import numpy as np
from numpy.typing import NDArray

from ckptbench import data, page_cache
from ckptbench.architectures import ARCHITECTURES, Network
from ckptbench.cells import NO_FORMAT
from ckptbench.checkpoints.native import NativeStrategy
from ckptbench.checkpoints.store import CheckpointStore
from ckptbench.checkpoints.version import Position, Version, read_version
from ckptbench.errors import CkptbenchError
from ckptbench.frameworks import FRAMEWORKS
from ckptbench.frameworks.base import Framework, Place, Sgd
from ckptbench.interruption import Interrupter, Kill, kills_of
from ckptbench.link import Link
from ckptbench.manifest import final_path
from ckptbench.plan import Plan
from ckptbench.proof import Witness
from ckptbench.recorder import Recorder, clock

log = logging.getLogger(__name__)

EVALUATION_BATCH = 64


class Stopped(Exception):  # noqa: N818 (nothing went wrong)
    """All ranks have stopped after the same step, as the launcher asked."""

    def __init__(self, steps_done: int) -> None:
        super().__init__(f"stopped after step {steps_done}")
        self.steps_done = steps_done


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
        self._dataset = data.Dataset.open(plan.dataset_folder)
        self._steps_per_epoch = data.steps_per_epoch(
            len(self._dataset.train_labels),
            place.world_size,
            plan.cell.batch_size,
            plan.training.steps_per_epoch,
        )
        self._reader = data.Reader(
            self._dataset,
            seed=plan.seed,
            rank=place.rank,
            world_size=place.world_size,
            batch_size=plan.cell.batch_size,
            steps_per_epoch=self._steps_per_epoch,
        )
        recorder.phase("data", started_ns, clock())
        self._interrupter = Interrupter(self._next_kill(), place.rank, recorder)
        self._witness = Witness(framework, recorder, proof=plan.training.proof)
        self._strategy = NativeStrategy(
            framework,
            place,
            CheckpointStore(plan.checkpoint_folder, keep=plan.training.keep_during_run),
            checkpoint_format(plan),
            at_stage=self._interrupter.at_stage,
        )

    def _next_kill(self) -> Kill | None:
        """What ends this attempt of a killed run; None where all its kills are behind it."""
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
        self._recorder.phase("build", started_ns, clock())
        self._recorder.event("state", **state_bytes(network, self._framework))

    def start(self) -> Position:
        """Where training begins: the beginning, or the checkpoint to go on from, which is loaded."""
        if self._plan.resume_from is None:
            return Position(step=0, epoch=0, step_in_epoch=0)
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
        self._recorder.phase("evict", started_ns, clock(), resident_bytes=left)

    def _load(self, version: Version) -> None:
        files = self._strategy.files_read(version, self._place.rank)
        fetched = page_cache.read_bytes()
        started_ns = clock()
        self._strategy.load(version, self._plan.cell.omit)
        ended_ns = clock()
        now = page_cache.read_bytes()
        self._recorder.phase(
            "load",
            started_ns,
            ended_ns,
            read_bytes=None if fetched is None or now is None else now - fetched,
            bytes=sum(path.stat().st_size for path in files),
        )

    def train(self, position: Position) -> None:
        """Train to the end. Raises Stopped, after a checkpoint, where the launcher asks to stop."""
        for epoch in range(position.epoch, self._plan.cell.epochs):
            first = position.step_in_epoch if epoch == position.epoch else 0
            if first < self._steps_per_epoch:  # else the checkpoint was this epoch's last act
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
        """The steps of an epoch from its step `first` on, and the checkpoints that are due after them."""
        self._reader.prepare(epoch * self._steps_per_epoch + first)
        self._framework.barrier()
        epoch_start_ns = clock()
        for step_in_epoch in range(first, self._steps_per_epoch):
            before = self._position(epoch, step_in_epoch)
            if not self._may_enter(before.step + 1):
                self._stop(before)
            self._step(before.step)
            after = self._position(epoch, step_in_epoch + 1)
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
            self._recorder.phase("first_step", start_ns, end_ns)

    def _is_first_after_restart(self, step: int) -> bool:
        return step == self._began and self._plan.resume_from is not None

    def _record_epoch(self, epoch: int, start_ns: int, end_ns: int, steps: int) -> None:
        self._recorder.write_steps(epoch)
        self._recorder.event(
            "epoch",
            epoch=epoch,
            start_ns=start_ns,
            end_ns=end_ns,
            samples=steps * self._plan.cell.batch_size,
        )
        seconds = (end_ns - start_ns) / 1e9
        log.info(
            "epoch %d of %d: %d steps in %.2f s", epoch + 1, self._plan.cell.epochs, steps, seconds
        )

    def _stop(self, position: Position) -> NoReturn:
        """Leave a checkpoint of all that was done, unless an earlier one holds it already."""
        self._recorder.write_steps(position.epoch)
        if position.step not in (self._began, self._saved):
            self._checkpoint(position)
        self._recorder.event("stop", step=position.step)
        raise Stopped(position.step)

    def _checkpoint(self, position: Position) -> None:
        self._saved = position.step
        start_ns = clock()
        times = self._strategy.save(position)
        end_ns = clock()
        self._recorder.event(
            "checkpoint",
            step=position.step,
            epoch=position.epoch,
            start_ns=start_ns,
            end_ns=end_ns,
            **(dataclasses.asdict(times) if times else {}),
        )
        if self._plan.cell.is_killed:
            # What a kill later in this epoch would take with it; the run is no timing anyway.
            self._recorder.write_steps(position.epoch)
            self._see("saved", position)

    def _evaluate(self, epoch: int) -> None:
        """This rank's shard of the test set; the analysis adds the shards up, so no rank waits for another."""
        shard = data.test_shard(
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
            self._recorder.event(
                "evaluation",
                epoch=epoch,
                start_ns=start_ns,
                end_ns=clock(),
                samples=len(shard),
                loss_sum=loss_sum,
                correct=correct,
            )


def cross_entropy_sum(logits: NDArray[np.float64], labels: NDArray[np.int64]) -> float:
    """Sum over samples of -log softmax(logits)[label]; logits (n, classes), labels (n,)."""
    shifted = logits - logits.max(axis=1, keepdims=True)
    log_sums = np.log(np.exp(shifted).sum(axis=1))
    return float((log_sums - shifted[np.arange(len(labels)), labels]).sum())


def state_bytes(network: Network, framework: Framework) -> dict[str, int]:
    """Bytes that a checkpoint must hold: `model`, `optimizer`, and `rest`, what is this rank's own.

    Raises CkptbenchError where the framework built another network than the one described.
    """
    tensors = framework.tensors()
    described = {
        f"model/{name}": shape
        for name, shape in {**network.parameters(), **network.buffers()}.items()
    }
    built = {name: array.shape for name, array in tensors.items() if name.startswith("model/")}
    if built != described:
        different = sorted(set(built.items()) ^ set(described.items()))
        raise CkptbenchError(f"{type(framework).__name__} built another network: {different[:4]}")
    model = sum(tensors[name].nbytes for name in built)
    return {
        "parameters": network.parameter_count,
        "model": model,
        "optimizer": sum(array.nbytes for array in tensors.values()) - model,
        "rest": sum(array.nbytes for array in framework.rank_state().values()),
    }


def checkpoint_format(plan: Plan) -> str:
    """What the run's checkpoints are written in; a baseline writes one when it is told to stop."""
    if plan.cell.format == NO_FORMAT:
        return FRAMEWORKS[plan.cell.framework].formats[0]
    return plan.cell.format
