"""Incidents as an operator sees them: a campaign is killed, and its page is read in a browser at each step."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx

from tests.sandbox import Sandbox
from tests.system.killing.parts import AirflowInParts
from tests.system.pages_in_browser import campaign_reference
from tests.system.standalone import wait_for
from tests.system.watched_browser import WatchedBrowser

RECIPIENTS, PER_REQUEST, FIRST = 40, 10, 41_000_000
FIGURES = ("recipients", "accepted", "delivered", "undelivered", "open", "unknown", "rejected", "not_sent")
LATENCY = 6_000
"""Milliseconds of the third request, in which the task is killed. The service carries it out all the same."""

NOT_TODAY = 80_000
"""Seconds until the service reports, where no report shall prove anything before a person does."""

WITHIN = 180.0
TASK_ID = "send"

_READ = """
const text = (selector) => (document.querySelector(selector) || {textContent: ""}).textContent;
return {
  state: text(".state"),
  main: text("main"),
  polls: Boolean(document.body.dataset.refresh),
  tiles: [...document.querySelectorAll(".tile")].map((one) => [
    one.querySelector("dt").textContent, one.querySelector("dd").firstChild.textContent.trim()
  ]),
};
"""


@dataclass
class Page:
    """What the page of a campaign shows.

    :param figures: a figure that is shown as a dash is ``None``
    """

    state: str
    text: str
    polls: bool
    figures: dict[str, int | None]


@dataclass
class Incident:
    """A campaign, and all who know of it.

    :param service: of this campaign alone
    :param store: the provider's database, a file of SQLite
    """

    airflow: AirflowInParts
    service: Sandbox
    store: Path
    watched: WatchedBrowser
    dag_id: str
    run_id: str = ""

    def begin(self, folder: Path, **settings: Any) -> None:
        """Start the campaign, and kill its task while its third request is on its way.

        Another incident may be in its retry. If that was killed too, a second one of its requests could be unknown.

        :param settings: of the sandbox
        """
        source = folder / f"{self.dag_id}.csv"
        source.write_text("phone\n" + "".join(f"+23480{FIRST + number}\n" for number in range(RECIPIENTS)))
        self.service.control("PUT", "settings", settings)
        self.service.control(
            "POST", "faults", {"operation": "send_sms", "kind": "latency", "ms": LATENCY, "after": 2, "times": 1}
        )
        self.run_id = self.airflow.trigger(self.dag_id, {"source": str(source)})
        wait_for("the third request", lambda: self.service.counters()["faults"].get("latency"), WITHIN, every=0.05)
        for process in self.airflow.task_processes(self.dag_id):
            os.kill(process.pid, signal.SIGKILL)

    def wait_for_task(self, state: str) -> dict[str, Any]:
        """Return Airflow's task instance as soon as it is in a state."""
        path = f"dags/{self.dag_id}/dagRuns/{self.run_id}/taskInstances/{TASK_ID}"

        def look() -> dict[str, Any] | None:
            found: dict[str, Any] = self.airflow.api("GET", path)
            return found if found["state"] == state else None

        return wait_for(f"{self.dag_id} to be {state}", look, WITHIN)

    @property
    def reference(self) -> str:
        """The reference of the campaign."""
        return campaign_reference(self.store, TASK_ID, self.dag_id)

    def page(self) -> Page:
        """Read the campaign's page in the browser."""
        self.watched.browser.open(f"{self.airflow.url}/cpaas/campaigns/{self.reference}")
        found = self.watched.browser.run(_READ)
        tiles = {name.lower().replace(" ", "_"): text for name, text in found["tiles"]}
        numbers = {name: tiles[name].replace(",", "") for name in FIGURES}
        figures = {name: int(text) if text.isdigit() else None for name, text in numbers.items()}
        return Page(found["state"].strip(), " ".join(found["main"].split()), found["polls"], figures)

    def json(self) -> dict[str, Any]:
        """Return the same campaign as JSON."""
        answer = httpx.get(
            f"{self.airflow.url}/cpaas/deliveries",
            params={"campaign": self.reference},
            headers={"Accept": "application/json", "Authorization": f"Bearer {self.airflow.token}"},
            timeout=60,
            trust_env=False,
        )
        [line] = answer.raise_for_status().json()
        return {name: line[name] for name in (*FIGURES, "state")}

    def command(self) -> dict[str, Any]:
        """Return the same campaign as the command line shows it."""
        ended = self.run("campaigns", "show", self.reference, "--output", "json")
        assert ended.returncode == 0, ended.stderr
        [shown] = json.loads(ended.stdout)
        return {name: shown[name] for name in (*FIGURES, "state")}

    def resolve_as_sent(self) -> str:
        """Record that the service accepted what is unresolved, and return what the command says.

        A request that may still be in flight cannot be resolved yet.
        """

        def resolve() -> str | None:
            ended = self.run("journal", "resolve", self.dag_id, self.run_id, TASK_ID, "--sent", "--yes")
            assert ended.returncode == 0 or "Nothing was changed. Try again in" in ended.stderr, ended.stderr
            return ended.stdout if ended.returncode == 0 else None

        return wait_for("the request to be old enough", resolve, WITHIN, every=5.0)

    def clear(self) -> None:
        """Clear the task, as Airflow's UI does."""
        wanted = {"dry_run": False, "dag_run_id": self.run_id, "task_ids": [TASK_ID], "only_failed": False}
        self.airflow.api("POST", f"dags/{self.dag_id}/clearTaskInstances", wanted)

    def run(self, *arguments: str) -> subprocess.CompletedProcess[str]:
        """Run a command of the provider."""
        command = [str(Path(sys.executable).parent / "airflow"), "cpaas", *arguments]
        return subprocess.run(
            command, env=self.airflow.environment(), capture_output=True, text=True, timeout=WITHIN, check=False
        )

    def wait_for_page(self, state: str) -> Page:
        """Return the page once it shows the campaign in a state."""

        def look() -> Page | None:
            page = self.page()
            return page if page.state == state else None

        return wait_for(f"the page to show {state}", look, WITHIN, every=0.5)

    def messages(self) -> Counter[str]:
        """Return how many messages each recipient got."""
        return Counter(item["recipient"] for item in self.service.inbox("sms", limit=1000)["items"])


def agreed(look: Callable[[], Page], incident: Incident) -> Page:
    """Return the page, whose figures must be those of JSON and command line."""
    page = look()
    shown = {**page.figures, "state": page.state}
    assert shown == incident.json()
    assert shown == incident.command()
    return page


def look_at_kill_and_retry(incident: Incident) -> None:
    """A task is killed in the middle of a request. Its retry finds proof of that request, and succeeds."""
    task = incident.wait_for_task("up_for_retry")
    # The page trusts a state of Airflow's that is a few seconds old.
    page = incident.wait_for_page("interrupted")
    assert "Airflow: up for retry at" in page.text
    assert f"try {task['try_number']}." in page.text
    # Nobody whom the service may have got a message for is shown as not sent to.
    figures = page.figures
    assert figures["not_sent"] is None
    assert (figures["accepted"] or 0) + (figures["unknown"] or 0) == figures["recipients"] == RECIPIENTS
    assert (figures["accepted"] or 0) <= incident.messages().total()
    assert page.polls
    incident.wait_for_task("success")
    incident.wait_for_page("all reported")
    page = agreed(incident.page, incident)
    whole = dict.fromkeys(("recipients", "accepted", "delivered"), RECIPIENTS)
    assert page.figures == dict.fromkeys(FIGURES, 0) | whole
    assert not page.polls
    messages = incident.messages()
    assert (len(messages), set(messages.values())) == (RECIPIENTS, {1})


def look_at_unknown_requests(incident: Incident) -> None:
    """A killed task leaves a request that no report is about. A person resolves it, and clears the task."""
    incident.wait_for_task("failed")
    page = agreed(incident.page, incident)
    accepted = RECIPIENTS - PER_REQUEST
    assert page.state == "failed"
    assert (page.figures["accepted"], page.figures["unknown"], page.figures["open"]) == (
        accepted,
        PER_REQUEST,
        accepted,
    ), page.figures
    assert f"airflow cpaas journal resolve {incident.dag_id} {incident.run_id} send --sent" in page.text
    # What a person looks up at the service.
    messages = incident.messages()
    assert (len(messages), set(messages.values())) == (RECIPIENTS, {1})
    assert f"1 request to {PER_REQUEST} recipients" in incident.resolve_as_sent()
    page = agreed(incident.page, incident)
    assert (page.figures["accepted"], page.figures["unknown"]) == (RECIPIENTS, 0)
    assert "Unresolved requests" not in page.text
    incident.clear()
    incident.wait_for_task("success")
    page = agreed(incident.page, incident)
    assert (page.state, page.figures["open"], page.polls) == ("waiting for reports", RECIPIENTS, True)
    incident.service.control("POST", "clock/advance", {"seconds": NOT_TODAY})
    page = incident.wait_for_page("all reported")
    assert (page.figures["delivered"], page.polls) == (RECIPIENTS, False)
    assert incident.messages() == messages
