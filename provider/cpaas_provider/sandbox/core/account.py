"""The account's money: balance, prices, and what was charged. Kept in whole ten-thousandths, so that sums are exact."""

from __future__ import annotations

from dataclasses import dataclass

from cpaas_provider.sandbox.core.database import Database
from cpaas_provider.sandbox.core.errors import FieldError, ServiceError

UNIT = 10_000
DEFAULT_BALANCE = 100_000_000.0
MAX_MONEY = 1_000_000_000_000.0
# per page, per email, per passcode, per look-up
DEFAULT_PRICES = {"sms": 4.0, "whatsapp": 5.0, "email": 0.5, "otp": 4.0, "lookup": 2.0}


def to_units(amount: float) -> int:
    """Return an amount in whole ten-thousandths."""
    return round(amount * UNIT)


def to_amount(units: int) -> float:
    """Return ten-thousandths as the number the service shows."""
    return units / UNIT


@dataclass(frozen=True, slots=True)
class Charge:
    """What one request cost, and the balance on both sides of it; in units."""

    amount: int
    before: int

    @property
    def after(self) -> int:
        """The balance that is left."""
        return self.before - self.amount


class Account:
    """Balance, prices and total charged, kept in the database."""

    def __init__(self, database: Database) -> None:
        self._database = database
        self.prices: dict[str, int] = database.load("prices") or {}
        if not self.prices:
            self.reset()

    def reset(self, keep_prices: bool = False) -> None:
        """Return to the default balance with nothing charged, and to the default prices."""
        if not keep_prices:
            self.set_prices(DEFAULT_PRICES)
        self.set_balance(DEFAULT_BALANCE)
        self._database.save("charged", 0)

    @property
    def balance(self) -> int:
        """The money there is, in units."""
        return self._database.number("SELECT value FROM state WHERE name = 'balance'")

    @property
    def charged(self) -> int:
        """All that was charged and not refunded, in units."""
        return self._database.number("SELECT value FROM state WHERE name = 'charged'")

    def set_balance(self, amount: float) -> None:
        """Put the balance at an amount."""
        self._database.save("balance", to_units(amount))

    def set_prices(self, prices: dict[str, float]) -> None:
        """Change the prices named."""
        self.prices = self.prices | {name: to_units(price) for name, price in prices.items()}
        self._database.save("prices", self.prices)

    def charge(self, units: int) -> Charge:
        """Take money for a request; refuse it whole where there is not enough."""
        before = self.balance
        if units > before:
            message = f"Insufficient balance: {to_amount(units):g} needed, {to_amount(before):g} available"
            raise ServiceError(402, message, [FieldError("balance", message, "insufficient_balance")])
        self._move(units, before)
        return Charge(units, before)

    def refund(self, units: int) -> None:
        """Give money back."""
        self._move(-units, self.balance)

    def _move(self, units: int, before: int) -> None:
        self._database.save("balance", before - units)
        self._database.save("charged", self.charged + units)
