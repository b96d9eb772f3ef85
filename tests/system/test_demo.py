"""``make demo`` as a user runs it: real Airflow, real sandbox; what it prints, what it leaves, what it gives away."""

from __future__ import annotations

import json
import os
import signal
import sqlite3
import subprocess
import sys
from contextlib import closing, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from tests.cpaas_sandbox.page.browser import CHROMIUM, DRIVER
from tests.processes import Started
from tests.sandbox import Sandbox
from tests.system.demo import EXAMPLES, REPOSITORY
from tests.system.demo_activity import WINNERS, run_activity
from tests.system.leaks import Scan, Secrets, look_through
from tests.system.pages_in_browser import axe_script, campaign_reference, follow_task_link, look_at_pages, rows_of
from tests.system.standalone import Standalone, wait_for
from tests.system.watched_browser import watching

DEMO_WITHIN = 540


def start(home: Path, *arguments: str) -> subprocess.Popen[str]:
    """Start the demo as make does."""
    return subprocess.Popen(
        [sys.executable, "-m", "tests.system.demo", *arguments, "--home", str(home)],
        cwd=REPOSITORY,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )


def run(home: Path, *arguments: str) -> tuple[int, str]:
    """Run the demo to its end; return its exit status and what it printed."""
    demo = start(home, *arguments)
    try:
        printed, _ = demo.communicate(timeout=DEMO_WITHIN)
    except BaseException:
        demo.send_signal(signal.SIGTERM)
        demo.communicate(timeout=60)
        raise
    return demo.returncode, printed


def written_down(home: Path) -> list[Started]:
    """Return what the demo has started, by its own note."""
    note = home / "running.json"
    if not note.exists():
        return []
    with suppress(ValueError):  # it is being written just now
        return [Started.from_json(one) for one in json.loads(note.read_text())["started"]]
    return []


def wait_until_started(home: Path) -> list[Started]:
    """Wait until Airflow has parts and the sandbox runs."""

    def look() -> list[Started] | None:
        started = written_down(home)
        busy = len(started) == 2 and len(started[1].processes()) > 1
        return started if busy else None

    return wait_for("the demo to start its programs", look, 120)


@dataclass
class Kept:
    """A demo that was left up."""

    home: Path
    status: int
    printed: str
    result: dict[str, Any]
    airflow: Standalone
    sandbox: Sandbox
    counters: dict[str, Any]


@pytest.fixture(scope="module")
def kept(tmp_path_factory):
    home = tmp_path_factory.mktemp("demo") / "home"
    try:
        status, printed = run(home, "run", "--keep")
        result = json.loads((home / "result.json").read_text())
        airflow, service = result["airflow"], result["sandbox"]
        sandbox = Sandbox.running(home / "sandbox.log", service["url"], service["api_key"])
        yield Kept(
            home,
            status,
            printed,
            result,
            Standalone.running(home / "airflow", EXAMPLES, airflow["url"], airflow["password"]),
            sandbox,
            sandbox.counters(),
        )
    finally:
        run(home, "stop")


@pytest.fixture(scope="module")
def active(kept):
    """The demo after a passcode and purchases."""
    ends = run_activity(kept.airflow, kept.sandbox)
    assert ends == dict.fromkeys(ends, "success")
    return kept


@pytest.mark.skipif(not (CHROMIUM and DRIVER), reason="needs chromium and chromedriver")
class TestPagesInABrowser:
    """Every page of the provider in Airflow's UI, in both themes, on a screen and on a phone; see ``VIEWS``."""

    @pytest.fixture(scope="class")
    def browser(self, active, tmp_path_factory):
        with watching(tmp_path_factory.mktemp("profile"), axe_script()) as browser:
            browser.log_in(active.airflow.url, active.airflow.token)
            yield browser

    def test_have_no_fault(self, active, browser):
        assert active.status == 0, active.printed
        reference = campaign_reference(active.home / "cpaas.db", "send_sms")
        assert look_at_pages(browser, active.airflow.url, reference) == []

    def test_show_what_tasks_did(self, active, browser):
        (sync,) = rows_of(browser, active.airflow.url, "contact-syncs")
        assert "customer_campaign" in sync
        assert "ended" in sync
        (passcodes,) = rows_of(browser, active.airflow.url, "passcodes")
        assert "cpaas_default" in passcodes
        assert "100" in passcodes
        purchases = rows_of(browser, active.airflow.url, "airtime")
        assert sum("airtime_rewards" in row for row in purchases) == WINNERS

    @pytest.mark.skipif(axe_script() is None, reason="needs axe, which .ci/run installs where there is npm")
    def test_axe_finds_a_fault_that_is_there(self, active, browser):
        browser.browser.open(f"{active.airflow.url}/cpaas/campaigns")
        browser.browser.run("document.querySelector('main').append(document.createElement('button'))")
        assert [rule for rule, _ in browser.violations()] == ["button-name"]

    def test_link_to_a_task_leaves_the_frame(self, active, browser):
        assert "/dags/" in follow_task_link(browser, active.airflow.url)


class TestTheDemo:
    def test_succeeds(self, kept):
        assert kept.status == 0, kept.printed
        assert kept.result["state"] == "success"

    def test_prints_figures_that_agree_with_the_service(self, kept):
        lines = kept.result["lines"]
        assert len(lines) >= 20
        assert [line["label"] for line in lines if not line["agrees"]] == []
        assert "DISAGREES" not in kept.printed
        counters = kept.counters
        sent = [line["campaign"] for line in lines if line["label"].startswith("SMS sent")]
        assert len(sent) == 2
        assert sum(sent) == counters["sms"]["recipients"]
        assert all(f"{count:,}" in kept.printed for count in sent)
        assert f"{kept.result['figures']['balance']:,.2f}" in kept.printed

    def test_shows_what_a_real_list_brings(self, kept):
        sms, email = kept.result["figures"]["sms"], kept.result["figures"]["email"]
        for name in ("invalid_rows", "duplicates", "dnd", "rejected"):
            assert sms[name] > 0, name
        assert email["rejected"] > 0

    def test_every_accepted_message_is_reported_delivered_or_not(self, kept):
        lines = {line["label"]: line for line in kept.result["lines"]}
        for name, sent in (("SMS", kept.result["figures"]["sms"]), ("Emails", kept.result["figures"]["email"])):
            reached, missed = lines[f"{name} delivered"]["campaign"], lines[f"{name} undelivered"]["campaign"]
            assert reached + missed == sent["sent"]
            assert min(reached, missed) > 0

    def test_mounted_receiver_stores_duplicate_reports_once(self, kept):
        counters = kept.counters["reports"]
        with closing(sqlite3.connect(f"file:{kept.home / 'cpaas.db'}?mode=ro", uri=True)) as store:
            [(once, repeats)] = store.execute("SELECT count(*), sum(received_count) - count(*) FROM cpaas_reports")
        recipients = sum(kept.counters[channel]["recipients"] for channel in ("sms", "email"))
        assert once > recipients
        assert repeats > 0
        assert once + repeats >= counters["acknowledged"]
        log = (kept.home / "airflow" / "logs" / "standalone.log").read_text(errors="replace")
        assert "path=/cpaas/callback/cpaas_default/... query= status_code=200" in log

    def test_runs_the_mapped_example_too(self, kept):
        assert "SMS sent in 4 partitions" in kept.printed

    def test_output_names_the_pages_and_how_to_end_the_demo(self, kept):
        assert kept.airflow.url in kept.printed
        assert kept.sandbox.url in kept.printed
        assert "make demo-stop" in kept.printed

    def test_gives_nothing_away_not_even_passcodes(self, active):
        kept = active
        secrets = Secrets.of(kept.sandbox)
        secrets.add_list(EXAMPLES / "data" / "customers.csv")
        secrets.texts -= self._previewed(kept)
        # What signs callback URLs, and one that says of which request it is.
        secrets.keys |= {kept.result["callback_secret"], "/callback/cpaas_default/cpaas-"}
        assert len(secrets.numbers) > 1000
        assert len(secrets.addresses) > 500
        assert len(secrets.texts) > 100
        assert secrets.codes
        leaks, searched = look_through(kept.home / "airflow", kept.result["airflow"]["fernet"], secrets)
        assert leaks == []
        assert searched > 100_000

    def _previewed(self, kept):
        """Return what the example asked to see: two texts as customers read them, the numbers masked."""
        path = f"dags/customer_campaign/dagRuns/{kept.result['run_id']}/taskInstances/check/xcomEntries/preview"
        shown = kept.airflow.api("GET", path)["value"]
        assert len(shown) == 2
        asked_for = Secrets()
        for one in shown:
            assert "****" in one["recipient"]
            asked_for.add_text("\n".join(one["texts"]))
        return asked_for.texts


class TestTheScan:
    def test_finds_what_is_there(self, tmp_path):
        secrets = Secrets({"sk_test_0123456789"}, {"48213377"}, {"2348031234567"}, {"ada@example.com"}, set())
        secrets.add_text("Hello Adébáyọ̀, calls are free")
        planted = {
            "key": "Authorization: Bearer sk_test_0123456789",
            "number": "recipient=+234 803 123 4567, next",
            "address": '{"to": "Ada@example.com"}',
            "text": json.dumps({"content": "Hello Adébáyọ̀, calls are free"}),
            "code": "code 48213377 entered",
        }
        scan = Scan(secrets)
        for kind, text in planted.items():
            assert [leak.kind for leak in scan.text("planted", text)] == [kind]

    def test_takes_a_masked_number_for_no_leak(self):
        scan = Scan(Secrets(numbers={"2348031234567"}, codes={"482133"}))
        assert list(scan.text("log", "23480****567 at 2026-11-21T04:13:30.482133Z in line 482133.5")) == []


class TestWhatItLeaves:
    def test_nothing_after_it_was_stopped(self, kept):
        started = written_down(kept.home)
        assert len(started) == 2
        assert all(one.processes() for one in started)
        assert run(kept.home, "stop")[0] == 0
        assert [process for one in started for process in one.processes()] == []

    def test_nothing_after_ctrl_c_and_no_other_runs_beside_it(self, tmp_path):
        home = tmp_path / "home"
        demo = start(home, "run")
        started = wait_until_started(home)
        status, refused = run(home, "run")
        demo.send_signal(signal.SIGINT)
        printed, _ = demo.communicate(timeout=60)
        assert (status, "Another demo is running" in refused) == (1, True), refused
        assert demo.returncode == 130, printed
        assert [process for one in started for process in one.processes()] == []

    def test_nothing_when_it_is_ended_after_a_crash(self, tmp_path):
        home = tmp_path / "home"
        demo = start(home, "run")
        started = wait_until_started(home)
        os.kill(demo.pid, signal.SIGKILL)
        demo.communicate(timeout=60)
        assert all(one.processes() for one in started)
        assert run(home, "stop")[0] == 0
        assert [process for one in started for process in one.processes()] == []
