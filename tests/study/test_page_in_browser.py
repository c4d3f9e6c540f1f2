"""The calculator in a real Chromium: its numbers are Python's, and its users can enter, read and send theirs. Nothing is asked of the network."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any
from urllib.parse import parse_qsl

import numpy as np
import pytest
from selenium.webdriver.common.action_chains import ActionChains
from selenium.webdriver.common.keys import Keys
from selenium.webdriver.support.ui import Select

from ckptbench.cli.types import AN_ASYNCHRONOUS
from ckptbench.cli.verbs import run
from ckptbench.common.errors import ConfigError
from ckptbench.decide import formulas, sampling
from ckptbench.decide.costs import GlobalTier, Recovering, Saving
from ckptbench.decide.limit import Limit
from ckptbench.decide.model import best, goodput
from ckptbench.decide.rates import FailureRate
from ckptbench.report.answer import quantities
from tests.decided_study import LEVELS
from tests.study.browser import Browser
from tests.study.what_if import (
    choose,
    enter,
    enter_cost,
    expected,
    paste,
    row_of,
    start_from,
    strategies,
    wrong,
)

PYTORCH, TENSORFLOW = "PyTorch · 4 ranks", "TensorFlow · 4 ranks"
LEAST_CONTRAST = 4.5
"""Of a text that is not large, after the Web Content Accessibility Guidelines 2.2, level AA."""
WIDTHS = (360, 390, 1280)
"""Pixels, of phones and a screen."""


def test_a_request_would_be_seen(window: Browser, tmp_path: Path) -> None:
    """Or the check after every test would find nothing, whatever the page did."""
    path = tmp_path / "asking.html"
    address = "http://127.0.0.1:9/anything"
    path.write_text(f"<!doctype html><p id=sentence>asks</p><img src={address}>", encoding="utf-8")
    window.open(path)
    window.wait(lambda: window.run("return document.images[0].complete"))
    assert address in window.requests()
    assert any(address in each for each in window.console())


# ---- its numbers


SEARCH = """return arguments[0].map(([rate, stallS, durableS, slowdownS, downS, survived, pauseS, every, needed, farS, step, interval]) => {
    const one = {stepS: step, slower: 1, failuresPerS: rate, saving: {stallS, durableS, slowdownS},
        recovering: {downS, survived, pauseS}, globalTier: {every, needed, durableS: farS, downS}};
    const found = best(one), range = fine(one, found);
    return [usefulAt(one, interval / step), found.steps, found.useful, range.from || 0, range.to || 0,
        formulas.young_s(stallS, rate), formulas.daly_s(stallS, rate), formulas.saxena_s(stallS, downS, rate)];
})"""
NUMBER = 1500


def cases(seed: int) -> np.ndarray:
    """Random ones, shape (NUMBER, 12), among them short saves of long versions, survivors and two levels."""
    random = np.random.default_rng(seed)

    def between(first: float, last: float) -> np.ndarray:
        return np.exp(random.uniform(np.log(first), np.log(last), NUMBER))

    def some(part: float, values: np.ndarray) -> np.ndarray:
        return np.where(random.random(NUMBER) < part, values, 0.0)

    stall = some(0.9, between(1e-3, 300))
    durable = stall + some(0.5, between(1e-2, 3000))
    survived = some(0.5, random.random(NUMBER))
    every = np.where(random.random(NUMBER) < 0.3, random.integers(2, 50, NUMBER), 1)
    needed = np.where(every > 1, random.random(NUMBER), 0.0)
    global_s = np.where(every > 1, between(1e-2, 600), 0.0)
    pause = np.where(survived > 0, between(0.1, 1000), 0.0)
    return np.stack(
        [1 / between(300, 1e8), stall, durable, some(0.5, between(1e-3, 30)), between(1, 1000), survived, pause, every, needed, global_s,
         between(1e-2, 100), between(1e-2, 1e5)],
        axis=1,
    )  # fmt: skip


def test_the_best_and_the_fine_steps_are_those_of_python(browser: Browser) -> None:
    """Of ordinary cases; for any costs the goodput lies between 0 and 1."""
    given = cases(seed=5)
    # Durable after 12 s, with steps of 8.4 s: after one step a save waits for the one before, and the step beside this kink is not the best.
    given[0] = [1 / 86400, 1.0, 12.0, 0.0, 60.0, 0.0, 0.0, 1, 0.0, 0.0, 8.4, 8.4]
    rate, stall, durable, slowdown, down, survived, pause, every, needed, global_s, step, interval = given.T  # fmt: skip
    saving = Saving(stall_s=stall, durable_s=durable, slowdown_s=slowdown)
    recovering = Recovering(down_s=down, survived=survived, pause_s=pause)
    global_tier = GlobalTier(
        saving=Saving(stall_s=0.0, durable_s=global_s), every=every, needed=needed, down_s=down
    )  # type: ignore[arg-type]
    shown = np.array(browser.run(SEARCH, given.tolist()))
    found = best(saving, recovering, rate, step_s=step, global_tier=global_tier)
    wanted = goodput(interval, saving, recovering, rate, global_tier)
    np.testing.assert_allclose(shown[:, 0], wanted, rtol=1e-12)
    np.testing.assert_allclose(shown[:, 2], found.goodput, rtol=1e-12)
    at_its_steps = np.asarray(goodput(shown[:, 1] * step, saving, recovering, rate, global_tier))
    np.testing.assert_allclose(at_its_steps, found.goodput, rtol=1e-12)
    assert shown[0, 1] == found.steps[0] > 1
    assert (shown[:, 1] == found.steps).mean() > 0.95  # the others are as good
    assert (
        0.01 < np.isnan(found.fine_from_steps).mean() < 0.9
    )  # where more than half is lost: 0 below
    for column, ends in (
        (3, np.nan_to_num(found.fine_from_steps)),
        (4, np.nan_to_num(found.fine_to_steps)),
    ):
        np.testing.assert_allclose(shown[:, column], ends, rtol=1e-5, atol=1)
        assert (shown[:, column] == ends).mean() > 0.95
    others = [formulas.young_s(stall, rate), formulas.daly_s(stall, rate), formulas.saxena_s(stall, down, rate)]  # fmt: skip
    np.testing.assert_allclose(shown[:, 5:], np.stack(others, axis=1), rtol=1e-12)
    given = cases(seed=6)
    given[:, [1, 2, 3, 4, 6, 9]] *= np.array([1e3, 1e5, 1e7, 1e6, 1e4, 1e5])
    useful = np.array(browser.run(SEARCH, given.tolist()))[:, [0, 2]]
    assert ((useful >= 0) & (useful <= 1)).all()


def test_a_setup_of_a_study_has_the_numbers_of_python(
    browser: Browser, rates: dict[str, FailureRate]
) -> None:
    """With survivors, levels, steps that a recovery slows down, at the measured number of ranks and beyond, by a rate with and without an interval."""
    for setup, names, recovery, gpus, rate in (
        (PYTORCH, ("native", "async"), "restart", 4, "llama3"),
        (PYTORCH, ("native", "async"), "ulfm", 1024, "llama3"),
        (PYTORCH, ("native", "async"), "restart", 3000, "log"),
        (TENSORFLOW, (LEVELS,), "restart", 20_000, "llama3"),
        (TENSORFLOW, (LEVELS,), "ulfm", 20_000, "llama3"),
    ):
        start_from(browser, setup, recovery)
        enter(browser, "gpus", str(gpus))
        choose(browser, "rate", rates[rate].file.title)
        limit = None if gpus == 4 else Limit(seconds=2 * 3600)
        enter(browser, "limit", "" if limit is None else "2h")
        wanted = [expected(row_of(4, name, recovery), rates[rate], gpus, 40, limit) for name in names]  # fmt: skip
        now, *rows = strategies(browser)
        assert_known(now[3], wanted[0]["now"])
        for row, each in zip(rows, wanted, strict=True):
            assert row[2]["value"] == each["steps"][0]
            assert row[1]["value"] == pytest.approx(each["steps"][0] * each["step_s"])
            assert_known(row[3], each["lost"])
            lo, hi = (steps * each["step_s"] for steps in each["fine"])
            in_words = quantities.span(lo, hi, quantities.unit_of_time(hi))
            assert row[4] == ("none" if each["lost"][0, 0] > 0.5 else in_words)
            assert_known(row[5], 24 * gpus * np.array(each["useful"].more_than(wanted[0]["useful_now"])))  # fmt: skip
        known = browser.element("known").text
        assert known.startswith("measured at 4 ranks" if gpus == 4 else "projected from 4 ranks")
    assert "the others are lost with a node" in browser.element("strategy-0-hint").text


def assert_known(shown: dict[str, float], values: np.ndarray) -> None:
    """`values`: on average, and by where a limit falls, each at the rate and others."""
    scale = abs(values).max()
    assert shown["value"] == pytest.approx(values[0, 0], rel=1e-8, abs=1e-9 * scale)
    if values.shape[1] > 1 or values.min() < values.max():
        wanted = (values.min(), values.max())
        assert (shown["lo"], shown["hi"]) == pytest.approx(wanted, rel=1e-8, abs=1e-9 * scale)


def test_costs_that_grow_or_slow_all_steps_have_the_answer_of_the_command(
    browser: Browser, grown: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """`ckptbench decide --study ... --html FILE` writes a page that says what the command does."""
    page = grown / "page.html"
    options = ["--study", str(grown), "--gpus", "1024", "--mtbf", "14h"]
    assert run(["decide", *options, "--json", "--html", str(page)]) == 0
    told = {each["name"]: each for each in json.loads(capsys.readouterr().out)["strategies"]}
    browser.open(page)
    for recovery in ("ulfm", "restart"):
        start_from(browser, PYTORCH, recovery)
        assert browser.element("gpus").get_attribute("value") == "1024"
        assert browser.element("mtbf").get_attribute("placeholder") == "14 h"
        now, *rows = strategies(browser)
        for row in rows:
            each = told[f"{row[0]}, {recovery}"]
            assert row[2]["value"] == each["steps"]
            assert row[3]["value"] == pytest.approx(each["loses"], rel=1e-8)
            if row[0] == "native":
                assert now[3]["value"] == pytest.approx(each["now"]["loses"], rel=1e-8)
    assert "every step takes 1.5 times as long" in browser.element("strategy-1-hint").text


def test_numbers_that_are_entered_are_exact(browser: Browser) -> None:
    start_from(browser, PYTORCH, "ulfm")
    for name, text in {"gpus": "512", "mtbf": "90 min", "step": "2.5 s", "restart": "4 min", "now": "10 min", "survived": "35", "pause": "12.5 s"}.items():  # fmt: skip
        enter(browser, name, text)
    enter_cost(browser, 0, "stall", "3.25 s")
    enter_cost(browser, 1, "stall", "0.5 s")
    enter_cost(browser, 1, "then", "31 s")
    survived = 0.35 * sampling.SURVIVABLE
    recovering = Recovering(down_s=240.0, survived=survived, pause_s=12.5 + 8 * 3600 / 512)
    exact = best(Saving(stall_s=3.25, durable_s=3.25), recovering, 1 / 5400, step_s=2.5)
    blocking = strategies(browser)[1]
    assert blocking[2]["value"] == exact.steps
    assert blocking[3]["value"] == pytest.approx(1 - exact.goodput, rel=1e-9)
    slowdown_s = row_of(4, "async", "ulfm")["slowdown_s"]
    assert saving_of(browser, 1) == {"stallS": 0.5, "durableS": 31.5, "slowdownS": slowdown_s}
    # State and bandwidth stand for a time. A save that blocks has no slower steps, whatever was measured of another.
    enter(browser, "state", "98GB")
    enter(browser, "bandwidth", "1.6GB/s")
    enter_cost(browser, 0, "stall", "")
    assert saving_of(browser, 0) == {"stallS": 61.25, "durableS": 61.25, "slowdownS": 0}
    enter_cost(browser, 1, "then", "")
    assert saving_of(browser, 1) == {"stallS": 0.5, "durableS": 61.75, "slowdownS": slowdown_s}
    kind = Select(browser.driver.find_elements("css selector", ".strategy select")[1])
    kind.select_by_visible_text("blocking")
    assert saving_of(browser, 1) == {"stallS": 0.5, "durableS": 0.5, "slowdownS": 0}


def saving_of(browser: Browser, place: int) -> Any:
    return browser.run(f"return answer(numbersOf(asked, origin)).strategies[{place}].estimate.saving")  # fmt: skip


ROWS = "return [...document.querySelectorAll('#strategies-compared tbody tr')].map(row => [...row.cells].map(cell => cell.textContent))"


def test_the_example_has_the_answer_of_the_command(browser: Browser, calculator: Path) -> None:
    """Its fields are in sight, and it is called an example. Without an interval in use there is none to compare with; where nothing helps none is recommended."""
    browser.open(calculator)
    assert all(browser.element(name).is_displayed() for name in ("gpus", "rate", "mtbf", "step", "restart", "now", "state", "bandwidth"))  # fmt: skip
    assert browser.element("known").text == "Example: 7B on 256 GPUs, not your numbers"
    texts = browser.run(ROWS)
    assert texts == [
        ["now: blocking", "120 min", "2,880", "8.7 %", "", ""],
        ["blocking", "40 min", "968", "5.7 %", "21 - 76 min", "182"],
        ["async", "9.1 min", "219", "2.2 %", "4.7 - 18 min", "398"],
    ]
    assert browser.element("save-steps").text == "every 200 steps"
    assert browser.run("return [968, 1609, 37257, 7, 1234567].map(steps => rounded(steps, {from: 1, to: 1e9}))") == [1000, 1600, 40000, 7, 1200000]  # fmt: skip
    enter_cost(browser, 1, "then", "5h")
    assert [row[5] for row in strategies(browser)[1:]][1]["value"] == pytest.approx(-2069, abs=0.5)
    shown = "return document.querySelector('#strategies-compared tbody tr:last-child td:last-child').textContent"
    assert browser.run(shown) == "costs 2,069 more"
    ends = browser.run("const { fine, estimate } = answer(numbersOf(asked, origin)).strategies[1]; return [fine.from * estimate.stepS, fine.to * estimate.stepS]")  # fmt: skip
    thick = browser.run("return view.data('fine').filter(({ place }) => place === 1).map(({ seconds }) => seconds)")  # fmt: skip
    assert (min(thick), max(thick)) == tuple(ends)  # narrow, but drawn
    enter_cost(browser, 1, "then", "90s")
    enter(browser, "now", "")
    blocking, later = strategies(browser)
    assert (blocking[2]["value"], later[2]["value"], blocking[5]) == (968, 219, "")
    assert browser.run("return view.data('now')") == []
    for name, text in (("mtbf", "10min"), ("restart", "30min"), ("now", "1h")):
        enter(browser, name, text)
    assert "fine" not in browser.element("sentence").text
    assert [row[4] for row in strategies(browser)] == ["", "none", "none"]
    enter(browser, "now", "")
    enter(browser, "mtbf", "1s")
    assert browser.element("sentence").text.startswith("Next to nothing gets done")
    assert browser.element("save-steps").text == browser.element("other-rates").text == ""
    assert [(row[1], row[2], row[4]) for row in strategies(browser)] == [("none helps", "", "")] * 2
    browser.run("start.rates[0].hours = [1e5, 10, 1e7]")
    choose(browser, "rate", browser.run("return start.rates[0].title"))
    assert "The best interval may be" in browser.element("sentence").text
    assert browser.element("save-steps").text == "every 1,200 steps"
    assert all("[" in row[1] and "[" in row[3] for row in browser.run(ROWS))
    browser.run("start.rates[0].hours = [1e5]; start.rates[0].bound = true")
    choose(browser, "rate", browser.run("return start.rates[1].title"))
    choose(browser, "rate", browser.run("return start.rates[0].title"))
    assert "or less often: that loses at most" in browser.element("sentence").text
    assert all((row[1][:8], row[3][:7], row[4]) == ("at least", "at most", "") for row in browser.run(ROWS))  # fmt: skip


def test_the_chart_has_a_line_for_each_strategy(browser: Browser) -> None:
    """Its axes have room and their marks do not collide, on a phone as on a screen."""
    drawn_lines = browser.run("return view.data('lines')")
    assert {each["place"] for each in drawn_lines} == {0, 1}
    one = json.loads(browser.run("return JSON.stringify(answer(numbersOf(asked, origin)).strategies[0].estimate)"))  # fmt: skip
    saving = Saving(stall_s=one["saving"]["stallS"], durable_s=one["saving"]["durableS"], slowdown_s=one["saving"]["slowdownS"])  # fmt: skip
    recovering = Recovering(down_s=one["recovering"]["downS"])
    for point in (each for each in drawn_lines if each["place"] == 0):
        lost = 1 - float(goodput(point["seconds"], saving, recovering, one["failuresPerS"]))
        assert point["lost"] == pytest.approx(lost, rel=1e-6)
    for width in WIDTHS:
        browser.shape(width, 900)
        for now in ("2h", "0.01s", "900 days"):
            browser.run(f"location.hash = '#from=Example%3A+7B+on+256+GPUs&step=0.01s&now={now}'")
            browser.wait(lambda now=now: browser.element("now").get_attribute("value") == now)
            chart, axes = browser.run(
                """const place = each => { const { left, right, top, bottom } = each.getBoundingClientRect(); return [left, right, top, bottom]; };
                const shown = each => each.getAttribute("opacity") !== "0" && each.textContent;
                return [place(document.getElementById("chart")), [...document.querySelectorAll("#chart .role-axis-label")].map(axis => [...axis.querySelectorAll("text")].filter(shown).map(place))]"""
            )
            assert len(axes) == 2
            for marks in axes:
                assert len(marks) >= (2 if now == "0.01s" else 3 if width < 400 else 4)
                for place, (left, right, top, bottom) in enumerate(marks):
                    assert min(left - chart[0], chart[1] + 1 - right, top - chart[2], chart[3] - bottom) >= 0  # fmt: skip
                    for other in marks[:place]:
                        beside = right + 4 < other[0] or other[1] + 4 < left
                        assert beside or bottom < other[2] or other[3] < top


def test_numbers_are_said_and_read_as_python_does(browser: Browser) -> None:
    random = np.random.default_rng(6)
    values = [*(float(each) for each in 10 ** random.uniform(-7, 7, 600)), 0.0, 12.5, 13.5, 0.125, 2.675, 968.0, 1e5]  # fmt: skip
    rows = [(each, each * random.uniform(-0.5, 1), each * random.uniform(1, 3)) for each in values]
    narrow = [(each, each * (1 - 1e-5), each * (1 + 1e-5)) for each in values[:50]]
    shown = browser.run(
        "return arguments[0].map(([value, lo, hi]) => [amount({value, lo, hi}, PERCENT), plain(value), duration(value), span(value, hi), tells({lo, hi})])",
        [*rows, *narrow],
    )  # fmt: skip
    assert shown == [
        [quantities.percent(*row), quantities.plain(row[0]), quantities.duration(row[0]),
         quantities.span(row[0], row[2], quantities.PLAIN), quantities.Quantity(*row).is_conclusive]
        for row in [*rows, *narrow]
    ]  # fmt: skip

    def read(reader: Any, text: str) -> Any:
        try:
            return reader(text)
        except ConfigError:
            return None

    def every(text: str) -> int:
        return quantities.read_every(text).in_steps(7.0)

    readers = (quantities.read_time, quantities.read_size, quantities.read_bandwidth, every)
    shown = browser.run(
        """const of = (read, text) => { try { return read(text); } catch (error) { if (error instanceof Wrong) return null; throw error; } };
        return arguments[0].map(text => [readTime, readSize, readBandwidth, text => readEvery(text)(7)].map(read => of(read, text)))""",
        TEXTS,
    )  # fmt: skip
    assert shown == [[read(reader, text) for reader in readers] for text in TEXTS]
    for text in ("3s+90s", "a b = c=3 s + 1min", "1e+1s+2e+1s", "x=1s", "y=2s+"):
        strategy = browser.run("return readStrategy('async', arguments[0])", text)
        wanted = AN_ASYNCHRONOUS.convert(text.rstrip("+"), None, None)
        assert strategy["name"] == wanted.name
        assert quantities.read_time(strategy["stall"]) == wanted.stall_s
        assert (quantities.read_time(strategy["then"]) if strategy["then"] else None) == wanted.then_s  # fmt: skip


TEXTS = [
    "2h", "90 s", "14 hours", "1h 30min", "1h30", "5", "", "2 parsecs", "0 s", "-3s", "1e3 s", "98GB", "98 GiB", "1.6GB/s", "100 Gbit/s", "1,000 s",
    "1,00 s", "2880 steps", "1 step", "0 steps", "2.5 steps", "3 Steps", ".5 h", "1e30 s", "2h extra", "constructor", "1 constructor", "toString",
]  # fmt: skip


# ---- who uses it, and on what


def test_the_address_holds_the_case_in_the_options_of_the_command(
    browser: Browser, written: Path
) -> None:
    """What is nonsense there is left out, and a wrong number is named."""
    start = strategies(browser)
    choose(browser, "from", "Example: 7B on 256 GPUs")
    for name, text in {"gpus": "777", "now": "33 steps", "restart": "61.5s", "mtbf": "1h 30min"}.items():  # fmt: skip
        enter(browser, name, text)
    enter_cost(browser, 1, "name", "sharded = fast")
    enter_cost(browser, 1, "then", "45s")
    before = strategies(browser)
    what_if = browser.driver.current_url.partition("#")[2]
    assert {("async", "sharded = fast=3s+45s"), ("gpus", "777"), ("mtbf", "1h 30min")} <= {*parse_qsl(what_if)}  # fmt: skip
    browser.open(written, f"#{what_if}")
    assert strategies(browser) == before
    assert browser.element("gpus").get_attribute("value") == "777"
    for nonsense in ("#constructor=2", "#toString=1&__proto__=3&hasOwnProperty=x", "#rate=none&from=gone&evil=1", "#%"):  # fmt: skip
        browser.open(written, nonsense)
        assert strategies(browser) == start
        assert browser.driver.current_url.partition("#")[2] == ""
    browser.open(written, "#gpus=-3&step=<b>2</b>&blocking=slow%3Dsoon")
    assert wrong(browser, "gpus") == "Use a whole number from 1 to 1,000,000"
    assert wrong(browser, "step").startswith("Not a time: write a number and its unit")
    assert wrong(browser, "strategy-0").startswith("Not a time")


def test_no_number_of_the_example_is_taken_for_the_readers(
    browser: Browser, calculator: Path
) -> None:
    """A link says all of its case. What is emptied stays so."""
    browser.open(calculator, "#gpus=8&mtbf=3h&step=2.5s&restart=1min&blocking=dcp%3D60s")
    assert [row[0] for row in strategies(browser)] == ["dcp"]
    assert "Now" not in browser.element("sentence").text
    browser.open(calculator, "#gpus=8&mtbf=3h")
    assert browser.element("known").text == "Correct what is marked."
    assert all(wrong(browser, name) for name in ("step", "restart", "strategy-0"))
    browser.open(calculator)
    enter(browser, "now", "")
    browser.open(calculator, f"#{browser.driver.current_url.partition('#')[2]}")
    assert [row[0] for row in strategies(browser)] == ["blocking", "async"]
    enter(browser, "now", "10 s")
    enter_cost(browser, 0, "stall", "1 s")
    browser.open(calculator, "#gpus=256&mtbf=14h&step=2.5s&restart=8min&now=30s&async=3s%2B90s")
    assert "as each save waits 60 s for the one before" in browser.element("sentence").text


def test_numbers_that_are_still_the_examples_are_named(
    browser: Browser, calculator: Path, written: Path
) -> None:
    """Until each has been entered. A link keeps them; one without such a list, or a file, has the reader's alone."""
    browser.open(calculator)
    known = browser.element("known")
    browser.element("add").click()
    assert known.text == "Example: 7B on 256 GPUs, not your numbers"
    browser.element("reset").click()
    enter(browser, "gpus", "64")
    assert known.text == "your GPUs; the other numbers are the example's"
    assert known.get_attribute("data-known") == "part"
    printed = browser.run("return document.getElementById('printed').textContent")
    assert "GPUs: 64. One step takes: 2.5s (example)." in printed
    assert "async: stops training for 3.0\u00a0s, then written for 90\u00a0s (example)." in printed
    what_if = browser.driver.current_url.partition("#")[2]
    for page, link in ((calculator, what_if), (written, f"from=Example%3A+7B+on+256+GPUs&{what_if}")):  # fmt: skip
        browser.open(page, f"#{link}")
        assert browser.element("known").text == "your GPUs; the other numbers are the example's"
    browser.open(calculator, f"#{what_if}")
    known = browser.element("known")
    enter(browser, "step", "2.5s")  # the same, but the reader's own
    choose(browser, "rate", "every 1 day")
    enter(browser, "restart", "9min")
    enter_cost(browser, 0, "stall", "50s")
    enter_cost(browser, 1, "stall", "4s")
    assert known.text == "your numbers, but the example's interval now and async"
    enter_cost(browser, 1, "then", "80s")
    assert known.text == "your numbers, but the example's interval now"
    enter(browser, "now", "")
    assert (known.text, known.get_attribute("data-known")) == ("your numbers", "yours")
    assert "example" not in browser.driver.current_url
    browser.element("add").click()
    assert known.text == "your numbers, but the example's strategy 3"
    browser.open(calculator, "#gpus=8&mtbf=3h&step=2.5s&restart=1min&async=3s%2B90s&example=toString+then-9+gpus")  # fmt: skip
    assert browser.element("known").text == "your numbers, but the example's GPUs"


def test_a_wrong_entry_is_named_and_changes_nothing(browser: Browser) -> None:
    """A right one is left as it was typed."""
    start = strategies(browser)
    for name, entered in (
        ("gpus", "0"), ("gpus", "1.5"), ("gpus", "1000001"), ("gpus", "1,0"), ("gpus", ""), ("now", "-1"), ("now", "0 steps"), ("step", "0 s"),
        ("step", "2 parsecs"), ("survived", "101"), ("survived", "0.77"), ("survived", "1"), ("state", "98 Gb"), ("bandwidth", "3 GB"),
    ):  # fmt: skip
        before = browser.element(name).get_attribute("value") or ""
        paste(browser, name, entered)
        assert browser.element(name).get_attribute("aria-invalid") == "true"
        assert wrong(browser, name)
        assert strategies(browser) == start
        paste(browser, name, before)
        assert browser.element(name).get_attribute("aria-invalid") == "false"
        assert wrong(browser, name) == ""
    enter(browser, "now", "0100 steps")
    assert browser.element("now").get_attribute("value") == "0100 steps"
    assert strategies(browser)[0][2]["value"] == 100


def test_each_strategy_has_a_name_of_its_own(browser: Browser, written: Path) -> None:
    """As in the command. One that is added is named as none is."""
    enter_cost(browser, 1, "name", "")
    assert wrong(browser, "strategy-1") == "Enter a name"
    enter_cost(browser, 1, "name", "native")
    assert wrong(browser, "strategy-0") == wrong(browser, "strategy-1") == "2 strategies have this name: give each its own"  # fmt: skip
    browser.open(written, "#from=Example%3A+7B+on+256+GPUs&blocking=60s&blocking=20s&now=")
    assert wrong(browser, "strategy-1").startswith("2 strategies have this name")
    browser.element("reset").click()
    for _ in range(2):
        browser.element("add").click()
    browser.driver.find_elements("css selector", ".strategy button")[0].click()
    browser.element("add").click()
    names = [row[0] for row in strategies(browser)[1:]]
    assert names == ["async", "strategy 3", "strategy 4", "strategy 5"]


def test_strategies_and_failures_are_chosen(browser: Browser) -> None:
    """A strategy is added, removed and named, in markup too. Failures come as often as entered, or as published, however the GPUs are written."""
    browser.element("add").click()
    assert [row[0] for row in strategies(browser)[1:]] == ["native", "async", "strategy 3"]
    browser.driver.find_elements("css selector", ".strategy button")[0].click()
    assert [row[0] for row in strategies(browser)] == ["now: async", "async", "strategy 3"]
    kind = Select(browser.driver.find_elements("css selector", ".strategy select")[1])
    kind.select_by_visible_text("blocking")
    assert "blocking=strategy+3%3D3s" in browser.driver.current_url
    enter_cost(browser, 1, "name", "<img src=x>&amp;")
    assert strategies(browser)[2][0] == "<img src=x>&amp;"
    assert browser.run("return document.images.length") == 0
    browser.element("reset").click()
    assert [row[0] for row in strategies(browser)[1:]] == ["native", "async"]
    choose(browser, "from", "Example: 7B on 256 GPUs")
    choose(browser, "rate", "every 1 hour")
    hourly = strategies(browser)[1][3]["value"]
    choose(browser, "rate", "every 1 day")
    daily = strategies(browser)[1][3]["value"]
    assert hourly > daily
    assert browser.element("mtbf").get_attribute("value") == "1 day"
    shown = []
    for gpus in ("1024", "1,024"):
        enter(browser, "gpus", gpus)
        choose(browser, "rate", browser.run("return rateOf('llama3').title"))
        shown.append((browser.element("mtbf").get_attribute("placeholder"), strategies(browser)))
    assert shown[0] == shown[1]
    assert (shown[0][0], browser.element("mtbf").get_attribute("value")) == ("49 h", "")
    enter(browser, "mtbf", "1 day")
    assert strategies(browser)[1][3]["value"] == daily


def test_the_keyboard_reaches_every_control_and_each_has_a_name_of_its_own(
    browser: Browser,
) -> None:
    reached = set()
    browser.driver.find_element("tag name", "body").send_keys(Keys.TAB)
    for _ in range(80):
        focused = browser.driver.switch_to.active_element
        if focused.tag_name == "body":
            break
        reached.add(focused.get_attribute("id") or focused.get_attribute("ariaLabel"))
        if focused.tag_name == "summary":
            focused.send_keys(Keys.ENTER)
        ActionChains(browser.driver).send_keys(
            Keys.TAB
        ).perform()  # a file field takes keys for a path
    wanted = browser.run("return [...document.querySelectorAll('#controls :is(input, select, button:enabled)')].filter(each => each.checkVisibility({visibilityProperty: true})).map(each => each.id || each.ariaLabel)")  # fmt: skip
    assert len(wanted) > 18
    assert set(wanted) <= reached
    tree = browser.command("Accessibility.getFullAXTree")["nodes"]
    roles = ("textbox", "combobox", "button")
    named = [
        (node["role"]["value"], node.get("name", {}).get("value", ""))
        for node in tree
        if node.get("role", {}).get("value") in roles
    ]
    assert len(named) >= 9 + 5 + 4 + 3
    assert all(name for _, name in named)
    assert len(set(named)) == len(named)
    (chart,) = (node for node in tree if node.get("role", {}).get("value") in ("image", "img"))
    assert "Time lost" in chart["name"]["value"]


LONG = "#gpus=131072&now=1s&async=a+strategy+with+a_very_long_name_that_does_not_break%3D3s%2B90s&blocking=61s"


def test_a_phone_shows_all_of_it_without_scrolling_sideways(
    browser: Browser, written: Path
) -> None:
    for width in WIDTHS[:2]:
        browser.shape(width, 740)
        for what_if in ("", LONG):
            browser.open(written, what_if)
            browser.run("for (const each of document.querySelectorAll('details')) each.open = true")
            assert browser.run("return document.documentElement.scrollWidth") <= width
            beyond = browser.run(
                "return [...document.querySelectorAll('body *')].filter(each => each.getBoundingClientRect().right > innerWidth + 1 && !each.closest('thead'))"
                ".map(each => each.outerHTML.slice(0, 80))"
            )
            assert beyond == []


def test_the_answer_stands_above_the_form_on_a_tablet(browser: Browser, calculator: Path) -> None:
    """With its table, and nothing is wider than the screen."""
    browser.shape(820, 1180)
    for what_if in ("", LONG):
        browser.open(calculator, what_if)
        tops = browser.run("return ['sentence', 'strategies-compared', 'controls', 'chart'].map(id => document.getElementById(id).getBoundingClientRect().top)")  # fmt: skip
        assert tops == sorted(tops)
        assert tops[2] < 1180
        assert browser.run("return document.documentElement.scrollWidth") <= 820


def test_the_answer_hides_no_field_in_use(browser: Browser, calculator: Path) -> None:
    """It stays on top while keys go back through the form."""
    for width, height in ((390, 740), (820, 700), (820, 380)):
        browser.shape(width, height)
        browser.open(calculator)
        browser.run("document.getElementById('reset').focus()")
        for _ in range(40):
            ActionChains(browser.driver).key_down(Keys.SHIFT).send_keys(Keys.TAB).key_up(Keys.SHIFT).perform()  # fmt: skip
            name, top, bottom = browser.run("const each = document.activeElement; return [each.id || each.ariaLabel, each.getBoundingClientRect().top, document.querySelector('.headline').getBoundingClientRect().bottom]")  # fmt: skip
            assert top >= bottom, (width, name)
            if name == "from":
                break
        assert name == "from"


def test_texts_are_legible_in_light_and_dark(browser: Browser, written: Path) -> None:
    for scheme in ("light", "dark"):
        browser.prefer(scheme)
        browser.open(written, "#gpus=16384&state=18GB&restart=3s")
        browser.run("for (const each of document.querySelectorAll('details')) each.open = true")
        seen = browser.run(
            """const opaque = element => {
                for (let each = element; each; each = each.parentElement) {
                    const color = getComputedStyle(each).backgroundColor;
                    if (color !== "rgba(0, 0, 0, 0)" && color !== "transparent") return color;
                }
                return null;
            };
            const texts = [...document.body.querySelectorAll("*")].filter(each => each.checkVisibility()
                && (each.matches("input, select") || [...each.childNodes].some(node => node.nodeType === 3 && node.data.trim()))
                && !each.matches("script, style, noscript, option"));
            return texts.map(each => [each.textContent.slice(0, 30) || each.id,
                each.closest("svg") ? getComputedStyle(each).fill : getComputedStyle(each).color, opaque(each)])"""
        )
        assert len(seen) > 80
        poor = [(text, ratio) for text, ink, paper in seen if (ratio := contrast(ink, paper)) < LEAST_CONTRAST]  # fmt: skip
        assert poor == []
        brightness = luminance(browser.run("return getComputedStyle(document.body).backgroundColor"))  # fmt: skip
        assert brightness > 0.8 if scheme == "light" else brightness < 0.05


def contrast(ink: str, paper: str) -> float:
    darker, lighter = sorted((luminance(ink), luminance(paper)))
    return (lighter + 0.05) / (darker + 0.05)


def luminance(color: str) -> float:
    """Relative luminance of `rgb(r, g, b)`, as those guidelines define it."""
    channels = [int(each) / 255 for each in color.removeprefix("rgb(").removesuffix(")").split(",")]
    linear = [each / 12.92 if each <= 0.04045 else ((each + 0.055) / 1.055) ** 2.4 for each in channels]  # fmt: skip
    return float(np.dot(linear, (0.2126, 0.7152, 0.0722)))


def test_a_training_shorter_than_the_interval_needs_no_save(
    browser: Browser, tmp_path: Path
) -> None:
    """The page of its log says so too."""
    log = tmp_path / "train.log"
    lines = [f"[2026-08-01 08:{step // 60:02}:{step % 60:02}.0] iteration {step}/ 4000 | elapsed time per iteration (ms): 1000.0 |" for step in range(1, 900)]  # fmt: skip
    log.write_text("\n".join(lines), encoding="utf-8")
    page = tmp_path / "page.html"
    options = ["--training-log", str(log), "--gpus", "8", "--async", "1s+9s", "--gpu-mtbf", "500000h", "--restart", "5min", "--blocking", "20s", "--now", "500 steps"]  # fmt: skip
    assert run(["decide", *options, "--html", str(page)]) == 0
    browser.open(page)
    assert strategies(browser)[0][0] == "now: blocking"  # which stands first in the options
    said = browser.element("sentence").text
    assert "no save is needed against failures" in said
    assert "the training, 4,000 steps. Save at the end, before the time limit." in said
    assert browser.element("save-steps").text == ""
    enter(browser, "mtbf", "1h")
    assert (
        browser.element("save-steps").text == "--save-interval 80 --async-save"
    )  # it is Megatron-LM
