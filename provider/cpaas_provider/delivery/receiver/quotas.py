"""How many reports one callback URL may bring, and until when."""

from __future__ import annotations

import functools
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from hashlib import sha256
from typing import Any

from sqlalchemy import Connection, LargeBinary, cast, func, select

from cpaas_provider.database.schema.delivery import reports
from cpaas_provider.delivery.callbacks.tokens import CallbackToken
from cpaas_provider.delivery.receiver.writer import ReceivedReport, StoreResult
from cpaas_provider.delivery.tracking.retention import MIN_RETENTION, pruned_before

BASE_REPORTS, REPORTS_PER_RECIPIENT = 100, 20
"""Different reports that are stored for one request: a base, and more for each of its recipients."""

BASE_BYTES, BYTES_PER_RECIPIENT = 1024 * 1024, 16 * 1024
"""Bytes of their bodies, likewise."""

PREFIX_BYTES = 10
"""Leading bytes of a digest that all reports of one request share, so that the index keeps them together."""

_UNCOUNTED = 4
"""The divisor of a quota up to which this process counts by itself, without asking the database."""

_SPENT_SECONDS = 60.0
_MOST_REQUESTS = 50_000

_LENGTH: dict[str, Any] = {
    "sqlite": func.length(cast(reports.c.body, LargeBinary)),
    "postgresql": func.octet_length(reports.c.body),
}


# Needed twice for each report, and the same for all reports of a request.
@functools.lru_cache(maxsize=10_000)
def digest_prefix(conn_id: str, reference: str) -> bytes:
    """Return the leading bytes of the digests of a request's reports."""
    return sha256(f"{len(conn_id)} {conn_id}{reference}".encode()).digest()[:PREFIX_BYTES]


@dataclass(slots=True)
class _Usage:
    """The part of a quota that a request has used, as far as this process knows.

    :param spent: until when the quota is known to be used up, in monotonic seconds
    """

    number: int = 0
    size: int = 0
    spent: float | None = None


class Quotas:
    """Refuses reports at callback URLs whose request was pruned, or has used up its quota.

    This process counts by itself until a request has used more than usual, and then asks the database. So a quota holds
    over all processes, and usual reports cost no query.

    :param clock: monotonic seconds
    """

    def __init__(self, *, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        # The least recently used is forgotten first.
        self._usage: Callable[[bytes], _Usage] = functools.lru_cache(_MOST_REQUESTS)(lambda _: _Usage())

    def refused(self, connection: Connection, incoming: Sequence[ReceivedReport]) -> dict[int, StoreResult]:
        """Return the reports that must not be stored, by their positions, with the reason.

        The caller checks whether one of them is stored already, and so needs no room.
        """
        tokens = [one.token for one in incoming if one.token is not None]
        if not tokens:
            return {}
        horizon = _horizon(connection, tokens)
        refused: dict[int, StoreResult] = {}
        of_each: dict[bytes, tuple[CallbackToken, list[int]]] = {}
        for place, (conn_id, _, token, *_) in enumerate(incoming):
            if token is None:
                continue
            if horizon and token.issued and token.issued < horizon:
                refused[place] = StoreResult.EXPIRED
            else:
                of_each.setdefault(digest_prefix(conn_id, token.reference), (token, []))[1].append(place)
        for request, (token, places) in of_each.items():
            sizes = [_size(incoming[place].body) for place in places]
            remaining = self._remaining(connection, request, token, sizes)
            refused |= dict.fromkeys(places[remaining:], StoreResult.TOO_MANY)
        return refused

    def _remaining(self, connection: Connection, request: bytes, token: CallbackToken, sizes: Sequence[int]) -> int:
        """Return how many of a request's reports may be stored, given the sizes of their bodies."""
        usage = self._usage(request)
        if usage.spent is not None and self._clock() < usage.spent:
            return 0
        most = BASE_REPORTS + REPORTS_PER_RECIPIENT * token.recipients
        most_bytes = BASE_BYTES + BYTES_PER_RECIPIENT * token.recipients
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


def _size(body: str) -> int:
    """Return the bytes of a body, without encoding it where it is ASCII."""
    return len(body) if body.isascii() else len(body.encode())


def _horizon(connection: Connection, tokens: Sequence[CallbackToken]) -> datetime | None:
    """Return the time up to which requests were pruned, ``None`` if all tokens are younger than any pruning."""
    youngest = datetime.now(UTC) - MIN_RETENTION
    oldest = min((token.issued for token in tokens if token.issued), default=youngest)
    return pruned_before(connection) if oldest < youngest else None


def _used(connection: Connection, request: bytes) -> tuple[int, int]:
    """Return the number of stored reports of a request, and the bytes of their bodies."""
    length = _LENGTH[connection.dialect.name]
    theirs = reports.c.digest.between(request + bytes(32 - PREFIX_BYTES), request + b"\xff" * (32 - PREFIX_BYTES))
    number, size = connection.execute(select(func.count(), func.coalesce(func.sum(length), 0)).where(theirs)).one()
    return int(number), int(size)
