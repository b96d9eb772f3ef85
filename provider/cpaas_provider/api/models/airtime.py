"""Airtime top-ups (INTERFACE.md 2.1, 4.1; deprecated by the service)."""

from __future__ import annotations

import math
from typing import Annotated, Literal

from pydantic import BeforeValidator, Field

from cpaas_provider.api.bounds import NETWORKS, SMALLEST_AMOUNT
from cpaas_provider.api.models.base import (
    CallbackUrl,
    Identifier,
    Msisdn,
    Number,
    OptionalTimestamp,
    Reference,
    WireRequest,
    WireResource,
)
from cpaas_provider.api.models.meta import PurchaseMeta

Network = Literal["Airtel", "MTN", "Glo", "9mobile", "NTEL"]

_NETWORK_BY_LOWER_CASE = {network.lower(): network for network in NETWORKS}


def _network(value: object) -> object:
    return _NETWORK_BY_LOWER_CASE.get(value.strip().lower(), value) if isinstance(value, str) else value


def _amount(value: object) -> object:
    """Read a number, or text as a rendered template gives it. A whole amount becomes an ``int``: 100, not 100.0."""
    if isinstance(value, bool):
        raise ValueError("must be a number")
    try:
        number = float(value)  # type: ignore[arg-type]  # anything else raises TypeError, caught below
    except (TypeError, ValueError, OverflowError):
        raise ValueError("must be a number") from None
    if not math.isfinite(number):
        raise ValueError("must be a number")
    return int(number) if number.is_integer() else number


class BuyAirtimeRequest(WireRequest):
    """Body of ``POST /airtime/buy``."""

    network: Annotated[Network, BeforeValidator(_network)]
    amount: Annotated[Number, Field(ge=SMALLEST_AMOUNT), BeforeValidator(_amount)]
    recipient: Msisdn
    callback: CallbackUrl | None = None
    external_ref: Reference | None = None


class AirtimePurchase(WireResource):
    """A purchase the service accepted; ``meta.charge`` shows the charge and the balance.

    ``status`` is pending, sent, success, failed, error or duplicate, or a word that the contract does not list.
    """

    id: Identifier
    recipient: str | None = None
    external_ref: str | None = None
    callback: str | None = None
    status: str | None = None
    created_datetime: OptionalTimestamp = None
    network: str | None = None
    meta: PurchaseMeta | None = None
