"""Rows of tables, made by hand, with the columns that follow from their labels."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

KINDS = ("strategy", "history", "recovery")


def with_specs(row: Mapping[str, Any]) -> dict[str, Any]:
    """The row with name and options of each label that it has: of `deepfreeze memory=1` `deepfreeze` and `{"memory": "1"}`."""
    columns = dict(row)
    for kind in KINDS:
        if kind in row:
            name, *options = row[kind].split(" ")
            given = dict(each.split("=") for each in options)
            columns |= {f"{kind}_name": name, f"{kind}_options": json.dumps(given)}
    return columns
