"""Many OtpStatusTriggers of one process against the service: the order of reads, and which error ends which wait."""

from __future__ import annotations

import asyncio
import datetime as dt
import logging
import time
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import Any

import pytest
from airflow.sdk import timezone

from cpaas_provider.api import CpaasClient
from cpaas_provider.api.http import connections
from cpaas_provider.hooks.cpaas import CpaasHook
from cpaas_provider.triggers import otp
from cpaas_provider.triggers._polling import backoff, client, poller
from cpaas_provider.triggers._polling.poller import WaitEndedError
from cpaas_provider.triggers.otp import OtpStatusTrigger
from tests.airflow.harness.fixed_response import fixed_response_server
from tests.benchmarks.waiting.bare_otps import NOT_FOUND, VERIFIED, OtpServer
from tests.certificates import Authority
from tests.sandbox import Sandbox, connection_json
from tests.tls_server import TlsServer, relay_to

CONN = "AIRFLOW_CONN_CPAAS_DEFAULT"
Event = dict[str, Any]


def connection(url: str, key: str = "sk_one", **extra: Any) -> str:
    plain = {"conn_type": "cpaas", "host": url, "password": key, "extra": {}}
    return connection_json(plain, **{"requests_per_second": 1000, "max_concurrency": 8, **extra})


@pytest.fixture(autouse=True)
def impatient(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setattr(poller, "SHORTEST_INTERVAL", 0.02)
    monkeypatch.setattr(poller, "FIRST_BACKOFF", 0.01)
    monkeypatch.setattr(poller, "MAX_BACKOFF", 0.05)
    monkeypatch.setattr(poller, "IDLE_SECONDS", 0.05)
    monkeypatch.setattr(client, "REJECTED_RELOAD_SECONDS", 0.05)
    earlier = {*poller._pollers}
    yield
    assert [key for key in poller._pollers if key not in earlier and not key[0].is_closed()] == []


@pytest.fixture
async def server(monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[OtpServer]:
    """The service on the test's own loop; the fixture ends once all pollers have."""
    async with OtpServer() as running:
        monkeypatch.setenv(CONN, connection(running.url))
        yield running
        async with asyncio.timeout(10):
            loop = asyncio.get_running_loop()
            while any(key[0] is loop for key in poller._pollers):  # noqa: ASYNC110 - nothing else tells its end
                await asyncio.sleep(0.01)


def in_(seconds: float) -> str:
    return (timezone.utcnow() + dt.timedelta(seconds=seconds)).isoformat()


async def event(otp_id: str, deadline: float = 20, poke_interval: float = 0, **given: Any) -> Event:
    one = OtpStatusTrigger("cpaas_default", otp_id, in_(deadline), poke_interval, **given)
    (payload,) = [event.payload async for event in one.run()]
    return dict(payload)


async def events(*otp_ids: str, **given: Any) -> list[Event]:
    async with asyncio.timeout(30):
        return await asyncio.gather(*(event(otp_id, **given) for otp_id in otp_ids))


def begun(*otp_ids: str, **given: Any) -> list[asyncio.Task[Event]]:
    return [asyncio.create_task(event(otp_id, **given)) for otp_id in otp_ids]


async def until_reads(server: OtpServer, times: int) -> None:
    async with asyncio.timeout(20):
        while len(server.read) < times:  # noqa: ASYNC110 - the server is what is watched
            await asyncio.sleep(0.005)


def names(count: int) -> list[str]:
    return [f"otp-{number:03}" for number in range(count)]


class TestSharing:
    def test_hundred_waiters_make_one_read_each(self, sandbox: Sandbox, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setenv(CONN, connection_json(sandbox.connection))
        with CpaasClient(sandbox.url, sandbox.api_key, requests_per_second=1000) as client:
            ids = [client.request_otp(f"+23480300{number:05}").id for number in range(100)]
            for otp_id in ids:
                client.revoke_otp(otp_id)
        results = asyncio.run(events(*ids))
        assert [(one["id"], one["outcome"]) for one in results] == [(otp_id, "revoked") for otp_id in ids]
        assert sandbox.counters()["requests"]["get_otp"] == 100

    def test_next_event_loop_of_the_process_reads_too(self, sandbox: Sandbox, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setenv(CONN, connection_json(sandbox.connection))
        with CpaasClient(sandbox.url, sandbox.api_key) as client:
            otp_id = client.request_otp("+2348030000001").id
            client.revoke_otp(otp_id)
        assert [asyncio.run(events(otp_id))[0]["outcome"] for _ in range(3)] == ["revoked"] * 3
        assert sandbox.counters()["requests"]["get_otp"] == 3

    async def test_waiters_share_the_connections_of_one_client(
        self, server: OtpServer, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(connections, "REST", 0.0)
        server.says = dict.fromkeys(names(200), VERIFIED)
        server.latency = 0.001
        assert {one["outcome"] for one in await events(*names(200))} == {"verified"}
        assert sorted(server.read) == names(200)
        assert 1 <= server.notes.most_in_flight <= 8
        assert 1 <= server.notes.connections <= 8

    async def test_connection_is_read_off_the_loop_and_once_for_all_waiters(
        self, server: OtpServer, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        server.says = dict.fromkeys(names(50), VERIFIED)
        turns, seen = 0, []
        read = CpaasHook.get_connection_settings

        def slowly(self: CpaasHook) -> Any:
            before = turns
            time.sleep(0.2)
            seen.append(turns - before)
            return read(self)

        async def others() -> None:
            nonlocal turns
            while True:
                turns += 1
                await asyncio.sleep(0.001)

        monkeypatch.setattr(CpaasHook, "get_connection_settings", slowly)
        other = asyncio.create_task(others())
        await events(*names(50))
        other.cancel()
        assert len(seen) == 1
        assert seen[0] > 10


class TestOrder:
    async def test_passcode_with_the_earliest_deadline_is_read_first(
        self, server: OtpServer, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setenv(CONN, connection(server.url, max_concurrency=1))
        # As far apart as a shuffle puts neighbours.
        tasks = [task for n in range(30) for task in begun(names(30)[n * 7 % 30], deadline=60 + n * 7 % 30)]
        await until_reads(server, 30)
        assert server.read[:30] == names(30)
        for task in tasks:
            task.cancel()

    async def test_every_passcode_is_read_once_a_round_however_many_join(
        self, server: OtpServer, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setenv(CONN, connection(server.url, max_concurrency=1))
        monkeypatch.setattr(poller, "SHORTEST_INTERVAL", 1e-6)
        tasks = begun(*names(20)) + begun("late", deadline=3600)
        await until_reads(server, 10)
        tasks += begun("new", deadline=5)
        await until_reads(server, 21 + 22 * 3)
        assert sorted(server.read[:21]) == ["late", *names(20)]
        for number in range(3):
            this_round = server.read[21 + 22 * number :][:22]
            assert sorted(this_round) == ["late", "new", *names(20)]
            assert (this_round[0], this_round[-1]) == ("new", "late")
        for task in tasks:
            task.cancel()

    async def test_passcode_is_not_read_more_often_than_its_interval(self, server: OtpServer) -> None:
        tasks = begun("often") + begun("seldom", poke_interval=3600)
        await until_reads(server, 20)
        assert server.read.count("seldom") == 1
        for task in tasks:
            task.cancel()

    async def test_expires_in_orders_the_reads_before_the_deadline(
        self, server: OtpServer, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setenv(CONN, connection(server.url, max_concurrency=1))
        tasks = begun("an hour", deadline=3500) + begun("a minute", deadline=3600, expires_in=1)
        await until_reads(server, 2)
        assert server.read[0] == "a%20minute"
        for task in tasks:
            task.cancel()


class TestLimits:
    async def test_rate_limit_of_the_connection_bounds_all_reads(
        self, server: OtpServer, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setenv(CONN, connection(server.url, requests_per_second=50))
        began = time.monotonic()
        tasks = begun(*names(100))
        await until_reads(server, 30)
        assert len(server.read) <= 50 * (time.monotonic() - began) + 1
        for task in tasks:
            task.cancel()

    async def test_deadline_ends_the_wait_in_a_round_that_takes_an_hour(
        self, server: OtpServer, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setenv(CONN, connection(server.url, requests_per_second=0.01))
        monkeypatch.setattr(otp, "LAST_READ_SECONDS", 0.05)
        (first,) = begun("first")
        await until_reads(server, 1)
        results = await events(*names(35), deadline=0.1)
        assert results == [{"outcome": "timed_out", "id": name} for name in names(35)]
        assert server.read == ["first"]
        first.cancel()

    async def test_last_read_before_a_deadline_precedes_all_others(
        self, server: OtpServer, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setenv(CONN, connection(server.url, requests_per_second=20))
        others = begun(*names(100))
        (last,) = begun("last", deadline=0.5, poke_interval=3600)
        await until_reads(server, 1)
        assert server.read == ["last"]
        server.says["last"] = VERIFIED
        assert (await last)["outcome"] == "verified"
        # In a round of five seconds.
        assert len(server.read) < 100
        for task in others:
            task.cancel()

    async def test_length_of_an_overloaded_round_is_logged_once(
        self, server: OtpServer, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
    ) -> None:
        monkeypatch.setenv(CONN, connection(server.url, requests_per_second=5))
        tasks = begun(*names(50), poke_interval=1)
        await until_reads(server, 4)
        for task in tasks:
            task.cancel()
        warnings = [one.getMessage() for one in caplog.records if one.levelno >= logging.WARNING]
        assert len(warnings) == 1
        assert warnings[0].startswith(
            "50 sensors wait for passcodes on connection 'cpaas_default'. At 5 requests per second, "
        )

    async def test_retry_after_pauses_the_reads_of_all_waiters(
        self, sandbox: Sandbox, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setenv(CONN, connection(sandbox.url, sandbox.api_key, max_concurrency=1))
        fault = {"operation": "get_otp", "kind": "rate_limit", "retry_after": 3600, "times": 1}
        sandbox.control("POST", "faults", fault)
        results = await events(*names(20), deadline=1)
        assert {one["outcome"] for one in results} == {"timed_out"}
        assert sandbox.counters()["requests"]["get_otp"] == 1


class TestEnds:
    async def test_error_of_one_passcode_ends_that_wait_only(self, server: OtpServer) -> None:
        server.says["gone"] = NOT_FOUND
        tasks = begun(*names(10))
        (gone,) = await events("gone")
        assert gone["outcome"] == "not_found"
        assert not any(task.done() for task in tasks)
        server.says |= dict.fromkeys(names(10), VERIFIED)
        assert [(await task)["outcome"] for task in tasks] == ["verified"] * 10

    async def test_invalid_success_statuses_end_their_own_wait_only(self, server: OtpServer) -> None:
        tasks = begun("good")
        with pytest.raises(WaitEndedError, match="no attribute"):
            await event("bad", success_statuses=[7])
        server.says["good"] = VERIFIED
        assert (await tasks[0])["outcome"] == "verified"

    async def test_stray_rejection_ends_no_wait(self, server: OtpServer) -> None:
        server.says["stray"] = 401
        tasks = begun("stray", *names(300))
        await until_reads(server, 301)
        server.says = dict.fromkeys(["stray", *names(300)], VERIFIED)
        assert [(await task)["outcome"] for task in tasks] == ["verified"] * 301

    async def test_404_that_names_no_passcode_ends_no_wait(self, server: OtpServer) -> None:
        server.says["stray"] = 404
        tasks = begun("stray", *names(10))
        await until_reads(server, 100)
        server.says = dict.fromkeys(["stray", *names(10)], VERIFIED)
        assert [(await task)["outcome"] for task in tasks] == ["verified"] * 11

    async def test_404_that_names_no_passcode_for_minutes_ends_its_own_wait_so_that_a_retry_waits_again(
        self, server: OtpServer, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(backoff, "MIN_FAILURE_SECONDS", 0.3)
        server.says["stray"] = 404
        tasks = begun(*names(10))
        (stray,) = await events("stray")
        assert (stray["outcome"], stray["retry"]) == ("error", True)
        assert "Check the base URL" in stray["message"]
        assert server.read.count("stray") >= backoff.MIN_FAILURES
        server.says |= dict.fromkeys(names(10), VERIFIED)
        assert [(await task)["outcome"] for task in tasks] == ["verified"] * 10

    async def test_key_that_is_rejected_for_a_moment_ends_no_wait(self, server: OtpServer) -> None:
        tasks = begun(*names(100))
        await until_reads(server, 100)
        server.keys = set()
        await until_reads(server, len(server.read) + 20)
        server.keys, server.says = None, dict.fromkeys(names(100), VERIFIED)
        assert [(await task)["outcome"] for task in tasks] == ["verified"] * 100

    async def test_key_rejected_for_minutes_ends_all_waits_so_that_a_retry_waits_again(
        self, server: OtpServer, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(backoff, "MIN_FAILURE_SECONDS", 0.3)
        server.keys = set()
        results = await events(*names(100))
        assert {(one["outcome"], one["retry"]) for one in results} == {("error", True)}
        assert all("API key" in one["message"] for one in results)
        assert [one["id"] for one in results] == names(100)
        server.keys, server.says = None, dict.fromkeys(names(100), VERIFIED)
        assert {one["outcome"] for one in await events(*names(100))} == {"verified"}

    async def test_passcode_that_is_refused_for_minutes_ends_its_own_wait_only(
        self, server: OtpServer, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(backoff, "MIN_FAILURE_SECONDS", 0.3)
        server.says["refused"] = 401
        tasks = begun(*names(10))
        (refused,) = await events("refused")
        assert (refused["outcome"], refused["retry"]) == ("error", True)
        assert not any(task.done() for task in tasks)
        server.says |= dict.fromkeys(names(10), VERIFIED)
        assert [(await task)["outcome"] for task in tasks] == ["verified"] * 10

    async def test_cancelled_wait_frees_its_slot_for_the_next_read(
        self, server: OtpServer, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setenv(CONN, connection(server.url, max_concurrency=1))
        server.latency = 3600
        stuck = begun("stuck", deadline=60)[0]
        await until_reads(server, 1)
        server.latency, server.says["next"] = 0, VERIFIED
        (waiting,) = begun("next")
        stuck.cancel()
        with pytest.raises(asyncio.CancelledError):
            await stuck
        assert (await waiting)["outcome"] == "verified"
        assert server.read == ["stuck", "next"]

    async def test_failures_are_logged_once_and_not_at_every_read(
        self, server: OtpServer, caplog: pytest.LogCaptureFixture
    ) -> None:
        server.says = dict.fromkeys(names(20), 500)
        tasks = begun(*names(20))
        await until_reads(server, 60)
        server.says = dict.fromkeys(names(20), VERIFIED)
        assert {(await task)["outcome"] for task in tasks} == {"verified"}
        warnings = [one.getMessage() for one in caplog.records if one.levelno >= logging.WARNING]
        assert len([one for one in warnings if "Sensors on connection 'cpaas_default' keep waiting." in one]) == 1
        assert len(warnings) <= 2


class TestConnection:
    async def test_new_key_is_used_once_the_old_one_is_rejected(
        self, server: OtpServer, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        tasks = begun(*names(30))
        await until_reads(server, 30)
        monkeypatch.setenv(CONN, connection(server.url, "sk_two"))
        server.keys = {"sk_two"}
        server.says = dict.fromkeys(names(30), VERIFIED)
        assert [(await task)["outcome"] for task in tasks] == ["verified"] * 30

    async def test_edited_connection_is_used_after_the_reload(
        self, server: OtpServer, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(client, "RELOAD_SECONDS", 0.05)
        async with OtpServer() as elsewhere:
            tasks = begun(*names(5))
            await until_reads(server, 20)
            elsewhere.says = dict.fromkeys(names(5), VERIFIED)
            monkeypatch.setenv(CONN, connection(elsewhere.url))
            assert [(await task)["outcome"] for task in tasks] == ["verified"] * 5
            assert sorted(elsewhere.read) == names(5)

    @pytest.mark.parametrize("status", [400, 404, 405, 410, 422])
    async def test_base_url_edited_to_one_of_another_server_and_back_ends_no_wait(
        self, server: OtpServer, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture, status: int
    ) -> None:
        monkeypatch.setattr(client, "RELOAD_SECONDS", 0.05)
        tasks = begun(*names(20))
        await until_reads(server, 20)
        with fixed_response_server(status, b"<html>Not here</html>") as elsewhere:
            monkeypatch.setenv(CONN, connection(elsewhere))
            async with asyncio.timeout(20):
                while f"HTTP {status}" not in caplog.text:  # noqa: ASYNC110 - the log is what is watched
                    await asyncio.sleep(0.01)
            # As long as in production: the connection is read again because of the responses.
            monkeypatch.setattr(client, "RELOAD_SECONDS", 300)
            server.says = dict.fromkeys(names(20), VERIFIED)
            monkeypatch.setenv(CONN, connection(server.url))
            assert [(await task)["outcome"] for task in tasks] == ["verified"] * 20

    async def test_renewed_client_certificate_is_used_after_the_reload_and_a_broken_one_is_waited_for(
        self, server: OtpServer, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
    ) -> None:
        monkeypatch.setattr(client, "RELOAD_SECONDS", 0.05)
        authority = Authority(tmp_path, "service")
        cert, key = authority.issue("client")
        context = authority.server_context(clients=authority.path)
        with TlsServer(context, tmp_path, relay_to(server.url)) as front:
            options = {"verify": str(authority.path), "client_cert": str(cert), "client_key": str(key)}
            monkeypatch.setenv(CONN, connection(front.url, **options))
            tasks = begun(*names(3))
            await until_reads(server, 6)
            content = key.read_bytes()
            for broken in (b"", authority.issue("other")[1].read_bytes()):
                key.write_bytes(broken)
                await until_reads(server, len(server.read) + 30)
            key.write_bytes(content)
            assert set(front.peers) == {"client"}
            renewed_cert, renewed_key = authority.issue("renewed")
            renewed_key.replace(key)
            renewed_cert.replace(cert)
            async with asyncio.timeout(20):
                while "renewed" not in front.peers:  # noqa: ASYNC110 - the server is what is watched
                    await asyncio.sleep(0.01)
            server.says = dict.fromkeys(names(3), VERIFIED)
            assert [(await task)["outcome"] for task in tasks] == ["verified"] * 3

    async def test_connection_that_stays_invalid_ends_the_waits_with_the_reason(
        self, server: OtpServer, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(backoff, "MIN_FAILURE_SECONDS", 0.05)
        monkeypatch.setenv(CONN, connection(server.url, timeout="soon"))
        results = await events(*names(20))
        assert {(one["outcome"], one["message"], one["retry"]) for one in results} == {
            ("error", "Connection 'cpaas_default': the extra timeout must be a number; it is 'soon'.", True)
        }
        assert server.read == []

    async def test_connection_edited_to_invalid_settings_keeps_its_earlier_ones(
        self, server: OtpServer, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
    ) -> None:
        monkeypatch.setattr(client, "RELOAD_SECONDS", 0.02)
        monkeypatch.setattr(backoff, "MIN_FAILURE_SECONDS", 0)
        tasks = begun(*names(20))
        await until_reads(server, 20)
        monkeypatch.setenv(CONN, connection(server.url, timeout="soon"))
        await until_reads(server, len(server.read) + 100)
        server.says = dict.fromkeys(names(20), VERIFIED)
        assert [(await task)["outcome"] for task in tasks] == ["verified"] * 20
        (warning,) = [one.getMessage() for one in caplog.records if "could not be read" in one.getMessage()]
        assert "the extra timeout must be a number" in warning

    async def test_connection_missing_for_a_while_does_not_end_the_waits(
        self, server: OtpServer, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        there = connection(server.url)
        server.says = dict.fromkeys(names(5), VERIFIED)
        monkeypatch.delenv(CONN)
        missed: list[str] = []
        read = CpaasHook.get_connection_settings

        def counted(self: CpaasHook) -> Any:
            missed.append("")
            if len(missed) == 3:
                monkeypatch.setenv(CONN, there)
            return read(self)

        monkeypatch.setattr(CpaasHook, "get_connection_settings", counted)
        assert {one["outcome"] for one in await events(*names(5))} == {"verified"}
        assert len(missed) == 3

    async def test_connection_that_stays_missing_ends_the_waits(
        self, server: OtpServer, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.delenv(CONN)
        monkeypatch.setattr(backoff, "MIN_FAILURE_SECONDS", 0.05)
        results = await events(*names(20))
        assert {(one["outcome"], one["retry"]) for one in results} == {("error", True)}
        assert all("Connection 'cpaas_default' could not be read" in one["message"] for one in results)

    async def test_unreadable_connection_is_used_with_its_earlier_settings(
        self, server: OtpServer, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(client, "RELOAD_SECONDS", 0.02)
        tasks = begun(*names(5))
        await until_reads(server, 10)
        monkeypatch.delenv(CONN)
        await until_reads(server, 100)
        server.says = dict.fromkeys(names(5), VERIFIED)
        assert [(await task)["outcome"] for task in tasks] == ["verified"] * 5

    async def test_unreadable_connection_keeps_its_working_client_and_is_logged_once(
        self, server: OtpServer, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
    ) -> None:
        monkeypatch.setattr(client, "RELOAD_SECONDS", 0)
        monkeypatch.setattr(backoff, "MIN_FAILURE_SECONDS", 0)
        missed = self.misses(monkeypatch)
        tasks = begun(*names(5))
        await until_reads(server, 5)
        monkeypatch.delenv(CONN)
        async with asyncio.timeout(10):
            while len(missed) < 3:  # noqa: ASYNC110 - nothing else tells
                await asyncio.sleep(0.005)
        server.says = dict.fromkeys(names(5), VERIFIED)
        assert [(await task)["outcome"] for task in tasks] == ["verified"] * 5
        warnings = [one.getMessage() for one in caplog.records if "could not be read" in one.getMessage()]
        assert len(warnings) == 1
        assert warnings[0].startswith("Connection 'cpaas_default' could not be read (AirflowNotFoundException).")

    async def test_unreadable_connection_ends_the_waits_once_its_key_is_refused(
        self, server: OtpServer, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(client, "RELOAD_SECONDS", 0)
        monkeypatch.setattr(backoff, "MIN_FAILURE_SECONDS", 0)
        missed = self.misses(monkeypatch)
        tasks = begun(*names(5))
        await until_reads(server, 5)
        monkeypatch.delenv(CONN)
        async with asyncio.timeout(10):
            while not missed:  # noqa: ASYNC110 - nothing else tells
                await asyncio.sleep(0.005)
        assert not any(task.done() for task in tasks)
        server.keys = set()
        results = await asyncio.gather(*tasks)
        assert {(one["outcome"], one["retry"]) for one in results} == {("error", True)}
        assert all("API key" in one["message"] for one in results)

    @staticmethod
    def misses(monkeypatch: pytest.MonkeyPatch) -> list[Exception]:
        """Collect the errors of reading the connection."""
        missed: list[Exception] = []
        read = CpaasHook.get_connection_settings

        def watched(self: CpaasHook) -> Any:
            try:
                return read(self)
            except Exception as error:
                missed.append(error)
                raise

        monkeypatch.setattr(CpaasHook, "get_connection_settings", watched)
        return missed
