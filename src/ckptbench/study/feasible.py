"""Checks that need a cell and the rest of the config: is a run long enough for its kills, can a control be caught?"""

from __future__ import annotations

from ckptbench.errors import CkptbenchError, ConfigError
from ckptbench.faults.schedule import kills_of
from ckptbench.matrix.catalogue import NOTHING
from ckptbench.matrix.cell import Cell
from ckptbench.networks.layers import BatchNorm, Dropout
from ckptbench.networks.models import ARCHITECTURES
from ckptbench.study.config import TrainingSection

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
    network = ARCHITECTURES[cell.model](ANY_IMAGE, ANY_CLASSES)
    if layer and not any(isinstance(each, layer) for each in network.flat()):
        raise ConfigError(
            f"{cell.model} has no {layer.__name__} layer: a restart without {cell.omit} shows nothing"
        )


def check_length(cell: Cell, training: TrainingSection) -> None:
    """Raises ConfigError where the run is surely too short to be killed as its history asks.

    Where `training.steps_per_epoch` is left to the dataset, and where the dataset has fewer, the run itself says so.
    """
    if not cell.is_killed or training.steps_per_epoch is None:
        return
    try:
        kills_of(
            cell,
            seed=training.seed,
            steps=cell.epochs * training.steps_per_epoch,
            steps_between=cell.interval.steps(training.steps_per_epoch),
        )
    except CkptbenchError as error:
        raise ConfigError(f"the cell {cell.id} cannot be: {error}") from error
