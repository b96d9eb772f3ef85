"""Recipients that are listed while a campaign runs are left out of every batch that is taken later than the bound."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence

import pytest

from cpaas_provider.sending.campaign.batcher import Batcher
from cpaas_provider.sending.campaign.guards.budget import Budget
from cpaas_provider.sending.campaign.guards.suppressions import CHECK_EVERY, SuppressionFilter
from cpaas_provider.sending.campaign.recipients import RecipientStatus, RecipientTable
from tests.unit.sending.campaign.parts import phones, plan_of


class SuppressionList:
    """A list in memory, which counts how often it is searched."""

    def __init__(self) -> None:
        self.listed: set[str] = set()
        self.searches = 0

    def find(self, recipients: Sequence[str]) -> Mapping[str, str]:
        self.searches += 1
        return {recipient: "opt_out" for recipient in recipients if recipient in self.listed}


class Pace:
    """A clock that a test moves."""

    now = 0.0

    def __call__(self) -> float:
        return self.now


@pytest.fixture
def suppressions() -> SuppressionList:
    return SuppressionList()


@pytest.fixture
def clock() -> Pace:
    return Pace()


def batcher_of(plan: RecipientTable, suppressions: SuppressionList, clock: Pace, per_request: int = 1) -> Batcher:
    return Batcher(plan, per_request, Budget(), suppression_filter=SuppressionFilter(plan, suppressions, 0.0, clock))


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
