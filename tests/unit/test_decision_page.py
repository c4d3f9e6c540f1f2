"""The page before a browser sees it: what it starts from, and that it is one file."""

from __future__ import annotations

import json
import re
from typing import Any

import pandas as pd
import pytest

from ckptbench.analysis.tables.grouping import records
from ckptbench.cli.tables import usual
from ckptbench.decide.rates import FailureRate, rate_of_job, read_rates
from ckptbench.report.page.html import page
from ckptbench.report.page.start import payload
from tests.decided_study import CHOICES, LEVELS, RATES, ROOT, costs

CALCULATOR = ROOT / "docs" / "calculator.html"


@pytest.fixture(scope="module")
def rates() -> list[FailureRate]:
    return [*read_rates(RATES), *read_rates(RATES / "example")]


@pytest.fixture(scope="module")
def study(rates: list[FailureRate]) -> dict[str, Any]:
    return payload(costs(), rates, CHOICES)


@pytest.fixture(scope="module")
def text(rates: list[FailureRate]) -> str:
    return page(costs(), rates, CHOICES)


def case_of(study: dict[str, Any], ranks: int, recovery: str) -> dict[str, Any]:
    return next(
        case for case in study["cases"]
        if case.get("ranks") == ranks and recovery in case["title"].lower()
    )  # fmt: skip


def test_costs_come_with_all_their_digits(study: dict[str, Any]) -> None:
    two = costs()[lambda frame: frame["ranks"] == 2]
    for row in records(two):
        case = case_of(study, 2, row["recovery"])
        (own,) = (each for each in case["strategies"] if each["name"] == row["strategy"])
        assert (own["stall"], own["durable"], own["down"]) == (row["stall_s"], row["durable_s"], row["down_s"])  # fmt: skip
        assert (own["slowdown"], case["step"]) == (row["slowdown_s"], row["step_s"])


def test_the_pause_has_no_replacement_in_it(study: dict[str, Any]) -> None:
    """It depends on the number of GPUs, so the page adds it."""
    case = case_of(study, 2, "ulfm")
    assert case["strategies"][0]["pause"] == 1.4
    assert not case["replaces"]


def test_rates_come_with_the_ends_of_their_intervals(
    study: dict[str, Any], rates: list[FailureRate]
) -> None:
    known = {rate["name"]: rate["hours"] for rate in study["rates"]}
    assert known.keys() == {rate.name for rate in rates}
    (llama,) = (rate for rate in rates if rate.name == "llama3")
    assert known["llama3"] == [llama.mean_gpu_hours, llama.lo, llama.hi]
    (hours,) = payload(None, [rate_of_job(3600.0, 8)], CHOICES)["rates"]
    assert hours["hours"] == [8.0]


def test_a_setup_is_a_case_in_the_options_of_the_command(study: dict[str, Any]) -> None:
    """At the most GPUs that are asked for. The most ranks of the first system come first; a strategy that waits for its write is a blocking one."""
    first = study["cases"][0]
    assert first["title"] == "PyTorch · 4 ranks · restart"
    assert first["pairs"] == [
        ("gpus", "131072"), ("rate", "llama3"), ("step", "2.2 s"), ("blocking", "native=1.9 s"), ("async", "async=0.21 s+2.39 s"),
        ("restart", "9.5 s"), ("now", "40 steps"),
    ]  # fmt: skip
    assert [case["title"] for case in study["cases"]][-2:] == [
        "Example: 7B on 256 GPUs",
        "Example: 8 GPUs, preemptible",
    ]


def test_restarts_that_differ_are_those_that_were_measured(rates: list[FailureRate]) -> None:
    rows = costs().assign(down_s=lambda frame: frame["down_s"].where(frame["strategy"] != "async", 20.0))  # fmt: skip
    case = case_of(payload(rows, rates, CHOICES), 2, "ulfm")
    assert dict(case["pairs"])["restart"] == "as in the study"
    assert case["restart"] is None
    assert [each["down"] for each in case["strategies"]] == [9.9, 20.0]


def test_what_was_not_measured_is_not_called_so(rates: list[FailureRate]) -> None:
    """A restart that stands for a start and a load, and a time that an option has set."""
    rows = costs().assign(down_from="starts", step_s_lo=2.2, step_s_hi=2.2)
    how = case_of(payload(rows, rates, CHOICES), 4, "restart")["how_of"]
    assert how == {"step": "given", "restart": "not measured, assumed to be a start plus a load"}
    how = case_of(payload(costs(), rates, CHOICES), 4, "restart")["how_of"]
    assert how == {"step": "measured", "restart": "measured"}


def test_levels_come_with_their_strategy(study: dict[str, Any]) -> None:
    (case,) = (each for each in study["cases"] if "TensorFlow" in each["title"] and "restart" in each["title"])  # fmt: skip
    (strategy,) = case["strategies"]
    assert LEVELS.startswith("deepfreeze")
    assert (strategy["every"], strategy["copied"], strategy["globalTier"]) == (
        6,
        False,
        2.4,
    )


def test_a_strategy_is_named_with_what_tells_it_from_others(rates: list[FailureRate]) -> None:
    rows = pd.concat([costs(), costs().assign(interval="s10")], ignore_index=True)
    cases = payload(rows, rates, CHOICES)["cases"]
    names = {each["name"] for case in cases for each in case["strategies"]}
    assert names == {f"{strategy}, every {unit}" for strategy in ("native", "async", "deepfreeze memory=1 shared=6") for unit in ("epoch", "10 steps")}  # fmt: skip


def test_the_calculator_in_docs_is_up_to_date() -> None:
    """`make generated` writes it."""
    kept = CALCULATOR.read_text(encoding="utf-8")
    assert kept == page(None, read_rates(RATES), usual())
    assert len(kept.encode()) < 1_000_000


def test_the_page_is_one_file_that_names_no_other(text: str) -> None:
    markup = re.sub(r"<(script|style)\b[^>]*>.*?</\1>", r"<\1></\1>", text, flags=re.DOTALL)
    assert re.findall(r"""(?:src|href)=["']([^"']*)""", markup) == ["data:,"]
    assert "http" not in markup.replace("http-equiv", "")
    assert "@import" not in text
    assert "url(" not in "".join(re.findall(r"<style>.*?</style>", text, re.DOTALL))


def test_the_page_forbids_itself_the_network(text: str) -> None:
    (policy,) = re.findall(r'http-equiv="Content-Security-Policy" content="([^"]*)"', text)
    allowed = dict(part.split(maxsplit=1) for part in policy.split("; "))
    assert allowed.pop("default-src") == "'none'"
    sources = {source for each in allowed.values() for source in each.split()}
    assert sources == {"'none'", "'unsafe-inline'", "'unsafe-eval'", "data:"}


def test_every_part_of_the_page_is_in_it(text: str) -> None:
    for part in ("function goodput(", "function amount(", "function answer(", "function usefulAt(", "async function makeChart(", "University of Washington"):  # fmt: skip
        assert text.count(part) == 1
    (chart,) = re.findall(r'id="chart-spec">\n(.*?)\n</script>', text)
    assert json.loads(chart)["marks"]


def test_names_cannot_end_a_script(rates: list[FailureRate]) -> None:
    spoilt = "</script><script>alert(1)//<!--"
    text = page(costs().assign(source=spoilt), rates, CHOICES)
    assert spoilt not in text
    (start,) = re.findall(r'id="start">\n(.*?)\n</script>', text)
    assert spoilt in json.loads(start)["cases"][0]["source"]
