"""A stop, Ctrl-C, a kill or another try before each step of a try, and a store that fails at each read and write."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Iterator, Sequence

import pytest
from hypothesis import settings

from cpaas_provider.api.errors import CpaasRejectedError
from cpaas_provider.api.http.wire import HttpResponse
from cpaas_provider.sending.campaign.guards.dnd import OnLookupError
from cpaas_provider.sending.errors import JournalUnavailableError, StoppedError
from cpaas_provider.sending.shutdown import AnswerNotAwaitedError
from cpaas_provider.sending.spec import OnUnknown
from tests.unit.sending.steps import (
    PEOPLE,
    Attempt,
    DownError,
    Faults,
    KilledError,
    World,
    cancel_at,
    hurry,
    kill_at,
    steps_of,
    stop_at,
)

Make = Callable[[], World]


@pytest.fixture(autouse=True)
def hurried(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    hurry(monkeypatch)
    logging.disable(logging.CRITICAL)
    yield
    logging.disable(logging.NOTSET)


WORLDS: dict[str, Make] = {
    "single": lambda: World("single"),
    "single after a look-up": lambda: World("probed"),
    "single after a look-up, slowly": lambda: World("probed", per_second=0.1),
    "campaign": lambda: World("campaign"),
    "campaign, slowly": lambda: World("campaign", per_second=0.1),
    "campaign in one window": lambda: World("campaign", window=3),
    "campaign of packs": lambda: World("campaign", per_request=2, window=1, acts_late=True),
    "campaign with look-ups": lambda: World("campaign", dnd=OnLookupError.SKIP, window=1, per_request=2),
}


def steps_in(make: Make) -> range:
    """Return the steps of an undisturbed try: all, or one in two where there is little time."""
    return range(1, steps_of(make) + 1, 1 if settings().max_examples >= 50 else 2)


each_world = pytest.mark.parametrize("make", WORLDS.values(), ids=WORLDS)


@each_world
def test_stop_before_any_step_leaves_no_recipient_unknown_after_the_next_try(make: Make) -> None:
    for step in range(1, steps_of(make) + 1):
        world = make()
        stopped = world.run(stop_at(step))
        assert stopped.error is None or type(stopped.error) in (StoppedError, AnswerNotAwaitedError), step
        world.judge(stopped)
        assert not world.finish().unknown, step


@each_world
def test_cancel_before_any_step_leaves_at_most_requests_in_flight_unknown(make: Make) -> None:
    for step in steps_in(make):
        world = make()
        cancelled = world.run(cancel_at(step))
        world.judge(cancelled)
        assert world.finish().unknown <= cancelled.in_flight, step


@pytest.mark.filterwarnings("ignore::RuntimeWarning", "ignore::pytest.PytestUnraisableExceptionWarning")
@each_world
def test_kill_before_any_step_leaves_at_most_pending_requests_unknown(make: Make) -> None:
    for step in steps_in(make):
        world = make()
        killed = world.run(kill_at(step))
        assert isinstance(killed.error, KilledError)
        assert len(world.finish().unknown) <= max(
            world.window * world.per_request, len(PEOPLE) * ("c" not in world.kind)
        )


@each_world
def test_stop_without_a_grace_period_leaves_at_most_requests_in_flight_unknown(make: Make) -> None:
    for step in steps_in(make):
        world = make()
        world.grace = 0.0
        stopped = world.run(stop_at(step))
        world.judge(stopped)
        assert world.finish().unknown <= stopped.in_flight, step


def replaced_at(step: int, world: World, others: list[Attempt]) -> Callable[[Attempt, int], None]:
    """Have another try take the place of the first before a step, and run to its end."""

    def replace(attempt: Attempt, now: int) -> None:
        if now == step and attempt.owner == 0:
            world.owner = 1
            # An event loop of its own needs a thread of its own.
            other = threading.Thread(target=lambda: others.append(world.run()))
            other.start()
            other.join()

    return replace


def failing_at(numbers: range, is_stored: bool) -> Callable[[Attempt, int, Callable[[], None]], None]:
    """Have some writes of the journal fail, before they are stored or afterwards."""

    def at_set(attempt: Attempt, now: int, store: Callable[[], None]) -> None:
        if is_stored or now not in numbers:
            store()
        if now in numbers:
            raise DownError

    return at_set


@each_world
def test_try_superseded_before_any_step_sends_to_no_recipient_again(make: Make) -> None:
    for step in steps_in(make):
        world = make()
        others: list[Attempt] = []

        world.run(Faults(replaced_at(step, world, others)))
        world.judge(others[0])
        world.finish()


@each_world
def test_journal_that_fails_at_any_get_prevents_sending(make: Make) -> None:
    most = steps_of(make) * 2 // 3

    def begun() -> World:
        world = make()
        world.run(kill_at(most))
        return world

    def fails_at(number: int) -> Callable[[Attempt, int], None]:
        def at_get(attempt: Attempt, now: int) -> None:
            if now == number:
                raise DownError

        return at_get

    for number in range(1, begun().run().gets + 1):
        world = begun()
        before = dict(world.reached)
        failed = world.run(Faults(at_get=fails_at(number)))
        assert (type(failed.error), dict(world.reached)) == (JournalUnavailableError, before)
        world.judge(failed)
        world.finish()


@pytest.mark.parametrize("is_stored", [False, True], ids=["not stored", "stored"])
@pytest.mark.parametrize("times", [1, 2, 3, 4, 7, 1000])
@pytest.mark.parametrize("make", [WORLDS["single"], WORLDS["campaign"]], ids=["single", "campaign"])
def test_journal_that_fails_at_any_set_sends_to_no_recipient_again(make: Make, times: int, is_stored: bool) -> None:
    for number in range(1, make().run().sets + 2):
        world = make()

        failed = world.run(Faults(at_set=failing_at(range(number, number + times), is_stored)))
        world.judge(failed)
        # A write is made three times, and what it was to hold once more at the end.
        assert failed.error is None or times >= 3
        last = world.finish()
        assert times >= 3 or not last.unknown


@pytest.mark.parametrize("request_", [1, 2, 3])
def test_timeout_of_airflow_that_is_raised_within_a_request_ends_the_try(request_: int) -> None:
    class AirflowTaskTimeout(BaseException):
        """As Airflow has it: no ``Exception``, and raised wherever the code happens to be."""

    world = WORLDS["campaign"]()

    def respond(number: int, people: Sequence[str]) -> None:
        if number == request_:
            raise AirflowTaskTimeout

    timed_out = world.run(Faults(respond=respond))
    assert isinstance(timed_out.error, AirflowTaskTimeout)
    world.judge(timed_out)
    assert world.finish().unknown <= timed_out.in_flight


@pytest.mark.parametrize("figure", ["NaN", "Infinity", "-Infinity", "1e999", '"NaN"', str(10**34), "-1e30", "{}"])
@pytest.mark.parametrize("make", [WORLDS["single"], WORLDS["campaign"]], ids=["single", "campaign"])
def test_charge_that_is_no_number_leaves_a_request_accepted(make: Make, figure: str) -> None:
    body = f'{{"id": "m1", "meta": {{"estimate": {{"charge": {figure}, "available_balance": {figure}}}}}}}'
    world = make()

    def respond(number: int, people: Sequence[str]) -> HttpResponse:
        world.reached.update(people)
        return HttpResponse(200, None, body.encode())

    done = world.run(Faults(respond=respond))
    assert (done.error, done.accepted) == (None, set(PEOPLE))
    assert world.run().accepted == set(PEOPLE)
    assert set(world.reached.values()) == {1}


def test_rejection_in_the_grace_period_of_a_stop_ends_a_single_send() -> None:
    world, tries = WORLDS["single"](), list[Attempt]()

    def respond(number: int, people: Sequence[str]) -> HttpResponse:
        tries[0].stop.request()
        return HttpResponse(422, None, b'{"message": "The sender is unknown."}')

    rejected = world.run(Faults(lambda attempt, step: tries.append(attempt), respond=respond))
    assert isinstance(rejected.error, CpaasRejectedError)
    assert not rejected.accepted | rejected.unknown


@pytest.mark.parametrize("policy", [OnUnknown.FAIL, OnUnknown.RESEND])
@pytest.mark.parametrize("kind", ["single", "probed", "campaign"])
def test_stop_before_any_step_under_any_policy(kind: str, policy: OnUnknown) -> None:
    def make() -> World:
        return World(kind, policy=policy, per_second=0.1)

    for step in steps_in(make):
        world = make()
        world.judge(world.run(stop_at(step)))
        world.finish()
        assert set(world.reached.values()) == {1}
