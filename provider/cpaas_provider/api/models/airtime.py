"""Airtime top-ups (contract.md 2.1, 4.1; deprecated by the service)."""

from __future__ import annotations

from collections.abc import Mapping
from enum import StrEnum
from typing import Annotated, Literal

from pydantic import BeforeValidator, Field

from cpaas_provider.api.bounds import NETWORKS, SMALLEST_AMOUNT, to_number
from cpaas_provider.api.models.base import (
    CallbackUrl,
    Cost,
    Figure,
    GivenText,
    Msisdn,
    Number,
    OptionalTimestamp,
    ResourceId,
    ServiceWord,
    WireRequest,
    WireResource,
)

Network = Literal["Airtel", "MTN", "Glo", "9mobile", "NTEL"]

_NETWORK_BY_LOWER_CASE = {network.lower(): network for network in NETWORKS}


def network_name(value: object) -> object:
    """Return a network as the service writes its name; the value itself if it is none."""
    return _NETWORK_BY_LOWER_CASE.get(value.strip().lower(), value) if isinstance(value, str) else value


def _amount(value: object) -> int | float:
    """Read a number, or text as a rendered template gives it. A whole amount becomes an ``int``: 100, not 100.0."""
    number = to_number(value)
    if number is None:
        raise ValueError("must be a number")
    return int(number) if number.is_integer() else number


class PurchaseOutcome(StrEnum):
    """The outcome of a purchase, by its status."""

    BOUGHT = "bought"
    """Bought, or in flight."""
    FAILED = "failed"
    DUPLICATE = "duplicate"
    UNKNOWN = "unknown"


_OUTCOMES = {
    **dict.fromkeys(("success", "pending", "sent"), PurchaseOutcome.BOUGHT),
    **dict.fromkeys(("failed", "error"), PurchaseOutcome.FAILED),
    "duplicate": PurchaseOutcome.DUPLICATE,
}


def purchase_outcome(status: str | None) -> PurchaseOutcome:
    """Return the outcome of a purchase by its status, in a response or in a delivery report (contract.md 2.1).

    Every word that the contract does not list proves nothing.
    """
    return _OUTCOMES.get((status or "").strip().lower(), PurchaseOutcome.UNKNOWN)


def _status_text(value: object) -> object:
    """Return a status as text, also from ``{"text": ...}``. An unreadable one must not look like an absent one."""
    if isinstance(value, Mapping):
        value = next((value[name] for name in ("text", "status", "name") if name in value), "unreadable")
    return value if value is None or isinstance(value, str) else str(value)


class BuyAirtimeRequest(WireRequest):
    """Body of ``POST /airtime/buy``."""

    network: Annotated[Network, BeforeValidator(network_name)]
    amount: Annotated[Number, Field(ge=SMALLEST_AMOUNT), BeforeValidator(_amount)]
    recipient: Msisdn
    callback: CallbackUrl | None = None
    external_ref: GivenText | None = None


class Charge(WireResource):
    """The cost of an airtime purchase, and the balance before and after it."""

    amount: Cost = None
    available_balance: Figure = None
    balance_before: Figure = None
    refunded: bool | None = None


class PurchaseMeta(WireResource):
    """``meta`` of an airtime purchase. With an ``id``, the purchase was accepted, so every figure may be missing."""

    method: str | None = None
    resource: str | None = None
    charge: Charge | None = None


class AirtimePurchase(WireResource):
    """A purchase the service accepted; ``meta.charge`` shows the charge and the balance.

    ``status`` is pending, sent, success, failed, error or duplicate, or a word that the contract does not list.
    """

    id: ResourceId
    recipient: str | None = None
    external_ref: str | None = None
    callback: str | None = None
    status: Annotated[ServiceWord | None, BeforeValidator(_status_text)] = None
    created_datetime: OptionalTimestamp = None
    network: ServiceWord | None = None
    meta: PurchaseMeta | None = None

    @property
    def outcome(self) -> PurchaseOutcome:
        """The outcome of the purchase. Without a status it was accepted. What was refunded was not bought."""
        outcome = PurchaseOutcome.BOUGHT if self.status is None else purchase_outcome(self.status)
        is_refunded = self.meta is not None and self.meta.charge is not None and self.meta.charge.refunded
        return PurchaseOutcome.UNKNOWN if is_refunded and outcome is PurchaseOutcome.BOUGHT else outcome
