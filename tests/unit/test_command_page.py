"""`ckptbench page` and `ckptbench decide --html`: one file that starts with the reader's case."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest

from ckptbench.common.errors import DataError
from ckptbench.report.commands.verbs import run
from ckptbench.report.page.start import EXAMPLE

OPTIONS = ["decide", "--gpus", "64", "--step", "3s", "--restart", "5 min"]


def start(page: Path) -> dict[str, Any]:
    """What the page starts from."""
    texts = re.findall(r'<script type="application/json" id="[\w-]+">\n(.*?)\n</script>', page.read_text(), re.S)  # fmt: skip
    (found,) = (each for each in map(json.loads, texts) if "cases" in each)
    return dict(found)


def pairs(page: Path) -> set[tuple[str, str]]:
    """The fields of the case that it opens on."""
    return {(name, text) for name, text in start(page)["cases"][0]["pairs"]}


def test_the_calculator_is_one_file_with_an_example(tmp_path: Path) -> None:
    page = tmp_path / "new" / "calculator.html"
    assert run(["page", str(page)]) == 0
    assert pairs(page) == set(EXAMPLE)
    assert not re.search(r"(src|href)=\"https?:", page.read_text())


def test_a_page_starts_with_the_readers_options_as_they_were_written(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    page = tmp_path / "case.html"
    own = [
        "--mtbf",
        "1 day",
        "--blocking",
        "60s",
        "--async",
        "sharded=3s+90s",
        "--now",
        "500 steps",
    ]
    assert run([*OPTIONS, *own, "--html", str(page)]) == 0
    assert "sharded" in capsys.readouterr().out
    expected = {("gpus", "64"), ("step", "3s"), ("restart", "5 min"), ("mtbf", "1 day"), ("blocking", "60s"), ("async", "sharded=3s+90s"), ("now", "500 steps")}  # fmt: skip
    assert pairs(page) == expected


def test_a_rate_of_ones_own_is_one_of_the_pages(tmp_path: Path) -> None:
    page, rate = tmp_path / "case.html", tmp_path / "ours.yaml"
    rate.write_text("title: our cluster\ncounts: all\nfailures: 12\ndays: 30\ngpus: 512\n")
    own = ["--rate", str(rate), "--blocking", "60s", "--html", str(page)]
    assert run([*OPTIONS, *own]) == 0
    assert ("rate", "ours") in pairs(page)
    rates = {each["name"] for each in start(page)["rates"]}
    assert {"ours", "llama3"} <= rates


def test_what_the_page_has_no_field_for_is_computed(tmp_path: Path) -> None:
    page = tmp_path / "case.html"
    own = ["--gpu-mtbf", "64 h", "--state", "640GB", "--rank-bandwidth", "1GB/s", "--async", "1s", "--html", str(page)]  # fmt: skip
    assert run([*OPTIONS, *own]) == 0
    expected = {("gpus", "64"), ("step", "3s"), ("restart", "300s"), ("mtbf", "1 h"), ("blocking", "blocking=10s"), ("async", "async=1s+10s")}  # fmt: skip
    assert pairs(page) == expected


def test_a_page_of_a_file_of_costs_starts_with_these(tmp_path: Path) -> None:
    page = tmp_path / "case.html"
    costs = Path(__file__).resolve().parents[2] / "config" / "costs-example.yaml"
    assert run(["decide", "--costs", str(costs), "--rate", "llama3", "--html", str(page)]) == 0
    assert ("gpus", "512") in pairs(page)
    assert ("rate", "llama3") in pairs(page)


def test_a_page_that_cannot_be_written_is_told_in_one_line() -> None:
    """No file can be made in /proc, which says that there is no such file."""
    with pytest.raises(DataError, match=r"^/proc/x.html: cannot be written: .*; name a file"):
        run(["page", "/proc/x.html"])
