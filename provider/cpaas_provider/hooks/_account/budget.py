"""The budget of a connection: what all its requests may cost in a day and in a month."""

from __future__ import annotations

import json
import logging
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from datetime import datetime
from decimal import Decimal
from typing import TYPE_CHECKING, Any
from zoneinfo import ZoneInfo

from cpaas_provider.api.amounts import divide, format_amount, known_cost, to_decimal, to_decimal_or_none
from cpaas_provider.api.errors import CpaasBudgetReachedError, CpaasError, CpaasNotSentError, CpaasUnknownOutcomeError
from cpaas_provider.database.activity.budgets import BudgetPeriod, BudgetTable, Full, MissingPriceError, Reserved
from cpaas_provider.database.errors import DatabaseError

if TYPE_CHECKING:
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


@dataclass(frozen=True)
class ConnectionBudget:
    """Reserves money for requests, and replaces the reservation by what they cost.

    :param open_database: opens the provider's database
    """

    conn_id: str
    options: BudgetOptions
    open_database: Callable[[], AbstractContextManager[Database]]

    def counts(self, operation: str) -> bool:
        """Return whether an operation costs money."""
        return operation in BILLED

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
                reserved = table.reserve(operation, units, least, self._periods())
        except MissingPriceError:
            raise CpaasBudgetReachedError(
                f"The service names no charge of {operation}, so the budget of connection {self.conn_id!r} cannot be "
                f"checked. Nothing more was sent. Set {PRICE_OPTIONS[operation]} on the connection, or remove its "
                "budgets. Then clear the task.",
                operation=operation,
            ) from None
        except DatabaseError as error:
            message = describe_unusable(self.conn_id, error, "the request was not sent")
            raise CpaasNotSentError(message, operation=operation) from None
        if isinstance(reserved, Full):
            raise self._reached(reserved, operation)
        if reserved is not None:
            self._warn(reserved.warned)
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
                self._warn(
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
            raise CpaasBudgetReachedError(
                f"The service names no charge of {operation}, so the budget of connection {self.conn_id!r} cannot be "
                f"checked. Nothing more was sent. Set {PRICE_OPTIONS[operation]} on the connection, or remove its "
                "budgets. Then clear the task.",
                operation=operation,
            )
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

    def _periods(self) -> list[BudgetPeriod]:
        now = datetime.now(ZoneInfo(self.options.zone))
        names = {"daily_budget": f"{now:%Y-%m-%d}", "monthly_budget": f"{now:%Y-%m}"}
        return [BudgetPeriod(option, names[option], to_decimal(limit)) for option, limit in self.options.limits.items()]

    def _reached(self, full: Full, operation: str) -> CpaasBudgetReachedError:
        period = full.period
        what = f"{period.option} ({format_amount(period.limit)}) of connection {self.conn_id!r}"
        cost = f" This request would cost about {format_amount(full.cost)}." if full.cost else ""
        return CpaasBudgetReachedError(
            f"{what} is reached: {format_amount(full.spent)} is spent or reserved in {period.name} "
            f"({self.options.zone}).{cost} Nothing more was sent. Raise {period.option}, or wait for the next period. "
            "Then clear the task, or run the command again. It sends what is left.",
            operation=operation,
        )

    def _warn(self, warned: Sequence[tuple[BudgetPeriod, Decimal]]) -> None:
        for period, spent in warned:
            log.warning(
                "%s (%s) of connection %r is reached to %.0f %% in %s (%s).",
                period.option, format_amount(period.limit), self.conn_id, spent / period.limit * 100, period.name,
                self.options.zone,
            )  # fmt: skip


def describe_unusable(conn_id: str, error: DatabaseError, unsent: str) -> str:
    """Return the message of an error about a budget that cannot be used.

    :param unsent: a clause that names what was not sent
    """
    return (
        f"The budget of connection {conn_id!r} could not be checked, so {unsent}: {str(error).rstrip('.')}. The task "
        "can be retried."
    )
