"""The screen of a study that asks what a checkpoint weighs: the size in every format, and no times, which it does not ask for."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

import pandas as pd

from ckptbench.analysis.provenance import caption_facts
from ckptbench.analysis.tables.grouping import records
from ckptbench.report.answer import remarks
from ckptbench.report.answer.labels import describe
from ckptbench.report.answer.quantities import more, size
from ckptbench.report.answer.screen import Line, Screen
from ckptbench.report.answer.setups import in_words, ordered, varying

Tables = Mapping[str, pd.DataFrame]

TITLE = "Size of a checkpoint"
HEADS = ("model", "setup", "checkpoint", "minimum", "more")
SETUP = ("framework", "strategy", "format", "ranks")
BUT_FORMAT = ("framework", "model", "dataset", "ranks", "optimizer", "strategy")
STATE = ("state_model_bytes", "state_optimizer_bytes", "state_rest_bytes")
LEGEND = "Minimum: parameters, optimizer and each rank's local state. 1 MB is 1,000,000 bytes."
NO_TIMES = "Sizes may be quoted even if runs were disturbed. Times of single runs are in {folder}/overhead.csv."


def is_asked(tables: Tables) -> bool:
    """Whether the study compares formats alone: it runs no setup twice, so that no time of it has an interval, and kills none."""
    if "sizes" not in tables or len(tables["resume_proof"]) or len(tables["goodput"]):
        return False
    formats = tables["sizes"].groupby(list(BUT_FORMAT))["format"].nunique()
    return bool((formats > 1).any()) and bool(tables["overhead"]["overhead_lo"].isna().all())


def screen(tables: Tables, folder: str, config: str) -> Screen:
    """Of a study for which `is_asked`; the arguments are those of an answer."""
    rows = ordered(tables["sizes"], ("model", *SETUP))
    return Screen(
        title=f"{TITLE}: {', '.join(_formats(rows))}",
        verdict=remarks.verdict(tables),
        heads=HEADS,
        lines=tuple(_lines(rows)),
        remarks=(LEGEND, NO_TIMES.format(folder=folder), f"{caption_facts(tables['provenance'])}."),
        ending=tuple(config.splitlines()),
    )


def _formats(rows: pd.DataFrame) -> list[str]:
    frameworks = [describe("framework", each) for each in rows["framework"].unique()]
    return [*frameworks, f"{rows['format'].nunique()} formats"]


def _lines(rows: pd.DataFrame) -> Iterator[Line]:
    named = varying(rows, SETUP) or ["framework", "format"]
    shown = named if "format" in named else [*named, "format"]
    for place, (row, setup) in enumerate(zip(records(rows), in_words(rows, shown, ", "), strict=True)):  # fmt: skip
        state = sum(row[part] for part in STATE)
        weighs = size(row["bytes"])
        cells = (describe("model", row["model"]), setup, weighs, size(state), more(row["ratio"]))
        yield Line(cells, (float(place),))
