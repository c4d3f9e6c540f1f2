"""The page to ask "what if" before a browser sees it: what it starts from, and that it is one file."""

from __future__ import annotations

import base64
import json
import re
from dataclasses import replace
from typing import Any

import numpy as np
import pandas as pd
import pytest

from ckptbench.analysis.tables.grouping import records
from ckptbench.decide import drawn
from ckptbench.decide.advice import advice
from ckptbench.decide.choices import Choices
from ckptbench.decide.rates import FailureRate, read_rates
from ckptbench.errors import ConfigError
from ckptbench.page.html import page
from ckptbench.page.payload import payload
from tests.decided_study import CHOICES, RATES, costs


@pytest.fixture(scope="module")
def rates() -> list[FailureRate]:
    return [*read_rates(RATES), *read_rates(RATES / "example")]


@pytest.fixture(scope="module")
def study(rates: list[FailureRate]) -> dict[str, Any]:
    return payload(costs(), rates, CHOICES)


@pytest.fixture(scope="module")
def text(rates: list[FailureRate]) -> str:
    return page(costs(), rates, CHOICES)


def drawn_of(study: dict[str, Any], known: dict[str, Any]) -> np.ndarray:
    return np.frombuffer(base64.b64decode(study["draws"][known["draws"]]), "<f8")


def row_of(study: dict[str, Any], strategy: str, recovery: str) -> dict[str, Any]:
    (row,) = (
        row for row in study["rows"]
        if (row["ranks"], row["strategy"], row["recovery"]) == (2, strategy, recovery)
    )  # fmt: skip
    return row


def test_costs_come_with_the_draws_of_the_decision(study: dict[str, Any]) -> None:
    for row in records(costs()[lambda frame: frame["ranks"] == 2]):
        own = row_of(study, row["strategy"], row["recovery"])
        stall, step = own["costs"]["stall_s"], own["costs"]["step_s"]
        assert (stall["value"], stall["lo"], stall["hi"]) == (
            row["stall_s"],
            row["stall_s_lo"],
            row["stall_s_hi"],
        )
        assert (drawn_of(study, stall) == drawn.saving(row).stall_s[1:]).all()
        assert (drawn_of(study, step) == drawn.step_s(row)[1:]).all()


def test_an_exact_cost_has_no_draws(study: dict[str, Any]) -> None:
    cost = row_of(study, "native", "ulfm")["costs"]["down_s"]
    assert cost == {"value": 9.9, "lo": None, "hi": None, "draws": None}


def test_rows_of_one_setup_share_their_draws(study: dict[str, Any]) -> None:
    first, second = (row_of(study, "async", recovery)["costs"] for recovery in ("restart", "ulfm"))
    assert first["stall_s"]["draws"] == second["stall_s"]["draws"]
    assert first["stall_s"]["draws"] != row_of(study, "native", "ulfm")["costs"]["stall_s"]["draws"]


def test_the_pause_has_no_replacement_in_it(study: dict[str, Any]) -> None:
    """It depends on the number of GPUs, so the page adds it."""
    own = row_of(study, "async", "ulfm")
    assert own["costs"]["pause_s"]["value"] == 1.4
    assert not own["replaces"]


def test_rates_come_with_their_draws(study: dict[str, Any], rates: list[FailureRate]) -> None:
    known = {rate["name"]: rate for rate in study["rates"]}
    assert known.keys() == {rate.name for rate in rates}
    for name in ("llama3", "log"):
        (rate,) = (rate for rate in rates if rate.name == name)
        hours = 1 / (drawn.failures_per_s(rate, 1) * 3600)
        assert known[name]["mean_gpu_hours"] == pytest.approx(hours[0], rel=1e-12)
        assert (drawn_of(study, known[name]) == hours[1:]).all()
    assert known["kokolis-1k"]["draws"] is not None, "a published rate is another machine's"


def test_it_starts_with_the_winner_on_the_most_ranks(
    study: dict[str, Any], rates: list[FailureRate]
) -> None:
    chosen = [rate for rate in rates if rate.name == CHOICES.rate]
    known = advice(costs(), chosen, CHOICES)
    (winner,) = records(known[known["wins"] & (known["gpus"] == 4) & (known["framework"] == "pytorch")])  # fmt: skip
    start = study["rows"][study["start"]]
    assert (start["ranks"], start["strategy"], start["recovery"]) == (
        4,
        winner["strategy"],
        winner["recovery"],
    )
    assert start["in_use_steps"] == winner["in_use_steps"] == 40


def test_a_strategy_is_named_with_what_tells_it_from_others(rates: list[FailureRate]) -> None:
    rows = pd.concat([costs(), costs().assign(interval="s10")], ignore_index=True)
    names = {row["strategy"] for row in payload(rows, rates, CHOICES)["rows"]}
    assert names == {f"{strategy}, every {unit}" for strategy in ("native", "async", "deepfreeze (memory 1, shared 6)") for unit in ("epoch", "10 steps")}  # fmt: skip


def test_unknown_bytes_are_null(rates: list[FailureRate]) -> None:
    rows = costs().assign(bytes=np.nan)
    assert {row["bytes"] for row in payload(rows, rates, CHOICES)["rows"]} == {None}


def test_without_costs_there_is_nothing_to_start_from(rates: list[FailureRate]) -> None:
    study = payload(costs()[:0], rates, CHOICES)
    assert (study["rows"], study["start"]) == ([], None)


def test_a_rate_that_is_not_there_is_refused(rates: list[FailureRate]) -> None:
    with pytest.raises(ConfigError, match=r"decision.rate is mine: use one of .*llama3"):
        payload(costs(), rates, replace(CHOICES, rate="mine"))


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
    for part in ("function goodput(", "function amount(", "function answer(", "async function begin(", "University of Washington"):  # fmt: skip
        assert text.count(part) == 1
    (chart,) = re.findall(r'id="chart-spec">\n(.*?)\n</script>', text)
    assert json.loads(chart)["layer"]


def test_names_cannot_end_a_script(rates: list[FailureRate]) -> None:
    spoilt = "</script><script>alert(1)//<!--"
    text = page(costs().assign(source=spoilt), rates, CHOICES)
    assert spoilt not in text
    (study,) = re.findall(r'id="study">\n(.*?)\n</script>', text)
    assert json.loads(study)["rows"][0]["source"] == spoilt


@pytest.mark.parametrize("text", ["3", "{", '{"rate": "llama3"}', '{"gpus": 3}'])
def test_choices_that_are_none_are_refused(text: str) -> None:
    with pytest.raises(
        ConfigError, match="rate, gpus, survivable, replacement_minutes, gpus_per_node"
    ):
        Choices.parse(text)


def test_choices_are_read() -> None:
    text = '{"rate": "llama3", "gpus": [1024, 16384, 131072], "survivable": 0.77, "replacement_minutes": 60, "gpus_per_node": 8}'
    assert Choices.parse(text) == CHOICES
