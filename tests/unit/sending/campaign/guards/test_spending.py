"""What requests cost, whatever the service answers: the most careful evidence counts."""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import dataclass, field
from decimal import Decimal
from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from cpaas_provider.sending.campaign.guards.budget import Budget, BudgetReachedError
from cpaas_provider.sending.campaign.guards.spending import EarlierRequest, Spending

PRICE = 4
NO_EVIDENCE: list[Any] = [None, -4, -0.01, True, False, float("nan"), float("inf"), "4", [], {}]


def counted(*responses: tuple[int, Any, Any], **given: Any) -> Spending:
    """Return the spending after requests that went one after the other."""
    spending = Spending(**given)
    for units, charge, balance in responses:
        spending.add(units, charge, balance, Decimal(), 0)
    return spending


class TestEvidence:
    @pytest.mark.parametrize("charge", [*NO_EVIDENCE, 0, 0.0])
    def test_missing_charge_is_replaced_by_fall_of_balance(self, charge: Any) -> None:
        spending = counted((1, charge, 100), (1, charge, 96), (10, charge, 56))
        # The first response shows only where the balance begins.
        assert (spending.spent, spending.total) == (44, 48)

    @pytest.mark.parametrize("charge", [*NO_EVIDENCE, 0, 3])
    def test_author_price_beats_lower_charge(self, charge: Any) -> None:
        assert counted((10, charge, None), author_price=4).spent == 40

    def test_higher_charge_beats_author_price(self) -> None:
        spending = counted((10, 50, None), author_price=4)
        assert (spending.spent, spending.price) == (50, 5)

    def test_fall_of_balance_beyond_charge_counts(self) -> None:
        spending = counted((1, 1, 100), (1, 1, 96), (1, 1, 92), (10, 10, 52))
        assert spending.spent + spending.unexplained == 13 + 3 + 3 + 30
        assert spending.price == 4

    def test_fall_of_balance_beyond_author_price_counts(self) -> None:
        spending = counted((10, None, 100), (10, None, 60), author_price=1)
        assert (spending.spent, spending.unexplained) == (20, 30)

    def test_zero_charge_with_constant_balance_is_accepted(self) -> None:
        spending = counted((1, 0, 100), (1, 0, 100), (500, 0, 100))
        assert (spending.total, spending.price, spending.is_price_known) == (0, 0, True)

    def test_zero_charge_that_proves_wrong_reprices_earlier_recipients(self) -> None:
        spending = counted((1, 0, 100), (1, 0, 100), (10, 0, 60))
        assert (spending.spent, spending.total) == (40, 48)

    def test_response_overtaken_by_another_does_not_look_like_a_higher_cost(self) -> None:
        spending = counted((1, 4, 100), (1, 4, 96))
        for balance, others in ((88, 1), (92, 0)):
            spending.add(1, 4, balance, Decimal(4 * others), others)
        spending.add(1, 4, 84, Decimal(), 0)
        assert (spending.spent, spending.unexplained, spending.balance) == (20, 0, 84)

    def test_expensive_request_in_flight_is_not_counted_twice(self) -> None:
        spending = counted((1, 4, 100), (1, 4, 96))
        spending.add(1, 4, 52, Decimal(4), 1)
        assert spending.unexplained == 36
        spending.add(1, 40, 52, Decimal(), 0)
        assert (spending.spent, spending.unexplained) == (52, 0)

    def test_fall_of_balance_by_request_of_unknown_outcome_is_not_counted_twice(self) -> None:
        spending = counted((1, 4, 100), (1, 4, 96))
        spending.add_unknown(5)
        spending.add(1, 4, 72, Decimal(), 0)
        assert (spending.unexplained, spending.unknown_units) == (0, 5)

    def test_payment_into_the_account_is_no_cost(self) -> None:
        spending = counted((1, 4, 100), (1, 4, 96), (1, 4, 500), (1, 4, 496))
        assert (spending.spent, spending.unexplained, spending.balance) == (16, 0, 496)


class TestPrice:
    def test_price_is_known_once_charge_and_balance_agree(self) -> None:
        assert not counted((1, 4, 100)).is_price_known
        assert counted((1, 4, 100), (1, 4, 96)).is_price_known

    def test_without_balance_the_charge_decides(self) -> None:
        assert counted((1, 4, None)).is_price_known

    def test_other_spending_on_the_account_delays_it_and_does_not_raise_it(self) -> None:
        spending = counted((1, 4, 1000), (1, 4, 900))
        assert not spending.is_price_known
        spending.add(1, 4, Decimal(896), Decimal(), 0)
        assert (spending.is_price_known, spending.price) == (True, 4)

    def test_charges_that_prove_too_low_make_the_price_unknown_again(self) -> None:
        spending = counted((1, 4, 1000), (1, 4, 996), (100, 1, 596))
        assert not spending.is_price_known
        assert spending.spent + spending.unexplained == 408

    def test_cost_without_charge_or_fall_of_balance_is_invisible(self) -> None:
        assert not counted((1, None, 100), (1, None, 100)).is_invisible
        assert counted((1, None, 100), (1, None, 100), (1, None, 100)).is_invisible


class TestEarlierTries:
    def test_costs_add_up(self) -> None:
        spending = Spending()
        spending.add_earlier([EarlierRequest(0, 1, 4, 96), EarlierRequest(1, 2, 8, 88)])
        assert (spending.spent, spending.unexplained) == (12, 0)

    def test_fall_of_balance_counts_within_a_try_and_not_in_a_pause(self) -> None:
        requests = [(0, 0, 1000), (1, 0, 996), (2, 0, 992), (3600, 0, 500), (3601, 0, 496)]
        spending = Spending()
        spending.add_earlier([EarlierRequest(at, 1, charge, balance) for at, charge, balance in requests])
        assert spending.unexplained == 12

    def test_balances_in_another_order_are_no_cost(self) -> None:
        spending = Spending()
        spending.add_earlier([EarlierRequest(0, 1, 4, 96), EarlierRequest(1, 1, 4, 88), EarlierRequest(2, 1, 4, 92)])
        assert (spending.spent, spending.unexplained) == (12, 0)

    @pytest.mark.parametrize("charge", NO_EVIDENCE)
    def test_fall_of_balance_is_the_cost_where_the_charge_is_no_evidence(self, charge: Any) -> None:
        spending = Spending()
        spending.add_earlier(EarlierRequest(at, units, charge, 100 - 4 * at) for at, units in ((0, 1), (1, 1), (6, 5)))
        # The first response shows only where the balance begins.
        assert (spending.spent, spending.unit_price, spending.total) == (24, 4, 28)

    def test_fall_of_balance_beyond_author_price_counts(self) -> None:
        spending = Spending(2)
        spending.add_earlier([EarlierRequest(at, 1, None, 100 - 4 * at) for at in range(10)])
        assert (spending.spent, spending.unexplained) == (20, 18)

    @pytest.mark.parametrize("charge", [4, None])
    def test_fall_of_balance_by_request_of_unknown_outcome_is_not_counted_twice(self, charge: Any) -> None:
        spending = Spending(unknown_units=5)
        unknown = EarlierRequest(1, 5, None, None, is_unknown=True)
        spending.add_earlier([EarlierRequest(0, 1, charge, 96), unknown, EarlierRequest(2, 1, charge, 72)])
        assert (spending.total, spending.unexplained) == (8, 0)

    def test_payment_into_the_account_restarts_the_comparison(self) -> None:
        spending = Spending()
        spending.add_earlier([EarlierRequest(at, 1, None, left) for at, left in enumerate((100, 96, 500, 496))])
        assert (spending.spent, spending.total) == (8, 16)

    def test_request_without_evidence_has_unknown_cost(self) -> None:
        spending = Spending()
        spending.add_earlier([EarlierRequest(0, 3, None, 96), EarlierRequest(3600, 2, -5, 88)])
        assert (spending.spent, spending.unpriced) == (0, 5)


@dataclass
class Service:
    """Charges each request in full and returns the true balance. What it says of the charge is another matter.

    :param charge_of: what it names as the charge, from the true one
    """

    charge_of: Callable[[int], Any]
    balance: int = 10**9
    charged: int = 0

    def accept(self, units: int) -> tuple[Any, int]:
        self.charged += units * PRICE
        self.balance -= units * PRICE
        return self.charge_of(units * PRICE), self.balance


@dataclass
class Sending:
    """Sends as a campaign does: as much as the budget allows, several requests at once, answered in any order."""

    budget: Budget
    service: Service
    draw: random.Random
    at_once: int
    in_flight: list[tuple[Decimal, int, tuple[Any, int]]] = field(default_factory=list)

    def run(self, per_request: int, requests: int) -> int:
        """Return what the service charged."""
        for _ in range(requests):
            try:
                units = min(self.budget.affordable(), per_request)
                if self.budget.is_probing:
                    units = min(units, 1)
                if len(self.in_flight) >= self.at_once or units < 1:
                    self.answer()
                else:
                    self.send(int(units))
            except BudgetReachedError:
                break
        while self.in_flight:
            try:
                self.answer()
            except BudgetReachedError:
                continue
        return self.service.charged

    def send(self, units: int) -> None:
        self.in_flight.append((self.budget.reserve(units), units, self.service.accept(units)))

    def answer(self) -> None:
        reserved, units, (charge, balance) = self.in_flight.pop(self.draw.randrange(len(self.in_flight)))
        self.budget.record_charge(reserved, units, charge, balance)


def sending(charges: list[Any], seed: int, at_once: int, max_charge: int, price: int | None = None) -> Sending:
    draw = random.Random(seed)

    def charge_of(true: int) -> Any:
        said = draw.choice(charges)
        return said(true) if callable(said) else said

    return Sending(Budget(max_charge=max_charge, spending=Spending(price)), Service(charge_of), draw, at_once)


def truth(charge: int) -> int:
    return charge


def a_hundredth(charge: int) -> float:
    return charge / 100


@given(
    st.lists(st.sampled_from([truth, 0, *NO_EVIDENCE]), min_size=1, max_size=3),
    st.integers(0, 10**6),
    st.integers(1, 16),
    st.integers(0, 3000),
    st.sampled_from([None, PRICE]),
)
@example([0], 1, 8, 40, None)
@example([-4], 1, 8, 40, None)
@example([True], 1, 8, 40, PRICE)
def test_false_charges_overspend_max_charge_only_by_price_probes(
    charges: list[Any], seed: int, at_once: int, max_charge: int, price: int | None
) -> None:
    charged = sending(charges, seed, at_once, max_charge, price).run(per_request=500, requests=60)
    assert charged <= max_charge + 3 * PRICE


@given(
    st.lists(st.sampled_from([truth, a_hundredth, 0, *NO_EVIDENCE]), min_size=1, max_size=3),
    st.integers(0, 10**6),
    st.integers(1, 16),
    st.integers(0, 3000),
)
@example([a_hundredth], 1, 8, 40)
def test_true_balance_limits_overspending_to_price_probes(
    charges: list[Any], seed: int, at_once: int, max_charge: int
) -> None:
    charged = sending(charges, seed, at_once, max_charge).run(per_request=500, requests=200)
    assert charged <= max_charge + 3 * PRICE


@given(
    st.lists(st.sampled_from([truth, a_hundredth, 0, *NO_EVIDENCE]), min_size=1, max_size=3),
    st.integers(0, 10**6),
    st.integers(1, 16),
    st.integers(0, 3000),
    st.sampled_from([None, PRICE]),
)
def test_min_balance_is_undercut_only_by_price_probes(
    charges: list[Any], seed: int, at_once: int, spare: int, price: int | None
) -> None:
    made = sending(charges, seed, at_once, 0, price)
    made.budget = Budget(min_balance=made.service.balance - spare, spending=Spending(price))
    assert made.run(per_request=500, requests=200) <= spare + 3 * PRICE


@given(st.integers(0, 10**6), st.integers(1, 16), st.integers(0, 3000))
def test_charge_of_the_service_alone_lets_the_whole_budget_be_spent(seed: int, at_once: int, max_charge: int) -> None:
    charged = sending([truth], seed, at_once, max_charge).run(per_request=50, requests=2000)
    assert max_charge - PRICE < charged <= max_charge + PRICE
