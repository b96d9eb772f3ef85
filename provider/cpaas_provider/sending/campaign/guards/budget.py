"""The budget of a campaign: no request is started that would exceed it, as far as the price is known."""

from __future__ import annotations

import math
from collections.abc import Collection
from dataclasses import dataclass, field
from decimal import Decimal

from msgspec import Struct

from cpaas_provider.api.amounts import Amount, format_amount, known_cost, known_figure, to_decimal
from cpaas_provider.sending.campaign.guards.advice import advise
from cpaas_provider.sending.campaign.guards.spending import Spending
from cpaas_provider.sending.errors import SendingError

_NOTHING = Decimal()


class ReachedLimit(Struct, frozen=True):
    """Where a campaign stopped.

    :param name: ``max_charge`` or ``min_balance``
    :param allowed: the limit
    :param at: under ``max_charge`` what counts as spent, under ``min_balance`` what is left of the balance; both with
        what requests of unknown outcome may have cost
    :param unit_price: the price of a unit; 0 if it is not known
    """

    name: str
    allowed: Decimal
    at: Decimal
    unit_price: Decimal

    def needed(self, units: int, unit_price: Decimal) -> Decimal:
        """Return the limit under which so many units could be sent."""
        cost = units * unit_price
        return self.at + cost if self.name == "max_charge" else self.at - cost


class BudgetReachedError(SendingError):
    """The campaign stopped at ``max_charge`` or ``min_balance``.

    :param reached: the limit, ``None`` if it cannot be checked
    """

    permanent = True

    def __init__(self, message: str, reached: ReachedLimit | None = None) -> None:
        super().__init__(message)
        self.reached = reached


@dataclass
class Budget:
    """Reserves money for requests, and ends the campaign before a request that a limit does not allow.

    A request has billable units: pages where they are known, else recipients. The first request goes alone, to learn
    the price, and further ones as long as ``Spending`` does not know it. Later requests reserve the highest price seen.

    :param max_charge: the most that all tries of the campaign, or of its partition, may cost; ``None`` for no limit
    :param min_balance: the least balance that must remain on the account; ``None`` for no limit
    :param spending: counts what the requests of all tries cost
    :param refuse_missing_charge: end the campaign if a response returns no charge
    :param max_charge_of_all: the most that all partitions may cost together. The balance shows what all of them spend
    :param templates: the limits that are templates
    """

    max_charge: Decimal | None = None
    min_balance: Decimal | None = None
    spending: Spending = field(default_factory=Spending)
    refuse_missing_charge: bool = False
    max_charge_of_all: Decimal | None = None
    templates: Collection[str] = ()
    reserved: Decimal = field(default=_NOTHING, init=False)
    """The money reserved for requests in flight."""
    under_way: int = field(default=0, init=False)
    """The number of requests in flight."""

    def __post_init__(self) -> None:
        for name in ("max_charge", "min_balance", "max_charge_of_all"):
            if (amount := getattr(self, name)) is not None:
                setattr(self, name, to_decimal(amount))
        self.bounded = self.max_charge is not None or self.min_balance is not None
        """Whether there is a limit."""

    @property
    def is_probing(self) -> bool:
        """Whether the next request must have one recipient: a limit depends on what its response shows."""
        spending = self.spending
        if not self.bounded or spending.is_price_known:
            return False
        lacks_balance = self.min_balance is not None and spending.balance is None
        return spending.author_price is None or spending.has_response or lacks_balance

    def affordable(self, least: int = 1) -> float:
        """Return how many units a request may have now; 0 if a request in flight must end before.

        :param least: the units of the next recipient
        :raises BudgetReachedError: when the limit does not allow these units, and no request is in flight
        """
        if not self.bounded:
            return math.inf
        # Without a price the balance decides, and it is exact only while no request is in flight.
        if self.under_way and (self.spending.price is None or not self.spending.is_price_known):
            return 0
        left = min(self._left(), default=Decimal("Infinity"))
        price, unit_price = self.spending.price, self.spending.unit_price
        if price:
            units = math.inf if left.is_infinite() else int(left // price)
            if units < least and not self.under_way:
                raise self._reached(least)
            return max(units, 0)
        if left < 0 or (left == 0 and price is None):
            if not self.under_way:
                raise self._reached(least)
            return 0
        return max(least, int(left // unit_price)) if unit_price and not left.is_infinite() else math.inf

    def reserve(self, units: int) -> Decimal:
        """Reserve money for a request that is about to leave, and return how much."""
        if not self.bounded:
            # Nothing reads it, and arithmetic with decimals would take as long as all other decisions about a request.
            return _NOTHING
        self.under_way += 1
        amount = units * (self.spending.price or _NOTHING)
        self.reserved += amount
        return amount

    def record_charge(self, amount: Decimal, units: int, charge: Amount | None, balance: Amount | None) -> None:
        """Replace a reservation by what the request cost.

        :raises BudgetReachedError: when the response lacks a charge or balance that a limit needs
        """
        if not self.bounded:
            return
        self.release(amount)
        spending = self.spending
        charge, balance = known_cost(charge), known_figure(balance)
        if spending.price is None and charge is None:
            self._refuse_unpriced(balance)
        spending.add(units, charge, balance, self.reserved, self.under_way)
        if spending.price is None:
            # A charge of 0 proved wrong.
            self._refuse_unpriced(balance)
        if spending.balance is None and self.min_balance is not None:
            raise BudgetReachedError(
                "The service does not return the balance, so min_balance cannot be checked. No further request was "
                "started. Leave min_balance out to send the rest."
            )
        if spending.is_invisible:
            raise BudgetReachedError(
                f"The service returns no charge, and the balance does not fall, so {self._limit} cannot be checked. No "
                "further request was started. Give price_per_page, or leave this limit out."
            )

    def release(self, amount: Decimal) -> None:
        """Release a reservation, because the request was certainly not carried out."""
        if not self.bounded:
            return
        self.under_way -= 1
        self.reserved = max(_NOTHING, self.reserved - amount)

    def record_unknown(self, amount: Decimal, units: int) -> None:
        """Replace a reservation by units that count as charged, because the outcome of the request is unknown."""
        self.release(amount)
        self.spending.add_unknown(units)

    def _refuse_unpriced(self, balance: Amount | None) -> None:
        """Raise if the author or the service leaves no way to learn what a request without a charge cost."""
        if self.refuse_missing_charge:
            raise BudgetReachedError(
                "The service does not return the charge of a request, and on_missing_charge is 'fail'. No further "
                "request was started. Give price_per_page, or leave on_missing_charge out to use the balance instead."
            )
        if balance is None:
            raise BudgetReachedError(
                f"The service returns neither the charge of a request nor the balance, so {self._limit} cannot be "
                "checked. No further request was started. Give price_per_page, or leave this limit out."
            )

    @property
    def _limit(self) -> str:
        return "min_balance" if self.max_charge is None else "max_charge"

    def _committed(self) -> Decimal:
        """Return the money reserved, and what requests of unknown outcome may have cost."""
        return self.reserved + self.spending.unknown_units * self.spending.unit_price

    def _resent(self) -> Decimal:
        """Return what requests of unknown outcome may have cost whose recipients were sent to again."""
        return self.spending.resent_units * self.spending.unit_price

    def _left_of_charge(self) -> list[Decimal]:
        """Return what is left under ``max_charge``: by the costs, and by the fall of the balance beyond them."""
        if self.max_charge is None:
            return []
        spent = self.spending.total + self._committed() + self._resent()
        of_all = self.max_charge if self.max_charge_of_all is None else self.max_charge_of_all
        return [self.max_charge - spent, of_all - spent - self.spending.unexplained]

    def _left(self) -> list[Decimal]:
        """Return what is left under each limit that can be checked."""
        left = self._left_of_charge()
        if self.min_balance is not None and self.spending.balance is not None:
            left.append(self.spending.balance - self._committed() - self.min_balance)
        return left

    @staticmethod
    def _describe_unknown(cost: Decimal) -> str:
        return f", and up to {format_amount(cost)} for requests of unknown outcome" if cost else ""

    def _reached(self, least: int) -> BudgetReachedError:
        spending = self.spending
        cost = least * spending.unit_price
        price = f" One more would cost about {format_amount(cost)}." if cost else ""
        committed = self._committed()
        left = min(self._left_of_charge(), default=None)
        if left is not None and (left < cost or left <= 0):
            committed += self._resent()
            fell = ""
            if spending.unexplained:
                fell = (
                    f" The balance fell by {format_amount(spending.unexplained)} beyond that, which counts, too. It "
                    "may be other spending on the account."
                )
            return BudgetReachedError(
                f"max_charge ({format_amount(self.max_charge)}) is reached: "
                f"{format_amount(spending.total)} was charged{self._describe_unknown(committed)}.{fell}{price} "
                + advise("max_charge", self.templates, "Raise max_charge and clear the task to send the rest."),
                ReachedLimit(
                    "max_charge",
                    self.max_charge or _NOTHING,
                    spending.total + committed + spending.unexplained,
                    spending.unit_price,
                ),
            )
        balance = spending.balance or _NOTHING
        return BudgetReachedError(
            f"min_balance ({format_amount(self.min_balance)}) is reached: "
            f"the balance is {format_amount(balance)}{self._describe_unknown(committed)}.{price} "
            "Top up the account and clear the task to send the rest. "
            + advise("min_balance", self.templates, "A lower min_balance helps, too."),
            ReachedLimit("min_balance", self.min_balance or _NOTHING, balance - committed, spending.unit_price),
        )
