"""What an option is where nobody says anything; the client's own are in ``api/test_settings.py``."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest
from airflow.sdk import Connection

from cpaas_provider.cli import get_cli_commands
from cpaas_provider.delivery.callbacks import tokens
from cpaas_provider.delivery.receiver.http import responses
from cpaas_provider.hooks.connection import read_connection
from cpaas_provider.operators.airtime import BuyAirtimeOperator
from cpaas_provider.operators.email import EmailCampaignOperator, SendEmailOperator
from cpaas_provider.operators.otp import RequestOtpOperator
from cpaas_provider.operators.sms import SendSmsOperator, SmsCampaignOperator
from cpaas_provider.sending.partitions import Partition
from cpaas_provider.tasks.campaign.options import build_options

SENDS = {
    SendSmsOperator: {"recipients": "+2348031234567", "content": "Hello"},
    SendEmailOperator: {"recipients": "a@example.com", "subject": "Hello", "content": "Hello"},
    RequestOtpOperator: {"recipient": "+2348031234567"},
    BuyAirtimeOperator: {"recipient": "+2348031234567", "network": "MTN", "amount": 60},
    SmsCampaignOperator: {"source": [], "content": "Hello"},
    EmailCampaignOperator: {"source": [], "subject": "Hello", "content": "Hello"},
}


SERVICE = {"conn_id": "cpaas_default", "conn_type": "cpaas", "host": "https://api.example.com", "password": "sk_test"}
CONNECTION = Connection(**SERVICE)


def test_defaults_of_a_connection() -> None:
    assert read_connection(CONNECTION).recipients_per_request == 500


@pytest.mark.parametrize("kind", SENDS, ids=lambda kind: kind.__name__)
def test_defaults_of_a_send(kind: type) -> None:
    made: Any = kind(task_id="send", **SENDS[kind])
    assert (made.on_unknown, made.stop_grace_period) == ("fail", 4)
    assert made.unknown_timeout == timedelta(minutes=10)
    assert (made.allow_backfill, made.max_lateness) == (False, timedelta(days=1))
    assert made.resend_on_clear is False


@pytest.mark.parametrize("kind", [SmsCampaignOperator, EmailCampaignOperator], ids=lambda kind: kind.__name__)
def test_defaults_of_a_campaign(kind: type) -> None:
    made: Any = kind(task_id="send", **SENDS[kind])
    assert made.max_failure_ratio == 0
    # As many requests may be pending as the connection has in flight.
    terms = build_options(made.build_spec(), read_connection(CONNECTION), Partition.read(made.partition), {})
    assert (terms.window, terms.in_flight) == (8, 8)
    if kind is SmsCampaignOperator:
        assert (made.skip_dnd, made.on_lookup_error, made.lookup_ttl) == (False, "skip", timedelta(days=30))


def test_request_of_a_campaign_has_at_most_2500_recipients() -> None:
    made: Any = SmsCampaignOperator(task_id="send", **SENDS[SmsCampaignOperator])
    connection = Connection(**SERVICE, extra='{"recipients_per_request": 10000}')
    options = build_options(made.build_spec(), read_connection(connection), Partition.read(made.partition), {})
    assert options.recipients_per_request == 2_500


def test_default_retention_of_reports_and_lookups() -> None:
    (ours,) = (one for one in get_cli_commands() if one.name == "cpaas")
    (store,) = (one for one in ours.subcommands if one.name == "db")  # type: ignore[union-attr]
    (prune,) = (one for one in store.subcommands if one.name == "prune")  # type: ignore[union-attr]
    default = {one.flags[0]: one.kwargs.get("default") for one in prune.args}  # type: ignore[union-attr]
    assert default["--days"] == 90
    assert default["--lookup-days"] == 365
    # Beyond that, what was deleted could not be told from what is new.
    assert timedelta(days=90) == tokens.LIFETIME


def test_limits_of_the_receiver() -> None:
    assert (responses.MAX_BODY, responses.BODY_TIMEOUT) == (256 * 1024, 10)
