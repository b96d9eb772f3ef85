"""Who the next request is for: as many as it takes, within budget, hours and what must not be disturbed."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from datetime import UTC, datetime, time, timedelta
from types import SimpleNamespace
from typing import Any

import pytest

from cpaas_provider.sending.campaign.batcher import WAIT, Batcher, billable_units
from cpaas_provider.sending.campaign.guards.budget import Budget, BudgetReachedError
from cpaas_provider.sending.campaign.guards.send_window import OutsideSendWindowError, SendWindow
from cpaas_provider.sending.campaign.guards.spending import Spending
from cpaas_provider.sending.campaign.recipients import Recipient, RecipientStatus, RecipientTable
from tests.unit.sending.campaign.parts import phones, plan_of, planned

NINE = datetime(2026, 3, 10, 9, tzinfo=UTC)


def taken(batcher: Batcher, plan: RecipientTable, *, under_way: int = 0) -> Any:
    """Return the rows of the next pack, noted as sent; or what is said instead."""
    people = asyncio.run(batcher.next(under_way))
    if not isinstance(people, tuple):
        return people
    plan.set_status([recipient.position for recipient in people], RecipientStatus.SENT)
    return [recipient.row for recipient in people]


def everything(batcher: Batcher, plan: RecipientTable) -> list[list[int]]:
    packs = []
    while (pack := taken(batcher, plan)) is not None:
        assert pack != WAIT, "it waits for nothing"
        packs.append(pack)
    return packs


def test_batches_are_filled_up_to_the_limit() -> None:
    plan = plan_of(*phones(7))
    assert everything(Batcher(plan, 3, Budget()), plan) == [[1, 2, 3], [4, 5, 6], [7]]


def test_empty_plan_yields_no_batch() -> None:
    plan = plan_of()
    assert taken(Batcher(plan, 3, Budget()), plan) is None


def test_parts_of_a_rejected_batch_come_next() -> None:
    plan = plan_of(*phones(6))
    batcher = Batcher(plan, 4, Budget())
    people = asyncio.run(batcher.next(0))
    assert isinstance(people, tuple)
    batcher.requeue([people[:2], people[2:]])
    assert sorted(everything(batcher, plan)) == [[1, 2], [3, 4], [5, 6]]


def test_selected_recipients_are_batched_whatever_their_status() -> None:
    plan = plan_of(*phones(5))
    some = [recipient for recipient in plan.not_sent() if recipient.row in (2, 5)]
    plan.set_status([recipient.position for recipient in some], RecipientStatus.UNKNOWN)
    assert everything(Batcher(plan, 10, Budget(), only=some), plan) == [[2, 5]]


class TestBudget:
    def plan(self, *pages: int) -> RecipientTable:
        plan = RecipientTable()
        plan.add(planned(phone, row, pages=pages[row - 1]) for row, phone in enumerate(phones(len(pages)), 1))
        plan.deduplicate_and_suppress()
        return plan

    def test_batch_is_as_large_as_the_budget_affords(self) -> None:
        plan = self.plan(1, 2, 1, 1)
        batcher = Batcher(plan, 10, Budget(max_charge=4, spending=Spending(1.0)))
        assert taken(batcher, plan) == [1, 2, 3]

    def test_reached_budget_ends_the_campaign(self) -> None:
        plan, budget = self.plan(1, 1), Budget(max_charge=1, spending=Spending(1.0))
        batcher = Batcher(plan, 10, budget)
        assert taken(batcher, plan) == [1]
        budget.record_charge(budget.reserve(1), 1, 1.0, None)
        with pytest.raises(BudgetReachedError):
            taken(batcher, plan)

    def test_batcher_waits_for_the_cost_of_pending_requests(self) -> None:
        plan, budget = self.plan(1, 1), Budget(max_charge=10)
        batcher = Batcher(plan, 1, budget)
        assert taken(batcher, plan) == [1]
        reserved = budget.reserve(1)
        assert taken(batcher, plan, under_way=1) == WAIT
        budget.record_charge(reserved, 1, 1.0, None)
        assert taken(batcher, plan) == [2]

    def test_recipient_beyond_the_remaining_pages_ends_the_campaign(self) -> None:
        plan, budget = self.plan(1, 3), Budget(max_charge=3, spending=Spending(1.0))
        batcher = Batcher(plan, 1, budget)
        assert taken(batcher, plan) == [1]
        budget.record_charge(budget.reserve(1), 1, 1.0, None)
        with pytest.raises(BudgetReachedError):
            taken(batcher, plan)

    def test_units_are_pages_or_recipients(self) -> None:
        people = [Recipient(1, 1, b"", "a", None, 3, None), Recipient(2, 2, b"", "b", None, None, None)]
        assert billable_units(people) == 4


class TestSendWindow:
    WINDOW = SendWindow(time(9), time(17), "UTC")

    def plan(self, *zones: str | None) -> RecipientTable:
        plan = RecipientTable()
        plan.add(planned(phone, row, zone=zones[row - 1]) for row, phone in enumerate(phones(len(zones)), 1))
        plan.deduplicate_and_suppress()
        return plan

    def test_window_closed_for_all_raises_the_next_opening(self) -> None:
        plan = self.plan(None, None)
        batcher = Batcher(plan, 1, Budget(), window=self.WINDOW, clock=lambda: NINE - timedelta(hours=1))
        with pytest.raises(OutsideSendWindowError) as caught:
            taken(batcher, plan)
        assert caught.value.until == NINE

    def test_recipients_inside_their_send_window_come_first(self) -> None:
        plan = self.plan("Asia/Tokyo", None, "America/New_York", None)
        batcher = Batcher(plan, 10, Budget(), window=self.WINDOW, clock=lambda: NINE)
        assert taken(batcher, plan) == [2, 4]
        with pytest.raises(OutsideSendWindowError) as caught:
            taken(batcher, plan)
        assert caught.value.until == datetime(2026, 3, 10, 13, tzinfo=UTC)

    def test_window_that_closes_midway_stops_further_batches(self) -> None:
        clock = SimpleNamespace(now=NINE + timedelta(hours=7, minutes=59))
        plan = self.plan(*[None] * 3)
        batcher = Batcher(plan, 1, Budget(), window=self.WINDOW, clock=lambda: clock.now)
        assert taken(batcher, plan) == [1]
        clock.now += timedelta(minutes=1)
        assert taken(batcher, plan, under_way=1) == WAIT
        with pytest.raises(OutsideSendWindowError) as caught:
            taken(batcher, plan)
        assert caught.value.until == NINE + timedelta(days=1)

    def test_window_is_checked_again_after_the_clock_was_set_back(self) -> None:
        clock = SimpleNamespace(now=NINE)
        plan = self.plan(*[None] * 3)
        batcher = Batcher(plan, 1, Budget(), window=self.WINDOW, clock=lambda: clock.now)
        assert taken(batcher, plan) == [1]
        clock.now -= timedelta(hours=3)
        assert taken(batcher, plan, under_way=1) == WAIT
        with pytest.raises(OutsideSendWindowError) as caught:
            taken(batcher, plan)
        assert caught.value.until == NINE

    def test_recipients_whose_window_opens_midway_follow_at_once(self) -> None:
        clock = SimpleNamespace(now=datetime(2026, 3, 10, 12, 59, tzinfo=UTC))
        plan = self.plan(None, "America/New_York", None)
        batcher = Batcher(plan, 1, Budget(), window=self.WINDOW, clock=lambda: clock.now)
        assert taken(batcher, plan) == [1]
        clock.now += timedelta(minutes=1)
        assert [taken(batcher, plan), taken(batcher, plan), taken(batcher, plan)] == [[2], [3], None]

    def test_window_that_opens_during_the_last_check_leaves_no_recipient_out(self) -> None:
        """The last of one zone are taken when those of the next may be reached."""
        moments = iter([datetime(2026, 3, 10, 12, 59, 59, tzinfo=UTC)] * 2)
        after = datetime(2026, 3, 10, 13, tzinfo=UTC)
        plan = self.plan(None, "America/New_York")
        batcher = Batcher(plan, 1, Budget(), window=self.WINDOW, clock=lambda: next(moments, after))
        assert everything(batcher, plan) == [[1], [2]]

    def test_window_that_closes_during_lookups_stops_the_batch(self) -> None:
        """The lookups of a batch take minutes at a low rate."""
        clock = SimpleNamespace(now=NINE + timedelta(hours=7, minutes=59))
        plan = self.plan(*[None] * 3)

        class Lookups:
            batch_size = 100

            async def filter(self, people: Sequence[Recipient]) -> list[Recipient]:
                clock.now += timedelta(minutes=2)
                return list(people)

        lookups: Any = Lookups()
        batcher = Batcher(plan, 1, Budget(), window=self.WINDOW, dnd_filter=lookups, clock=lambda: clock.now)
        with pytest.raises(OutsideSendWindowError) as caught:
            taken(batcher, plan)
        assert caught.value.until == NINE + timedelta(days=1)
        clock.now = caught.value.until
        assert everything(batcher, plan) == [[1], [2], [3]]

    def test_recipients_requeued_at_closing_are_batched_at_the_next_opening(self) -> None:
        clock = SimpleNamespace(now=NINE)
        plan = self.plan(*[None] * 4)
        batcher = Batcher(plan, 4, Budget(), window=self.WINDOW, clock=lambda: clock.now)
        people = asyncio.run(batcher.next(0))
        assert isinstance(people, tuple)
        batcher.requeue([people[:2], people[2:]])
        clock.now = NINE + timedelta(days=1)
        assert sorted(row for pack in everything(batcher, plan) for row in pack) == [1, 2, 3, 4]

    def test_resend_stops_when_the_window_closes_and_takes_no_recipient_twice(self) -> None:
        clock = SimpleNamespace(now=NINE + timedelta(hours=7, minutes=59))
        plan = self.plan(*[None] * 3)
        people = list(plan.not_sent())
        plan.set_status([recipient.position for recipient in people], RecipientStatus.UNKNOWN)
        batcher = Batcher(plan, 1, Budget(), window=self.WINDOW, only=people, clock=lambda: clock.now)
        assert taken(batcher, plan) == [1]
        clock.now += timedelta(minutes=1)
        assert taken(batcher, plan, under_way=1) == WAIT
        with pytest.raises(OutsideSendWindowError) as caught:
            taken(batcher, plan)
        assert caught.value.until == NINE + timedelta(days=1)
        clock.now = caught.value.until
        assert everything(batcher, plan) == [[2], [3]]

    def test_resend_takes_recipients_by_their_own_time_zones(self) -> None:
        plan = self.plan("Asia/Tokyo", None, "America/New_York", None)
        people = list(plan.not_sent())
        plan.set_status([recipient.position for recipient in people], RecipientStatus.UNKNOWN)
        batcher = Batcher(plan, 10, Budget(), window=self.WINDOW, only=people, clock=lambda: NINE)
        assert taken(batcher, plan) == [2, 4]
        with pytest.raises(OutsideSendWindowError):
            taken(batcher, plan)

    def test_resend_requeued_at_closing_is_batched_at_the_next_opening(self) -> None:
        clock = SimpleNamespace(now=NINE)
        plan = self.plan(*[None] * 4)
        people = list(plan.not_sent())
        plan.set_status([recipient.position for recipient in people], RecipientStatus.UNKNOWN)
        batcher = Batcher(plan, 4, Budget(), window=self.WINDOW, only=people, clock=lambda: clock.now)
        pack = asyncio.run(batcher.next(0))
        assert isinstance(pack, tuple)
        batcher.requeue([pack[:2], pack[2:]])
        clock.now = NINE + timedelta(days=1)
        assert sorted(row for pack in everything(batcher, plan) for row in pack) == [1, 2, 3, 4]


class TestDnd:
    def test_batch_is_filled_up_with_permitted_recipients(self) -> None:
        plan = plan_of(*phones(500))

        class Even:
            batch_size = 100

            async def filter(self, people: Sequence[Recipient]) -> list[Recipient]:
                plan.set_status([one.position for one in people if one.row % 2], RecipientStatus.DND)
                return [one for one in people if not one.row % 2]

        batcher = Batcher(plan, 100, Budget(), dnd_filter=Even())  # type: ignore[arg-type]  # as much as it uses of it
        packs = everything(batcher, plan)
        assert [len(pack) for pack in packs] == [100, 100, 50]
        assert (batcher.left_out, plan.counts()[RecipientStatus.DND]) == (250, 250)


class TestTestRecipients:
    def plan(self) -> RecipientTable:
        plan = RecipientTable()
        plan.add([planned(one, 0) for one in phones(3)])
        plan.add([planned(one, row) for row, one in enumerate(phones(4, 10), 1)])
        plan.deduplicate_and_suppress()
        return plan

    def test_test_recipients_share_no_batch_with_others(self) -> None:
        plan = self.plan()
        batcher = Batcher(plan, 2, Budget())
        assert taken(batcher, plan) == [0, 0]
        assert taken(batcher, plan, under_way=1) == WAIT
        assert taken(batcher, plan) == [0]
        assert taken(batcher, plan, under_way=1) == WAIT
        assert [taken(batcher, plan), taken(batcher, plan, under_way=1)] == [[1, 2], [3, 4]]

    def test_test_only_yields_only_test_recipients(self) -> None:
        plan = self.plan()
        assert everything(Batcher(plan, 10, Budget(), test_only=True), plan) == [[0, 0, 0]]
