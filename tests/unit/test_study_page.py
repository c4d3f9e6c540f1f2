"""The page of a study: all that was drawn and written is in it, in order, and nothing of it is asked of the network."""

from __future__ import annotations

import re
from html.parser import HTMLParser
from io import BytesIO
from pathlib import Path

import pandas as pd
import pytest
from decision_tables import decided
from figure_tables import Study, empty_tables
from PIL import Image

from ckptbench.analysis.tables.registry import EVERY
from ckptbench.analysis.tables.store import write_tables
from ckptbench.config.identity import OF_RUNS, mark_path, marking
from ckptbench.report.answer import sizes
from ckptbench.report.answer.quantities import more
from ckptbench.report.answer.study import answer, study_text
from ckptbench.report.figures import ABOUT, FIGURES
from ckptbench.report.study_page.files import Drawn, Stored
from ckptbench.report.study_page.html import StudyPage, study_page
from ckptbench.workflow.__main__ import main
from tests.decided_study import CHOICES, RATES

VOID = {"meta", "link", "img", "br"}
CONFIG = "Config 3f2a91c7 (a.yaml): 3 runs"
TITLE = "</style><script>alert('学')</script> & \"quoted\""

Tables = dict[str, pd.DataFrame]


class Page(HTMLParser):
    """Which elements a page has; raises where they do not close in the order in which they open."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.open: list[str] = []
        self.seen: list[tuple[str, dict[str, str | None]]] = []
        self.feed(text)
        assert not self.open

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.seen.append((tag, dict(attrs)))
        if tag not in VOID:
            self.open.append(tag)

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag

    def all(self, tag: str) -> list[dict[str, str | None]]:
        return [attributes for name, attributes in self.seen if name == tag]


def in_words(text: str) -> str:
    return " ".join(re.sub(r"<style>.*?</style>|<[^>]*>", " ", text, flags=re.DOTALL).split())


def drawn(figures: tuple[str, ...]) -> dict[str, Drawn]:
    """An empty picture of each."""
    file = BytesIO()
    Image.new("L", (600, 300)).save(file, "png", dpi=(300, 300))
    return {name: Drawn(file.getvalue(), f"Caption of {name} <b>.") for name in figures}


def page_of(tables: Tables, figures: tuple[str, ...] = tuple(FIGURES)) -> str:
    """The page of these tables, and of these figures, which were drawn."""
    stored = {name: Stored(len(table)) for name, table in tables.items()}
    return study_page(StudyPage.of(tables, CONFIG, drawn(figures), stored, "results/tables"))


def written_by_the_verb(folder: Path, tables: Tables, *more: str) -> str:
    """The page that `write-page` makes of the tables in a folder, with the figures `advice` and `stall`."""
    write_tables(folder / "tables", tables)
    with marking(mark_path(folder / "tables", OF_RUNS, "3f2a91c7"), CONFIG):
        pass
    (folder / "figures").mkdir()
    for name, each in drawn(("advice", "stall")).items():
        stem = folder / "figures" / name
        stem.with_suffix(".png").write_bytes(each.png)
        stem.with_suffix(".txt").write_text(each.caption.replace(" ", "\n"), encoding="utf-8")
    pictures = map(str, sorted((folder / "figures").iterdir()))
    choices = CHOICES.model_dump_json(exclude={"rates", "numbers"})
    options = {"--tables": folder / "tables", "--rates": RATES, "--choices": choices, "--output": folder / "index.html"}  # fmt: skip
    given = (str(part) for pair in options.items() for part in pair)
    assert main(["write-page", *pictures, *given, *more]) == 0
    return (folder / "index.html").read_text(encoding="utf-8")


def settled() -> Tables:
    """Of a study that one may quote."""
    tables = decided("measured")
    machine = tables["machine"].assign(disturbed=False)
    overhead = tables["overhead"].assign(overhead_lo=0.01, overhead_hi=0.02, agree=True)
    return {**tables, "machine": machine, "overhead": overhead}


@pytest.fixture(scope="module")
def text() -> str:
    return page_of(settled())


def test_every_figure_is_in_it_once_in_order_with_its_caption(text: str) -> None:
    assert [each["id"] for each in Page(text).all("figure")] == list(FIGURES)
    assert all(each["src"].startswith("data:image/png;base64,") for each in Page(text).all("img"))  # type: ignore[union-attr]
    words = in_words(text)
    places = [words.index(f"Caption of {name} &lt;b&gt;.") for name in FIGURES]
    assert places == sorted(places)
    for entry in FIGURES.values():
        assert f"<h3>{entry.title}</h3>" in text
    assert [words.index(title) for title in ABOUT.values()]


def test_the_verb_takes_what_lies_in_the_folders(tmp_path: Path) -> None:
    page = written_by_the_verb(tmp_path, settled())
    assert page == page_of(settled(), ("stall", "advice")).replace("results/", f"{tmp_path}/")
    assert [each["id"] for each in Page(page).all("figure")] == ["stall", "advice"]
    assert "PyTorch" in (tmp_path / "calculator.html").read_text(encoding="utf-8")


def test_figures_keep_the_proportion_that_paper_gives_them(text: str) -> None:
    assert drawn(("stall",))["stall"].shown_size() == (250, 125)
    assert {(each["width"], each["height"]) for each in Page(text).all("img")} == {("250", "125")}


def test_every_table_is_named_with_what_a_row_is_and_its_files(text: str) -> None:
    written = settled()
    words = in_words(text)
    links = {each["href"] for each in Page(text).all("a")}
    for name in written:
        assert EVERY[name].title in words
        if len(written[name]):
            assert "".join(EVERY[name].table.row.replace("`", "").split()) in words.replace(" ", "")
            assert {f"tables/{name}.csv", f"tables/{name}.parquet"} <= links
    assert "Is the machine to be believed?" not in words, "no audit was made"


def test_it_is_one_file_without_a_script_that_asks_the_network_for_nothing(text: str) -> None:
    page = Page(text)
    assert not page.all("script")
    links = [each[key] for key in ("href", "src") for tag in ("a", "img", "link") for each in page.all(tag) if key in each]  # fmt: skip
    assert all(
        link and re.match(r"data:|(tables|figures)/\w+\.\w+$|calculator\.html$", link)
        for link in links
    )
    assert "http" not in re.sub(r"http-equiv", "", text)
    assert "url(" not in text


def test_it_says_where_when_from_what_and_how_much_was_measured(text: str) -> None:
    words = in_words(text)
    row = settled()["provenance"].iloc[0]
    for name, value in (
        ("Machine", row["cpu"]),
        ("Date", row["first_date"]),
        ("Commit", row["revision"][:12]),
        ("Runs", f"{row['runs']:,}"),
        ("Config", "3f2a91c7 (a.yaml)"),
    ):
        assert re.search(rf"{name} [^A-Z]*.*?{re.escape(value)}", words), name


def test_the_answer_is_a_table_of_the_same_cells(text: str) -> None:
    shown = answer(settled())
    words = in_words(text)
    assert len(Page(text).all("tr")) == 1 + len(shown.lines)
    for line in shown.lines:
        assert " ".join(" ".join(line.cells).split()) in words
    assert all(remark.split()[0] in words for remark in shown.remarks)


def test_disturbed_runs_are_a_warning_in_colour_and_settled_ones_none(
    text: str,
) -> None:
    assert 'class="warning"' not in text
    assert '<p class="fine">Fit to quote: ' in text
    tables = settled()
    tables["machine"]["disturbed"] = True
    page = page_of(tables)
    assert '<p class="warning">Do not quote: ' in page
    assert 'class="fine"' not in page


def test_a_user_s_own_costs_have_a_page_too_whatever_they_are_called(tmp_path: Path) -> None:
    tables = decided("given")
    costs = tables["decision_costs"].assign(model=TITLE)
    tables = {**tables, "decision_costs": costs, "advice": tables["advice"].assign(model=TITLE)}
    page = written_by_the_verb(tmp_path, tables, "--given")
    assert "<script" not in page
    assert "学" in page
    assert "Nothing was measured here" in page
    assert EVERY["stall"].title not in page
    assert not Page(page).all("script")


def test_nothing_at_all_has_a_page() -> None:
    page = page_of(empty_tables(), ())
    assert "No answer on the interval" in in_words(page)
    assert "filled with" not in page
    assert not Page(page).all("figure")


# ---- a study that asks what a checkpoint weighs


def of_sizes() -> Tables:
    """One run of each format of three frameworks, of which no time has an interval."""
    tables = {**Study(formats_each=2, repeats=1, ranks=(1,)).tables()}
    own, nothing = decided("measured"), empty_tables()
    ends = {"overhead": -0.44, "overhead_lo": float("nan"), "overhead_hi": float("nan")}
    decision = {name: own[name] for name in ("advice", "scale", "failure_rates", "decision_costs")}
    unkilled = {name: nothing[name] for name in ("resume_proof", "goodput")}
    return {**tables, **decision, **unkilled, "overhead": tables["overhead"].assign(**ends)}


def test_a_study_of_formats_answers_with_sizes_and_prints_no_time() -> None:
    tables = of_sizes()
    text = study_text(tables)
    assert text.startswith("Size of a checkpoint: Chainer, PyTorch, TensorFlow, ")
    assert "44 %" not in text
    assert "loses" not in text
    assert "results/tables/overhead.csv" in text
    assert text.count(" MB") >= len(tables["sizes"])
    row = tables["sizes"].iloc[0]
    assert more(row["ratio"]) in text
    assert len(text.splitlines()) <= 30


def test_its_page_has_no_figure_of_times() -> None:
    text = page_of(of_sizes())
    assert [each["id"] for each in Page(text).all("figure")] == ["sizes"]
    assert (
        f"Also drawn: {len(FIGURES) - 1} figures of times, of single runs, in the folder figures ."
        in in_words(text)
    )


def test_a_study_that_repeats_or_kills_asks_for_more_than_sizes() -> None:
    tables = of_sizes()
    repeated = {**tables, "overhead": tables["overhead"].assign(overhead_lo=-0.6, overhead_hi=0.1)}
    assert not sizes.is_asked(repeated)
    assert sizes.is_asked(tables)
    one = tables["sizes"].drop_duplicates("framework")
    assert not sizes.is_asked({**tables, "sizes": one}), "it compares no formats"
    assert not sizes.is_asked({**tables, "goodput": pd.DataFrame({"kept": [True]})})


@pytest.mark.parametrize("ends", [(float("nan"), float("nan")), (-2.0, 1.8)])
def test_an_overhead_that_may_be_none_is_no_finding(ends: tuple[float, float]) -> None:
    tables = settled()
    assert "Measured overhead, on top of training without checkpoints: " in " ".join(
        answer(tables).remarks
    )
    noise = {"overhead": -0.44, "overhead_lo": ends[0], "overhead_hi": ends[1]}
    of_noise = {**tables, "overhead": tables["overhead"].assign(**noise)}
    assert "44 %" not in " ".join(answer(of_noise).remarks)
