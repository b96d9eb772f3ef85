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
from cpaas_provider.delivery.callbacks.tokens import CallbackToken
from cpaas_provider.delivery.receiver.writer import ReceivedReport, StoreResult
from cpaas_provider.delivery.tracking.retention import MIN_RETENTION, pruned_before

BASE_REPORTS, REPORTS_PER_RECIPIENT = 100, 20
"""Different reports of one request that are stored: so many, and so many more for each of its recipients."""

BASE_BYTES, BYTES_PER_RECIPIENT = 1024 * 1024, 16 * 1024
"""Bytes of their bodies, likewise."""

PREFIX_BYTES = 10
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
def digest_prefix(conn_id: str, reference: str) -> bytes:
    """Return what the digests of a request's reports begin with."""
    return sha256(f"{len(conn_id)} {conn_id}{reference}".encode()).digest()[:PREFIX_BYTES]


@dataclass(slots=True)
class _Usage:
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
        self._usages: OrderedDict[bytes, _Usage] = OrderedDict()

    def refused(self, connection: Connection, incoming: Sequence[ReceivedReport]) -> dict[int, StoreResult]:
        """Return which of the reports are not to be stored, by their places, and why.

        That one is stored already, and needs no room, is for the caller to find out.
        """
        tokens = [(place, one, one.token) for place, one in enumerate(incoming) if one.token is not None]
        if not tokens:
            return {}
        horizon = _horizon(connection, [token for _, _, token in tokens])
        refused: dict[int, StoreResult] = {}
        of_each: dict[bytes, tuple[CallbackToken, list[int]]] = {}
        for place, received, token in tokens:
            if horizon and token.issued and token.issued < horizon:
                refused[place] = StoreResult.EXPIRED
            else:
                of_each.setdefault(digest_prefix(received.conn_id, token.reference), (token, []))[1].append(place)
        for request, (token, places) in of_each.items():
            sizes = [_size(incoming[place].body) for place in places]
            remaining = self._remaining(connection, request, token, sizes)
            refused |= dict.fromkeys(places[remaining:], StoreResult.TOO_MANY)
        return refused

    def _remaining(self, connection: Connection, request: bytes, token: CallbackToken, sizes: Sequence[int]) -> int:
        """Return how many more reports of a request may be stored, of those that came with these sizes."""
        usage = self._usage(request)
        if self._clock() < usage.spent:
            return 0
        most, most_bytes = (
            BASE_REPORTS + REPORTS_PER_RECIPIENT * token.recipients,
            BASE_BYTES + BYTES_PER_RECIPIENT * token.recipients,
        )
        usage.number += len(sizes)
        usage.size += sum(sizes)
        if usage.number * _UNCOUNTED <= most and usage.size * _UNCOUNTED <= most_bytes:
            return len(sizes)
        usage.number, usage.size = _used(connection, request)
        for remaining, size in enumerate(sizes):
            if usage.number + 1 > most or usage.size + size > most_bytes:
                usage.spent = self._clock() + _SPENT_SECONDS
                return remaining
            usage.number += 1
            usage.size += size
        return len(sizes)

    def _usage(self, request: bytes) -> _Usage:
        usage = self._usages.pop(request, None) or _Usage()
        self._usages[request] = usage
        if len(self._usages) > _MOST_REQUESTS:
            self._usages.popitem(last=False)
        return usage


def _size(body: str) -> int:
    """Return how many bytes a body has; to encode it takes long."""
    return len(body) if body.isascii() else len(body.encode())


def _horizon(connection: Connection, tokens: Sequence[CallbackToken]) -> datetime | None:
    """Return up to when requests were pruned, ``None`` where that matters to none of these."""
    youngest = datetime.now(UTC) - MIN_RETENTION
    old = any(token.issued and token.issued < youngest for token in tokens)
    return pruned_before(connection) if old else None


def _used(connection: Connection, request: bytes) -> tuple[int, int]:
    """Return how many reports of a request are stored, and how many bytes their bodies take."""
    length = _LENGTH[connection.dialect.name]
    theirs = reports.c.digest.between(request + bytes(32 - PREFIX_BYTES), request + b"\xff" * (32 - PREFIX_BYTES))
    number, size = connection.execute(select(func.count(), func.coalesce(func.sum(length), 0)).where(theirs)).one()
    return int(number), int(size)
