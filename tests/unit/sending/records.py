"""Requests as a journal has them, made up."""

from __future__ import annotations

from datetime import datetime
from typing import Any

from cpaas_provider.sending.journal.model import Intent, RequestRecord, Result, State


def member(name: str) -> bytes:
    """Return the hash of a recipient, recognisable."""
    return name.encode().ljust(9, b".")


def record(
    reference: str,
    operation: str = "send_sms",
    members: tuple[str, ...] = ("a",),
    state: State = State.UNKNOWN,
    *,
    number: int = 0,
    started_at: datetime | None = None,
    probe_snapshot: Any = None,
    previous_unknown: bool = False,
    **outcome: Any,
) -> RequestRecord:
    """Return a request in a state."""
    packed = b"".join(map(member, members))
    return RequestRecord(
        Intent(number, reference, packed, probe_snapshot=probe_snapshot, previous_unknown=previous_unknown),
        operation,
        started_at,
        outcome=None if state is State.PENDING else Result(number, state, **outcome),
    )
