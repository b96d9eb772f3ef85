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
    spent: float | None = None


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
        tokens = [one.token for one in incoming if one.token is not None]
        if not tokens:
            return {}
        horizon = _horizon(connection, tokens)
        refused: dict[int, StoreResult] = {}
        of_each: dict[bytes, list[int]] = {}
        for place, (conn_id, _, token, *_) in enumerate(incoming):
            if token is None:
                continue
            if horizon and token.issued and token.issued < horizon:
                refused[place] = StoreResult.EXPIRED
            else:
                of_each.setdefault(digest_prefix(conn_id, token.reference), []).append(place)
        for request, places in of_each.items():
            token = incoming[places[0]].token
            sizes = [_size(incoming[place].body) for place in places]
            if token is not None and (remaining := self._remaining(connection, request, token, sizes)) < len(places):
                refused |= dict.fromkeys(places[remaining:], StoreResult.TOO_MANY)
        return refused

    def _remaining(self, connection: Connection, request: bytes, token: CallbackToken, sizes: Sequence[int]) -> int:
        """Return how many more reports of a request may be stored, of those that came with these sizes."""
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

    def _usage(self, request: bytes) -> _Usage:
        usage = self._usages.get(request)
        if usage is not None:
            self._usages.move_to_end(request)
            return usage
        usage = self._usages[request] = _Usage()
        if len(self._usages) > _MOST_REQUESTS:
            self._usages.popitem(last=False)
        return usage


def _size(body: str) -> int:
    """Return how many bytes a body has; to encode it takes long."""
    return len(body) if body.isascii() else len(body.encode())


def _horizon(connection: Connection, tokens: Sequence[CallbackToken]) -> datetime | None:
    """Return up to when requests were pruned, ``None`` where that matters to none of these."""
    youngest = datetime.now(UTC) - MIN_RETENTION
    oldest = min((token.issued for token in tokens if token.issued), default=youngest)
    return pruned_before(connection) if oldest < youngest else None


def _used(connection: Connection, request: bytes) -> tuple[int, int]:
    """Return how many reports of a request are stored, and how many bytes their bodies take."""
    length = _LENGTH[connection.dialect.name]
    theirs = reports.c.digest.between(request + bytes(32 - PREFIX_BYTES), request + b"\xff" * (32 - PREFIX_BYTES))
    number, size = connection.execute(select(func.count(), func.coalesce(func.sum(length), 0)).where(theirs)).one()
    return int(number), int(size)
