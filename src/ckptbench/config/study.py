"""The models of the config file: types, bounds, defaults, and the words of each error."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Annotated, Any, Literal, Self, get_args, get_type_hints

from pydantic import AfterValidator, BeforeValidator, Field, create_model, model_validator

from ckptbench.common.errors import ConfigError
from ckptbench.config.decision import DecisionSection
from ckptbench.config.environments import EnvironmentName, EnvironmentSpec
from ckptbench.config.reading import ConfigFiles
from ckptbench.config.section import Section, checked, json_schema
from ckptbench.config.trainers import TrainersSection
from ckptbench.config.values import (
    LARGEST_NUMBER,
    Count,
    CountFromZero,
    Flag,
    FolderOrUrl,
    IntervalText,
    OneOf,
    Seed,
    SpecOf,
    Sweep,
    WholePath,
    number,
    whole,
)
from ckptbench.inputs.datasets.sources import DATASETS
from ckptbench.matrix.cell import Cell
from ckptbench.matrix.networks.models import ARCHITECTURES
from ckptbench.matrix.plugin_spec import PluginSpec
from ckptbench.matrix.registry import (
    FAILURE_KINDS,
    FAULTS,
    FRAMEWORKS,
    HISTORIES,
    NATIVE,
    NOTHING,
    OMISSIONS,
    RECOVERIES,
    RESTART,
    STRATEGIES,
    UNDISTURBED,
    WHOLE,
    Optimizer,
    Precision,
    formats_of,
    on_any_ranks,
)
from ckptbench.matrix.training import Training
from ckptbench.run.failure import Failure

ALL = "all"
"""The word for every framework that trains on any number of ranks, including those whose environments are compiled."""
AVAILABLE = "available"
"""The word beside the frameworks of a matrix of which those are left out that cannot be had on this machine."""


def _every_framework(names: list[str]) -> list[str]:
    """The names, each once. `all` is replaced by those for which it stands."""
    return list(
        dict.fromkeys(
            each for name in names for each in (on_any_ranks() if name == ALL else [name])
        )
    )


def _no_faults(history: object) -> object:
    """Raises ValueError with the remedy where it is a fault, with options or without."""
    name = next(iter(history), None) if isinstance(history, dict) else history
    if isinstance(name, str) and name in FAULTS:
        raise ValueError(f"it is one of faults: write faults: {name}")
    return history


FrameworkName = Annotated[str, OneOf((*FRAMEWORKS, ALL))]
Frameworks = Annotated[Sweep[FrameworkName], AfterValidator(_every_framework)]
FrameworkOrAvailable = Annotated[str, OneOf((*FRAMEWORKS, ALL, AVAILABLE))]
FrameworksOrAvailable = Annotated[Sweep[FrameworkOrAvailable], AfterValidator(_every_framework)]
DEFAULT_FRAMEWORKS = [name for name, entry in FRAMEWORKS.items() if not entry.optional]
ModelName = Annotated[str, OneOf(tuple(ARCHITECTURES))]
DatasetName = Annotated[str, OneOf(tuple(DATASETS))]
OptimizerName = Annotated[str, OneOf(get_args(Optimizer))]
PrecisionName = Annotated[str, OneOf(get_args(Precision))]
FORMATS = dict.fromkeys(
    format
    for framework in FRAMEWORKS
    for strategy in STRATEGIES
    if STRATEGIES[strategy].serves(framework)
    for format in formats_of(framework, strategy)
)
FormatName = Annotated[str, OneOf(("default", *FORMATS))]
StrategySpec = Annotated[PluginSpec, SpecOf("strategy", STRATEGIES)]
FaultsSpec = Annotated[PluginSpec, SpecOf("faults", FAULTS)]
RecoverySpec = Annotated[PluginSpec, SpecOf("recovery", RECOVERIES)]
HistoryName = Annotated[str, OneOf(HISTORIES), BeforeValidator(_no_faults)]
OmissionName = Annotated[str, OneOf(tuple(OMISSIONS))]
CacheName = Annotated[str, OneOf(("warm", "cold"))]


class Matrix(Section):
    """The axes of the study; a list is a sweep, and the matrix is the product of all."""

    framework: FrameworksOrAvailable = Field(default=DEFAULT_FRAMEWORKS)
    """Which frameworks train. `all`: all but `pytorch_hsdp`, also Horovod's, which are compiled first. `available`, with or without names: leave
    out each whose Python or compiler is not on this machine; the plan and the answer say which.
    """
    model: Sweep[ModelName] = Field(default=["resnet50"])
    """Which networks."""
    dataset: Sweep[DatasetName] = Field(default=["digits"])
    """Which datasets."""
    ranks: Sweep[Count] = Field(default=[1, 2])
    """Training processes: one GPU each, or an equal share of the CPU's cores."""
    batch_size: Sweep[Count] = Field(default=[32])
    """Samples per rank and step. A step of the run uses `ranks` times as many."""
    epochs: Sweep[Count] = Field(default=[3])
    """Epochs of each run."""
    optimizer: Sweep[OptimizerName] = Field(default=["sgd"])
    """SGD with momentum, or AdamW (β₁ 0.9, β₂ 0.95), which has two moments of every parameter."""
    precision: Sweep[PrecisionName] = Field(default=["fp32"])
    """`bf16`: products in bfloat16 (automatic mixed precision); parameters and optimizer stay in float32."""
    strategy: Sweep[StrategySpec] = Field(default=[NATIVE.name], validate_default=True)
    """Who writes what of a checkpoint: a name, or one with options as in `{name: {option: value}}`."""
    format: Sweep[FormatName] = Field(default=["default"])
    """The file format. `default`: the first one of the strategy, or else of the framework."""
    interval: Sweep[IntervalText] = Field(default=["never", 1], validate_default=True)
    """Between two checkpoints: `never` (the baseline, always added), a number of epochs, or steps of the whole run as in
    `"50 steps"`, below 10⁹.
    """
    deterministic: Sweep[Flag] = Field(default=[False])
    """Whether the framework's deterministic mode is on."""
    history: Sweep[HistoryName] = Field(default=[WHOLE])
    """`whole`: the run. `rerun`: a second run of the same seed."""
    faults: Sweep[FaultsSpec] = Field(default=[UNDISTURBED.name], validate_default=True)
    """[Which failures](#faults-and-recoveries) a run has; `killed_*` are for the [resume proof](#the-resume-proof)."""
    recovery: Sweep[RecoverySpec] = Field(default=[RESTART.name], validate_default=True)
    """How training goes on after a failure."""
    omit: Sweep[OmissionName] = Field(default=[NOTHING])
    """The part of the state that restarts of killed runs leave out on purpose: [negative controls](../docs/determinism.md#negative-controls)."""
    cache: Sweep[CacheName] = Field(default=["warm"])
    """Whether the page cache holds the checkpoint that a killed run restarts from."""

    @property
    def frameworks(self) -> list[str]:
        """Those that are named, and the default ones where `available` stands alone."""
        return [name for name in self.framework if name != AVAILABLE] or DEFAULT_FRAMEWORKS


KINDS_OF_AXES = {**get_type_hints(Matrix, include_extras=True), "framework": Frameworks}
Selection: Any = create_model(
    "Selection",
    __base__=Section,
    __doc__="Cells to drop: those that match every listed field; a list matches any of its values.",
    **{axis: (kind | None, None) for axis, kind in KINDS_OF_AXES.items() if axis in Matrix.model_fields},  # type: ignore[call-overload]
)  # fmt: skip

Addition: Any = create_model(
    "Addition",
    __base__=Selection,
    __doc__="Cells to add: the product of the lists, with the first value of the axis where a field is left out.",
    repeats=(Count | None, None),
)
"""`repeats`: runs of each of these cells, at most those of the study, after which they come."""


class TrainingSection(Section):
    """How every cell trains."""

    seed: Seed = 1
    """Repeat r uses `seed` + r, and so does its baseline."""
    learning_rate: Annotated[float, number(above=0, maximum=LARGEST_NUMBER)] = 0.01
    """Learning rate, not scaled with `ranks`. AdamW needs a smaller one: 0.001."""
    momentum: Annotated[float, number(minimum=0, below=1)] = 0.9
    """Momentum of SGD."""
    weight_decay: Annotated[float, number(minimum=0, maximum=LARGEST_NUMBER)] = 0.0
    """SGD adds this times the parameter to its gradient. AdamW decays by it, but no bias and no norm."""
    steps_per_epoch: Annotated[int | None, whole(1, LARGEST_NUMBER)] = None
    """Most steps of an epoch. Without: all whole batches of all ranks."""
    test_samples: Annotated[int | None, whole(0, 10**9)] = None
    """Most samples of the evaluation after each epoch; 0: no evaluation. Without: the test set."""
    warmup_steps: CountFromZero = 2
    """First steps of a run, left out of rates and overheads."""
    accumulation: Count = 1
    """Parts into which a step splits each rank's batch; their gradients add up before the one update. `batch_size` is a multiple of it."""
    proof: Flag | Literal["compared"] = False
    """Record digests of every tensor, and the final tensors (up to 64 MiB a rank), for the resume proof and the table
    `consistency`. `compared`: only in killed runs and reruns, and in the runs that they are compared with.
    """


class CheckpointSection(Section):
    """Where checkpoints go and how many stay."""

    folder: FolderOrUrl | None = None
    """Write checkpoints to `<folder>/<cell>/checkpoints`, for example on another file system. Give each study its own.
    `s3://BUCKET/PREFIX`: to an object store, with credentials and `AWS_ENDPOINT_URL` from the environment. Without: the run folders.
    """
    memory_folder: WholePath | None = None
    """Whole path of a folder in every node's memory, for the level `memory`. Without: `/dev/shm`."""
    node_folder: WholePath | None = None
    """The same on a disk of every node, for the level `node`. Without: `$TMPDIR` or `/tmp`."""
    keep_during_run: Count = 2
    """Versions kept while a run trains. A run with more than `keep_during_run` + 1 checkpoints reaches the [steady
    state](../docs/method.md#steady-state).
    """
    keep_after_run: CountFromZero = 0
    """Versions kept when a run has ended well, at most `keep_during_run`. Sizes are recorded before."""

    @model_validator(mode="after")
    def _keep_no_more_than_there_are(self) -> Self:
        if self.keep_after_run > self.keep_during_run:
            raise ValueError(
                f"keep_after_run is {self.keep_after_run}, and no more are there than keep_during_run, which is {self.keep_during_run}: "
                "lower the one or raise the other"
            )
        return self


DatasetSection: Any = create_model(
    "DatasetSection",
    __base__=Section,
    __doc__="Settings of each dataset.",
    **{name: (kind, kind()) for name, kind in DATASETS.items()},  # type: ignore[call-overload]
)


class ListedFailure(Section):
    """One failure of a list: when it strikes, whom, and how."""

    second: Annotated[float | None, number(minimum=0, maximum=LARGEST_NUMBER)] = None
    """Occur this long after the first step of the run began."""
    step: Annotated[int | None, whole(0, LARGEST_NUMBER)] = None
    """Or occur when this many steps are done."""
    moment: Literal["step", "save", "recovery"] = "step"
    """With `step`: when the next step begins, or the checkpoint of this step (`save`). `recovery`, without `step`: when
    the victim begins to recover from the failure before.
    """
    delay_s: Annotated[float, number(minimum=0, maximum=LARGEST_NUMBER)] = 0.0
    """Occur this much later."""
    rank: Annotated[int | None, whole(0, LARGEST_NUMBER)] = None
    """The victim."""
    node: Annotated[int | None, whole(0, LARGEST_NUMBER)] = None
    """Or all ranks of this node, from 0."""
    kind: Annotated[str, OneOf(tuple(FAILURE_KINDS))] = "kill"
    """What happens to the victim."""
    lasts_s: Annotated[float, number(above=0, maximum=LARGEST_NUMBER)] = 5.0
    """How long a victim hangs, is slow, or cannot write."""

    @model_validator(mode="after")
    def _can_strike(self) -> Self:
        try:
            self.failure()
        except ConfigError as error:
            raise ValueError(str(error)) from error
        return self

    def failure(self) -> Failure:
        """Raises ConfigError where it has no victim or no time, or two."""
        return Failure.from_json(self.model_dump(exclude_none=True))


class LimitSection(Section):
    """When a run is given up."""

    run_minutes: Annotated[float | None, number(above=0, maximum=LARGEST_NUMBER)] = None
    """End a run that takes longer, and count it as failed."""


class StudyConfig(Section):
    """The whole config file."""

    accelerator: Literal["cpu", "cuda"] = "cpu"
    """The device of all cells. `cuda`: NVIDIA GPUs, one a rank (`envs/<framework>-cuda.txt`)."""
    matrix: Matrix = Matrix()
    """The [axes](#matrix); the matrix is their product."""
    exclude: list[Selection] = Field(default=[])
    """[Combinations to drop](#exclude-and-include)."""
    include: list[Addition] = Field(default=[])
    """[Cells to add](#exclude-and-include)."""
    repeats: Count = 3
    """Runs of every cell, each with a seed of its own. A study has at most 10,000 cells, repeats included."""
    training: TrainingSection = TrainingSection()
    """[How every cell trains](#training)."""
    checkpoints: CheckpointSection = CheckpointSection()
    """[Where checkpoints go, and how many stay](#checkpoints)."""
    datasets: DatasetSection = DatasetSection()
    """[Settings of the datasets](#datasets)."""
    failures: dict[
        Annotated[str, Field(pattern="^[A-Za-z0-9_]+$")],
        Annotated[list[ListedFailure], Field(min_length=1)],
    ] = Field(default={})
    """[Lists of failures](#failures) by name."""
    resume: Flag = False
    """Whether an interrupted run [continues](#resume-and-changes) from its newest complete checkpoint."""
    environments: dict[EnvironmentName, EnvironmentSpec] = Field(default={})
    """By name, [environments that are there](../docs/cluster.md#an-environment-that-is-there), into which nothing is installed: each has
    its `python: PATH`, or a `command: apptainer exec --nv image.sif python`, or is `present`, as `python` on PATH.
    """
    limits: LimitSection = LimitSection()
    """`run_minutes`: when a run is given up."""
    decision: DecisionSection = DecisionSection()
    """[What to decide for](#decision)."""
    trainers: TrainersSection | None = None
    """Check [trainers](../docs/trainers.md) in place of the study: `config/trainers.yaml`."""

    def failures_of(self, cell: Cell) -> tuple[Failure, ...]:
        """The list of failures that the faults of the cell name; empty if they name none."""
        return tuple(each.failure() for each in self.failures.get(cell.failure_list or "", ()))

    def training_of_cells(self) -> Training:
        return Training(
            **self.training.model_dump(), keep_during_run=self.checkpoints.keep_during_run
        )


def load_config(content: Mapping[str, Any], paths: Sequence[Path] = ()) -> StudyConfig:
    """Check the content of the config file(s). `paths` are named in errors.

    Raises ConfigError with one line for each wrong value: files, field, value, and what is allowed.
    """
    return checked(StudyConfig, ConfigFiles.read(content, paths))


def schema() -> dict[str, Any]:
    """The JSON schema of the config file: workflow/schemas/config.schema.json."""
    return {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        **json_schema(StudyConfig),
    }
