"""The ``meta`` block of sends and purchases: balance and cost (INTERFACE.md 2.1 to 2.3).

The contract marks some of these required. They are read leniently all the same: with an ``id``, the request was
accepted, and a missing figure must not turn that into an unknown outcome.
"""

from __future__ import annotations

import math
from typing import Annotated

from pydantic import AfterValidator

from cpaas_provider.api.models.base import Number, WireResource

_LARGEST = 10**15
"""A larger figure cannot be a price, a balance or a count."""


def _plausible(figure: Number | None) -> Number | None:
    """Return a figure that can be summed and stored; ``None`` instead of any other, such as NaN."""
    return figure if figure is None or (math.isfinite(figure) and abs(figure) <= _LARGEST) else None


Figure = Annotated[Number | None, AfterValidator(_plausible)]


class Estimate(WireResource):
    """Cost of a message request; ``encoding``, ``message_length`` and ``pages`` only for SMS."""

    available_balance: Figure = None
    charge: Figure = None
    encoding: str | None = None
    message_length: Figure = None
    pages: Figure = None


class Charge(WireResource):
    """The cost of an airtime purchase, and the balance before and after it."""

    amount: Figure = None
    available_balance: Figure = None
    balance_before: Figure = None
    refunded: bool | None = None


class MessageMeta(WireResource):
    """``meta`` of an SMS or email message."""

    method: str | None = None
    resource: str | None = None
    estimate: Estimate | None = None


class PurchaseMeta(WireResource):
    """``meta`` of an airtime purchase."""

    method: str | None = None
    resource: str | None = None
    charge: Charge | None = None
