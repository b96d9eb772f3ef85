"""The secrets that verify reports, by connection: read off the event loop, cached for a minute, re-read on mismatch."""

from __future__ import annotations

import asyncio
import logging
import re
import time
from asyncio import Task
from collections import Counter
from collections.abc import Callable, Iterable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from datetime import timedelta

from cpaas_provider._common.records import PrivateRecord
from cpaas_provider.delivery.callbacks.tokens import LIFETIME
from cpaas_provider.delivery.receiver.log_throttle import ThrottledLogger
from cpaas_provider.delivery.receiver.single_flight import SingleFlight

throttled_log = ThrottledLogger(logging.getLogger(__name__))

FRESH_SECONDS = 60.0
UNKNOWN_SECONDS = 5.0
RECHECK_SECONDS = 5.0
READ_SECONDS = 10.0
MAX_ENTRIES = 1000
MAX_READS = 16
MAX_WAITING = 1000
"""Requests that wait for the same connection to be read."""

LOOKUPS_PER_SECOND = 10.0
LOOKUP_BURST = 100
"""Rate and burst of look-ups of connection ids that are neither known nor expected."""

EXPECTED_SECONDS = 30.0
"""How long the list of existing connections is cached."""

_CONN_ID = re.compile(r"[\w#!()\-.:/\\]{1,250}")
"""The connection ids that Airflow accepts."""


class ConnectionSecrets(PrivateRecord, frozen=True):
    """The secrets that verify a connection's reports, and how they are read.

    :param callback_secrets: the first signs callback URLs, all verify them
    :param webhook_secret: signs account webhooks
    :param signature_header: the header of that signature; without this or ``webhook_secret`` the webhook is closed
    :param callback_lifetime: how long a callback URL takes reports
    :param default_region: the two-letter region of national numbers in reports
    """

    callback_secrets: tuple[str, ...]
    webhook_secret: str | None = None
    signature_header: str | None = None
    callback_lifetime: timedelta = LIFETIME
    default_region: str | None = None


class SecretsUnavailableError(Exception):
    """The connection could not be read now. The receiver cannot tell whether it exists."""


@dataclass(slots=True)
class _Entry:
    secrets: ConnectionSecrets | None
    until: float
    rejected: float = float("-inf")


class SecretsCache:
    """The secrets of all connections. For one event loop.

    A sender can make up connection ids, and each costs a look-up. So look-ups of unknown ids are limited. Ids that are
    known or expected do not wait for them, and do not count towards that limit.

    :param read: reads a connection, and may block; ``None`` for an unknown id
    :param expected: lists existing connections as far as possible, and may block; called every ``EXPECTED_SECONDS``
    :param clock: monotonic seconds
    """

    def __init__(
        self,
        read: Callable[[str], ConnectionSecrets | None],
        *,
        expected: Callable[[], Iterable[str]] = tuple,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._read = read
        self._clock = clock
        self._list = SingleFlight(lambda: frozenset(expected()))
        self._expected: frozenset[str] = frozenset()
        self._expected_until = float("-inf")
        self._lookups_left = float(LOOKUP_BURST)
        self._counted = clock()
        self._waiting: Counter[str] = Counter()
        # Separate threads, so that slow look-ups of made-up ids delay no other connection.
        self._for_expected = ThreadPoolExecutor(MAX_READS, "cpaas-connections")
        self._for_others = ThreadPoolExecutor(MAX_READS, "cpaas-unknown-connections")
        # Separate, so that made-up ids cannot displace real ones.
        self._known: dict[str, _Entry] = {}
        self._unknown: dict[str, _Entry] = {}
        self._reading: dict[str, Task[ConnectionSecrets | None]] = {}

    async def get(self, conn_id: str) -> ConnectionSecrets | None:
        """Return a connection's secrets, or ``None`` for an unknown id.

        :raises SecretsUnavailableError: when the connection cannot be read and is not cached, or too many unknown ids
            are being looked up
        """
        entry = self._known.get(conn_id) or self._unknown.get(conn_id)
        if entry is not None and self._clock() < entry.until:
            return entry.secrets
        if not _CONN_ID.fullmatch(conn_id):
            return None
        return await self._read_shared(conn_id)

    async def refresh_after_mismatch(self, conn_id: str, rejected: ConnectionSecrets) -> ConnectionSecrets | None:
        """Return newer secrets than those that did not verify a report, or ``None`` if there are none.

        Reads the connection again at most once in ``RECHECK_SECONDS``, however many invalid reports arrive.

        :raises SecretsUnavailableError: when the connection cannot be read
        """
        entry = self._known.get(conn_id)
        if entry is None or entry.secrets is not rejected:
            newer = await self.get(conn_id)
        elif conn_id in self._reading or self._clock() - entry.rejected >= RECHECK_SECONDS:
            entry.rejected = self._clock()
            newer = await self._read_shared(conn_id)
        else:
            return None
        return None if newer == rejected else newer

    async def _read_shared(self, conn_id: str) -> ConnectionSecrets | None:
        is_expected = conn_id in self._known or await self._is_expected(conn_id)
        task = self._reading.get(conn_id)
        if task is None:
            if not is_expected:
                self._count_lookup()
            task = self._reading[conn_id] = asyncio.create_task(self._read_now(conn_id, is_expected))
            task.add_done_callback(lambda done: self._forget_reading(conn_id, done))
        if self._waiting[conn_id] >= MAX_WAITING:
            raise SecretsUnavailableError("Too many requests are waiting for the same connection to be read.")
        self._waiting[conn_id] += 1
        try:
            # Shielded, so that one cancelled request does not cancel the read for the others.
            return await asyncio.wait_for(asyncio.shield(task), READ_SECONDS)
        except TimeoutError:
            return self._stale(conn_id, "no response in time")
        finally:
            self._waiting[conn_id] -= 1
            if not self._waiting[conn_id]:
                del self._waiting[conn_id]

    async def _is_expected(self, conn_id: str) -> bool:
        if self._clock() >= self._expected_until:
            try:
                self._expected = await self._list.result(READ_SECONDS)
            except Exception as error:  # noqa: BLE001 - as below; the last list stays
                throttled_log.warning(
                    "list", f"Connections cannot be listed ({type(error).__name__}). Looking up each by its id."
                )
            self._expected_until = self._clock() + EXPECTED_SECONDS
        return conn_id in self._expected

    def _count_lookup(self) -> None:
        """Count a look-up of an unknown id.

        :raises SecretsUnavailableError: when there are too many
        """
        now = self._clock()
        more = (now - self._counted) * LOOKUPS_PER_SECOND
        self._lookups_left, self._counted = min(float(LOOKUP_BURST), self._lookups_left + more), now
        others = sum(one not in self._known and one not in self._expected for one in self._reading)
        if self._lookups_left < 1 or others >= MAX_READS:
            raise SecretsUnavailableError("Too many unknown connection ids are being looked up.")
        self._lookups_left -= 1

    async def _read_now(self, conn_id: str, is_expected: bool) -> ConnectionSecrets | None:
        threads = self._for_expected if is_expected else self._for_others
        try:
            secrets = await asyncio.get_running_loop().run_in_executor(threads, self._read, conn_id)
        except Exception as error:  # noqa: BLE001 - a secrets backend may raise anything
            return self._stale(conn_id, type(error).__name__)
        self._put(conn_id, secrets)
        return secrets

    def _forget_reading(self, conn_id: str, done: Task[ConnectionSecrets | None]) -> None:
        self._reading.pop(conn_id, None)
        # Retrieved here, because every waiting request may have been cancelled.
        if not done.cancelled():
            done.exception()

    def _stale(self, conn_id: str, why: str) -> ConnectionSecrets | None:
        """Return the cached secrets, so that reports are accepted while the secrets backend is unavailable."""
        entry = self._known.get(conn_id)
        what = "verified with the last known secrets" if entry else "refused, and their senders asked to retry"
        throttled_log.warning(what, f"Connection {conn_id!r} cannot be read ({why}). Its delivery reports are {what}.")
        if entry is None:
            raise SecretsUnavailableError(why)
        entry.until = self._clock() + RECHECK_SECONDS
        return entry.secrets

    def _put(self, conn_id: str, secrets: ConnectionSecrets | None) -> None:
        before = self._known.pop(conn_id, None)
        self._unknown.pop(conn_id, None)
        place, seconds = (self._unknown, UNKNOWN_SECONDS) if secrets is None else (self._known, FRESH_SECONDS)
        if len(place) >= MAX_ENTRIES:
            del place[next(iter(place))]
        rejected = before.rejected if before else float("-inf")
        place[conn_id] = _Entry(secrets, self._clock() + seconds, rejected)
