"""The models of the config file: types, bounds, defaults, and the words of each error."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, Literal, TypeVar

import yaml
from pydantic import AfterValidator, BaseModel, BeforeValidator, ConfigDict, Field, ValidationError
from pydantic_core import CoreSchema, core_schema

from ckptbench.errors import ConfigError
from ckptbench.matrix.catalogue import FRAMEWORKS, HISTORIES, NOTHING, OMISSIONS, WHOLE
from ckptbench.networks.models import ARCHITECTURES
from ckptbench.runs.training import Training

T = TypeVar("T")


@dataclass(frozen=True)
class OneOf:
    """Annotation of a string that must be one of these names. The schema lists them."""

    names: tuple[str, ...]

    def __get_pydantic_core_schema__(self, _source: Any, _handler: Any) -> CoreSchema:
        return core_schema.literal_schema(list(self.names))


class OneOrMore:
    """Annotation of a list: a single value counts as a list of one."""

    def __get_pydantic_core_schema__(self, source: Any, handler: Any) -> CoreSchema:
        return core_schema.no_info_before_validator_function(_as_list, handler(source))

    def __get_pydantic_json_schema__(self, schema: CoreSchema, handler: Any) -> dict[str, Any]:
        several = handler(schema)
        return {"anyOf": [several["items"], several]}


def _as_list(value: object) -> object:
    return value if isinstance(value, list) else [value]


ALL = "all"
"""The word for every framework of the registry, including those whose environments are compiled."""


def _every_framework(names: list[str]) -> list[str]:
    """The names, each once. `all` is replaced by the names of the registry."""
    return list(
        dict.fromkeys(each for name in names for each in (FRAMEWORKS if name == ALL else [name]))
    )


Sweep = Annotated[list[T], Field(min_length=1), OneOrMore()]
FrameworkName = Annotated[str, OneOf((*FRAMEWORKS, ALL))]
Frameworks = Annotated[Sweep[FrameworkName], AfterValidator(_every_framework)]
ModelName = Annotated[str, OneOf(tuple(ARCHITECTURES))]
DatasetName = Annotated[str, OneOf(("digits", "cifar10", "synthetic"))]
FORMATS = dict.fromkeys(name for entry in FRAMEWORKS.values() for name in entry.formats)
FormatName = Annotated[str, OneOf(("default", *FORMATS))]
HistoryName = Annotated[str, OneOf(HISTORIES)]
OmissionName = Annotated[str, OneOf(OMISSIONS)]
CacheName = Annotated[str, OneOf(("warm", "cold"))]
Count = Annotated[int, Field(strict=True, ge=1)]
CountFromZero = Annotated[int, Field(strict=True, ge=0)]
Flag = Annotated[bool, Field(strict=True)]
Folder = Annotated[str, Field(strict=True, min_length=1), AfterValidator(os.path.expanduser)]
Finite = Annotated[float, Field(allow_inf_nan=False)]
# NumPy's old generator, which Chainer draws from, takes 32 bits; repeats and ranks are added to the seed.
Seed = Annotated[int, Field(strict=True, ge=0, lt=2**31)]

INTERVAL_HELP = 'use "never", a whole number of epochs from 1, or steps as in "50 steps"'


def _interval(value: object) -> str:
    """An interval as the config writes it, in the words that `Interval` reads."""
    match value:
        case "never":
            return "never"
        case int() if not isinstance(value, bool) and value >= 1:
            return f"e{value}"
        case str():
            number, _, unit = value.partition(" ")
            if unit in ("step", "steps") and number.isdecimal() and int(number) >= 1:
                return f"s{int(number)}"
    raise ValueError(INTERVAL_HELP)


IntervalText = Annotated[
    str, BeforeValidator(_interval, json_schema_input_type=Literal["never"] | Count | str)
]


class Section(BaseModel):
    """A mapping of the config file: unknown keys are errors, so that a typing error is not a default."""

    model_config = ConfigDict(extra="forbid", frozen=True, protected_namespaces=())


class Matrix(Section):
    """The axes of the study; a list is a sweep, and the matrix is the product of all."""

    framework: Frameworks = Field(
        default=[name for name, entry in FRAMEWORKS.items() if not entry.optional],
        description="Which frameworks train. `all` is every one, those too that are compiled first.",
    )
    model: Sweep[ModelName] = Field(
        default=["resnet50"], description="Which networks (`ckptbench.networks`)."
    )
    dataset: Sweep[DatasetName] = Field(
        default=["digits"], description="What they train on; see `datasets`."
    )
    ranks: Sweep[Count] = Field(
        default=[1, 2],
        description="Training processes, one accelerator (or share of the CPU) each.",
    )
    batch_size: Sweep[Count] = Field(default=[32], description="Samples per rank and step.")
    epochs: Sweep[Count] = Field(default=[3], description="Epochs of each run.")
    format: Sweep[FormatName] = Field(
        default=["default"],
        description="How checkpoints lie in files. `default` is the first format of each framework; a named "
        "one is used with the frameworks that write it.",
    )
    interval: Sweep[IntervalText] = Field(
        default=["never", "e1"],
        description="Between two checkpoints: `never` (the baseline, always added), epochs as a whole number, "
        'or steps as in "50 steps".',
        validate_default=False,
    )
    deterministic: Sweep[Flag] = Field(
        default=[False], description="Whether the framework's deterministic mode is on."
    )
    history: Sweep[HistoryName] = Field(
        default=[WHOLE],
        description="How a run is disturbed. `whole`: not at all. `again`: not at all; a second run of the same seed. "
        "`killed_between`: SIGKILL between two checkpoints, and a restart. `killed_inside`: SIGKILL while a checkpoint "
        "is written, and a restart. `killed_thrice`: three kills, of both kinds. Each gets its uninterrupted run.",
    )
    omit: Sweep[OmissionName] = Field(
        default=[NOTHING],
        description="What the restarts of killed runs leave out on purpose: negative controls. Each is used with the "
        "frameworks that need that part.",
    )
    cache: Sweep[CacheName] = Field(
        default=["warm"],
        description="Whether the page cache holds the checkpoint that a killed run restarts from.",
    )


class Selection(Section):
    """A combination to drop: cells that match every field given; a list matches any of its values."""

    framework: Frameworks | None = None
    model: Sweep[ModelName] | None = None
    dataset: Sweep[DatasetName] | None = None
    ranks: Sweep[Count] | None = None
    batch_size: Sweep[Count] | None = None
    epochs: Sweep[Count] | None = None
    format: Sweep[FormatName] | None = None
    interval: Sweep[IntervalText] | None = None
    deterministic: Sweep[Flag] | None = None
    history: Sweep[HistoryName] | None = None
    omit: Sweep[OmissionName] | None = None
    cache: Sweep[CacheName] | None = None


class Addition(Selection):
    """Cells to add: the product of the lists. A field left out takes the first value of its axis."""


class TrainingSection(Section):
    """How every cell trains."""

    seed: Seed = Field(default=1, description="Repeat r uses seed + r.")
    learning_rate: Finite = Field(default=0.01, gt=0, description="Of SGD with momentum.")
    momentum: Finite = Field(default=0.9, ge=0, lt=1, description="0.9 in all three studies.")
    weight_decay: Finite = Field(default=0.0, ge=0, description="Added to every gradient.")
    steps_per_epoch: Count | None = Field(
        default=None,
        description="At most this many steps an epoch; null for the whole training set.",
    )
    test_samples: CountFromZero | None = Field(
        default=None,
        description="Evaluate on at most this many samples after each epoch; null for all, 0 for none.",
    )
    warmup_steps: CountFromZero = Field(
        default=2, description="First steps of a run, timed apart and left out of rates."
    )
    proof: Flag = Field(
        default=False,
        description="Record digests of the whole state at every epoch, and keep all tensors of the end (up to 64 MiB a "
        "rank): what the tables and figures of the resume proof compare.",
    )


class CheckpointSection(Section):
    """Where checkpoints go and how many stay."""

    folder: Folder | None = Field(
        default=None,
        description="Write checkpoints below this folder (another file system, say); null for the run folders.",
    )
    keep_during_run: Count = Field(
        default=2, description="Versions kept while training; older ones go after each commit."
    )
    keep_after_run: CountFromZero = Field(
        default=0, description="Versions kept when a run has ended and their sizes are known."
    )


class Cifar10Section(Section):
    """Where CIFAR-10 comes from."""

    archive: Path | None = Field(
        default=None, description="The official cifar-10-python.tar.gz; null to download it."
    )


class SyntheticSection(Section):
    """The shape of the made-up dataset."""

    height: Count = 32
    width: Count = 32
    channels: Count = 3
    classes: Annotated[int, Field(strict=True, ge=2)] = 10
    train_samples: Count = 2048
    test_samples: Count = 512
    seed: Seed = 0


class DatasetSection(Section):
    """What each dataset is made from; `digits` needs nothing."""

    cifar10: Cifar10Section = Cifar10Section()
    synthetic: SyntheticSection = SyntheticSection()


class LimitSection(Section):
    """When a run is given up."""

    run_minutes: Annotated[Finite, Field(gt=0)] | None = Field(
        default=None, description="End a run that takes longer than this; null for no limit."
    )


class StudyConfig(Section):
    """The whole config file."""

    accelerator: Literal["cpu", "cuda"] = Field(
        default="cpu",
        description="`cuda` selects the environments for NVIDIA GPUs, one GPU a rank.",
    )
    matrix: Matrix = Matrix()
    exclude: list[Selection] = Field(default=[], description="Combinations to drop.")
    include: list[Addition] = Field(
        default=[], description="Cells to add: of each entry the product of its lists."
    )
    repeats: Count = Field(
        default=3, description="Runs of every cell, each with a seed of its own."
    )
    training: TrainingSection = TrainingSection()
    checkpoints: CheckpointSection = CheckpointSection()
    datasets: DatasetSection = DatasetSection()
    resume: Flag = Field(
        default=False,
        description="Let an interrupted run go on from its newest complete checkpoint. Its times are then "
        "left out of every timing table; its training curve is kept.",
    )
    limits: LimitSection = LimitSection()

    def training_of_cells(self) -> Training:
        return Training(
            **self.training.model_dump(), keep_during_run=self.checkpoints.keep_during_run
        )


def load_config(content: Mapping[str, Any], sources: Sequence[Path] = ()) -> StudyConfig:
    """Check the content of the config file(s). `sources` are named in errors, later ones override.

    Raises ConfigError with one line for each wrong value: file, field, value, and what is allowed.
    """
    try:
        return StudyConfig.model_validate(dict(content))
    except ValidationError as error:
        lines = [_explain(entry, sources) for entry in error.errors()]
        raise ConfigError("\n".join(lines)) from None


def _explain(entry: Any, sources: Sequence[Path]) -> str:
    field = "".join(f"[{part}]" if isinstance(part, int) else f".{part}" for part in entry["loc"])
    where = f"{_source_of(entry['loc'], entry['input'], sources)}: {field.lstrip('.')}"
    if entry["type"] == "extra_forbidden":
        return f"{where} is no field of the config: config/README.md lists them all"
    allowed = _allowed(entry["msg"])
    return f"{where} is {entry['input']!r}: {allowed}"


def _allowed(message: str) -> str:
    """The message of pydantic as an instruction."""
    words = message.removeprefix("Value error, ")
    for bound in ("greater", "less"):
        words = words.replace(f"Input should be {bound}", f"use a number {bound}")
    return words.replace("Input should be", "use").replace("a valid boolean", "true or false")


def _source_of(location: tuple[int | str, ...], value: object, sources: Sequence[Path]) -> str:
    """The file that sets a field to this value: the last one that does, else the command line."""
    for source in reversed(sources):
        if _sets(yaml.safe_load(source.read_text(encoding="utf-8")), location, value):
            return str(source)
    return "--config" if sources else "config"


def _sets(content: Any, location: tuple[int | str, ...], value: object) -> bool:
    for part in location:
        if isinstance(part, int) and not isinstance(content, list):
            break  # a single value, which is a list of one
        try:
            content = content[part]
        except (KeyError, IndexError, TypeError):
            return False
    return bool(content == value)


def schema() -> dict[str, Any]:
    """The JSON schema of the config file: workflow/schemas/config.schema.json."""
    return {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        **StudyConfig.model_json_schema(),
    }
