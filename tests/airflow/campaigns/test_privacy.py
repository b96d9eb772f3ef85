"""Campaigns leave nothing private behind: every ending runs, and then everything Airflow stored is searched.

People come from a file and texts through a macro, as from a vault, so that they stand in no DAG of the author's own.
"""

from __future__ import annotations

import csv
from collections.abc import Iterator
from pathlib import Path

import pytest
from airflow.configuration import conf

from cpaas_provider.operators.email import EmailCampaignOperator
from cpaas_provider.operators.sms import SmsCampaignOperator
from tests.airflow.harness.task_runner import ATTEMPTS, TaskRunner, fault, open_task_runner
from tests.airflow.test_privacy import TROUBLE
from tests.sandbox import Sandbox
from tests.system.leaks import Leak, Scan, Secrets

BODY = "Dear {name}, your parcel stands behind the green door"
SUBJECT = "About the parcel behind the door of {name}"
NAMES = ["Adaobi Chukwuemeka", "Oluwaseun Babatunde", "Ngozi Okonkwo-Eze"]
NUMBERS = [f"23480355{n:05d}" for n in (12345, 67891, 24680)]
TESTER, BANNED = "2348035599991", "2348035577772"
ADDRESSES = [f"recipient.number{n}@private.example.org" for n in range(3)]
CALLBACK = "unguessable-path-of-the-callback"
VAULT = {"body": BODY, "subject": SUBJECT, "callback": f"http://127.0.0.1:9/{CALLBACK}", "tester": f"+{TESTER}"}


def secret(name: str) -> str:
    return VAULT[name]


def written(folder: Path, name: str, rows: list[dict[str, str]]) -> str:
    path = folder / name
    with path.open("w", newline="") as file:
        writer = csv.DictWriter(file, list(rows[0]))
        writer.writeheader()
        writer.writerows(rows)
    return str(path)


@pytest.fixture(scope="module")
def finished_run(
    airflow_db: Path, sandbox_process: Sandbox, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[TaskRunner]:
    folder = tmp_path_factory.mktemp("people")
    people = [
        {"phone": f"+{number}", "email": address, "name": name}
        for number, address, name in zip(NUMBERS, ADDRESSES, NAMES, strict=True)
    ]
    good = written(folder, "good.csv", people)
    bad = written(
        folder, "bad.csv", [*people, {"phone": f"{NUMBERS[0]}99999", "email": "no address", "name": NAMES[0]}]
    )
    banned = written(folder, "banned.csv", [{"phone": f"+{BANNED}"}, {"phone": "nobody"}])
    with (
        pytest.MonkeyPatch.context() as patch,
        open_task_runner(sandbox_process, cpaas_staging={"allowed_recipients": "2348099999999"}) as task_runner,
    ):
        patch.setenv("AIRFLOW__CPAAS__DATABASE", f"sqlite:///{folder}/store.db")
        sandbox_process.control("POST", "seed", {"refused_recipients": [NUMBERS[1], ADDRESSES[1]]})
        sms = {"source": good, "content": "{{ secret('body') }}", "callback": "{{ secret('callback') }}"}
        mail = {**sms, "subject": "{{ secret('subject') }}", "reply_to": "office@private.example.org"}
        with task_runner.dag("campaign_privacy", user_defined_macros={"secret": secret}) as dag:
            for kind, given, operation in (
                (SmsCampaignOperator, sms, "send_sms"),
                (EmailCampaignOperator, mail, "send_email"),
            ):

                def add_task(name: str, *trouble: tuple, kind=kind, given=given, **changes: object) -> None:
                    task_id = task_runner.prepare(f"{kind.__name__}_{name}", *trouble)
                    kind(task_id=task_id, **{**given, **changes})

                add_task("refused")
                add_task("tolerant", max_failure_ratio=1, results_path=str(folder / f"{operation}.jsonl"))
                add_task("invalid_rows", source=bad)
                for trouble in (*TROUBLE, "error_500_after"):
                    add_task(trouble, fault(operation, trouble))
                add_task("busy", fault(operation, "rate_limit", times=ATTEMPTS, retry_after=0))
                add_task("resent", fault(operation, "cut_after", times=1), on_unknown="resend", max_failure_ratio=1)
                add_task("staging", cpaas_conn_id="cpaas_staging")
                add_task("dry", dry_run=True)
                add_task("no_columns", content="{{ secret('body') }} {surname}")
                add_task("broken", content="{{ secret('body').nothing.at.all }}")
                add_task("once", idempotency_key="spring", max_failure_ratio=1)
                add_task("no_sender", sender_id="Much too long a name")
                add_task("no_file", source=str(folder / "nothing.csv"))
            SmsCampaignOperator(
                task_id="guarded", test_recipients=[{"phone": "{{ secret('tester') }}", "name": "Tess"}], skip_dnd=True,
                suppression_list=banned, max_charge=8, max_failure_ratio=1, progress_interval=0.01, **sms,
            )  # fmt: skip
        yield task_runner.run_dag(dag)


@pytest.fixture(scope="module")
def forbidden(finished_run: TaskRunner) -> Secrets:
    return Secrets(
        keys={finished_run.sandbox.api_key},
        numbers={*NUMBERS, TESTER, BANNED},
        addresses={*ADDRESSES, "office@private.example.org"},
        texts={*NAMES, CALLBACK, "your parcel stands", "green door", "About the parcel"},
    )


def format_leaks(leaks: list[Leak]) -> str:
    return "\n".join(sorted({f"{leak.kind} in {leak.place}: {leak.context}" for leak in leaks}))


def test_all_cases_ran(finished_run: TaskRunner) -> None:
    """Else there would be nothing to find, and all would be well."""
    counters = finished_run.sandbox.counters()
    assert counters["sms"]["requests"] >= 8
    assert counters["email"]["requests"] >= 8
    assert finished_run.outcome("SmsCampaignOperator_tolerant")[0] == "success"
    assert len(finished_run.errors) >= 20


def test_no_log_holds_anything_private(finished_run: TaskRunner, forbidden: Secrets) -> None:
    scan = Scan(forbidden)
    leaks = [leak for line in finished_run.all_logs for leak in scan.text("log", line)]
    assert scan.searched > 20_000
    assert format_leaks(leaks) == ""


def test_no_error_holds_anything_private(finished_run: TaskRunner, forbidden: Secrets) -> None:
    scan = Scan(forbidden)
    errors = [(key, error) for key, several in finished_run.errors.items() for error in several]
    assert format_leaks([leak for key, error in errors for leak in scan.text(key[0], f"{error} {error!r}")]) == ""


def test_airflow_s_database_holds_nothing_private(
    finished_run: TaskRunner, forbidden: Secrets, airflow_db: Path
) -> None:
    """Rendered fields, XComs, the tasks' state, what deferred tasks were given: all of it."""
    scan = Scan(forbidden)
    leaks = list(scan.database(airflow_db, conf.get("core", "fernet_key")))
    assert scan.searched > 50_000
    # A reply address that stands in the DAG file is the author's own word.
    mine = [leak for leak in leaks if "dag_code" not in leak.place and "serialized_dag" not in leak.place]
    assert format_leaks(mine) == ""


def test_rendered_tab_identifies_the_send(finished_run: TaskRunner) -> None:
    shown = finished_run.rendered("SmsCampaignOperator_tolerant")
    assert (shown["content"], shown["callback"]) == (f"<{len(BODY)} characters>", "http://127.0.0.1/***")
    assert shown["source"].endswith("good.csv")
    assert finished_run.rendered("guarded")["test_recipients"] == "<1 entries>"
