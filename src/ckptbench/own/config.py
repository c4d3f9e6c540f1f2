"""The settings of a study of an own training: a command with placeholders, and the values that take their places."""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Annotated, Any

from pydantic import BeforeValidator, Field

from ckptbench.config.decision import DecisionSection
from ckptbench.config.reading import HIDDEN, ConfigFiles, FieldError
from ckptbench.config.section import Section, checked
from ckptbench.config.study import LimitSection, StudyConfig
from ckptbench.config.values import Count, CountFromZero, Flag, PathOrNull, whole
from ckptbench.launch.inheritance import is_secret
from ckptbench.matrix.plugin_spec import NAME

FOLDER = "folder"
"""The placeholder of the fresh folder for the checkpoints of a run."""
PLACEHOLDER = re.compile(r"(?<!\$)\{([A-Za-z_][A-Za-z0-9_]*)\}")
"""`${NAME}` is a shell's, and other braces are the command's own."""
OF_SHELLS = re.compile(r"&&?|\|\|?|;|\d?>>?(&\d)?|<")
"""Words that only a shell understands."""


def placeholders(text: str) -> list[str]:
    """Their names, each once, in the order of the text."""
    return list(dict.fromkeys(PLACEHOLDER.findall(text)))


def filled(text: str, values: Mapping[str, str]) -> str:
    """The text with values in the places of their names. Other placeholders stay."""
    return PLACEHOLDER.sub(lambda found: values.get(found[1], found[0]), text)


def _text(value: object) -> str:
    if isinstance(value, bool) or value is None or not isinstance(value, str | int | float):
        raise ValueError(
            "use a text or a number; what YAML reads as something else, such as yes or true, goes into quotes"
        )
    return str(value)


def _labelled(value: object) -> object:
    """A list as a mapping in which each value is its own label. Raises ValueError where one cannot be part of a file's name."""
    if isinstance(value, Mapping):
        texts = {str(label): _text(each) for label, each in value.items()}
    elif isinstance(value, list):
        texts = {text: text for text in map(_text, value)}
        if len(texts) < len(value):
            raise ValueError("a value is there twice: remove one")
    else:
        raise ValueError("use a list of values, or a mapping from labels to values")
    for label in texts:
        if not re.fullmatch(NAME, label):
            raise ValueError(
                f"{label!r} is to be part of the names of files, so only letters (a-z, A-Z), digits, _, . and - may be in it: "
                "give it a label, as in {plain: '', async: '--async 1'}"
            )
    return texts


def _instead(value: object) -> object:
    """A command, or the texts that stand in place of values."""
    if isinstance(value, str) and value:
        return value
    if isinstance(value, Mapping) and value:
        return {str(name): _text(each) for name, each in value.items()}
    raise ValueError(
        "use a value for a placeholder with which nothing is saved, as in {interval: 1000000}, or a whole command"
    )


Scalar = str | int | float
Text = Annotated[str, BeforeValidator(_text, json_schema_input_type=Scalar)]
Instead = Annotated[
    str | dict[str, str],
    BeforeValidator(_instead, json_schema_input_type=str | dict[str, Scalar]),
]
Labelled = Annotated[
    dict[str, str],
    Field(min_length=1),
    BeforeValidator(
        _labelled,
        json_schema_input_type=list[Scalar] | dict[str, Scalar],
    ),
]


class OwnSection(Section):
    """The training, and what varies."""

    command: Annotated[str, Field(min_length=1)] = Field(
        description="The command that trains, as you start it today, without a shell. {folder} is a fresh folder for the checkpoints of "
        "the run; each other placeholder has its values in `values`. A value may be several words.",
    )
    values: Annotated[dict[str, Labelled], Field(min_length=1)] = Field(
        description="Of each placeholder a list of values, or a mapping from a label to each value. The matrix is their product.",
    )
    baseline: Instead = Field(
        description="The run without checkpoints: values that stand in place of the others, or a command of its own. Where it leaves "
        "placeholders to `values`, each combination of these has its own baseline.",
    )
    environment: dict[str, Text] = Field(
        default={},
        description="Environment variables of the command, beside yours. They may have placeholders, too. They are recorded: a secret stays in your "
        "shell.",
    )
    directory: PathOrNull = Field(
        default=None,
        description="The folder in which the command runs; null for that of the workflow.",
    )
    folder: PathOrNull = Field(
        default=None,
        description="Make the folders for checkpoints below this one (another file system, say); null for the run folders.",
    )
    keep: Flag = Field(
        default=False, description="Whether the checkpoints stay when their run has ended."
    )
    ranks: Count = Field(default=1, description="Tasks that a run gets from a scheduler.")
    gpus: CountFromZero = Field(
        default=0, description="GPUs that a run gets from a scheduler; 0 where it trains on CPUs."
    )


class OwnConfig(Section):
    """The whole config of a study of an own training."""

    own: OwnSection
    repeats: Annotated[int, whole(1, 1000)] = Field(
        default=3, description="Runs of every combination of values, and of every baseline."
    )
    limits: LimitSection = LimitSection()
    decision: DecisionSection = DecisionSection()


def load_own_config(content: Mapping[str, Any], paths: Sequence[Path] = ()) -> OwnConfig:
    """Check the content of the config files. Raises ConfigError with one line for each wrong value."""
    sources = ConfigFiles.read(content, paths)
    sources.refuse(_other_sections(content))
    config = checked(OwnConfig, sources)
    sources.refuse(_faults(config.own))
    return config


def own_schema() -> dict[str, Any]:
    """The JSON schema of such a config file: workflow/schemas/own.schema.json."""
    return {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        **OwnConfig.model_json_schema(),
    }


def _other_sections(content: Mapping[str, Any]) -> Iterator[FieldError]:
    """Of the study that trains what ckptbench has itself."""
    beside = [name for name in OwnConfig.model_fields if name != "own"]
    for name in content:
        if name in StudyConfig.model_fields and name not in OwnConfig.model_fields:
            yield FieldError(
                (name,),
                f"a study of an own training has no such section: beside own it has {', '.join(beside)}",
                content[name],
            )


def _faults(own: OwnSection) -> Iterator[FieldError]:
    """Values that do not fit one another, or that are no command."""
    commands: dict[tuple[str, ...], str] = {("own", "command"): own.command}
    if isinstance(own.baseline, str):
        commands["own", "baseline"] = own.baseline
    variables = {("own", "environment", name): text for name, text in own.environment.items()}
    named = [name for text in (own.command, *variables.values()) for name in placeholders(text)]
    for location, command in commands.items():
        yield from _command_faults(location, command)
    if FOLDER not in named:
        yield FieldError(
            ("own", "command"),
            "the training does not learn where to save: give it {folder}, as in --output {folder}",
            own.command,
        )
    for name in filter(is_secret, own.environment):
        yield FieldError(
            ("own", "environment", name),
            "this would be recorded, and shown to every user by ps: set a secret in the shell that starts Snakemake, whose variables the "
            "command has as well, unrecorded",
            HIDDEN,
        )
    for location, text in [*commands.items(), *variables.items()]:
        for name in placeholders(text):
            if name not in own.values and name != FOLDER:
                yield FieldError(
                    location,
                    f"{{{name}}} has no values: add them as own.values.{name}, or correct the name",
                    text,
                )
    for name in own.values:
        if not re.fullmatch(PLACEHOLDER, f"{{{name}}}") or name == FOLDER:
            yield FieldError(
                ("own", "values", name),
                "a placeholder has a name of letters, digits and _, and {folder} is made by the study: rename it",
            )
        elif name not in named:
            yield FieldError(
                ("own", "values", name),
                f"these values have no place: write {{{name}}} into own.command, or remove them",
            )
    for name in own.baseline if isinstance(own.baseline, dict) else ():
        if name not in own.values:
            yield FieldError(
                ("own", "baseline", name),
                f"own.values has no such placeholder ({', '.join(own.values)}): correct the name",
            )


def _command_faults(location: tuple[str, ...], command: str) -> Iterator[FieldError]:
    """One at most."""
    try:
        words = shlex.split(command)
    except ValueError as error:
        yield FieldError(
            location, f"{str(error).lower()}: quotes must come in pairs, as in a shell", command
        )
        return
    if not words:
        yield FieldError(location, "there is no program in it: write the command", command)
    elif alone := next((word for word in words if OF_SHELLS.fullmatch(word)), None):
        yield FieldError(
            location,
            f"no shell reads the command, so {alone} would be a word of it: put what needs a shell into a script, or into bash -c '...'",
            command,
        )
    elif re.match(r"[A-Za-z_]\w*=", words[0]):
        yield FieldError(
            location, f"no shell reads {words[0]}: set the variable in own.environment", command
        )
    elif Path(words[0]).name == "ckptbench-probe":
        yield FieldError(
            location,
            "the study itself puts the probe before the command: write what follows --",
            command,
        )
