"""What proves a report genuine, by connection: read off the loop, remembered for a minute, read again in doubt."""

from __future__ import annotations

import asyncio
import logging
import re
import time
from asyncio import Task
from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import timedelta

from cpaas_provider.delivery.complaints import Complaints
from cpaas_provider.delivery.tickets import LIFETIME

complaints = Complaints(logging.getLogger(__name__))

FRESH_SECONDS = 60.0
UNKNOWN_SECONDS = 5.0
DOUBT_SECONDS = 5.0
READ_SECONDS = 10.0
MOST_REMEMBERED = 1000
MOST_READS = 16

_CONN_ID = re.compile(r"[\w#!()\-.:/\\]{1,250}")
"""What Airflow lets a connection be called."""


@dataclass(frozen=True, slots=True)
class ConnectionKeys:
    """What a connection's reports are proved with.

    :param callback_secrets: the first signs callback URLs, all verify them
    :param webhook_secret: what account webhooks are signed with
    :param signature_header: the header their signature is in; without either of the two that door is closed
    :param callback_lifetime: how long a callback URL takes reports
    """

    callback_secrets: tuple[str, ...] = field(repr=False)
    webhook_secret: str | None = field(default=None, repr=False)
    signature_header: str | None = None
    callback_lifetime: timedelta = LIFETIME


class KeysUnreadableError(Exception):
    """The connection could not be read now; whether it exists is not known."""


@dataclass(slots=True)
class _Remembered:
    keys: ConnectionKeys | None
    until: float
    doubted: float = float("-inf")


class KeyRing:
    """The keys of all connections. Made for one event loop.

    :param read: reads a connection, which may block; ``None`` where there is no such connection
    :param clock: seconds that never go back
    """

    def __init__(
        self, read: Callable[[str], ConnectionKeys | None], *, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._read = read
        self._clock = clock
        # Apart, so that made-up names cannot push real ones out.
        self._known: dict[str, _Remembered] = {}
        self._unknown: dict[str, _Remembered] = {}
        self._reading: dict[str, Task[ConnectionKeys | None]] = {}

    async def keys_of(self, conn_id: str) -> ConnectionKeys | None:
        """Return a connection's keys, or ``None`` where there is no such connection.

        :raises KeysUnreadableError: when it was never read and cannot be now
        """
        remembered = self._known.get(conn_id) or self._unknown.get(conn_id)
        if remembered is not None and self._clock() < remembered.until:
            return remembered.keys
        if not _CONN_ID.fullmatch(conn_id):
            return None
        return await self._read_shared(conn_id)

    async def keys_after_doubt(self, conn_id: str, doubted: ConnectionKeys) -> ConnectionKeys | None:
        """Return newer keys than those that did not fit, or ``None`` if there are none.

        The connection is read anew at most once in 5 s for that, however much arrives that fits nothing.

        :raises KeysUnreadableError: when it cannot be read
        """
        remembered = self._known.get(conn_id)
        if remembered is None or remembered.keys is not doubted:
            newer = await self.keys_of(conn_id)
        elif conn_id in self._reading or self._clock() - remembered.doubted >= DOUBT_SECONDS:
            remembered.doubted = self._clock()
            newer = await self._read_shared(conn_id)
        else:
            return None
        return None if newer == doubted else newer

    async def _read_shared(self, conn_id: str) -> ConnectionKeys | None:
        task = self._reading.get(conn_id)
        if task is None:
            if conn_id not in self._known and len(self._reading) >= MOST_READS:
                raise KeysUnreadableError("Too many connections are being read.")
            task = self._reading[conn_id] = asyncio.create_task(self._read_now(conn_id))
            task.add_done_callback(lambda done: self._forget_reading(conn_id, done))
        try:
            # Shielded: others wait for it too.
            return await asyncio.wait_for(asyncio.shield(task), READ_SECONDS)
        except TimeoutError:
            return self._as_it_was(conn_id, "it takes too long")

    async def _read_now(self, conn_id: str) -> ConnectionKeys | None:
        try:
            keys = await asyncio.to_thread(self._read, conn_id)
        except Exception as error:  # noqa: BLE001 - a secrets backend may raise anything
            return self._as_it_was(conn_id, type(error).__name__)
        self._remember(conn_id, keys)
        return keys

    def _forget_reading(self, conn_id: str, done: Task[ConnectionKeys | None]) -> None:
        self._reading.pop(conn_id, None)
        # Asked for here, as all who waited may have given up.
        if not done.cancelled():
            done.exception()

    def _as_it_was(self, conn_id: str, why: str) -> ConnectionKeys | None:
        """Return what is still remembered, so that a secrets backend that is away keeps no report out."""
        remembered = self._known.get(conn_id)
        what = "proved as before" if remembered else "not taken; their senders are asked to try again"
        complaints.say(what, f"Connection {conn_id!r} cannot be read ({why}). Its delivery reports are {what}.")
        if remembered is None:
            raise KeysUnreadableError(why)
        remembered.until = self._clock() + DOUBT_SECONDS
        return remembered.keys

    def _remember(self, conn_id: str, keys: ConnectionKeys | None) -> None:
        before = self._known.pop(conn_id, None)
        self._unknown.pop(conn_id, None)
        place, seconds = (self._unknown, UNKNOWN_SECONDS) if keys is None else (self._known, FRESH_SECONDS)
        if len(place) >= MOST_REMEMBERED:
            del place[next(iter(place))]
        doubted = before.doubted if before else float("-inf")
        place[conn_id] = _Remembered(keys, self._clock() + seconds, doubted)
