"""What is asked of a run, and the plan of one attempt at it, `plan.json`: all that a rank needs to know."""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Self, TypedDict

from ckptbench.common.errors import ConfigError, RunFolderError
from ckptbench.common.files import read_json, write_json
from ckptbench.common.objects import ObjectPath, Place, place_of
from ckptbench.common.shape import check
from ckptbench.matrix.cell import Cell
from ckptbench.matrix.registry import SLOTS, STRATEGIES
from ckptbench.matrix.training import Training, steps_per_epoch
from ckptbench.run.failure import Failure
from ckptbench.run.identity import Identity

PLAN = "plan.json"
FLOAT_BYTES = 4


@dataclass(frozen=True, slots=True, kw_only=True)
class Sizes:
    """The sizes from which a run's steps, memory and disk space follow. Those of the network are numbers of values."""

    samples: int = 0
    """Of the training set."""
    parameters: int = 0
    buffers: int = 0
    activations: int = 0
    """Outputs of all layers, of one sample."""
    unfolded: int = 0
    """The largest unfolded input of a layer, of one sample."""
    multiplications: int = 0
    """Of a forward pass of one sample."""

    def updated_bytes(self, cell: Cell) -> int:
        """Bytes of the parameters and the optimizer's slots."""
        return FLOAT_BYTES * (1 + SLOTS[cell.optimizer]) * self.parameters

    def state_bytes(self, cell: Cell) -> int:
        """Bytes of the tensors in a checkpoint of the cell, uncompressed: those, and the buffers of every rank."""
        copies = cell.ranks if STRATEGIES[cell.strategy.name].repeats_state else 1
        return copies * self.updated_bytes(cell) + FLOAT_BYTES * cell.ranks * self.buffers


@dataclass(frozen=True, slots=True, kw_only=True)
class RunSpec:
    """What is asked: a run of this cell, with these settings and inputs, in these folders."""

    cell: Cell
    training: Training
    dataset_folder: Path
    run_folder: Path
    checkpoint_folder: Place
    memory_folder: Path | None = None
    """Where all runs of this user keep versions in a node's memory. None, as for `node_folder`: no run does."""
    node_folder: Path | None = None
    """Where they keep versions on a disk of the node."""
    dataset_sha256: str
    """This field and the next one: see Identity."""
    lock_sha256: str
    sizes: Sizes = Sizes()
    """All are 0 where nothing is launched."""
    listed: tuple[Failure, ...] = ()
    """The failures of the list that the cell's `faults` names."""

    @property
    def seed(self) -> int:
        """The seed of the run. Repeats have different seeds; a cell and its baseline have the same."""
        return self.training.seed + self.cell.repeat

    @property
    def steps_per_epoch(self) -> int:
        """Steps of an epoch. Raises DataError if the dataset has too few samples for one."""
        return steps_per_epoch(
            self.sizes.samples,
            self.cell.ranks,
            self.cell.batch_size,
            self.training.steps_per_epoch,
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan(RunSpec):
    """What one attempt at the run does, as the launcher tells the ranks."""

    run_id: str
    """See Identity."""
    attempt: int = 1
    resume_from: Place | None = None
    """The checkpoint version from which training goes on. The launcher has checked every byte of it."""
    failures: tuple[Failure, ...] = ()
    """The failures that strike the run."""
    strikes: int = 0
    """How many of them have been answered by another attempt."""

    @classmethod
    def of(cls, spec: RunSpec, run_id: str) -> Self:
        """The first attempt, before it is known which failures strike it."""
        asked = {field.name: getattr(spec, field.name) for field in dataclasses.fields(RunSpec)}
        return cls(**asked, run_id=run_id)

    @property
    def identity(self) -> Identity:
        """What the run's checkpoints say about the training that wrote them."""
        return Identity(
            run_id=self.run_id,
            cell=self.cell.to_json(),
            training=dataclasses.asdict(self.training),
            dataset_sha256=self.dataset_sha256,
            lock_sha256=self.lock_sha256,
        )

    def write(self) -> Path:
        path = self.run_folder / PLAN
        write_json(path, self.to_json())
        return path

    def to_json(self) -> dict[str, Any]:
        fields = {field.name: getattr(self, field.name) for field in dataclasses.fields(self)}
        return {name: _plain(value) for name, value in fields.items()}

    @classmethod
    def read(cls, path: Path) -> Self:
        """Raises RunFolderError if `path` holds no plan of this version."""
        content = read_json(path)
        try:
            check(content, _Plain)
            return cls(**{name: _value(name, value) for name, value in content.items()})
        except (ConfigError, KeyError, TypeError, ValueError, AttributeError) as error:
            raise RunFolderError(
                f"{path}: no plan of this version ({type(error).__name__}: {error}); start the run again, which rewrites it"
            ) from error


class _Plain(TypedDict):
    """The plan as JSON."""

    cell: dict[str, Any]
    training: Training
    dataset_folder: str
    run_folder: str
    checkpoint_folder: str
    memory_folder: str | None
    node_folder: str | None
    dataset_sha256: str
    lock_sha256: str
    sizes: Sizes
    listed: list[Failure]
    run_id: str
    attempt: int
    resume_from: str | None
    failures: list[Failure]
    strikes: int


def _plain(value: Any) -> Any:
    match value:
        case Path() | ObjectPath():
            return str(value)
        case Cell():
            return value.to_json()
        case Training() | Sizes():
            return dataclasses.asdict(value)
        case tuple():
            return [failure.to_json() for failure in value]
    return value


def _value(name: str, plain: Any) -> Any:
    """The inverse of `_plain`."""
    match name:
        case "cell":
            return Cell.from_json(plain)
        case "training":
            return Training(**plain)
        case "sizes":
            return Sizes(**plain)
        case "listed" | "failures":
            return tuple(map(Failure.from_json, plain))
        case "dataset_folder" | "run_folder":
            return Path(plain)
        case "memory_folder" | "node_folder":
            return plain and Path(plain)
        case "checkpoint_folder" | "resume_from":
            return plain and place_of(plain)
    return plain
