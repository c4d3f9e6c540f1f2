"""Checks that need cells and the config: is a run long enough, can a control be caught, is an archive there?"""

from __future__ import annotations

import os
from collections.abc import Iterable
from pathlib import Path

from ckptbench.data.dataset import DESCRIPTION
from ckptbench.data.order import steps_per_epoch
from ckptbench.data.sources import cifar10, digits
from ckptbench.errors import CkptbenchError, ConfigError, DataError
from ckptbench.faults.schedule import kills_of
from ckptbench.matrix.catalogue import NOTHING
from ckptbench.matrix.cell import Cell
from ckptbench.networks.layers import BatchNorm, Dropout
from ckptbench.networks.models import ARCHITECTURES
from ckptbench.study.config import StudyConfig, TrainingSection
from ckptbench.study.sources import FieldError

LAYERS = {"random": Dropout, "dropout": Dropout, "statistics": BatchNorm}
"""Parts of the state that matter only to a network with this layer."""
ANY_IMAGE, ANY_CLASSES = (32, 32, 3), 10


def check_omission(cell: Cell, training: TrainingSection) -> None:
    """Raises ConfigError where the control could not be caught: leaving the part out changes nothing, or the bits
    may part without it.
    """
    if cell.omit != NOTHING and not cell.deterministic:
        raise ConfigError(
            f"omit {cell.omit} needs deterministic: true: in the default mode the bits may part all the same"
        )
    if cell.omit == "momentum" and training.momentum == 0:
        raise ConfigError("training.momentum is 0: a restart without momentum shows nothing")
    layer = LAYERS.get(cell.omit)
    if layer is None:
        return
    network = ARCHITECTURES[cell.model](ANY_IMAGE, ANY_CLASSES)
    if not any(isinstance(each, layer) for each in network.flat()):
        raise ConfigError(
            f"{cell.model} has no {layer.__name__} layer: a restart without {cell.omit} shows nothing"
        )


def check_length(cell: Cell, config: StudyConfig) -> None:
    """Raises ConfigError where the run is surely too short: for one step, for its warm-up, or for its kills.

    Of a dataset whose size is not known here, `training.steps_per_epoch` says how many steps an epoch has at most. The
    run itself checks again what it finds.
    """
    training = config.training
    steps = _steps_per_epoch(cell, config)
    if steps is None:
        return
    if training.warmup_steps >= cell.epochs * steps:
        raise FieldError(
            ("training", "warmup_steps"),
            f"the run {cell.id} has {cell.epochs * steps} steps in all, and none is left to time: lower it, or "
            "train longer",
            training.warmup_steps,
        )
    try:
        kills_of(
            cell,
            seed=training.seed,
            steps=cell.epochs * steps,
            steps_between=cell.interval.steps(steps),
        )
    except CkptbenchError as error:
        raise ConfigError(f"the cell {cell.id} cannot be: {error}") from error


def _steps_per_epoch(cell: Cell, config: StudyConfig) -> int | None:
    limit, samples = config.training.steps_per_epoch, _train_samples(cell.dataset, config)
    if samples is None:
        return limit
    try:
        return steps_per_epoch(samples, cell.ranks, cell.batch_size, limit)
    except DataError as error:
        raise ConfigError(f"the cell {cell.id} cannot be: {error}") from error


def _train_samples(dataset: str, config: StudyConfig) -> int | None:
    """Size of the training set. None if it is not known before the dataset is made."""
    known = {
        "digits": digits.TRAIN_SAMPLES,
        "cifar10": cifar10.TRAIN_SAMPLES,
        "synthetic": config.datasets.synthetic.train_samples,
    }
    return known.get(dataset)


def check_archives(cells: Iterable[Cell], config: StudyConfig, datasets: Path) -> None:
    """Raises FieldError where a dataset must still be made in `datasets` and its archive cannot be read.

    A dataset that no cell names, or that is there already, needs no archive.
    """
    archive = config.datasets.cifar10.archive
    if (
        archive is None
        or all(cell.dataset != "cifar10" for cell in cells)
        or (datasets / "cifar10" / DESCRIPTION).exists()
    ):
        return
    if not Path(archive).is_file():
        fault = "there is no such file"
    elif not os.access(archive, os.R_OK):
        fault = "this user may not read the file"
    else:
        return
    raise FieldError(
        ("datasets", "cifar10", "archive"),
        f"{fault}: give the path of the official {cifar10.ARCHIVE}, or null to download it",
        archive,
    )
