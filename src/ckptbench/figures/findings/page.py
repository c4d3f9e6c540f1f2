"""The page of findings: sentences under headings, which the report includes and a terminal shows."""

from __future__ import annotations

from collections.abc import Mapping
from textwrap import fill

import pandas as pd

from ckptbench.analysis.provenance import caption_facts
from ckptbench.answer.labels import counted
from ckptbench.figures.findings import (
    costs,
    decision,
    failures,
    restarts,
    strategies,
    throughput,
    versions,
)
from ckptbench.figures.findings.lines import WIDTH, item
from ckptbench.figures.findings.words import Study, listed

TITLE = "What was found"
LOWER_ENDS = (
    ("overhead", "paired_lo"),
    ("overhead", "in_run_lo"),
    ("scaling", "images_per_s_lo"),
    ("determinism_cost", "cost_lo"),
)
TIMED = ("overhead", "scaling", "determinism_cost")
INTERVALS = "In brackets are 95 % intervals"
NO_INTERVALS = "No setup ran twice. So nothing shows how far two runs differ, and no number that was measured has an interval"
OF_RATE = "The 95 % intervals in brackets are of the failure rate alone"
NOTHING = "Nothing was measured yet."
MEASURED = (
    "Times, sizes and throughput were measured. What is said of how often to checkpoint is computed from them and from the failure rate that is named;"
    " numbers for more GPUs are projected."
)
HOSTS = 6
"""How many hosts are named."""


def findings(tables: Mapping[str, pd.DataFrame]) -> dict[str, list[str]]:
    """Sentences under each heading. A heading without sentences is left out.

    `tables` are those that `TABLES` names.
    """
    study = Study.of(
        [tables[name] for name in ("overhead", "scaling", "resume_proof", "restore", "goodput")]
    )
    found = {
        decision.TITLE: decision.sentences(tables),
        "What checkpoints cost": costs.sentences(tables, study),
        "How long strategies block training": strategies.sentences(tables, study),
        "More ranks, without checkpoints": throughput.sentences(tables, study),
        "Whether a checkpoint is the state of its step": versions.sentences(tables),
        "What a restart gives back": restarts.proof(tables),
        "What failures cost": failures.sentences(tables, study),
        "What the model is like after failures": failures.outcomes(tables, study),
        "What deterministic mode costs": restarts.cost(tables, study),
        "How long a restart takes, from its launch to the end of its first step": restarts.restore_time(
            tables, study
        ),
    }
    by_heading = {heading: [text for text in texts if text] for heading, texts in found.items()}
    said = {heading: texts for heading, texts in by_heading.items() if texts}
    if not said:
        return {}
    what = [f"{text}." for text in study.shared]
    where = _where(tables["provenance"])
    return {**said, "What was measured, and where": [*what, *where]}


def _about_repeats(tables: Mapping[str, pd.DataFrame]) -> str:
    """How often the setups were timed, and whether this gives intervals. Empty where nothing was timed."""
    ends = [tables[name][column] for name, column in LOWER_ENDS if len(tables[name])]
    if not ends:
        return ""
    if not any(own.notna().any() for own in ends):
        rated = tables["advice"]["goodput_lo"].notna().any()
        return f"{NO_INTERVALS}. {OF_RATE}." if rated else f"{NO_INTERVALS}."
    repeats = pd.concat([tables[name]["repeats"] for name in TIMED])
    fewest, most = repeats.min(), repeats.max()
    number = counted(most, "repeat") if fewest == most else f"{fewest} to {most} repeats"
    return f"Times are of {number} of each setup. {INTERVALS}."


def _where(provenance: pd.DataFrame) -> list[str]:
    hosts = sorted(provenance["host"].dropna().unique())
    more = [f"{len(hosts) - HOSTS} more"] if len(hosts) > HOSTS else []
    named = f" {'Host' if len(hosts) == 1 else 'Hosts'}: {listed([*hosts[:HOSTS], *more])}."
    return [f"{caption_facts(provenance)}.{named if hosts else ''}", MEASURED]


def page(tables: Mapping[str, pd.DataFrame]) -> str:
    """The whole page, which is text to read and reStructuredText as well."""
    said = findings(tables)
    lines = [TITLE, "-" * len(TITLE), ""]
    if not said:
        return "\n".join([*lines, NOTHING, ""])
    if first := _about_repeats(tables):
        lines += [fill(first, WIDTH), ""]
    for heading, sentences in said.items():
        lines += [f"**{heading}**", "", *map(item, sentences), ""]
    return "\n".join(lines)
