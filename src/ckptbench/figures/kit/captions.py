"""The caption below every figure: what the figure shows, and where, when and how often it was measured."""

from __future__ import annotations

from collections.abc import Sequence

import pandas as pd
from matplotlib import rcParams
from matplotlib.font_manager import FontProperties
from matplotlib.textpath import TextToPath

from ckptbench.analysis.provenance import caption_facts
from ckptbench.answer.labels import counted, is_verbatim
from ckptbench.answer.setups import SYSTEM, constants, dependent
from ckptbench.errors import RunFolderError
from ckptbench.figures.kit.disturbed import WORDS, any_disturbed

POINTS_PER_INCH = 72


def caption(
    shown: pd.DataFrame, provenance: pd.DataFrame, reading: str, shared: Sequence[str] = SYSTEM
) -> str:
    """`reading` says how to read the figure. `shared` names the columns that the caption mentions if they do not vary.

    Raises RunFolderError where rows are shown of whose machine `provenance` knows nothing.
    """
    common = ", ".join(constants(shown, shared))
    by_title = "; ".join(dependent(shown, [column for column in shared if column in SYSTEM]))
    disturbed = WORDS if any_disturbed(shown) else ""
    facts = caption_facts(_of_shown(shown, provenance))
    sentences = [reading, disturbed, common, by_title, facts]
    return capitalized_sentences(sentences)


def capitalized_sentences(sentences: Sequence[str]) -> str:
    """Each with a capital, unless it begins with a user's own word, and a full stop. Empty ones are left out."""
    return " ".join(f"{_with_capital(text)}." for text in sentences if text)


def _with_capital(text: str) -> str:
    first = text.split(maxsplit=1)[0].rstrip(".,;:")
    return text if is_verbatim(first) else f"{text[0].upper()}{text[1:]}"


def continued(provenance: pd.DataFrame) -> str:
    """`2 runs were continued after an interruption and are not timed`; empty where none was."""
    number = int(provenance["continued"].sum())
    verbs = ("was", "is") if number == 1 else ("were", "are")
    runs = counted(number, "run")
    return (
        f"{runs} {verbs[0]} continued after an interruption and {verbs[1]} not timed"
        if number
        else ""
    )


def _of_shown(shown: pd.DataFrame, provenance: pd.DataFrame) -> pd.DataFrame:
    if "measured_on" not in shown or shown.empty:
        return provenance
    measured_on = set(shown["measured_on"])
    if unknown := measured_on - set(provenance["measured_on"]):
        raise RunFolderError(
            f"the table provenance knows no machine for rows measured on {', '.join(sorted(unknown))}: "
            "the tables are of different studies; derive them again"
        )
    return provenance[provenance["measured_on"].isin(measured_on)]


def wrapped(text: str, width_in: float) -> list[str]:
    """The lines of `text` that fit into this width at the style's font size, broken at spaces and in words that are wider than a line."""
    lines = [""]
    for word in (piece for whole in text.split() for piece in _pieces(whole, width_in)):
        longer = f"{lines[-1]} {word}".strip()
        if lines[-1] and text_width_in(longer) > width_in:
            lines.append(word)
        else:
            lines[-1] = longer
    return lines


def _pieces(word: str, width_in: float) -> list[str]:
    """The word, in pieces that fit. Not every script has spaces."""
    if text_width_in(word) <= width_in:
        return [word]
    pieces = [""]
    for letter in word:
        if pieces[-1] and text_width_in(f"{pieces[-1]}{letter}") > width_in:
            pieces.append(letter)
        else:
            pieces[-1] += letter
    return pieces


def text_width_in(text: str) -> float:
    font = FontProperties(size=rcParams["font.size"])
    width_points, _, _ = TextToPath().get_text_width_height_descent(text, font, ismath=False)
    return float(width_points) / POINTS_PER_INCH
