"""Report and page of a study in a real Chromium: the report's first page can be read from the top, and results open beside their list."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from checkout import Checkout
from selenium.webdriver.common.by import By

from tests.study.browser import Browser

RULES = ("decide", "write_answer", "write_page", "draw_advice", "draw_scale", "decision")
TARGETS = ("decision", "--allowed-rules", *RULES)
STUDY = "study.yaml"
TITLE = "a | *b* `c` <d> d_ 学"


@pytest.fixture(scope="module")
def report(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """That of costs which a file gives: it has an answer, figures and tables."""
    checkout = Checkout.make(tmp_path_factory.mktemp("report") / "checkout")
    costs = (checkout.folder / "config/costs-example.yaml").read_text()
    (checkout.folder / "costs.yaml").write_text(costs.replace("title: my training", f"title: '{TITLE}'"))  # fmt: skip
    (checkout.folder / STUDY).write_text("decision: {numbers: costs.yaml, gpus: [2048]}\n")
    for options in ((), ("--report", "report.html")):
        done = checkout.run(*TARGETS, *options, study=STUDY)
        assert done.returncode == 0, done.stdout
    return checkout.folder / "report.html"


def beside(browser: Browser, name: str) -> str:
    """A file that the workflow wrote."""
    report = Path(browser.driver.current_url.removeprefix("file://"))
    return report.with_name("results").joinpath(name).read_text()


PAPER = 700
"""Pixels of a sheet of A4 without its margins."""
SIZES = [(1280, 900), (1280, 400), (390, 844)]
"""Windows in which the first page has room, and in which it has none."""


@pytest.fixture
def opened(window: Browser, report: Path) -> Iterator[Browser]:
    window.driver.get("about:blank")
    window.console()
    yield window
    # Snakemake's own page warns of how it is built.
    assert not [line for line in window.console() if not line.startswith("WARNING: ")]


def open_in(browser: Browser, report: Path, size: tuple[int, int]) -> None:
    browser.shape(*size)
    browser.driver.get("about:blank")
    browser.driver.get(report.as_uri())
    browser.wait(lambda: browser.driver.find_elements(By.CSS_SELECTOR, ".answer"))


def test_the_first_screen_begins_with_figures_and_the_answer_stands_below_them(
    opened: Browser, report: Path
) -> None:
    """The answer is no file to save too."""
    for size in SIZES:
        open_in(opened, report, size)
        heading = opened.driver.find_element(By.CSS_SELECTOR, ".prose h1")
        assert heading.text == "Figures of this study"
        assert opened.run(
            "const {x, y} = arguments[0].getBoundingClientRect();"
            "return x >= 0 && y >= 0 && document.elementFromPoint(x + 2, y + 2) === arguments[0]",
            heading,
        )
        image = opened.driver.find_element(By.CSS_SELECTOR, ".figures img")
        assert image.rect["y"] < size[1], "on the first screen"
        assert opened.run("return arguments[0].naturalWidth", image) > 0
        answer = opened.driver.find_element(By.CSS_SELECTOR, ".answer table")
        assert answer.rect["y"] > image.rect["y"]
        assert TITLE in answer.find_element(By.XPATH, "ancestor::main | ancestor::body").text
    names = {*opened.run("return Object.keys(results)")}
    assert "results/answer.txt" not in names
    assert {"results/figures/advice.png", "results/tables/advice.csv"} <= names


@pytest.mark.parametrize("width", [390, 820, 1280])
@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_the_page_of_the_study_fits_its_window_and_asks_the_network_for_nothing(
    window: Browser, report: Path, width: int, scheme: str
) -> None:
    page = report.with_name("results") / "index.html"
    window.prefer(scheme)
    window.shape(width, 900)
    window.driver.get("about:blank")
    window.requests(), window.console()
    window.driver.get(page.as_uri())
    assert window.driver.find_element(By.TAG_NAME, "h1").text == f"How often to checkpoint: {TITLE}"
    assert window.run("return document.documentElement.scrollWidth") <= width
    assert all(window.run("return [...document.images].map(each => each.naturalWidth)"))
    assert [each for each in window.requests() if not each.startswith("data:")] == [page.as_uri()]
    assert not window.console()
    longest = "ulfm, 131,072 GPUs, projected: saves stop for 2.0 s and slow steps by 4.0 s (deepfreeze), 60 s (native)"
    window.run("document.querySelector('.answer td').textContent = arguments[0]", longest)
    window.driver.execute_cdp_cmd("Emulation.setEmulatedMedia", {"media": "print"})
    window.shape(PAPER, 900)
    table = "const table = document.querySelector('.answer table');"
    assert window.run(f"{table} return table.scrollWidth <= table.parentNode.clientWidth")
    window.driver.execute_cdp_cmd("Emulation.setEmulatedMedia", {"media": ""})


def test_a_figure_opens_in_place_with_its_caption(opened: Browser, report: Path) -> None:
    for size in SIZES:
        open_in(opened, report, size)
        opened.run("app.showResultInfo('results/figures/advice.png')")
        opened.wait(lambda: "with failures as in" in opened.driver.page_source)
        caption = opened.run("return results['results/figures/advice.png'].caption")
        text = opened.run("const e = document.createElement('div'); e.innerHTML = arguments[0]; return e.textContent", caption)  # fmt: skip
        assert text.split() == beside(opened, "figures/advice.txt").split()
        assert f"With {TITLE}." in " ".join(text.split())
        opened.run("document.querySelector('td a').click()")
        opened.wait(lambda: opened.run("const i = document.querySelector('.p-3 > img'); return i && i.naturalWidth"))  # fmt: skip
        x, width = opened.run("const box = document.querySelector('.p-3 > img').getBoundingClientRect(); return [box.x, box.width]")  # fmt: skip
        assert x >= 0
        assert width > 100
        assert len(opened.driver.window_handles) == 1
