"""Tries on an event loop whose time is told, with something happening before any one of its steps.

Everything but Airflow, the service and the clock is real: engine, journal, client, rate limit and retries. The service
is the oracle: it counts what reached whom. Time passes only while nobody has anything to do.
"""

from __future__ import annotations

import asyncio
import itertools
import json
import threading
from collections import Counter
from collections.abc import Callable, Sequence
from concurrent.futures import Future
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from types import SimpleNamespace
from typing import Any

import pytest

from cpaas_provider.api.client import AsyncCpaasClient
from cpaas_provider.api.core import Call
from cpaas_provider.api.http.wire import HttpResponse, OutgoingRequest, TransportFailure
from cpaas_provider.api.operations import lookup_phone, send_sms
from cpaas_provider.api.rate_limit import RateLimiter
from cpaas_provider.sending import engine as engine_module
from cpaas_provider.sending import shutdown as shutdown_module
from cpaas_provider.sending.campaign.campaign import Campaign, CampaignOptions
from cpaas_provider.sending.campaign.guards.dnd import DndFilter, OnLookupError
from cpaas_provider.sending.campaign.loader import Columns, RecipientLoader
from cpaas_provider.sending.campaign.progress import LookUps
from cpaas_provider.sending.campaign.recipients import RecipientTable
from cpaas_provider.sending.engine import SendEngine
from cpaas_provider.sending.journal import writer as writer_module
from cpaas_provider.sending.journal.journal import Journal
from cpaas_provider.sending.journal.log import JournalLog
from cpaas_provider.sending.journal.store import TryInfo
from cpaas_provider.sending.shutdown import StopSignal
from cpaas_provider.sending.single import SingleSendState
from cpaas_provider.sending.spec import OnUnknown, OutcomeProbe, RequestResult, SendSpec, UnknownPolicy
from tests.reading import nigerian_reader
from tests.unit.sending.campaign.parts import IDENTITY, OPERATION, SECRETS, GoneError, Rows, message, phones
from tests.unit.sending.ports import NoDelivery, Ports

PEOPLE = tuple(phones(3))
RETRIES = 5
ANSWERED_AFTER = 0.4
"""Seconds a response takes; less than the grace period of a stop."""

STORED_AFTER = 0.02
"""Seconds a write of the journal takes."""

_MOST_STEPS = 20_000


class KilledError(KeyboardInterrupt):
    """The process is gone: what is raised afterwards reaches nobody, and nothing it does has any effect.

    Of an exception of this kind alone an event loop does not take care by itself.
    """


class DownError(Exception):
    """The API server cannot be reached."""


class ToldLoop(asyncio.SelectorEventLoop):
    """An event loop that calls a function before each of its steps, and whose time passes only where nobody works.

    :param before: called with the number of the step
    """

    def __init__(self, before: Callable[[int], object]) -> None:
        self._now = 1_000.0
        self.steps = 0
        self._before = before
        super().__init__()

    def time(self) -> float:
        return self._now

    def call_soon(self, callback: Any, *args: Any, context: Any = None) -> Any:
        def step(*given: Any) -> None:
            self.steps += 1
            assert self.steps < _MOST_STEPS, "it does not come to an end"
            try:
                self._before(self.steps)
            except KilledError:
                # What is cleaned up afterwards has no effect, and needs to come to an end.
                super(ToldLoop, self).call_soon(callback, *given, context=context)
                raise
            callback(*given)

        return super().call_soon(step, *args, context=context)

    def _run_once(self) -> None:
        if not self._ready:  # type: ignore[attr-defined]  # asyncio's own
            timers = [one._when for one in self._scheduled if not one._cancelled]  # type: ignore[attr-defined]
            assert timers, "everybody waits for somebody else"
            self._now = max(self._now, min(timers))
        super()._run_once()  # type: ignore[misc]


@dataclass
class Faults:
    """What goes wrong in a try.

    :param at_step: called before each step of the loop
    :param at_set: called with each write of the journal and its number; returns whether it is stored, and may raise
    :param at_get: called with each read of the journal and its number
    :param respond: what the service answers to a send, by the number of the request; ``None`` accepts
    """

    at_step: Callable[[Attempt, int], object] = lambda attempt, step: None
    at_set: Callable[[Attempt, int, Callable[[], None]], object] = lambda attempt, number, store: store()
    at_get: Callable[[Attempt, int], object] = lambda attempt, number: None
    respond: Callable[[int, Sequence[str]], HttpResponse | TransportFailure | None] = lambda number, people: None
    look_up: Callable[[int], HttpResponse | TransportFailure | None] = lambda number: None


@dataclass
class Attempt:
    """One try, and what became of it."""

    owner: int
    stop: StopSignal
    loop: ToldLoop | None = None
    main: asyncio.Task[None] | None = None
    sets: int = 0
    gets: int = 0
    dead: bool = False
    error: BaseException | None = None
    accepted: set[str] = field(default_factory=set)
    unknown: set[str] = field(default_factory=set)
    left_out: set[str] = field(default_factory=set)
    in_flight: set[str] = field(default_factory=set)
    """Whose request left and was not answered in a way that the try could read."""


class World:
    """A task, its state and the service.

    :param kind: ``single``, ``probed`` (a single send with a request before it) or ``campaign``
    :param acts_late: whether the service acts just before it answers, and not once a request arrives
    """

    def __init__(
        self,
        kind: str,
        *,
        policy: OnUnknown = OnUnknown.SKIP,
        per_second: float = 10.0,
        people: Sequence[str] = PEOPLE,
        per_request: int = 1,
        window: int = 2,
        acts_late: bool = False,
        dnd: OnLookupError | None = None,
        grace: float = 4.0,
    ) -> None:
        self.kind, self.policy, self.per_second, self.people = kind, policy, per_second, tuple(people)
        self.per_request, self.window, self.acts_late, self.dnd, self.grace = per_request, window, acts_late, dnd, grace
        self.stored: dict[str, str] = {}
        self.reached: Counter[str] = Counter()
        self.number, self.owner = 0, 0
        self.sends = itertools.count(1)
        self.look_ups = itertools.count(1)

    # --- the task's state and the service ---------------------------------------------------------------------------

    def _store(self, attempt: Attempt, faults: Faults) -> Any:
        def get(key: str) -> Any:
            attempt.gets += 1
            faults.at_get(attempt, attempt.gets)
            return json.loads(self.stored[key]) if key in self.stored else None

        def set_(key: str, value: Any) -> None:
            self._refuse(attempt)
            attempt.sets += 1
            text = json.dumps(value, allow_nan=False)
            faults.at_set(attempt, attempt.sets, lambda: self.stored.__setitem__(key, text))

        def delete(key: str) -> None:
            self._refuse(attempt)
            self.stored.pop(key, None)

        return SimpleNamespace(get=get, set=set_, delete=delete)

    def _refuse(self, attempt: Attempt) -> None:
        if attempt.dead:
            raise DownError
        if attempt.owner != self.owner:
            raise GoneError

    async def _answer(self, attempt: Attempt, faults: Faults, request: OutgoingRequest) -> Any:
        if attempt.dead:
            return TransportFailure.REFUSED
        fields = json.loads(request.body or b"{}")
        if "recipients" not in fields:
            await asyncio.sleep(ANSWERED_AFTER)
            told = faults.look_up(next(self.look_ups))
            return told or HttpResponse(200, None, json.dumps({"msisdn": fields.get("phone"), "dnd": False}).encode())
        people = fields["recipients"].split(",")
        assert not attempt.stop.requested, "a request left after the stop"
        attempt.in_flight.update(people)
        number = next(self.sends)
        told = faults.respond(number, people)
        acts = told is None
        if acts and not self.acts_late:
            self.reached.update(people)
        await asyncio.sleep(ANSWERED_AFTER)
        if attempt.dead:
            return TransportFailure.CONNECTION_LOST
        if acts and self.acts_late:
            self.reached.update(people)
        attempt.in_flight.difference_update(people)
        return told or HttpResponse(200, None, json.dumps({"id": f"m{number}", "recipients": people}).encode())

    # --- a try ------------------------------------------------------------------------------------------------------

    def run(self, faults: Faults | None = None) -> Attempt:
        """Run the next try to its end."""
        faults = faults or Faults()
        self.number += 1
        attempt = Attempt(self.owner, StopSignal(self.grace))
        loop = attempt.loop = ToldLoop(lambda step: faults.at_step(attempt, step))
        _now.loop = loop
        try:
            with asyncio.Runner(loop_factory=lambda: loop) as runner:
                try:
                    runner.run(self._try(attempt, faults))
                except KilledError:
                    attempt.dead = True
                    raise
        except BaseException as error:  # noqa: BLE001 - it is judged by the test
            attempt.error = error
        return attempt

    async def _try(self, attempt: Attempt, faults: Faults) -> None:
        attempt.main = asyncio.current_task()
        client = AsyncCpaasClient("http://localhost:1", "sk_of_nobody", max_concurrency=4, default_region="NG")
        assert attempt.loop is not None
        client.rate_limiter = RateLimiter(self.per_second, attempt.loop.time)
        client._transport = SimpleNamespace(send=lambda request: self._answer(attempt, faults, request))  # type: ignore[assignment]
        tries = TryInfo(self.number, RETRIES, RETRIES)
        store = self._store(attempt, faults)
        work = self._campaign if self.kind == "campaign" else self._single
        await work(attempt, client, store, tries)

    async def _single(self, attempt: Attempt, client: AsyncCpaasClient, store: Any, tries: TryInfo) -> None:
        journal = Journal(store, SECRETS[:1], IDENTITY, tries)
        spec = Spec(OPERATION, self.people, {"content": "Hello"}, probes=(Snapshot(),) if self.kind == "probed" else ())
        state = SingleSendState(spec, journal, NoDelivery())
        try:
            policy = UnknownPolicy(self.policy, timedelta(), spec.probes)
            await SendEngine(state, client, Ports(attempt.stop), policy).run()
        finally:
            outcome = state.outcome()
            by_member = {member: recipient for recipient, member in state.members.items()}
            attempt.accepted = {by_member[one] for record in outcome.accepted for one in record.members}
            attempt.unknown = {by_member[one] for record in outcome.unknown for one in record.members}

    async def _campaign(self, attempt: Attempt, client: AsyncCpaasClient, store: Any, tries: TryInfo) -> None:
        said = message()
        log = JournalLog(store, SECRETS[:1], IDENTITY, OPERATION, tries)
        options = CampaignOptions(self.per_request, self.window, self.policy)
        with RecipientTable() as plan:
            campaign = Campaign(plan, log, said, options, NoDelivery(), dnd=Dnd(self.dnd) if self.dnd else None)
            planner = RecipientLoader(plan, said, log.hasher, reader=nigerian_reader(said))
            campaign.prepare(
                planner, Rows(*(f"+{one}" for one in self.people)), Columns("phone"), tests=None, suppression_list=None
            )
            try:
                await SendEngine(campaign, client, Ports(attempt.stop), UnknownPolicy(self.policy, timedelta())).run()
                campaign.check_result()
            finally:
                for line in plan.rows():
                    which = {"sent": attempt.accepted, "unknown": attempt.unknown, "not_sent": set()}
                    which.get(line["outcome"], attempt.left_out).add(line["recipient"])

    # --- what must be true ------------------------------------------------------------------------------------------

    def judge(self, attempt: Attempt) -> None:
        """Check what must be true after any try."""
        twice = {one for one, count in self.reached.items() if count > 1}
        assert not (twice and self.policy is not OnUnknown.RESEND), f"{twice} were sent to twice"
        everybody = set(self.people)
        assert attempt.accepted <= set(self.reached), "counted as sent to, and was not"
        if attempt.error is None:
            assert attempt.accepted | attempt.unknown | attempt.left_out == everybody, (
                "it succeeded, and some are missing"
            )

    def finish(self, faults: Faults | None = None) -> Attempt:
        """Let undisturbed tries do the rest, and check that nobody is missing."""
        while (last := self.run(faults)).error is not None:
            self.judge(last)
            assert self.number <= RETRIES, f"it does not come to an end: {last.error!r}"
        self.judge(last)
        assert set(self.reached) | last.unknown == set(self.people), "somebody is missing"
        return last


class Spec(SendSpec, frozen=True):
    """One SMS."""

    def build_call(self, recipients: Sequence[str], reference: str, callback_url: str | None) -> Call[Any]:
        return send_sms([f"+{one}" for one in recipients], "Shop", self.body["content"], external_ref=reference)

    def read_result(self, response: Any, *, repeated: bool) -> RequestResult:
        return RequestResult(response.id, details={"id": response.id})


class Snapshot(OutcomeProbe):
    """A probe that asks the service before a request and knows nothing afterwards."""

    max_wait = timedelta()

    async def snapshot(self, client: Any) -> Any:
        return [(await client.run(lookup_phone(f"+{PEOPLE[0]}"))).msisdn]

    async def check(self, client: Any, entry: Any) -> None:
        return None


class Dnd:
    """Makes a filter that asks the service for everybody."""

    def __init__(self, on_error: OnLookupError) -> None:
        self.look_ups = LookUps()
        self._on_error = on_error

    def open(self, table: RecipientTable, client: Any) -> DndFilter:
        async def look_up(address: str) -> bool | None:
            return (await client.run(lookup_phone(f"+{address}"))).dnd

        return DndFilter(
            table,
            look_up,
            [str.encode],
            None,
            since=datetime.now(UTC),
            on_error=self._on_error,
            at_once=2,
        )


class Slow:
    """An executor whose work takes its time, goes on when nobody waits for it, and is done one after the other."""

    def __init__(self, *_: Any) -> None:
        self._free_at = 0.0

    def submit(self, work: Callable[..., Any], *given: Any) -> Future[Any]:
        done: Future[Any] = Future()
        done.set_running_or_notify_cancel()
        loop = asyncio.get_running_loop()
        self._free_at = max(self._free_at, loop.time()) + STORED_AFTER

        def do() -> None:
            try:
                done.set_result(work(*given))
            except Exception as error:  # noqa: BLE001 - it is the future's to raise
                done.set_exception(error)

        loop.call_at(self._free_at, do)
        return done

    def shutdown(self, wait: bool = True) -> None:
        pass


def stop_at(step: int) -> Faults:
    """Have Airflow stop the task before a step."""
    return Faults(lambda attempt, now: attempt.stop.request() if now == step else None)


def cancel_at(step: int) -> Faults:
    """Have somebody press Ctrl-C before a step: asyncio cancels the task that it was given."""
    return Faults(lambda attempt, now: attempt.main and attempt.main.cancel() if now == step else None)


def kill_at(step: int) -> Faults:
    """Have the process killed before a step."""

    def kill(attempt: Attempt, now: int) -> None:
        if now == step:
            attempt.dead = True
            raise KilledError

    return Faults(kill)


def steps_of(make: Callable[[], World]) -> int:
    """Return how many steps an undisturbed try takes."""
    done = make().run()
    assert done.error is None
    assert done.loop is not None
    return done.loop.steps


_now = threading.local()


def hurry(monkeypatch: pytest.MonkeyPatch) -> None:
    """Have time pass only where nobody works, and everything happen in one thread."""

    async def inline(work: Callable[[], Any]) -> Any:
        await asyncio.sleep(0)
        return work()

    monkeypatch.setattr(writer_module, "ThreadPoolExecutor", Slow)
    monkeypatch.setattr(engine_module, "in_thread", inline)
    monkeypatch.setattr(shutdown_module, "time", SimpleNamespace(monotonic=lambda: _now.loop.time()))  # noqa: PLW0108 - the loop of the try
