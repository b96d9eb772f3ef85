"""An asynchronous client that is used for hours, while its connection may be edited."""

from __future__ import annotations

import asyncio
import logging
import math
import time
from typing import TYPE_CHECKING

from cpaas_provider.api.errors import CpaasConfigurationError, CpaasError
from cpaas_provider.triggers._polling.backoff import LogInterval
from cpaas_provider.triggers._polling.poller import WaitEndedError, backoff

if TYPE_CHECKING:
    from cpaas_provider.api.client import AsyncCpaasClient
    from cpaas_provider.api.http.tls import ClientCertificate
    from cpaas_provider.hooks.connection import CpaasConnection

RELOAD_SECONDS = 300.0
"""Seconds after which an edited connection is noticed."""
RELOAD_TIMEOUT = 20.0
UNREADABLE_GRACE = 60.0
"""Seconds until a connection that cannot be read counts as gone, if there is no working client: it may be that only
the secrets backend is down."""

log = logging.getLogger(__name__)


class ReloadingClient:
    """Returns a client with the current settings of a connection. The caller closes a client that was replaced.

    Its clients make one attempt a call, because the poller repeats reads in its own order.
    """

    def __init__(self, conn_id: str) -> None:
        self.conn_id = conn_id
        self._client: AsyncCpaasClient | None = None
        self._connection: CpaasConnection | None = None
        self._certificate: ClientCertificate | None = None
        self._reload_at = -math.inf
        self._failures = 0
        self._failing_since = 0.0
        self._log_interval = LogInterval()
        self._auth_error: CpaasError | None = None

    def on_auth_error(self, client: AsyncCpaasClient, error: CpaasError) -> None:
        """Read the connection again after the service rejected a client's key; it may have a new one already."""
        if client is self._client:
            self._auth_error = error
            self._reload_at = -math.inf
            # From now on there is no working client.
            self._failures = 0

    async def get(self) -> AsyncCpaasClient:
        """Return a client, created off the loop if there is none yet or the connection was edited.

        :raises WaitEndedError: when the connection is invalid, its key is still rejected, or it cannot be read for
            ``UNREADABLE_GRACE`` and there is no working client
        :raises Exception: when it could not be read this time and there is no working client
        """
        if self._client is not None and time.monotonic() < self._reload_at:
            return self._client
        try:
            client = await self._read()
        except CpaasConfigurationError as error:
            raise WaitEndedError(str(error)) from error
        except Exception as error:
            if (previous := self._fall_back(error)) is None:
                raise
            return previous
        self._failures = 0
        self._reload_at = time.monotonic() + RELOAD_SECONDS
        auth_error, self._auth_error = self._auth_error, None
        if auth_error is not None and client is self._client:
            raise WaitEndedError(str(auth_error)) from auth_error
        self._client = client
        return client

    async def _read(self) -> AsyncCpaasClient:
        from cpaas_provider.api.http.tls import find_client_certificate
        from cpaas_provider.hooks.cpaas import CpaasHook

        async with asyncio.timeout(RELOAD_TIMEOUT):
            connection = (await CpaasHook(self.conn_id).aget_connection_settings()).without_retries()
            current = self._client if connection == self._connection else None
            try:
                certificate = await asyncio.to_thread(find_client_certificate, connection.settings)
                if current is not None and certificate == self._certificate:
                    return current
                client = await asyncio.to_thread(connection.make_async_client)
            except CpaasConfigurationError:
                if current is None:
                    raise
                # Only the files of the client certificate have changed. They may be in the middle of a renewal.
                return current
        self._connection, self._certificate = connection, certificate
        return client

    def _fall_back(self, error: Exception) -> AsyncCpaasClient | None:
        """Return the client to use for now although the connection could not be read, or ``None``."""
        now = time.monotonic()
        if not self._failures:
            self._failing_since = now
        self._failures += 1
        if self._client is not None and self._auth_error is None:
            if self._log_interval.is_over():
                log.warning(
                    "Connection %r could not be read (%s). Sensors keep waiting with its earlier settings and read it "
                    "again. Until that succeeds, changes of the connection have no effect. Check that the connection "
                    "exists.",
                    self.conn_id, type(error).__name__,
                )  # fmt: skip
            self._reload_at = now + backoff(self._failures)
            return self._client
        if now - self._failing_since >= UNREADABLE_GRACE:
            self._failures = 0
            raise WaitEndedError(
                f"Connection {self.conn_id!r} could not be read for {UNREADABLE_GRACE:g} s ({type(error).__name__}). "
                "The wait ended, and nothing was changed. Check that the connection exists, then clear the task."
            ) from None
        return None
