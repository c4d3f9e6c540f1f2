"""`ckptbench page` and `decide --html`: one file that starts with an example, or filled with costs."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest

from ckptbench.cli.verbs import WRONG_USE, run
from ckptbench.common.errors import DataError
from ckptbench.report.page.start import EXAMPLE

COSTS = str(Path(__file__).resolve().parents[2] / "config" / "costs-example.yaml")


def start(page: Path) -> dict[str, Any]:
    """What the page starts from."""
    texts = re.findall(r'<script type="application/json" id="[\w-]+">\n(.*?)\n</script>', page.read_text(), re.S)  # fmt: skip
    (found,) = (each for each in map(json.loads, texts) if "cases" in each)
    return dict(found)


def pairs(page: Path) -> set[tuple[str, str]]:
    """The fields of the case that it opens on."""
    return {(name, text) for name, text in start(page)["cases"][0]["pairs"]}


def test_the_calculator_is_one_file_with_an_example(tmp_path: Path) -> None:
    page = tmp_path / "calculator.html"
    assert run(["page", str(page)]) == 0
    assert pairs(page) == set(EXAMPLE)
    assert not re.search(r"(src|href)=\"https?:", page.read_text())


def test_the_calculator_is_filled_with_costs(tmp_path: Path) -> None:
    """At the reader's GPUs and failure rate, with the reader's own step."""
    page = tmp_path / "page.html"
    options = ["--gpus", "1024", "--rate", "opt-175b", "--step", "3s"]
    assert run(["decide", "--costs", COSTS, *options, "--html", str(page)]) == 0
    assert {("gpus", "1024"), ("rate", "opt-175b"), ("step", "3 s"), ("blocking", "torch.save=60 s"), ("now", "500 steps")} <= pairs(page)  # fmt: skip
    # The interval in use is of the first strategy of the file.
    assert [each["name"] for each in start(page)["cases"][0]["strategies"]] == ["torch.save", "asynchronous"]  # fmt: skip
    assert not any(name == "gpu-hour-price" for name, _ in pairs(page))
    assert run(["decide", "--costs", COSTS, *options, "--html", str(page), "--gpu-hour-price", "$2.5", "--limit", "24h"]) == 0  # fmt: skip
    assert {("gpu-hour-price", "$2.5"), ("limit", "24 h")} <= pairs(page)
    names = [rate["name"] for rate in start(page)["rates"]]
    assert names[0] == "opt-175b"
    assert names.count("opt-175b") == 1
    assert [case["title"] for case in start(page)["cases"]] == ["my training · 512 GPUs · restart", "my training · 512 GPUs · shrink", "Example: 7B on 256 GPUs", "Example: 8 GPUs, preemptible"]  # fmt: skip


def test_a_page_of_options_alone_is_refused(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    page = tmp_path / "page.html"
    options = ["--gpus", "8", "--mtbf", "1h", "--step", "1s", "--blocking", "9s", "--restart", "1min"]  # fmt: skip
    assert run(["decide", *options, "--html", str(page)]) == WRONG_USE
    assert "--html: give --study, --costs or --training-log too" in capsys.readouterr().err
    assert not page.exists()


@pytest.mark.parametrize(
    "verb", [["page"], ["decide", "--costs", COSTS, "--mtbf", "14h", "--html"]]
)
def test_no_folder_is_made_for_a_page(verb: list[str], tmp_path: Path) -> None:
    folder = tmp_path / "typo"
    with pytest.raises(DataError, match=rf"^{folder}/x.html: .* no folder {folder}: make it, or"):
        run([*verb, str(folder / "x.html")])
    assert not folder.exists()


def test_a_page_that_cannot_be_written_is_told_in_one_line() -> None:
    """No file can be made in /proc, which says that there is no such file."""
    with pytest.raises(DataError, match=r"^/proc/x.html: cannot be written: .*; name a file"):
        run(["page", "/proc/x.html"])
