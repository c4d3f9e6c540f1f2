"""The fields of a settings file as lines of a page: what each means, takes, and is where no file sets it.

A page marks the place of a model's fields by `<!--fields:NAME-->`. What stands between this line and the next
`<!--end-->` is written from the model.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from typing import Any

from pydantic.fields import FieldInfo

from ckptbench.matrix.variant import Variant
from ckptbench.settings.section import Section

BLOCK = re.compile(r"(<!--fields:(\w+)-->\n).*?(?=<!--end-->)", re.DOTALL)
MOST_NAMES = 6
"""A field that takes more names than these has them on another page, which its description names."""
LARGEST_SHOWN = 10**6
"""Of the bounds above this the page says only that there are some."""
KINDS = {"integer": "integer", "number": "number", "string": "text"}


def with_fields(page: str, models: Mapping[str, type[Section]]) -> str:
    """The page, with the fields of the models where it marks their places. Raises KeyError for a model that is not given."""
    return BLOCK.sub(lambda block: f"{block[1]}{fields(models[block[2]])}", page)


def fields(model: type[Section]) -> str:
    """One line for each field of the model."""
    schemas = model.model_json_schema()["properties"]
    names = {each.alias or name: each for name, each in model.model_fields.items()}
    return "".join(_line(name, each, schemas[name]) for name, each in names.items())


def _line(name: str, each: FieldInfo, schema: Mapping[str, Any]) -> str:
    shown = not each.is_required() and not isinstance(each.default, Section)
    default = "" if not shown else "optional" if each.default is None else f"default `{_as_yaml(each.default)}`"  # fmt: skip
    in_brackets = "; ".join(filter(None, [_allowed(schema), default]))
    return f"- `{name}`{f' ({in_brackets})' if in_brackets else ''}: {each.description}\n"


def _as_yaml(value: object) -> str:
    if isinstance(value, float) and value.is_integer():
        value = int(value)
    return json.dumps(value, default=Variant.to_json).replace('"', "")


def _allowed(schema: Mapping[str, Any]) -> str:
    """What a field takes, in words; empty where its description says it."""
    if names := schema.get("enum"):
        return ", ".join(f"`{name}`" for name in names) if len(names) <= MOST_NAMES else ""
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
