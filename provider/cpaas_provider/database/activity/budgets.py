"""What the requests of a connection cost in a day and in a month, over all DAGs.

A request reserves money before it leaves, and what it cost replaces the reservation afterwards. A process that is
killed in between leaves the reservation, which counts as spent. Amounts are stored in millionths, rounded up.
"""

from __future__ import annotations

import secrets
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime, timedelta
from decimal import ROUND_CEILING, Decimal
from typing import Any, NamedTuple

from msgspec import Struct
from sqlalchemy import ColumnElement, Connection, and_, func, insert, or_, select, update

from cpaas_provider.database.database import Database
from cpaas_provider.database.recipients.locks import lock_for_writing
from cpaas_provider.database.schema.accounts import budgets, prices

_MILLION = 1_000_000
WARN_AT = Decimal("0.8")
"""The share of a budget at which the log has a warning, once."""

PERIOD_FORMS = {"daily_budget": "%Y-%m-%d", "monthly_budget": "%Y-%m"}
"""How the name of a day or a month is written. The lengths differ, and names of the same length sort by time."""

PROBE_LEASE = timedelta(minutes=5)
"""The longest time for which a request goes alone to learn the price. Longer than a request with its retries."""


class MissingPriceError(Exception):
    """The service names no charge of this operation, and the connection has no price of it."""


class UnknownPriceError(Exception):
    """No price is known yet, so a request to several recipients cannot be checked. One to one recipient shows it."""


class BudgetPeriod(Struct, frozen=True):
    """One period of a budget.

    :param option: the option of the connection
    :param name: the day or the month, such as ``2026-11-28``
    :param limit: the most that may be spent
    """

    option: str
    name: str
    limit: Decimal


class Spent(NamedTuple):
    """What is spent and reserved in a period, before and after a change."""

    period: BudgetPeriod
    before: Decimal
    after: Decimal

    @property
    def reaches_warning(self) -> bool:
        """Whether the change brought it to ``WARN_AT``."""
        return self.before < WARN_AT * self.period.limit <= self.after


class Full(Struct, frozen=True):
    """A budget that does not allow a request.

    :param spent: what was spent and is reserved
    :param cost: the cost of the request
    """

    period: BudgetPeriod
    spent: Decimal
    cost: Decimal


class Reserved(Struct, frozen=True):
    """The money that is reserved for a request.

    :param probe: the token of a request that goes alone, because no price is known; ``None`` for others
    :param spent: what is spent and reserved in each period with this request
    """

    operation: str
    units: int
    amount: Decimal
    periods: Sequence[BudgetPeriod]
    probe: str | None = None
    spent: Sequence[Spent] = ()


class BudgetTable:
    """The budgets of one connection. Its name has no regard to case, as in the names of environment variables."""

    def __init__(self, database: Database, conn_id: str) -> None:
        self._database = database
        self._name = conn_id.lower()

    def reserve(
        self, operation: str, units: int, least: Decimal | None, periods: Sequence[BudgetPeriod]
    ) -> Reserved | Full | None:
        """Reserve money for a request. Return ``None`` if another request must first show the price.

        :param units: the number of recipients
        :param least: the price of a unit that the connection has; a higher price that was seen counts
        :raises MissingPriceError: when there is no price, and the service names none
        :raises UnknownPriceError: when there is no price yet, and there are several units
        :raises DatabaseError: when the database cannot be used
        """

        def work(connection: Connection) -> Reserved | Full | None:
            self._lock(connection)
            row = connection.execute(select(prices).where(*self._is_price(operation))).mappings().first()
            price = _highest_price(row, least)
            now, probe = datetime.now(UTC), None
            if price is None:
                if row is not None and row["is_missing"]:
                    raise MissingPriceError
                if row is not None and row["probed_until"] is not None and row["probed_until"] > now:
                    return None
                if units > 1:
                    raise UnknownPriceError
                probe = secrets.token_hex(8)
            amount = units * (price or Decimal())
            spent = self._spent(connection, periods)
            for period in periods:
                after = spent[period.name] + amount
                if after > period.limit or (probe and after >= period.limit):
                    return Full(period, spent[period.name], amount)
            if probe:
                self._set_price(connection, operation, probed_until=now + PROBE_LEASE, probe=probe)
            self._add(connection, periods, _to_millionths(amount))
            changes = [Spent(period, spent[period.name], spent[period.name] + amount) for period in periods]
            return Reserved(operation, units, amount, periods, probe, changes)

        return self._database.write(work)

    def is_price_known(self, operation: str) -> bool:
        """Return whether a response has shown a price.

        :raises DatabaseError: when the database cannot be read
        """
        with self._database.connect() as connection:
            row = connection.execute(select(prices).where(*self._is_price(operation))).mappings().first()
        return _highest_price(row, None) is not None

    def record_cost(
        self, reserved: Reserved, cost: Decimal | None, price: Decimal | None, *, failed: bool = False
    ) -> list[Spent]:
        """Replace a reservation by what the request cost.

        :param cost: ``None`` to keep the reservation
        :param price: the price of a unit that the response shows; ``None`` if it shows none
        :param failed: whether the request was not accepted, so that its response is no evidence of a missing price
        :return: what is spent and reserved in each period before and after this
        :raises DatabaseError: when the database cannot be written; the reservation stays
        """

        def work(connection: Connection) -> list[Spent]:
            self._lock(connection)
            more = 0 if cost is None else _to_millionths(cost) - _to_millionths(reserved.amount)
            before = self._spent(connection, reserved.periods)
            if more:
                self._add(connection, reserved.periods, more)
            change = Decimal(more) / _MILLION
            if price is not None or reserved.probe:
                self._learn(connection, reserved, price, is_missing=price is None and not failed)
            return [Spent(period, before[period.name], before[period.name] + change) for period in reserved.periods]

        return self._database.write(work)

    def _learn(self, connection: Connection, reserved: Reserved, price: Decimal | None, *, is_missing: bool) -> None:
        """Store a price that is higher than those seen so far, and let other requests leave after a probe."""
        row = connection.execute(select(prices).where(*self._is_price(reserved.operation))).mappings().first()
        values: dict[str, object] = {}
        if price is not None:
            seen = row["price"] if row is not None and row["price"] is not None else -1
            values |= {"price": max(seen, _to_millionths(price)), "is_missing": False}
        elif reserved.probe and is_missing:
            values["is_missing"] = True
        if reserved.probe and row is not None and row["probe"] == reserved.probe:
            values |= {"probed_until": None, "probe": None}
        if values:
            self._set_price(connection, reserved.operation, **values)

    def _lock(self, connection: Connection) -> None:
        lock_for_writing(connection, f"budgets\0{self._name}")

    def _is_price(self, operation: str) -> list[ColumnElement[bool]]:
        return [prices.c.conn_id == self._name, prices.c.operation == operation]

    def _set_price(self, connection: Connection, operation: str, **values: object) -> None:
        changed = connection.execute(update(prices).where(*self._is_price(operation)).values(**values))
        if not changed.rowcount:
            row = {"conn_id": self._name, "operation": operation, "is_missing": False, **values}
            connection.execute(insert(prices).values(row))

    def _spent(self, connection: Connection, periods: Sequence[BudgetPeriod]) -> Mapping[str, Decimal]:
        return read_spent(connection, self._name, [period.name for period in periods])

    def _add(self, connection: Connection, periods: Sequence[BudgetPeriod], more: int) -> None:
        for period in periods:
            is_period = (budgets.c.conn_id == self._name, budgets.c.period == period.name)
            changed = connection.execute(update(budgets).where(*is_period).values(spent=budgets.c.spent + more))
            if not changed.rowcount:
                connection.execute(insert(budgets).values(conn_id=self._name, period=period.name, spent=more))


def read_spent(connection: Connection, conn_id: str, names: Sequence[str]) -> Mapping[str, Decimal]:
    """Return what was spent and is reserved in each of some periods of a connection."""
    query = select(budgets.c.period, budgets.c.spent)
    query = query.where(budgets.c.conn_id == conn_id.lower(), budgets.c.period.in_(list(names)))
    found = {name: Decimal(spent) / _MILLION for name, spent in connection.execute(query)}
    return {name: found.get(name, Decimal()) for name in names}


def is_before(moment: datetime) -> ColumnElement[bool]:
    """Return the condition for the rows of days and months that are over at a moment, in every time zone."""
    # No zone is as much as a day behind UTC.
    last = moment - timedelta(days=1)
    length = func.length(budgets.c.period)
    ends = {form: last.strftime(form) for form in PERIOD_FORMS.values()}
    return or_(*(and_(length == len(end), budgets.c.period < end) for end in ends.values()))


def _highest_price(row: Mapping[Any, Any] | None, least: Decimal | None) -> Decimal | None:
    """Return the highest price of a recipient that is known, from a row of the prices seen and from the connection."""
    seen = None if row is None or row["price"] is None else Decimal(row["price"]) / _MILLION
    return max((known for known in (seen, least) if known is not None), default=None)


def _to_millionths(amount: Decimal) -> int:
    # Rounded up, so that no cost is lost, however small it is.
    return int((amount * _MILLION).to_integral_value(ROUND_CEILING))
