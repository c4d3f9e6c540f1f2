"""The page in a real Chromium, as its users have it: address, wrong entries, keyboard, phone, dark, report."""

from __future__ import annotations

import base64
from pathlib import Path
from urllib.parse import parse_qsl

import numpy as np
import pytest
from selenium.webdriver.common.keys import Keys
from selenium.webdriver.support.ui import Select

from tests.study.browser import Browser
from tests.study.what_if import choose, cost_field, enter, enter_cost

LEAST_CONTRAST = 4.5
"""Of a text that is not large, after the Web Content Accessibility Guidelines 2.2, level AA."""
PHONES = [(360, 740), (390, 844)]


def test_a_request_would_be_seen(window: Browser, tmp_path: Path) -> None:
    """Or the check after every test would find nothing, whatever the page did."""
    path = tmp_path / "asking.html"
    address = "http://127.0.0.1:9/anything"
    path.write_text(f"<!doctype html><p id=sentence>asks</p><img src={address}>", encoding="utf-8")
    window.open(path)
    window.wait(lambda: window.run("return document.images[0].complete"))
    assert address in window.requests()
    assert any(address in each for each in window.console())


def shown(browser: Browser) -> list[list[object]]:
    return browser.table("strategies-compared")


def test_it_opens_on_the_readers_case(browser: Browser, calculator: Path) -> None:
    """First on the page, and not folded away."""
    browser.open(calculator)
    fields = ("gpus", "rate", "mtbf", "step", "restart", "now", "state", "bandwidth")
    assert all(browser.element(name).is_displayed() for name in fields)
    assert browser.element("gpus").get_attribute("value") == "256"
    assert browser.element("now").get_attribute("value") == "2h"
    assert cost_field(browser, 1, "then").get_attribute("value") == "90s"
    assert not browser.element("from").is_displayed()  # there is nothing else to start from


def test_the_address_holds_the_case_in_the_options_of_the_command(
    browser: Browser, written: Path
) -> None:
    choose(browser, "from", "an example")
    for name, text in {"gpus": "777", "now": "33 steps", "restart": "61.5s", "mtbf": "1h 30min"}.items():  # fmt: skip
        enter(browser, name, text)
    enter_cost(browser, 1, "name", "sharded = fast")
    enter_cost(browser, 1, "then", "45s")
    before = shown(browser)
    what_if = browser.driver.current_url.partition("#")[2]
    pairs = parse_qsl(what_if)
    assert ("async", "sharded = fast=3s+45s") in pairs
    assert ("gpus", "777") in pairs
    assert ("mtbf", "1h 30min") in pairs
    browser.open(written, f"#{what_if}")
    assert shown(browser) == before
    assert browser.element("gpus").get_attribute("value") == "777"
    browser.run("location.hash = ''")
    browser.wait(lambda: browser.element("gpus").get_attribute("value") == "4")


@pytest.mark.parametrize(
    "nonsense",
    ["#constructor=2", "#toString=1&__proto__=3&hasOwnProperty=x", "#rate=none&from=gone&evil=1", "#%", "#&&=&gpus"],
)  # fmt: skip
def test_nonsense_in_the_address_is_left_out(
    browser: Browser, written: Path, nonsense: str
) -> None:
    start = shown(browser)
    browser.open(written, nonsense)
    if nonsense != "#&&=&gpus":
        assert shown(browser) == start
        assert browser.driver.current_url.partition("#")[2] == ""
    else:
        assert browser.element("gpus").get_attribute("aria-invalid") == "true"


def test_a_wrong_number_in_the_address_is_named(browser: Browser, written: Path) -> None:
    browser.open(written, "#gpus=-3&step=<b>2</b>&blocking=slow%3Dsoon")
    assert wrong(browser, "gpus") == "Use a whole number from 1 to 1,000,000"
    assert wrong(browser, "step").startswith("Not a time: write a number and its unit")
    assert wrong(browser, "strategy-0").startswith("Not a time")


@pytest.mark.parametrize(
    ("name", "entered"),
    [("gpus", "0"), ("gpus", "1.5"), ("gpus", "1000001"), ("gpus", "1,0"), ("gpus", ""), ("now", "-1"), ("now", "0 steps"), ("step", "0 s"), ("step", "2 parsecs"), ("survived", "101"),
     ("state", "98 Gb"), ("bandwidth", "3 GB")],
)  # fmt: skip
def test_a_wrong_entry_is_named_and_changes_nothing(
    browser: Browser, name: str, entered: str
) -> None:
    start = shown(browser)
    before = browser.element(name).get_attribute("value") or ""
    paste(browser, name, entered)
    assert browser.element(name).get_attribute("aria-invalid") == "true"
    assert wrong(browser, name)
    assert shown(browser) == start
    paste(browser, name, before)
    assert browser.element(name).get_attribute("aria-invalid") == "false"
    assert wrong(browser, name) == ""


def paste(browser: Browser, name: str, text: str) -> None:
    """All at once: what stands in a field while one types may be right for a moment."""
    browser.run(
        "const e = document.getElementById(arguments[0]); e.value = arguments[1]; e.dispatchEvent(new Event('input'))",
        name,
        text,
    )


def wrong(browser: Browser, name: str) -> str:
    return str(
        browser.run("return document.getElementById(arguments[0]).textContent", f"{name}-wrong")
    )


def test_what_a_user_types_is_left_as_it_is(browser: Browser) -> None:
    enter(browser, "now", "0100 steps")
    assert browser.element("now").get_attribute("value") == "0100 steps"
    assert shown(browser)[0][2]["value"] == 100  # type: ignore[index]


def test_failures_are_an_hour_a_day_or_a_published_rate(browser: Browser) -> None:
    choose(browser, "from", "an example")
    choose(browser, "rate", "every 1 hour")
    hourly = shown(browser)[1][3]["value"]  # type: ignore[index]
    choose(browser, "rate", "every 1 day")
    daily = shown(browser)[1][3]["value"]  # type: ignore[index]
    assert hourly > daily
    assert browser.element("mtbf").get_attribute("value") == "1 day"
    published = Select(browser.element("rate")).options[-1].text
    choose(browser, "rate", published)
    assert browser.element("mtbf").get_attribute("placeholder")
    assert browser.element("mtbf").get_attribute("value") == ""
    enter(browser, "mtbf", "1 day")
    assert shown(browser)[1][3]["value"] == daily  # type: ignore[index]


def test_strategies_are_added_and_removed(browser: Browser) -> None:
    browser.element("add").click()
    names = [row[0] for row in shown(browser)[1:]]
    assert names == ["native", "async", "strategy 3"]
    browser.driver.find_elements("css selector", ".strategy button")[0].click()
    assert [row[0] for row in shown(browser)] == ["now: async", "async", "strategy 3"]
    kind = Select(browser.driver.find_elements("css selector", ".strategy select")[1])
    kind.select_by_visible_text("blocking")
    assert "blocking=strategy+3%3D3s" in browser.driver.current_url
    browser.element("reset").click()
    assert [row[0] for row in shown(browser)[1:]] == ["native", "async"]


def test_names_with_markup_are_shown_as_they_are(browser: Browser) -> None:
    enter_cost(browser, 0, "name", "<img src=x>&amp;")
    assert shown(browser)[1][0] == "<img src=x>&amp;"
    assert browser.run("return document.images.length") == 0


# ---- who uses it, and on what


def test_the_keyboard_reaches_every_control(browser: Browser) -> None:
    reached = set()
    browser.driver.find_element("tag name", "body").send_keys(Keys.TAB)
    for _ in range(80):
        focused = browser.driver.switch_to.active_element
        if focused.tag_name == "body":
            break
        reached.add(focused.get_attribute("id") or focused.get_attribute("ariaLabel"))
        if focused.tag_name == "summary":
            focused.send_keys(Keys.ENTER)
        browser.driver.switch_to.active_element.send_keys(Keys.TAB)
    wanted = browser.run("return [...document.querySelectorAll('#controls :is(input, select, button:enabled)')].filter(each => each.checkVisibility({visibilityProperty: true})).map(each => each.id || each.ariaLabel)")  # fmt: skip
    assert len(wanted) > 18
    assert set(wanted) <= reached


def test_every_control_has_a_name_of_its_own(browser: Browser) -> None:
    browser.run("document.getElementById('details').open = true")
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


@pytest.mark.parametrize("what_if", ["", LONG])
@pytest.mark.parametrize("size", PHONES)
def test_a_phone_shows_all_of_it_without_scrolling_sideways(
    browser: Browser, written: Path, what_if: str, size: tuple[int, int]
) -> None:
    browser.shape(*size)
    browser.open(written, what_if)
    browser.run("for (const each of document.querySelectorAll('details')) each.open = true")
    assert browser.run("return document.documentElement.scrollWidth") <= size[0]
    beyond = browser.run(
        "return [...document.querySelectorAll('body *')].filter(each => each.getBoundingClientRect().right > innerWidth + 1 && !each.closest('thead'))"
        ".map(each => each.outerHTML.slice(0, 80))"
    )
    assert beyond == []


@pytest.mark.parametrize("now", ["2h", "0.01s", "900 days"])
@pytest.mark.parametrize("width", [360, 390, 1280])
def test_marks_of_the_axes_do_not_collide(
    browser: Browser, written: Path, width: int, now: str
) -> None:
    browser.shape(width, 900)
    browser.open(written, f"#from=an+example&now={now}&step=0.01s")
    places = browser.run(
        """return [...document.querySelectorAll('#chart .role-axis-label')].map(axis => [...axis.querySelectorAll('text')]
            .filter(each => each.getAttribute('opacity') !== '0' && each.textContent).map(each => {
                const { left, right, top, bottom } = each.getBoundingClientRect(); return [left, right, top, bottom]; }))"""
    )
    assert len(places) == 2
    for marks in places:
        assert len(marks) >= 2
        for place, (left, right, top, bottom) in enumerate(marks):
            for other in marks[:place]:
                beside = right + 4 < other[0] or other[1] + 4 < left
                assert beside or bottom < other[2] or other[3] < top


@pytest.mark.parametrize("what_if", ["", "#from=an+example&gpus=2&rate=llama3"])
@pytest.mark.parametrize("width", [390, 1280])
def test_the_chart_has_room_for_its_axes(
    browser: Browser, written: Path, width: int, what_if: str
) -> None:
    browser.shape(width, 900)
    browser.open(written, what_if)
    chart, *texts = browser.run(
        """const place = each => { const { left, right, top, bottom } = each.getBoundingClientRect(); return [left, right, top, bottom]; };
        return [place(document.getElementById("chart")), ...[...document.querySelectorAll("#chart text")].filter(each => each.textContent).map(place)]"""
    )
    assert len(texts) >= 6
    for left, right, top, bottom in texts:
        assert min(left - chart[0], chart[1] + 1 - right, top - chart[2], chart[3] - bottom) >= 0


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_texts_are_legible_in_light_and_dark(browser: Browser, written: Path, scheme: str) -> None:
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
    brightness = luminance(browser.run("return getComputedStyle(document.body).backgroundColor"))
    assert brightness > 0.8 if scheme == "light" else brightness < 0.05


def contrast(ink: str, paper: str) -> float:
    darker, lighter = sorted((luminance(ink), luminance(paper)))
    return (lighter + 0.05) / (darker + 0.05)


def luminance(color: str) -> float:
    """Relative luminance of `rgb(r, g, b)`, as those guidelines define it."""
    channels = [int(each) / 255 for each in color.removeprefix("rgb(").removesuffix(")").split(",")]
    linear = [each / 12.92 if each <= 0.04045 else ((each + 0.055) / 1.055) ** 2.4 for each in channels]  # fmt: skip
    return float(np.dot(linear, (0.2126, 0.7152, 0.0722)))


def as_data(text: bytes) -> str:
    return f"data:text/html;base64,{base64.b64encode(text).decode('ascii')}"


def test_it_works_inside_the_report(browser: Browser, written: Path, tmp_path: Path) -> None:
    """Snakemake's report shows a page as a frame with an address `data:`."""
    text = written.read_bytes()
    report = tmp_path / "report.html"
    report.write_text("<!doctype html><title>report</title><p id=sentence>report</p><iframe width=1200 height=800></iframe>", encoding="utf-8")  # fmt: skip
    browser.open(report)
    browser.run("document.querySelector('iframe').src = arguments[0]", as_data(text))
    browser.driver.switch_to.frame(0)
    browser.wait(lambda: browser.element("sentence").text.startswith("With "))
    enter(browser, "gpus", "1024")
    assert browser.element("known").text.startswith("projected from 4 ranks")
    browser.driver.switch_to.default_content()
    assert browser.console() == []
    browser.open(written)
