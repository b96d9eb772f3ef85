"""The inbox page: whole in the package, nothing fetched from elsewhere, strangers' words shown as text."""

from __future__ import annotations

import re
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.cpaas_sandbox.conftest import ADA, Harness
from tests.cpaas_sandbox.page.browser import CHROMIUM, DRIVER, FLAGS, Browser, browsing
from tests.cpaas_sandbox.receiver import Receiver
from tests.waiting import until

FILES = {"/": "text/html", "/_page/inbox.js": "text/javascript", "/_page/inbox.css": "text/css"}
EVIL = "<img src=x onerror=\"document.title='owned'\"><script>document.title='owned'</script>"


@pytest.mark.parametrize(("path", "kind"), FILES.items())
def test_page_files_are_served_with_a_content_security_policy(sandbox: Harness, path: str, kind: str) -> None:
    answer = sandbox.call("GET", path, headers={"Authorization": ""})
    assert answer.status_code == 200
    assert answer.headers["content-type"].startswith(kind)
    policy = answer.headers["content-security-policy"]
    assert "default-src 'none'" in policy
    assert "unsafe" not in policy


def test_page_names_no_other_host(sandbox: Harness) -> None:
    for path in FILES:
        text = sandbox.call("GET", path).text
        addresses = [
            found for found in re.findall(r"(?:https?:)?//[a-z0-9.-]+\.[a-z]{2,}", text) if "w3.org" not in found
        ]
        assert addresses == []
    named = re.findall(r"(?:src|href)=\"(/[^\"]*)\"", sandbox.call("GET", "/").text)
    assert sorted(named) == ["/_page/inbox.css", "/_page/inbox.js"]


def test_no_markup_is_made_from_strings(sandbox: Harness) -> None:
    script = sandbox.call("GET", "/_page/inbox.js").text
    for way in ("innerHTML", "outerHTML", "insertAdjacentHTML", "document.write", "eval(", "Function("):
        assert way not in script


@pytest.mark.skipif(CHROMIUM is None, reason="no chromium on this machine")
def test_browser_shows_a_message_as_text(sandbox: Harness, tmp_path: Path) -> None:
    sandbox.sms(content=EVIL)
    seq = sandbox.inbox("sms")[0]["seq"]
    flags = [*FLAGS, "--virtual-time-budget=3000", "--dump-dom"]
    command = [str(CHROMIUM), *flags, f"--user-data-dir={tmp_path}", f"{sandbox.url}/#sms/{seq}"]
    dom = subprocess.run(command, capture_output=True, text=True, timeout=90, check=True).stdout
    assert "&lt;img src=x onerror=" in dom
    assert "<img" not in dom
    assert "owned</title>" not in dom
    assert f'<span class="who">{ADA}</span>' in dom
    assert 'class="state live"' in dom


@pytest.fixture
def browser(tmp_path: Path) -> Iterator[Browser]:
    if CHROMIUM is None or DRIVER is None:
        pytest.skip("no chromium with chromedriver on this machine")
    with browsing(tmp_path) as one:
        yield one


def test_reports_appear_and_change_while_the_page_is_open(
    sandbox: Harness, receiver: Receiver, browser: Browser
) -> None:
    sandbox.control("PUT", "clock", {"frozen": True})
    browser.open(f"{sandbox.url}/#reports")
    until(lambda: browser.texts("#empty") == ["There are no delivery reports."])
    browser.run("window.loadedOnce = true")
    receiver.answers = [503]
    record = sandbox.sms(callback=receiver.url, external_ref=EVIL, is_trackable=True).json()
    until(lambda: browser.texts("#items .badge") == ["pending"])
    sandbox.reported()
    sandbox.advance(3600)
    until(lambda: browser.texts("#items .badge") == ["acknowledged"])
    assert browser.texts("#items .who") == [ADA]
    assert browser.texts("#tab-reports .count") == ["1"]
    # a message shows its own, those that come later too
    seq = sandbox.inbox("sms")[0]["seq"]
    browser.run(f"location.hash = '#sms/{seq}'")
    until(lambda: browser.texts(".told li > span:first-child") == ["delivered"])
    click = {"recipient": ADA, "status": "clicked", "message_id": record["id"], "reason": EVIL}
    sandbox.control("POST", "reports", click)
    until(lambda: browser.texts(".told .badge") == ["acknowledged", "acknowledged"])
    assert browser.texts(".told li > span:first-child") == ["delivered", "clicked"]
    assert browser.texts("#items .badge") == ["clicked"]
    # words of strangers are shown as words
    newest = sandbox.inbox("reports")[0]["seq"]
    browser.run(f"location.hash = '#reports/{newest}'")
    until(lambda: any("onerror" in text for text in browser.texts("#detail .bubble")))
    assert browser.run("return document.querySelectorAll('img, #detail script').length") == 0
    assert browser.run("return document.title") == "Inbox · cpaas sandbox"
    # and all that without a reload
    assert browser.run("return window.loadedOnce") is True


def test_page_recovers_after_losing_the_sandbox(sandbox: Harness, browser: Browser) -> None:
    browser.open(f"{sandbox.url}/")
    until(lambda: browser.texts("#state") == ["live"])
    browser.run("window.fetchOfTheirs = fetch; window.fetch = () => Promise.reject(new Error('gone'))")
    until(lambda: browser.texts("#state") == ["no response"])
    sandbox.sms()
    browser.run("window.fetch = window.fetchOfTheirs")
    until(lambda: browser.texts("#items .who") == [ADA])
    assert browser.texts("#state") == ["live"]
