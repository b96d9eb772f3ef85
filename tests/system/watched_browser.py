"""A browser that is watched: what its console says, which hosts it asks, and what axe finds."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from tests.cpaas_sandbox.page.browser import Browser, browsing

COOKIE = "_token"

_AXE = """
const done = arguments[arguments.length - 1];
window.axe.run(document, { resultTypes: ["violations"] }).then(
  (found) => done(found.violations.map((one) => [one.id, one.nodes.map((node) => node.html)])),
  (error) => done([["axe failed", [String(error)]]]),
);
"""


class WatchedBrowser:
    """One window, logged in to Airflow.

    :param axe: the script of axe, ``None`` where it is not installed
    """

    def __init__(self, browser: Browser, axe: str | None) -> None:
        self.browser = browser
        self._axe = axe

    def log_in(self, url: str, token: str) -> None:
        """Have the cookie that Airflow's login sets."""
        self.browser.open(f"{url}/cpaas/static/pages.css")
        self.browser.ask("POST", "cookie", {"cookie": {"name": COOKIE, "value": token, "path": "/"}})

    def prefer(self, scheme: str) -> None:
        """Have the system prefer a colour scheme."""
        features = [{"name": "prefers-color-scheme", "value": scheme}]
        self.cdp("Emulation.setEmulatedMedia", {"features": features})

    def choose(self, theme: str | None) -> None:
        """Choose a theme as Airflow's UI stores it."""
        stored = "localStorage.removeItem('theme')" if theme is None else f"localStorage.setItem('theme', {theme!r})"
        self.browser.run(stored)

    def cdp(self, command: str, parameters: dict[str, Any]) -> Any:
        """Return the result of a command of Chromium's own protocol."""
        return self.browser.ask("POST", "goog/cdp/execute", {"cmd": command, "params": parameters})

    def console(self) -> list[str]:
        """Return what the console said since the last time, from warnings on."""
        entries = self.browser.ask("POST", "se/log", {"type": "browser"})
        return [one["message"] for one in entries if one["level"] in ("WARNING", "SEVERE")]

    def hosts(self) -> set[str]:
        """Return the hosts that were asked since the last time."""
        found = set()
        for entry in self.browser.ask("POST", "se/log", {"type": "performance"}):
            message = json.loads(entry["message"])["message"]
            if message["method"] == "Network.requestWillBeSent":
                found.add(urlsplit(message["params"]["request"]["url"]).netloc)
        return found - {""}

    def violations(self) -> list[Any]:
        """Return what axe finds in the page, each rule with the elements that break it."""
        if self._axe is None:
            return []
        # By the protocol: the page's own policy lets no other script in.
        self.cdp("Runtime.evaluate", {"expression": self._axe})
        found: list[Any] = self.browser.ask("POST", "execute/async", {"script": _AXE, "args": []})
        return found


@contextmanager
def watching(profile: Path, axe: str | None = None) -> Iterator[WatchedBrowser]:
    """Start a browser that is watched, and end it."""
    logs = {"goog:loggingPrefs": {"browser": "ALL", "performance": "ALL"}}
    with browsing(profile, capabilities=logs) as browser:
        yield WatchedBrowser(browser, axe)
