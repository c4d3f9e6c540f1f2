"""Elements of HTML. What a config or a run says is text in them, which is escaped when they are written."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from xml.etree.ElementTree import Element, tostring

Part = str | Element


def element(tag: str, /, *content: Part, **attributes: str) -> Element:
    """The element with this content. A name of Python takes a `_` behind it: `class_`."""
    made = Element(tag, {key.removesuffix("_").replace("_", "-"): value for key, value in attributes.items()})  # fmt: skip
    for part in content:
        if isinstance(part, Element):
            made.append(part)
        elif len(made):
            made[-1].tail = (made[-1].tail or "") + part
        else:
            made.text = (made.text or "") + part
    return made


def code(text: str) -> Iterator[Part]:
    """The text, of which what stands between ` is code."""
    for place, part in enumerate(text.split("`")):
        yield element("code", part) if place % 2 else part


def table(name: str, heads: Sequence[str], rows: Sequence[Sequence[str]]) -> Element:
    """A table whose rows are cards on a phone: each cell says its head itself. The interval of a number stands below it."""
    head = element("tr", *(element("th", _in_one_line(each), scope="col") for each in heads))
    body = [
        element("tr", *(_cell(own, cell) for own, cell in zip(heads, row, strict=True)))
        for row in rows
    ]
    made = element("table", element("thead", head), element("tbody", *body))
    return element("div", made, class_="wide-table", tabindex="0", role="group", aria_label=name)


def _cell(head: str, text: str) -> Element:
    number, bracket, ends = _in_one_line(text).partition(" [")
    interval: list[Part] = [" ", element("small", f"[{ends}")] if bracket else []
    shown = [element("span", number, *interval)] if number else []
    return element("td", *shown, data_head=_in_one_line(head))


def _in_one_line(text: str) -> str:
    return " ".join(text.split())


def written(root: Element) -> str:
    """The document as text."""
    return f"<!doctype html>\n{tostring(root, encoding='unicode', method='html')}\n"
