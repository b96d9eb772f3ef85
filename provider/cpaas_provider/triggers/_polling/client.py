"""An asynchronous client that is used for hours, while its connection may be edited."""

from __future__ import annotations

import asyncio
import logging
import math
import time
from typing import TYPE_CHECKING

from cpaas_provider.api.errors import CpaasAuthenticationError, CpaasConfigurationError, CpaasError
from cpaas_provider.triggers._polling.backoff import MIN_FAILURE_SECONDS, FailureStreak, LogInterval
from cpaas_provider.triggers._polling.poller import WaitEndedError, backoff

if TYPE_CHECKING:
    from cpaas_provider.api.client import AsyncCpaasClient
    from cpaas_provider.api.http.tls import ClientCertificate
    from cpaas_provider.hooks.connection import CpaasConnection

RELOAD_SECONDS = 300.0
"""Seconds after which an edited connection is noticed."""
REJECTED_RELOAD_SECONDS = 5.0
"""The same after a response that may be due to an old key or a wrong base URL, which may have been corrected."""
RELOAD_TIMEOUT = 20.0

log = logging.getLogger(__name__)


class ReloadingClient:
    """Returns a client with the current settings of a connection. The caller closes a client that was replaced.

    Its clients make one attempt a call, because the poller repeats reads in its own order. Many waits share it, so no
    single response and no single edit of the connection ends them (see ``FailureStreak``).
    """

    def __init__(self, conn_id: str) -> None:
        self.conn_id = conn_id
        self._client: AsyncCpaasClient | None = None
        self._connection: CpaasConnection | None = None
        self._certificate: ClientCertificate | None = None
        self._read_at = self._reload_at = -math.inf
        self._unreadable, self._rejected = FailureStreak(), FailureStreak()
        self._log_interval = LogInterval()
        self._final_error: CpaasError | None = None

    def on_success(self) -> None:
        """Note that the service accepted the key."""
        self._rejected.reset()

    def on_inconclusive(self, client: AsyncCpaasClient, error: CpaasError) -> None:
        """Read the connection again soon: it may have a new key or base URL already. Count a rejection of the key."""
        if client is not self._client:
            return
        self._reload_at = min(self._reload_at, self._read_at + REJECTED_RELOAD_SECONDS)
        if isinstance(error, CpaasAuthenticationError) and self._rejected.add(time.monotonic()):
            self._final_error = error

    async def get(self) -> AsyncCpaasClient:
        """Return a client, created off the loop if there is none yet or the connection was edited.

        While an edited connection cannot be read or is invalid, the client has its earlier settings.

        :raises WaitEndedError: when the key is rejected again and again, or when there is no client yet and the
            connection cannot be used again and again
        :raises Exception: when there is no client yet and the connection cannot be used this time
        """
        if self._client is None or time.monotonic() >= self._reload_at:
            await self._reload()
        if self._final_error is not None:
            error, self._final_error = self._final_error, None
            # A retry of the task, which joins the same poller, waits as long again.
            self._rejected.reset()
            raise WaitEndedError(str(error)) from error
        assert self._client is not None  # noqa: S101 - for the type checker: otherwise _reload() raised
        return self._client

    async def _reload(self) -> None:
        try:
            client = await self._read()
        except Exception as error:
            self._on_unreadable(error)
            if self._client is None:
                raise
            return
        self._unreadable.reset()
        self._read_at = time.monotonic()
        self._reload_at = self._read_at + RELOAD_SECONDS
        if client is not self._client:
            self._client, self._final_error = client, None
            self._rejected.reset()

    async def _read(self) -> AsyncCpaasClient:
        from cpaas_provider.api.http.tls import find_client_certificate
        from cpaas_provider.hooks.cpaas import CpaasHook

        async with asyncio.timeout(RELOAD_TIMEOUT):
            connection = (await CpaasHook(self.conn_id).aget_connection_settings()).without_retries()
            certificate = await asyncio.to_thread(find_client_certificate, connection.settings)
            if self._client is not None and (connection, certificate) == (self._connection, self._certificate):
                return self._client
            client = await asyncio.to_thread(connection.make_async_client)
        self._connection, self._certificate = connection, certificate
        return client

    def _on_unreadable(self, error: Exception) -> None:
        """Count that the connection could not be used.

        :raises WaitEndedError: when that was so again and again, and there is no client yet
        """
        now = time.monotonic()
        is_over = self._unreadable.add(now)
        self._read_at, self._reload_at = now, now + backoff(self._unreadable.count)
        reason = str(error) if isinstance(error, CpaasConfigurationError) else type(error).__name__
        if self._client is not None:
            if self._log_interval.is_over():
                log.warning(
                    "Connection %r could not be read (%s). Sensors keep waiting with its earlier settings and read it "
                    "again. Until that succeeds, changes of the connection have no effect. Check the connection.",
                    self.conn_id, reason,
                )  # fmt: skip
        elif is_over:
            self._unreadable.reset()
            if isinstance(error, CpaasConfigurationError):
                raise WaitEndedError(str(error)) from error
            raise WaitEndedError(
                f"Connection {self.conn_id!r} could not be read for {MIN_FAILURE_SECONDS:g} s ({reason}). The wait "
                "ended, and nothing was changed. Check that the connection exists. A retry of the task waits again."
            ) from None
