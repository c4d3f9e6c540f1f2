"""A real Chromium without a window, which notes every request and every word on its console."""

from __future__ import annotations

import base64
import json
import os
import shutil
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from selenium import webdriver
from selenium.webdriver.chrome.service import Service
from selenium.webdriver.common.by import By
from selenium.webdriver.remote.webelement import WebElement
from selenium.webdriver.support.ui import WebDriverWait

PROGRAMS = ("chromium", "chromedriver")
INSTALL = "sudo tests/cluster/install.sh installs Debian's chromium and chromium-driver"
FLAGS = (
    "--headless", "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run", "--disable-background-networking",
    "--disable-component-update", "--disable-sync", "--disable-dev-shm-usage",
)  # fmt: skip
WAIT_S = 30


def obstacle() -> str | None:
    """Why no browser can be started here."""
    missing = [name for name in PROGRAMS if shutil.which(name) is None]
    return f"no {' and no '.join(missing)} here; {INSTALL}" if missing else None


class Browser:
    """One window of Chromium."""

    def __init__(self, driver: webdriver.Chrome, downloads: Path) -> None:
        self.driver = driver
        self.opened = ""
        self.downloads = downloads
        self.shape(1280, 900)
        self.command("Browser.setDownloadBehavior", behavior="allow", downloadPath=str(downloads))

    def command(self, name: str, **options: Any) -> Any:
        """Of the Chrome DevTools Protocol."""
        return self.driver.execute_cdp_cmd(name, options)

    def shape(self, width: int, height: int) -> None:
        self.command("Emulation.setDeviceMetricsOverride", width=width, height=height, deviceScaleFactor=1, mobile=width < 600)  # fmt: skip

    def prefer(self, scheme: str) -> None:
        """`light` or `dark`, as the system would say."""
        feature = {"name": "prefers-color-scheme", "value": scheme}
        self.command("Emulation.setEmulatedMedia", features=[feature])

    def open(self, page: Path, what_if: str = "") -> None:
        """Anew: nothing of an earlier page is left."""
        self.driver.get("about:blank")
        self.requests(), self.console()
        self.opened = page.as_uri()
        self.driver.get(f"{self.opened}{what_if}")
        self.wait(
            lambda: self.element("known" if page.suffix == ".html" and what_if else "sentence").text
        )

    def wait(self, until: Callable[[], object]) -> None:
        WebDriverWait(self.driver, WAIT_S).until(lambda _: until())

    def element(self, name: str) -> WebElement:
        return self.driver.find_element(By.ID, name)

    def run(self, script: str, *arguments: Any) -> Any:
        return self.driver.execute_script(script, *arguments)

    def number(self, name: str) -> dict[str, float]:
        """A `data` element of the page: its value and the ends of its interval, with all digits."""
        return self.run(
            "const e = document.getElementById(arguments[0]);"
            "return {value: Number(e.value), lo: Number(e.dataset.lo), hi: Number(e.dataset.hi)}",
            name,
        )

    def table(self, name: str) -> list[list[Any]]:
        """Each row of a table: texts, and numbers with the ends of their intervals."""
        return self.run(
            "return [...document.getElementById(arguments[0]).tBodies[0].rows].map(row => [...row.cells].map(cell => {"
            "const e = cell.querySelector('data');"
            "return e ? {value: Number(e.value), lo: Number(e.dataset.lo), hi: Number(e.dataset.hi)} : cell.textContent}))",
            name,
        )

    def screenshot(self, path: Path) -> None:
        """The whole page."""
        size = self.command("Page.getLayoutMetrics")["cssContentSize"]
        taken = self.command(
            "Page.captureScreenshot", captureBeyondViewport=True, clip={**size, "scale": 1}
        )
        path.write_bytes(base64.b64decode(taken["data"]))

    def requests(self) -> list[str]:
        """The addresses that were asked for since the last call, by every frame and worker."""
        messages = (
            json.loads(entry["message"])["message"] for entry in self.driver.get_log("performance")
        )
        return [
            each["params"].get("request", {}).get("url") or each["params"]["url"]
            for each in messages
            if each["method"] in ("Network.requestWillBeSent", "Network.webSocketCreated")
        ]

    def console(self) -> list[str]:
        """What was written to the console since the last call, errors of the page among it."""
        return [f"{entry['level']}: {entry['message']}" for entry in self.driver.get_log("browser")]


@contextmanager
def chromium(folder: Path) -> Iterator[Browser]:
    """A browser that knows nothing, with its profile and its downloads in `folder`."""
    options = webdriver.ChromeOptions()
    options.binary_location = str(shutil.which("chromium"))
    for flag in (*FLAGS, f"--user-data-dir={folder / 'profile'}"):
        options.add_argument(flag)
    options.set_capability("goog:loggingPrefs", {"browser": "ALL", "performance": "ALL"})
    # Selenium would otherwise look for a driver in the network.
    service = Service(str(shutil.which("chromedriver")), env={**os.environ, "SE_OFFLINE": "true"})
    driver = webdriver.Chrome(options=options, service=service)
    try:
        yield Browser(driver, folder)
    finally:
        driver.quit()
