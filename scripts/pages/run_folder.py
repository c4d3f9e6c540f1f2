"""What a run folder holds, from the declarations of its files, its manifest and its events."""

from __future__ import annotations

import dataclasses
import typing
from collections.abc import Mapping
from typing import Any

from ckptbench.run.events import KINDS, Digest, Hold, Memory, Phase, name_of
from ckptbench.run.layout import FILES, MANIFEST_FIELDS

SAID_ABOVE = {
    "step": "completed steps of the whole run", "epoch": "from 0",
    "unix_ns": "ns since 1970, at the same moment as `monotonic_ns`",
}  # fmt: skip
"""Meanings that the introduction has."""
IN_TABLES = (Phase, Memory, Hold, Digest)
"""Events whose fields are explained, because columns of tables refer to them."""


def files() -> str:
    return _list(FILES)


def manifest() -> str:
    return _list(MANIFEST_FIELDS)


def events() -> str:
    """The name of each event of a trace; of those that columns refer to also the fields, and when they are written."""
    named = {name: kind for name, kind in KINDS.items() if name == name_of(kind)}
    others = ", ".join(f"`{name}`" for name, kind in named.items() if kind not in IN_TABLES)
    sections = (_section(name, kind) for name, kind in named.items() if kind in IN_TABLES)
    return "\n".join((f"The others are {others}.\n", *sections))


def _list(meanings: Mapping[str, str]) -> str:
    return "".join(f"- `{name}`: {meaning}\n" for name, meaning in meanings.items())


def _section(name: str, kind: type[Any]) -> str:
    hints = typing.get_type_hints(kind, include_extras=True)
    meanings = {each.name: _meaning(each.name, hints[each.name]) for each in dataclasses.fields(kind)}  # fmt: skip
    plain = [f"`{each}`" for each, words in meanings.items() if not words]
    lines = [f"- `{each}`: {words}" for each, words in meanings.items() if words]
    if plain:
        lines.insert(0, f"- {', '.join(plain)}")
    return "\n".join(
        [
            f"### {name}",
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


PARTS = {"files": files, "manifest": manifest, "events": events}
