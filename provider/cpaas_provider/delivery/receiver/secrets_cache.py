"""What proves a report genuine, by connection: read off the loop, remembered for a minute, read again in doubt."""

from __future__ import annotations

import asyncio
import logging
import re
import time
from asyncio import Task
from collections import Counter
from collections.abc import Callable, Iterable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from datetime import timedelta

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
"""Who wait for the same reading."""

LOOKUPS_PER_SECOND = 10.0
LOOKUP_BURST = 100
"""How often names are looked up that nothing speaks for: so often in the long run, and so many in a row."""

EXPECTED_SECONDS = 30.0
"""How long a list of the connections there are is taken for true."""

_CONN_ID = re.compile(r"[\w#!()\-.:/\\]{1,250}")
"""What Airflow lets a connection be called."""


@dataclass(frozen=True, slots=True)
class ConnectionSecrets:
    """What a connection's reports are proved with.

    :param callback_secrets: the first signs callback URLs, all verify them
    :param webhook_secret: what account webhooks are signed with
    :param signature_header: the header their signature is in; without either of the two that endpoint is closed
    :param callback_lifetime: how long a callback URL takes reports
    """

    callback_secrets: tuple[str, ...] = field(repr=False)
    webhook_secret: str | None = field(default=None, repr=False)
    signature_header: str | None = None
    callback_lifetime: timedelta = LIFETIME


class SecretsUnavailableError(Exception):
    """The connection could not be read now. The receiver cannot tell whether it exists."""


@dataclass(slots=True)
class _Entry:
    secrets: ConnectionSecrets | None
    until: float
    rejected: float = float("-inf")


class SecretsCache:
    """The keys of all connections. Made for one event loop.

    Made-up names cost a lookup each, so there are few of them: names that were found before, or are
    expected, do not wait for the others and are not counted with them.

    :param read: reads a connection, which may block; ``None`` where there is no such connection
    :param expected: names connections there are, as far as can be told, which may block; called now and then
    :param clock: seconds that never go back
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
        # Threads of their own, so that made-up names that are looked up slowly keep no other from being read.
        self._for_expected = ThreadPoolExecutor(MAX_READS, "cpaas-connections")
        self._for_others = ThreadPoolExecutor(MAX_READS, "cpaas-unknown-connections")
        # Apart, so that made-up names cannot push real ones out.
        self._known: dict[str, _Entry] = {}
        self._unknown: dict[str, _Entry] = {}
        self._reading: dict[str, Task[ConnectionSecrets | None]] = {}

    async def get(self, conn_id: str) -> ConnectionSecrets | None:
        """Return a connection's keys, or ``None`` where there is no such connection.

        :raises SecretsUnavailableError: when it was never read and cannot be now, or too many names are asked for
        """
        entry = self._known.get(conn_id) or self._unknown.get(conn_id)
        if entry is not None and self._clock() < entry.until:
            return entry.secrets
        if not _CONN_ID.fullmatch(conn_id):
            return None
        return await self._read_shared(conn_id)

    async def refresh_after_mismatch(self, conn_id: str, rejected: ConnectionSecrets) -> ConnectionSecrets | None:
        """Return newer keys than those that did not fit, or ``None`` if there are none.

        The connection is read anew at most once in 5 s for that, however much arrives that fits nothing.

        :raises SecretsUnavailableError: when it cannot be read
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
            # Shielded: others wait for it too.
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
            except Exception as error:  # noqa: BLE001 - as below; what was expected before still is
                throttled_log.warning(
                    "list", f"Connections cannot be listed ({type(error).__name__}). Looking up each by its id."
                )
            self._expected_until = self._clock() + EXPECTED_SECONDS
        return conn_id in self._expected

    def _count_lookup(self) -> None:
        """Let one more name be looked up that nothing speaks for.

        :raises SecretsUnavailableError: when there were too many
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
        # Asked for here, as all who waited may have given up.
        if not done.cancelled():
            done.exception()

    def _stale(self, conn_id: str, why: str) -> ConnectionSecrets | None:
        """Return what is still remembered, so that a secrets backend that is away keeps no report out."""
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
