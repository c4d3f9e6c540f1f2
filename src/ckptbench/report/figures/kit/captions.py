"""The caption below every figure: what the figure shows, and where, when and how often it was measured."""

from __future__ import annotations

from collections.abc import Sequence

import pandas as pd

from ckptbench.analysis.provenance import caption_facts
from ckptbench.common.errors import RunFolderError
from ckptbench.report.answer.labels import counted
from ckptbench.report.answer.setups import PANEL_COLUMNS, constants, dependent
from ckptbench.report.figures.kit.disturbed import WORDS, any_disturbed


def caption(
    shown: pd.DataFrame,
    provenance: pd.DataFrame,
    reading: str,
    shared: Sequence[str],
) -> str:
    """`reading` says how to read the figure. `shared` names the columns that the caption mentions if they do not vary.

    Raises RunFolderError where rows are shown of whose machine `provenance` knows nothing.
    """
    return capitalized_sentences(
        [
            reading,
            WORDS if any_disturbed(shown) else "",
            ", ".join(constants(shown, shared)),
            "; ".join(dependent(shown, [column for column in shared if column in PANEL_COLUMNS])),
            caption_facts(_of_shown(shown, provenance)),
        ]
    )


def capitalized_sentences(sentences: Sequence[str]) -> str:
    """Each with a capital and a full stop. Empty ones are left out."""
    return " ".join(f"{text[0].upper()}{text[1:]}." for text in sentences if text)


def continued_in_words(provenance: pd.DataFrame) -> str:
    """`2 runs were continued after an interruption and are not timed`; empty where none was."""
    number = int(provenance["continued"].sum())
    was, are = ("was", "is") if number == 1 else ("were", "are")
    said = f"{counted(number, 'run')} {was} continued after an interruption and {are} not timed"
    return said if number else ""


def _of_shown(shown: pd.DataFrame, provenance: pd.DataFrame) -> pd.DataFrame:
    if "measured_on" not in shown:
        return provenance
    measured_on = set(shown["measured_on"])
    if unknown := measured_on - set(provenance["measured_on"]):
        raise RunFolderError(
            f"the table provenance knows no machine for rows measured on {', '.join(sorted(unknown))}: "
            "the tables are of different studies; derive them again"
        )
    return provenance[provenance["measured_on"].isin(measured_on)]
