"""What the requests of a campaign cost, by the most careful evidence.

There are three pieces of evidence: the charge that a response names, the fall of the balance, and the author's price.
The highest of them counts. A charge of 0 while the balance falls is no evidence, nor is what ``amounts.known_cost``
leaves out.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable
from dataclasses import dataclass, field
from decimal import Decimal
from typing import NamedTuple

from cpaas_provider.api.amounts import Amount, divide, known_cost, known_figure, to_decimal, to_decimal_or_none

log = logging.getLogger(__name__)

_NOTHING = Decimal()
_PROBES = 3
"""The most requests that go alone to compare charge and balance. Other spending on the account may lower the balance
during one of them, and hardly during each."""
_PAUSE = 60.0
"""Seconds without a request after which the balance of an earlier try is not compared with the one before."""


class EarlierRequest(NamedTuple):
    """A request of an earlier try that was accepted, or whose outcome is unknown.

    :param at: when it was started, in seconds
    :param units: its billable units
    """

    at: float
    units: int
    charge: Amount | None
    balance: Amount | None
    is_unknown: bool = False


@dataclass
class _Stretch:
    """Requests in a row, from a moment at which none was in flight.

    :param start: the balance at that moment; ``None`` if it is not known
    :param lowest: the lowest balance since. Responses overtake each other, so it may not be the last one
    :param explained: the cost of its requests
    :param unexplained: by how much the balance fell beyond that
    :param unknown_units: units of its requests of unknown outcome
    :param unpriced: units of its requests whose cost only the balance shows
    :param priced: units of its other accepted requests
    :param requests: the number of its accepted requests
    """

    start: Decimal | None = None
    lowest: Decimal | None = None
    explained: Decimal = _NOTHING
    unexplained: Decimal = _NOTHING
    unknown_units: int = 0
    unpriced: int = 0
    priced: int = 0
    requests: int = 0

    def fall(self, balance: Decimal | None) -> Decimal | None:
        """Return by how much the balance fell so far; ``None`` if that is not known."""
        if balance is None or self.start is None or self.has_payment(balance):
            return None
        self.lowest = balance if self.lowest is None else min(self.lowest, balance)
        return self.start - self.lowest

    def has_payment(self, balance: Decimal | None) -> bool:
        """Return whether the balance is above the start, so that money was paid into the account."""
        return balance is not None and self.start is not None and balance > self.start

    def beyond_explained(self) -> Decimal:
        """Return by how much the balance fell beyond the cost of its requests, those of unknown outcome included."""
        if self.start is None or self.lowest is None:
            return _NOTHING
        fell = max(_NOTHING, self.start - self.lowest - self.explained)
        if not self.unknown_units:
            return fell
        if self.priced:
            return max(_NOTHING, fell - self.unknown_units * divide(self.explained, self.priced))
        return fell * self.unpriced / (self.unpriced + self.unknown_units)


@dataclass
class Spending:
    """Counts what accepted requests cost, and learns the price of a unit.

    The price is known once the balance falls by no more than the charge of a request that went alone. If responses
    return no balance, the charge alone decides. If they return no charge, requests go one after the other, and the fall
    of the balance is their cost.

    :param author_price: the price of one unit, from the author
    :param spent: the cost of accepted requests
    :param unpriced: units of accepted requests whose cost is not known
    :param unknown_units: units of requests of unknown outcome, which may have been charged
    :param resent_units: units of requests of unknown outcome whose recipients were sent to again. The balance shows
        their cost already
    """

    author_price: Decimal | None = None
    spent: Decimal = _NOTHING
    unpriced: int = 0
    unknown_units: int = 0
    resent_units: int = 0
    price: Decimal | None = field(default=None, init=False)
    """The highest price of one unit, given or seen; ``None`` if none is known."""
    balance: Decimal | None = field(default=None, init=False)
    """The last balance, as far as it is known."""
    is_price_known: bool = field(default=False, init=False)
    """Whether a request may have several units, and several may be in flight."""
    has_response: bool = field(default=False, init=False)

    def __post_init__(self) -> None:
        self.price = self.author_price = to_decimal_or_none(self.author_price)
        self.spent = to_decimal(self.spent)
        self._stretch = _Stretch()
        self._unexplained = _NOTHING
        # Of requests whose cost only the balance shows.
        self._lost, self._lost_units = _NOTHING, 0
        self._free_units = 0
        self._higher_prices = list[Decimal]()
        self._probes = 0

    def add_earlier(self, requests: Iterable[EarlierRequest]) -> None:
        """Count the accepted requests of earlier tries, in the order in which they were started.

        Those of unknown outcome explain a fall of the balance. ``unknown_units`` has their cost.
        """
        stretch, last_at = _Stretch(), 0.0
        for request in requests:
            balance = _figure(request.balance)
            if request.at - last_at > _PAUSE or stretch.has_payment(balance):
                self._close(stretch)
                stretch = _Stretch()
            last_at = request.at
            if request.is_unknown:
                stretch.unknown_units += request.units if stretch.start is not None else 0
                continue
            cost = self._highest(_cost(request.charge), request.units)
            self.spent += cost or _NOTHING
            if stretch.start is None:
                # This balance is less the cost of the request already.
                stretch.start = balance
                self.unpriced += request.units if cost is None else 0
                continue
            if cost is None:
                stretch.unpriced += request.units
            else:
                stretch.priced += request.units
                stretch.explained += cost
            stretch.fall(balance)
        self._close(stretch)

    def add(self, units: int, charge: Amount | None, balance: Amount | None, reserved: Decimal, in_flight: int) -> None:
        """Count an accepted request.

        :param reserved: the money reserved for the requests in flight
        :param in_flight: their number
        """
        charge, balance = _cost(charge), _figure(balance)
        stretch = self._stretch
        is_alone = not (in_flight or stretch.requests or stretch.unknown_units)
        fall = stretch.fall(balance)
        if charge == 0 and fall:
            charge = None
            self._drop_free_units()
        cost = self._highest(charge, units)
        if cost is None and self.price is not None:
            cost = units * self.price
        by_balance = cost is None
        if cost is None:
            cost = self._count_by_balance(units, fall)
        if charge is not None:
            self._free_units += 0 if charge else units
            self.price = max(self.price or _NOTHING, divide(charge, units or 1))
        self.spent += cost
        stretch.requests += 1
        stretch.explained += cost
        if fall is not None:
            maybe = reserved + stretch.unknown_units * self.unit_price
            stretch.unexplained = max(_NOTHING, fall - stretch.explained - maybe)
        self._learn_price(units, fall, balance, is_alone=is_alone, by_balance=by_balance)
        self._take_balance(balance, cost, in_flight)
        self.has_response = True

    def add_unknown(self, units: int) -> None:
        """Count a request of unknown outcome, which may have been charged."""
        self.unknown_units += units
        self._stretch.unknown_units += units

    @property
    def unit_price(self) -> Decimal:
        """The price of one unit, or its estimate from the fall of the balance; 0 if neither is known."""
        if self.price is not None:
            return self.price
        return divide(self._lost, self._lost_units) if self._lost_units else _NOTHING

    @property
    def total(self) -> Decimal:
        """What accepted requests cost."""
        return self.spent + self.unpriced * self.unit_price

    @property
    def unexplained(self) -> Decimal:
        """By how much the balance fell beyond the cost of the requests."""
        return self._unexplained + self._stretch.unexplained

    @property
    def is_invisible(self) -> bool:
        """Whether neither a charge nor the balance shows what requests cost."""
        return self.price is None and self._probes >= _PROBES and not self._lost

    def _highest(self, charge: Decimal | None, units: int) -> Decimal | None:
        """Return the cost by charge and author's price, the higher of the two; ``None`` if there is neither."""
        if self.author_price is None:
            return charge
        return max(charge or _NOTHING, units * self.author_price)

    def _drop_free_units(self) -> None:
        """Take what was charged 0 for units of unknown cost, because such a charge proved wrong."""
        self.unpriced += self._free_units
        self._free_units = 0
        if self.price == 0:
            self.price = self.author_price

    def _count_by_balance(self, units: int, fall: Decimal | None) -> Decimal:
        """Return the fall of the balance as the cost of a request."""
        if not self.has_response:
            log.warning(
                "Responses name no charge. From now on one request is sent after the other, and the loss of the "
                "balance counts as its charge. price_per_page makes this faster and more exact."
            )
        if fall is None:
            self.unpriced += units
            return _NOTHING
        lost = max(_NOTHING, fall - self._stretch.explained)
        self._lost += lost
        self._lost_units += units
        return lost

    def _learn_price(
        self, units: int, fall: Decimal | None, balance: Decimal | None, *, is_alone: bool, by_balance: bool
    ) -> None:
        """Decide whether the price is known, by what a request that was in flight alone cost."""
        stretch = self._stretch
        if self.is_price_known:
            if stretch.unexplained > stretch.explained:
                # The requests seem to cost more than twice as much.
                self.is_price_known, self._probes = False, 0
                self._higher_prices.clear()
            return
        if balance is None or (self.author_price is not None and not self.has_response):
            self.is_price_known = True
            return
        if not is_alone:
            return
        self._probes += 1
        if by_balance:
            self.is_price_known = bool(fall)
        elif fall is not None and fall > stretch.explained:
            self._higher_prices.append(divide(fall, units or 1))
        elif fall is not None:
            self.is_price_known = True
        if self._probes >= _PROBES and not self.is_price_known:
            if self._higher_prices:
                # The lowest: other spending on the account makes the others higher.
                self.price = max(self.price or _NOTHING, min(self._higher_prices))
            self.is_price_known = True

    def _take_balance(self, balance: Decimal | None, cost: Decimal, in_flight: int) -> None:
        """Take the balance of a response, and begin another stretch if no request is in flight."""
        stretch = self._stretch
        is_newest = stretch.has_payment(balance) or (not in_flight and stretch.requests == 1)
        if balance is None:
            self.balance = None if self.balance is None else self.balance - cost
        elif self.balance is None or is_newest:
            self.balance = balance
        else:
            # A response that another one overtook has an older balance.
            self.balance = min(self.balance, balance)
        if not in_flight or stretch.has_payment(balance):
            self._unexplained += stretch.unexplained
            self._stretch = _Stretch(self.balance)

    def _close(self, stretch: _Stretch) -> None:
        """Count by how much the balance fell in a stretch of an earlier try beyond the cost of its requests."""
        lost = stretch.beyond_explained()
        if not stretch.unpriced:
            self._unexplained += lost
        elif lost:
            self.spent += lost
            self._lost += lost
            self._lost_units += stretch.unpriced
        else:
            self.unpriced += stretch.unpriced


def _cost(value: Amount | None) -> Decimal | None:
    return to_decimal_or_none(known_cost(value))


def _figure(value: Amount | None) -> Decimal | None:
    return to_decimal_or_none(known_figure(value))
