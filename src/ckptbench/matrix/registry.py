"""The registries: every framework, format, history, omission, strategy, trace of failures and recovery that a cell can name."""

from __future__ import annotations

import pkgutil
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Generic, Literal, TypeVar

from ckptbench.matrix.plugin_spec import Entry, Options, PluginSpec

Each = TypeVar("Each")


class Registry(dict[str, Each], Generic[Each]):
    """Entries by name. `hidden` ones are found by their name, but no list and no documentation has them: the audit uses them."""

    def __init__(self, entries: Mapping[str, Each], hidden: Mapping[str, Each]) -> None:
        super().__init__(entries)
        self.hidden = hidden

    def __missing__(self, name: str) -> Each:
        return self.hidden[name]

    def __contains__(self, name: object) -> bool:
        return super().__contains__(name) or name in self.hidden


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
    environment: str | None = None
    """The framework in whose environment it runs. None: its own."""
    opt_in: bool = False
    """Whether no default study trains it, which would take longer than it says."""
    shards: bool = False
    """Whether each rank holds a shard of model and optimizer, as its class says by `is_sharded`."""
    replicas: int = 1
    """How many ranks hold the same shard, where they hold shards. The number of ranks is a multiple of it."""
    cpu_only: bool = False
    """Whether it has no environment for GPUs."""
    offers: tuple[str, ...] = ()
    """What it has beyond SGD in fp32 on images: members of BEYOND."""
    uses_im2col: bool = False
    """Whether its convolutions on CPU copy every window of their input (im2col), which takes memory."""
    label: str | None = None
    """Name in figures. None: its name in the registry."""
    color: str | None = None
    marker: str | None = None
    """Colour and marker in all figures, as matplotlib names them. Each belongs to one framework. None: a spare one."""

    def parts(self, ranks: int) -> int:
        """In how many parts model and optimizer lie, one on each rank. Rank r holds part r % parts."""
        return ranks // self.replicas if self.shards else 1

    @property
    def optional(self) -> bool:
        """Whether a config must name it, or `all`, to get it."""
        return self.opt_in or self.extends_another

    @property
    def extends_another(self) -> bool:
        """Whether it trains by the code of another framework in another way."""
        return self.recipe is not None or self.environment is not None


Optimizer = Literal["sgd", "adamw"]
Precision = Literal["fp32", "bf16"]
SLOTS: Mapping[Optimizer, int] = {"sgd": 1, "adamw": 2}
"""How many numbers each optimizer keeps of a parameter: its momentum, or its first and second moment."""
ACCUMULATION = "accumulation"
OBJECTS = "objects"
BEYOND = {
    "adamw": "optimizer adamw",
    "bf16": "precision bf16",
    "tokens": "the layers of models that learn from tokens",
    ACCUMULATION: "training.accumulation",
    OBJECTS: "checkpoints in an object store",
}
"""What a framework may have or not, with the words of errors."""
HOROVOD_RECIPE = "src/ckptbench/inputs/environments/horovod.py"

# Colours of Okabe and Ito's palette (Color Universal Design, 2008), and then of Paul Tol's muted scheme (2021), which
# colour-blind readers can tell apart.
FRAMEWORKS = Registry(
    {
        "chainer": FrameworkEntry(
            location="ckptbench.frameworks.chainer:Chainer",
            launcher="mpiexec",
            formats=("npz", "npz_compressed", "hdf5", "hdf5_compressed"),
            omissions=("position", "momentum", "random", "statistics", "first_update"),
            uses_im2col=True,
            label="Chainer",
            color="#D55E00",
            marker="o",
        ),
        "pytorch": FrameworkEntry(
            location="ckptbench.frameworks.pytorch:PyTorch",
            formats=("torch_save", "safetensors", "hdf5"),
            # No `statistics`: before every forward pass DistributedDataParallel sends those of rank 0 to all ranks.
            omissions=("position", "momentum", "random"),
            offers=("adamw", "bf16", "tokens", ACCUMULATION, OBJECTS),
            label="PyTorch",
            color="#0072B2",
            marker="s",
        ),
        "tensorflow": FrameworkEntry(
            location="ckptbench.frameworks.tensorflow.framework:TensorFlow",
            formats=("hdf5", "keras", "tf_checkpoint"),
            omissions=("position", "momentum", "dropout", "statistics"),
            offers=("adamw", "bf16", "tokens", ACCUMULATION),
            label="TensorFlow",
            color="#009E73",
            marker="^",
        ),
        "jax": FrameworkEntry(
            location="ckptbench.frameworks.jax.framework:Jax",
            formats=("orbax", "npz"),
            omissions=("position", "momentum", "random", "statistics"),
            opt_in=True,
            cpu_only=True,
            offers=("adamw", "bf16", "tokens", ACCUMULATION),
            label="JAX",
            color="#882255",
            marker="X",
        ),
        "horovod_pytorch": FrameworkEntry(
            location="ckptbench.frameworks.horovod.pytorch:HorovodPyTorch",
            formats=("torch_save", "safetensors", "hdf5"),
            omissions=("position", "momentum", "random", "statistics"),
            offers=("adamw", "bf16", "tokens", ACCUMULATION),
            recipe=HOROVOD_RECIPE,
            label="Horovod (PyTorch)",
            color="#56B4E9",
            marker="D",
        ),
        "pytorch_fsdp": FrameworkEntry(
            location="ckptbench.frameworks.fsdp.pytorch:PyTorchFsdp",
            formats=("torch_save",),
            omissions=("position", "momentum", "random", "statistics"),
            environment="pytorch",
            shards=True,
            offers=("adamw", "bf16", "tokens", ACCUMULATION, OBJECTS),
            label="PyTorch FSDP2",
            color="#E69F00",
            marker="P",
        ),
        "pytorch_hsdp": FrameworkEntry(
            location="ckptbench.frameworks.fsdp.hybrid:PyTorchHsdp",
            formats=("torch_save",),
            omissions=("position", "momentum", "random", "statistics"),
            environment="pytorch",
            shards=True,
            replicas=2,
            offers=("adamw", "bf16", "tokens", ACCUMULATION, OBJECTS),
            label="PyTorch HSDP",
            color="#999933",
            marker="p",
        ),
        "horovod_tensorflow": FrameworkEntry(
            location="ckptbench.frameworks.horovod.tensorflow:HorovodTensorFlow",
            formats=("hdf5", "keras", "tf_checkpoint"),
            omissions=("position", "momentum", "dropout", "statistics"),
            offers=("adamw", "bf16", "tokens", ACCUMULATION),
            recipe=HOROVOD_RECIPE,
            label="Horovod (TensorFlow)",
            color="#CC79A7",
            marker="v",
        ),
    },
    hidden={
        "numpy": FrameworkEntry(
            location="ckptbench.frameworks.numpy_framework:NumpyFramework",
            formats=("npz",),
            omissions=("position", "momentum", "random"),
        ),
    },
)


def on_any_ranks() -> list[str]:
    """The frameworks that train on any number of ranks: what `all` means in a config."""
    return [name for name, entry in FRAMEWORKS.items() if entry.replicas == 1]


DATA = "data"
"""The environment in which datasets are prepared."""
_PYTORCH = ("pytorch", "pytorch_fsdp", "pytorch_hsdp")
STREAMED = ("torch_save",)
"""Formats of `native` that can be written to a stream, as an object store takes them."""
FORMAT_LABELS = {
    "orbax": "Orbax",
    "npz": "npz",
    "npz_compressed": "npz, deflate",
    "torch_save": "torch.save",
    "safetensors": "safetensors",
    "hdf5": "HDF5",
    "hdf5_compressed": "HDF5, gzip",
    "keras": ".keras",
    "tf_checkpoint": "TF Checkpoint",
    "dcp": "DCP",
    "torchsnapshot": "torchsnapshot",
    "torch_checkpointing": "torch_checkpointing",
}
"""Each format's name in figures, in the order of the figures: a framework's default comes before its other formats."""
WHOLE = "whole"
RERUN = "rerun"
HISTORIES = (WHOLE, RERUN)
"""`whole`: a run. `rerun`: a second run with the same seed, to compare the two."""
NOTHING = "nothing"
OMISSIONS = {
    NOTHING: "no part",
    "position": "training begins at the first sample",
    "momentum": "the optimizer's slots are zero",
    "random": "random generators start as in a new process",
    "dropout": "seeds of dropout layers start as in a new process",
    "statistics": "all ranks take the running statistics of rank 0",
    "first_update": "ChainerMN's next update only broadcasts, and drops its gradients",
}
"""Parts of the state that a restart can deliberately omit, with the effect. A framework's entry lists those relevant to it."""
OF_SEVERAL_RANKS = ("statistics", "first_update")
"""Omissions that change something only with two ranks or more."""


# A baseline writes nothing, so it has no format: all formats of a framework share one baseline.
NO_FORMAT = "none"


@dataclass(frozen=True, slots=True, kw_only=True)
class StrategyEntry(Entry):
    """A strategy: the place of its class, the frameworks that it serves, its stages and its options."""

    location: str
    """`module:class`. Only the ranks load it."""
    formats: tuple[str, ...] | None = None
    """The formats that it writes. None: the framework's own, by the framework's code."""
    stages: tuple[str, ...]
    """Stages of a rank's shard of a version, in order. A drawn kill inside a checkpoint comes at one of them or at SYNCED."""
    blocking: bool = True
    """Whether every save returns with this rank's files written. All ranks must agree on how they meet, so this cannot
    depend on how fast one of them was. The saves of any other strategy end in the background."""
    recycles: bool = False
    """Whether it writes over the files of removed versions. Then one removed version stays on the disk for the next."""
    as_objects: bool = False
    """Whether it can write to an object store."""
    repeats_state: bool = False
    """Whether every rank writes the whole model and optimizer: R ranks write R times the bytes."""


SYNCED = "synced"
"""Stage of every strategy: the files of all ranks are on stable storage, but the version is not yet committed. Only the
rank that commits reaches it."""
REMOVING = "removing"
"""Stage of every strategy: the version is committed, and old ones are about to be removed behind training. Only the rank
that commits reaches it, and only where there are old ones. No drawn kill comes there, but the tests do it."""
NATIVE = PluginSpec("native")
STRATEGIES = Registry(
    {
        NATIVE.name: StrategyEntry(
            location="ckptbench.checkpointing.strategies.native:Native",
            stages=("begun", "written"),
            as_objects=True,
        ),
        "sharded": StrategyEntry(
            location="ckptbench.checkpointing.strategies.sharded:Sharded",
            formats=("safetensors",),
            stages=("begun", "written"),
            as_objects=True,
        ),
        "async": StrategyEntry(
            location="ckptbench.checkpointing.strategies.asynchronous:Asynchronous",
            formats=("safetensors",),
            stages=("begun", "copied", "written"),
            blocking=False,
            recycles=True,
            as_objects=True,
        ),
        "deepfreeze": StrategyEntry(
            location="ckptbench.checkpointing.strategies.deepfreeze:DeepFreeze",
            formats=("safetensors",),
            stages=("begun", "captured", "written"),
            blocking=False,
            recycles=True,
            options={"memory": 0, "node": 0, "shared": 1},
        ),
        "tf_async": StrategyEntry(
            location="ckptbench.checkpointing.strategies.tf_async:TensorFlowAsync",
            frameworks=("tensorflow", "horovod_tensorflow"),
            formats=("tf_checkpoint",),
            stages=("begun", "copied", "written"),
            blocking=False,
        ),
        "multi_node_checkpointer": StrategyEntry(
            location="ckptbench.checkpointing.strategies.multi_node_checkpointer:MultiNodeCheckpointer",
            frameworks=("chainer",),
            formats=("npz_compressed",),
            stages=("begun", "written"),
            repeats_state=True,
        ),
        "dcp": StrategyEntry(
            location="ckptbench.checkpointing.strategies.pytorch.dcp:Dcp",
            frameworks=_PYTORCH,
            formats=("dcp",),
            stages=("begun", "written"),
            as_objects=True,
        ),
        "dcp_async": StrategyEntry(
            location="ckptbench.checkpointing.strategies.pytorch.dcp_async:DcpAsync",
            frameworks=_PYTORCH,
            formats=("dcp",),
            stages=("begun", "copied", "written"),
            blocking=False,
            as_objects=True,
            options={
                "checkpointer": ("thread", "process"),
                "staging": ("awaited", "unawaited"),
            },
        ),
        "torchsnapshot": StrategyEntry(
            location="ckptbench.checkpointing.strategies.pytorch.torchsnapshot:TorchSnapshot",
            frameworks=("pytorch",),
            formats=("torchsnapshot",),
            stages=("begun", "copied", "written"),
            blocking=False,
        ),
        "torch_checkpointing": StrategyEntry(
            location="ckptbench.checkpointing.strategies.pytorch.torch_checkpointing:TorchCheckpointing",
            frameworks=("pytorch",),
            formats=("torch_checkpointing",),
            stages=("begun", "copied", "written"),
            blocking=False,
            options={"staging": ("beside", "blocking")},
        ),
        "orbax": StrategyEntry(
            location="ckptbench.checkpointing.strategies.orbax:Orbax",
            frameworks=("tensorflow", "jax"),
            formats=("orbax",),
            stages=("begun", "copied", "written"),
            blocking=False,
        ),
    },
    hidden={
        # Not blocking: the commit of nothing, which takes what the disk takes, is then no part of the stall.
        "null": StrategyEntry(
            location="ckptbench.checkpointing.strategies.known_cost:Null",
            stages=("begun",),
            blocking=False,
        ),
        "stall": StrategyEntry(
            location="ckptbench.checkpointing.strategies.known_cost:Stall",
            stages=("begun",),
            blocking=False,
            options={"ms": 100},
        ),
    },
)


def load(location: str) -> Any:
    """The class at `module:class`, of an entry. Raises ImportError where a library that it needs is not installed."""
    return pkgutil.resolve_name(location)


IMPORTS: Mapping[str, tuple[str, ...]] = {
    "chainer": ("chainer", "chainermn", "mpi4py"),
    "pytorch": ("torch",),
    "tensorflow": ("tensorflow", "keras"),
    "jax": ("jax", "optax"),
    "horovod_pytorch": ("torch", "horovod"),
    "horovod_tensorflow": ("tensorflow", "keras", "horovod"),
    "hdf5": ("h5py",),
    "hdf5_compressed": ("h5py",),
    "safetensors": ("safetensors",),
    "torchsnapshot": ("torchsnapshot",),
    "torch_checkpointing": ("torch_checkpointing",),
    "orbax": ("orbax", "jax"),
    "torchft": ("torchft",),
    "ulfm": ("mpi4py",),
}
"""The modules that ranks import for an environment, a format of `native`, a strategy or a recovery, beside `IMPORTED_ALWAYS`."""
IMPORTED_ALWAYS = ("numpy", "xxhash")


def environments() -> list[str]:
    """The names of all environments on CPU, with those of recoveries, and of the one that prepares datasets."""
    own = [
        f"{framework}_{name}"
        for name, entry in RECOVERIES.items()
        if entry.own_environment
        for framework in entry.frameworks or ()
    ]
    return [DATA, *dict.fromkeys(map(environment_of, FRAMEWORKS)), *own]


def environment_of(framework: str) -> str:
    """The environment of this framework on CPU, without that of a recovery."""
    return FRAMEWORKS[framework].environment or framework


def formats_of(framework: str, strategy: str) -> tuple[str, ...]:
    """The formats in which this strategy writes this framework's state. The first one is the default."""
    own = STRATEGIES[strategy].formats
    return FRAMEWORKS[framework].formats if own is None else own


FAILURE_KINDS = {
    "kill": "SIGKILL. A `node` that is killed loses all its ranks, and its levels of storage",
    "hang": "SIGSTOP, and SIGCONT after `lasts_s` seconds",
    "damage": "SIGKILL, and one byte of the newest version is changed before the restart",
}
"""What a failure does to its victim."""


@dataclass(frozen=True, slots=True, kw_only=True)
class FaultsEntry(Entry):
    """A kind of trace of failures: its options. Module `run.schedule` draws or reads the trace."""

    kills: int = 0
    """How many kills it draws by the steps of the run."""
    inside: int = 0
    """How many of these come while a checkpoint is being written."""


_DRAWN: Options = {
    "mean_s": 60.0,
    "most": 3,
    "of": ("rank", "node"),
    "kind": tuple(FAILURE_KINDS),
    "lasts_s": 5.0,
}
UNDISTURBED = PluginSpec("none")
FAULTS = {
    UNDISTURBED.name: FaultsEntry(),
    "exponential": FaultsEntry(options=_DRAWN),
    "weibull": FaultsEntry(options={**_DRAWN, "shape": 0.7}),
    "listed": FaultsEntry(options={"name": ""}),
    "killed_between": FaultsEntry(kills=1),
    "killed_inside": FaultsEntry(kills=1, inside=1),
    "killed_thrice": FaultsEntry(kills=3, inside=2),
}
"""Traces of failures. `exponential` and `weibull`: every rank or node (`of`) fails again and again, after times with this
distribution and the mean `mean_s`; the first `most` failures of all count. `listed`: those in the config under `failures`. `killed_*`: kills at drawn
steps, for the resume proof."""
KILLED = tuple(name for name, entry in FAULTS.items() if entry.kills)
"""The faults of the resume proof: the run is killed, restarted, and compared with its undisturbed run."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RecoveryEntry(Entry):
    """A recovery: the places of its two classes, and its options."""

    launcher: str
    """`module:class` of the half that the launcher calls."""
    rank: str
    """`module:class` of the half that every rank calls."""
    starts_all: bool = False
    """Whether its command starts all ranks of the run, rather than one."""
    starts_node: bool = False
    """Whether it is started once on every node, and its command starts all ranks there."""
    strategies: tuple[str, ...] | None = None
    """The strategies that it serves. None: all."""
    own_environment: bool = False
    """Whether it needs packages that the frameworks' environments do not have. Then it has an environment for each framework,
    on CPU alone: `<framework>_<recovery>`."""
    elastic: bool = False
    """Whether the ranks that survive go on in their processes. What that costs is paid where nothing fails too, so the
    undisturbed run of such a cell has the same recovery."""
    reinitializes: bool = False
    """Whether the ranks that survive stay, and all go back to a version with a new one in place of the lost one. That costs
    nothing where nothing fails. It needs collectives that end with an error when a rank is lost, as those on CPU do."""

    @property
    def keeps_survivors(self) -> bool:
        return self.elastic or self.reinitializes

    def goes_with(self, strategy: str) -> bool:
        return self.strategies is None or strategy in self.strategies


_PATIENCE: Options = {"patience_s": 10.0}
_ELASTIC: Options = {**_PATIENCE, "batch": ("kept", "shrunk")}
# Where the recovery averages the gradients, it can weigh them too.
_AVERAGING: Options = {**_ELASTIC, "learning_rate": ("kept", "scaled")}
# With any other strategy the survivors would have to abandon a save that goes on in the background.
_ELASTIC_STRATEGIES = (NATIVE.name,)
RESTART = PluginSpec("restart")
RECOVERIES = {
    RESTART.name: RecoveryEntry(
        launcher="ckptbench.failures.recovery.restart:Restart",
        rank="ckptbench.failures.recovery.contract:RankRecovery",
        options=_PATIENCE,
    ),
    "torchrun": RecoveryEntry(
        launcher="ckptbench.failures.recovery.torchrun:Torchrun",
        rank="ckptbench.failures.recovery.torchrun:TorchrunRank",
        starts_node=True,
        frameworks=_PYTORCH,
        options=_PATIENCE,
    ),
    "torchft": RecoveryEntry(
        launcher="ckptbench.failures.recovery.torchft:TorchFt",
        rank="ckptbench.failures.recovery.torchft:TorchFtRank",
        frameworks=("pytorch",),
        strategies=_ELASTIC_STRATEGIES,
        own_environment=True,
        elastic=True,
        options=_AVERAGING,
    ),
    "ulfm": RecoveryEntry(
        launcher="ckptbench.failures.recovery.ulfm:Ulfm",
        rank="ckptbench.failures.recovery.ulfm:UlfmRank",
        starts_all=True,
        frameworks=("chainer", "pytorch", "tensorflow"),
        strategies=_ELASTIC_STRATEGIES,
        own_environment=True,
        elastic=True,
        options={**_AVERAGING, "replace": False},
    ),
    "reinit": RecoveryEntry(
        launcher="ckptbench.failures.recovery.reinit:Reinit",
        rank="ckptbench.failures.recovery.reinit:ReinitRank",
        frameworks=_PYTORCH,
        strategies=(NATIVE.name, "sharded", "dcp"),
        reinitializes=True,
        options={**_PATIENCE, "state": ("version", "replica")},
    ),
}
"""Recoveries. `patience_s`: how long a rank may be silent before it counts as lost. `batch`: after a failure the survivors share
the same global batch (`kept`), or the batch slice of the lost rank is left out (`shrunk`). `learning_rate`: a smaller global batch is learned
from with the same learning rate (`kept`), or with one that is smaller in proportion (`scaled`). `state`: all go back to the newest version, or survivors keep theirs where others hold what was lost (`replica`)."""


def undisturbed_recovery(recovery: str) -> str:
    """The recovery of the undisturbed run with which a run with this one is compared, without options: they say what follows a
    failure. It is the same one if that is elastic. Raises KeyError if it is not registered.
    """
    return recovery if RECOVERIES[recovery].elastic else RESTART.name
