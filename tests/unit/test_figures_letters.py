"""Names and titles of users in figures: they are drawn as they were written, in fonts that have their letters."""

from __future__ import annotations

import string

import pandas as pd
import pytest
from decision_tables import decided
from matplotlib import font_manager
from matplotlib.text import Text

from ckptbench.report.figures import FIGURES
from ckptbench.report.figures.kit import style
from ckptbench.report.figures.kit.panels import PaperFigure

LEARNING = "学習"


def titled(title: str, strategy: str = "blocking") -> dict[str, pd.DataFrame]:
    tables = decided("given")
    model, first = tables["decision_costs"].iloc[0][["model", "strategy"]]
    return {name: table.replace({model: title, first: strategy}) for name, table in tables.items()}


def texts(figure: PaperFigure) -> str:
    return "\n".join([*(text.get_text() for text in figure.findobj(Text)), figure.caption])


@pytest.mark.parametrize(
    "titles",
    [
        (r"costs $5", r"a\b", "a_b^c", "{x} % # & ~", "_x", string.punctuation.replace("$", "")),
        ("from $5 to $6_a^b", r"$\frac$", r"\alpha", "שלום עולם", "naïve Ωμέγα"),
    ],
    ids=["one dollar", "many dollars"],
)
def test_titles_are_drawn_as_they_were_written(
    titles: tuple[str, ...],
) -> None:
    with style.paper():  # ticks are made as late as they are looked at
        figure = FIGURES["advice"].draw(titled(" ".join(titles), strategy=titles[0]))
        shown = " ".join(texts(figure).replace("_", " ").split())
        drawn = figure.findobj(Text)
    for title in titles:
        assert " ".join(title.replace("_", " ").split()) in shown
    assert not any(text.get_parse_math() for text in drawn)
    assert {tuple(text.get_fontfamily()) for text in drawn} == {("DejaVu Sans",)}


def test_letters_come_from_an_installed_font(monkeypatch: pytest.MonkeyPatch) -> None:
    serif = "DejaVu Serif"  # which has the same letters: a stand-in for one that has others
    monkeypatch.setattr(style, "FALLBACK_FONTS", (serif, "No Such Font"))
    assert serif in font_manager.get_font_names()
    figure = FIGURES["advice"].draw(titled(LEARNING))
    assert LEARNING in figure.caption
    families = {tuple(text.get_fontfamily()) for text in figure.findobj(Text)}
    assert families == {("DejaVu Sans", serif)}
