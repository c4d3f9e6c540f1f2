"""Checks that need cells and the config: does the model take the images, is a run long enough, can a control be caught,
is an archive there?
"""

from __future__ import annotations

import functools
from collections.abc import Iterable
from pathlib import Path

from ckptbench.common.errors import ConfigError, DataError
from ckptbench.common.files import unreadable
from ckptbench.common.objects import place_of
from ckptbench.config.reading import FieldError
from ckptbench.config.study import StudyConfig
from ckptbench.inputs.datasets.dataset import DESCRIPTION
from ckptbench.inputs.datasets.sources.source import Source
from ckptbench.matrix.cell import Cell, offering
from ckptbench.matrix.networks.layers import BatchNorm, Dropout, Network, Shape
from ckptbench.matrix.networks.models import network_of
from ckptbench.matrix.registry import (
    ACCUMULATION,
    BEYOND,
    FRAMEWORKS,
    NATIVE,
    NOTHING,
    OBJECTS,
    STRATEGIES,
    STREAMED,
)
from ckptbench.matrix.training import steps_per_epoch
from ckptbench.run.schedule import kills_of

LAYERS = {"random": Dropout, "dropout": Dropout, "statistics": BatchNorm}
"""Parts of the state that matter only to a network with this layer."""
ANY_IMAGE = (224, 224, 3)
"""Images that every model of images takes."""


@functools.cache
def _network(model: str, input: Shape) -> Network:
    """The model for these inputs. The number of classes does not matter here."""
    return network_of(model, input, 2)


def check_dataset(cell: Cell, config: StudyConfig) -> None:
    """Raises ConfigError where the model does not take the images or tokens of the dataset."""
    try:
        _network(cell.model, dataset_of(cell, config).sample_shape or ANY_IMAGE)
    except DataError as error:
        raise ConfigError(f"the dataset {cell.dataset} does not fit: {error}") from error


def check_accumulation(cell: Cell, config: StudyConfig) -> None:
    """Raises ConfigError where the framework cannot split a batch, or the batch has no such parts."""
    parts = config.training.accumulation
    if parts == 1:
        return
    if ACCUMULATION not in FRAMEWORKS[cell.framework].offers:
        raise ConfigError(
            f"{cell.framework} does not have {BEYOND[ACCUMULATION]}: use it with {offering(ACCUMULATION)}"
        )
    if cell.batch_size % parts:
        raise ConfigError(
            f"training.accumulation is {parts}, and batch_size {cell.batch_size} is not a multiple of it"
        )


def check_objects(cell: Cell, config: StudyConfig) -> None:
    """Raises FieldError where checkpoints go to an object store, and the cell cannot write them there."""
    url = config.checkpoints.folder
    if cell.is_baseline or url is None or isinstance(place_of(url), Path):
        return
    if OBJECTS not in FRAMEWORKS[cell.framework].offers:
        fault = f"{cell.framework} does not write to an object store: use {offering(OBJECTS)}"
    elif not STRATEGIES[cell.strategy.name].as_objects:
        can = ", ".join(name for name, entry in STRATEGIES.items() if entry.as_objects)
        fault = f"the strategy {cell.strategy.name} does not write to an object store: use {can}"
    elif cell.strategy == NATIVE and cell.format not in STREAMED:
        fault = (
            f"the format {cell.format} needs a file: use {', '.join(STREAMED)} in an object store"
        )
    else:
        return
    raise FieldError(("checkpoints", "folder"), f"{fault}, or give a folder", url)


def check_victims(cell: Cell, config: StudyConfig) -> None:
    """Raises ConfigError where the cell names no list of failures, or a failure strikes a rank that the run does not have."""
    if cell.failure_list not in (None, *config.failures):
        lists = ", ".join(config.failures) or "it has none"
        raise ConfigError(
            f"listed needs the name of a list under failures ({lists}): use {{listed: {{name: NAME}}}}"
        )
    for failure in config.failures_of(cell):
        if failure.rank is not None and failure.rank >= cell.ranks:
            raise ConfigError(
                f"failures.{cell.failure_list} is for rank {failure.rank}, but a run with ranks: {cell.ranks} has no such rank; ranks count from 0"
            )


def check_omission(cell: Cell, config: StudyConfig) -> None:
    """Raises ConfigError where the control could not be caught: leaving the part out changes nothing, or the bits
    may part without it.
    """
    if cell.omit != NOTHING and not cell.deterministic:
        raise ConfigError(
            f"omit {cell.omit} needs deterministic: true: in the default mode the bits may part all the same"
        )
    if cell.omit == "momentum" and cell.optimizer == "sgd" and config.training.momentum == 0:
        raise ConfigError("training.momentum is 0: a restart without momentum shows nothing")
    layer = LAYERS.get(cell.omit)
    if layer is None:
        return
    network = _network(cell.model, dataset_of(cell, config).sample_shape or ANY_IMAGE)
    if not any(isinstance(each, layer) for each in network.flat()):
        raise ConfigError(
            f"{cell.model} has no {layer.__name__} layer: a restart without {cell.omit} shows nothing"
        )


def check_length(cell: Cell, config: StudyConfig) -> None:
    """Raises ConfigError where the run is surely too short: for one step, for its warm-up, or for its failures.

    Of a dataset whose size is not known here, `training.steps_per_epoch` says how many steps an epoch has at most. The
    run itself checks again what it finds.
    """
    training = config.training
    steps = known_steps_per_epoch(cell, config)
    if steps is None:
        return
    if training.warmup_steps >= cell.epochs * steps:
        raise FieldError(
            ("training", "warmup_steps"),
            f"the run {cell.id} has {cell.epochs * steps} steps in all, and none is left to time: lower it, or "
            "train longer",
            training.warmup_steps,
        )
    if cell.interval.steps(steps) > cell.epochs * steps:
        raise FieldError(
            ("matrix", "interval"),
            f"the run {cell.id} has {cell.epochs * steps} steps in all, and ends before its first checkpoint: use a "
            "shorter one, or train longer",
            str(cell.interval),
        )
    _check_listed(cell, config, cell.epochs * steps)
    try:
        if cell.is_killed:
            kills_of(cell, seed=training.seed, steps_per_epoch=steps)
    except ConfigError as error:
        raise ConfigError(f"the cell {cell.id} cannot be: {error}") from error


def _check_listed(cell: Cell, config: StudyConfig, steps: int) -> None:
    """Raises ConfigError where a listed failure waits for a step that a run of so many does not reach."""
    for index, failure in enumerate(config.failures_of(cell)):
        last = steps - 1 if failure.moment == "step" else steps
        if failure.step is not None and failure.step > last:
            raise FieldError(
                ("failures", str(cell.failure_list), index, "step"),
                f"it would never occur: the run {cell.id} has {steps} steps in all. Use at most {last}, or train longer",
                failure.step,
            )


def known_steps_per_epoch(cell: Cell, config: StudyConfig) -> int | None:
    """Steps of an epoch: at most so many of a dataset whose size is not known yet, None where nothing limits them."""
    limit, samples = config.training.steps_per_epoch, dataset_of(cell, config).train_samples
    if samples is None:
        return limit
    try:
        return steps_per_epoch(samples, cell.ranks, cell.batch_size, limit)
    except DataError as error:
        raise ConfigError(f"the cell {cell.id} cannot be: {error}") from error


def dataset_of(cell: Cell, config: StudyConfig) -> Source:
    """The dataset of the cell, with the settings that the config has for it."""
    source: Source = getattr(config.datasets, cell.dataset)
    return source


def check_files(cells: Iterable[Cell], config: StudyConfig, datasets: Path) -> None:
    """Raises ConfigError where a file cannot be read that the config names, or that is needed to make a dataset in `datasets`.

    A dataset that no cell names needs no files.
    """
    for source in {cell.dataset: dataset_of(cell, config) for cell in cells}.values():
        if fault := source.missing((datasets / source.name / DESCRIPTION).exists()):
            setting, words = fault
            location = ("datasets", source.name, setting)
            raise FieldError(location, words, getattr(source, setting))
    numbers = config.decision.numbers
    if numbers is not None and (unread := unreadable(Path(numbers))):
        remedy = "give the path of a file like config/costs-example.yaml, or null for the costs of the study"
        raise FieldError(("decision", "numbers"), f"{unread}: {remedy}", numbers)
