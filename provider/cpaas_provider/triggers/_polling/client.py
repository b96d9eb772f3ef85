"""An asynchronous client that is used for hours, while its connection may be edited."""

from __future__ import annotations

import asyncio
import logging
import math
import time
from typing import TYPE_CHECKING

from cpaas_provider.api.errors import CpaasConfigurationError, CpaasError
from cpaas_provider.triggers._polling.backoff import TELL_AGAIN
from cpaas_provider.triggers._polling.poller import WaitEndedError, backoff

if TYPE_CHECKING:
    from cpaas_provider.api.client import AsyncCpaasClient
    from cpaas_provider.hooks.connection import CpaasConnection

READ_AGAIN = 300.0
"""Seconds after which an edited connection is noticed."""
READ_WITHIN = 20.0
PATIENCE = 60.0
"""Seconds until a connection that cannot be read counts as gone, where there is no client that works: it may be that
only what hands it out is down."""

log = logging.getLogger(__name__)


class KeptClient:
    """Gives the client of a connection as it now is. Whoever uses it closes a client that was replaced.

    Its clients make one attempt a call: who waits repeats anyway, and knows whom to read first.
    """

    def __init__(self, conn_id: str) -> None:
        self.conn_id = conn_id
        self._client: AsyncCpaasClient | None = None
        self._connection: CpaasConnection | None = None
        self._read_next = -math.inf
        self._misses = 0
        self._missed_since = 0.0
        self._told = -math.inf
        self._refusal: CpaasError | None = None

    def refused(self, client: AsyncCpaasClient, error: CpaasError) -> None:
        """Take note that the service refuses a client's key; the connection may have a new one already."""
        if client is self._client:
            self._refusal = error
            self._read_next = -math.inf
            # Only from now on is there nothing to go on with.
            self._misses = 0

    async def ready(self) -> AsyncCpaasClient:
        """Return a client, made off the loop where there is none yet or the connection was edited.

        :raises WaitEndedError: when the connection cannot work as it is, its key is still refused, or it cannot be
            read for ``PATIENCE`` and there is no client that works
        :raises Exception: when it could not be read this time and there is no client to go on with
        """
        if self._client is not None and time.monotonic() < self._read_next:
            return self._client
        try:
            client = await self._read()
        except CpaasConfigurationError as error:
            raise WaitEndedError(str(error)) from error
        except Exception as error:
            if (kept := self._without_reading(error)) is None:
                raise
            return kept
        self._misses = 0
        self._read_next = time.monotonic() + READ_AGAIN
        refusal, self._refusal = self._refusal, None
        if refusal is not None and client is self._client:
            raise WaitEndedError(str(refusal)) from refusal
        self._client = client
        return client

    async def _read(self) -> AsyncCpaasClient:
        from cpaas_provider.hooks.cpaas import CpaasHook, async_client

        async with asyncio.timeout(READ_WITHIN):
            connection = (await CpaasHook(self.conn_id).aget_connection_settings()).without_retries()
            if self._client is not None and connection == self._connection:
                return self._client
            client = await asyncio.to_thread(async_client, connection)
        self._connection = connection
        return client

    def _without_reading(self, error: Exception) -> AsyncCpaasClient | None:
        """Return the client to go on with for now although the connection could not be read."""
        now = time.monotonic()
        if not self._misses:
            self._missed_since = now
        self._misses += 1
        if self._client is not None and self._refusal is None:
            self._tell(error, now)
            self._read_next = now + backoff(self._misses)
            return self._client
        if now - self._missed_since >= PATIENCE:
            self._misses = 0
            raise WaitEndedError(
                f"Connection {self.conn_id!r} could not be read for {PATIENCE:g} s ({type(error).__name__}). The wait "
                "ended, and nothing was changed. Check that the connection exists, then clear the task."
            ) from None
        return None

    def _tell(self, error: Exception, now: float) -> None:
        """Log, now and then, that an edit of the connection would not be noticed."""
        if now - self._told < TELL_AGAIN:
            return
        self._told = now
        log.warning(
            "Connection %r could not be read (%s). Sensors keep waiting with its earlier settings and read it again. "
            "Until that succeeds, changes of the connection have no effect. Check that the connection exists.",
            self.conn_id, type(error).__name__,
        )  # fmt: skip
