"""What a campaign may cost."""

from __future__ import annotations

import math
from decimal import Decimal
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cpaas_provider.sending.campaign.guards.budget import Budget, BudgetReachedError
from cpaas_provider.sending.campaign.guards.spending import EarlierRequest, Spending


def budget_of(
    price: Any = None, spent: Any = 0, unpriced: int = 0, unknown_units: int = 0, earlier: Any = (), **limits: Any
) -> Budget:
    spending = Spending(price, spent, unpriced, unknown_units)
    spending.add_earlier(EarlierRequest(*request) for request in earlier)
    return Budget(spending=spending, **limits)


def spend(budget: Budget, units: int, charge: Any, balance: Any = None) -> None:
    budget.record_charge(budget.reserve(units), units, charge, balance)


def test_no_limit_allows_any_number_of_recipients() -> None:
    budget = budget_of()
    budget.reserve(500)
    assert budget.affordable() == math.inf


def test_first_request_goes_alone_to_learn_the_price() -> None:
    budget = budget_of(max_charge=100)
    assert budget.affordable() == math.inf
    reserved = budget.reserve(10)
    assert budget.affordable() == 0
    budget.record_charge(reserved, 10, 25.0, None)
    assert budget.affordable() == 30


def test_author_price_limits_the_first_request() -> None:
    assert budget_of(max_charge=10, price=2.5).affordable() == 4


def test_pending_request_reserves_the_highest_price_seen() -> None:
    budget = budget_of(max_charge=100)
    spend(budget, 1, 2.0)
    spend(budget, 1, 5.0)
    spend(budget, 1, 3.0)
    reserved = budget.reserve(10)
    assert (reserved, budget.affordable()) == (50.0, 8)


def test_request_that_was_not_sent_releases_its_reservation() -> None:
    budget = budget_of(max_charge=10, price=1.0)
    budget.release(budget.reserve(10))
    assert budget.affordable() == 10


def test_request_of_unknown_outcome_keeps_its_reservation() -> None:
    budget = budget_of(max_charge=10, price=1.0)
    budget.record_unknown(budget.reserve(10), 10)
    with pytest.raises(BudgetReachedError, match=r"0 was charged, and up to 10 for requests of unknown outcome"):
        budget.affordable()


def test_unknown_requests_of_earlier_tries_count_as_charged() -> None:
    budget = budget_of(max_charge=100, unknown_units=20)
    assert budget.affordable() == math.inf
    spend(budget, 1, 2.0)
    assert budget.affordable() == 29


def test_error_of_reached_max_charge_names_the_limit_and_the_price() -> None:
    budget = budget_of(max_charge=10)
    spend(budget, 4, 10.0)
    with pytest.raises(BudgetReachedError, match=r"max_charge \(10\) is reached: 10 was charged. One more .* 2.5"):
        budget.affordable()


def test_money_is_exact_and_shown_with_thousands_separators() -> None:
    budget = budget_of(max_charge=1_000_000, spent=999_999.9)
    spend(budget, 1, 0.1)
    with pytest.raises(BudgetReachedError, match=r"max_charge \(1,000,000\) is reached: 1,000,000 was charged"):
        budget.affordable()
    balance = budget_of(min_balance=99_993_400)
    spend(balance, 1, 0.8, 99_993_400.75)
    with pytest.raises(BudgetReachedError, match=r"\(99,993,400\) is reached: the balance is 99,993,400.75"):
        balance.affordable()


def test_ten_charges_of_a_tenth_add_up_to_exactly_one() -> None:
    budget = budget_of(max_charge=1)
    for _ in range(9):
        spend(budget, 1, 0.1)
    assert (budget.spending.spent, budget.affordable()) == (Decimal("0.9"), 1)
    spend(budget, 1, 0.1)
    with pytest.raises(BudgetReachedError, match="1 was charged"):
        budget.affordable()


@pytest.mark.parametrize("units", [3, 6, 7, 9, 11, 13])
def test_price_with_endless_decimals_affords_the_same_number_again(units: int) -> None:
    budget = budget_of(max_charge=20)
    spend(budget, units, 10.0)
    assert budget.affordable() == units


def test_pending_request_makes_the_budget_wait() -> None:
    budget = budget_of(max_charge=10, price=1.0)
    reserved = budget.reserve(10)
    assert budget.affordable() == 0
    budget.record_charge(reserved, 10, 8.0, None)
    # The author's price is higher, so it counts.
    with pytest.raises(BudgetReachedError, match="10 was charged"):
        budget.affordable()


def test_charges_of_earlier_tries_count() -> None:
    with pytest.raises(BudgetReachedError, match="12 was charged"):
        budget_of(max_charge=10, spent=12.0).affordable()


class TestMinBalance:
    def test_pending_requests_reserve_their_price(self) -> None:
        budget = budget_of(min_balance=50)
        spend(budget, 1, 2.0, 80.0)
        spend(budget, 1, 2.0, 78.0)
        assert budget.affordable() == 14
        budget.reserve(10)
        assert budget.affordable() == 4

    def test_requests_of_unknown_outcome_count_as_charged(self) -> None:
        budget = budget_of(min_balance=50, price=2.0)
        spend(budget, 1, 2.0, 80.0)
        budget.record_unknown(budget.reserve(10), 10)
        assert budget.affordable() == 5

    def test_author_price_alone_lets_one_recipient_go_first(self) -> None:
        budget = budget_of(min_balance=50, price=2.0)
        assert budget.is_probing
        reserved = budget.reserve(1)
        assert budget.affordable() == 0
        budget.record_charge(reserved, 1, None, 60.0)
        assert (budget.is_probing, budget.affordable()) == (False, 5)

    def test_min_balance_with_max_charge_and_author_price_still_probes(self) -> None:
        assert budget_of(min_balance=50, price=2.0, max_charge=1000).is_probing
        assert not budget_of(price=2.0, max_charge=1000).is_probing

    def test_only_the_balance_above_min_balance_is_spent(self) -> None:
        budget = budget_of(min_balance=50)
        spend(budget, 1, 2.0, 60.0)
        assert budget.affordable() == 5

    def test_error_of_reached_min_balance_names_limit_and_balance(self) -> None:
        budget = budget_of(min_balance=50)
        spend(budget, 1, 2.0, 51.0)
        with pytest.raises(BudgetReachedError, match=r"min_balance \(50\) is reached: the balance is 51.*Top up"):
            budget.affordable()

    def test_missing_balance_ends_the_campaign(self) -> None:
        with pytest.raises(BudgetReachedError, match="does not return the balance"):
            spend(budget_of(min_balance=50), 1, 2.0)

    def test_narrower_of_two_limits_counts(self) -> None:
        budget = budget_of(max_charge=100, min_balance=50)
        spend(budget, 1, 2.0, 60.0)
        assert budget.affordable() == 5


class TestMissingChargeAndBalance:
    def test_missing_charge_ends_the_campaign(self) -> None:
        with pytest.raises(BudgetReachedError, match="Give price_per_page"):
            spend(budget_of(max_charge=10), 1, None)

    def test_author_price_replaces_the_missing_charge(self) -> None:
        budget = budget_of(max_charge=10, price=2.0)
        spend(budget, 3, None)
        assert (budget.spending.spent, budget.affordable()) == (6.0, 2)


class TestPartitions:
    """The balance shows what all partitions spend, so its fall counts against the limit of all."""

    def budget(self) -> Budget:
        budget = budget_of(max_charge=25, max_charge_of_all=100)
        for balance in (1000, 996, 992):
            spend(budget, 1, 4, balance)
        return budget

    def test_costs_of_other_partitions_count_for_the_limit_of_all(self) -> None:
        budget = self.budget()
        spend(budget, 1, 4, 940)
        assert (budget.spending.unexplained, budget.affordable()) == (48, 2)

    def test_pending_requests_reserve_their_price_in_the_share(self) -> None:
        budget = self.budget()
        budget.reserve(2)
        assert budget.affordable() == 1

    def test_limit_of_all_ends_each_of_them(self) -> None:
        budget = self.budget()
        spend(budget, 1, 4, 890)
        with pytest.raises(BudgetReachedError, match="The balance fell by 98 beyond that"):
            budget.affordable()


class TestPriceOfZero:
    def test_price_of_zero_is_known_after_one_response(self) -> None:
        budget = budget_of(max_charge=10)
        assert budget.is_probing
        spend(budget, 1, 0.0)
        assert not budget.is_probing
        budget.reserve(500)
        assert budget.affordable() == math.inf

    def test_price_above_zero_limits_once_it_is_charged(self) -> None:
        budget = budget_of(max_charge=10)
        spend(budget, 1, 0.0)
        spend(budget, 4, 8.0)
        assert budget.affordable() == 1

    def test_author_price_of_zero_needs_no_probe(self) -> None:
        assert not budget_of(max_charge=0, price=0.0).is_probing
        assert budget_of(max_charge=0, price=0.0).affordable() == math.inf

    def test_earlier_overspending_still_ends_the_campaign(self) -> None:
        with pytest.raises(BudgetReachedError, match="12 was charged"):
            budget_of(max_charge=10, spent=12.0, price=0.0).affordable()


class TestMissingCharge:
    @pytest.mark.parametrize("bound", [{"max_charge": 100}, {"min_balance": 50}])
    def test_balance_limits_one_request_at_a_time_and_is_logged_once(
        self, bound: dict[str, float], caplog: pytest.LogCaptureFixture
    ) -> None:
        budget = budget_of(**bound)
        for balance in (100.0, 99.0, 98.0):
            assert budget.is_probing is (balance > 98)
            spend(budget, 1, None, balance)
            assert budget.affordable() > 1
        reserved = budget.reserve(20)
        assert budget.affordable() == 0
        budget.record_charge(reserved, 20, None, 90.0)
        assert budget.affordable() > 1
        assert caplog.text.count("Responses name no charge") == 1

    def test_min_balance_is_checked_by_the_fall_of_the_balance(self) -> None:
        budget = budget_of(min_balance=50)
        spend(budget, 1, None, 100.0)
        spend(budget, 10, None, 80.0)
        assert budget.affordable() == 15
        spend(budget, 15, None, 50.0)
        with pytest.raises(BudgetReachedError, match=r"min_balance \(50\) is reached"):
            budget.affordable()

    def test_max_charge_is_checked_by_the_fall_of_the_balance(self) -> None:
        budget = budget_of(max_charge=30)
        spend(budget, 1, None, 100.0)
        spend(budget, 10, None, 80.0)
        # The first told no more than where the balance begins, and is taken to have cost as much.
        assert (budget.spending.spent, budget.affordable()) == (20.0, 4)
        spend(budget, 4, None, 72.0)
        with pytest.raises(BudgetReachedError, match=r"max_charge \(30\) is reached: 30 was charged"):
            budget.affordable()

    def test_expensive_recipient_is_tried_while_any_budget_remains(self) -> None:
        budget = budget_of(max_charge=45)
        spend(budget, 1, None, 100.0)
        spend(budget, 1, None, 80.0)
        assert budget.affordable(3) == 3

    def test_unpriced_recipients_of_earlier_tries_count_at_the_same_price(self) -> None:
        budget = budget_of(max_charge=100, unpriced=30)
        spend(budget, 1, None, 100.0)
        spend(budget, 10, None, 80.0)
        assert budget.affordable() == 9

    def test_top_up_between_requests_counts_as_no_cost(self) -> None:
        budget = budget_of(max_charge=100)
        spend(budget, 1, None, 100.0)
        spend(budget, 10, None, 500.0)
        assert (budget.spending.spent, budget.affordable()) == (0.0, math.inf)

    @pytest.mark.parametrize("bound", [{"max_charge": 100}, {"min_balance": 50}])
    def test_missing_charge_ends_the_campaign_if_the_author_refuses_it(self, bound: dict[str, float]) -> None:
        with pytest.raises(BudgetReachedError, match="on_missing_charge"):
            spend(budget_of(**bound, refuse_missing_charge=True), 1, None, 100.0)

    def test_author_price_makes_a_missing_charge_acceptable(self) -> None:
        budget = budget_of(max_charge=10, price=2.0, refuse_missing_charge=True)
        spend(budget, 1, None, 100.0)
        assert budget.spending.spent == 2.0

    def test_charges_update_a_balance_that_was_returned_once(self) -> None:
        budget = budget_of(min_balance=50)
        spend(budget, 1, 2.0, 100.0)
        spend(budget, 20, 40.0)
        assert (budget.spending.balance, budget.affordable()) == (60.0, 5)


@given(
    st.lists(
        st.tuples(st.integers(1, 500), st.sampled_from(["record_charge", "release", "record_unknown"])), max_size=40
    ),
    st.integers(1, 16),
    st.integers(0, 3000),
)
def test_constant_price_is_overspent_only_by_price_probes(
    requests: list[tuple[int, str]], at_once: int, max_charge: int
) -> None:
    """Whatever comes of requests, what they may have cost stays within the bound once the price is known."""
    budget, price, charged, probes = budget_of(max_charge=max_charge), 2.5, 0.0, 0.0
    under_way: list[tuple[float, int, str]] = []
    for wanted, end in requests:
        while len(under_way) >= at_once or (under_way and budget.affordable() < 1):
            amount, size, became = under_way.pop(0)
            if became == "record_charge":
                budget.record_charge(amount, size, size * price, None)
            elif became == "release":
                budget.release(amount)
            else:
                budget.record_unknown(amount, size)
        try:
            units = int(min(wanted, budget.affordable()))
        except BudgetReachedError:
            break
        if budget.spending.price is None:
            probes += units * price
        charged += units * price if end != "release" else 0.0
        under_way.append((budget.reserve(units), units, end))
    assert charged <= max_charge + probes


def test_price_that_rises_again_is_learnt_from_new_probes_only() -> None:
    """Charges name 2, and the balance shows what is paid."""
    budget, balance = budget_of(max_charge=1_000), 1_000
    for fall in (5, 5, 5, 12, 12, 12, 12):
        balance -= fall
        spend(budget, 1, 2, balance)
    assert budget.reserve(10) == 120


def test_zero_charge_with_falling_balance_counts_as_missing_charge() -> None:
    budget = budget_of(max_charge=100, refuse_missing_charge=True)
    spend(budget, 1, 0, 100)
    with pytest.raises(BudgetReachedError, match="on_missing_charge"):
        spend(budget, 1, 0, 96)


def test_cost_without_charge_or_fall_of_balance_ends_the_campaign() -> None:
    budget = budget_of(max_charge=100)
    spend(budget, 1, None, 100)
    spend(budget, 1, None, 100)
    with pytest.raises(BudgetReachedError, match="the balance does not fall, so max_charge cannot be checked"):
        spend(budget, 1, None, 100)


def test_cost_of_earlier_tries_counts_by_charge_and_by_balance() -> None:
    earlier = [(0, 1, 4, 96), (1, 1, 0, 92), (2, 1, -4, 88), (3, 1, 4, 84)]
    budget = budget_of(max_charge=20, earlier=earlier)
    assert (budget.spending.total, budget.spending.unexplained) == (16, 0)
    budget = budget_of(max_charge=12, price=4, earlier=earlier)
    with pytest.raises(BudgetReachedError, match="16 was charged"):
        budget.affordable()
