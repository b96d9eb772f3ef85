"""The clients as their users meet them, against a real server on this machine."""

from __future__ import annotations

import asyncio
import concurrent.futures
import inspect
import itertools
import socket
import threading
import time
from collections.abc import Awaitable, Callable, Iterable
from typing import Any

import pytest

from cpaas_provider.api import AsyncCpaasClient, CpaasClient, errors, operations
from cpaas_provider.api.rate_limit import RateLimiter
from tests.waiting import MOST_SECONDS, until

from .conftest import KEY
from .loopback import Loopback, Seen, answering, http

pytestmark = pytest.mark.usefixtures("no_rest")

NAMES = [
    *("send_sms", "send_email", "request_otp", "verify_otp", "get_otp", "find_otps", "revoke_otp", "buy_airtime"),
    *("get_contact_table", "get_contact_row", "create_contact_row", "update_contact_row", "delete_contact_row"),
    "lookup_phone",
]

Ask = Callable[..., list[Any]]


def otp(identifier: str) -> dict[str, Any]:
    when = "2024-03-01T10:20:30.5+01:00"
    return {"id": identifier, "recipient": "x", "status": 1, "status_desc": "SENT", "created_datetime": when}


def echo(connection: socket.socket, seen: Seen) -> None:
    """Answer with the passcode that was asked for."""
    connection.sendall(http(200, otp(seen.target.rpartition("/")[2])))


@pytest.fixture(params=["sync", "async"])
def ask(request: pytest.FixtureRequest) -> Ask:
    """Make calls all at once over one client, and return what each gave or raised, in order."""

    def threads(url: str, calls: Iterable[tuple[Any, ...]], **options: Any) -> list[Any]:
        def one(call: tuple[Any, ...]) -> Any:
            try:
                return getattr(client, call[0])(*call[1:])
            except errors.CpaasError as error:
                return error

        with (
            CpaasClient(url, KEY, **options) as client,
            concurrent.futures.ThreadPoolExecutor(64) as pool,
        ):
            return list(pool.map(one, calls))

    def coroutines(url: str, calls: Iterable[tuple[Any, ...]], **options: Any) -> list[Any]:
        async def all_of_them() -> list[Any]:
            async with AsyncCpaasClient(url, KEY, **options) as client:
                asked: list[Awaitable[Any]] = [getattr(client, name)(*given) for name, *given in calls]
                return await asyncio.gather(*asked, return_exceptions=True)

        return asyncio.run(all_of_them())

    return threads if request.param == "sync" else coroutines


# The same 14 operations twice -----------------------------------------------------------------------------------------


def public(kind: type) -> set[str]:
    return {name for name, value in inspect.getmembers(kind, inspect.isfunction) if not name.startswith("_")}


def test_both_clients_have_14_operations_run_close_and_stop() -> None:
    assert public(CpaasClient) == {*NAMES, "run", "close", "stop"}
    assert public(AsyncCpaasClient) == {*NAMES, "run", "aclose", "stop"}


@pytest.mark.parametrize("name", NAMES)
def test_both_clients_have_the_same_signatures_and_documentation(name: str) -> None:
    operation = getattr(operations, name)
    sync, asynchronous = getattr(CpaasClient, name), getattr(AsyncCpaasClient, name)
    assert inspect.signature(sync) == inspect.signature(asynchronous)
    _, *parameters = inspect.signature(sync).parameters.values()
    assert parameters == list(inspect.signature(operation).parameters.values())
    assert sync.__doc__ == asynchronous.__doc__ == operation.__doc__
    assert sync.__name__ == asynchronous.__name__ == name
    assert inspect.iscoroutinefunction(asynchronous)
    assert not inspect.iscoroutinefunction(sync)
    assert all(f":param {parameter.name}:" in sync.__doc__ for parameter in parameters)


def test_client_does_not_show_its_key() -> None:
    for kind in (CpaasClient, AsyncCpaasClient):
        client = kind("https://cpaas.example.com/v1", KEY)
        assert repr(client) == f"<{kind.__name__} https://cpaas.example.com/v1>"
        assert KEY not in str(vars(client))


def test_client_with_invalid_settings_is_refused() -> None:
    for kind in (CpaasClient, AsyncCpaasClient):
        with pytest.raises(errors.CpaasConfigurationError, match="base URL"):
            kind("", KEY)
        with pytest.raises(TypeError):
            kind("https://cpaas.example.com", KEY, user="ada")  # type: ignore[call-arg]


# Calls ----------------------------------------------------------------------------------------------------------------


def test_call_returns_the_resource_or_raises(ask: Ask) -> None:
    def answer(connection: socket.socket, seen: Seen) -> None:
        if seen.target.endswith("/missing"):
            item = {"field": "id", "message": "is unknown"}
            connection.sendall(http(404, {"status": 404, "message": "not found", "errors": [item]}))
        else:
            echo(connection, seen)

    with Loopback(answer) as server:
        found, missing, refused = ask(server.url, [("get_otp", "a"), ("get_otp", "missing"), ("get_otp", "..")])
    assert found.id == "a"
    assert isinstance(missing, errors.CpaasNotFoundError)
    assert isinstance(refused, errors.CpaasInvalidRequestError)
    assert len(server.seen) == 2


def test_call_is_retried_after_429_and_503(ask: Ask) -> None:
    answers = [http(429, Retry_After="0"), http(503, Retry_After="0"), http(200, otp("a"))]
    with Loopback(lambda connection, _: connection.sendall(answers.pop(0))) as server:
        (found,) = ask(server.url, [("get_otp", "a")], requests_per_second=1000)
    assert found.id == "a"
    assert len({(one.method, one.target, one.body) for one in server.seen}) == 1
    assert len(server.seen) == 3


def test_many_callers_get_their_own_responses(ask: Ask) -> None:
    with Loopback(echo) as server:
        given = ask(
            server.url,
            [("get_otp", f"otp-{number}") for number in range(300)],
            requests_per_second=100_000,
            max_concurrency=20,
        )
    assert [one.id for one in given] == [f"otp-{number}" for number in range(300)]
    assert server.connections <= 24


# Limits ---------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("cap", [1, 3, 12])
def test_requests_in_flight_never_exceed_max_concurrency(ask: Ask, cap: int) -> None:
    lock, full, too_many = threading.Lock(), threading.Event(), threading.Event()
    now, peak = 0, 0

    def count(connection: socket.socket, seen: Seen) -> None:
        nonlocal now, peak
        with lock:
            now += 1
            peak = max(peak, now)
            if now == cap:
                full.set()
            elif now > cap:
                too_many.set()
        full.wait(MOST_SECONDS)
        # Long enough for one too many to come, which is not to happen.
        too_many.wait(0.03)
        with lock:
            now -= 1
        echo(connection, seen)

    with Loopback(count) as server:
        calls = [("get_otp", f"otp-{number}") for number in range(cap * 3)]
        given = ask(server.url, calls, requests_per_second=100_000, max_concurrency=cap)
    assert all(not isinstance(one, Exception) for one in given)
    assert peak == cap


def test_requests_start_evenly_spaced(ask: Ask) -> None:
    times: list[float] = []

    def record_time(connection: socket.socket, seen: Seen) -> None:
        times.append(time.monotonic())
        echo(connection, seen)

    with Loopback(record_time) as server:
        begun = time.monotonic()
        ask(server.url, [("get_otp", f"otp-{number}") for number in range(21)], requests_per_second=50)
    # The way may delay a request, but none can arrive before its moment.
    assert [place for place, arrived in enumerate(sorted(times)) if arrived < begun + place / 50 - 0.001] == []
    assert len(times) == 21


def test_stall_is_not_followed_by_a_burst(ask: Ask) -> None:
    stalls, never = iter([0.5] * 4), threading.Event()
    released: list[float] = []
    later: list[float] = []

    def stall(connection: socket.socket, seen: Seen) -> None:
        if seconds := next(stalls, 0):
            never.wait(seconds)
            released.append(time.monotonic())
        else:
            later.append(time.monotonic())
        echo(connection, seen)

    with Loopback(stall) as server:
        calls = [("get_otp", f"otp-{number}") for number in range(20)]
        ask(server.url, calls, requests_per_second=40, max_concurrency=4)
    begun = min(released)
    assert [place for place, arrived in enumerate(sorted(later)) if arrived < begun + place / 40 - 0.001] == []
    assert len(later) == 16


def test_retry_after_of_one_request_delays_all_requests(ask: Ask) -> None:
    first = itertools.count()
    times: list[float] = []

    def answer(connection: socket.socket, seen: Seen) -> None:
        times.append(time.monotonic())
        if next(first) == 0:
            connection.sendall(http(429, Retry_After="1"))
        else:
            echo(connection, seen)

    with Loopback(answer) as server:
        ask(
            server.url,
            [("get_otp", f"otp-{number}") for number in range(3)],
            requests_per_second=1000,
            max_concurrency=1,
        )
    assert times[1] - times[0] >= 0.95


# Closing --------------------------------------------------------------------------------------------------------------


def test_leaving_the_block_closes_the_connections() -> None:
    with Loopback(echo) as server:
        with CpaasClient(server.url, KEY, keepalive_expiry=60) as client:
            client.get_otp("a")
            assert server.open == 1
            assert not client.closed
        assert client.closed
        until(lambda: server.open == 0)


async def test_leaving_the_async_block_closes_the_connections() -> None:
    with Loopback(echo) as server:
        async with AsyncCpaasClient(server.url, KEY, keepalive_expiry=60, max_concurrency=20) as client:
            await asyncio.gather(*(client.get_otp("a") for _ in range(3)))
            assert server.open > 0
        until(lambda: server.open == 0)


async def test_cancelled_call_frees_its_concurrency_slot() -> None:
    def silent_once(connection: socket.socket, seen: Seen) -> None:
        if seen.target.endswith("/silence"):
            server.over.wait(10)
        else:
            echo(connection, seen)

    with Loopback(silent_once) as server:
        async with AsyncCpaasClient(server.url, KEY, max_concurrency=1) as client:
            waiting = asyncio.create_task(client.get_otp("silence"))  # type: ignore[arg-type]
            await asyncio.to_thread(until, lambda: server.seen)
            waiting.cancel()
            with pytest.raises(asyncio.CancelledError):
                await waiting
            assert (await client.get_otp("a")).id == "a"


def test_client_works_after_a_closed_connection() -> None:
    broken = iter([True])

    def answer(connection: socket.socket, seen: Seen) -> None:
        if next(broken, False):
            connection.shutdown(socket.SHUT_RDWR)
        else:
            connection.sendall(http(200, {"id": "sms-1"}))

    with Loopback(answer) as server, CpaasClient(server.url, KEY) as client:
        with pytest.raises(errors.CpaasUnknownOutcomeError) as caught:
            client.send_sms("2348031234567", "Clinic", "Hello")
        assert caught.value.maybe_sent
        assert client.send_sms("2348031234567", "Clinic", "Hello").id == "sms-1"
    assert len(server.seen) == 2


# Stopping -------------------------------------------------------------------------------------------------------------


class Aside:
    """A call of a client made in a thread: what it gave or raised."""

    def __init__(self, client: CpaasClient, *call: Any) -> None:
        self._pool = concurrent.futures.ThreadPoolExecutor(1)
        self._future = self._pool.submit(getattr(client, call[0]), *call[1:])

    def outcome(self) -> Any:
        """Return it as soon as it is there, long before any wait of the call itself would be over."""
        try:
            return self._future.result(timeout=10)
        except errors.CpaasError as error:
            return error
        finally:
            self._pool.shutdown(wait=False)


def test_stop_during_the_wait_for_a_retry_sends_nothing_more() -> None:
    with (
        Loopback(answering(429, Retry_After="30")) as server,
        CpaasClient(server.url, KEY, max_retry_after=60) as client,
    ):
        call = Aside(client, "send_sms", "2348031234567", "Clinic", "Hello")
        until(lambda: server.seen)
        client.stop()
        assert isinstance(call.outcome(), errors.CpaasNotSentError)
    assert len(server.seen) == 1


def test_stop_during_the_wait_for_the_rate_limit_sends_nothing() -> None:
    with Loopback(echo) as server, CpaasClient(server.url, KEY, requests_per_second=0.02) as client:
        assert client.get_otp("a").id == "a"
        call = Aside(client, "send_sms", "2348031234567", "Clinic", "Hello")
        client.stop()
        ended = call.outcome()
    assert isinstance(ended, errors.CpaasNotSentError)
    assert not ended.maybe_sent
    assert "Nothing was sent" in str(ended)
    assert len(server.seen) == 1


def test_stop_during_the_wait_for_a_slot_sends_nothing() -> None:
    released = threading.Event()

    def hold(connection: socket.socket, seen: Seen) -> None:
        released.wait(10)
        echo(connection, seen)

    with Loopback(hold) as server, CpaasClient(server.url, KEY, max_concurrency=1) as client:
        first = Aside(client, "get_otp", "a")
        until(lambda: server.seen)
        others = [Aside(client, "get_otp", name) for name in "bcd"]
        client.stop()
        assert all(isinstance(other.outcome(), errors.CpaasNotSentError) for other in others)
        assert len(server.seen) == 1
        released.set()
        assert first.outcome().id == "a"
    assert len(server.seen) == 1


def test_request_in_flight_at_the_stop_gets_its_response() -> None:
    released = threading.Event()

    def hold(connection: socket.socket, seen: Seen) -> None:
        released.wait(10)
        connection.sendall(http(200, {"id": "sms-1"}))

    with Loopback(hold) as server, CpaasClient(server.url, KEY) as client:
        call = Aside(client, "send_sms", "2348031234567", "Clinic", "Hello")
        until(lambda: server.seen)
        client.stop()
        released.set()
        assert call.outcome().id == "sms-1"


def test_stopped_client_sends_nothing_and_may_be_stopped_again() -> None:
    with Loopback(echo) as server, CpaasClient(server.url, KEY) as client:
        client.stop()
        client.stop()
        with pytest.raises(errors.CpaasNotSentError, match="was stopped"):
            client.get_otp("a")
    assert server.connections == 0


async def test_stopped_async_client_ends_waiting_calls_and_finishes_requests_in_flight() -> None:
    released = threading.Event()

    def hold(connection: socket.socket, seen: Seen) -> None:
        released.wait(10)
        echo(connection, seen)

    with Loopback(hold) as server:
        async with AsyncCpaasClient(server.url, KEY, max_concurrency=2, requests_per_second=1000) as client:
            calls = [asyncio.ensure_future(client.get_otp(name)) for name in "abcdef"]
            await asyncio.to_thread(until, lambda: len(server.seen) == 2)
            client.stop()
            ended, going_on = await asyncio.wait(calls, timeout=10, return_when=asyncio.FIRST_COMPLETED)
            while len(ended) < 4:
                await asyncio.sleep(0)
                ended, going_on = {one for one in calls if one.done()}, {one for one in calls if not one.done()}
            assert all(isinstance(one.exception(), errors.CpaasNotSentError) for one in ended)
            assert len(going_on) == 2
            released.set()
            assert sorted([found.id for found in await asyncio.gather(*going_on)]) == ["a", "b"]
            client.stop()
            with pytest.raises(errors.CpaasNotSentError, match="was stopped"):
                await client.get_otp("g")
    assert len(server.seen) == 2


@pytest.mark.parametrize("slow", [{"requests_per_second": 0.02}, {"max_retry_after": 60.0}], ids=["pace", "pause"])
async def test_stop_ends_an_async_call_that_waits_for_rate_limit_or_retry(slow: Any) -> None:
    answers = [http(200, otp("a")), http(429, Retry_After="30")]
    with Loopback(lambda connection, _: connection.sendall(answers.pop(0))) as server:
        async with AsyncCpaasClient(server.url, KEY, **slow) as client:
            assert (await client.get_otp("a")).id == "a"
            call = asyncio.ensure_future(client.get_otp("b"))
            if "max_retry_after" in slow:
                await asyncio.to_thread(until, lambda: len(server.seen) == 2)
            await asyncio.sleep(0)
            client.stop()
            async with asyncio.timeout(10):
                with pytest.raises(errors.CpaasNotSentError):
                    await call


def test_refusals_for_too_many_requests_slow_a_client_down_and_answers_speed_it_up(
    ask: Ask, monkeypatch: pytest.MonkeyPatch
) -> None:
    answers = iter([http(200, otp("a"))] + [http(429, Retry_After="0")] * 3)
    paces: list[float] = []

    class Spy(RateLimiter):
        def on_response(self, left: float, *, limited: bool) -> None:
            super().on_response(left, limited=limited)
            paces.append(self.per_second)

    monkeypatch.setattr("cpaas_provider.api.client.RateLimiter", Spy)
    with Loopback(lambda connection, _: connection.sendall(next(answers, http(200, otp("a"))))) as server:
        ask(server.url, [("get_otp", "a")] * 6, requests_per_second=400, max_concurrency=1)
    assert paces[:5] == [400, 200, 100, 50, 50 + 40 / 50]
    assert paces[5:] == sorted(paces[5:])


def test_unused_clients_need_no_server() -> None:
    with Loopback(answering()) as server:
        CpaasClient(server.url, KEY).close()
        asyncio.run(AsyncCpaasClient(server.url, KEY).aclose())
    assert server.connections == 0
