"""The page on the events of a trace: `python scripts/write_trace_page.py > docs/trace.md`."""

from __future__ import annotations

import dataclasses
import typing
from typing import Any

from ckptbench.runs.events import KINDS

INTRODUCTION = """\
# The trace

What does each event in `trace-<rank>.jsonl`, `launcher.jsonl` and `strikes-<rank>.jsonl` of a [run folder](run-folder.md) mean? Every line is a JSON object and
holds one event, written at the moment in italics; `ckptbench.runs.trace.read_trace` reads it. Written from `src/ckptbench/runs/events.py` by `python scripts/write_trace_page.py`; a test fails
where the two differ.

- Fields in `_ns` are nanoseconds of the host's monotonic clock: compare them within one host. `unix_ns` is that clock plus an offset, read once for a run, so that
  setting the wall clock changes no time. Another host, or one that was booted anew, has its own; where these disagree, `runs` has no `wall_s`.
- `epoch` counts from 0. `step` is the number of completed steps of the whole run. A field without a value is left out.
- Until `captured` the state must not change. Until `written`, and during `retained`, steps may be slower. From `durable` on the version survives a power cut.
- A resumed attempt appends. If two attempts have the same step, epoch or checkpoint, the later counts. Steps are written when their epoch ends, so those of an
  epoch that a kill cut short are missing; runs that failures strike write them after every step.
"""
SAID_ABOVE = {
    "step": "completed steps of the whole run", "epoch": "from 0",
    "unix_ns": "ns since 1970, at the same moment as `monotonic_ns`",
}  # fmt: skip
"""Meanings that the introduction has."""


def document() -> str:
    """The text of docs/trace.md."""
    sections = [_section(name, kind) for name, kind in KINDS.items()]
    return "\n".join([INTRODUCTION, *sections])


def _section(name: str, kind: type[Any]) -> str:
    hints = typing.get_type_hints(kind, include_extras=True)
    meanings = {each.name: _meaning(each.name, hints[each.name]) for each in dataclasses.fields(kind)}  # fmt: skip
    plain = [f"`{each}`" for each, words in meanings.items() if not words]
    lines = [f"- `{each}`: {words}" for each, words in meanings.items() if words]
    if plain:
        lines.insert(0, f"- {', '.join(plain)}")
    return "\n".join(
        [
            f"## {name}",
            "",
            f"{kind.__doc__} *{kind.moment[0].upper()}{kind.moment[1:]}.*",
            "",
            *lines,
            "",
        ]
    )


def _meaning(name: str, hint: Any) -> str:
    """What a field means; empty where its name or the introduction says it."""
    words: str = hint.__metadata__[0] if hasattr(hint, "__metadata__") else ""
    if words == SAID_ABOVE.get(name) or (name.endswith("_ns") and words in ("ns", "ns since 1970")):
        return ""
    return words.removeprefix("ns, ").removeprefix("ns; ").removeprefix("ns since 1970, ")


if __name__ == "__main__":
    print(document(), end="")
