"""The account: balance, prices and total charged, in whole ten-thousandths (units), so that sums are exact."""

from __future__ import annotations

from dataclasses import dataclass

from cpaas_sandbox.core.database import Database
from cpaas_sandbox.core.errors import FieldError, ServiceError

UNIT = 10_000
DEFAULT_BALANCE = 100_000_000.0
MAX_MONEY = 1_000_000_000_000.0
# per page, per email, per passcode, per look-up
DEFAULT_PRICES = {"sms": 4.0, "whatsapp": 5.0, "email": 0.5, "otp": 4.0, "lookup": 2.0}


def to_units(amount: float) -> int:
    """Return an amount in whole ten-thousandths."""
    return round(amount * UNIT)


def to_amount(units: int) -> float:
    """Return units as the amount that the service shows."""
    return units / UNIT


@dataclass(frozen=True, slots=True)
class Charge:
    """The cost of one request and the balance before it, in units."""

    amount: int
    before: int

    @property
    def after(self) -> int:
        """The balance after the request, in units."""
        return self.before - self.amount


class Account:
    """Balance, prices and total charged, stored in the database.

    :param initial_balance: amount that an empty database and a reset start with
    """

    def __init__(self, database: Database, initial_balance: float = DEFAULT_BALANCE) -> None:
        self._database = database
        self._initial_balance = initial_balance
        self.prices: dict[str, int] = database.load("prices") or {}
        if not self.prices:
            self.reset()

    def reset(self, keep_prices: bool = False) -> None:
        """Restore the initial balance with nothing charged, and the default prices."""
        if not keep_prices:
            self.set_prices(DEFAULT_PRICES)
        self.set_balance(self._initial_balance)
        self._database.save("charged", 0)

    @property
    def balance(self) -> int:
        """The current balance, in units."""
        return self._database.number("SELECT value FROM state WHERE name = 'balance'")

    @property
    def charged(self) -> int:
        """The total charged and not refunded, in units."""
        return self._database.number("SELECT value FROM state WHERE name = 'charged'")

    def set_balance(self, amount: float) -> None:
        """Set the balance to an amount."""
        self._database.save("balance", to_units(amount))

    def set_prices(self, prices: dict[str, float]) -> None:
        """Change the prices of the named items; the other prices stay."""
        self.prices = self.prices | {name: to_units(price) for name, price in prices.items()}
        self._database.save("prices", self.prices)

    def charge(self, units: int) -> Charge:
        """Charge a request; raise the 402 if the balance does not cover it."""
        before = self.balance
        if units > before:
            message = f"Insufficient balance: {to_amount(units):g} needed, {to_amount(before):g} available"
            raise ServiceError(402, message, [FieldError("balance", message, "insufficient_balance")])
        self._database.save("balance", before - units)
        self._database.save("charged", self.charged + units)
        return Charge(units, before)

    def refund(self, units: int) -> None:
        """Return a charge to the balance."""
        self.charge(-units)
