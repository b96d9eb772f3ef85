"""The sync and the async client, each with one method for each operation."""

from __future__ import annotations

import asyncio
import contextlib
import inspect
import threading
from collections.abc import Awaitable, Callable
from http import HTTPStatus
from typing import Any, Concatenate, ParamSpec, Self, TypeVar, Unpack

from cpaas_provider.api import operations
from cpaas_provider.api.core import Call, Reply, RunnableCall, Step, run_call
from cpaas_provider.api.endpoints import Endpoint, RetrySafety
from cpaas_provider.api.errors import CpaasNotSentError
from cpaas_provider.api.http.transport import AsyncTransport, SyncTransport
from cpaas_provider.api.http.wire import Delay, HttpResponse, OutgoingRequest, TransportFailure
from cpaas_provider.api.rate_limit import PAUSE, Pace, RateLimiter, RequestGuard
from cpaas_provider.api.settings import ClientOptions, ClientSettings

P = ParamSpec("P")
T = TypeVar("T")

_SHORTEST_TIMER = 0.001
"""In seconds. Timers are no more precise than this, so a shorter wait is skipped."""

_STOPPED = "The client was stopped before the request left. Nothing was sent."


def _sync(operation: Callable[P, Call[T]]) -> Callable[Concatenate[CpaasClient, P], T]:
    def method(self: CpaasClient, /, *args: P.args, **kwargs: P.kwargs) -> T:
        return self.run(operation(*args, **kwargs))

    _copy_signature(method, operation)
    return method


def _async(operation: Callable[P, Call[T]]) -> Callable[Concatenate[AsyncCpaasClient, P], Awaitable[T]]:
    async def method(self: AsyncCpaasClient, /, *args: P.args, **kwargs: P.kwargs) -> T:
        return await self.run(operation(*args, **kwargs))

    _copy_signature(method, operation)
    return method


def _copy_signature(method: Any, operation: Callable[..., Any]) -> None:
    """Copy the name, documentation and signature of an operation to a method, for help() and editors."""
    method.__name__ = operation.__name__
    method.__doc__ = operation.__doc__
    signature = inspect.signature(operation)
    self_parameter = inspect.Parameter("self", inspect.Parameter.POSITIONAL_ONLY)
    result_type = str(signature.return_annotation).removeprefix("Call[").removesuffix("]")
    method.__signature__ = signature.replace(
        parameters=[self_parameter, *signature.parameters.values()], return_annotation=result_type
    )


def _first(step: Step) -> OutgoingRequest:
    """Return the first step of a call, which is its request."""
    if not isinstance(step, OutgoingRequest):
        raise TypeError("a call begins with its request")
    return step


class _Client:
    """The common part of both clients.

    :param base_url: the service's address
    :param api_key: the account's key
    :param rate_limiter: decides when requests may leave; the client closes it. Default: a rate limiter of its own, at
        ``requests_per_second``
    :param options: see ``ClientSettings``, which also documents the bounds
    """

    def __init__(
        self, base_url: str, api_key: str, *, rate_limiter: Pace | None = None, **options: Unpack[ClientOptions]
    ) -> None:
        self._set_up(ClientSettings(base_url, api_key, **options), rate_limiter)

    @classmethod
    def of_settings(
        cls, settings: ClientSettings, rate_limiter: Pace | None = None, guard: RequestGuard | None = None
    ) -> Self:
        """Return a client with settings that were checked before.

        :param guard: may refuse requests that change something or cost money; the client closes it
        """
        client = cls.__new__(cls)
        client._set_up(settings, rate_limiter)
        client.guard = guard
        return client

    def _set_up(self, settings: ClientSettings, rate_limiter: Pace | None) -> None:
        self.settings = settings
        self.rate_limiter: Pace = rate_limiter or RateLimiter(settings.requests_per_second)
        """Decides when requests may leave."""
        self.guard: RequestGuard | None = None
        """May refuse requests."""

    def _on_response(self, left: float, reply: HttpResponse | TransportFailure) -> HttpResponse | TransportFailure:
        """Adapt the rate limit to the reply.

        :param left: when the request left, by the rate limiter's clock
        """
        if isinstance(reply, HttpResponse):
            self.rate_limiter.on_response(left, limited=reply.status == HTTPStatus.TOO_MANY_REQUESTS)
        return reply

    def __repr__(self) -> str:
        return f"<{type(self).__name__} {self.settings.base_url}>"


class CpaasClient(_Client):
    """A client for synchronous code. Safe to share between threads. Close it, or use it in a ``with`` block."""

    def _set_up(self, settings: ClientSettings, rate_limiter: Pace | None) -> None:
        super()._set_up(settings, rate_limiter)
        self._transport = SyncTransport(settings)
        self._slots = threading.Semaphore(self.settings.max_concurrency)
        self._stopped = threading.Event()
        self.closed = False

    def run(self, call: RunnableCall[T]) -> T:
        """Run a call that a function of ``api.operations`` returned, as the client's methods do.

        :raises CpaasError: when the call did not succeed
        """
        steps = run_call(call, self.settings, self.rate_limiter)
        step = request = next(steps)
        guard = self.guard if self.guard is not None and self.guard.counts(call.endpoint) else None
        reserved = None if guard is None else self._reserve(guard, call.endpoint, request)
        try:
            while True:
                step = steps.send(self._do(step, call.endpoint))
                if guard is not None and isinstance(step, Delay) and step.may_be_charged:
                    # The reservation of the last attempt stays.
                    reserved = None
                    reserved = self._reserve(guard, call.endpoint, request)
        except StopIteration as end:
            result: T = end.value
        except BaseException as error:
            if guard is not None and reserved is not None:
                guard.record_result(reserved, error=error)
            raise
        if guard is not None:
            guard.record_result(reserved, result)
        return result

    def _reserve(self, guard: RequestGuard, endpoint: Endpoint[Any], request: Step) -> Any:
        while (reserved := guard.reserve(endpoint, _first(request))) is None:
            self._sleep(PAUSE)
        return reserved

    def _do(self, step: Step, endpoint: Endpoint[Any]) -> Reply:
        if isinstance(step, Delay):
            self.rate_limiter.share_hold()
            self._sleep(step.seconds)
            return None
        with self._slots:
            # Only inside the slot: a moment reserved before the slot was free may have passed, and many requests
            # would start at once.
            self.rate_limiter.wait(self._sleep)
            if self.guard is not None and endpoint.retry_safety is not RetrySafety.SAFE:
                self.guard.admit()
            left = self.rate_limiter.now()
            return self._on_response(left, self._transport.send(step))

    def _sleep(self, seconds: float) -> None:
        if self._stopped.wait(seconds):
            raise CpaasNotSentError(_STOPPED)

    def stop(self) -> None:
        """Let no further request leave. Waiting calls end with CpaasNotSentError. Requests in flight go on."""
        self._stopped.set()
        # One extra slot: each call that waits for a slot gets it in turn, sees the stop and passes it on.
        self._slots.release()

    def close(self) -> None:
        """Close all connections."""
        self.closed = True
        self._transport.close()
        self.rate_limiter.close()
        if self.guard is not None:
            self.guard.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        self.close()

    send_sms = _sync(operations.send_sms)
    send_email = _sync(operations.send_email)
    request_otp = _sync(operations.request_otp)
    verify_otp = _sync(operations.verify_otp)
    get_otp = _sync(operations.get_otp)
    find_otps = _sync(operations.find_otps)
    revoke_otp = _sync(operations.revoke_otp)
    buy_airtime = _sync(operations.buy_airtime)
    get_contact_table = _sync(operations.get_contact_table)
    get_contact_row = _sync(operations.get_contact_row)
    create_contact_row = _sync(operations.create_contact_row)
    update_contact_row = _sync(operations.update_contact_row)
    delete_contact_row = _sync(operations.delete_contact_row)
    lookup_phone = _sync(operations.lookup_phone)


class AsyncCpaasClient(_Client):
    """A client for coroutines of one event loop. Close it, or use it in an ``async with`` block."""

    def _set_up(self, settings: ClientSettings, rate_limiter: Pace | None) -> None:
        super()._set_up(settings, rate_limiter)
        self._transport = AsyncTransport(settings)
        self._slots = asyncio.Semaphore(self.settings.max_concurrency)
        self._stopped = asyncio.Event()

    async def run(self, call: RunnableCall[T]) -> T:
        """Run a call that a function of ``api.operations`` returned, as the client's methods do.

        :raises CpaasError: when the call did not succeed
        """
        steps = run_call(call, self.settings, self.rate_limiter)
        step = request = next(steps)
        guard = self.guard if self.guard is not None and self.guard.counts(call.endpoint) else None
        reserved = None if guard is None else await self._reserve(guard, call.endpoint, request)
        try:
            while True:
                step = steps.send(await self._do(step, call.endpoint))
                if guard is not None and isinstance(step, Delay) and step.may_be_charged:
                    # The reservation of the last attempt stays.
                    reserved = None
                    reserved = await self._reserve(guard, call.endpoint, request)
        except StopIteration as end:
            result: T = end.value
        except Exception as error:
            if guard is not None and reserved is not None:
                await asyncio.to_thread(guard.record_result, reserved, error=error)
            raise
        if guard is not None:
            await asyncio.to_thread(guard.record_result, reserved, result)
        return result

    async def _reserve(self, guard: RequestGuard, endpoint: Endpoint[Any], request: Step) -> Any:
        while (reserved := await asyncio.to_thread(guard.reserve, endpoint, _first(request))) is None:
            await self._sleep(PAUSE)
        return reserved

    async def _do(self, step: Step, endpoint: Endpoint[Any]) -> Reply:
        if isinstance(step, Delay):
            await self.rate_limiter.share_hold_async()
            await self._sleep(step.seconds)
            return None
        async with self._slots:
            # Only inside the slot: a moment reserved before the slot was free may have passed, and many requests
            # would start at once.
            await self.rate_limiter.wait_async(self._sleep)
            if self.guard is not None and endpoint.retry_safety is not RetrySafety.SAFE:
                await self.guard.admit_async()
            left = self.rate_limiter.now()
            return self._on_response(left, await self._transport.send(step))

    async def _sleep(self, seconds: float) -> None:
        if seconds > _SHORTEST_TIMER and not self._stopped.is_set():
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(seconds):
                    await self._stopped.wait()
        if self._stopped.is_set():
            raise CpaasNotSentError(_STOPPED)

    def stop(self) -> None:
        """Let no further request leave. Waiting calls end with CpaasNotSentError. Requests in flight go on.

        Call it in the thread of the event loop.
        """
        self._stopped.set()
        # One extra slot: each call that waits for a slot gets it in turn, sees the stop and passes it on.
        self._slots.release()

    async def aclose(self) -> None:
        """Close all connections."""
        await self._transport.aclose()
        await self.rate_limiter.aclose()
        if self.guard is not None:
            await asyncio.to_thread(self.guard.close)

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *error: object) -> None:
        await self.aclose()

    send_sms = _async(operations.send_sms)
    send_email = _async(operations.send_email)
    request_otp = _async(operations.request_otp)
    verify_otp = _async(operations.verify_otp)
    get_otp = _async(operations.get_otp)
    find_otps = _async(operations.find_otps)
    revoke_otp = _async(operations.revoke_otp)
    buy_airtime = _async(operations.buy_airtime)
    get_contact_table = _async(operations.get_contact_table)
    get_contact_row = _async(operations.get_contact_row)
    create_contact_row = _async(operations.create_contact_row)
    update_contact_row = _async(operations.update_contact_row)
    delete_contact_row = _async(operations.delete_contact_row)
    lookup_phone = _async(operations.lookup_phone)
