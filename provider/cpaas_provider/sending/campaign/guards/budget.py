"""The budget of a campaign: no request is started that would exceed it, as far as the price is known."""

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
    """Counts the money that requests cost, by the charge and the balance that responses return.

    A request has billable units: pages where they are known, else recipients. The first request goes alone, to learn
    the price. Later requests reserve the highest price seen. If responses return no charge, requests go one after the
    other, and the loss of the balance counts as the charge.

    :param max_charge: the most that all tries of the campaign may cost; ``None`` for no limit
    :param min_balance: the least balance that must remain on the account; ``None`` for no limit
    :param price: the price of one unit, from the author or from a response; ``None`` if not known yet
    :param spent: the charge of the accepted requests of all tries
    :param reserved: the money reserved for requests in flight
    :param unknown_units: units of requests of unknown outcome, which may have been charged
    :param unpriced: units of accepted requests whose charge is not known
    :param balance: the last balance returned; ``None`` before the first
    :param refuse_missing_charge: end the campaign if a response returns no charge
    :param under_way: the number of requests in flight
    :param has_response: whether a request was accepted in this try
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
    """The loss of the balance by ``_lost_units`` of requests whose responses return no charge."""
    _lost_units: int = 0

    def __post_init__(self) -> None:
        for name in ("max_charge", "min_balance", "price", "spent", "reserved", "balance"):
            if (amount := getattr(self, name)) is not None:
                setattr(self, name, to_decimal(amount))
        self.bounded = self.max_charge is not None or self.min_balance is not None
        """Whether there is a limit."""

    @property
    def unpriced_yet(self) -> bool:
        """Whether there is a limit, and no response has shown the price yet."""
        return self.bounded and self.price is None and not self.has_response

    def affordable(self, least: int = 1) -> float:
        """Return how many units a request may have now; 0 if a request in flight must end before.

        :param least: the units of the next recipient
        :raises BudgetReachedError: when the limit does not allow these units, and no request is in flight
        """
        if not self.bounded:
            return math.inf
        # Without a price the balance decides, and it is exact only while no request is in flight.
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
        unit_price = self._unit_price
        return max(least, int(left // unit_price)) if unit_price and not left.is_infinite() else math.inf

    def reserve(self, units: int) -> Decimal:
        """Reserve money for a request that is about to leave, and return how much."""
        if not self.bounded:
            # Nothing reads it, and arithmetic with decimals would take as long as all other decisions about a request.
            return _NOTHING
        self.under_way += 1
        amount = units * (self.price or Decimal())
        self.reserved += amount
        return amount

    def record_charge(self, amount: Decimal, units: int, charge: Amount | None, balance: Amount | None) -> None:
        """Replace a reservation by the charge that the service returns.

        :raises BudgetReachedError: when the response lacks a charge or balance that a limit needs
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
        """Count the loss of the balance as the charge of the request, which was in flight alone."""
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
        """Release a reservation, because the request was certainly not carried out."""
        if not self.bounded:
            return
        self.under_way -= 1
        self.reserved = max(Decimal(), self.reserved - amount)

    def record_unknown(self, amount: Decimal, units: int) -> None:
        """Replace a reservation by units that count as charged, because the outcome of the request is unknown."""
        self.release(amount)
        self.unknown_units += units

    @property
    def _unit_price(self) -> Decimal:
        """The price of one unit, or its estimate from the loss of the balance; 0 if neither is known."""
        if self.price is not None:
            return self.price
        return divide(self._lost, self._lost_units) if self._lost_units else Decimal()

    def _committed(self) -> Decimal:
        """Return the money reserved, and what requests of unknown outcome may have cost."""
        return self.reserved + self.unknown_units * self._unit_price

    def _all_spent(self) -> Decimal:
        return self.spent + self.unpriced * self._unit_price

    def _left(self) -> list[Decimal]:
        """Return what is left under each limit; infinity if no limit can be checked yet."""
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
