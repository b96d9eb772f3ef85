"""The inbox page: whole in the package, nothing fetched from elsewhere, strangers' words shown as text."""

from __future__ import annotations

import re
import shutil
import subprocess
from pathlib import Path

import pytest

from tests.unit.sandbox.conftest import ADA, Harness

FILES = {"/": "text/html", "/_page/inbox.js": "text/javascript", "/_page/inbox.css": "text/css"}
CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")


@pytest.mark.parametrize(("path", "kind"), FILES.items())
def test_its_files(sandbox: Harness, path: str, kind: str) -> None:
    answer = sandbox.call("GET", path, headers={"Authorization": ""})
    assert answer.status_code == 200
    assert answer.headers["content-type"].startswith(kind)
    policy = answer.headers["content-security-policy"]
    assert "default-src 'none'" in policy
    assert "unsafe" not in policy


def test_nothing_is_fetched_from_elsewhere(sandbox: Harness) -> None:
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
def test_a_browser_shows_a_message_and_runs_nothing_of_it(sandbox: Harness, tmp_path: Path) -> None:
    evil = "<img src=x onerror=\"document.title='owned'\"><script>document.title='owned'</script>"
    sandbox.sms(content=evil)
    seq = sandbox.inbox("sms")[0]["seq"]
    flags = [
        "--headless",
        "--no-sandbox",
        "--disable-gpu",
        "--no-first-run",
        "--disable-background-networking",
        "--disable-component-update",
        "--disable-sync",
        "--virtual-time-budget=3000",
        "--dump-dom",
    ]
    command = [str(CHROMIUM), *flags, f"--user-data-dir={tmp_path}", f"{sandbox.url}/#sms/{seq}"]
    dom = subprocess.run(command, capture_output=True, text=True, timeout=90, check=True).stdout
    assert "&lt;img src=x onerror=" in dom
    assert "<img" not in dom
    assert "owned</title>" not in dom
    assert f'<span class="who">{ADA}</span>' in dom
    assert 'class="state live"' in dom
