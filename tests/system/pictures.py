"""The pictures of README and the documentation, made from a real run of the demo: ``make pictures``.

``inbox.png`` is the sandbox's inbox page in a headless Chromium, and ``notification.png`` shows there what a failed run
sends. ``campaigns.png``, ``campaign.png`` and ``contact-sync.png`` are pages in Airflow's UI, and ``connection.png`` is
its form of the connection. ``campaign-log.svg`` is the task log of the SMS campaign: the lines of the provider as they
are, with the repository's folder left out of paths.
"""

from __future__ import annotations

import json
import re
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping
from pathlib import Path

from rich.console import Console
from rich.table import Table
from rich.text import Text

from tests.cpaas_sandbox.page.browser import CHROMIUM, DRIVER, Browser, browsing
from tests.system.demo import DAG_ID, REPOSITORY, Demo
from tests.system.demo_view import View
from tests.system.pages_in_browser import HEADING, campaign_reference
from tests.system.small_png import LARGEST, reduce_colours
from tests.system.standalone import Standalone, wait_for
from tests.system.watched_browser import watching

FOLDER = REPOSITORY / "docs" / "pictures"
TASK_ID = "send_sms"
OURS = ("cpaas_provider.", "airflow.task.operators.cpaas_provider.")
WIDTH, HEIGHT = 1120, 640  # of the browser's window; above the callback URL, which is a credential
WIDE, HIGH = 1320, 860  # with Airflow's navigation
COLUMNS = 116  # of the log

FAILED_FILES = 3

# Opens the newest message.
SHOW_THE_NEWEST = """
const row = document.querySelector("#items li");
if (row) row.click();
return Boolean(row);
"""

# Opens the emails, and the newest of them that was opened by its recipient.
SHOW_AN_EMAIL = """
const rows = [...document.querySelectorAll("#items li")];
const row = rows.find((one) => one.textContent.includes("opened"));
if (row) row.click();
return Boolean(row);
"""


def main() -> int:
    """Run the demo and write the pictures; return the exit status."""
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as folder:
        demo = Demo(Path(folder) / "demo", View())
        try:
            if not demo.run(keep=True):
                return 1
            pictures = {"campaign-log.svg": log(demo).encode()}
            if CHROMIUM and DRIVER:
                pictures["inbox.png"] = inbox(demo.sandbox.url, Path(folder) / "profile")
                reference = campaign_reference(demo.home / "cpaas.db", TASK_ID)
                sync = campaign_reference(demo.home / "cpaas.db", "sync_contacts")
                pages = {
                    "campaigns.png": "campaigns",
                    "campaign.png": f"campaigns/{reference}",
                    "contact-sync.png": f"contact-syncs/{sync}",
                }
                pictures["notification.png"] = notification(demo, Path(folder) / "phone")
                pictures |= in_airflow(demo, pages, Path(folder) / "watched")
                with browsing(Path(folder) / "colours") as browser:
                    pictures |= {
                        name: reduce_colours(browser, picture)
                        for name, picture in pictures.items()
                        if name.endswith(".png")
                    }
            else:
                print("The .png files are unchanged: they need chromium and chromedriver.", file=sys.stderr)
        finally:
            demo.stop()
    FOLDER.mkdir(exist_ok=True)
    for name, picture in pictures.items():
        if len(picture) > LARGEST:
            print(f"{name} has {len(picture):,} bytes; {LARGEST:,} are allowed.", file=sys.stderr)
            return 1
        (FOLDER / name).write_bytes(picture)
        print(f"{FOLDER / name}: {len(picture):,} bytes")
    return 0


def inbox(url: str, profile: Path) -> bytes:
    """Return a picture of the inbox page with an email and its delivery reports."""
    with browsing(profile) as browser:
        browser.resize(WIDTH, HEIGHT)
        browser.open(url)
        wait_for("the page to list messages", lambda: browser.texts("#items li") or None, 20)
        browser.run('document.getElementById("tab-email").click()')
        wait_for("an email that was opened", lambda: browser.run(SHOW_AN_EMAIL) or None, 20)
        wait_for("its detail", lambda: [text for text in browser.texts("#detail") if "Dear" in text] or None, 20)
        return browser.screenshot()


def notification(demo: Demo, profile: Path) -> bytes:
    """Return a picture of the SMS that is sent when tasks of the example fail."""
    before = demo.sandbox.inbox("sms", limit=1)["total"]
    run_id = demo.airflow.trigger("failure_alerts", {"broken": FAILED_FILES})
    demo.airflow.ended("failure_alerts", run_id, 300)
    wait_for("the notification", lambda: demo.sandbox.inbox("sms", limit=1)["total"] > before or None, 120)
    with browsing(profile) as browser:
        browser.resize(WIDTH, HEIGHT // 2)
        browser.open(demo.sandbox.url)
        wait_for("the page to list messages", lambda: browser.texts("#items li") or None, 20)
        wait_for("the newest message", lambda: browser.run(SHOW_THE_NEWEST) or None, 20)
        wait_for("its detail", lambda: browser.texts("#detail h2") or None, 20)
        return browser.screenshot()


def in_airflow(demo: Demo, pages: Mapping[str, str], profile: Path) -> dict[str, bytes]:
    """Return pictures of the pages as Airflow's UI shows them, and of the form of the connection.

    :param pages: the path of each page, by the name of its picture
    """
    airflow = demo.airflow
    with watching(profile) as watched:
        watched.log_in(airflow.url, airflow.token)
        watched.choose("light")
        watched.browser.resize(WIDE, HIGH)
        pictures = {}
        for name, path in pages.items():
            watched.browser.open(f"{airflow.url}/plugin/cpaas/cpaas/{path}")
            wait_for("the page in Airflow's frame", lambda: watched.browser.run(HEADING), 60)
            wait_for("all delivery reports", lambda: watched.browser.run(_IS_REPORTED) or None, 300)
            pictures[name] = watched.browser.screenshot()
        pictures["connection.png"] = connection_form(airflow, watched.browser)
        return pictures


def connection_form(airflow: Standalone, browser: Browser) -> bytes:
    """Return a picture of Airflow's form for a connection of our type."""
    connection = {
        "connection_id": "cpaas_default",
        "conn_type": "cpaas",
        "host": "https://api.example.com/v1",
        "extra": json.dumps({"default_region": "NG", "sender_id": "MyShop"}),
    }
    airflow.api("POST", "connections", connection)
    browser.resize(WIDE, HIGH)
    browser.open(f"{airflow.url}/connections")
    wait_for("the form", lambda: browser.run(_CLICK.replace("NAME", "Edit Connection")) or None, 60)
    wait_for("its fields", lambda: browser.run(_IS_SHOWN) or None, 60)
    time.sleep(1)  # It fades in.
    return browser.screenshot()


# A button of Airflow's UI has its name as its label or as its text.
_CLICK = """
const names = (one) => [one.getAttribute("aria-label"), one.textContent.trim()];
const found = [...document.querySelectorAll("button")].find((one) => names(one).includes("NAME"));
if (found) found.click();
return Boolean(found);
"""
_IS_SHOWN = "return document.body.textContent.includes('Extra Fields')"
_IS_REPORTED = (
    "return !document.querySelector('iframe').contentDocument.body.textContent.includes('waiting for reports')"
)


def log(demo: Demo) -> str:
    """Return the task's log as an SVG."""
    result = json.loads((demo.home / "result.json").read_text(encoding="utf-8"))
    folder = demo.airflow.home / "logs" / f"dag_id={DAG_ID}" / f"run_id={result['run_id']}" / f"task_id={TASK_ID}"
    with Path("/dev/null").open("w") as nowhere:
        console = Console(record=True, width=COLUMNS, file=nowhere, force_terminal=True, color_system="truecolor")
        table = Table.grid(padding=(0, 1))
        for clock, level, event in lines(max(folder.glob("attempt=*.log"))):
            table.add_row(Text(clock, "dim"), Text(level, "green"), Text(event))
        console.print(table)
        svg = console.export_svg(title=f"{DAG_ID} / {TASK_ID}")
    # A reader's browser asks no other host for a font.
    svg = re.sub(r"@font-face\s*{.*?}\s*", "", svg, flags=re.DOTALL)
    return svg.replace("Fira Code", "DejaVu Sans Mono, Menlo, Consolas")


def lines(file: Path) -> Iterator[tuple[str, str, str]]:
    """Yield time, level and event of each line that the provider logged."""
    for line in file.read_text(encoding="utf-8").splitlines():
        entry = json.loads(line)
        if str(entry.get("logger", "")).startswith(OURS):
            event = str(entry["event"]).replace(f"{REPOSITORY}/", "")
            event = re.sub(r"file://\S*/demo/campaign/", "file://.../campaign/", event)
            yield str(entry["timestamp"])[11:19], str(entry["level"]), event


if __name__ == "__main__":
    sys.exit(main())
