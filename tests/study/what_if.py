"""What the tests of the page share: how a user's hands move its controls, and the numbers of Python for the same case."""

from __future__ import annotations

from typing import Any

import numpy as np
from selenium.webdriver.common.keys import Keys
from selenium.webdriver.support.ui import Select

from ckptbench.analysis.tables.grouping import records
from ckptbench.decide import sampling
from ckptbench.decide.model import best, goodput
from ckptbench.decide.rates import FailureRate
from tests.decided_study import CHOICES, costs
from tests.study.browser import Browser


def enter(browser: Browser, name: str, text: str) -> None:
    """Typed into a field, as a user does."""
    browser.run("for (const each of document.querySelectorAll('details')) each.open = true")
    field = browser.element(name)
    field.send_keys(Keys.CONTROL, "a")
    field.send_keys(text or Keys.DELETE)


def cost_field(browser: Browser, place: int, part: str) -> Any:
    """A field of the strategy at this place: `name`, `stall` or `then`."""
    return browser.driver.find_elements("css selector", f".strategy .of-{part} input")[place]


def enter_cost(browser: Browser, place: int, part: str, text: str) -> None:
    field = cost_field(browser, place, part)
    field.send_keys(Keys.CONTROL, "a")
    field.send_keys(text or Keys.DELETE)


def choose(browser: Browser, name: str, text: str) -> None:
    Select(browser.element(name)).select_by_visible_text(text)


def row_of(ranks: int, strategy: str, recovery: str) -> dict[str, Any]:
    (row,) = (
        row for row in records(costs())
        if (row["ranks"], row["strategy"], row["recovery"]) == (ranks, strategy, recovery)
    )  # fmt: skip
    return row


def expected(row: dict[str, Any], rate: FailureRate, gpus: int, now: int, choices: Any = CHOICES) -> dict[str, Any]:  # fmt: skip
    """What the page must show of a row: steps, seconds and losses with all draws, and the fine range in steps."""
    slower, saving = sampling.slower(row), sampling.saving(row)
    step_s, recovering = sampling.step_s(row) * slower, sampling.recovering(row, gpus, choices)
    failing, global_tier = (
        sampling.failures_per_s(rate, gpus),
        sampling.global_tier(row, gpus),
    )
    found = best(saving, recovering, failing, step_s=step_s, global_tier=global_tier, slower=slower)
    useful = np.asarray(goodput(now * step_s, saving, recovering, failing, global_tier) / slower)
    return {
        "steps": found.steps, "seconds": found.interval_s, "lost": 1 - found.goodput, "now": 1 - useful,
        "saved": 24 * gpus * (found.goodput - useful), "fine": (found.fine_from_steps[0], found.fine_to_steps[0]), "step_s": step_s[0],
    }  # fmt: skip
