"""The fields of the settings files, from their models: a line for each, with what it takes and its default."""

from __future__ import annotations

import inspect
import json
from collections.abc import Mapping
from typing import Any

from ckptbench.config import study as config
from ckptbench.config.decision import DecisionSection
from ckptbench.config.section import json_schema
from ckptbench.config.trainers import TrainersSection
from ckptbench.decide.failure_file import FailureFile
from ckptbench.decide.user_costs import UserCosts, UserRecovery, UserStrategy
from ckptbench.inputs.datasets.sources import DATASETS
from ckptbench.trainers.trainer import Trainer

MODELS = (
    config.StudyConfig,
    config.Matrix,
    config.TrainingSection,
    config.CheckpointSection,
    config.ListedFailure,
    config.LimitSection,
    DecisionSection,
    FailureFile,
    UserCosts,
    UserStrategy,
    UserRecovery,
    TrainersSection,
    Trainer,
)

MOST_NAMES = 7
"""A field that takes more names than these has them elsewhere, where its description says."""
LARGEST_SHOWN = 10**6
"""Of the bounds above this the page says only that there are some."""
WITHOUT = "Without: "
"""In the description of a field that may be left out."""
KINDS = {"integer": "integer", "number": "number", "string": "text"}


def datasets() -> str:
    """Each dataset: what its class says, and its settings."""
    parts: list[str] = []
    for name, kind in DATASETS.items():
        parts += [f"`{name}`: {inspect.getdoc(kind)}\n", fields(kind)]
    return "\n" + "\n".join(filter(None, parts))


def fields(model: type) -> str:
    """One line for each field of the model: a pydantic model, or a dataclass of which pydantic makes one."""
    schema = json_schema(model)
    required = schema.get("required", ())
    return "".join(
        _line(name, each, name in required) for name, each in schema["properties"].items()
    )


def _line(name: str, schema: Mapping[str, Any], is_required: bool) -> str:
    shown = not is_required and "$ref" not in schema
    default = schema.get("default")
    meaning = " ".join(schema["description"].split())
    optional = "" if WITHOUT in meaning else "optional"
    words = (
        "" if not shown else optional if default in (None, "") else f"default `{_as_yaml(default)}`"
    )
    in_brackets = "; ".join(filter(None, [_allowed(schema), words]))
    return f"- `{name}`{f' ({in_brackets})' if in_brackets else ''}: {meaning}\n"


def _as_yaml(value: object) -> str:
    if isinstance(value, dict) and value.keys() == {"value", "interval"}:  # an Estimate
        value = value["value"]
    if isinstance(value, float) and value.is_integer():
        value = int(value)
    return json.dumps(value).replace('"', "")


def _allowed(schema: Mapping[str, Any]) -> str:
    """What a field takes, in words; empty where its description says it."""
    if names := schema.get("enum"):
        return ", ".join(f"`{name}`" for name in names) if len(names) <= MOST_NAMES else ""
    if "const" in schema:
        return f"`{schema['const']}`"
    if schema.get("format") == "time":
        return "time"
    if schema.get("type") in KINDS:
        return " ".join(filter(None, [KINDS[schema["type"]], _bounds(schema)]))
    several = {_allowed(each) for each in schema.get("anyOf", ()) if each.get("type") != "array"}
    several.discard("")
    return several.pop() if len(several) == 1 else ""


def _bounds(schema: Mapping[str, Any]) -> str:
    least, above = schema.get("minimum"), schema.get("exclusiveMinimum")
    most, below = schema.get("maximum", LARGEST_SHOWN), schema.get("exclusiveMaximum")
    words = [f"above {above}" if above is not None else f"from {least}" if least else ""]  # fmt: skip
    words.append(f"to {most:,}" if most < LARGEST_SHOWN else f"below {below}" if below is not None else "")  # fmt: skip
    return " ".join(filter(None, words))
