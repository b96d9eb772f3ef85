"""Looks at every page of the provider in Airflow's UI, as a browser shows it."""

from __future__ import annotations

import os
import sqlite3
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

from tests.system.standalone import wait_for
from tests.system.watched_browser import WatchedBrowser

AXE = Path(__file__).parents[2] / ".tiers" / "axe" / "package" / "axe.min.js"

SCREENS = {"screen": (1280, 900), "phone": (390, 844)}
# A colour depends on the theme alone, a width on the screen alone: two of the four show each fault of either.
VIEWS = (("light", ("screen",)), ("dark", ("phone",)))
ALL_VIEWS = (("light", ("screen", "phone")), ("dark", ("screen", "phone")))
# Chromium says this of Airflow's own frame.
OF_AIRFLOW = "can escape its sandboxing"
WITHIN = 60.0

_IN_FRAME = "const frame = document.querySelector('iframe'); const page = frame && frame.contentDocument; "
HEADING = _IN_FRAME + "const found = page && page.querySelector('h1'); return found ? found.textContent : null;"
_ROWS = "return [...document.querySelectorAll('main tbody tr')].map((row) => row.innerText)"
# The link and the state are lines of a larger height.
_LINES = """
return [...document.querySelectorAll("main tbody tr")].map((row) => Math.round((row.clientHeight - 18) / 21));
"""
_BACKGROUND = "return getComputedStyle(document.body).backgroundColor"


def axe_script() -> str | None:
    """Return axe, ``None`` where it is not installed."""
    return AXE.read_text(encoding="utf-8") if AXE.is_file() else None


def campaign_reference(database: Path, task_id: str, dag_id: str = "%") -> str:
    """Return the reference of the campaign that a task sent."""
    with closing(sqlite3.connect(database)) as connection:
        query = "SELECT reference FROM cpaas_task_progress WHERE task_id = ? AND dag_id LIKE ?"
        return str(connection.execute(query, (task_id, dag_id)).fetchone()[0])


def look_at_pages(watched: WatchedBrowser, url: str, reference: str) -> list[str]:
    """Return what is wrong with the pages, in words."""
    paths = [
        "campaigns",
        f"campaigns/{reference}",
        f"deliveries?campaign={reference}",
        "campaigns/unheard-of",
        "over-time",
        "contact-syncs",
        "passcodes",
        "airtime",
        "reports",
        "search",
    ]
    host = url.partition("//")[2]
    watched.console()
    watched.hosts()
    found: list[str] = []
    backgrounds: dict[str, set[str]] = {}
    for theme, screens in ALL_VIEWS if os.environ.get("TORTURE") else VIEWS:
        watched.choose(theme)
        # The choice in Airflow's UI counts, not what the system prefers.
        watched.prefer("dark" if theme == "light" else "light")
        for screen in screens:
            _resize(watched, screen)
            for path in paths:
                watched.browser.open(f"{url}/cpaas/{path}")
                backgrounds.setdefault(theme, set()).add(watched.browser.run(_BACKGROUND))
                found += [f"{path}, {theme}, {screen}: {fault}" for fault in _faults(watched, host, path)]
    if len(backgrounds["light"]) != 1 or len(backgrounds["dark"]) != 1 or backgrounds["light"] == backgrounds["dark"]:
        found.append(f"The theme is not followed: {backgrounds}")
    _resize(watched, "screen")
    return found + _in_airflow(watched, url, host)


def rows_of(watched: WatchedBrowser, url: str, path: str) -> list[str]:
    """Return the text of each row of the tables of a page."""
    watched.browser.open(f"{url}/cpaas/{path}")
    return [str(row) for row in watched.browser.run(_ROWS)]


def follow_task_link(watched: WatchedBrowser, url: str) -> str:
    """Click on a link to a task within Airflow's frame, and return where the window goes."""
    watched.browser.open(f"{url}/plugin/cpaas")
    wait_for("the page in Airflow's frame", lambda: watched.browser.run(HEADING), WITHIN)
    watched.browser.run(_IN_FRAME + "page.querySelector('a[data-top]').click()")

    def address() -> str | None:
        found = str(watched.browser.run("return location.pathname"))
        return found if not found.startswith("/plugin/") else None

    return wait_for("the window to go to the task", address, WITHIN)


def _faults(watched: WatchedBrowser, host: str, path: str) -> Iterator[str]:
    missing = "unheard-of" in path
    yield from (f"console: {line}" for line in watched.console() if not (missing and "404" in line))
    yield from (f"asks {other}" for other in watched.hosts() - {host} if "." in other)
    wide, room = watched.browser.run("return [document.documentElement.scrollWidth, innerWidth]")
    if wide > room:
        yield f"is {wide} pixels wide, in a window of {room}"
    if room == SCREENS["phone"][0] and path == "campaigns" and (lines := max(watched.browser.run(_LINES))) > 3:
        yield f"shows a campaign in {lines} lines"
    yield from (f"axe: {rule}, {elements}" for rule, elements in watched.violations())


def _in_airflow(watched: WatchedBrowser, url: str, host: str) -> list[str]:
    """Look at the page where the navigation shows it."""
    watched.browser.open(f"{url}/plugin/cpaas")
    heading = wait_for("the page in Airflow's frame", lambda: watched.browser.run(HEADING), WITHIN)
    found = [] if heading == "Campaigns" else [f"The frame shows {heading}"]
    # Chosen in Airflow's UI, the theme of the page in the frame changes at once.
    watched.browser.run("localStorage.setItem('theme', 'light')")
    dark = "return page.documentElement.dataset.theme || ''"
    script = "dispatchEvent(new StorageEvent('storage', {key: 'theme'}))"
    watched.browser.run(_IN_FRAME + f"frame.contentWindow.{script}")
    if watched.browser.run(_IN_FRAME + dark) != "light":
        found.append("The frame does not follow the theme")
    found += [f"console: {line}" for line in watched.console() if OF_AIRFLOW not in line]
    return found + [f"asks {other}" for other in watched.hosts() - {host} if "." in other]


def _resize(watched: WatchedBrowser, screen: str) -> None:
    width, height = SCREENS[screen]
    metrics = {"width": width, "height": height, "deviceScaleFactor": 1, "mobile": screen == "phone"}
    watched.cdp("Emulation.setDeviceMetricsOverride", metrics)
