"""How much the holder of one callback URL may have stored, and until when."""

from __future__ import annotations

import functools
import time
from collections import OrderedDict
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from hashlib import sha256
from typing import Any

from sqlalchemy import Connection, LargeBinary, cast, func, select

from cpaas_provider.database.schema import reports
from cpaas_provider.delivery.callbacks.tokens import Ticket
from cpaas_provider.delivery.receiver.received import Arrival, Kept
from cpaas_provider.delivery.tracking.retention import SHORTEST, pruned_before

REPORTS, REPORTS_EACH = 100, 20
"""Different reports of one request that are stored: so many, and so many more for each of its recipients."""

BYTES, BYTES_EACH = 1024 * 1024, 16 * 1024
"""Bytes of their bodies, likewise."""

MARK = 10
"""Bytes at the beginning of a report's digest that all of one request have, so that they lie together."""

_UNCOUNTED = 4
"""The share of its quota that a request may use before the database is asked how much it has used."""

_SPENT_SECONDS = 60.0
_MOST_REQUESTS = 50_000

_LENGTH: dict[str, Any] = {
    "sqlite": func.length(cast(reports.c.body, LargeBinary)),
    "postgresql": func.octet_length(reports.c.body),
}


# Of each report it is asked for twice, and all of one request have the same.
@functools.lru_cache(maxsize=10_000)
def mark(conn_id: str, reference: str) -> bytes:
    """Return what the digests of a request's reports begin with."""
    return sha256(f"{len(conn_id)} {conn_id}{reference}".encode()).digest()[:MARK]


@dataclass(slots=True)
class _Use:
    """What a request has used at most, as far as this process has seen.

    :param spent: until when it is known to have used all of it, by a clock that never goes back
    """

    number: int = 0
    size: int = 0
    spent: float = float("-inf")


class Quotas:
    """Refuses reports that come to callback URLs whose request was pruned, or has brought all that it may.

    What a request has used is counted here first, and in the database as soon as it is more than requests use: so a
    quota holds over all processes, and reports that keep to it cost no query.

    :param clock: seconds that never go back
    """

    def __init__(self, *, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._uses: OrderedDict[bytes, _Use] = OrderedDict()

    def refused(self, connection: Connection, arrivals: Sequence[Arrival]) -> dict[int, Kept]:
        """Return which of the reports are not to be stored, by their places, and why.

        That one is stored already, and needs no room, is for the caller to find out.
        """
        tickets = [(place, one, one.ticket) for place, one in enumerate(arrivals) if one.ticket is not None]
        if not tickets:
            return {}
        horizon = _horizon(connection, [ticket for _, _, ticket in tickets])
        refused: dict[int, Kept] = {}
        of_each: dict[bytes, tuple[Ticket, list[int]]] = {}
        for place, arrival, ticket in tickets:
            if horizon and ticket.issued and ticket.issued < horizon:
                refused[place] = Kept.EXPIRED
            else:
                of_each.setdefault(mark(arrival.conn_id, ticket.reference), (ticket, []))[1].append(place)
        for request, (ticket, places) in of_each.items():
            sizes = [_size(arrivals[place].body) for place in places]
            room = self._room(connection, request, ticket, sizes)
            refused |= dict.fromkeys(places[room:], Kept.TOO_MANY)
        return refused

    def _room(self, connection: Connection, request: bytes, ticket: Ticket, sizes: Sequence[int]) -> int:
        """Return how many more reports of a request may be stored, of those that came with these sizes."""
        use = self._use(request)
        if self._clock() < use.spent:
            return 0
        most, most_bytes = REPORTS + REPORTS_EACH * ticket.recipients, BYTES + BYTES_EACH * ticket.recipients
        use.number += len(sizes)
        use.size += sum(sizes)
        if use.number * _UNCOUNTED <= most and use.size * _UNCOUNTED <= most_bytes:
            return len(sizes)
        use.number, use.size = _used(connection, request)
        for room, size in enumerate(sizes):
            if use.number + 1 > most or use.size + size > most_bytes:
                use.spent = self._clock() + _SPENT_SECONDS
                return room
            use.number += 1
            use.size += size
        return len(sizes)

    def _use(self, request: bytes) -> _Use:
        use = self._uses.pop(request, None) or _Use()
        self._uses[request] = use
        if len(self._uses) > _MOST_REQUESTS:
            self._uses.popitem(last=False)
        return use


def _size(body: str) -> int:
    """Return how many bytes a body has; to encode it takes long."""
    return len(body) if body.isascii() else len(body.encode())


def _horizon(connection: Connection, tickets: Sequence[Ticket]) -> datetime | None:
    """Return up to when requests were pruned, ``None`` where that matters to none of these."""
    youngest = datetime.now(UTC) - SHORTEST
    old = any(ticket.issued and ticket.issued < youngest for ticket in tickets)
    return pruned_before(connection) if old else None


def _used(connection: Connection, request: bytes) -> tuple[int, int]:
    """Return how many reports of a request are stored, and how many bytes their bodies take."""
    length = _LENGTH[connection.dialect.name]
    theirs = reports.c.digest.between(request + bytes(32 - MARK), request + b"\xff" * (32 - MARK))
    number, size = connection.execute(select(func.count(), func.coalesce(func.sum(length), 0)).where(theirs)).one()
    return int(number), int(size)
