"""The budget of a connection, as its extras have it."""

from __future__ import annotations

from collections.abc import Mapping

from msgspec import Struct


class BudgetOptions(Struct, frozen=True):
    """The budget of a connection, as its extras have it.

    :param limits: the limits that are set, by the name of their option: ``daily_budget`` and ``monthly_budget``
    :param zone: the time zone of days and months
    :param prices: the prices that are set, by the name of their option
    """

    limits: Mapping[str, float]
    zone: str
    prices: Mapping[str, float]
