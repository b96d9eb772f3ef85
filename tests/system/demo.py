"""``make demo``: run the campaign examples on a real Airflow against the sandbox, and compare their figures.

python -m tests.system.demo run [--keep] [--home FOLDER]
python -m tests.system.demo stop [--home FOLDER]
"""

from __future__ import annotations

import argparse
import csv
import json
import os
import re
import secrets
import shutil
import signal
import sys
import time
from pathlib import Path
from typing import Any

import psutil

from tests.ports import reserved_ports
from tests.processes import Started
from tests.sandbox import Sandbox, SandboxError, connection_json
from tests.system.demo_figures import Line, compare, compare_parts, everything_in
from tests.system.demo_view import View, named
from tests.system.standalone import ENDED, USER, Standalone, StandaloneError, wait_for

REPOSITORY = Path(__file__).parents[2]
EXAMPLES = REPOSITORY / "example_dags"
DAG_ID = "customer_campaign"
MAPPED_DAG_ID = "mapped_campaign"
COLLEAGUE = "2348035550100"  # the test recipient of the campaign
RUN_WITHIN = 600.0

# The outcomes of messages at the sandbox, and the disorder of its reports.
OUTCOMES = {
    "report_undelivered_rate": 0.08,
    "report_bounced_rate": 0.05,
    "report_opened_rate": 0.2,
    "report_clicked_rate": 0.1,
    "report_in_flight": True,
    "report_duplicate_rate": 0.1,
    "report_disorder": 0.3,
    # A busy machine may not accept a report in time. The sandbox retries it soon instead of in an hour.
    "report_timeout_seconds": 20,
    "report_interval_seconds": 5,
}


class Demo:
    """One demo and its folder. What it starts is written down there, so that a later one can end it."""

    def __init__(self, home: Path, view: View) -> None:
        self.home = home.absolute()
        self.view = view
        self.sandbox = Sandbox(log=self.home / "sandbox.log", port=reserved_ports(1)[0])
        self.airflow = Standalone(home=self.home / "airflow", dags=EXAMPLES)
        self.callback_secret = secrets.token_urlsafe(32)
        connection = connection_json(
            self.sandbox.connection,
            sender_id="Example",
            email_sender_id="news@example.com",
            # Where Airflow's own API server has the receiver.
            callback_url=f"{self.airflow.url}/cpaas",
            callback_secret=self.callback_secret,
        )
        self.airflow.settings = {
            "AIRFLOW_CONN_CPAAS_DEFAULT": connection,
            # Reports name recipients, and nothing else that Airflow writes does: kept apart, the rest can be searched.
            "AIRFLOW__CPAAS__DATABASE": f"sqlite:///{self.home / 'cpaas.db'}",
        }

    def run(self, keep: bool) -> bool:
        """Run it all; return whether the campaign succeeded and every figure agrees."""
        began = time.monotonic()
        self._clear_the_ground()
        try:
            agreed = self._campaign(began)
        except BaseException:
            keep = False
            raise
        finally:
            if not keep:
                self.stop()
        if keep:
            self.view.still_up(self.airflow.url, USER, self.airflow.password, self.sandbox.url)
        return agreed

    def stop(self) -> None:
        """End what this demo or an earlier one in the same folder started."""
        for number in (signal.SIGINT, signal.SIGTERM):
            # Bounded, and the whole point: not to be interrupted by a second Ctrl-C.
            signal.signal(number, signal.SIG_IGN)
        self.view.say("Stopping Airflow and the sandbox ...")
        for started in self._written_down():
            started.stop()
        self._note.unlink(missing_ok=True)

    @property
    def _note(self) -> Path:
        return self.home / "running.json"

    def _clear_the_ground(self) -> None:
        """End and remove what an earlier demo left, unless it is still at work."""
        if (runner := self._runner()) is not None:
            raise StandaloneError(
                f"Another demo is running in {self.home} (process {runner}). Wait until it ends, or stop it first."
            )
        for started in self._written_down():
            started.stop()
        shutil.rmtree(self.home, ignore_errors=True)
        self.home.mkdir(mode=0o700, parents=True)
        self._write_down()

    def _write_down(self) -> None:
        started = [one.as_json() for one in (self.sandbox.started, self.airflow.started) if one]
        me = psutil.Process()
        self._note.write_text(json.dumps({"runner": [me.pid, me.create_time()], "started": started}))

    def _written_down(self) -> list[Started]:
        note = json.loads(self._note.read_text()) if self._note.exists() else {"started": []}
        return [Started.from_json(one) for one in note["started"]]

    def _runner(self) -> int | None:
        """Return the process id of a demo that is still at work in this folder."""
        note = json.loads(self._note.read_text()) if self._note.exists() else {}
        pid, born = note.get("runner", (0, 0.0))
        try:
            same = abs(psutil.Process(pid).create_time() - born) < 1.0
        except psutil.Error:
            return None
        return pid if pid and same and pid != os.getpid() else None

    def _campaign(self, began: float) -> bool:
        self.view.say("Starting the sandbox and Airflow ...")
        self.airflow.start()
        self._write_down()
        self.sandbox.start()
        self._write_down()
        self.sandbox.control("PUT", "settings", OUTCOMES)
        refused = self._refuse_somebody()
        self.airflow.wait_until_healthy()
        self.view.say(f"Both are running after {time.monotonic() - began:.0f} s. Running {DAG_ID} ...")
        conf = {"folder": f"file://{self.home}/campaign"}
        run_id = self.airflow.trigger(DAG_ID, conf)
        state = self._watch(DAG_ID, run_id)
        figures = self._figures(DAG_ID, run_id, "summarise")
        lines = []
        if figures:
            lines = compare(figures, self.sandbox, _rows(), refused, _numbered(), self._synced())
        runs = {DAG_ID: (run_id, state)}
        if state == "success":
            runs[MAPPED_DAG_ID], mapped = self._mapped_campaign(conf, refused)
            lines += mapped
        agreed = all(state == "success" for _, state in runs.values()) and all(line.agrees for line in lines)
        self._show(runs, lines, time.monotonic() - began)
        self._keep_result(run_id, state, figures, lines, agreed)
        return agreed

    def _mapped_campaign(
        self, conf: dict[str, Any], refused: dict[str, list[str]]
    ) -> tuple[tuple[str, str], list[Line]]:
        """Run the mapped example after the other one; return its run, how it ended, and its lines of the table."""
        self.view.say(f"Running {MAPPED_DAG_ID} ...")
        before = self.sandbox.counters()
        arrived = sum(1 for _ in everything_in(self.sandbox, "sms"))
        run_id = self.airflow.trigger(MAPPED_DAG_ID, conf)
        state = self._watch(MAPPED_DAG_ID, run_id)
        figures = self._figures(MAPPED_DAG_ID, run_id, "sum_up")
        lines = compare_parts(figures, self.sandbox, before, arrived, refused["sms"]) if figures else []
        return (run_id, state), lines

    def _refuse_somebody(self) -> dict[str, list[str]]:
        """Have the service refuse two numbers and an address of the list, as happens; return them."""
        rows = [row for row in _customers() if re.fullmatch(r"\+234\d{10}", row["phone"] or "")]
        phones = [row["phone"][1:] for row in rows]
        emails = [row["email"] for row in rows if re.fullmatch(r"[a-z0-9.]+@example\.com", row["email"] or "")]
        refused = {"sms": [phones[3], phones[-5]], "email": [emails[7]]}
        seeding = {
            # They must get as far as being written to.
            "lookups": [{"phone": phone, "dnd": False} for phone in [COLLEAGUE, *phones]],
            "refused_recipients": [*refused["sms"], *refused["email"]],
        }
        self.sandbox.control("POST", "seed", seeding)
        return refused

    def _watch(self, dag_id: str, run_id: str) -> str:
        """Show the run's progress until it ends; return how it ended."""
        with self.view.watching() as show:

            def look() -> str | None:
                tasks = self.airflow.api("GET", f"dags/{dag_id}/dagRuns/{run_id}/taskInstances")["task_instances"]
                state = str(self.airflow.api("GET", f"dags/{dag_id}/dagRuns/{run_id}")["state"])
                show(tasks, self.sandbox.counters())
                return state if state in ENDED else None

            return wait_for("the campaign to end", look, RUN_WITHIN, every=0.5)

    def _figures(self, dag_id: str, run_id: str, task_id: str) -> dict[str, Any]:
        path = f"dags/{dag_id}/dagRuns/{run_id}/taskInstances/{task_id}/xcomEntries/summary"
        entry = self.airflow.found(path)
        return entry["value"] if entry else {}

    def _synced(self) -> list[dict[str, Any]]:
        """Return the lines of the contact sync's results file."""
        (file,) = (self.home / "campaign").glob("*/sync_contacts.jsonl")
        return [json.loads(line) for line in file.read_text(encoding="utf-8").splitlines()]

    def _show(self, runs: dict[str, tuple[str, str]], lines: list[Line], seconds: float) -> None:
        if lines:
            self.view.table(lines)
        for dag_id, (run_id, state) in runs.items():
            if state != "success":
                self._show_failures(dag_id, run_id)
        self.view.verdict({dag_id: state for dag_id, (_, state) in runs.items()}, lines, seconds)
        self.view.where_to_look(
            {
                "Results files": self.home / "campaign",
                "Delivery reports": self.home / "cpaas.db",
                "Task logs": self.airflow.home / "logs",
                "Log of Airflow": self.airflow.log,
            }
        )

    def _show_failures(self, dag_id: str, run_id: str) -> None:
        for task in self.airflow.api("GET", f"dags/{dag_id}/dagRuns/{run_id}/taskInstances")["task_instances"]:
            if task["state"] == "failed":
                index = task["map_index"] if task["map_index"] >= 0 else None
                self.view.task_failed(
                    named(task), self.airflow.task_log(dag_id, run_id, task["task_id"], map_index=index)
                )

    def _keep_result(self, run_id: str, state: str, figures: dict[str, Any], lines: list[Line], agreed: bool) -> None:
        """Write down what came of it, and where the two are, for programs."""
        result = {
            "run_id": run_id,
            "state": state,
            "agreed": agreed,
            "figures": figures,
            "lines": [line._asdict() | {"agrees": line.agrees} for line in lines],
            "airflow": {"url": self.airflow.url, "password": self.airflow.password, "fernet": self.airflow.fernet_key},
            "sandbox": {"url": self.sandbox.url, "api_key": self.sandbox.api_key},
            "callback_secret": self.callback_secret,
        }
        file = self.home / "result.json"
        file.touch(mode=0o600)
        file.write_text(json.dumps(result, indent=1))


def _customers() -> list[dict[str, str]]:
    with (EXAMPLES / "data" / "customers.csv").open(encoding="utf-8-sig", newline="") as file:
        return list(csv.DictReader(file))


def _numbered() -> dict[int, dict[str, str]]:
    """Return the customers by the line of the file on which each begins."""
    with (EXAMPLES / "data" / "customers.csv").open(encoding="utf-8-sig", newline="") as file:
        lines = csv.reader(file)
        header = next(lines)
        customers, number = {}, lines.line_num + 1
        for row in lines:
            customers[number] = dict(zip(header, row, strict=False))
            number = lines.line_num + 1
    return customers


def _rows() -> int:
    """Count the rows of the CSV, without the header and lines that are empty."""
    with (EXAMPLES / "data" / "customers.csv").open(encoding="utf-8-sig", newline="") as file:
        rows = [row for row in csv.reader(file) if any(cell.strip() for cell in row)]
    # The record of two lines that has too many cells counts as two invalid rows, and the header as none.
    return len(rows)


def _terminated(*_: object) -> None:
    """Take a SIGTERM as Ctrl-C, so that everything is ended."""
    raise KeyboardInterrupt


def main(arguments: list[str] | None = None) -> int:
    """Run or stop the demo; return the exit status."""
    parser = argparse.ArgumentParser(prog="demo", description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("what", choices=("run", "stop"))
    parser.add_argument("--home", type=Path, default=REPOSITORY / ".demo", help="folder of the demo (default: .demo)")
    parser.add_argument(
        "--keep",
        action="store_true",
        default=os.environ.get("KEEP", "") not in ("", "0"),
        help="leave Airflow and the sandbox running",
    )
    given = parser.parse_args(arguments)
    view = View()
    demo = Demo(given.home, view)
    if given.what == "stop":
        demo.stop()
        return 0
    signal.signal(signal.SIGTERM, _terminated)
    # A script that starts it in the background has it ignore this.
    signal.signal(signal.SIGINT, signal.default_int_handler)
    try:
        return 0 if demo.run(given.keep) else 1
    except KeyboardInterrupt:
        view.say("Interrupted. Airflow and the sandbox are stopped.")
        return 130
    except (StandaloneError, SandboxError) as error:
        view.problem(str(error))
        return 1


if __name__ == "__main__":
    sys.exit(main())
