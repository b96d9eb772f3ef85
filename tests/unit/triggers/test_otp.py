"""OtpStatusTrigger against the service: one event, plain JSON, at the right moment, with as few reads as promised."""

from __future__ import annotations

import asyncio
import datetime as dt
import json
import logging
from typing import Any

import pytest
from airflow.sdk import timezone
from airflow.sdk._shared.module_loading import import_string

from cpaas_provider.api import AsyncCpaasClient
from cpaas_provider.triggers import otp
from cpaas_provider.triggers._polling import poller
from cpaas_provider.triggers._polling.criteria import OtpCriteria
from cpaas_provider.triggers.otp import OtpStatusTrigger
from tests.sandbox import Sandbox, connection_json

RECIPIENT = "2348030001122"


@pytest.fixture(autouse=True)
def connected(sandbox: Sandbox, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AIRFLOW_CONN_CPAAS_DEFAULT", connection_json(sandbox.connection))


@pytest.fixture
def impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    """Short pauses between two reads and after failures."""
    monkeypatch.setattr(poller, "SHORTEST_INTERVAL", 0.02)
    monkeypatch.setattr(poller, "FIRST_BACKOFF", 0.001)


@pytest.fixture
async def client(sandbox: Sandbox) -> Any:
    async with AsyncCpaasClient(sandbox.url, sandbox.api_key) as one:
        yield one


@pytest.fixture
async def otp_id(client: AsyncCpaasClient) -> str:
    return (await client.request_otp(f"+{RECIPIENT}", expires_in=10)).id


def in_(seconds: float) -> str:
    return (timezone.utcnow() + dt.timedelta(seconds=seconds)).isoformat()


def trigger(otp_id: str, **given: Any) -> OtpStatusTrigger:
    return OtpStatusTrigger(**{"cpaas_conn_id": "cpaas_default", "otp_id": otp_id, "deadline": in_(30),
                               "poke_interval": 1, **given})  # fmt: skip


async def event(one: OtpStatusTrigger) -> dict[str, Any]:
    async with asyncio.timeout(20):
        events = [event.payload async for event in one.run()]
    assert len(events) == 1
    assert json.loads(json.dumps(events[0])) == events[0]
    return dict(events[0])


def reads(sandbox: Sandbox) -> int:
    return int(sandbox.counters()["requests"].get("get_otp", 0))


async def until_read(sandbox: Sandbox, times: int = 1) -> None:
    async with asyncio.timeout(10):
        while reads(sandbox) < times:  # noqa: ASYNC110 - the service is another process
            await asyncio.sleep(0.02)


class TestEvents:
    async def test_passcode_verified_during_the_wait_ends_it(
        self, sandbox: Sandbox, client: AsyncCpaasClient, otp_id: str
    ) -> None:
        waiting = asyncio.create_task(event(trigger(otp_id)))
        await until_read(sandbox)
        await client.verify_otp(otp_id, sandbox.inbox("otp")["items"][0]["code"])
        assert await waiting == {"outcome": "verified", "id": otp_id, "status": 2, "status_desc": "VERIFIED"}

    async def test_passcode_revoked_during_the_wait_ends_it(
        self, sandbox: Sandbox, client: AsyncCpaasClient, otp_id: str
    ) -> None:
        waiting = asyncio.create_task(event(trigger(otp_id)))
        await until_read(sandbox)
        await client.revoke_otp(otp_id)
        assert (await waiting)["outcome"] == "revoked"

    async def test_passcode_expired_by_the_service_during_the_wait_ends_it(self, sandbox: Sandbox, otp_id: str) -> None:
        waiting = asyncio.create_task(event(trigger(otp_id)))
        await until_read(sandbox)
        sandbox.control("POST", "clock/advance", {"seconds": 601})
        assert await waiting == {"outcome": "expired", "id": otp_id, "status": 3, "status_desc": "EXPIRED"}

    async def test_passcode_expires_by_the_clock_while_the_service_reports_sent(
        self, sandbox: Sandbox, client: AsyncCpaasClient
    ) -> None:
        sandbox.control("PUT", "settings", {"otp_status_mode": "sent"})
        sandbox.control("POST", "clock/advance", {"seconds": -601})
        otp_id = (await client.request_otp(f"+{RECIPIENT}")).id
        ended = await event(trigger(otp_id, expires_in=10))
        assert ended == {"outcome": "expired", "by": "clock", "id": otp_id, "status": 1, "status_desc": "SENT"}

    async def test_pending_passcode_times_out_at_the_deadline(self, otp_id: str) -> None:
        assert await event(trigger(otp_id, deadline=in_(0.3))) == {"outcome": "timed_out", "id": otp_id}

    async def test_missing_passcode_ends_the_wait_without_api_key_or_number(self, sandbox: Sandbox) -> None:
        ended = await event(trigger("no_such_passcode"))
        assert (ended["outcome"], ended["id"]) == ("not_found", "no_such_passcode")
        assert "get_otp" in ended["message"]
        assert sandbox.api_key not in ended["message"]

    async def test_event_has_neither_code_nor_number(
        self, sandbox: Sandbox, client: AsyncCpaasClient, otp_id: str
    ) -> None:
        code = sandbox.inbox("otp")["items"][0]["code"]
        await client.verify_otp(otp_id, code)
        ended = json.dumps({**await event(trigger(otp_id)), "id": ""})
        assert code not in ended
        assert RECIPIENT not in ended


class TestFailures:
    @pytest.mark.usefixtures("impatient")
    @pytest.mark.parametrize("kind", ["error_500", "cut_before", "bad_gateway", "broken_json", "rate_limit"])
    async def test_temporary_failures_do_not_end_the_wait(
        self, sandbox: Sandbox, client: AsyncCpaasClient, otp_id: str, kind: str
    ) -> None:
        params = {"retry_after": 0} if kind == "rate_limit" else {}
        sandbox.control("POST", "faults", {"operation": "get_otp", "kind": kind, "times": 5, **params})
        await client.revoke_otp(otp_id)
        assert (await event(trigger(otp_id, poke_interval=0)))["outcome"] == "revoked"
        assert reads(sandbox) == 6

    async def test_failures_do_not_delay_the_deadline(self, sandbox: Sandbox, otp_id: str) -> None:
        sandbox.control("POST", "faults", {"operation": "get_otp", "kind": "error_500"})
        assert (await event(trigger(otp_id, deadline=in_(0.3))))["outcome"] == "timed_out"

    async def test_retry_after_does_not_delay_the_deadline(self, sandbox: Sandbox, otp_id: str) -> None:
        fault = {"operation": "get_otp", "kind": "rate_limit", "retry_after": 3600}
        sandbox.control("POST", "faults", fault)
        async with asyncio.timeout(5):
            assert (await event(trigger(otp_id, deadline=in_(0.5))))["outcome"] == "timed_out"

    async def test_service_that_does_not_respond_does_not_delay_the_deadline(
        self, sandbox: Sandbox, otp_id: str, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(otp, "LAST_READ_SECONDS", 0.2)
        sandbox.control("POST", "faults", {"operation": "get_otp", "kind": "latency", "ms": 20_000})
        async with asyncio.timeout(5):
            assert (await event(trigger(otp_id, deadline=in_(0.5))))["outcome"] == "timed_out"


class TestWaiting:
    @pytest.mark.parametrize("poke_interval", [0, -5])
    async def test_two_reads_are_at_least_a_second_apart(
        self, sandbox: Sandbox, otp_id: str, poke_interval: float
    ) -> None:
        await event(trigger(otp_id, poke_interval=poke_interval, deadline=in_(1.2)))
        # At once, after a second, and for the last time at the deadline.
        assert reads(sandbox) <= 3

    async def test_pending_passcode_is_logged_with_the_end_of_its_wait(
        self, otp_id: str, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
    ) -> None:
        caplog.set_level(logging.INFO)
        monkeypatch.setattr(poller, "MAX_SLEEP_SECONDS", 0.05)
        await event(trigger(otp_id, deadline=in_(1.0)))
        (line,) = [line for line in caplog.messages if line.startswith("The wait continues.")]
        assert f"Passcode {otp_id} is pending (status SENT). The wait ends at " in line
        assert line.endswith(" UTC, when its timeout is over.")

    async def test_passcode_is_read_a_last_time_at_the_deadline(
        self, sandbox: Sandbox, client: AsyncCpaasClient, otp_id: str
    ) -> None:
        waiting = asyncio.create_task(event(trigger(otp_id, poke_interval=3600, deadline=in_(1))))
        await until_read(sandbox)
        await client.revoke_otp(otp_id)
        assert (await waiting)["outcome"] == "revoked"

    async def test_deserialized_trigger_has_the_same_deadline(self, otp_id: str) -> None:
        begun = trigger(otp_id, deadline=in_(0.3), expires_in=10, success_statuses=["OK"], failure_statuses=["NO"],
                        expires_by=in_(600))  # fmt: skip
        path, kwargs = begun.serialize()
        again = import_string(path)(**json.loads(json.dumps(kwargs)))
        assert again.serialize() == begun.serialize()
        await asyncio.sleep(0.3)
        async with asyncio.timeout(2):
            assert (await event(again))["outcome"] == "timed_out"


class TestOtpCriteria:
    @pytest.mark.parametrize(
        ("description", "outcome"),
        [
            ("SENT", None),
            ("delivered to handset", None),
            ("verified", "verified"),
            (" Verified ", "verified"),
            ("EXPIRED", "expired"),
            ("REVOKED", "revoked"),
            ("deleted", "revoked"),
            ("FAILED", "failed"),
        ],
    )
    def test_status_desc_decides_without_regard_to_case(self, description: str, outcome: str | None) -> None:
        from cpaas_provider.api.models.otp import OtpToken

        record = OtpToken(
            id="1", recipient=RECIPIENT, status=1, status_desc=description, created_datetime="2026-01-31T10:00:00Z"
        )
        result = OtpCriteria().evaluate(record, timezone.utcnow())
        assert (result and result["outcome"]) == outcome

    @pytest.mark.parametrize("created", ["2026-01-31T05:00:00", "2026-01-31T15:00:00"])
    def test_time_without_a_zone_does_not_change_the_wait(self, created: str) -> None:
        began = dt.datetime(2026, 1, 31, 10, 1, tzinfo=dt.UTC)
        assert self.outcome_at(created, began, began) is None
        assert self.outcome_at(created, began, began + dt.timedelta(minutes=9, seconds=59)) is None
        assert self.outcome_at(created, began, began + dt.timedelta(minutes=10)) == "expired"

    def test_clock_of_the_service_that_is_ahead_does_not_stretch_the_wait(self) -> None:
        began = dt.datetime(2026, 1, 31, 10, 1, tzinfo=dt.UTC)
        assert self.outcome_at("2026-01-31T13:00:00Z", began, began + dt.timedelta(minutes=10)) == "expired"

    def test_time_with_a_zone_decides_when_the_passcode_expires(self) -> None:
        began = dt.datetime(2026, 1, 31, 10, 5, tzinfo=dt.UTC)
        assert self.outcome_at("2026-01-31T11:00:00+01:00", began, began + dt.timedelta(minutes=4)) is None
        assert self.outcome_at("2026-01-31T11:00:00+01:00", began, began + dt.timedelta(minutes=5)) == "expired"

    @staticmethod
    def outcome_at(created: str, began: dt.datetime, now: dt.datetime) -> str | None:
        from cpaas_provider.api.models.otp import OtpToken

        record = OtpToken(id="1", recipient=RECIPIENT, status=1, status_desc="SENT", created_datetime=created)
        result = OtpCriteria(10, expires_by=began + dt.timedelta(minutes=10)).evaluate(record, now)
        return result and result["outcome"]
