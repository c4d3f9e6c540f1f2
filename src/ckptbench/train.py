"""One rank: the training loop, the same for every framework. Run as `python -m ckptbench.train PLAN`."""

from __future__ import annotations

import argparse
import dataclasses
import logging
import os
import sys
import time
from importlib import metadata
from pathlib import Path
from typing import NoReturn

import numpy as np
from numpy.typing import NDArray

from ckptbench import data
from ckptbench.architectures import ARCHITECTURES, Network
from ckptbench.cells import NO_FORMAT
from ckptbench.checkpoints.native import NativeStrategy
from ckptbench.checkpoints.store import CheckpointStore, Position, read_version
from ckptbench.digest import digests
from ckptbench.errors import CkptbenchError
from ckptbench.frameworks import FRAMEWORKS
from ckptbench.frameworks.base import Framework, Place, Sgd
from ckptbench.link import Link
from ckptbench.manifest import trace_path
from ckptbench.place import (
    LAUNCHED,
    LOGS,
    die_with_parent,
    ignore_stop_signals,
    read_seat,
    take_place,
)
from ckptbench.plan import Plan
from ckptbench.recorder import Recorder, boot_id, clock

log = logging.getLogger("ckptbench.train")

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
        recorder.phase("data", started_ns, clock())
        store = CheckpointStore(plan.checkpoint_folder, keep=plan.training.keep_during_run)
        self._strategy = NativeStrategy(framework, place, store, checkpoint_format(plan))

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
        started_ns = clock()
        version = read_version(self._plan.resume_from)
        self._strategy.load(version)
        self._recorder.phase("load", started_ns, clock())
        log.info("goes on from %s", version.folder)
        return version.position

    def train(self, position: Position) -> None:
        """Train to the end. Raises Stopped, after a checkpoint, where the launcher asks to stop."""
        self._began = position.step
        for epoch in range(position.epoch, self._plan.cell.epochs):
            first = position.step_in_epoch if epoch == position.epoch else 0
            if first < self._steps_per_epoch:  # else the checkpoint was this epoch's last act
                self._train_epoch(epoch, first)
            self._evaluate(epoch)
        self._recorder.event(
            "digest",
            step=self._plan.cell.epochs * self._steps_per_epoch,
            tensors=digests(self._framework.tensors()),
        )

    def _train_epoch(self, epoch: int, first: int) -> None:
        """The steps of an epoch from its step `first` on, and the checkpoints that are due after them."""
        order = data.epoch_order(self._plan.seed, epoch, len(self._dataset.train_labels))
        self._framework.barrier()
        epoch_start_ns = clock()
        for step_in_epoch in range(first, self._steps_per_epoch):
            steps_done = epoch * self._steps_per_epoch + step_in_epoch + 1
            if not self._may_enter(steps_done):
                self._stop(Position(step=steps_done - 1, epoch=epoch, step_in_epoch=step_in_epoch))
            self._step(order, step_in_epoch, steps_done - 1)
            if self._plan.cell.interval.due(
                steps_done=steps_done, steps_per_epoch=self._steps_per_epoch
            ):
                self._checkpoint(
                    Position(step=steps_done, epoch=epoch, step_in_epoch=step_in_epoch + 1)
                )
        epoch_end_ns = clock()
        self._record_epoch(epoch, epoch_start_ns, epoch_end_ns, self._steps_per_epoch - first)

    def _step(self, order: NDArray[np.int64], step_in_epoch: int, index: int) -> None:
        start_ns = clock()
        indices = data.rank_batch(
            order,
            step_in_epoch,
            self._place.rank,
            self._place.world_size,
            self._plan.cell.batch_size,
        )
        loss = self._framework.step(*self._dataset.batch("train", indices))
        self._recorder.step(index, start_ns, clock(), loss)

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


def run_rank(plan: Plan, place: Place, link: Link, started_ns: int) -> None:
    """Train this rank and write its trace. `started_ns` is when this process began to run Python."""
    recorder = Recorder(trace_path(plan.run_folder, place.rank))
    recorder.phase("launch", launched_ns(os.environ[LAUNCHED], started_ns), started_ns)
    met_ns = clock()
    recorder.phase("meet", started_ns, met_ns)
    framework_class = FRAMEWORKS[plan.cell.framework].load()
    imported_ns = clock()
    recorder.phase("import", met_ns, imported_ns)
    framework = framework_class.join(place, seed=plan.seed, deterministic=plan.cell.deterministic)
    recorder.phase("join", imported_ns, clock())
    try:
        _record_start(recorder, plan, place, framework)
        trainer = Trainer(plan, place, link, recorder, framework)
        trainer.build()
        trainer.train(trainer.start())
        framework.close()
    except Stopped as stopped:
        log.info("%s", stopped)
        framework.close()
        link.tell_stopped(stopped.steps_done)
        recorder.close()
        return
    except BaseException as error:
        log.error("rank %d died", place.rank, exc_info=not isinstance(error, CkptbenchError))
        log.error("%s: %s", type(error).__name__, error)
        framework.abort()  # or the other ranks would wait for this one for ever
        raise
    recorder.event("end", monotonic_ns=clock())
    recorder.close()


def launched_ns(told: str, started_ns: int) -> int:
    """When the launcher started the ranks, on this host's monotonic clock.

    Another host's is another clock: between hosts the wall clocks, which clusters keep in step, tell the distance.
    """
    boot, monotonic_ns, unix_ns = told.split()
    if boot == boot_id():
        return int(monotonic_ns)
    return started_ns - max(0, time.time_ns() - (clock() - started_ns) - int(unix_ns))


def _record_start(recorder: Recorder, plan: Plan, place: Place, framework: Framework) -> None:
    recorder.event(
        "start",
        attempt=plan.attempt,
        rank=place.rank,
        world_size=place.world_size,
        host=place.node,
        pid=os.getpid(),
        device=framework.device(),
        monotonic_ns=clock(),
        unix_ns=time.time_ns(),
        versions=_versions(),
    )


def _versions() -> dict[str, str]:
    """Every distribution of this environment with its version: the lock as it was installed."""
    return {
        distribution.metadata["Name"]: distribution.version
        for distribution in metadata.distributions()
    }


def main(arguments: list[str] | None = None) -> int:
    started_ns = clock()
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("plan", type=Path, help="plan.json of the run")
    plan = Plan.read(parser.parse_args(arguments).plan)
    seat, _ = read_seat()
    die_with_parent()
    ignore_stop_signals()
    log_to(Path(os.environ[LOGS]) / f"rank-{seat.rank}.log")
    logging.basicConfig(format=f"%(asctime)s rank {seat.rank}: %(message)s", stream=sys.stderr)
    # Not the root's level: frameworks have much to say on theirs, and Chainer's imports reset it.
    logging.getLogger("ckptbench").setLevel(logging.INFO)
    try:
        place, link = take_place(accelerator=plan.cell.accelerator)
    except CkptbenchError as error:
        log.error("%s: %s", type(error).__name__, error)
        return 1
    try:
        run_rank(plan, place, link, started_ns)
    except CkptbenchError:
        return 1  # the log has its one line
    link.close()
    return 0


def log_to(path: Path) -> None:
    """Send all that this process prints, native libraries included, to its own log."""
    descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o644)
    os.dup2(descriptor, sys.stdout.fileno())
    os.dup2(descriptor, sys.stderr.fileno())
    os.close(descriptor)


if __name__ == "__main__":
    sys.exit(main())
