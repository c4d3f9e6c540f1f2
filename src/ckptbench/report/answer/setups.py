"""The setups of a table in words: what varies goes into titles and labels, what does not into the caption."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import partial
from typing import Any

import pandas as pd

from ckptbench.report.answer import labels

PANEL_COLUMNS = (
    "model", "dataset", "optimizer", "precision", "batch_size", "epochs", "deterministic", "hardware",
)  # fmt: skip
"""Columns that separate panels: two rows that differ in one of them, as CPU and GPU do, are never in one panel."""
ROW_COLUMNS = ("strategy", "format", "ranks", "interval")
"""Columns that separate the rows of a panel."""

DEPENDENT = ("dataset", "batch_size", "epochs")
"""Columns that go into the caption instead of every panel's title, where the rest of the title decides them."""

UNSAID = {
    ("optimizer", "sgd"), ("precision", "fp32"), ("deterministic", False), ("strategy", "native"),
}  # fmt: skip
SEPARATOR = " · "
"""Between the parts of a label."""
LABEL = "label"


def with_hardware(frame: pd.DataFrame) -> pd.DataFrame:
    """The frame with the column `hardware`: CPU or GPU, as measured; unchanged without `measured_on`."""
    if "measured_on" not in frame:
        return frame
    asked = {"cpu": "cpu", "cuda": "gpu"}
    hardware = [
        on.upper() if asked.get(want, want) == on else f"{on.upper()} ({want} asked)"
        for on, want in zip(frame["measured_on"], frame["accelerator"], strict=True)
    ]
    return frame.assign(hardware=pd.Series(hardware, frame.index, dtype=object))


def ordered(frame: pd.DataFrame, columns: Sequence[str]) -> pd.DataFrame:
    """The rows in the order of these columns, each in its own (`labels.order`). What has options comes by its name first."""
    by = [each for name in columns for each in (f"{name}_name", name) if each in frame]
    return frame.sort_values(by, key=_places, kind="stable", ignore_index=True)


def _places(values: pd.Series[Any]) -> pd.Series[int]:
    """Of each value its place in the order of its column."""
    rising = sorted(values.unique(), key=partial(labels.order, str(values.name)))
    return values.map({value: place for place, value in enumerate(rising)})


def varying(frame: pd.DataFrame, columns: Sequence[str]) -> list[str]:
    """Those of the columns that the frame has with more than one value."""
    return [column for column in columns if column in frame and frame[column].nunique() > 1]


def separating(frame: pd.DataFrame, columns: Sequence[str]) -> list[str]:
    """Those of the columns that vary, without DEPENDENT ones that follow from the others."""
    names = varying(frame, columns)
    kept = [column for column in names if column not in DEPENDENT]
    for column in (name for name in names if name in DEPENDENT):
        if not kept or (frame.groupby(kept)[column].nunique() > 1).any():
            kept.append(column)
    return [column for column in names if column in kept]


def dependent(frame: pd.DataFrame, columns: Sequence[str]) -> list[str]:
    """The columns that `separating` leaves out, in words, for each value: `small CNN: batch 8 per rank, 4 epochs`."""
    kept = separating(frame, columns)
    left_out = [column for column in varying(frame, columns) if column not in kept]
    decisive = _decisive(frame, kept, left_out)
    shown = frame.drop_duplicates(decisive) if left_out else frame[:0]
    pairs = zip(in_words(shown, decisive, ", "), in_words(shown, left_out, ", "), strict=True)
    return [f"{key}: {value}" for key, value in pairs]


def _decisive(frame: pd.DataFrame, kept: list[str], left_out: list[str]) -> list[str]:
    """Those of `kept` that `left_out` really follows from."""
    decisive = list(kept)
    for column in reversed(kept):
        fewer = [other for other in decisive if other != column]
        if fewer and not (frame.groupby(fewer)[left_out].nunique() > 1).any(axis=None):
            decisive = fewer
    return decisive


def constants(frame: pd.DataFrame, columns: Sequence[str]) -> list[str]:
    """Columns with one value in all rows, in words. Left out: defaults (UNSAID), and the hardware."""
    shared = [
        (column, values[0])
        for column in columns
        if column in frame and column != "hardware"
        if len(values := frame[column].dropna().unique()) == 1
    ]
    return [labels.describe(*pair) for pair in shared if pair not in UNSAID]


def of_most_ranks(frame: pd.DataFrame) -> pd.DataFrame:
    """What was measured, and of what is projected that from the most ranks of its system: the least is projected from there."""
    apart = [column for column in ("framework", *PANEL_COLUMNS) if column in frame]
    most = frame.groupby(apart, dropna=False)["ranks"].transform("max")
    return frame[~frame["projected"] | (frame["ranks"] == most)]


def in_words(frame: pd.DataFrame, columns: Sequence[str], separator: str) -> pd.Series:
    """One text per row: these columns, described and joined. A format is left out beside a strategy that has no other."""
    beside = ("strategy_name",) if {"strategy", "format"} <= {*columns} else ()
    known = (*columns, *beside)
    rows = (dict(zip(known, row, strict=True)) for row in frame[[*known]].to_numpy(object))
    texts = [
        separator.join(
            labels.describe(column, row[column])
            for column in columns
            if not (column == "format" and beside and labels.decides_format(row["strategy_name"]))
        )
        for row in rows
    ]
    return pd.Series(texts, frame.index, dtype=object)


def prepared(frame: pd.DataFrame, row: Sequence[str] = ROW_COLUMNS) -> pd.DataFrame:
    """The rows of a table in order, with what panels need: `facet` and `label`. `row` has the columns that separate the rows of a panel."""
    known = with_hardware(frame)
    present = [c for c in (*PANEL_COLUMNS, "framework", *row) if c in known]
    return labelled(faceted(ordered(known, present)), row)


def faceted(frame: pd.DataFrame) -> pd.DataFrame:
    """The frame with the column `facet`: which panel a row belongs to, "" where there is only one."""
    return frame.assign(facet=in_words(frame, separating(frame, PANEL_COLUMNS), ", "))


def labelled(frame: pd.DataFrame, columns: Sequence[str]) -> pd.DataFrame:
    """The frame with the column `label`: what a row is within its framework and facet.

    What only differs from one framework to another is not repeated in every row, but a format is always
    named where there are several in all: each framework has its own. A strategy other than `native` is named where
    nothing else but a format is.
    """
    names = varying(frame, columns)
    shown = [c for c in names if c == "format" or _varies_within(frame, c)] or ["format"]
    if shown == ["format"] and "strategy" in columns and frame["strategy"].ne("native").any():
        shown = ["strategy", *shown]
    return frame.assign(label=in_words(frame, shown, SEPARATOR))


def _varies_within(frame: pd.DataFrame, column: str) -> bool:
    return bool((frame.groupby("framework")[column].nunique() > 1).any())


def per_framework(frame: pd.DataFrame) -> Iterator[tuple[str, pd.DataFrame]]:
    """The rows of each framework, frameworks in their order."""
    names = frame["framework"].unique()
    for framework in sorted(names, key=lambda name: labels.order("framework", name)):
        yield framework, frame[frame["framework"] == framework]
