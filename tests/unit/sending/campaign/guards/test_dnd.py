"""Whom not to disturb: looked up once, remembered, and what is done about a number that cannot be."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from cpaas_provider.api.errors import (
    CpaasAuthenticationError,
    CpaasError,
    CpaasInsufficientBalanceError,
    CpaasNotSentError,
    CpaasRejectedError,
    CpaasUnknownOutcomeError,
)
from cpaas_provider.sending.campaign.guards.dnd import (
    DndFilter,
    LookupCircuitOpenError,
    LookupFailedError,
    OnLookupError,
)
from cpaas_provider.sending.campaign.recipients import RecipientTable
from tests.unit.sending.campaign.parts import phones, plan_of, statuses

DAYS = timedelta(days=30)


class Book:
    """A memory in memory."""

    def __init__(self) -> None:
        self.found: dict[bytes, tuple[bool, datetime]] = {}
        self.broken = False

    def get_many(self, hashes: Sequence[bytes], since: datetime) -> dict[bytes, bool]:
        if self.broken:
            raise OSError("no such table")
        return {one: self.found[one][0] for one in hashes if one in self.found and self.found[one][1] >= since}

    def set_many(self, found: Mapping[bytes, bool], at: datetime) -> None:
        if self.broken:
            raise OSError("no such table")
        self.found.update({one: (dnd, at) for one, dnd in found.items()})


class Service:
    def __init__(self, **answers: Any) -> None:
        self.answers = {f"2348031200{name}": answer for name, answer in answers.items()}
        self.asked: Counter[str] = Counter()

    async def look_up(self, address: str) -> bool | None:
        self.asked[address] += 1
        await asyncio.sleep(0)
        answer = self.answers.get(address, False)
        if isinstance(answer, Exception):
            raise answer
        return answer  # type: ignore[no-any-return]  # what the test says


def disturb(
    service: Service, plan: RecipientTable, book: Book | None = None, on_error: str = "skip", ttl: timedelta = DAYS
) -> DndFilter:
    return DndFilter(
        plan, service.look_up, lambda address: [address.encode()], book, ttl=ttl, on_error=OnLookupError(on_error)
    )


def looking(
    service: Service, plan: RecipientTable, book: Book | None = None, on_error: str = "skip", ttl: timedelta = DAYS
) -> list[str]:
    """Return who of a plan may be sent to."""
    asking = disturb(service, plan, book, on_error, ttl)
    return [one.address for one in asyncio.run(asking.filter(list(plan.not_sent())))]


A, B, C = phones(3)


def service(**answers: Any) -> Service:
    made = Service()
    made.answers = {{"a": A, "b": B, "c": C}[name]: answer for name, answer in answers.items()}
    return made


def test_who_is_not_to_be_disturbed_is_left_out_and_noted() -> None:
    plan = plan_of(A, B, C)
    assert looking(service(b=True), plan) == [A, C]
    assert statuses(plan) == {A: "not_sent", B: "dnd", C: "not_sent"}


def test_each_number_is_looked_up_once_within_the_time_to_live() -> None:
    book, asked = Book(), service(b=True)
    looking(asked, plan_of(A, B), book)
    assert looking(asked, plan_of(A, B, C), book) == [A, C]
    assert asked.asked == {A: 1, B: 1, C: 1}


def test_afterwards_it_is_looked_up_again() -> None:
    book, asked = Book(), service()
    book.found = {A.encode(): (True, datetime.now(UTC) - timedelta(days=31))}
    assert looking(asked, plan_of(A), book) == [A]
    assert asked.asked == {A: 1}


class TestANumberThatCannotBeLookedUp:
    ERRORS = pytest.mark.parametrize(
        "error", [CpaasRejectedError("no", status=404), CpaasUnknownOutcomeError("cut", maybe_sent=False), None]
    )

    @ERRORS
    def test_is_left_out(self, error: CpaasError | None) -> None:
        plan = plan_of(A, B)
        assert looking(service(a=error), plan) == [B]
        assert statuses(plan)[A] == "lookup_failed"

    @ERRORS
    def test_or_sent_to(self, error: CpaasError | None) -> None:
        assert looking(service(a=error, b=True), plan_of(A, B), on_error="send") == [A]

    @ERRORS
    def test_or_ends_the_campaign(self, error: CpaasError | None) -> None:
        with pytest.raises(LookupFailedError, match="'skip' leaves such numbers out"):
            looking(service(a=error), plan_of(A, B), on_error="fail")

    @ERRORS
    def test_is_not_remembered(self, error: CpaasError | None) -> None:
        book = Book()
        looking(service(a=error), plan_of(A, B), book)
        assert set(book.found) == {B.encode()}


class TestLookupOutage:
    """Look-ups that fail one after the other are not gone on with: each takes its attempts, and may be charged."""

    MANY = phones(500)
    OUTAGE = pytest.mark.parametrize(
        "failure", [CpaasUnknownOutcomeError("cut", maybe_sent=False), CpaasRejectedError("no", status=404), None]
    )

    def failing(self, failure: CpaasError | None, first: int = 0) -> Service:
        made = Service()
        made.answers = dict.fromkeys(self.MANY[first:], failure)
        return made

    @OUTAGE
    def test_skipping_them_it_ends_the_try_and_who_was_not_asked_for_is_not_reached(
        self, failure: CpaasError | None
    ) -> None:
        plan, asked = plan_of(*self.MANY), self.failing(failure, first=20)
        with pytest.raises(LookupCircuitOpenError, match="10 lookups in a row failed") as caught:
            looking(asked, plan)
        assert not caught.value.permanent
        assert len(asked.asked) <= 20 + 10 + 8
        counts = Counter(statuses(plan).values())
        assert 10 <= counts["lookup_failed"] <= 18
        assert counts["not_sent"] == 500 - counts["lookup_failed"]

    @OUTAGE
    def test_sending_to_them_it_asks_no_more(
        self, failure: CpaasError | None, caplog: pytest.LogCaptureFixture
    ) -> None:
        asked = self.failing(failure)
        asking = disturb(asked, plan := plan_of(*self.MANY), on_error="send")
        people = list(plan.not_sent())
        for some in (people[:100], people[100:]):
            assert asyncio.run(asking.filter(some)) == some
        assert len(asked.asked) <= 18
        assert caplog.text.count("No more recipients are looked up") == 1

    def test_failures_that_are_not_in_a_row_go_on(self) -> None:
        plan, asked = plan_of(*self.MANY), Service()
        asked.answers = dict.fromkeys(self.MANY[::2])
        assert looking(asked, plan) == self.MANY[1::2]

    def test_what_is_known_needs_no_look_up(self) -> None:
        book = Book()
        book.found = {one.encode(): (False, datetime.now(UTC)) for one in self.MANY[10:]}
        asked = self.failing(None)
        with pytest.raises(LookupCircuitOpenError):
            looking(asked, plan_of(*self.MANY), book)
        assert len(asked.asked) == 10


@pytest.mark.parametrize("on_error", ["skip", "send", "fail"])
@pytest.mark.parametrize(
    "error",
    [CpaasAuthenticationError("no"), CpaasInsufficientBalanceError("no"), CpaasNotSentError("no")],
    ids=lambda error: type(error).__name__,
)
def test_a_service_that_cannot_be_asked_at_all_ends_the_try_and_what_was_paid_for_is_remembered(
    error: CpaasError, on_error: str
) -> None:
    book, plan = Book(), plan_of(A, B, C)
    with pytest.raises(type(error)):
        looking(service(b=error, c=True), plan, book, on_error)
    assert {one: dnd for one, (dnd, _) in book.found.items()} == {A.encode(): False, C.encode(): True}


def test_a_memory_that_fails_costs_look_ups_and_nothing_else(caplog: pytest.LogCaptureFixture) -> None:
    book, asked = Book(), service(b=True)
    book.broken = True
    assert looking(asked, plan_of(A, B), book) == [A]
    assert "cannot be cached (OSError)" in caplog.text
