"""Requests of unknown outcome: what probes establish, what is waited for, and what is then done."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping, Sequence
from datetime import UTC, datetime, timedelta
from types import SimpleNamespace
from typing import Any

import pytest

from cpaas_provider.api.errors import CpaasError, CpaasRejectedError, CpaasUnknownOutcomeError
from cpaas_provider.sending.errors import (
    ChangedBodyError,
    ProbeFailedError,
    ProbeLaterError,
    RefutedError,
    StoppedError,
    UnknownOutcomeError,
)
from cpaas_provider.sending.journal.model import RequestRecord, Result, State
from cpaas_provider.sending.resolver import UnknownResolver, describe_unknown
from cpaas_provider.sending.shutdown import StopSignal
from cpaas_provider.sending.spec import OnUnknown, UnknownPolicy
from tests.unit.sending.ports import FunctionClient
from tests.unit.sending.records import record

NOW = datetime(2026, 3, 1, 12, tzinfo=UTC)
DOWN = CpaasUnknownOutcomeError("No readable answer came.", maybe_sent=False, retryable=True)


class Send:
    """A send of unknown requests, and what a resolver did about them."""

    def __init__(self, *requests: RequestRecord, lost: str | None = None, changed: bool = False) -> None:
        self.open = list(requests)
        self.lost, self.changed = lost, changed
        self.accepted: dict[int, Any] = {}
        self.recorded: dict[str, set[str | None]] = {}
        self.refuted: list[int] = []
        self.written: list[Result] = []

    def unresolved(self) -> Sequence[RequestRecord]:
        return self.open

    def unknown_recipients(self) -> int:
        return sum(len(one.members) for one in self.open)

    def is_changed(self, request: RequestRecord) -> bool:
        return self.changed

    def accepted_ids(self) -> dict[str, set[str | None]]:
        return self.recorded

    def confirm(self, found: Mapping[int, dict[str, Any]]) -> Sequence[Result]:
        self.accepted.update(found)
        self.open = [one for one in self.open if one.number not in found]
        return [Result(number, State.ACCEPTED) for number in found]

    def refute(self, request: RequestRecord, error: RefutedError) -> Result | None:
        self.refuted.append(request.number)
        return Result(request.number, State.REJECTED)

    def interrupted(self) -> Sequence[Result]:
        return [Result(one.number, State.UNKNOWN) for one in self.open]

    def end_resends(self, unknown: str, advice: str) -> None:
        raise UnknownOutcomeError(f"{unknown} {advice}")


def probe(answer: Any = None, max_wait: float = 0) -> Any:
    async def check(client: Any, request: RequestRecord) -> Any:
        found = answer(request) if callable(answer) else answer
        if isinstance(found, Exception):
            raise found
        return found

    return SimpleNamespace(max_wait=timedelta(seconds=max_wait), check=check)


def resolver(
    send: Send, *probes: Any, on_unknown: OnUnknown = OnUnknown.FAIL, stop: StopSignal | None = None
) -> UnknownResolver:
    return UnknownResolver(
        send,
        UnknownPolicy(on_unknown, timedelta(minutes=10), probes),
        SimpleNamespace(end=send.written.append),  # type: ignore[arg-type]  # as much as it uses of it
        FunctionClient(lambda fields: None),
        stop or StopSignal(),
        "dag run task",
        lambda: NOW,
    )


def resolve(send: Send, *probes: Any, **how: Any) -> bool:
    return asyncio.run(resolver(send, *probes, **how).resolve())


def request(number: int = 0, age: float = 100, **facts: Any) -> RequestRecord:
    return record(f"ref-{number}", number=number, started_at=NOW - timedelta(seconds=age), **facts)


def test_request_that_a_probe_finds_is_recorded_as_accepted() -> None:
    send = Send(request(0), request(1))
    resolve(send, probe(), probe(lambda one: {"id": one.number}))
    assert send.accepted == {0: {"id": 0}, 1: {"id": 1}}
    assert [one.state for one in send.written] == [State.ACCEPTED] * 2


@pytest.mark.parametrize("recorded", [{"7"}, {"7", "8"}, {None}, {None, "8"}])
@pytest.mark.parametrize("found", ["7", 7, None])
def test_message_of_another_accepted_request_with_the_same_reference_proves_nothing(
    recorded: set[str | None], found: Any
) -> None:
    send = Send(request(0), request(1))
    send.recorded = {"ref-0": recorded}
    with pytest.raises(UnknownOutcomeError):
        resolve(send, probe(lambda one: {"id": found}))
    assert send.accepted == {1: {"id": found}}


def test_new_message_with_the_same_reference_proves_acceptance() -> None:
    send = Send(request(0))
    send.recorded = {"ref-0": {"7"}}
    resolve(send, probe(lambda one: {"id": "8"}))
    assert send.accepted == {0: {"id": "8"}}


def test_each_probe_sees_its_own_snapshot() -> None:
    seen: list[Any] = []
    note: Callable[[RequestRecord], None] = lambda one: seen.append(one.probe_snapshot)  # noqa: E731 - short
    with pytest.raises(UnknownOutcomeError):
        resolve(Send(request(probe_snapshot=["a", None])), probe(note), probe(note))
    assert seen == ["a", None]


@pytest.mark.parametrize(("age", "seconds"), [(-599, 5), (0, 5), (3, 5), (40, 40), (80, 60), (590, 10)])
def test_probe_that_may_find_it_later_is_waited_for_longer_and_longer(age: float, seconds: float) -> None:
    with pytest.raises(ProbeLaterError) as caught:
        resolve(Send(request(age=age)), probe(max_wait=86_400))
    assert caught.value.until == NOW + timedelta(seconds=seconds)


def test_unknown_request_without_a_probe_or_after_its_time_limit_fails() -> None:
    for probes in ((), (probe(max_wait=99),)):
        with pytest.raises(UnknownOutcomeError, match=r"resolve --sent dag run task"):
            resolve(Send(request()), *probes)


def test_request_of_a_worker_whose_clock_is_far_ahead_is_not_waited_for() -> None:
    ahead = request(age=-timedelta(days=365).total_seconds())
    with pytest.raises(UnknownOutcomeError):
        resolve(Send(ahead), probe(max_wait=86_400))
    with pytest.raises(ProbeLaterError) as caught:
        resolve(Send(ahead, request(1, age=40)), probe(max_wait=86_400))
    assert caught.value.until == NOW + timedelta(seconds=40)


def test_request_that_is_established_before_another_is_refuted_is_recorded() -> None:
    send = Send(request(0), request(1))
    with pytest.raises(CpaasRejectedError):
        resolve(send, probe(lambda one: RefutedError("no") if one.number else {"id": 0}))
    assert (send.accepted, send.refuted) == ({0: {"id": 0}}, [1])


@pytest.mark.parametrize("on_unknown", OnUnknown)
@pytest.mark.parametrize("changed", [False, True])
def test_probe_that_failed_decides_nothing(on_unknown: OnUnknown, changed: bool) -> None:
    send = Send(request(), changed=changed)
    with pytest.raises(ProbeFailedError, match="Nothing further was sent"):
        resolve(send, probe(DOWN), on_unknown=on_unknown)
    assert not send.written


def test_probe_that_fails_for_good_is_passed_over() -> None:
    with pytest.raises(UnknownOutcomeError):
        resolve(Send(request()), probe(CpaasError("gone")))


def test_stop_while_probing_ends_the_try() -> None:
    stop = StopSignal()
    stop.request()
    with pytest.raises(StoppedError):
        resolve(Send(request()), probe(DOWN), stop=stop)


def test_probe_refutes_a_request_only_without_an_earlier_unknown_one() -> None:
    send = Send(request())
    with pytest.raises(CpaasRejectedError):
        resolve(send, probe(RefutedError("no")))
    assert send.refuted == [0]
    send = Send(request(previous_unknown=True))
    with pytest.raises(UnknownOutcomeError):
        resolve(send, probe(RefutedError("no")), probe())
    assert send.refuted == []


@pytest.mark.parametrize("on_unknown", OnUnknown)
def test_changed_content_is_neither_sent_nor_skipped(on_unknown: OnUnknown) -> None:
    send = Send(request(), changed=True)
    with pytest.raises(ChangedBodyError, match="neither sends nor skips"):
        resolve(send, on_unknown=on_unknown)
    assert not send.written


def test_skip_records_unknown_and_does_not_resend() -> None:
    send = Send(request())
    assert not resolve(send, on_unknown=OnUnknown.SKIP)
    assert [one.state for one in send.written] == [State.UNKNOWN]


def test_resend_is_done_by_the_caller_and_its_error_explains_manual_resolution() -> None:
    send = Send(request())
    assert resolve(send, on_unknown=OnUnknown.RESEND)
    assert not send.written
    with pytest.raises(UnknownOutcomeError, match=r"ref-0.*resolve --sent dag run task"):
        resolver(send, on_unknown=OnUnknown.RESEND).end_resends()


def test_probe_after_a_resend_is_waited_for_as_before_it() -> None:
    with pytest.raises(ProbeLaterError):
        asyncio.run(resolver(Send(request(age=1)), probe(max_wait=86_400), on_unknown=OnUnknown.RESEND).probe())


@pytest.mark.parametrize(
    ("lost", "requests", "said"),
    [
        (None, [request()], r"journal resolve --sent dag run task"),
        ("the journal is gone", [request()], r"journal show dag run task.*retained"),
        ("the journal is gone", [], r"start a new run, or clear the task with resend_on_clear=True\. on_unknown"),
    ],
)
def test_error_advises_what_is_possible_in_each_case(
    lost: str | None, requests: list[RequestRecord], said: str
) -> None:
    send = Send(*requests, lost=lost)
    send.unknown_recipients = lambda: 3 if not requests else 1  # type: ignore[method-assign]
    with pytest.raises(UnknownOutcomeError, match=said):
        resolve(send)


def test_description_names_requests_recipients_and_causes() -> None:
    first, second = request(reason="no answer. Try again"), request(1, reason="the try ended")
    assert describe_unknown([first], 1) == "Outcome unknown: request ref-0 (1 recipient). Cause: no answer."
    assert describe_unknown([first, second], 3, "gone") == (
        "Outcome unknown: 2 requests ref-0, ref-1 (3 recipients). Cause: gone; no answer."
    )
    assert describe_unknown([], 3, "gone") == "Outcome unknown: 3 recipients. Cause: gone."
    row = record("ref", "create_contact_row")
    assert describe_unknown([row], 1) == "Outcome unknown: request ref (1 row). Cause: not recorded."
