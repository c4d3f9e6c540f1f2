"""The plan of a run, `plan.json`: all that a rank needs to know about its run."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Self

from ckptbench.errors import ConfigError, RunFolderError
from ckptbench.machine.files import read_json, write_json
from ckptbench.matrix.cell import Cell
from ckptbench.runs.identity import Identity
from ckptbench.runs.training import Training, steps_per_epoch

PLAN = "plan.json"


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


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """One attempt of a run: its cell, its training settings and its folders."""

    cell: Cell
    training: Training
    dataset_folder: Path
    run_folder: Path
    checkpoint_folder: Path
    memory_folder: Path | None = None
    """Where all runs of this user keep versions in a node's memory. None, as for `node_folder`: no run does."""
    node_folder: Path | None = None
    """Where they keep versions on a disk of the node."""
    sizes: Sizes = Sizes()
    """All are 0 where nothing is launched."""
    run_id: str = ""
    """See Identity. The launcher fills in this field and the next two."""
    dataset_sha256: str = ""
    lock_sha256: str = ""
    attempt: int = 1
    resume_from: Path | None = None
    """The checkpoint version from which training goes on. The launcher has checked every byte of it."""
    listed: tuple[Mapping[str, Any], ...] = ()
    """The failures of the list that the cell's `faults` names, as JSON objects."""
    failures: tuple[Mapping[str, Any], ...] = ()
    """The failures that strike the run, as JSON objects (`faults.failure`). The launcher fills it in."""
    strikes: int = 0
    """How many of them have been answered by another attempt."""

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
        plain = {
            name: str(value) if isinstance(value, Path) else value for name, value in fields.items()
        }
        return {
            **plain,
            "cell": self.cell.to_json(),
            "training": dataclasses.asdict(self.training),
            "sizes": dataclasses.asdict(self.sizes),
        }

    @classmethod
    def read(cls, path: Path) -> Self:
        """Raises RunFolderError if `path` holds no plan of this version."""
        content = read_json(path)
        names = ("dataset_folder", "run_folder", "checkpoint_folder")
        optional = ("memory_folder", "node_folder", "resume_from")
        try:
            folders = {name: Path(content[name]) for name in names}
            folders |= {name: Path(content[name]) for name in optional if content.get(name)}
            return cls(
                **{
                    **content,
                    **folders,
                    "listed": tuple(content["listed"]),
                    "failures": tuple(content["failures"]),
                    "cell": Cell.from_json(content["cell"]),
                    "training": Training(**content["training"]),
                    "sizes": Sizes(**content["sizes"]),
                }
            )
        except (ConfigError, KeyError, TypeError, ValueError, AttributeError) as error:
            raise RunFolderError(
                f"{path}: no plan of this version ({type(error).__name__}: {error}); start the run again, which "
                "writes it anew"
            ) from error
