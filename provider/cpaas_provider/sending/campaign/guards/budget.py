"""What a campaign may cost: no request is begun that would go beyond it, as far as the price is known."""

from __future__ import annotations

import logging
import math
from dataclasses import dataclass
from decimal import Decimal

from cpaas_provider.api.amounts import Amount, divide, format_amount, to_decimal
from cpaas_provider.sending.errors import SendingError

log = logging.getLogger(__name__)

_NOTHING = Decimal()


class BudgetReachedError(SendingError):
    """The campaign stopped at ``max_charge`` or ``min_balance``."""

    permanent = True


@dataclass
class Budget:
    """Money, as the service tells it with each answer.

    Units are pages where they are known, else recipients. The first request goes alone, to learn the price; later ones
    reserve the highest price seen. Where answers do not say what they cost, all go alone, and the balance tells it.

    :param max_charge: what the campaign may cost in all its tries; ``None`` for no bound
    :param min_balance: what must be left of the account's balance; ``None`` for no bound
    :param price: of one unit, as far as known; given by the author or seen
    :param spent: what answered requests of all tries have cost
    :param reserved: what requests under way may cost
    :param unpriced: units of requests of earlier tries that were accepted without a charge in the response
    :param refuse_missing_charge: end the campaign where answers do not say what they cost
    :param unknown_units: units of requests of unknown outcome, which may have been charged
    """

    max_charge: Decimal | None = None
    min_balance: Decimal | None = None
    price: Decimal | None = None
    spent: Decimal = Decimal()
    reserved: Decimal = Decimal()
    unknown_units: int = 0
    unpriced: int = 0
    balance: Decimal | None = None
    refuse_missing_charge: bool = False
    under_way: int = 0
    has_response: bool = False
    _lost: Decimal = Decimal()
    """What the balance lost by requests whose answers do not say what they cost."""
    _lost_units: int = 0

    def __post_init__(self) -> None:
        for name in ("max_charge", "min_balance", "price", "spent", "reserved", "balance"):
            if (amount := getattr(self, name)) is not None:
                setattr(self, name, to_decimal(amount))

    @property
    def bounded(self) -> bool:
        """Whether there is any bound to keep."""
        return self.max_charge is not None or self.min_balance is not None

    @property
    def unpriced_yet(self) -> bool:
        """Whether there is a bound to keep, and no answer yet that could tell the price to keep it by."""
        return self.bounded and self.price is None and not self.has_response

    def affordable(self, least: int = 1) -> float:
        """Return how many units a request may have now.

        :param least: units of the next recipient, who cannot be sent to for fewer
        :raises BudgetReachedError: when so many may not, whatever comes of the requests under way
        """
        if not self.bounded:
            return math.inf
        # Without a price the balance says how far it is, once everything under way is answered.
        if self.under_way and (self.price is None or not self.has_response):
            return 0
        left = min(self._left())
        if self.price:
            units = math.inf if left.is_infinite() else int(left // self.price)
            if units < least and not self.under_way:
                raise BudgetReachedError(self._reached(least))
            return max(units, 0)
        if left < 0 or (left == 0 and self.price is None):
            if not self.under_way:
                raise BudgetReachedError(self._reached(least))
            return 0
        usual = self._unit_price
        return max(least, int(left // usual)) if usual and not left.is_infinite() else math.inf

    def reserve(self, units: int) -> Decimal:
        """Set money aside for a request about to be sent, and return how much."""
        if not self.bounded:
            # It is not asked for, and decimals cost as much as the rest of what is decided about a request.
            return _NOTHING
        self.under_way += 1
        amount = units * (self.price or Decimal())
        self.reserved += amount
        return amount

    def record_charge(self, amount: Decimal, units: int, charge: Amount | None, balance: Amount | None) -> None:
        """Replace a reservation by the charge that the service returns.

        :raises BudgetReachedError: when it does not say, and no bound can be kept
        """
        if not self.bounded:
            return
        self.release(amount)
        if charge is not None:
            self.spent += to_decimal(charge)
            if units:
                self.price = max(self.price or Decimal(), divide(charge, units))
        elif self.price is not None:
            self.spent += units * self.price
        else:
            self._count_by_balance(units, balance)
        if balance is not None:
            self.balance = to_decimal(balance)
        elif self.balance is not None:
            self.balance -= to_decimal(charge) if charge is not None else units * self._unit_price
        elif self.min_balance is not None:
            raise BudgetReachedError(
                "The service does not return the balance, so min_balance cannot be checked. No further request was "
                "started. Leave min_balance out to send the rest."
            )
        self.has_response = True

    def _count_by_balance(self, units: int, balance: Amount | None) -> None:
        """Take the loss of the balance as the charge of a request that was in flight alone."""
        if self.refuse_missing_charge:
            raise BudgetReachedError(
                "The service does not return the charge of a request, and on_missing_charge is 'fail'. No further "
                "request was started. Give price_per_page, or leave on_missing_charge out to use the balance instead."
            )
        if balance is None:
            raise BudgetReachedError(
                "The service returns neither the charge of a request nor the balance, so "
                f"{'min_balance' if self.max_charge is None else 'max_charge'} cannot be checked. No further request "
                "was started. Give price_per_page, or leave this limit out."
            )
        if not self.has_response:
            log.warning(
                "Responses name no charge. From now on one request is sent after the other, and the loss of the "
                "balance counts as its charge. price_per_page makes this faster and more exact."
            )
        if self.balance is None:
            self.unpriced += units
            return
        lost = max(Decimal(), self.balance - to_decimal(balance))
        self.spent += lost
        self._lost += lost
        self._lost_units += units

    def release(self, amount: Decimal) -> None:
        """Give a reservation back: the request was surely not carried out."""
        if not self.bounded:
            return
        self.under_way -= 1
        self.reserved = max(Decimal(), self.reserved - amount)

    def record_unknown(self, amount: Decimal, units: int) -> None:
        """Count a request of unknown outcome as charged."""
        self.release(amount)
        self.unknown_units += units

    @property
    def _unit_price(self) -> Decimal:
        """What a unit costs as far as it is known."""
        if self.price is not None:
            return self.price
        return divide(self._lost, self._lost_units) if self._lost_units else Decimal()

    def _committed(self) -> Decimal:
        """Return what is, or may be, spent beside the charges that the service returned."""
        return self.reserved + self.unknown_units * self._unit_price

    def _all_spent(self) -> Decimal:
        return self.spent + self.unpriced * self._unit_price

    def _left(self) -> list[Decimal]:
        left = list[Decimal]()
        if self.max_charge is not None:
            left.append(self.max_charge - self._all_spent() - self._committed())
        if self.min_balance is not None and self.balance is not None:
            left.append(self.balance - self._committed() - self.min_balance)
        return left or [Decimal("Infinity")]

    def _reached(self, least: int) -> str:
        cost = least * self._unit_price
        price = f" One more would cost about {format_amount(cost)}." if cost else ""
        unknown = (
            f", and up to {format_amount(self._committed())} for requests of unknown outcome"
            if self._committed()
            else ""
        )
        left = None if self.max_charge is None else self.max_charge - self._all_spent() - self._committed()
        if left is not None and (left < cost or left <= 0):
            return (
                f"max_charge ({format_amount(self.max_charge)}) is reached: "
                f"{format_amount(self._all_spent())} was charged{unknown}.{price} "
                "Raise max_charge and clear the task to send the rest."
            )
        return (
            f"min_balance ({format_amount(self.min_balance)}) is reached: "
            f"the balance is {format_amount(self.balance or 0)}{unknown}.{price} "
            "Top up the account, or lower min_balance, and clear the task to send the rest."
        )
