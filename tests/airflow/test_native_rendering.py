"""DAGs that render to native Python objects: lists and mappings arrive as such, and digits as numbers."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import AbstractContextManager

import pytest
from airflow.sdk import task

from cpaas_provider.operators.airtime import BuyAirtimeOperator
from cpaas_provider.operators.contacts import (
    CreateContactRowOperator,
    DeleteContactRowOperator,
    GetContactRowOperator,
    UpdateContactRowOperator,
    UpsertContactRowOperator,
)
from cpaas_provider.operators.email import EmailCampaignOperator, SendEmailOperator
from cpaas_provider.operators.lookup import BulkPhoneLookupOperator, PhoneLookupOperator
from cpaas_provider.operators.otp import (
    FindOtpsOperator,
    GetOtpOperator,
    RequestOtpOperator,
    RevokeOtpOperator,
    VerifyOtpOperator,
)
from cpaas_provider.operators.sms import SendSmsOperator, SmsCampaignOperator
from cpaas_provider.sensors import DeliverySensor, OtpStatusSensor
from cpaas_provider.sources import ListSource
from cpaas_provider.sources.base import Table
from tests.airflow.harness.task_runner import TaskRunner, address, digits, open_task_runner
from tests.sandbox import Sandbox

PARAMS = {
    "numbers": [digits("native_0"), digits("native_1")],
    "number": digits("native"),
    "entries": [{"to": address("native"), "substitutions": {"name": "Ada"}}],
    "cells": {"Name": "Ada", "Points": 7},
    "code": "0741",
    "digits": "4711",
    "email_rows": [{"email": address("native_rows"), "name": "1e5"}],
    "science": "1e5",
    "plus": f"+{digits('native_plus')}",
    "rows": [{"phone": digits("native_row"), "code": "1e5", "note": "[sic]"}],
}
TEXTS = {
    "digits": ("{{ params.digits }}", "4711"),
    "number": ("{{ 4000 + 711 }}", "4711"),
    "exponent": ("{{ params.science }}", "1e5"),
    "noughts": ("00{{ 7 }}", "007"),
    "bracketed": ("[1, {{ 2 }}]", "[1, 2]"),
    "braced": ("{{ '{' }}'a': 1}", "{'a': 1}"),
    "quoted": ("'{{ params.code }}'", "'0741'"),
    "word": ("{{ 'True' }}", "True"),
    "sum": ("{{ 1 }}+{{ 2 }}j", "1+2j"),
}
"""Template and text."""

OBJECTS = {"list": "{{ params.numbers }}", "mapping": "{{ params.cells }}"}
LISTS = {
    "object": "{{ params.numbers }}",
    "written": "['{{ params.numbers[0] }}', '{{ params.numbers[1] }}']",
    "as_json": "{{ params.numbers | tojson }}",
    "commas": "{{ params.numbers | join(', ') }}",
    "with_plus": "+{{ params.numbers[0] }}",
    "one_of_xcom": "{{ ti.xcom_pull('numbers') }}",
}


class CodeSource:
    """A source of one row, with a template."""

    template_fields = ("code",)

    def __init__(self, code: str, phone: str) -> None:
        self.code, self.phone = code, phone

    def open(self) -> AbstractContextManager[Table]:
        return ListSource([{"phone": self.phone, "code": self.code}]).open()


@pytest.fixture(scope="module")
def finished_run(
    airflow_db: object, sandbox_process: Sandbox, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[TaskRunner]:
    with open_task_runner(sandbox_process) as task_runner:
        with task_runner.dag("native", params=PARAMS, render_template_as_native_obj=True) as dag:
            SendSmsOperator(task_id="sms", recipients="{{ params.numbers }}", content="Hello")
            for name, (template, _) in TEXTS.items():
                SendSmsOperator(
                    task_id=f"text_{name}",
                    recipients=digits(f"native_text_{name}"),
                    content=template,
                    sender_id="{{ 4711 }}",
                )
                SendEmailOperator(
                    task_id=f"subject_{name}",
                    recipients=address(f"native_subject_{name}"),
                    content=template,
                    subject=template,
                    from_name=template,
                )
                SmsCampaignOperator(
                    task_id=f"campaign_{name}", source=[digits(f"native_campaign_{name}")], content=template
                )
            for name, template in OBJECTS.items():
                SendSmsOperator(task_id=f"object_{name}", recipients=digits(f"native_object_{name}"), content=template)
            for name, template in LISTS.items():
                SendSmsOperator(task_id=f"list_{name}", recipients=template, content=f"list_{name}")
            for kind in (GetContactRowOperator, DeleteContactRowOperator):
                kind(task_id=f"row_{kind.__name__}", row_id="{{ params.science }}")
            UpdateContactRowOperator(
                task_id="row_Update", row_id="{{ params.digits }}", columns={"Name": "{{ params.code }}"}
            )
            for kind in (GetOtpOperator, RevokeOtpOperator):
                kind(task_id=f"otp_{kind.__name__}", otp_id="{{ params.digits }}")
            CreateContactRowOperator(task_id="create", columns={"Name": "{{ params.science }}"})
            FindOtpsOperator(task_id="find", recipient="{{ params.number }}")
            BulkPhoneLookupOperator(
                task_id="bulk",
                source="{{ params.rows }}",
                results_path=f"{tmp_path_factory.mktemp('bulk')}/{{{{ params.digits }}}}.jsonl",
            )
            EmailCampaignOperator(
                task_id="email_campaign",
                source="{{ params.email_rows }}",
                subject="{{ params.digits }}",
                content="Dear {name}",
                idempotency_key="{{ params.digits }}",
                use_suppression_list=False,
            )
            SendSmsOperator(
                task_id="own_text",
                recipients="{{ params.number }}",
                content="{{ 4 }}{{ params.cells.Points }}",
                render_template_as_native_obj=False,
            )
            SendSmsOperator(task_id="undefined", recipients=digits("native_undefined"), content="{{ params.missing }}")
            SmsCampaignOperator(
                task_id="rows",
                source="{{ params.rows }}",
                content="Code {code} {note}",
                external_ref="{{ params.digits }}",
            )
            SmsCampaignOperator(
                task_id="templates_in_rows",
                source=[{"phone": "{{ params.plus }}", "code": "{{ params.science }}"}],
                content="Code {code}",
            )
            SmsCampaignOperator(
                task_id="templates_of_a_source",
                source=CodeSource("{{ params.science }}", digits("native_source")),
                content="Code {code}",
            )
            DeliverySensor(task_id="sensor", send_result="{{ ti.xcom_pull('sms') }}", timeout=1, poke_interval=1)
            OtpStatusSensor(task_id="otp_sensor", otp_id="{{ params.science }}", expires_in="{{ 5 }}", timeout=1)
            for field in ("content", "sender_id", "external_ref"):
                given = {"content": "Hello", field: "{{ none }}"}
                SendSmsOperator(task_id=f"no_{field}", recipients=digits(f"native_no_{field}"), **given)
            RevokeOtpOperator(task_id="no_otp_id", otp_id="{{ none }}", skip_if_missing=True)
            entries = "{{ params.entries }}"
            to = address("native")
            SendEmailOperator(task_id="email", recipients=to, content="Dear {name}", personalisation=entries)
            BuyAirtimeOperator(task_id="airtime", network="MTN", amount="{{ 100 }}", recipient="{{ params.number }}")
            PhoneLookupOperator(task_id="lookup", phone="{{ params.number }}")
            UpsertContactRowOperator(task_id="upsert", columns="{{ params.cells }}", row_id="{{ none }}")
            request = RequestOtpOperator(
                task_id="otp", recipient="{{ params.number }}", token="{{ params.code }}", expires_in="{{ 5 }}"
            )
            otp_id = "{{ ti.xcom_pull('otp')['id'] }}"
            request >> VerifyOtpOperator(task_id="verify", otp_id=otp_id, token="{{ params.code }}")

            @task
            def numbers() -> list[str]:
                return [f"+{digits('native_0')}", f"+{digits('native_1')}"]

            numbers() >> dag.get_task("list_one_of_xcom")
            dag.get_task("sms") >> dag.get_task("sensor")
        yield task_runner.run_dag(dag)


@pytest.mark.parametrize(
    "task_id",
    [
        "sms",
        "email",
        "airtime",
        "lookup",
        "upsert",
        "otp",
        "verify",
        "own_text",
        "create",
        "find",
        "bulk",
        "email_campaign",
    ],
)
def test_template_of_one_object_renders_to_the_object(finished_run: TaskRunner, task_id: str) -> None:
    assert finished_run.outcome(task_id) == ("success", 1)


def test_lists_and_mappings_are_what_they_were(finished_run: TaskRunner) -> None:
    assert finished_run.xcom("sms")["recipients"] == 2
    (message,) = finished_run.inbox_items("email", address("native"))
    assert message["text"] == "Dear Ada"
    assert finished_run.rendered("upsert")["columns"] == {"Name": "***", "Points": "***"}


def test_code_keeps_its_leading_nought(finished_run: TaskRunner) -> None:
    (passcode,) = finished_run.inbox_items("otp", digits("native"))
    assert passcode["code"] == "0741"
    assert finished_run.xcom("verify")["verified"] is True


@pytest.mark.parametrize("name", TEXTS)
def test_text_that_looks_like_python_is_sent_as_it_is_written(finished_run: TaskRunner, name: str) -> None:
    _, written = TEXTS[name]
    (sms,) = finished_run.inbox_items("sms", digits(f"native_text_{name}"))
    assert (sms["text"], sms["sender_id"]) == (written, "4711")
    (email,) = finished_run.inbox_items("email", address(f"native_subject_{name}"))
    assert (email["subject"], email["text"], email["from_name"]) == (written, written, written)
    (campaign,) = finished_run.inbox_items("sms", digits(f"native_campaign_{name}"))
    assert campaign["text"] == written


@pytest.mark.parametrize("name", OBJECTS)
def test_list_or_mapping_for_a_text_is_refused(finished_run: TaskRunner, name: str) -> None:
    assert finished_run.outcome(f"object_{name}") == ("failed", 1)
    assert "content must be text. Nothing was sent." in finished_run.error(f"object_{name}")


@pytest.mark.parametrize("name", LISTS)
def test_list_of_recipients_is_taken_in_every_form(finished_run: TaskRunner, name: str) -> None:
    assert finished_run.outcome(f"list_{name}") == ("success", 1)
    assert [message["text"] for message in finished_run.inbox_items("sms", digits("native_0"))].count(
        f"list_{name}"
    ) == 1


@pytest.mark.parametrize(
    "task_id",
    [
        *(f"row_{name}" for name in ("GetContactRowOperator", "DeleteContactRowOperator", "Update")),
        *(f"otp_{name}" for name in ("GetOtpOperator", "RevokeOtpOperator")),
    ],
)
def test_id_of_digits_is_text(finished_run: TaskRunner, task_id: str) -> None:
    assert finished_run.outcome(task_id) == ("failed", 1)
    assert "404" in finished_run.error(task_id)


def test_cells_and_subject_keep_their_values(finished_run: TaskRunner) -> None:
    cells = [row["columns"].values() for row in finished_run.sandbox.inbox("contacts")["items"]]
    assert any("1e5" in values for values in cells)
    (message,) = finished_run.inbox_items("email", address("native_rows"))
    assert (message["subject"], message["text"]) == ("4711", "Dear 1e5")


def test_undefined_text_names_the_template(finished_run: TaskRunner) -> None:
    assert "The template of content cannot be rendered" in finished_run.error("undefined")
    assert finished_run.inbox_items("sms", digits("native_undefined")) == []


def test_source_and_reference_keep_their_values(finished_run: TaskRunner) -> None:
    (message,) = finished_run.inbox_items("sms", digits("native_row"))
    assert (message["text"], message["external_ref"]) == ("Code 1e5 [sic]", PARAMS["digits"])
    assert [message["text"] for message in finished_run.inbox_items("sms", digits("native_source"))] == ["Code 1e5"]
    assert "Code 1e5" in [message["text"] for message in finished_run.inbox_items("sms", digits("native_plus"))]


def test_sensors_take_ids_as_text_and_results_as_mappings(finished_run: TaskRunner) -> None:
    assert "no callback_url" in finished_run.error("sensor") or "deliver" in finished_run.error("sensor")
    assert "must be" not in finished_run.error("sensor")
    assert "has no resource" in finished_run.error("otp_sensor") or "404" in finished_run.error("otp_sensor")


@pytest.mark.parametrize("field", ["content", "sender_id", "external_ref", "otp_id"])
def test_argument_that_renders_to_nothing_is_refused_and_not_left_out(finished_run: TaskRunner, field: str) -> None:
    assert finished_run.outcome(f"no_{field}") == ("failed", 1)
    assert f"{field} is None after rendering. Nothing was sent" in finished_run.error(f"no_{field}")
    assert finished_run.inbox_items("sms", digits(f"native_no_{field}")) == []


def test_numbers_are_masked_whatever_their_type(finished_run: TaskRunner) -> None:
    for name, field in (("airtime", "recipient"), ("lookup", "phone"), ("otp", "recipient")):
        assert finished_run.rendered(name)[field] == f"{digits('native')[:5]}****{digits('native')[-3:]}"
    assert finished_run.rendered("otp")["token"] == "***"
