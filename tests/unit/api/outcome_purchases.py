"""What a purchase of airtime may be called: an oracle from PROMISES.md and FACTS.md alone."""

from __future__ import annotations

import enum
from collections.abc import Mapping
from typing import Any

from tests.unit.api.outcome_evidence import as_code


class Purchase(enum.Enum):
    BOUGHT = "bought, or in flight"
    FAILED = "failed"
    UNKNOWN = "unknown"


_STATUSES = {
    "pending": Purchase.BOUGHT,
    "sent": Purchase.BOUGHT,
    "success": Purchase.BOUGHT,
    "failed": Purchase.FAILED,
    "error": Purchase.FAILED,
    "duplicate": Purchase.FAILED,
}


def purchase_outcomes(body: Any) -> frozenset[Purchase]:
    """Return what a purchase with an id may be called, by all that its body says of its status."""
    allowed = None
    records = [body, body.get("data")] if isinstance(body, dict) else []
    for record in (record for record in records if isinstance(record, dict)):
        is_envelope = record is body and isinstance(body.get("data"), dict)
        if as_code(record.get("status")) is None and (record.get("status") is not None or not is_envelope):
            said = _said_of_purchase(record.get("status"), absent=is_envelope)
            allowed = said if allowed is None else _both(allowed, said)
        if _is_refunded(record):
            refunded = frozenset({Purchase.FAILED, Purchase.UNKNOWN})
            allowed = refunded if allowed is None else _both(allowed, refunded)
    return allowed or frozenset({Purchase.BOUGHT, Purchase.UNKNOWN})


def _both(one: frozenset[Purchase], other: frozenset[Purchase]) -> frozenset[Purchase]:
    """Return what may be said where two places speak of the purchase: what both allow, or that it is unknown."""
    if one == other:
        return one
    failed = {Purchase.FAILED} & (one | other)
    return frozenset({Purchase.UNKNOWN} | failed | (one & other))


def _said_of_purchase(status: Any, *, absent: bool) -> frozenset[Purchase]:
    if status is None and not absent:
        # The contract has a new purchase pending.
        return frozenset({Purchase.BOUGHT, Purchase.UNKNOWN})
    if isinstance(status, str) and status in _STATUSES:
        return frozenset({_STATUSES[status]})
    word = status.get("text") if isinstance(status, dict) else status
    known = _STATUSES.get(word.strip().casefold()) if isinstance(word, str) else None
    return frozenset({Purchase.UNKNOWN, *([known] if known else [])})


def _is_refunded(record: Mapping[str, Any]) -> bool:
    meta = record.get("meta")
    charge = meta.get("charge") if isinstance(meta, dict) else None
    found = [holder.get("refunded") for holder in (record, charge) if isinstance(holder, dict)]
    return True in found
