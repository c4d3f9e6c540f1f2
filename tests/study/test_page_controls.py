"""The page to ask "what if" in a real Chromium, as its users have it: address, wrong entries, keyboard, phone, dark, report."""

from __future__ import annotations

import base64
from pathlib import Path

import numpy as np
import pytest
from selenium.webdriver.common.keys import Keys
from selenium.webdriver.support.ui import Select

from tests.study.browser import Browser
from tests.study.what_if import choose, enter

LEAST_CONTRAST = 4.5
"""Of a text that is not large, after the Web Content Accessibility Guidelines 2.2, level AA."""
PHONE = (360, 740)


def test_a_request_would_be_seen(window: Browser, tmp_path: Path) -> None:
    """Or the check after every test would find nothing, whatever the page did."""
    path = tmp_path / "asking.html"
    address = "http://127.0.0.1:9/anything"
    path.write_text(f"<!doctype html><p id=sentence>asks</p><img src={address}>", encoding="utf-8")
    window.open(path)
    window.wait(lambda: window.run("return document.images[0].complete"))
    assert address in window.requests()
    assert any(address in each for each in window.console())


def test_projected_curves_are_dashed_and_measured_ones_are_not(browser: Browser) -> None:
    dashes = (
        "return getComputedStyle(document.querySelector('#chart .now_marks path')).strokeDasharray"
    )
    assert browser.run(dashes) == "none"
    assert not browser.element("legend-study").is_displayed()
    assert browser.element("gpus-known").text == "measured"
    enter(browser, "gpus", 8)
    assert browser.run(dashes) != "none"
    assert browser.element("legend-study").is_displayed()
    assert browser.element("gpus-known").text == browser.element("known").text.lower() == "projected"  # fmt: skip
    assert "Dashed: not measured" in browser.element("caption").text


def test_the_address_holds_the_what_if(browser: Browser, written: Path) -> None:
    choose(browser, "setup", "PyTorch · 2 ranks")
    choose(browser, "strategy", "native")
    for name, value in {"gpus": 777, "interval": 33, "down_s": 61.5, "survived": 12.5}.items():
        enter(browser, name, value)
    choose(browser, "rate", Select(browser.element("rate")).options[2].text)
    before = browser.table("intervals")
    what_if = browser.driver.current_url.partition("#")[2]
    browser.open(written, f"#{what_if}")
    assert browser.table("intervals") == before
    assert browser.element("gpus").get_attribute("value") == "777"
    browser.run("location.hash = ''")
    browser.wait(lambda: browser.element("gpus").get_attribute("value") == "4")


def test_nonsense_in_the_address_is_left_out(browser: Browser, written: Path) -> None:
    start = browser.table("intervals")
    browser.open(written, "#gpus=-3&interval=x&rate=none&stall_s=Infinity&setup=gone&evil=1")
    assert browser.table("intervals") == start


@pytest.mark.parametrize(
    ("name", "entered"),
    [("gpus", "0"), ("gpus", "1.5"), ("interval", "-1"), ("step_s", "0"), ("survived", "101"), ("gigabytes", "0"), ("gpus", "")],
)  # fmt: skip
def test_a_wrong_entry_is_named_and_changes_nothing(
    browser: Browser, name: str, entered: str
) -> None:
    start = browser.table("intervals")
    paste(browser, name, entered)
    assert browser.element(name).get_attribute("aria-invalid") == "true"
    assert wrong(browser, name).startswith("Enter a ")
    assert browser.table("intervals") == start
    paste(browser, name, "50")
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
    field = browser.element("interval")
    field.send_keys(Keys.CONTROL, "a")
    field.send_keys("0100")
    assert field.get_attribute("value") == "0100"
    assert browser.number("chosen-steps")["value"] == 100


# ---- who uses it, and on what


def test_the_keyboard_reaches_and_moves_every_control(browser: Browser) -> None:
    reached = []
    body = browser.driver.find_element("tag name", "body")
    body.send_keys(Keys.TAB)
    for _ in range(80):
        focused = browser.driver.switch_to.active_element
        if focused.tag_name == "body":
            break
        reached.append(focused.get_attribute("id") or focused.tag_name)
        if focused.tag_name == "summary":
            focused.send_keys(Keys.ENTER)
        browser.driver.switch_to.active_element.send_keys(Keys.TAB)
    wanted = browser.run("return [...document.querySelectorAll('#controls :is(input, select, [id=reset], [id=csv])')].filter(each => !each.closest('[hidden]')).map(each => each.id)")  # fmt: skip
    assert set(wanted) <= set(reached)
    slider = browser.element("gpus-slider")
    slider.send_keys(Keys.END)
    assert browser.element("gpus").get_attribute("value") == "1048576"
    slider.send_keys(Keys.HOME)
    assert browser.element("gpus").get_attribute("value") == "1"
    slider.send_keys(Keys.ARROW_RIGHT * 100)
    gpus = int(browser.element("gpus").get_attribute("value"))
    assert gpus == pytest.approx(1024, rel=0.01)
    strategy = browser.element("strategy")
    strategy.send_keys(Keys.HOME)
    assert Select(strategy).first_selected_option.text == "native"
    assert ", native, " in browser.element("sentence").text


def test_every_control_has_a_name_of_its_own(browser: Browser) -> None:
    browser.run("document.getElementById('details').open = true")
    tree = browser.command("Accessibility.getFullAXTree")["nodes"]
    roles = ("spinbutton", "slider", "combobox", "button", "link")
    named = [
        (node["role"]["value"], node.get("name", {}).get("value", ""))
        for node in tree
        if node.get("role", {}).get("value") in roles
    ]
    assert len(named) >= 14 + 5 + 4 + 2
    assert all(name for _, name in named)
    assert len(set(named)) == len(named)
    (chart,) = (node for node in tree if node.get("role", {}).get("value") in ("image", "img"))
    assert "Goodput" in chart["name"]["value"]


@pytest.mark.parametrize("what_if", ["", "#gpus=131072&gigabytes=1800&gigabytes_per_s=40"])
def test_a_phone_shows_all_of_it_without_scrolling_sideways(
    browser: Browser, written: Path, what_if: str
) -> None:
    browser.shape(*PHONE)
    browser.open(written, what_if)
    browser.run("document.getElementById('details').open = true")
    assert browser.run("return document.documentElement.scrollWidth") <= PHONE[0]
    beyond = browser.run(
        "return [...document.querySelectorAll('body *')].filter(each => each.getBoundingClientRect().right > innerWidth + 1)"
        ".map(each => each.outerHTML.slice(0, 80))"
    )
    assert beyond == []


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_texts_are_legible_in_light_and_dark(browser: Browser, written: Path, scheme: str) -> None:
    browser.prefer(scheme)
    browser.open(written, "#gpus=16384&gigabytes=18&stall_s=3")
    browser.run("document.getElementById('details').open = true")
    seen = browser.run(
        """const opaque = element => {
            for (let each = element; each; each = each.parentElement) {
                const color = getComputedStyle(each).backgroundColor;
                if (color !== "rgba(0, 0, 0, 0)" && color !== "transparent") return color;
            }
            return null;
        };
        const texts = [...document.body.querySelectorAll("*")].filter(each => each.checkVisibility()
            && (each.matches("input:not([type=range]), select") || [...each.childNodes].some(node => node.nodeType === 3 && node.data.trim()))
            && !each.matches("script, style, noscript, option"));
        return texts.map(each => [each.textContent.slice(0, 30) || each.id,
            each.closest("svg") ? getComputedStyle(each).fill : getComputedStyle(each).color, opaque(each)])"""
    )
    assert len(seen) > 100
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
    browser.wait(lambda: browser.element("sentence").text.startswith("On this machine"))
    enter(browser, "gpus", 1024)
    assert browser.element("sentence").text.startswith("Projected to 1,024 GPUs")
    browser.driver.switch_to.default_content()
    assert browser.console() == []
    browser.open(written)
