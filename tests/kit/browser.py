"""A real Chromium without a window, as people use it: with keys, and as a screen reader sees it."""

from __future__ import annotations

from collections.abc import Callable
from importlib import resources
from pathlib import Path
from typing import Any, TypeVar

import pytest
from selenium import webdriver
from selenium.webdriver.common.action_chains import ActionChains
from selenium.webdriver.remote.webelement import WebElement

from tests.kit.programs import find_browser
from tests.kit.wait import wait_until

T = TypeVar("T")

_FLAGS = (
    "--headless",
    "--no-sandbox",
    "--disable-gpu",
    "--disable-dev-shm-usage",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
    "--window-size=1280,900",
)


def start(profile: Path) -> webdriver.Chrome:
    """Start one with an empty profile. Call `quit` on it."""
    programs = find_browser()
    assert programs, "chromium and chromedriver are needed: python -m tests.kit.programs gets them"
    options = webdriver.ChromeOptions()
    options.binary_location = programs[0]
    for flag in (*_FLAGS, f"--user-data-dir={profile}"):
        options.add_argument(flag)
    options.set_capability("goog:loggingPrefs", {"browser": "ALL"})
    return webdriver.Chrome(options=options, service=webdriver.ChromeService(programs[1]))


class Reader:
    """Somebody who reads a page."""

    def __init__(self, driver: webdriver.Chrome) -> None:
        self.driver = driver

    def open(self, url: str) -> None:
        """Come to a page anew, also where only the part behind # differs."""
        self.leave()
        self.driver.get(url)

    def leave(self) -> None:
        """Have no page open: one whose operator ends would complain of that."""
        self.driver.get("about:blank")

    def resize(self, width: int) -> None:
        """Have a window of that many CSS pixels, whatever the least is that a window may have."""
        size = {"width": width, "height": 900, "deviceScaleFactor": 1, "mobile": False}
        self.driver.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", size)

    def prefer(self, scheme: str) -> None:
        """Prefer `light` or `dark`."""
        features = {"features": [{"name": "prefers-color-scheme", "value": scheme}]}
        self.driver.execute_cdp_cmd("Emulation.setEmulatedMedia", features)

    def script(self, text: str, *arguments: Any) -> Any:
        """Ask the page."""
        return self.driver.execute_script(text, *arguments)

    def until(self, condition: Callable[[], T], what: str) -> T:
        """Wait for a condition; the page may be drawn anew while it is asked."""
        return wait_until(condition, lambda: f"{what}; the page says:\n{self.text()}")

    def text(self) -> str:
        """All that is to be read in the page's main part."""
        return str(self.script("return document.querySelector('main')?.innerText ?? ''"))

    def await_text(self, *parts: str) -> str:
        """Wait until all of these can be read."""
        self.until(lambda: all(part in self.text() for part in parts), f"{parts} to be read")
        return self.text()

    def await_heading(self, text: str) -> None:
        """Wait for a view."""
        wanted = "return document.querySelector('h1').innerText"
        self.until(lambda: str(self.script(wanted)).startswith(text), f"the heading {text!r}")

    def rows(self) -> list[list[str]]:
        """The cells of every row of every table, without headings."""
        found: list[list[str]] = self.script(
            "return [...document.querySelectorAll('tbody tr')]"
            ".map((row) => [...row.children].map((cell) => cell.innerText.trim()))"
        )
        return found

    def press(self, *keys: str) -> None:
        """Press keys, whatever has the focus."""
        ActionChains(self.driver).send_keys(*keys).perform()

    def focused(self) -> WebElement:
        """What has the focus."""
        return self.driver.switch_to.active_element

    def focused_text(self) -> str:
        """What it says."""
        return str(self.script("return document.activeElement.innerText || document.activeElement.id"))

    def shows_focus(self) -> bool:
        """Whether one can see what has the focus."""
        return bool(
            self.script(
                "const style = getComputedStyle(document.activeElement);"
                "return style.outlineStyle !== 'none' && parseFloat(style.outlineWidth) >= 2"
            )
        )

    def violations(self) -> list[str]:
        """What axe finds: the rule, and the elements. Skips the test where axe is not installed (Python 3.11)."""
        pytest.importorskip("axe_selenium_python")
        self.script(resources.files("axe_selenium_python").joinpath("node_modules/axe-core/axe.min.js").read_text())
        found = self.driver.execute_async_script("axe.run().then(arguments[arguments.length - 1])")
        return [
            f"{rule['id']}: {node['html'][:200]} {node['failureSummary']}"
            for rule in found["violations"]
            for node in rule["nodes"]
        ]

    def tree(self) -> list[dict[str, Any]]:
        """What a screen reader is given, and the nodes between that it is not."""
        self.driver.execute_cdp_cmd("Accessibility.enable", {})
        nodes: list[dict[str, Any]] = self.driver.execute_cdp_cmd("Accessibility.getFullAXTree", {})["nodes"]
        return nodes

    def complaints(self) -> list[str]:
        """What the browser had to complain of: scripts that failed, what the page's policy forbade."""
        return [entry["message"] for entry in self.driver.get_log("browser") if entry["level"] in {"SEVERE", "WARNING"}]  # type: ignore[no-untyped-call]
