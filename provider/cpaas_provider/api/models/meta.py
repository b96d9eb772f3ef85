"""The ``meta`` block of sends and purchases: balance and cost (INTERFACE.md 2.1 to 2.3).

The contract marks some of these required. They are read leniently all the same: with an ``id``, the request was
accepted, and a missing figure must not turn that into an unknown outcome.
"""

from __future__ import annotations

from cpaas_provider.api.models.base import Number, WireResource


class Estimate(WireResource):
    """Cost of a message request; ``encoding``, ``message_length`` and ``pages`` only for SMS."""

    available_balance: Number | None = None
    charge: Number | None = None
    encoding: str | None = None
    message_length: Number | None = None
    pages: Number | None = None


class Charge(WireResource):
    """What an airtime purchase did to the balance."""

    amount: Number | None = None
    available_balance: Number | None = None
    balance_before: Number | None = None
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
