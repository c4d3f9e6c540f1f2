"""The vocabulary of traces: every event is read back as it was written."""

from __future__ import annotations

import dataclasses
import json
import typing
from typing import Any, get_args

import pytest

from ckptbench.run.events import KINDS, Event, File, from_json, to_json

FILES = [File(name="model.pt", kind="state", bytes=5), File(name="a", kind="own", rank=1, bytes=2)]


def example(kind: type[Any]) -> Any:
    """An event of this kind whose every field has a value."""
    hints = typing.get_type_hints(kind)
    return kind(
        **{field.name: _value(field.name, hints[field.name]) for field in dataclasses.fields(kind)}
    )


def _value(name: str, hint: Any) -> Any:
    if name == "files":
        return FILES
    options = [hint, *get_args(hint)]
    if typing.get_origin(hint) is typing.Literal:
        return get_args(hint)[0]
    if typing.get_origin(hint) is list:
        return [get_args(hint)[0](1)]
    if typing.get_origin(hint) is dict:
        return {"name": _value(name, typing.get_args(hint)[1])}
    return next(kind(1) for kind in (int, float, str) if kind in options)


@pytest.mark.parametrize("kind", KINDS.values(), ids=KINDS)
def test_an_event_is_read_back_as_it_was_written(kind: type[Event]) -> None:
    event = example(kind)
    assert from_json(json.loads(json.dumps(to_json(event)))) == event


def test_every_event_of_the_union_is_known_by_its_name() -> None:
    assert set(KINDS.values()) == set(get_args(Event))
    assert "save_failed" in KINDS


def test_a_field_that_only_other_versions_have_is_left_out() -> None:
    stop = KINDS["stop"](step=3)
    assert from_json({**to_json(stop), "held_bytes": 5}) == stop


def test_a_field_without_value_is_left_out() -> None:
    line = to_json(KINDS["phase"](name="build", start_ns=1, end_ns=2))
    assert line == {"event": "phase", "name": "build", "start_ns": 1, "end_ns": 2}
