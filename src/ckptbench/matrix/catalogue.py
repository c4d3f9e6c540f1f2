"""The registries: every framework, format, history, omission, strategy and recovery that a cell can name."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal

from ckptbench.matrix.variant import Option, Variant


@dataclass(frozen=True, slots=True, kw_only=True)
class FrameworkEntry:
    """The facts of a framework that the study needs without importing it."""

    location: str
    """`module:class`. Only the ranks load the module, because it imports the framework."""
    launcher: Literal["spawn", "mpiexec"] = "spawn"
    formats: tuple[str, ...]
    """The formats that it can write. `format: default` means the first."""
    omissions: tuple[str, ...]
    """Negative controls: the members of OMISSIONS that change how training goes on after a restart."""
    recipe: str | None = None
    """What compiles a part of its environment: a file of the repository. A change of the file makes the environment
    anew. None: every package of the lock is installed as it is."""
    label: str | None = None
    """Name in figures. None: its name in the registry."""
    color: str | None = None
    marker: str | None = None
    """Colour and marker in all figures, as matplotlib names them. Each belongs to one framework. None: a spare one."""

    @property
    def optional(self) -> bool:
        """Whether a config must name it, or `all`, to get it: compiling takes minutes and a compiler."""
        return self.recipe is not None


HOROVOD_RECIPE = "src/ckptbench/environments/horovod.py"

# Colours of Okabe and Ito's palette (Color Universal Design, 2008), which colour-blind readers can tell apart.
FRAMEWORKS = {
    "chainer": FrameworkEntry(
        location="ckptbench.frameworks.chainer:Chainer",
        launcher="mpiexec",
        formats=("npz", "npz_compressed", "hdf5", "hdf5_compressed"),
        omissions=("position", "momentum", "random", "statistics", "first_update"),
        label="Chainer",
        color="#D55E00",
        marker="o",
    ),
    "pytorch": FrameworkEntry(
        location="ckptbench.frameworks.pytorch:PyTorch",
        formats=("torch_save", "safetensors", "hdf5"),
        # No `statistics`: before every forward pass DistributedDataParallel sends those of rank 0 to all ranks.
        omissions=("position", "momentum", "random"),
        label="PyTorch",
        color="#0072B2",
        marker="s",
    ),
    "tensorflow": FrameworkEntry(
        location="ckptbench.frameworks.tensorflow:TensorFlow",
        formats=("hdf5", "keras", "tf_checkpoint"),
        omissions=("position", "momentum", "dropout", "statistics"),
        label="TensorFlow",
        color="#009E73",
        marker="^",
    ),
    "horovod_pytorch": FrameworkEntry(
        location="ckptbench.frameworks.horovod.pytorch:HorovodPyTorch",
        formats=("torch_save", "safetensors", "hdf5"),
        omissions=("position", "momentum", "random", "statistics"),
        recipe=HOROVOD_RECIPE,
        label="Horovod (PyTorch)",
        color="#56B4E9",
        marker="D",
    ),
    "horovod_tensorflow": FrameworkEntry(
        location="ckptbench.frameworks.horovod.tensorflow:HorovodTensorFlow",
        formats=("hdf5", "keras", "tf_checkpoint"),
        omissions=("position", "momentum", "dropout", "statistics"),
        recipe=HOROVOD_RECIPE,
        label="Horovod (TensorFlow)",
        color="#CC79A7",
        marker="v",
    ),
}

FORMAT_LABELS = {
    "npz": "npz",
    "npz_compressed": "npz, deflate",
    "torch_save": "torch.save",
    "safetensors": "safetensors",
    "hdf5": "HDF5",
    "hdf5_compressed": "HDF5, gzip",
    "keras": ".keras",
    "tf_checkpoint": "TF Checkpoint",
}
"""Each format's name in figures, in the order of the figures: a framework's default comes before its other formats."""
WHOLE = "whole"
KILLED = {"killed_between": 1, "killed_inside": 1, "killed_thrice": 3}
"""How many times a run of each killed history is ended by SIGKILL."""
KILLED_INSIDE = {"killed_between": 0, "killed_inside": 1, "killed_thrice": 2}
"""How many of the KILLED kills come while a checkpoint is being written."""
HISTORIES = (WHOLE, "again", *KILLED)
"""How a run is disturbed. `whole`: not at all. `again`: not at all; a second run with the same seed. `killed_*`: killed
and restarted."""
NOTHING = "nothing"
OMISSIONS = (NOTHING, "position", "momentum", "random", "dropout", "statistics", "first_update")
"""Parts of the state that a restart can leave out on purpose. A framework's entry lists those that matter to it."""
OF_SEVERAL_RANKS = ("statistics", "first_update")
"""Omissions that change something only with two ranks or more."""


# A baseline writes nothing, so it has no format: all formats of a framework share one baseline.
NO_FORMAT = "none"


@dataclass(frozen=True, slots=True, kw_only=True)
class StrategyEntry:
    """A strategy: the place of its class, the frameworks that it serves, its stages and its options."""

    location: str
    """`module:class`. Only the ranks load it."""
    frameworks: tuple[str, ...] | None = None
    """The frameworks that it serves. None: all."""
    formats: tuple[str, ...] | None = None
    """The formats that it writes. None: the framework's own, by the framework's code."""
    stages: tuple[str, ...]
    """Stages of a rank's share of a version, in order. A kill inside a checkpoint comes at one of them or at SYNCED."""
    blocking: bool = True
    """Whether every save returns with this rank's files written. All ranks must agree on how they meet, so this cannot
    depend on how fast one of them was. The saves of any other strategy end in the background."""
    options: Mapping[str, Option] = field(default_factory=dict)
    """Default of each option, by its name."""

    def serves(self, framework: str) -> bool:
        return self.frameworks is None or framework in self.frameworks


SYNCED = "synced"
"""Stage of every strategy: the files of all ranks are on stable storage, but the version is not yet committed. Only the
rank that commits reaches it."""
REMOVING = "removing"
"""Stage of every strategy: the version is committed, and old ones are about to be removed behind training. Only the rank
that commits reaches it, and only where there are old ones. No history kills there, but the tests do."""
NATIVE = Variant("native")
STRATEGIES = {
    NATIVE.name: StrategyEntry(
        location="ckptbench.strategies.native:Native", stages=("begun", "written")
    ),
    "sharded": StrategyEntry(
        location="ckptbench.strategies.sharded:Sharded",
        formats=("safetensors",),
        stages=("begun", "written"),
    ),
    "async": StrategyEntry(
        location="ckptbench.strategies.asynchronous:Asynchronous",
        formats=("safetensors",),
        stages=("begun", "copied", "written"),
        blocking=False,
    ),
}


def formats_of(framework: str, strategy: str) -> tuple[str, ...]:
    """The formats in which this strategy writes this framework's state. The first one is the default."""
    own = STRATEGIES[strategy].formats
    return FRAMEWORKS[framework].formats if own is None else own


@dataclass(frozen=True, slots=True, kw_only=True)
class RecoveryEntry:
    """A recovery: the places of its two classes, and its options."""

    launcher: str
    """`module:class` of the half that the launcher calls."""
    rank: str
    """`module:class` of the half that every rank calls."""
    options: Mapping[str, Option] = field(default_factory=dict)
    """Default of each option, by its name."""


RESTART = Variant("restart")
RECOVERIES = {
    RESTART.name: RecoveryEntry(
        launcher="ckptbench.recovery.restart:Restart",
        rank="ckptbench.recovery.restart:RestartedRank",
    ),
}
