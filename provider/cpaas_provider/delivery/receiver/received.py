"""A delivery report that is genuine and not stored yet, and what becomes of it."""

from __future__ import annotations

from datetime import datetime
from enum import Enum
from typing import Literal, NamedTuple

from cpaas_provider.delivery.callbacks.tokens import CallbackToken
from cpaas_provider.delivery.reports import Report

ReportSource = Literal["callback", "webhook"]


class ReceivedReport(NamedTuple):
    """An authentic report, as it came.

    :param conn_id: the connection it came for
    :param token: what the callback URL says; ``None`` at the account webhook
    :param body: the raw JSON text
    :param at: when it came, with its time zone
    """

    conn_id: str
    source: ReportSource
    token: CallbackToken | None
    report: Report
    body: str
    at: datetime


class StoreResult(Enum):
    """What the store made of it: the first four are kept for good, the others are not stored."""

    NEW = "new"
    REPEATED = "repeated"
    UNREADABLE = "unreadable"
    # It is about a recipient whom its request does not have: it is kept as it came, and nothing else.
    EXCESS = "excess"
    # It came to the callback URL of a request that was pruned, or that has brought all that it may.
    EXPIRED = "expired"
    TOO_MANY = "too_many"
