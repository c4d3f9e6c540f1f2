"""Options in words: `deepfreeze (memory 1, shared 6)` for `deepfreeze memory=1 shared=6`, and `listed (twice)` for `listed name=twice`."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

import pandas as pd

KINDS = ("strategy", "recovery", "history")
"""Columns with options; those are in `<column>_options`. A user's own name has none, and stays as it is."""
OPTION_WORDS = {"most": "at most", "name": ""}


def worded(tables: Mapping[str, pd.DataFrame]) -> dict[str, pd.DataFrame]:
    """The tables with options in words, by which figures name a setup."""
    return {name: _worded(frame) for name, frame in tables.items()}


def _worded(frame: pd.DataFrame) -> pd.DataFrame:
    known = [kind for kind in KINDS if {kind, f"{kind}_options"} <= {*frame}]
    return frame.assign(**{kind: _names(frame, kind) for kind in known if len(frame)})


def _names(frame: pd.DataFrame, kind: str) -> list[str]:
    """Of many rows there are few different names, so each is put together once."""
    columns = frame[[kind, f"{kind}_name", f"{kind}_options"]]
    rows = [*columns.itertuples(index=False, name=None)]
    names = {row: _name(*row) for row in {*rows}}
    return [names[row] for row in rows]


def _name(label: str, name: str, text: object) -> str:
    options = json.loads(text) if isinstance(text, str) else {}
    words = ", ".join(_words(*option) for option in options.items())
    return f"{name.replace('_', ' ')} ({words})" if words else label


def _words(option: str, value: Any) -> str:
    name = OPTION_WORDS.get(option, option.removesuffix("_s")).replace("_", " ")
    if isinstance(value, bool):
        return name if value else f"no {name}"
    shown = f"{value:g}" if isinstance(value, float) else str(value).replace("_", " ")
    unit = " s" if option.endswith("_s") else ""
    return f"{name} {shown}{unit}".strip()
