"""DAGs that render to native Python objects: lists and mappings arrive as such, and digits as numbers."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from cpaas_provider.operators.airtime import BuyAirtimeOperator
from cpaas_provider.operators.contacts import UpsertContactRowOperator
from cpaas_provider.operators.email import SendEmailOperator
from cpaas_provider.operators.lookup import PhoneLookupOperator
from cpaas_provider.operators.otp import RequestOtpOperator, RevokeOtpOperator, VerifyOtpOperator
from cpaas_provider.operators.sms import SendSmsOperator
from tests.airflow.harness.stage import Stage, address, digits, on_stage
from tests.sandbox import Sandbox

PARAMS = {
    "numbers": [digits("native_0"), digits("native_1")],
    "number": digits("native"),
    "entries": [{"to": address("native"), "substitutions": {"name": "Ada"}}],
    "cells": {"Name": "Ada", "Points": 7},
    "code": "0741",
}


@pytest.fixture(scope="module")
def played(airflow_db: object, sandbox_process: Sandbox) -> Iterator[Stage]:
    with on_stage(sandbox_process) as stage:
        with stage.dag("native", params=PARAMS, render_template_as_native_obj=True) as dag:
            SendSmsOperator(task_id="sms", recipients="{{ params.numbers }}", content="Hello")
            SendSmsOperator(task_id="digits_as_text", recipients="{{ params.number }}", content="{{ 4711 }}")
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
        yield stage.play(dag)


@pytest.mark.parametrize("task", ["sms", "email", "airtime", "lookup", "upsert", "otp", "verify"])
def test_what_renders_to_an_object_is_taken(played: Stage, task: str) -> None:
    assert played.outcome(task) == ("success", 1)


def test_lists_and_mappings_are_what_they_were(played: Stage) -> None:
    assert played.xcom("sms")["recipients"] == 2
    (message,) = played.arrived("email", address("native"))
    assert message["text"] == "Dear Ada"
    assert played.rendered("upsert")["columns"] == {"Name": "***", "Points": "***"}


def test_a_code_keeps_its_leading_nought(played: Stage) -> None:
    (passcode,) = played.arrived("otp", digits("native"))
    assert passcode["code"] == "0741"
    assert played.xcom("verify")["verified"] is True


def test_a_text_of_digits_is_told_and_not_sent(played: Stage) -> None:
    assert played.outcome("digits_as_text") == ("failed", 1)
    assert "content must be text" in played.error("digits_as_text")


@pytest.mark.parametrize("field", ["content", "sender_id", "external_ref", "otp_id"])
def test_argument_that_renders_to_nothing_is_refused_and_not_left_out(played: Stage, field: str) -> None:
    assert played.outcome(f"no_{field}") == ("failed", 1)
    assert f"{field} is None after rendering. Nothing was sent" in played.error(f"no_{field}")
    assert played.arrived("sms", digits(f"native_no_{field}")) == []


def test_numbers_are_masked_whatever_their_type(played: Stage) -> None:
    for task, field in (("airtime", "recipient"), ("lookup", "phone"), ("otp", "recipient")):
        assert played.rendered(task)[field] == f"{digits('native')[:5]}****{digits('native')[-3:]}"
    assert played.rendered("otp")["token"] == "***"
