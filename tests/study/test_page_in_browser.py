"""The numbers of the page, in a real Chromium: they are Python's."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from selenium.webdriver.support.ui import Select

from ckptbench.analysis.tables.grouping import records
from ckptbench.common.errors import ConfigError
from ckptbench.decide import formulas, sampling
from ckptbench.decide.model import GlobalTier, Recovering, Saving, best, goodput
from ckptbench.decide.projection import projected
from ckptbench.decide.rates import FailureRate
from ckptbench.report.answer import quantities
from ckptbench.report.commands.options import AN_ASYNCHRONOUS
from ckptbench.report.page.html import page
from tests.decided_study import CHOICES, LEVELS, costs
from tests.study.browser import Browser
from tests.study.what_if import choose, enter, enter_cost, expected, row_of

TOLERANCE = 1e-9
NUMBER = 1500
PYTORCH, TENSORFLOW = "PyTorch · 4 ranks", "TensorFlow · 4 ranks"
SEARCH = """return arguments[0].map(([rate, stallS, durableS, slowdownS, downS, survived, pauseS, every, needed, farS, step, interval]) => {
    const one = {stepS: step, slower: 1, failuresPerS: rate, saving: {stallS, durableS, slowdownS},
        recovering: {downS, survived, pauseS}, globalTier: {every, needed, durableS: farS, downS}};
    const found = best(one), range = fine(one, found);
    return [usefulAt(one, interval / step), found.steps, found.useful, range.from, range.to,
        formulas.young_s(stallS, rate), formulas.daly_s(stallS, rate), formulas.saxena_s(stallS, downS, rate)];
})"""


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
    given = cases(seed=5)
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
    assert (shown[:, 1] == found.steps).mean() > 0.95  # the others are as good
    for column, ends in ((3, found.fine_from_steps), (4, found.fine_to_steps)):
        np.testing.assert_allclose(shown[:, column], ends, rtol=1e-5, atol=1)
        assert (shown[:, column] == ends).mean() > 0.95
    others = [formulas.young_s(stall, rate), formulas.daly_s(stall, rate), formulas.saxena_s(stall, down, rate)]  # fmt: skip
    np.testing.assert_allclose(shown[:, 5:], np.stack(others, axis=1), rtol=1e-12)


def test_goodput_lies_between_0_and_1_for_any_costs(browser: Browser) -> None:
    given = cases(seed=6)
    given[:, [1, 2, 3, 4, 6, 9]] *= np.array([1e3, 1e5, 1e7, 1e6, 1e4, 1e5])
    useful = np.array(browser.run(SEARCH, given.tolist()))[:, [0, 2]]
    assert np.isfinite(useful).all()
    assert ((useful >= 0) & (useful <= 1)).all()


def test_a_step_beside_the_kink_is_not_taken_for_the_best(browser: Browser, written: Any) -> None:
    """A checkpoint is durable after 12 s, and a step takes 8.4 s: after one step a save waits for the one before."""
    browser.open(written, "#from=an+example&gpus=1&mtbf=1+day&step=8.4s&async=1s%2B11s&restart=1min&now=1+step")  # fmt: skip
    (now, shown) = browser.table("strategies-compared")
    saving = Saving(stall_s=1.0, durable_s=12.0)
    found = best(saving, Recovering(down_s=60.0), 1 / 86400, step_s=8.4)
    assert shown[2]["value"] == found.steps > 1
    one = 1 - float(goodput(8.4, saving, Recovering(down_s=60.0), 1 / 86400))
    assert now[3]["value"] == pytest.approx(one, rel=TOLERANCE)


def assert_shows(browser: Browser, wanted: dict[str, dict[str, Any]], now: str) -> None:
    """The table of strategies: estimates, and the ends of the intervals."""
    first, *rows = browser.table("strategies-compared")
    assert first[0] == f"now: {now}"
    assert_known(first[3], wanted[now]["now"])
    assert [row[0] for row in rows] == list(wanted)
    for row, each in zip(rows, wanted.values(), strict=True):
        assert row[2]["value"] == each["steps"][0]
        assert row[1]["value"] == pytest.approx(each["seconds"][0], rel=TOLERANCE)
        assert_known(row[3], each["lost"])
        assert row[4] == fine_of(each)
        saved = 24 * each["gpus"] * (wanted[now]["now"] - each["lost"])
        assert_known(row[5], saved)


def fine_of(each: dict[str, Any]) -> str:
    lo, hi = (steps * each["step_s"] for steps in each["fine"])
    return quantities.span(lo, hi, quantities.unit_of_time(hi))


def assert_known(shown: dict[str, float], values: np.ndarray) -> None:
    ends = sampling.estimate(values).interval
    scale = abs(values[0])
    got = (shown["value"], shown["lo"], shown["hi"])
    assert got == pytest.approx(
        (values[0], *ends), rel=1e-5, abs=1e-7 * scale
    )  # draws are single precision


def of_python(recovery: str, rate: FailureRate, gpus: int, now: int, choices: Any = CHOICES) -> dict[str, dict[str, Any]]:  # fmt: skip
    return {
        name.replace("_", " "): {**expected(row_of(4, name, recovery), rate, gpus, now, choices), "gpus": gpus}
        for name in BOTH
    }  # fmt: skip


BOTH = ("native", "async")


@pytest.mark.parametrize("recovery", ["restart", "ulfm"])
@pytest.mark.parametrize("gpus", [4, *CHOICES.gpus])
def test_a_setup_of_the_study_has_the_numbers_of_python(
    browser: Browser, rates: dict[str, FailureRate], recovery: str, gpus: int
) -> None:
    choose(browser, "from", titled(browser, PYTORCH, recovery))
    enter(browser, "gpus", str(gpus))
    assert_shows(browser, of_python(recovery, rates["llama3"], gpus, 40), "native")
    known = browser.element("known").text
    assert known.startswith("measured at 4 ranks" if gpus == 4 else "projected from 4 ranks")


def titled(browser: Browser, setup: str, recovery: str) -> str:
    titles = [each.text for each in browser.element("from").find_elements("tag name", "option")]
    (title,) = (each for each in titles if each.startswith(setup) and recovery in each.lower())
    return title


def test_versions_in_nodes_are_lost_with_them(
    browser: Browser, rates: dict[str, FailureRate]
) -> None:
    choose(browser, "from", titled(browser, TENSORFLOW, "restart"))
    enter(browser, "gpus", "20000")
    (row,) = browser.table("strategies-compared")[1:]
    wanted = expected(row_of(4, LEVELS, "restart"), rates["llama3"], 20_000, 40)
    assert row[2]["value"] == wanted["steps"][0]
    assert_known(row[3], wanted["lost"])
    assert "the others are lost with a node" in browser.element("strategy-0-hint").text


def test_steps_that_a_recovery_slows_down_are_no_useful_time(
    browser: Browser, rates: dict[str, FailureRate]
) -> None:
    choose(browser, "from", titled(browser, TENSORFLOW, "ulfm"))
    enter(browser, "gpus", "20000")
    (row,) = browser.table("strategies-compared")[1:]
    wanted = expected(row_of(4, LEVELS, "ulfm"), rates["llama3"], 20_000, 40)
    assert row_of(4, LEVELS, "ulfm")["slower"] > 1
    assert_known(row[3], wanted["lost"])


def test_steps_that_a_strategy_slows_down_everywhere_are_no_useful_time(
    browser: Browser, rates: dict[str, FailureRate], tmp_path: Path
) -> None:
    """The one with the smallest stall loses the most, and is not the one that the page names."""
    rows = costs()
    slow = (rows["strategy"] == "async") & (rows["recovery"] == "restart")
    names = [f"slower_everywhere{end}" for end in ("", "_lo", "_hi")]
    rows.loc[slow, names] = 1.5, 1.4, 1.6
    path = tmp_path / "slower.html"
    path.write_text(page(rows, list(rates.values()), CHOICES), encoding="utf-8")
    browser.open(path)
    choose(browser, "from", titled(browser, PYTORCH, "restart"))
    enter(browser, "gpus", "1024")
    for shown, name in zip(browser.table("strategies-compared")[1:], BOTH, strict=True):
        (row,) = records(rows[(rows["ranks"] == 4) & (rows["strategy"] == name) & (rows["recovery"] == "restart")])  # fmt: skip
        wanted = expected(row, rates["llama3"], 1024, 40)
        assert shown[2]["value"] == wanted["steps"][0]
        assert_known(shown[3], wanted["lost"])
    assert "every step takes 1.5 times as long" in browser.element("strategy-1-hint").text
    assert browser.element("sentence").text.startswith("With native")


FIT = json.dumps({"fit": {"stall_s": [0.5, 3.0, 1e-3], "durable_s": [1.0, 2.0, 0.0], "down_s": [5.0, 0.0, 0.02]}})  # fmt: skip


@pytest.mark.parametrize("gpus", [4, 5, 1024])
def test_costs_grow_with_the_number_of_gpus_as_the_fit_says(
    browser: Browser, rates: dict[str, FailureRate], tmp_path: Path, gpus: int
) -> None:
    rows = costs()
    rows["growth"] = FIT
    path = tmp_path / "grows.html"
    path.write_text(page(rows, list(rates.values()), CHOICES), encoding="utf-8")
    browser.open(path)
    choose(browser, "from", titled(browser, PYTORCH, "restart"))
    enter(browser, "gpus", str(gpus))
    for shown, name in zip(browser.table("strategies-compared")[1:], BOTH, strict=True):
        (row,) = records(rows[(rows["ranks"] == 4) & (rows["strategy"] == name) & (rows["recovery"] == "restart")])  # fmt: skip
        wanted = expected(projected(row, gpus), rates["llama3"], gpus, 40)
        assert shown[2]["value"] == wanted["steps"][0]
        assert shown[3]["value"] == pytest.approx(wanted["lost"][0], rel=1e-6)
        # The draws of a projection have another order: the ends of an interval differ a little.
        assert (shown[3]["lo"], shown[3]["hi"]) == pytest.approx(sampling.estimate(wanted["lost"]).interval, rel=0.2)  # fmt: skip


def test_another_rate_has_its_own_draws(browser: Browser, rates: dict[str, FailureRate]) -> None:
    choose(browser, "from", titled(browser, PYTORCH, "restart"))
    enter(browser, "gpus", "3000")
    choose(browser, "rate", rates["log"].file.title)
    enter(browser, "now", "75 steps")
    assert_shows(browser, of_python("restart", rates["log"], 3000, 75), "native")


def test_numbers_that_are_entered_are_exact(browser: Browser) -> None:
    choose(browser, "from", titled(browser, PYTORCH, "ulfm"))
    for name, text in {"gpus": "512", "mtbf": "90 min", "step": "2.5 s", "restart": "4 min", "now": "10 min", "survived": "35", "pause": "12.5 s"}.items():  # fmt: skip
        enter(browser, name, text)
    enter_cost(browser, 0, "stall", "3.25 s")
    enter_cost(browser, 1, "stall", "0.5 s")
    enter_cost(browser, 1, "then", "31 s")
    survived = 0.35 * sampling.SURVIVABLE
    recovering = Recovering(down_s=240.0, survived=survived, pause_s=12.5 + 8 * 3600 / 512)
    slowdown = row_of(4, "async", "ulfm")["slowdown_s"]
    blocking, later = browser.table("strategies-compared")[1:]
    exact = best(Saving(stall_s=3.25, durable_s=3.25), recovering, 1 / 5400, step_s=2.5)
    assert blocking[2]["value"] == exact.steps
    assert blocking[3]["value"] == pytest.approx(1 - exact.goodput, rel=TOLERANCE)
    assert blocking[3]["lo"] == blocking[3]["hi"]
    draws = browser.run("return answer(numbersOf(asked, origin)).strategies[1].estimate.saving")
    assert draws == {"stallS": 0.5, "durableS": 31.5, "slowdownS": slowdown}
    assert later[3]["lo"] < later[3]["value"] < later[3]["hi"]
    assert "with numbers of yours" in browser.element("known").text or "projected" in browser.element("known").text  # fmt: skip


def test_a_checkpoint_of_size_and_bandwidth_blocks_as_long_as_it_is_written(
    browser: Browser,
) -> None:
    """And has no slower steps, whatever was measured of a smaller state."""
    choose(browser, "from", titled(browser, PYTORCH, "restart"))
    enter(browser, "state", "98GB")
    enter(browser, "bandwidth", "1.6GB/s")
    enter_cost(browser, 0, "stall", "")
    saving = browser.run("return answer(numbersOf(asked, origin)).strategies[0].estimate.saving")
    assert saving == {"stallS": 61.25, "durableS": 61.25, "slowdownS": 0}
    enter_cost(browser, 1, "then", "")
    saving = browser.run("return answer(numbersOf(asked, origin)).strategies[1].estimate.saving")
    assert saving["durableS"] == pytest.approx(saving["stallS"] + 61.25)
    assert saving["slowdownS"] == row_of(4, "async", "restart")["slowdown_s"] > 0
    kind = Select(browser.driver.find_elements("css selector", ".strategy select")[1])
    kind.select_by_visible_text("blocking")
    saving = browser.run("return answer(numbersOf(asked, origin)).strategies[1].estimate.saving")
    assert (saving["durableS"], saving["slowdownS"]) == (saving["stallS"], 0)


def test_the_example_has_the_answer_of_the_command(browser: Browser, calculator: Any) -> None:
    browser.open(calculator)
    now, blocking, later = browser.table("strategies-compared")
    assert (now[2]["value"], blocking[2]["value"], later[2]["value"]) == (2880, 968, 219)
    texts = browser.run("return [...document.querySelectorAll('#strategies-compared tbody tr')].map(row => [...row.cells].map(cell => cell.textContent))")  # fmt: skip
    assert texts == [
        ["now: blocking", "120 min", "2,880", "8.7 %", "", ""],
        ["blocking", "40 min", "968", "5.7 %", "20 - 81 min", "182"],
        ["async", "9.1 min", "219", "2.2 %", "3.8 - 22 min", "398"],
    ]
    assert browser.element("save-steps").text == "save_steps=219"


def test_the_interval_in_use_may_be_left_out(browser: Browser, calculator: Any) -> None:
    browser.open(calculator)
    enter(browser, "now", "")
    blocking, later = browser.table("strategies-compared")
    assert (blocking[2]["value"], later[2]["value"]) == (968, 219)
    assert (blocking[5], browser.run("return view.data('now')")) == ("", [])
    assert "now" not in browser.element("sentence").text


def test_an_answer_that_cannot_be_told_is_not_told(
    browser: Browser, rates: dict[str, FailureRate]
) -> None:
    browser.run("start.rates.find(({name}) => name === 'log').draws = start.draws.length")
    spread = (10 ** np.linspace(1, 7, sampling.DRAWS)).tolist()
    browser.run("ALL_DRAWS.push(new Float64Array(arguments[0]))", spread)
    choose(browser, "rate", rates["log"].file.title)
    assert "cannot be told" in browser.element("sentence").text
    assert browser.element("save-steps").text == ""


def test_where_next_to_nothing_gets_done_nothing_is_recommended(browser: Browser, calculator: Any) -> None:  # fmt: skip
    browser.open(calculator, "#mtbf=1s")
    assert browser.element("sentence").text.startswith("Next to nothing gets done")
    assert browser.element("save-steps").text == browser.element("other-rates").text == ""
    for row in browser.table("strategies-compared")[1:]:
        assert (row[1], row[2], row[4], row[5]) == ("none helps", "", "", "")


def test_a_rate_is_that_of_the_job_however_its_gpus_are_written(browser: Browser, calculator: Any) -> None:  # fmt: skip
    shown = []
    for gpus in ("1024", "1,024"):
        browser.open(calculator, f"#rate=llama3&gpus={gpus}")
        shown.append((browser.element("mtbf").get_attribute("placeholder"), browser.table("strategies-compared")))  # fmt: skip
    assert shown[0] == shown[1]
    assert shown[0][0] == "49 h"


# ---- words


def test_numbers_are_said_as_python_says_them(browser: Browser) -> None:
    random = np.random.default_rng(6)
    values = [*(float(each) for each in 10 ** random.uniform(-7, 7, 600)), 0.0, 12.5, 13.5, 0.125, 2.675, 968.0, 1e5]  # fmt: skip
    rows = [(each, each * random.uniform(-0.5, 1), each * random.uniform(1, 3)) for each in values]
    narrow = [(each, each * (1 - 1e-5), each * (1 + 1e-5)) for each in values[:50]]
    shown = browser.run(
        "return arguments[0].map(([value, lo, hi]) => [amount({value, lo, hi}, PERCENT), plain(value), duration(value), span(value, hi), tells({lo, hi})])",
        [*rows, *narrow],
    )  # fmt: skip
    wanted = [
        [quantities.percent(*row), quantities.plain(row[0]), quantities.duration(row[0]),
         quantities.span(row[0], row[2], quantities.PLAIN), quantities.Known(*row).tells]
        for row in [*rows, *narrow]
    ]  # fmt: skip
    assert shown == wanted


TEXTS = [
    "2h", "90 s", "14 hours", "1h 30min", "1h30", "5", "", "2 parsecs", "0 s", "-3s", "1e3 s", "98GB", "98 GiB", "1.6GB/s", "100 Gbit/s", "1,000 s",
    "1,00 s", "2880 steps", "1 step", "0 steps", "2.5 steps", "3 Steps", ".5 h", "1e30 s", "2h extra", "constructor", "1 constructor", "toString",
]  # fmt: skip


@pytest.mark.parametrize("text", ["3s+90s", "a b = c=3 s + 1min", "1e+1s+2e+1s", "x=1s", "y=2s+"])
def test_a_strategy_is_read_as_the_command_reads_it(browser: Browser, text: str) -> None:
    shown = browser.run("return readStrategy('async', arguments[0])", text)
    wanted = AN_ASYNCHRONOUS.convert(text.rstrip("+"), None, None)
    assert shown["name"] == wanted.name
    assert quantities.read_time(shown["stall"]) == wanted.stall_s
    assert (quantities.read_time(shown["then"]) if shown["then"] else None) == wanted.then_s


def test_numbers_are_read_as_python_reads_them(browser: Browser) -> None:
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


def test_the_chart_has_a_line_for_each_strategy(browser: Browser) -> None:
    drawn_lines = browser.run("return view.data('lines')")
    assert {each["place"] for each in drawn_lines} == {0, 1}
    one = json.loads(browser.run("return JSON.stringify(answer(numbersOf(asked, origin)).strategies[0].estimate)"))  # fmt: skip
    saving = Saving(stall_s=one["saving"]["stallS"], durable_s=one["saving"]["durableS"], slowdown_s=one["saving"]["slowdownS"])  # fmt: skip
    known = one["recovering"]
    recovering = Recovering(down_s=known["downS"], survived=known["survived"], pause_s=known["pauseS"])  # fmt: skip
    for point in (each for each in drawn_lines if each["place"] == 0):
        lost = 1 - float(goodput(point["seconds"], saving, recovering, one["failuresPerS"]))
        assert point["lost"] == pytest.approx(lost, rel=1e-6)
