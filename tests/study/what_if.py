"""What the tests of the page share: how a user's hands move its controls."""

from __future__ import annotations

from selenium.webdriver.common.keys import Keys
from selenium.webdriver.support.ui import Select

from tests.study.browser import Browser


def enter(browser: Browser, name: str, value: float) -> None:
    """Typed into a field, as a user does."""
    field = browser.element(name)
    browser.run("document.getElementById('details').open = true")
    field.send_keys(Keys.CONTROL, "a")
    field.send_keys(repr(value))


def choose(browser: Browser, name: str, text: str) -> None:
    Select(browser.element(name)).select_by_visible_text(text)
