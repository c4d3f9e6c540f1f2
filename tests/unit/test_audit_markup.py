"""The report reads the page of the audit as reStructuredText: text of a user in them is no markup there."""

from __future__ import annotations

import html
import io
import re
import string

import pytest
from docutils.core import publish_parts

from ckptbench.audit.lines import item

ODD = (
    *("1. x", "999. x", "iii. x", "a. x", "(a) x", "A) x", "#. x", "- x", "* x", "+ x", "-x", "--x", "/V x"),
    *(".. raw:: html", ".. include:: /etc/passwd", "..", "::", ":a: b", "| x", "+---+", "====", ">>> x"),
    *("*x*", "**x**", "`x`", "``x``", ":code:`x`", "x`y`_", "_`x`", "|x|", "[1]_", "a_", "a__", "学習_", "a_b_ c", "\\", "a\\"),
    *("<script>alert(1)</script>", "&amp;", "a:: b::", "学習 עברית 😀"),
)  # fmt: skip


def read(sentence: str) -> str:
    """What a reader of the report sees of one of three points of a list."""
    source = "\n".join(["Title", "-----", "", "- before", item(sentence), "- after", ""])
    warnings = io.StringIO()
    settings = {"warning_stream": warnings, "report_level": 1}
    body = publish_parts(source, writer="html", settings_overrides=settings)["body"]
    assert not warnings.getvalue()
    points = re.findall(r"<li>(.*?)</li>", body, re.DOTALL)
    assert len(points) == 3
    return " ".join(html.unescape(re.sub(r"<[^>]+>", "", points[1])).split())


@pytest.mark.parametrize("title", [*ODD, *sorted({*string.punctuation}), *"xX9"])
def test_a_title_is_read_as_it_was_written(title: str) -> None:
    for sentence in (f"{title}: at every number.", f"At 8 GPUs, with {title}, it loses 1 %.", f"With {title}"):  # fmt: skip
        assert read(sentence) == " ".join(sentence.split())


@pytest.mark.parametrize(
    "sentence", ["torch.save blocks.", "At 8 GPUs.", "PyTorch's costs.", "A step."]
)
def test_an_ordinary_sentence_has_no_backslash(sentence: str) -> None:
    assert item(sentence) == f"- {sentence}"
