"""What the tests of the page share: how a user's hands move its controls, and the numbers of Python for the same case."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
from numpy.typing import ArrayLike
from selenium.webdriver.common.keys import Keys
from selenium.webdriver.support.ui import Select

from ckptbench.analysis.tables.grouping import records
from ckptbench.decide import BETWEEN, sampling
from ckptbench.decide.costs import GlobalTier, Recovering, Saving
from ckptbench.decide.limit import Limit
from ckptbench.decide.model import best, by_phase
from ckptbench.decide.projection import projected
from ckptbench.decide.rates import FailureRate
from tests.decided_study import CHOICES, costs
from tests.study.browser import Browser


def enter(browser: Browser, name: str, text: str) -> None:
    """Typed into a field, as a user does."""
    browser.run("for (const each of document.querySelectorAll('details')) each.open = true")
    field = browser.element(name)
    field.send_keys(Keys.CONTROL, "a")
    field.send_keys(text or Keys.DELETE)


def paste(browser: Browser, name: str, text: str) -> None:
    """All at once: what stands in a field while one types may be right for a moment."""
    browser.run(
        "const e = document.getElementById(arguments[0]); e.value = arguments[1]; e.dispatchEvent(new Event('input'))",
        name,
        text,
    )


def cost_field(browser: Browser, place: int, part: str) -> Any:
    """A field of the strategy at this place: `name`, `stall` or `then`."""
    return browser.driver.find_elements("css selector", f".strategy .of-{part} input")[place]


def enter_cost(browser: Browser, place: int, part: str, text: str) -> None:
    field = cost_field(browser, place, part)
    field.send_keys(Keys.CONTROL, "a")
    field.send_keys(text or Keys.DELETE)


def choose(browser: Browser, name: str, text: str) -> None:
    Select(browser.element(name)).select_by_visible_text(text)


def start_from(browser: Browser, setup: str, recovery: str) -> None:
    """Choose the case of this setup, such as `PyTorch · 4 ranks`, and recovery."""
    titles = [each.text for each in browser.element("from").find_elements("tag name", "option")]
    (title,) = (each for each in titles if each.startswith(setup) and recovery in each.lower())
    choose(browser, "from", title)


def strategies(browser: Browser) -> list[list[Any]]:
    """The rows of the table of strategies, that of the interval in use first."""
    return browser.table("strategies-compared")


def wrong(browser: Browser, name: str) -> str:
    """What stands below a field that cannot be read."""
    return str(
        browser.run("return document.getElementById(arguments[0]).textContent", f"{name}-wrong")
    )


def row_of(ranks: int, strategy: str, recovery: str) -> dict[str, Any]:
    (row,) = (
        row for row in records(costs())
        if (row["ranks"], row["strategy"], row["recovery"]) == (ranks, strategy, recovery)
    )  # fmt: skip
    return row


def expected(row: dict[str, Any], rate: FailureRate, gpus: int, now: int, limit: Limit | None = None) -> dict[str, Any]:  # fmt: skip
    """What the page must show of a row: steps; what is lost at the rate and at the ends of its interval, and saved there and in between, each on average and by where a
    limit falls; the fine range in steps."""
    row = projected(row, gpus)
    saved, recovered = sampling.saving(row), sampling.recovering(row, gpus, CHOICES)
    tier, slower = sampling.global_tier(row, gpus), first(sampling.slower(row))
    step_s = first(sampling.step_s(row)) * slower
    saving = Saving(stall_s=first(saved.stall_s), durable_s=first(saved.durable_s), slowdown_s=first(saved.slowdown_s))  # fmt: skip
    recovering = Recovering(down_s=first(recovered.down_s), survived=first(recovered.survived), pause_s=first(recovered.pause_s))  # fmt: skip
    global_tier = tier and GlobalTier(
        saving=Saving(stall_s=0.0, durable_s=first(tier.saving.durable_s)),
        every=tier.every,
        needed=first(tier.needed),
        down_s=first(tier.down_s),
    )
    ends = [rate.lo, rate.hi] if 0 < rate.lo < rate.hi < math.inf else []
    inside = np.geomspace(*ends, BETWEEN + 2)[1:-1] if ends else []
    failing = gpus / (np.array([rate.mean_gpu_hours, *ends, *inside]) * 3600)
    shown = slice(0, 1 + len(ends))
    found = best(
        saving,
        recovering,
        failing,
        step_s=step_s,
        global_tier=global_tier,
        slower=slower,
        limit=limit,
    )
    at_best, useful = (
        by_phase(interval_s, saving, recovering, failing, global_tier, slower=slower, limit=limit)
        for interval_s in (found.interval_s, now * step_s)
    )
    return {
        "steps": found.steps, "lost": 1 - np.array(at_best)[:, shown], "now": 1 - np.array(useful)[:, shown], "useful_now": useful, "useful": at_best,
        "fine": (found.fine_from_steps[0], found.fine_to_steps[0]), "step_s": step_s,
    }  # fmt: skip


def first(values: ArrayLike) -> float:
    return float(np.asarray(values).flat[0])
