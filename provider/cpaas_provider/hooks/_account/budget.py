"""The budget of a connection: what all its requests may cost in a day and in a month."""

from __future__ import annotations

import json
import logging
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager
from datetime import UTC, datetime
from decimal import Decimal
from typing import TYPE_CHECKING, Any
from zoneinfo import ZoneInfo

from msgspec import Struct

from cpaas_provider.api.amounts import divide, format_amount, known_cost, to_decimal, to_decimal_or_none
from cpaas_provider.api.errors import CpaasBudgetReachedError, CpaasError, CpaasNotSentError, CpaasUnknownOutcomeError
from cpaas_provider.database.activity.budgets import (
    PERIOD_FORMS,
    WARN_AT,
    BudgetPeriod,
    BudgetTable,
    Full,
    MissingPriceError,
    Reserved,
    Spent,
    UnknownPriceError,
    read_spent,
)
from cpaas_provider.database.errors import DatabaseError
from cpaas_provider.hooks.metrics import BUDGET

if TYPE_CHECKING:
    from sqlalchemy import Connection

    from cpaas_provider.api.endpoints import Endpoint
    from cpaas_provider.api.http.wire import OutgoingRequest
    from cpaas_provider.database.database import Database
    from cpaas_provider.hooks._account.options import BudgetOptions

log = logging.getLogger(__name__)

_MESSAGES = ("send_sms", "send_email")
PRICE_OPTIONS = {
    "send_sms": "price_per_message",
    "send_email": "price_per_message",
    "request_otp": "price_per_passcode",
    "lookup_phone": "price_per_lookup",
}
"""The option of the connection with the price of an operation. The price of airtime is its amount."""

BILLED = frozenset({*PRICE_OPTIONS, "buy_airtime"})
"""The operations that cost money."""


class ConnectionBudget(Struct, frozen=True):
    """Reserves money for requests, and replaces the reservation by what they cost.

    :param open_database: opens the provider's database
    """

    conn_id: str
    options: BudgetOptions
    open_database: Callable[[], AbstractContextManager[Database]]

    def counts(self, operation: str) -> bool:
        """Return whether an operation costs money."""
        return operation in BILLED

    def needs_price(self, operation: str) -> bool:
        """Return whether no price of an operation is known, or the database cannot be read.

        ``reserve`` then refuses a request to several recipients.
        """
        if PRICE_OPTIONS.get(operation) in self.options.prices:
            return False
        try:
            with self.open_database() as database:
                return not BudgetTable(database, self.conn_id).is_price_known(operation)
        except DatabaseError:
            return True

    def reserve(self, endpoint: Endpoint[Any], request: OutgoingRequest) -> Reserved | None:
        """Reserve money for a request. Return ``None`` if another request must first show the price.

        :raises CpaasBudgetReachedError: when the budget does not allow the request, or cannot be checked
        :raises CpaasNotSentError: when the database cannot be used
        """
        operation = endpoint.operation
        units, least = self._cost(operation, json.loads(request.body or b"{}"))
        try:
            with self.open_database() as database:
                table = BudgetTable(database, self.conn_id)
                periods = current_periods(self.options, datetime.now(UTC))
                reserved = table.reserve(operation, units, least, periods)
        except MissingPriceError:
            raise self._missing_price(operation) from None
        except UnknownPriceError:
            raise CpaasBudgetReachedError(
                f"No price of {operation} is known yet, so the budget of connection {self.conn_id!r} cannot be checked "
                f"for a request to {units} recipients. Nothing was sent. Set {PRICE_OPTIONS[operation]} on the "
                "connection, or send to one recipient first, which shows the price. Then clear the task, or run the "
                "command again.",
                operation=operation,
            ) from None
        except DatabaseError as error:
            message = describe_unusable(self.conn_id, error, "the request was not sent")
            raise CpaasNotSentError(message, operation=operation) from None
        if isinstance(reserved, Full):
            raise self._reached(reserved, operation)
        if reserved is not None:
            self._report(reserved.spent)
        return reserved

    def record_result(self, reserved: Reserved, result: Any = None, error: BaseException | None = None) -> None:
        """Replace a reservation by what the request cost. After a failure of the database it stays."""
        cost: Decimal | None = None
        price: Decimal | None = None
        if error is None:
            cost, price = self._charged(reserved, result)
        elif isinstance(error, CpaasError) and not isinstance(error, CpaasUnknownOutcomeError):
            cost = Decimal()
        elif not reserved.probe:
            # It may have been charged, so the reservation counts.
            return
        try:
            with self.open_database() as database:
                self._report(
                    BudgetTable(database, self.conn_id).record_cost(reserved, cost, price, failed=error is not None)
                )
        except DatabaseError as failure:
            log.warning("The cost of a request could not be recorded, so %s counts. %s", reserved.amount, failure)

    def _cost(self, operation: str, fields: Mapping[str, Any]) -> tuple[int, Decimal | None]:
        """Return the units of a request, and the price of one that is known without a response."""
        if operation == "buy_airtime":
            return 1, to_decimal(fields["amount"])
        least = to_decimal_or_none(self.options.prices.get(PRICE_OPTIONS[operation]))
        if operation in _MESSAGES:
            return str(fields.get("recipients", "")).count(",") + 1, least
        if least is None:
            raise self._missing_price(operation)
        return 1, least

    def _charged(self, reserved: Reserved, result: Any) -> tuple[Decimal, Decimal | None]:
        """Return what a request cost, and the price of a unit if the response shows it. The highest evidence counts."""
        meta = getattr(result, "meta", None)
        figures = getattr(meta, "estimate", None) or getattr(meta, "charge", None)
        named = getattr(figures, "charge" if reserved.operation in _MESSAGES else "amount", None)
        charge = to_decimal_or_none(known_cost(named))
        if charge is None:
            return reserved.amount, None
        if reserved.operation not in _MESSAGES:
            # The reservation is the price: the amount of airtime.
            return max(charge, reserved.amount), None
        least = to_decimal(self.options.prices.get("price_per_message", 0))
        return max(charge, reserved.units * least), divide(charge, reserved.units)

    def _missing_price(self, operation: str) -> CpaasBudgetReachedError:
        return CpaasBudgetReachedError(
            f"The service names no charge of {operation}, so the budget of connection {self.conn_id!r} cannot be "
            f"checked. Nothing more was sent. Set {PRICE_OPTIONS[operation]} on the connection, or remove its "
            "budgets. Then clear the task.",
            operation=operation,
        )

    def _reached(self, full: Full, operation: str) -> CpaasBudgetReachedError:
        period = full.period
        what = f"{period.option} ({format_amount(period.limit)}) of connection {self.conn_id!r}"
        cost = f" This request would cost about {format_amount(full.cost)}." if full.cost else ""
        nothing = "was bought" if operation == "buy_airtime" else "more was sent"
        rest = " It sends what is left." if operation in _MESSAGES else ""
        return CpaasBudgetReachedError(
            f"{what} is reached: {format_amount(full.spent)} is spent or reserved in {period.name} "
            f"({self.options.zone}).{cost} Nothing {nothing}. Raise {period.option}, or wait for the next period. "
            f"Then clear the task, or run the command again.{rest}",
            operation=operation,
        )

    def _report(self, changes: Sequence[Spent]) -> None:
        """Publish what is spent as metrics, and warn if a budget has reached ``WARN_AT``."""
        for change in changes:
            status = BudgetStatus(self.conn_id, change.period, self.options.zone, change.after)
            status.publish()
            if change.reaches_warning:
                log.warning("%s", status.describe())


class BudgetStatus(Struct, frozen=True):
    """What of a budget is spent and reserved in the current day or month.

    :param zone: the time zone of days and months
    """

    conn_id: str
    period: BudgetPeriod
    zone: str
    spent: Decimal

    @property
    def remaining(self) -> Decimal:
        """What may still be spent; 0 if more than the budget is spent."""
        return max(self.period.limit - self.spent, Decimal())

    @property
    def percent(self) -> int:
        """The spent share in whole percent. A budget of 0 is used up."""
        return int(self.spent / self.period.limit * 100) if self.period.limit else 100

    @property
    def state(self) -> str:
        """``available``, from ``WARN_AT`` on ``nearly reached``, at the limit ``reached``."""
        if self.spent >= self.period.limit:
            return "reached"
        return "nearly reached" if self.spent >= WARN_AT * self.period.limit else "available"

    def publish(self) -> None:
        """Publish what is spent, and the limit, as metrics of Airflow."""
        from airflow.sdk.observability import stats

        tags = {"conn_id": self.conn_id, "budget": self.period.option}
        for name, amount in (("spent", self.spent), ("limit", self.period.limit)):
            stats.gauge(f"{BUDGET}.{name}", float(amount), tags=tags)

    def describe(self) -> str:
        """Return it as a sentence."""
        return (
            f"{self.period.option} ({format_amount(self.period.limit)}) of connection {self.conn_id!r} is reached to "
            f"{self.percent} % in {self.period.name} ({self.zone})."
        )


def current_periods(options: BudgetOptions, now: datetime) -> list[BudgetPeriod]:
    """Return the periods of the budgets at a moment."""
    local = now.astimezone(ZoneInfo(options.zone))
    return [
        BudgetPeriod(option, local.strftime(PERIOD_FORMS[option]), to_decimal(limit))
        for option, limit in options.limits.items()
    ]


def read_budgets(connection: Connection, conn_id: str, options: BudgetOptions, now: datetime) -> list[BudgetStatus]:
    """Return what is spent of each budget of a connection."""
    periods = current_periods(options, now)
    spent = read_spent(connection, conn_id, [period.name for period in periods])
    return [BudgetStatus(conn_id, period, options.zone, spent[period.name]) for period in periods]


def describe_unusable(conn_id: str, error: DatabaseError, unsent: str) -> str:
    """Return the message of an error about a budget that cannot be used.

    :param unsent: a clause that names what was not sent
    """
    return (
        f"The budget of connection {conn_id!r} could not be checked, so {unsent}: {str(error).rstrip('.')}. The task "
        "can be retried."
    )
