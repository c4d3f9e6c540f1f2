"""The page on the events of a trace: `python -m ckptbench.runs.document > docs/trace.md`."""

from __future__ import annotations

import dataclasses
import typing
from typing import Any, Literal, get_args

from ckptbench.runs.events import KINDS

INTRODUCTION = """\
# The trace

`trace-<rank>.jsonl` records the work of one rank, with times. Every line is a JSON object and holds one event.
`ckptbench.runs.trace.read_trace` reads a trace into these types.

This page is generated from `src/ckptbench/runs/events.py` by `python -m ckptbench.runs.document`. A test fails if the
page and the module differ.

- Every `*_ns` is a whole number of nanoseconds of the host's monotonic clock, which all ranks of the host share. The
  analysis takes differences only within one trace, because ranks may be on different hosts.
- Every `unix_ns` is that clock and an offset, which the launcher of the first attempt has read once from the wall clock. All processes
  on its host share it, so no time of a run changes if the wall clock is set. Processes on other hosts, and a launcher after a restart
  of the host, read their own wall clocks. If these say that a rank's later process began before its earlier one ended, the table
  `runs` leaves `wall_s` out, and a run that failures struck is refused.
- Epochs count from 0. `step` counts the completed steps of the whole run.
- A field that has no value is left out.
- The stall of a checkpoint is the sum of its `save` and its `hold`s, on the slowest rank. A `hold` at the end of training
  does not count: nothing else was left to do.
- Old versions are removed behind training. From the start of a `retained` event to its end the rank's steps may be slower.
- A save may go on in the background after its `save` event. Until `captured` the state must not change. Until `written`
  the rank's steps may be slower. From `durable` on the version survives a crash or a power failure.
- A resumed attempt appends to the same file. If a kill left the last line incomplete, that line is removed first.
- Two attempts may hold the same step, epoch or checkpoint. Then the later one counts.
- Steps are written at the end of their epoch, so the steps of an epoch that a kill cut short are missing. The steps
  before a `stop` are written. Killed cells also write their steps at every checkpoint.
"""


def document() -> str:
    """The text of docs/trace.md."""
    sections = [_section(name, kind) for name, kind in KINDS.items()]
    return "\n".join([INTRODUCTION, *sections])


def _section(name: str, kind: type[Any]) -> str:
    hints = typing.get_type_hints(kind, include_extras=True)
    rows = [
        f"| `{field.name}` | {_type_name(hints[field.name])} | {_meaning(hints[field.name])} |"
        for field in dataclasses.fields(kind)
    ]
    lines = [
        f"## {name}",
        "",
        f"{kind.__doc__} Written {kind.moment}.",
        "",
        "| field | type | meaning |",
        "| --- | --- | --- |",
        *rows,
    ]
    return "\n".join(lines) + "\n"


def _meaning(hint: Any) -> str:
    return hint.__metadata__[0] if hasattr(hint, "__metadata__") else ""


def _type_name(hint: Any) -> str:
    plain = hint.__origin__ if hasattr(hint, "__metadata__") else hint
    if typing.get_origin(plain) is Literal:
        return "text"
    if typing.get_origin(plain) is list:
        return "list"
    if typing.get_origin(plain) is dict:
        return "object"
    options = [option for option in get_args(plain) if option is not type(None)] or [plain]
    names = {int: "integer", float: "number", str: "text"}
    return names.get(options[0], "text")


if __name__ == "__main__":
    print(document(), end="")
