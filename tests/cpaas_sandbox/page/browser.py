"""A headless Chromium driven over the WebDriver protocol, as chromedriver speaks it; no library needed."""

from __future__ import annotations

import base64
import re
import shutil
import subprocess
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import httpx

CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
DRIVER = shutil.which("chromedriver")
MOST_STARTS = 3
# Without them Chromium looks for hosts of its own.
FLAGS = (
    "--headless",
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
)


class Browser:
    """One window."""

    def __init__(self, driver: httpx.Client, session: str) -> None:
        self._driver = driver
        self._session = session

    def ask(self, method: str, path: str, body: Any = None) -> Any:
        """Return the value of a command of the protocol."""
        answer = self._driver.request(method, f"/session/{self._session}/{path}", json=body)
        assert answer.is_success, answer.text
        return answer.json()["value"]

    def open(self, url: str) -> None:
        """Load a page."""
        self.ask("POST", "url", {"url": url})

    def resize(self, width: int, height: int) -> None:
        """Give the page this size in pixels."""
        frame = self.run("return [outerWidth - innerWidth, outerHeight - innerHeight]")
        self.ask("POST", "window/rect", {"width": width + frame[0], "height": height + frame[1]})

    def screenshot(self) -> bytes:
        """Return a PNG of what the window shows."""
        return base64.b64decode(self.ask("GET", "screenshot"))

    def run(self, script: str) -> Any:
        """Return what a script returns in the page."""
        return self.ask("POST", "execute/sync", {"script": script, "args": []})

    def texts(self, selector: str) -> list[str]:
        """Return the texts of the elements a selector finds, as they are shown."""
        found = self.run(f"return [...document.querySelectorAll({selector!r})].map((one) => one.textContent)")
        return [str(one) for one in found]


def _started_driver() -> tuple[subprocess.Popen[str], str]:
    """Start a driver, and return it with its port."""
    said = ""
    for _ in range(MOST_STARTS):
        process = subprocess.Popen(
            [str(DRIVER), "--port=0"], stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
        )
        assert process.stdout is not None
        for line in process.stdout:
            said += line
            if found := re.search(r"started successfully on port (\d+)", line):
                return process, found.group(1)
        # Another driver that started at the same moment has its port.
        process.wait()
    raise AssertionError(said)


@contextmanager
def browsing(profile: Path, *flags: str, capabilities: Mapping[str, Any] | None = None) -> Iterator[Browser]:
    """Start a driver and a browser; end both.

    :param flags: more arguments of the browser's command line
    :param capabilities: what is wanted of the browser beside its options
    """
    process, port = _started_driver()
    try:
        options = {"binary": CHROMIUM, "args": [*FLAGS, *flags, f"--user-data-dir={profile}"]}
        wanted = {
            "capabilities": {
                "alwaysMatch": {"browserName": "chrome", "goog:chromeOptions": options, **(capabilities or {})}
            }
        }
        with httpx.Client(base_url=f"http://127.0.0.1:{port}", timeout=60, trust_env=False) as driver:
            answer = driver.post("/session", json=wanted)
            assert answer.is_success, answer.text
            session = answer.json()["value"]["sessionId"]
            try:
                yield Browser(driver, session)
            finally:
                driver.delete(f"/session/{session}")
    finally:
        process.terminate()
        try:
            process.wait(10)
        except subprocess.TimeoutExpired:
            # At times the driver goes on after its last session has ended; its browser is gone by then.
            process.kill()
            process.wait()
