"""The answers of `check all` as JUnit XML, which continuous integration shows."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from xml.etree import ElementTree

from ckptbench_probe.check.questions import CANNOT_TELL, DOES_NOT_APPLY, NO, Answer

SUITE = "ckptbench-probe"
TAGS = {NO: "failure", CANNOT_TELL: "error", DOES_NOT_APPLY: "skipped"}
"""Of what is no success."""


def write(path: Path, answers: Sequence[Answer]) -> None:
    suite = ElementTree.Element("testsuite", name=SUITE, tests=str(len(answers)))
    for tag, name in (("failure", "failures"), ("error", "errors"), ("skipped", "skipped")):
        suite.set(name, str(sum(TAGS.get(one.verdict) == tag for one in answers)))
    suite.set("time", f"{sum(one.seconds for one in answers):.1f}")
    for one in answers:
        case = ElementTree.SubElement(
            suite, "testcase", classname=SUITE, name=one.text, time=f"{one.seconds:.1f}"
        )
        if one.verdict in TAGS:
            case.append(ElementTree.Element(TAGS[one.verdict], message=_plain(one.why)))
        ElementTree.SubElement(case, "system-out").text = _plain(one.command)
    path.parent.mkdir(parents=True, exist_ok=True)
    ElementTree.ElementTree(suite).write(path, encoding="utf-8", xml_declaration=True)


def _plain(text: str) -> str:
    """Without letters that XML cannot hold, as those that colour a log."""
    return "".join(letter for letter in text if letter.isprintable())
