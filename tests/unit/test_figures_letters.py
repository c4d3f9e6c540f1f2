"""Names and titles of users in figures: every letter is drawn, or replaced by its number with one warning."""

from __future__ import annotations

import logging
import string
import warnings
from collections.abc import Iterator
from pathlib import Path

import pandas as pd
import pytest
from decision_tables import decided
from fontTools.fontBuilder import FontBuilder
from fontTools.pens.ttGlyphPen import TTGlyphPen
from matplotlib import font_manager
from matplotlib.text import Text

from ckptbench.figures import FIGURES, files
from ckptbench.figures.kit import letters
from ckptbench.figures.kit.captions import text_width_in, wrapped
from ckptbench.figures.kit.letters import substitutes
from ckptbench.figures.kit.panels import PaperFigure
from ckptbench.figures.kit.style import paper

LEARNING = "学習"


@pytest.fixture
def no_other_fonts(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """A machine with the fonts of matplotlib alone."""
    own = [entry for entry in font_manager.fontManager.ttflist if "mpl-data" in str(entry.fname)]
    monkeypatch.setattr(font_manager.fontManager, "ttflist", own)
    monkeypatch.setattr(font_manager, "findSystemFonts", list)
    _forget()
    yield
    monkeypatch.undo()
    _forget()


def _forget() -> None:
    for remembered in (letters._installed, letters._draws, letters._font):
        remembered.cache_clear()


@pytest.fixture
def font_of_learning(no_other_fonts: None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    """The machine gets a font that has these letters, installed after matplotlib has looked."""
    path = tmp_path / "learning.ttf"
    pen = TTGlyphPen(None)
    pen.moveTo((0, 0))
    for corner in ((0, 800), (800, 800), (800, 0)):
        pen.lineTo(corner)
    pen.closePath()
    square = pen.glyph()
    names = [".notdef", *(f"uni{ord(letter):04X}" for letter in LEARNING)]
    builder = FontBuilder(1000, isTTF=True)
    builder.setupGlyphOrder(names)
    builder.setupCharacterMap({ord(letter): f"uni{ord(letter):04X}" for letter in LEARNING})
    builder.setupGlyf(dict.fromkeys(names, square))
    builder.setupHorizontalMetrics(dict.fromkeys(names, (1000, 0)))
    builder.setupHorizontalHeader(ascent=800, descent=-200)
    builder.setupNameTable({"familyName": "Learning Sans", "styleName": "Regular"})
    builder.setupOS2()
    builder.setupPost()
    builder.save(path)
    monkeypatch.setattr(font_manager, "findSystemFonts", lambda: [str(path)])
    return "Learning Sans"


def titled(title: str, strategy: str = "blocking") -> dict[str, pd.DataFrame]:
    tables = decided("given")
    model, first = tables["decision_costs"].iloc[0][["model", "strategy"]]
    return {name: table.replace({model: title, first: strategy}) for name, table in tables.items()}


def write(
    tables: dict[str, pd.DataFrame], folder: Path, monkeypatch: pytest.MonkeyPatch
) -> PaperFigure:
    """Writes `advice` as the workflow does. No warning of matplotlib may come; the figure is returned for a look at it."""
    kept: list[PaperFigure] = []
    draw = type(FIGURES["advice"]).draw

    def keep(entry: object, own: dict[str, pd.DataFrame]) -> PaperFigure:
        kept.append(draw(FIGURES["advice"], own))
        return kept[-1]

    monkeypatch.setattr(files, "read_tables", lambda *asked: tables)
    monkeypatch.setattr(type(FIGURES["advice"]), "draw", keep)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        paths = files.write_figure("advice", folder, folder / "advice")
    assert [path.stat().st_size > 10_000 for path in paths] == [True, True, False]
    return kept[0]


def warned(caplog: pytest.LogCaptureFixture) -> list[str]:
    return [record.getMessage() for record in caplog.records if record.levelno >= logging.WARNING]


def texts(figure: PaperFigure) -> str:
    return "\n".join([*(text.get_text() for text in figure.findobj(Text)), figure.caption])


@pytest.mark.parametrize(
    "titles",
    [
        (r"costs $5", r"a\b", "a_b^c", "{x} % # & ~", "_x", string.punctuation.replace("$", "")),
        ("from $5 to $6_a^b", r"$\frac$", r"\alpha", "שלום עולם", "عربى", "e\u0301m", "naïve Ωμέγα", "😀"),
    ],
    ids=["one dollar", "many dollars"],
)  # fmt: skip
def test_titles_are_drawn_as_they_were_written(
    titles: tuple[str, ...],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    figure = write(titled(" ".join(titles), strategy=titles[0]), tmp_path, monkeypatch)
    shown = " ".join(texts(figure).replace("_", " ").split())
    for title in titles:
        assert " ".join(title.replace("_", " ").split()) in shown
    assert not any(text.get_parse_math() for text in figure.findobj(Text))
    assert not warned(caplog)


@pytest.mark.usefixtures("no_other_fonts")
def test_letters_that_no_font_has_are_numbers_and_one_warning_names_the_title(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    figure = write(titled(f"{LEARNING} a", strategy="x\x07"), tmp_path, monkeypatch)
    assert "[U+5B66 U+7FD2] a" in texts(figure)
    assert "x[U+0007]" in texts(figure)
    assert LEARNING not in texts(figure)
    assert f"{LEARNING} a" in " ".join((tmp_path / "advice.txt").read_text().split()), "not drawn"
    (warning,) = warned(caplog)
    assert f"'{LEARNING} a' as '[U+5B66 U+7FD2] a'" in warning
    assert "fonts-noto-cjk" in warning
    assert len(warning.splitlines()) == 1


def test_letters_come_from_a_font_that_has_them(
    font_of_learning: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    figure = write(titled(f"{LEARNING} $ a"), tmp_path, monkeypatch)
    assert f"{LEARNING} $ a" in texts(figure)
    families = {tuple(text.get_fontfamily()) for text in figure.findobj(Text)}
    assert families == {("DejaVu Sans", font_of_learning)}
    assert not warned(caplog)
    # As outlines: what is embedded as TrueType and is not shows as nothing.
    assert b"/Type3" in (tmp_path / "advice.pdf").read_bytes()


def test_other_figures_keep_the_one_font() -> None:
    figure = FIGURES["advice"].draw(titled("plain"))
    assert {tuple(text.get_fontfamily()) for text in figure.findobj(Text)} == {("DejaVu Sans",)}


def test_other_texts_get_other_substitutes() -> None:
    own = ["学", "習", "[U+5B66]", "x", "学" * 7, "学" * 8, "x\u200d"]
    instead = substitutes(own, {"学", "習", "\u200d"})
    assert instead["習"] == "[U+7FD2]"
    assert instead["学"] == "[U+5B66] (2)"
    shown = [instead.get(text, text) for text in own]
    assert len(set(shown)) == len(own)
    assert all(text.isascii() for text in shown)


def test_a_title_without_spaces_is_broken_where_a_line_ends() -> None:
    with paper():
        lines = wrapped(f"a {'W' * 100} b", width_in=1.5)
        assert "".join(lines).count("W") == 100
        assert all(text_width_in(line) <= 1.5 for line in lines)
