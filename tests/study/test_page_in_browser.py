"""The numbers of the page to ask "what if", in a real Chromium: they are Python's."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any

import numpy as np
import pandas as pd
import pytest
from selenium.webdriver.support.ui import Select

from ckptbench.analysis.tables.grouping import records
from ckptbench.answer.quantities import SECONDS, amount, duration
from ckptbench.decide import drawn
from ckptbench.decide.model import (
    Far,
    Recovering,
    Saving,
    best,
    daly_s,
    goodput,
    saxena_s,
    young_s,
)
from ckptbench.decide.rates import FailureRate
from tests.decided_study import CHOICES, LEVELS, costs
from tests.study.browser import Browser
from tests.study.what_if import choose, enter

TOLERANCE = 1e-6


def row_of(ranks: int, strategy: str, recovery: str) -> dict[str, Any]:
    (row,) = (
        row for row in records(costs())
        if (row["ranks"], row["strategy"], row["recovery"]) == (ranks, strategy, recovery)
    )  # fmt: skip
    return row


def exact(row: dict[str, Any], **times: float) -> dict[str, Any]:
    """The row with these costs in place of its own, without intervals."""
    return {**row, **times, **{f"{name}_{end}": math.nan for name in times for end in ("lo", "hi")}}


def given_hours(hours: float) -> FailureRate:
    return FailureRate(
        name="mine", title="", source="own", counts="", mean_gpu_hours=hours, is_projected=False, is_approximate=False, failures=None, gpus=None,
    )  # fmt: skip


def expected(row: dict[str, Any], rate: FailureRate, gpus: int, interval: int, choices: Any = CHOICES) -> dict[str, Any]:  # fmt: skip
    """By name, what the page must show: estimate and draws of each number."""
    slower, saving = drawn.slower(row), drawn.saving(row)
    step_s, recovering = drawn.step_s(row) * slower, drawn.recovering(row, gpus, choices)
    failing, far = drawn.failures_per_s(rate, gpus), drawn.far(row, gpus, choices)
    found = best(saving, recovering, failing, least_s=step_s, far=far)

    def lost(interval_s: Any) -> np.ndarray:
        return 1 - np.asarray(goodput(interval_s, saving, recovering, failing, far) / slower)

    striking = failing * (1 - recovering.survived)
    formulas = {
        "Young 1974": young_s(saving, striking),
        "Daly 2006": daly_s(saving, striking),
        "Saxena et al. 2024": saxena_s(saving, recovering, striking),
    }
    epoch = int(row["steps_per_epoch"])
    return {
        "best": (np.maximum(np.round(found.interval_s / step_s), 1), found.interval_s, 1 - found.goodput / slower),
        "chosen": (interval, interval * step_s, lost(interval * step_s)),
        "every epoch": (epoch, epoch * step_s, lost(epoch * step_s)),
        **{name: (None, each, lost(np.maximum(each, step_s))) for name, each in formulas.items()},
    }  # fmt: skip


def assert_shows(browser: Browser, wanted: dict[str, Any], *, slower: float = 1.0) -> None:
    """The table of intervals, to a millionth: estimates, and the ends of the intervals of losses.

    `slower`: by how much the recovery slows steps down, which does not tell the best interval.
    """
    shown = {name: rest for name, *rest in browser.table("intervals")}
    assert shown.keys() == wanted.keys()
    for name, (steps, interval_s, lost) in wanted.items():
        own_steps, own_s, own_lost = shown[name]
        loss = np.broadcast_to(lost, 1 + drawn.DRAWS)
        assert own_lost["value"] == pytest.approx(loss[0], rel=TOLERANCE)
        if name in ("best", "chosen", "every epoch"):
            lo, hi = drawn.ends(loss)
            assert (own_lost["lo"], own_lost["hi"]) == pytest.approx((lo, hi), rel=TOLERANCE)
            # The best one is compared below: rounded to steps, the same interval may differ by one.
            assert abs(own_steps["value"] - np.ravel(steps)[0]) <= (name == "best")
        assert own_s["value"] == pytest.approx(
            np.ravel(interval_s)[0], rel=located(1 - (1 - loss[0]) * slower)
        )
    for name in ("best", "chosen"):
        assert browser.number(f"{name}-lost") == shown[name][2]


def located(lost: float) -> float:
    """How exactly the best interval can be found by comparing goodputs: so flat is the optimum where little is lost.

    There the goodput is about 1 - lost (1 + x²/2), for an interval that is off by the part x. A dozen operations round it by some
    units of its last digit.
    """
    part = 0.1  # of what is lost, that depends on the interval
    return max(TOLERANCE, math.sqrt(64 * np.finfo(float).eps / (part * lost)))


def test_the_formulas_are_those_of_python(browser: Browser) -> None:
    random = np.random.default_rng(5)
    number = 2000

    def between(first: float, last: float) -> np.ndarray:
        return np.exp(random.uniform(np.log(first), np.log(last), number))

    none = random.random(number) < 0.1
    stall, down = np.where(none, 0.0, between(1e-3, 300)), between(1, 1000)
    durable = np.where(random.random(number) < 0.5, stall, stall + between(1e-2, 600))
    slowdown = np.where(random.random(number) < 0.5, 0.0, between(1e-3, 30))
    survived = np.where(random.random(number) < 0.5, 0.0, random.random(number))
    pause = np.where(survived > 0, between(0.1, 100), 0.0)
    rate, interval, step = 1 / between(300, 1e8), between(1e-2, 1e5), between(1e-2, 10)
    saving = Saving(stall_s=stall, durable_s=durable, slowdown_s=slowdown)
    recovering = Recovering(down_s=down, survived=survived, pause_s=pause)
    found = best(saving, recovering, rate, least_s=step)
    shown = np.array(
        browser.run(
            """return arguments[0].map(([stallS, durableS, slowdownS, downS, survived, pauseS, rate, interval, step]) => {
                const saving = {stallS, durableS, slowdownS}, recovering = {downS, survived, pauseS};
                const found = best(saving, recovering, rate, step);
                const flat = flatAround(found, saving, recovering, rate, step);
                return [goodput(interval, saving, recovering, rate), youngS(saving, rate), dalyS(saving, rate),
                    saxenaS(saving, recovering, rate), found.goodput, flat.shortestS, flat.longestS, found.intervalS];
            })""",
            np.stack([stall, durable, slowdown, down, survived, pause, rate, interval, step], axis=1).tolist(),
        )
    )  # fmt: skip
    wanted = np.stack(
        [goodput(interval, saving, recovering, rate), young_s(saving, rate), daly_s(saving, rate),
         saxena_s(saving, recovering, rate), found.goodput, found.shortest_s, found.longest_s],
        axis=1,
    )  # fmt: skip
    np.testing.assert_allclose(shown[:, :-1], wanted, rtol=TOLERANCE)
    at_its_best = np.asarray(goodput(shown[:, -1], saving, recovering, rate))
    np.testing.assert_allclose(at_its_best, found.goodput, rtol=1e-12)
    apart = np.abs(shown[:, -1] / found.interval_s - 1)
    assert (apart <= np.array([located(1 - each) for each in found.goodput])).all()


def test_the_formulas_of_two_levels_are_those_of_python(browser: Browser) -> None:
    random = np.random.default_rng(7)
    number = 1000

    def between(first: float, last: float) -> np.ndarray:
        return np.exp(random.uniform(np.log(first), np.log(last), number))

    stall, near, shared, down = (
        between(1e-3, 1),
        between(1e-1, 10),
        between(1e-2, 600),
        between(1, 1000),
    )
    needed = np.where(
        random.random(number) < 0.2, random.integers(0, 2, number), random.random(number)
    )
    every = random.integers(2, 50, number)
    rate, interval, step = 1 / between(300, 1e9), between(1e-2, 1e5), between(1e-2, 10)
    saving, recovering = Saving(stall_s=stall, durable_s=stall + near), Recovering(down_s=down)
    far = Far(saving=Saving(stall_s=0.0, durable_s=shared), every=every, needed=needed, down_s=down)
    shown = np.array(
        browser.run(
            """return arguments[0].map(([stallS, durableS, sharedS, downS, needed, every, rate, interval, step]) => {
                const saving = {stallS, durableS, slowdownS: 0}, recovering = {downS, survived: 0, pauseS: 0};
                const far = {every, needed, durableS: sharedS, downS};
                return [goodput(interval, saving, recovering, rate, far), best(saving, recovering, rate, step, far).goodput];
            })""",
            np.stack([stall, stall + near, shared, down, needed, every, rate, interval, step], axis=1).tolist(),
        )
    )  # fmt: skip
    np.testing.assert_allclose(
        shown[:, 0], goodput(interval, saving, recovering, rate, far), rtol=1e-12
    )
    found = best(saving, recovering, rate, least_s=step, far=far, flat=False)
    np.testing.assert_allclose(shown[:, 1], found.goodput, rtol=TOLERANCE)


def test_versions_in_nodes_are_lost_with_them_and_those_at_the_shared_level_are_not(
    browser: Browser, rates: dict[str, FailureRate]
) -> None:
    field = browser.element("shared_durable_s")
    browser.run("document.getElementById('details').open = true")
    assert not field.is_displayed()
    choose(browser, "setup", "TensorFlow · 4 ranks")
    choose(browser, "recovery", "restart")
    assert field.is_displayed()
    assert "a failure of one node takes them" in browser.element("shared_durable_s-hint").text
    row = row_of(4, LEVELS, "restart")
    assert_shows(browser, expected(row, rates["llama3"], 4, 40))
    enter(browser, "gpus", 20_000)
    enter(browser, "shared_durable_s", 45)
    enter(browser, "survivable", 30)
    choices = replace(CHOICES, survivable=0.3)
    row = exact(row, shared_durable_s=45.0)
    assert_shows(browser, expected(row, rates["llama3"], 20_000, 40, choices))
    enter(browser, "gigabytes", 0.378)
    enter(browser, "gigabytes_per_s", 0.1)
    twice = {name: 2 * row[name] for name in ("stall_s", "durable_s")}
    slower = row["slowdown_s"] * 3.78 / 2.4
    row = exact(row, **twice, shared_durable_s=3.78, slowdown_s=slower)
    assert_shows(browser, expected(row, rates["llama3"], 20_000, 40, choices))


def test_steps_that_a_recovery_slows_down_are_no_useful_time(
    browser: Browser, rates: dict[str, FailureRate]
) -> None:
    choose(browser, "setup", "TensorFlow · 4 ranks")
    choose(browser, "recovery", "ulfm")
    row = row_of(4, LEVELS, "ulfm")
    assert row["slower"] > 1
    assert_shows(browser, expected(row, rates["llama3"], 4, 40), slower=row["slower"])
    assert "1.04 times as long with this recovery" in browser.element("source").text
    enter(browser, "gpus", 20_000)
    enter(browser, "step_s", 3.5)
    wanted = expected(exact(row, step_s=3.5), rates["llama3"], 20_000, 40)
    assert_shows(browser, wanted, slower=row["slower"])


def test_amounts_are_those_of_the_answer(browser: Browser) -> None:
    random = np.random.default_rng(6)
    values = [float(each) for each in 10 ** random.uniform(-6, 6, 500)]
    rows = [{"n": each, "n_lo": each * random.uniform(0.3, 1), "n_hi": each * random.uniform(1, 3)} for each in values]  # fmt: skip
    shown = browser.run(
        "return arguments[0].map(row => [amount({value: row.n, lo: row.n_lo, hi: row.n_hi}, 1, 's'), plainAmount(row.n, 's'), duration(row.n)])",
        rows,
    )
    assert shown == [
        [amount(row["n"], SECONDS, row["n_lo"], row["n_hi"]), amount(row["n"], SECONDS), duration(row["n"])]
        for row in rows
    ]  # fmt: skip


def test_it_starts_with_the_costs_of_the_study(
    browser: Browser, rates: dict[str, FailureRate]
) -> None:
    assert browser.element("sentence").text.startswith(
        "On this machine, at 4 ranks, with PyTorch, "
    )
    assert browser.element("known").text.startswith("From measured costs")
    row = row_of(4, "async", "ulfm")
    assert_shows(browser, expected(row, rates["llama3"], 4, 40))


def test_every_field_starts_with_the_value_of_the_study(
    browser: Browser, rates: dict[str, FailureRate]
) -> None:
    row = row_of(4, "async", "ulfm")
    wanted = {
        "gpus": 4, "mean_gpu_hours": rates["llama3"].mean_gpu_hours, "interval": 40, "gigabytes": 0.189, "gigabytes_per_s": 0.189 / row["durable_s"],
        "survived": 100 * row["survived"], "survivable": 77, "replacement_minutes": 60,
        **{name: row[name] for name in ("step_s", "stall_s", "slowdown_s", "durable_s", "shared_durable_s", "down_s", "pause_s")},
    }  # fmt: skip
    shown = browser.run(
        "return Object.fromEntries([...document.querySelectorAll('input[type=number]')].map(each => [each.id, each.valueAsNumber]))"
    )
    assert shown == pytest.approx(wanted, rel=1e-3)


@pytest.mark.parametrize("gpus", CHOICES.gpus)
def test_projected_it_has_the_numbers_of_the_study(
    browser: Browser, decided: dict[str, pd.DataFrame], gpus: int
) -> None:
    (button,) = (each for each in browser.element("numbers").find_elements("css selector", "button") if each.text == f"{gpus:,}")  # fmt: skip
    button.click()
    known = decided["advice"]
    (row,) = records(known[(known["ranks"] == 4) & (known["gpus"] == gpus) & (known["strategy"] == "async") & (known["recovery"] == "ulfm")])  # fmt: skip
    assert row["projected"]
    shown = {name: rest for name, *rest in browser.table("intervals")}
    lost = shown["best"][2]
    ends = (1 - row["goodput"], 1 - row["goodput_hi"], 1 - row["goodput_lo"])
    assert (lost["value"], lost["lo"], lost["hi"]) == pytest.approx(ends, rel=TOLERANCE)
    assert shown["every epoch"][2]["value"] == pytest.approx(1 - row["goodput_every_epoch"], rel=TOLERANCE)  # fmt: skip
    assert browser.element("sentence").text.startswith(f"Projected to {gpus:,} GPUs, with PyTorch")


def test_moved_controls_give_the_numbers_of_python(
    browser: Browser, rates: dict[str, FailureRate]
) -> None:
    choose(browser, "setup", "PyTorch · 2 ranks")
    choose(browser, "strategy", "native")
    choose(browser, "recovery", "restart")
    row = row_of(2, "native", "restart")
    assert_shows(browser, expected(row, rates["llama3"], 2, 40))
    enter(browser, "gpus", 3000)
    enter(browser, "interval", 75)
    assert_shows(browser, expected(row, rates["llama3"], 3000, 75))
    choose(browser, "rate", rates["log"].title)
    assert_shows(browser, expected(row, rates["log"], 3000, 75))
    choose(browser, "recovery", "ulfm")
    row = row_of(2, "native", "ulfm")
    assert_shows(browser, expected(row, rates["log"], 3000, 75))
    enter(browser, "survivable", 50)
    enter(browser, "replacement_minutes", 15)
    choices = replace(CHOICES, survivable=0.5, replacement_minutes=15)
    assert_shows(browser, expected(row, rates["log"], 3000, 75, choices))
    enter(browser, "mean_gpu_hours", 20000)
    assert_shows(browser, expected(row, given_hours(20000), 3000, 75, choices))
    assert Select(browser.element("rate")).first_selected_option.text == "your number"


def test_costs_that_are_entered_are_exact(browser: Browser, rates: dict[str, FailureRate]) -> None:
    enter(browser, "gpus", 512)
    row = row_of(4, "async", "ulfm")
    entered = {"step_s": 2.5, "stall_s": 3.25, "slowdown_s": 4.0, "durable_s": 31.0, "down_s": 240.0, "pause_s": 12.5}  # fmt: skip
    for name, value in entered.items():
        enter(browser, name, value)
        row = exact(row, **{name: value})
        assert_shows(browser, expected(row, rates["llama3"], 512, 40))
    enter(browser, "survived", 35)
    assert_shows(
        browser, expected({**row, "survived": 0.35, "survived_of": None}, rates["llama3"], 512, 40)
    )
    assert browser.element("stall_s-known").text == "yours"
    browser.element("reset").click()
    assert_shows(browser, expected(row_of(4, "async", "ulfm"), rates["llama3"], 4, 40))


def test_nearly_every_failure_can_be_survived(
    browser: Browser, rates: dict[str, FailureRate]
) -> None:
    enter(browser, "survived", 100)
    enter(browser, "survivable", 99.9)
    row = {**row_of(4, "async", "ulfm"), "survived": 1.0, "survived_of": None}
    shown = {name: rest for name, *rest in browser.table("intervals")}
    wanted = expected(row, rates["llama3"], 4, 40, replace(CHOICES, survivable=0.999))
    assert shown["chosen"][2]["value"] == pytest.approx(wanted["chosen"][2][0], rel=TOLERANCE)


def test_size_and_bandwidth_project_what_a_checkpoint_costs(
    browser: Browser, rates: dict[str, FailureRate]
) -> None:
    """A strategy that waits for the write stalls as long as it takes; any other stalls longer for a larger state."""
    enter(browser, "gigabytes", 1.89)
    row = row_of(4, "async", "ulfm")
    tenfold = exact(row, durable_s=10 * row["durable_s"], stall_s=10 * row["stall_s"], slowdown_s=10 * row["slowdown_s"])  # fmt: skip
    assert_shows(browser, expected(tenfold, rates["llama3"], 4, 40))
    enter(browser, "gigabytes_per_s", 0.5)
    slow = 1.89 / 0.5 / row["durable_s"]
    projected = exact(tenfold, durable_s=1.89 / 0.5, slowdown_s=slow * row["slowdown_s"])
    assert_shows(browser, expected(projected, rates["llama3"], 4, 40))
    assert browser.element("durable_s-known").text == "projected"
    assert "no measurement" in browser.element("storage").text
    assert browser.element("known").text.startswith("Projected")
    assert browser.element("sentence").text.startswith("At 4 ranks, by numbers that were not measured")  # fmt: skip
    choose(browser, "strategy", "native")
    waiting = exact(row_of(4, "native", "ulfm"), durable_s=3.78, stall_s=3.78)
    assert_shows(browser, expected(waiting, rates["llama3"], 4, 40))


def test_a_cost_that_is_entered_comes_before_size_and_bandwidth_until_these_change(
    browser: Browser,
) -> None:
    enter(browser, "gigabytes", 1.89)
    enter(browser, "stall_s", 7)
    assert browser.element("stall_s-known").text == "yours"
    enter(browser, "gigabytes_per_s", 2)
    assert browser.element("stall_s-known").text == "projected"


def test_the_curve_as_csv_is_that_of_python(
    browser: Browser, rates: dict[str, FailureRate]
) -> None:
    enter(browser, "gpus", 2048)
    path = browser.downloads / "goodput_curve.csv"
    browser.element("csv").click()
    browser.wait(path.exists)
    curve = pd.read_csv(path)
    row = row_of(4, "async", "ulfm")
    saving, recovering = drawn.saving(row), drawn.recovering(row, 2048, CHOICES)
    failing = drawn.failures_per_s(rates["llama3"], 2048)
    assert len(curve) > 100
    assert set(curve["projected"]) == {True}
    for point in records(curve):
        parts = np.asarray(goodput(60 * point["interval_minutes"], saving, recovering, failing))
        wanted = (parts[0], *drawn.ends(parts))
        shown = (point["goodput"], point["goodput_lo"], point["goodput_hi"])
        assert shown == pytest.approx(wanted, rel=TOLERANCE)
    assert curve["interval_minutes"].to_numpy() * 60 == pytest.approx(curve["interval_steps"] * row["step_s"])  # fmt: skip


def test_every_strategy_and_recovery_is_compared(
    browser: Browser, rates: dict[str, FailureRate]
) -> None:
    enter(browser, "gpus", 100_000)
    shown = browser.table("compared")
    wanted = {}
    for strategy in ("native", "async"):
        for recovery in ("restart", "ulfm"):
            row = row_of(4, strategy, recovery)
            _, interval_s, lost = expected(row, rates["llama3"], 100_000, 40)["best"]
            wanted[strategy, recovery] = (interval_s[0], lost[0])
    assert [(row[0], row[1]) for row in shown] == sorted(wanted, key=lambda each: wanted[each][1])
    for strategy, recovery, interval, lost in shown:
        assert (interval["value"], lost["value"]) == pytest.approx(wanted[strategy, recovery], rel=TOLERANCE)  # fmt: skip
