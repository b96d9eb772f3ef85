"""Nothing private is left behind: every operator succeeds and fails, and then everything Airflow stored is searched.

What is private reaches the tasks through a macro, as from a vault, so that it stands in no DAG, conf or XCom of the
author's own: wherever it is found afterwards, it was put there by us.
"""

from __future__ import annotations

import datetime as dt
import functools
import itertools
import re
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace

import pytest
from airflow.configuration import conf
from airflow.sdk import timezone

from cpaas_provider.operators.airtime import BuyAirtimeOperator
from cpaas_provider.operators.contacts import (
    CreateContactRowOperator,
    DeleteContactRowOperator,
    GetContactRowOperator,
    GetContactTableOperator,
    UpdateContactRowOperator,
    UpsertContactRowOperator,
)
from cpaas_provider.operators.email import SendEmailOperator
from cpaas_provider.operators.lookup import PhoneLookupOperator
from cpaas_provider.operators.otp import (
    FindOtpsOperator,
    GetOtpOperator,
    RequestOtpOperator,
    RevokeOtpOperator,
    VerifyOtpOperator,
)
from cpaas_provider.operators.sms import SendSmsOperator
from cpaas_provider.sensors.otp import OtpStatusSensor
from cpaas_provider.triggers import wait
from tests.airflow.harness.task_runner import ATTEMPTS, TaskRunner, digits, fault, open_task_runner, phone
from tests.sandbox import Sandbox
from tests.system.leaks import Leak, Scan, Secrets

BODY = "Dear customer, your parcel stands behind the green door"
SUBJECT = "About the parcel behind the door"
NAME = "Adaobi Chukwuemeka Nwosu"
ADDRESS = "adaobi.nwosu@private.example.org"
REPLY = "complaints.office@private.example.org"
CALLBACK = "unguessable-path-of-the-callback"
CODE, LONG_CODE = "7413", "90817263"
CELL = "Fourth floor, ring twice, beware of the dog"
LOOKED_UP = phone("looked up")
# What a look-up and a row read return, because that is what they are for.
READ_CELL = "A note that stands in the row that is read"
VAULT = {
    "body": BODY,
    "subject": SUBJECT,
    "name": NAME,
    "address": ADDRESS,
    "reply": REPLY,
    "callback": f"http://127.0.0.1:9/{CALLBACK}",
    "code": CODE,
    "long_code": LONG_CODE,
    "cell": CELL,
    "looked_up": LOOKED_UP,
}
NUMBERS: list[str] = []
TROUBLE = ("cut_after", "broken_json", "error_under_200", "unauthorized", "echo", "echo_rejection")


def secret(name: str) -> str:
    return VAULT[name]


def lost(name: str) -> str:
    """A macro that quotes what it stumbled over."""
    raise LookupError(f"cannot make sense of {VAULT.get(name, name)}")


def number(case: str) -> str:
    NUMBERS.append(digits(case))
    return phone(case)


@pytest.fixture(scope="module")
def finished_run(airflow_db: Path, sandbox_process: Sandbox) -> Iterator[TaskRunner]:
    staging = {"allowed_recipients": "2348099999999"}
    with pytest.MonkeyPatch.context() as patch, open_task_runner(sandbox_process, cpaas_staging=staging) as task_runner:
        patch.setattr(wait, "timezone", SimpleNamespace(utcnow=lambda: timezone.utcnow() + dt.timedelta(seconds=90)))
        row = {"id": "row_read", "columns": {"col_7f3a01": READ_CELL}}
        sandbox_process.control("POST", "seed", {"rows": [row, {**row, "id": "row_changed"}]})
        refused = [digits("refused_by_name"), "refused.by.name@private.example.org"]
        sandbox_process.control("POST", "seed", {"refused_recipients": refused})
        counted = itertools.count()

        def each(kind: type, *trouble: tuple, **given: object) -> None:
            kind(task_id=task_runner.prepare(f"{kind.__name__}_{next(counted)}", *trouble), **given)

        sms = {
            "recipients": "{{ number('sms') }}, {{ number('sms too') }}",
            "content": "{{ secret('body') }} {name}",
            "personalisation": [
                {"to": f"{{{{ number('{one}') }}}}", "substitutions": {"name": "{{ secret('name') }}"}}
                for one in ("sms", "sms too")
            ],
            "callback": "{{ secret('callback') }}",
        }
        email = {
            "recipients": ["{{ secret('address') }}"],
            "content": "{{ secret('body') }}",
            "subject": "{{ secret('subject') }}",
            "reply_to": "{{ secret('reply') }}",
            "personalisation": [{"to": "{{ secret('address') }}", "substitutions": {"name": "{{ secret('name') }}"}}],
            "callback": "{{ secret('callback') }}",
        }
        otp = {"recipient": "{{ number('otp') }}", "token": "{{ secret('code') }}"}
        airtime = {"network": "MTN", "amount": 100, "recipient": "{{ number(ti.task_id) }}"}
        cells = {"columns": {"Name": "{{ secret('cell') }}", "Phone": "{{ number('cell') }}"}}
        lookup = {"phone": "{{ secret('looked_up') }}"}
        requested = "{{ ti.xcom_pull('requested')['id'] }}"

        macros = {"secret": secret, "lost": lost, "number": number}
        with task_runner.dag("privacy", user_defined_macros=macros) as dag:
            for kind, given in (
                (SendSmsOperator, sms),
                (SendEmailOperator, email),
                (RequestOtpOperator, otp),
                (BuyAirtimeOperator, airtime),
                (CreateContactRowOperator, cells),
                (UpdateContactRowOperator, {"row_id": "row_changed", **cells}),
                (UpsertContactRowOperator, cells),
                (PhoneLookupOperator, lookup),
            ):
                operation = re.sub(r"(?<!^)([A-Z])", r"_\1", kind.__name__.removesuffix("Operator")).lower()
                operation = {"phone_lookup": "lookup_phone", "upsert_contact_row": "create_contact_row"}.get(
                    operation, operation
                )
                each(kind, **given)
                for trouble in TROUBLE:
                    each(kind, fault(operation, trouble), **given)
                each(kind, fault(operation, "rate_limit", times=ATTEMPTS, retry_after=0), **given)
                each(kind, fault(operation, "rate_limit", times=1, retry_after=90), **given)
                each(kind, **{**given, "cpaas_conn_id": "cpaas_staging"})
                each(kind, **{**given, "cpaas_conn_id": "cpaas_wrong_key"})
                private = next(field for field in kind.masked_fields if field in given)
                broken = "{{ secret('name').nothing.at.all }} {{ secret('body') }}"
                each(kind, **{**given, private: {"Name": broken} if private == "columns" else broken})
                each(kind, **{**given, private: "{{ lost('body') }}"})
                each(kind, **{**given, private: "{{ secret('body') }}"})

            each(SendSmsOperator, **{**sms, "recipients": number("refused_by_name"), "personalisation": None})
            each(SendEmailOperator, **{**email, "recipients": refused[1], "personalisation": None})
            each(SendSmsOperator, **{**sms, "personalisation": "{{ secret('name') }}"})
            each(SendEmailOperator, **{**email, "subject": "{{ secret('subject') }}\nBcc: x"})
            each(RequestOtpOperator, **{**otp, "token": "{{ secret('long_code') }}", "length": "{{ 9 }}"})
            each(CreateContactRowOperator, columns={"Points": "{{ secret('cell') }}"})
            each(PhoneLookupOperator, phone="{{ number('one') }} or {{ number('other') }}")
            SendSmsOperator.partial(task_id="mapped", content="{{ secret('body') }}").expand(
                recipients=["{{ number('mapped') }}", ["{{ secret('name') }}"]]
            )
            CreateContactRowOperator.partial(task_id="mapped_cells").expand(
                columns=[{"Name": "{{ secret('cell') }}"}, {"Points": "{{ secret('cell') }}"}]
            )

            request = RequestOtpOperator(task_id="requested", recipient="{{ number('requested') }}",
                                         token="{{ secret('long_code') }}")  # fmt: skip
            wrong = VerifyOtpOperator(task_id="wrong", otp_id=requested, token="{{ secret('code') }}")
            told = VerifyOtpOperator(
                task_id=task_runner.prepare("told", fault("verify_otp", "echo_rejection")),
                otp_id=requested,
                token="{{ secret('code') }}",
                fail_if_not_verified=False,
            )
            right = VerifyOtpOperator(
                task_id=task_runner.prepare("right", fault("verify_otp", "echo")),
                otp_id=requested,
                token="{{ secret('long_code') }}",
                trigger_rule="all_done",
            )
            passing = fault("get_otp", "error_500", times=ATTEMPTS)
            # A read does not know the code that the service may tell.
            told_code = functools.partial(fault, kind="echo", text=f"the code is {CODE[0]} {CODE[1:]} or {LONG_CODE}")
            (
                request
                >> [wrong, told]
                >> right
                >> [
                    GetOtpOperator(task_id=task_runner.prepare("get", told_code("get_otp")), otp_id=requested),
                    FindOtpsOperator(
                        task_id=task_runner.prepare("find", told_code("find_otps")),
                        recipient="{{ number('requested') }}",
                    ),
                    OtpStatusSensor(task_id=task_runner.prepare("waited", passing), otp_id=requested, deferrable=True),
                    RevokeOtpOperator(task_id="revoke", otp_id=requested),
                ]
            )
            FindOtpsOperator(task_id="find_badly", recipient="{{ secret('name') }}")
            GetContactTableOperator(task_id="table")
            GetContactRowOperator(task_id="row", row_id="row_read", return_fields=["Name"])
            DeleteContactRowOperator(task_id="delete", row_id="row_nobody_has")
        yield task_runner.run_dag(dag)


@pytest.fixture(scope="module")
def forbidden(finished_run: TaskRunner) -> Secrets:
    """What must be found nowhere."""
    codes = {item["code"] for item in finished_run.sandbox.inbox("otp", limit=1000)["items"]}
    return Secrets(
        keys={finished_run.sandbox.api_key, "sk_test_of_somebody_else"},
        codes=codes | {CODE, LONG_CODE},
        numbers=set(NUMBERS),
        addresses={ADDRESS, REPLY, "refused.by.name@private.example.org"},
        texts={BODY, SUBJECT, NAME, CALLBACK, CELL, *NAME.split(), "parcel", "green door"},
    )


def format_leaks(leaks: list[Leak]) -> str:
    return "\n".join(sorted({f"{leak.kind} in {leak.place}: {leak.context}" for leak in leaks}))


def test_all_cases_ran(finished_run: TaskRunner) -> None:
    """Else there would be nothing to find, and all would be well."""
    counters = finished_run.sandbox.counters()
    assert counters["sms"]["requests"] >= 5
    assert counters["email"]["requests"] >= 5
    assert counters["otp"]["requested"] >= 5
    assert counters["otp"]["verified"] == 1
    assert finished_run.outcome("waited") == ("success", 1)
    assert [finished_run.outcome("mapped", index)[0] for index in (0, 1)] == ["success", "failed"]
    assert len(finished_run.errors) > 50
    deferred = [task for task, _ in finished_run.task_logs if "The task is deferred until" in finished_run.log(task)]
    assert len(deferred) >= 8
    assert [task for task in deferred if finished_run.outcome(task) != ("success", 1)] == []


def test_scan_finds_planted_secrets(forbidden: Secrets) -> None:
    found = Scan(forbidden).text("here", f"{BODY} +{NUMBERS[0]} {ADDRESS} code {CODE} {next(iter(forbidden.keys))}")
    assert {leak.kind for leak in found} == {"text", "number", "address", "code", "key"}


def test_no_log_holds_anything_private(finished_run: TaskRunner, forbidden: Secrets) -> None:
    scan = Scan(forbidden)
    leaks = [leak for line in finished_run.all_logs for leak in scan.text("log", line)]
    assert scan.searched > 100_000
    assert format_leaks(leaks) == ""


def test_no_log_holds_looked_up_numbers_or_read_cells(finished_run: TaskRunner) -> None:
    scan = Scan(Secrets(numbers={digits("looked up")}, texts={READ_CELL}))
    assert format_leaks([leak for line in finished_run.all_logs for leak in scan.text("log", line)]) == ""


def test_no_error_holds_anything_private(finished_run: TaskRunner, forbidden: Secrets) -> None:
    forbidden.numbers.add(digits("looked up"))
    scan = Scan(forbidden)
    errors = [(key, error) for key, several in finished_run.errors.items() for error in several]
    assert format_leaks([leak for key, error in errors for leak in scan.text(key[0], f"{error} {error!r}")]) == ""
    forbidden.numbers.discard(digits("looked up"))


def test_airflow_s_database_holds_nothing_private(
    finished_run: TaskRunner, forbidden: Secrets, airflow_db: Path
) -> None:
    """Rendered fields, XComs, what triggers and resumed tasks were given, notes, events: all of it."""
    scan = Scan(forbidden)
    leaks = list(scan.database(airflow_db, conf.get("core", "fernet_key")))
    assert scan.searched > 100_000
    assert format_leaks([leak for leak in leaks if "dag_code" not in leak.place]) == ""


def test_only_lookups_and_row_reads_return_private_values(finished_run: TaskRunner) -> None:
    scan = Scan(Secrets(numbers={digits("looked up")}, texts={READ_CELL}))
    assert finished_run.xcom("row") == {"row_id": "row_read", "columns": {"Name": READ_CELL}}
    holding = {value for value in finished_run.result.all_xcoms() if list(scan.text("xcom", value))}
    assert all("msisdn" in value or "row_read" in value for value in holding)


def shown(finished_run: TaskRunner, name: str, field: str) -> object:
    """Return a field of the first of an operator's tasks, which is the plain one."""
    tasks = [task for task, _ in finished_run.task_logs if re.fullmatch(rf"{name}_\d+", task)]
    return finished_run.rendered(min(tasks, key=lambda task: int(task.rpartition("_")[2])))[field]


@pytest.mark.parametrize(
    ("name", "field", "summary"),
    [
        ("SendSmsOperator", "recipients", r"2 recipients: 0803\*{4}\d{3}, 0803\*{4}\d{3}"),
        ("SendSmsOperator", "content", r"<62 characters>"),
        ("SendSmsOperator", "personalisation", r"<2 entries>"),
        ("SendSmsOperator", "callback", r"http://127\.0\.0\.1/\*{3}"),
        ("SendEmailOperator", "recipients", r"1 recipient: a\*{4}@private\.example\.org"),
        ("SendEmailOperator", "subject", r"<32 characters>"),
        ("SendEmailOperator", "reply_to", r"c\*{4}@private\.example\.org"),
        ("RequestOtpOperator", "recipient", r"0803\*{4}\d{3}"),
        ("RequestOtpOperator", "token", r"\*{3}"),
        ("BuyAirtimeOperator", "recipient", r"0803\*{4}\d{3}"),
        ("PhoneLookupOperator", "phone", r"0803\*{4}\d{3}"),
        ("CreateContactRowOperator", "columns", r"\{'Name': '\*{3}', 'Phone': '\*{3}'\}"),
        ("UpdateContactRowOperator", "columns", r"\{'Name': '\*{3}', 'Phone': '\*{3}'\}"),
        ("UpsertContactRowOperator", "columns", r"\{'Name': '\*{3}', 'Phone': '\*{3}'\}"),
    ],
)
def test_rendered_tab_identifies_the_send(finished_run: TaskRunner, name: str, field: str, summary: str) -> None:
    assert re.fullmatch(summary, str(shown(finished_run, name, field)))
