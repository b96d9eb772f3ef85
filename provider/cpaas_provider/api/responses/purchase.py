"""Tells whether a response contradicts itself about a purchase. Then the outcome of the purchase is unknown."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from cpaas_provider.api.bounds import is_nothing
from cpaas_provider.api.models.airtime import AirtimePurchase, PurchaseOutcome, purchase_outcome
from cpaas_provider.api.responses.values import is_refunded, leaves
from cpaas_provider.api.responses.wording import speaks_of_acceptance

_STATUS_NAMES = frozenset({"status", "state"})


def contradicts_itself(purchase: AirtimePurchase, body: Any) -> bool:
    """Tell whether a body says elsewhere that a purchase failed that it calls bought, or the other way round.

    :param body: the whole body, of which the purchase is a part or all
    """
    outcome = purchase.outcome
    if isinstance(body, Mapping):
        # What an error names as its status is not that of the purchase.
        body = {name: value for name, value in body.items() if name not in ("errors", "error")}
    words = [value for name, value in leaves(body) if name in _STATUS_NAMES and isinstance(value, str)]
    if outcome is PurchaseOutcome.BOUGHT:
        return is_refunded(body) or not all(map(_is_success, words))
    is_enveloped = isinstance(body, Mapping) and is_nothing(body.get("id"))
    if is_enveloped:
        # The status of an envelope is that of the exchange, not of the purchase.
        words = [value for name, value in leaves(body.get("data")) if name in _STATUS_NAMES and isinstance(value, str)]
    return any(purchase_outcome(word) is PurchaseOutcome.BOUGHT for word in words)


def _is_success(word: str) -> bool:
    is_bought = purchase_outcome(word) is PurchaseOutcome.BOUGHT
    return is_bought or is_nothing(word) or word.strip() == "200" or speaks_of_acceptance(word)
