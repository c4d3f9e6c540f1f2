"""Whether a killed cell can be what it asks for, as far as the config tells."""

from __future__ import annotations

from ckptbench.architectures import ARCHITECTURES, BatchNorm, Dropout
from ckptbench.cells import NOTHING, Cell
from ckptbench.config import TrainingSection
from ckptbench.errors import CkptbenchError, ConfigError
from ckptbench.interruption import kills_of

LAYERS = {"random": Dropout, "dropout": Dropout, "statistics": BatchNorm}
"""Of the parts that a restart can leave out, those that matter to networks with such a layer alone."""
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
