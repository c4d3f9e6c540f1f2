"""The page as one file, from what a study has left: tables, figures with their captions, and the answer."""

from __future__ import annotations

from base64 import b64encode
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from importlib import resources
from itertools import groupby
from typing import Self, cast
from xml.etree.ElementTree import Comment, Element

import pandas as pd

from ckptbench.analysis.provenance import machine_in_words
from ckptbench.analysis.tables.grouping import records
from ckptbench.analysis.tables.registry import AUDITED, COLLECTED, DECIDED, DERIVED, TableEntry
from ckptbench.report.answer import sizes
from ckptbench.report.answer.labels import counted
from ckptbench.report.answer.screen import Screen
from ckptbench.report.answer.study import answer
from ckptbench.report.figures import ABOUT, FIGURES
from ckptbench.report.study_page.elements import Part, code, element, table, written
from ckptbench.report.study_page.files import Drawn, Stored

POLICY = "default-src 'none'; style-src 'unsafe-inline'; img-src data:; base-uri 'none'; form-action 'none'"
KINDS = {"Do not": "warning", "Not the device requested": "warning", "Fit to quote": "fine"}
"""How a sentence of the verdict looks, by its beginning."""
GROUPS: Mapping[str, Mapping[str, TableEntry]] = {
    "The decision": DECIDED,
    "Tables derived from the runs": DERIVED,
    "Tables of the runs": COLLECTED,
    "The audit": AUDITED,
}
COMMIT_LETTERS = 12
PHONE = 480
"""Pixels: a figure that is wider scrolls in its frame on a phone, or nobody could read its letters."""
CALCULATOR = "calculator.html"
"""Beside the page."""


@dataclass(frozen=True, slots=True, kw_only=True)
class StudyPage:
    """What the page shows."""

    answer: Screen
    provenance: pd.DataFrame
    config: str
    """In words; empty where the costs are a user's."""
    figures: Mapping[str, Drawn]
    """By name: those that were drawn."""
    tables: Mapping[str, Stored]
    """By name: those that were written."""
    has_costs: bool
    """Whether the calculator beside it starts from them."""
    about: str = ""
    """The only chapter of figures that the study asks for. Empty: all."""

    @classmethod
    def of(
        cls,
        tables: Mapping[str, pd.DataFrame],
        config: str,
        figures: Mapping[str, Drawn],
        stored: Mapping[str, Stored],
        folder: str,
    ) -> Self:
        """From the tables of the answer, in this folder as a reader would type it."""
        return cls(
            answer=answer(tables, folder),
            provenance=tables.get("provenance", pd.DataFrame()),
            config=config,
            figures=figures,
            tables=stored,
            has_costs=not tables["decision_costs"].empty,
            about="size" if sizes.is_asked(tables) else "",
        )


def study_page(study: StudyPage) -> str:
    """The text of the file. It asks the network for nothing."""
    title = study.answer.title
    head = element(
        "head",
        element("meta", charset="utf-8"),
        element("meta", name="viewport", content="width=device-width, initial-scale=1"),
        element("meta", name="color-scheme", content="light dark"),
        element("meta", http_equiv="Content-Security-Policy", content=POLICY),
        element("title", title),
        element("link", rel="icon", href="data:,"),
        element("style", _style()),
    )
    filled = ", filled with these costs" if study.has_costs else ""
    calculator = element("a", f"the calculator{filled}", href=CALCULATOR)
    body = element(
        "main",
        element("header", element("h1", title), *_facts(study)),
        *_marked("verdict", _verdict(study.answer.verdict)),
        *_marked("answer", _answer(study.answer)),
        element("p", "Other numbers: ", calculator, "."),
        *_marked("figures", _figures(study)),
        _tables(study.tables),
        class_="study",
    )
    return written(element("html", head, element("body", body), lang="en"))


def _style() -> str:
    return (resources.files("ckptbench.report.study_page") / "page.css").read_text(encoding="utf-8")


def _marked(name: str, part: Element) -> tuple[Part, Part, Part]:
    """Between two comments, by which Snakemake's report finds it."""
    return cast(Element, Comment(name)), part, cast(Element, Comment(f"end of {name}"))


def _facts(study: StudyPage) -> Iterator[Element]:
    """Where, when and from which source it was measured."""
    rows = study.provenance
    if rows.empty:
        yield element("p", "Nothing was measured here.")
        return
    first, last = rows["first_date"].min(), rows["last_date"].max()
    known = {
        "Machine": _listed(machine_in_words(row) for row in records(rows)),
        "Date": first if first == last else f"{first} to {last}",
        "Commit": _listed(map(_commit, records(rows))),
        "Runs": _runs(rows),
        "Config": study.config.removeprefix("Config "),
    }
    pairs = ((element("dt", name), element("dd", value)) for name, value in known.items() if value)
    yield element("dl", *(each for pair in pairs for each in pair))


def _listed(words: Iterator[str]) -> str:
    return "; ".join(dict.fromkeys(words))


def _commit(row: Mapping[str, object]) -> str:
    known = row["revision"]
    revision = known[:COMMIT_LETTERS] if isinstance(known, str) else "not under git"
    return f"{revision}, with uncommitted changes" if row["dirty"] else revision


def _runs(rows: pd.DataFrame) -> str:
    fewest, most = int(rows["repeats_min"].min()), int(rows["repeats_max"].max())
    repeats = counted(most, "repeat") if fewest == most else f"{fewest} to {most} repeats"
    return f"{rows['runs'].sum():,}, {repeats}"


def _verdict(sentences: Sequence[str]) -> Element:
    """A warning has a colour, and says so in words too."""
    lines = (element("p", each, class_=_kind(each)) for each in sentences)
    return element("section", *lines, class_="verdict")


def _kind(sentence: str) -> str:
    return next((kind for begin, kind in KINDS.items() if sentence.startswith(begin)), "note")


def _answer(answer: Screen) -> Element:
    shown = (
        [table("The answer", answer.heads, [line.cells for line in answer.lines])]
        if answer.lines
        else []
    )
    remarks = element("ul", *(element("li", each) for each in answer.remarks))
    return element("section", *shown, remarks, class_="answer")


def _figures(study: StudyPage) -> Element:
    """Those that the study asks for, in the order in which they are read."""
    drawn = [entry for name, entry in FIGURES.items() if name in study.figures]
    asked = [entry for entry in drawn if study.about in ("", entry.about)]
    parts: list[Part] = []
    for about, entries in groupby(asked, lambda entry: entry.about):
        parts.append(element("h2", ABOUT[about]))
        for entry in entries:
            parts.append(_figure(entry.module, entry.title, study.figures[entry.module]))
    if more := len(drawn) - len(asked):
        words = f"Also drawn: {counted(more, 'figure')} of times, of single runs, in the folder "
        parts.append(element("p", words, element("code", "figures"), "."))
    return element("section", *parts, class_="figures")


def _figure(name: str, title: str, drawn: Drawn) -> Element:
    width, height = drawn.shown_size()
    source = f"data:image/png;base64,{b64encode(drawn.png).decode('ascii')}"
    image = element("img", src=source, alt=title, width=f"{width}", height=f"{height}", class_="wide" if width > PHONE else "narrow")  # fmt: skip
    pdf = element("a", "PDF", href=f"figures/{name}.pdf")
    caption = element("figcaption", drawn.caption, " ", pdf)
    hint = [element("p", "Swipe sideways to see the rest.", class_="hint")] if width > PHONE else []
    return element(
        "figure",
        element("h3", title),
        *hint,
        element("div", image, class_="scroll", tabindex="0", role="group", aria_label=title),
        caption,
        id=name,
    )


def _tables(stored: Mapping[str, Stored]) -> Element:
    parts: list[Part] = [
        element("h2", "Tables"),
        element("p", "Files beside this page, in ", element("code", "tables"), "; ", element("code", "docs/tables.md"), " explains every column."),
    ]  # fmt: skip
    for title, entries in GROUPS.items():
        known = [entry for name, entry in entries.items() if name in stored]
        full = [entry for entry in known if stored[entry.name].rows]
        empty = [entry.title for entry in known if not stored[entry.name].rows]
        if not known:
            continue
        parts.append(element("h3", title))
        parts.append(element("dl", *(each for entry in full for each in _table(entry, stored[entry.name]))))  # fmt: skip
        if empty:
            parts.append(element("p", f"Without a row here: {'; '.join(empty)}.", class_="empty"))
    return element("section", *parts, class_="tables")


def _table(entry: TableEntry, stored: Stored) -> tuple[Element, Element]:
    csv, parquet = (element("a", kind, href=f"tables/{entry.name}.{kind}") for kind in ("csv", "parquet"))  # fmt: skip
    links = (" ", element("code", entry.name), " ", csv, " ", parquet)
    rows = f" {counted(stored.rows, 'row')}."
    return element("dt", entry.title, *links), element("dd", *code(entry.table.row), rows)
