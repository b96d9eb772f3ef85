"""The DND filter: cached lookups, failed lookups, and the circuit breaker."""

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
    LookupFailedError,
    OnLookupError,
)
from cpaas_provider.sending.campaign.guards.lookups import LookupCircuitOpenError
from cpaas_provider.sending.campaign.recipients import RecipientTable
from tests.unit.sending.campaign.parts import phones, plan_of, statuses

DAYS = timedelta(days=30)


class MemoryCache:
    """A cache of lookups in memory."""

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


def dnd_filter_of(
    service: Service,
    plan: RecipientTable,
    cache: MemoryCache | None = None,
    on_error: str = "skip",
    ttl: timedelta = DAYS,
) -> DndFilter:
    since = datetime.now(UTC) - ttl
    return DndFilter(
        plan, service.look_up, [str.encode], cache, since=since, on_error=OnLookupError(on_error), at_once=8
    )


def permitted(
    service: Service,
    plan: RecipientTable,
    cache: MemoryCache | None = None,
    on_error: str = "skip",
    ttl: timedelta = DAYS,
) -> list[str]:
    """Return who of a plan may be sent to."""
    asking = dnd_filter_of(service, plan, cache, on_error, ttl)
    return [one.address for one in asyncio.run(asking.filter(list(plan.not_sent())))]


A, B, C = phones(3)


def service(**answers: Any) -> Service:
    made = Service()
    made.answers = {{"a": A, "b": B, "c": C}[name]: answer for name, answer in answers.items()}
    return made


def test_dnd_number_is_excluded() -> None:
    plan = plan_of(A, B, C)
    assert permitted(service(b=True), plan) == [A, C]
    assert statuses(plan) == {A: "not_sent", B: "dnd", C: "not_sent"}


def test_number_is_looked_up_once_within_the_ttl() -> None:
    cache, asked = MemoryCache(), service(b=True)
    permitted(asked, plan_of(A, B), cache)
    assert permitted(asked, plan_of(A, B, C), cache) == [A, C]
    assert asked.asked == {A: 1, B: 1, C: 1}


def test_expired_lookup_is_repeated() -> None:
    cache, asked = MemoryCache(), service()
    cache.found = {A.encode(): (True, datetime.now(UTC) - timedelta(days=31))}
    assert permitted(asked, plan_of(A), cache) == [A]
    assert asked.asked == {A: 1}


class TestFailedLookup:
    ERRORS = pytest.mark.parametrize(
        "error", [CpaasRejectedError("no", status=404), CpaasUnknownOutcomeError("cut", maybe_sent=False), None]
    )

    @ERRORS
    def test_skip_excludes_the_number(self, error: CpaasError | None) -> None:
        plan = plan_of(A, B)
        assert permitted(service(a=error), plan) == [B]
        assert statuses(plan)[A] == "lookup_failed"

    @ERRORS
    def test_send_sends_to_the_number(self, error: CpaasError | None) -> None:
        assert permitted(service(a=error, b=True), plan_of(A, B), on_error="send") == [A]

    @ERRORS
    def test_fail_ends_the_campaign(self, error: CpaasError | None) -> None:
        with pytest.raises(LookupFailedError, match="'skip' leaves such numbers out"):
            permitted(service(a=error), plan_of(A, B), on_error="fail")

    @ERRORS
    def test_failure_is_not_cached(self, error: CpaasError | None) -> None:
        cache = MemoryCache()
        permitted(service(a=error), plan_of(A, B), cache)
        assert set(cache.found) == {B.encode()}


class TestLookupOutage:
    """Lookups that fail one after the other end: each takes several attempts, and may be charged."""

    MANY = phones(500)
    OUTAGE = pytest.mark.parametrize(
        "failure", [CpaasUnknownOutcomeError("cut", maybe_sent=False), CpaasRejectedError("no", status=404), None]
    )

    def failing(self, failure: CpaasError | None, first: int = 0) -> Service:
        made = Service()
        made.answers = dict.fromkeys(self.MANY[first:], failure)
        return made

    @OUTAGE
    def test_skip_ends_the_try_and_leaves_numbers_that_were_not_looked_up(self, failure: CpaasError | None) -> None:
        plan, asked = plan_of(*self.MANY), self.failing(failure, first=20)
        with pytest.raises(LookupCircuitOpenError, match="10 lookups in a row failed") as caught:
            permitted(asked, plan)
        assert not caught.value.permanent
        assert len(asked.asked) <= 20 + 10 + 8
        counts = Counter(statuses(plan).values())
        assert 10 <= counts["lookup_failed"] <= 18
        assert counts["not_sent"] == 500 - counts["lookup_failed"]

    @OUTAGE
    def test_send_makes_no_more_lookups(self, failure: CpaasError | None, caplog: pytest.LogCaptureFixture) -> None:
        asked = self.failing(failure)
        asking = dnd_filter_of(asked, plan := plan_of(*self.MANY), on_error="send")
        people = list(plan.not_sent())
        for some in (people[:100], people[100:]):
            assert asyncio.run(asking.filter(some)) == some
        assert len(asked.asked) <= 18
        assert caplog.text.count("No more numbers are looked up") == 1

    def test_failures_that_are_not_in_a_row_do_not_open_the_circuit(self) -> None:
        plan, asked = plan_of(*self.MANY), Service()
        asked.answers = dict.fromkeys(self.MANY[::2])
        assert permitted(asked, plan) == self.MANY[1::2]

    def test_cached_number_needs_no_lookup(self) -> None:
        cache = MemoryCache()
        cache.found = {one.encode(): (False, datetime.now(UTC)) for one in self.MANY[10:]}
        asked = self.failing(None)
        with pytest.raises(LookupCircuitOpenError):
            permitted(asked, plan_of(*self.MANY), cache)
        assert len(asked.asked) == 10


@pytest.mark.parametrize("on_error", ["skip", "send", "fail"])
@pytest.mark.parametrize(
    "error",
    [CpaasAuthenticationError("no"), CpaasInsufficientBalanceError("no"), CpaasNotSentError("no")],
    ids=lambda error: type(error).__name__,
)
def test_failure_of_every_number_ends_the_try_and_paid_lookups_are_cached(error: CpaasError, on_error: str) -> None:
    cache, plan = MemoryCache(), plan_of(A, B, C)
    with pytest.raises(type(error)):
        permitted(service(b=error, c=True), plan, cache, on_error)
    assert {one: dnd for one, (dnd, _) in cache.found.items()} == {A.encode(): False, C.encode(): True}


def test_failing_cache_costs_lookups_and_nothing_else(caplog: pytest.LogCaptureFixture) -> None:
    cache, asked = MemoryCache(), service(b=True)
    cache.broken = True
    assert permitted(asked, plan_of(A, B), cache) == [A]
    assert "cannot be cached (OSError)" in caplog.text
