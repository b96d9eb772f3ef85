"""Recipients that are listed while a campaign runs are left out of every batch that is taken later than the bound."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import pytest

from cpaas_provider.sending.campaign.batcher import Batcher
from cpaas_provider.sending.campaign.guards.budget import Budget
from cpaas_provider.sending.campaign.guards.suppressions import CHECK_EVERY, SuppressionFilter
from cpaas_provider.sending.campaign.recipients import Recipient, RecipientStatus, RecipientTable
from tests.unit.sending.campaign.parts import phones, plan_of


class SuppressionList:
    """A list in memory, which counts how often it is searched."""

    def __init__(self) -> None:
        self.listed: set[str] = set()
        self.searches = 0
        self.on_search: Callable[[], None] = lambda: None

    def find(self, recipients: Sequence[str]) -> Mapping[str, str]:
        self.searches += 1
        self.on_search()
        return {recipient: "opt_out" for recipient in recipients if recipient in self.listed}


class Pace:
    """A clock that a test moves."""

    now = 0.0

    def __call__(self) -> float:
        return self.now


class Lookups:
    """Phone lookups, each of which takes some seconds."""

    batch_size = 100

    def __init__(self, clock: Pace, seconds: float, meanwhile: Callable[[], None]) -> None:
        self.clock, self.seconds, self.meanwhile = clock, seconds, meanwhile

    async def filter(self, recipients: Sequence[Recipient]) -> list[Recipient]:
        self.meanwhile()
        self.clock.now += self.seconds * len(recipients)
        return list(recipients)


@pytest.fixture
def suppressions() -> SuppressionList:
    return SuppressionList()


@pytest.fixture
def clock() -> Pace:
    return Pace()


def batcher_of(
    plan: RecipientTable, suppressions: SuppressionList, clock: Pace, per_request: int = 1, **filters: Any
) -> Batcher:
    suppression_filter = SuppressionFilter(plan, suppressions, 0.0, clock)
    return Batcher(plan, per_request, Budget(), suppression_filter=suppression_filter, **filters)


def take(batcher: Batcher, plan: RecipientTable) -> list[int]:
    batch = asyncio.run(batcher.next(0))
    assert isinstance(batch, tuple)
    plan.set_status([recipient.position for recipient in batch], RecipientStatus.SENT)
    return [recipient.row for recipient in batch]


def test_recipient_that_was_taken_ahead_is_left_out_after_the_interval(
    suppressions: SuppressionList, clock: Pace
) -> None:
    plan = plan_of(*phones(6))
    batcher = batcher_of(plan, suppressions, clock)
    assert take(batcher, plan) == [1]
    suppressions.listed = {recipient.address for recipient in plan.not_sent() if recipient.row in (2, 4)}
    clock.now = CHECK_EVERY - 1
    assert take(batcher, plan) == [2]
    clock.now = CHECK_EVERY
    assert [take(batcher, plan) for _ in range(3)] == [[3], [5], [6]]
    assert plan.counts()[RecipientStatus.SUPPRESSED] == 1
    assert batcher.left_out == 1


def test_parts_of_a_rejected_batch_are_checked_again(suppressions: SuppressionList, clock: Pace) -> None:
    plan = plan_of(*phones(4))
    batcher = batcher_of(plan, suppressions, clock, per_request=4)
    batch = asyncio.run(batcher.next(0))
    assert isinstance(batch, tuple)
    batcher.requeue([batch[:2], batch[2:]])
    suppressions.listed = {batch[2].address, batch[3].address, batch[0].address}
    clock.now = CHECK_EVERY
    assert take(batcher, plan) == [2]
    assert asyncio.run(batcher.next(0)) is None


def test_part_is_checked_again_although_the_list_was_searched_for_others(
    suppressions: SuppressionList, clock: Pace
) -> None:
    """The rejected request may have waited for a minute, while others were taken."""
    plan = plan_of(*phones(6))
    batcher = batcher_of(plan, suppressions, clock, per_request=2)
    batch = asyncio.run(batcher.next(0))
    assert isinstance(batch, tuple)
    clock.now = CHECK_EVERY
    plan.set_status([recipient.position for recipient in batch], RecipientStatus.SENT)
    assert take(batcher, plan) == [3, 4]
    suppressions.listed = {batch[0].address}
    clock.now = CHECK_EVERY + 1
    batcher.requeue([batch])
    assert [take(batcher, plan) for _ in range(2)] == [[2], [5, 6]]


def test_part_that_is_returned_during_a_search_is_not_lost(suppressions: SuppressionList, clock: Pace) -> None:
    plan = plan_of(*phones(6))
    batcher = batcher_of(plan, suppressions, clock, per_request=2)
    batch = asyncio.run(batcher.next(0))
    assert isinstance(batch, tuple)
    suppressions.listed = {recipient.address for recipient in plan.not_sent() if recipient.row == 3}
    clock.now = CHECK_EVERY

    def reject() -> None:
        suppressions.on_search = lambda: None
        batcher.requeue([batch])

    suppressions.on_search = reject
    assert sorted(row for _ in range(3) for row in take(batcher, plan)) == [1, 2, 4, 5, 6]


def test_part_that_is_returned_while_the_last_recipients_are_filtered_is_not_lost(
    suppressions: SuppressionList, clock: Pace
) -> None:
    """The batcher has no other recipients then, and the campaign would end without these."""
    plan, batches = plan_of(*phones(4)), list[Any]()

    def reject() -> None:
        if batches:
            batcher.requeue([batches.pop()])

    batcher = batcher_of(plan, suppressions, clock, per_request=4, dnd_filter=Lookups(clock, 0, reject))
    batches.append(asyncio.run(batcher.next(0)))
    plan.set_status(range(1, 5), RecipientStatus.REJECTED)
    assert take(batcher, plan) == [1, 2, 3, 4]
    assert asyncio.run(batcher.next(0)) is None


def test_recipient_that_is_listed_during_lookups_is_left_out(suppressions: SuppressionList, clock: Pace) -> None:
    """The lookups of a batch take a minute at ten a second, and longer than the bound."""
    plan = plan_of(*phones(600))
    first = next(plan.not_sent()).address

    def opt_out() -> None:
        suppressions.listed = {first}

    lookups = Lookups(clock, CHECK_EVERY / 300, opt_out)
    batcher = batcher_of(plan, suppressions, clock, per_request=300, dnd_filter=lookups)
    assert take(batcher, plan) == [*range(2, 302)]


def test_batch_is_filled_up_if_all_were_listed_during_lookups(suppressions: SuppressionList, clock: Pace) -> None:
    plan = plan_of(*phones(600))
    addresses = [recipient.address for recipient in plan.not_sent()]

    def opt_out() -> None:
        suppressions.listed = {*addresses[:550]}

    lookups = Lookups(clock, CHECK_EVERY / 100, opt_out)
    batcher = batcher_of(plan, suppressions, clock, per_request=100, dnd_filter=lookups)
    assert take(batcher, plan) == [*range(551, 601)]


def test_list_is_not_searched_for_a_campaign_that_ends_within_the_interval(
    suppressions: SuppressionList, clock: Pace
) -> None:
    plan = plan_of(*phones(5))
    batcher = batcher_of(plan, suppressions, clock)
    for number in range(5):
        clock.now = number
        take(batcher, plan)
    assert suppressions.searches == 0


def test_long_campaign_searches_once_for_many_recipients(suppressions: SuppressionList, clock: Pace) -> None:
    plan = plan_of(*phones(1_000))
    batcher = batcher_of(plan, suppressions, clock)
    clock.now = CHECK_EVERY
    for _ in range(1_000):
        take(batcher, plan)
    assert suppressions.searches <= 3
