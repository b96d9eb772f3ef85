"""A small world to send in: Airflow, the task's state and the service, in one process, with all that can go wrong.

The service is the oracle: it knows who was reached, and notes a violation the moment a request leaves that must not.
"""

from __future__ import annotations

import asyncio
import json
import threading
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from enum import Enum
from functools import partial
from types import SimpleNamespace
from typing import Any

from cpaas_provider.api.core import Call
from cpaas_provider.api.endpoints import SEND_SMS
from cpaas_provider.api.errors import (
    CpaasError,
    CpaasNotSentError,
    CpaasRateLimitedError,
    CpaasRejectedError,
    CpaasUnknownOutcomeError,
)
from cpaas_provider.sending.engine import SendEngine
from cpaas_provider.sending.errors import (
    ChangedBodyError,
    JournalUnavailableError,
    PartlyRejectedError,
    ProbeFailedError,
    ProbeLaterError,
    ResendLimitError,
    RunNotAllowedError,
    StoppedError,
    TrySupersededError,
    UnknownOutcomeError,
)
from cpaas_provider.sending.journal.hashing import KeyedHasher, task_identity
from cpaas_provider.sending.journal.journal import Journal
from cpaas_provider.sending.journal.model import RequestRecord, State, by_reference
from cpaas_provider.sending.journal.resolution import Resolution
from cpaas_provider.sending.journal.store import TryInfo
from cpaas_provider.sending.journal.view import JournalView
from cpaas_provider.sending.resolver import MAX_RESENDS
from cpaas_provider.sending.shutdown import AnswerNotAwaitedError, StopSignal
from cpaas_provider.sending.single import SingleSendState
from cpaas_provider.sending.spec import OnUnknown, RequestResult, SendOutcome, SendSpec, UnknownPolicy
from tests import journals
from tests.unit.sending.answers import Form, read, untouched
from tests.unit.sending.ports import FunctionClient, NoDelivery, Ports

OPERATION = "send_sms"
IDENTITY = task_identity("campaign", "manual__1", "send", -1)
PEOPLE = ("2348030001111", "2348030002222", "2348030003333", "ada@example.org", "447700900123")
TEXTS = ("Your parcel waits", "Come and fetch it")
WORDS = ("Adaeze", "Obinna")
SECRETS = ("sk_first_key", "sk_second_key", "sk_third_key")
PRIVATE = (*PEOPLE, *TEXTS, *WORDS, *SECRETS, "parcel", "example", "8030001111", "7700900123")
PATIENCE = timedelta(seconds=30)


class KilledError(Exception):
    """The process is gone: what is raised afterwards reaches nobody, and nothing it does has any effect."""


class DownError(Exception):
    """The API server cannot be reached."""


class BugError(Exception):
    """A fault of ours."""


class GoneError(Exception):
    """What Airflow answers to a try that was replaced."""

    def __init__(self) -> None:
        super().__init__("not found")
        self.error = SimpleNamespace(detail={"status_code": 404})


class AtGet(Enum):
    FINE, DOWN, KILLED, STOPPED = range(4)


class AtSet(Enum):
    FINE, DOWN, DOWN_COMMITTED, KILLED_BEFORE, KILLED_AFTER, STOPPED, REPLACED_BEFORE, REPLACED_AFTER = range(8)


class AtLook(Enum):
    """At both looks at the records, before a request and after."""

    FINE, BLIND, DOWN, KILLED, STOPPED, REPLACED = range(6)


class AtRequest(Enum):
    ACCEPTED = 0
    REJECTED = 1
    NOT_SENT = 2
    UNKNOWN_ACCEPTED = 3
    UNKNOWN_NOT = 4
    BUG_ACCEPTED = 5
    BUG_NOT = 6
    KILLED_BEFORE = 7
    KILLED_AFTER = 8
    KILLED_IN_FLIGHT = 9
    STOPPED_ACCEPTED = 10
    ABANDONED_IN_FLIGHT = 11
    ABANDONED_LOST = 12
    REPLACED_THEN_ACCEPTED = 13
    ACCEPTED_THEN_REPLACED = 14


class Replaced(Enum):
    """How another try takes a running one's place."""

    RETRIED, CLEARED_KEPT, CLEARED_DROPPED = range(3)


@dataclass(frozen=True)
class Plan:
    """What happens to a try, call by call; where a list ends, nothing does."""

    get: AtGet = AtGet.FINE
    sets: tuple[AtSet, ...] = ()
    looks: tuple[AtLook, ...] = ()
    requests: tuple[AtRequest | Form, ...] = ()
    replaced: Replaced = Replaced.RETRIED
    late: bool = False
    follower: Plan | None = None

    @property
    def undisturbed(self) -> bool:
        return (
            self.get is AtGet.FINE
            and not self.late
            and set(self.sets) <= {AtSet.FINE}
            and set(self.looks) <= {AtLook.FINE}
            and set(self.requests) <= {AtRequest.ACCEPTED}
        )


UNDISTURBED = Plan()


@dataclass
class Attempt:
    """One try (or what follows its deferral), and what it did."""

    number: int
    owner: int
    plan: Plan
    policy: OnUnknown
    stop: StopSignal
    resend_epoch: int
    sets: Iterator[AtSet] = field(init=False)
    looks: Iterator[AtLook] = field(init=False)
    answers: Iterator[AtRequest | Form] = field(init=False)
    set_count: int = 0
    get_count: int = 0
    requests: list[tuple[str, ...]] = field(default_factory=list)
    happened: set[Any] = field(default_factory=set)
    settled_before: frozenset[str] = frozenset()
    claim_refused: bool = False
    killed: bool = False
    outcome: SendOutcome | None = None
    error: Exception | None = None
    once: SingleSendState | None = None

    def __post_init__(self) -> None:
        self.sets, self.looks, self.answers = iter(self.plan.sets), iter(self.plan.looks), iter(self.plan.requests)


@dataclass(frozen=True)
class Answer:
    """What the service answers.

    :param again: whether an earlier request of the reference may have been accepted; ``None`` where nobody can tell
    """

    result: dict[str, Any]
    rejected: tuple[str, ...]
    again: bool | None


class WorldSpec(SendSpec, frozen=True, kw_only=True):
    """What is sent, and who judges how its answers are read."""

    world: World

    def build_call(self, recipients: Sequence[str], reference: str, callback_url: str | None) -> Call[Any]:
        return Call(SEND_SMS, {"recipients": list(recipients), "external_ref": reference})

    def read_result(self, response: Answer, *, repeated: bool) -> RequestResult:
        if response.again not in (None, repeated):
            self.world.violations.append(f"repeated is {repeated}")
        rejection = "The service accepted it for others." if response.rejected else None
        rejected = frozenset(one.lower() for one in response.rejected)
        return RequestResult(response.result.get("id"), details=response.result, rejected=rejected, rejection=rejection)


class World:
    """Everything a task's tries meet, and what must be true of them."""

    def __init__(
        self,
        *,
        policy: OnUnknown = OnUnknown.FAIL,
        resend_on_clear: bool = False,
        retries: int = 2,
        looks: bool = False,
        counts_ahead: bool = False,
    ) -> None:
        self.violations: list[str] = []
        # The DAG author's.
        self.policy, self.resend_on_clear, self.retries, self.looks = policy, resend_on_clear, retries, looks
        self.source: tuple[str, ...] = PEOPLE[:2]
        self.text = TEXTS[0]
        self.personal: dict[str, str] | None = None
        self.secrets: tuple[str, ...] = SECRETS[:1]
        # Airflow's. From 3.4 on it counts a try as soon as it is to come.
        self.counts_ahead = counts_ahead
        self.clock = datetime(2026, 3, 1, tzinfo=UTC)
        self.number, self.max_tries, self.clear_number = 0, retries, 0
        self.owner = self.first_owner_at_rest = 0
        self.state = "none"
        self.keys: dict[str, str] = {}
        self.copies: list[tuple[str, str]] = []
        """What this try had stored, any of which may be carried out once more."""
        self.depth = 0
        self.first_after_clear = False
        # The service's.
        self.resend_epoch = 0
        self.messages = 0
        self.reached: set[str] = set()
        self.declared: set[str] = set()
        self.results: dict[str, list[dict[str, Any]]] = defaultdict(list)
        self.in_flight: list[tuple[int, tuple[str, ...], str]] = []
        self.maybe: dict[str, set[str]] = {}
        """Who may have been reached in this edition, and by which texts."""
        self.open: dict[str, bool] = {}
        """References that may be in doubt, and whether they were before their last claim."""
        self.claims: dict[str, str] = {}
        self.left: set[str] = set()
        """References of requests that left and were not answered in a way that says they were not carried out."""
        self.was_lost = False
        self.attempts = 0

    # --- Airflow and the author ---------------------------------------------------------------------------------

    def now(self) -> datetime:
        self.clock += timedelta(milliseconds=1)
        return self.clock

    def clear(self, *, dropped: bool) -> None:
        """Clear a task that is not running: as Airflow 3.3 does it, or as 3.4 will."""
        self.max_tries = self.number + self.retries
        self.clear_number += 1
        self.owner += 1
        self.state = "none"
        self.first_after_clear = True
        if dropped:
            self._drop()
        if self.resend_on_clear:
            self._begin_anew()

    @property
    def unresolved(self) -> tuple[RequestRecord, ...]:
        """Requests a person could decide now."""
        return tuple(by_reference(self._view().unresolved())) if self.has_journal else ()

    def _view(self) -> JournalView:
        ahead = self.counts_ahead and self.state in {"none", "up_for_retry"}
        return JournalView.read(
            lambda key: json.loads(self.keys[key]) if key in self.keys else None, max(1, self.number + ahead)
        )

    def mark(self, entry: RequestRecord, decision: Resolution) -> None:
        """Decide a request by hand, rightly or not; from then on that is what counts."""
        values = self._view().resolve(decision, [entry.reference]).values
        self.keys.update((key, json.dumps(value)) for key, value in values.items())
        self.copies = []
        self.open.pop(entry.reference, None)
        self.left.discard(entry.reference)
        if decision is Resolution.SENT:
            self.declared |= self.recipients_of(entry.members)
            return
        others = [one for one in self._view().entries() if one.is_unresolved or one.state is State.ACCEPTED]
        for one in self.recipients_of(entry.members) - self.recipients_in(others):
            self.maybe.pop(one, None)

    @property
    def has_journal(self) -> bool:
        """Whether anything lies there."""
        return any(map(journals.is_key, self.keys))

    @property
    def requests_at_rest(self) -> dict[str, dict[str, Any]]:
        """What the journal that lies there says of each reference."""
        return journals.requests(self.keys)

    def carry_out_again(self, which: int) -> None:
        """Let a copy of a write of the last try arrive late."""
        if not self.copies:
            return
        key, text = self.copies[which % len(self.copies)]
        self.keys[key] = text
        for reference, facts in self.requests_at_rest.items():
            if facts["state"] in {"pending", "unknown"}:
                self.open.setdefault(reference, False)
            else:
                self._note_state(reference, facts)

    def clear_another_task(self) -> None:
        self.clear_number += 1

    def _replace(self, attempt: Attempt) -> None:
        """Put another try in the place of a running one, and let it run to its end."""
        if self.depth > 1 or attempt.owner != self.owner:
            return
        attempt.happened.add("replaced")
        how = attempt.plan.replaced
        self.owner += 1
        if how is not Replaced.RETRIED:
            self.clear_number += 1
        if how is Replaced.CLEARED_DROPPED:
            self._drop()
            if self.resend_on_clear:
                self._begin_anew()
        # An event loop of its own needs a thread of its own.
        other = threading.Thread(target=self.run, args=(attempt.plan.follower or UNDISTURBED,))
        other.start()
        other.join()

    def _begin_anew(self) -> None:
        """Whatever was sent before, the author ordered it again."""
        self.resend_epoch += 1
        self.reached, self.declared, self.maybe = set(), set(), {}
        self.open, self.claims, self.left, self.was_lost = {}, {}, set(), False

    def _drop(self) -> None:
        """Forget the task's state; of what stood there nobody can tell how it stands."""
        self.keys, self.copies, self.first_owner_at_rest = {}, [], self.owner
        self.open, self.claims, self.left = {}, {}, set()
        self._forget_texts()

    def _forget_texts(self) -> None:
        self.maybe = {one: set() for one in self.maybe}

    def _kill(self, attempt: Attempt) -> None:
        attempt.killed = True
        raise KilledError

    def _stop(self, attempt: Attempt) -> None:
        attempt.happened.add("stopped")
        attempt.stop.request()

    # --- the task's state -----------------------------------------------------------------------------------------

    def get(self, attempt: Attempt, key: str) -> Any:
        attempt.get_count += 1
        match attempt.plan.get:
            case AtGet.DOWN:
                attempt.happened.add("store")
                raise DownError
            case AtGet.KILLED:
                self._kill(attempt)
            case AtGet.STOPPED:
                self._stop(attempt)
        return json.loads(self.keys[key]) if key in self.keys else None

    def set(self, attempt: Attempt, key: str, value: Any) -> None:
        if attempt.killed:
            raise KilledError
        attempt.set_count += 1
        if json.loads(json.dumps(value, allow_nan=False)) != value:
            self.violations.append(f"what is stored is not plain JSON: {value}")
        what = next(attempt.sets, AtSet.FINE)
        if what is AtSet.REPLACED_BEFORE:
            self._replace(attempt)
        if attempt.owner != self.owner:
            raise GoneError
        if what is AtSet.KILLED_BEFORE:
            self._kill(attempt)
        if what is AtSet.DOWN:
            # It may yet be carried out.
            self.copies.append((key, json.dumps(value)))
            attempt.happened.add("store")
            attempt.claim_refused = self._is_claim(value)
            raise DownError
        self._commit(key, value)
        attempt.claim_refused = False
        match what:
            case AtSet.DOWN_COMMITTED:
                attempt.happened.add("store")
                attempt.claim_refused = self._is_claim(value)
                raise DownError
            case AtSet.KILLED_AFTER:
                self._kill(attempt)
            case AtSet.STOPPED:
                self._stop(attempt)
            case AtSet.REPLACED_AFTER:
                self._replace(attempt)

    @staticmethod
    def _is_claim(value: Mapping[str, Any]) -> bool:
        added = json.loads(value["batches"][-1]) if value.get("batches") else {"intents": [], "results": []}
        return bool({intent[0] for intent in added["intents"]} - {result[0] for result in added["results"]})

    def _commit(self, key: str, value: Any) -> None:
        self.keys[key] = json.dumps(value)
        self.copies.append((key, self.keys[key]))
        for private in PRIVATE:
            if private in self.keys[key]:
                self.violations.append(f"{private!r} stands in the journal")
        at_rest = self.requests_at_rest
        for reference in self.open.keys() - at_rest.keys() - self.left:
            # A write that seemed to fail was replaced, and its request never left.
            self.open[reference] or self.open.pop(reference)
        for reference, facts in at_rest.items():
            self._note_state(reference, facts)

    def _note_state(self, reference: str, facts: Mapping[str, Any]) -> None:
        """Follow what the journal says of a request, and note where it says more than anybody can know."""
        match facts["state"]:
            case "pending":
                if self.claims.get(reference) != facts["started_at"]:
                    self.claims[reference] = facts["started_at"]
                    self.open[reference] = reference in self.open
                    self.left.discard(reference)
            case "unknown":
                self.open.setdefault(reference, True)
            case "accepted" if not facts.get("unknown_for_others"):
                self.open.pop(reference, None)
            case "rejected" | "not_sent" if reference in self.open and not facts.get("resolution"):
                if self.open.pop(reference):
                    self.violations.append("an earlier request in doubt was forgotten")
                elif reference in self.left:
                    self.violations.append("a request that left without an answer counts as not sent")

    # --- the service ----------------------------------------------------------------------------------------------

    async def perform(self, attempt: Attempt, people: tuple[str, ...], reference: str) -> Answer:
        if attempt.killed:
            raise KilledError
        attempt.requests.append(people)
        self._judge(attempt, people, reference)
        again = self.open.get(reference, False) if attempt.owner == self.owner and not self.was_lost else None
        result, rejected = await self._perform(attempt, people, reference)
        return Answer(result, rejected, again)

    async def _perform(
        self, attempt: Attempt, people: tuple[str, ...], reference: str
    ) -> tuple[dict[str, Any], tuple[str, ...]]:
        resend_epoch, doubted = attempt.resend_epoch, {one: set(texts) for one, texts in self.maybe.items()}
        self.left.add(reference)
        # A try of an earlier edition does what was ordered then.
        for one in people if resend_epoch == self.resend_epoch else ():
            texts = self.maybe.setdefault(one, set())
            # Where its claim was dropped meanwhile, nobody can know the text later.
            if attempt.owner >= self.first_owner_at_rest:
                texts.add(self._text_for(one))
        what = next(attempt.answers, AtRequest.ACCEPTED)
        attempt.happened.add(what)
        if isinstance(what, Form):
            return self._answer(what, resend_epoch, people, reference, doubted)
        accept = partial(self._accept, resend_epoch, people, reference)
        A = AtRequest  # noqa: N806 - short, for the table below
        if what is A.REPLACED_THEN_ACCEPTED:
            self._replace(attempt)
        if what in {A.UNKNOWN_ACCEPTED, A.BUG_ACCEPTED, A.KILLED_AFTER}:
            accept()
        if what in {A.KILLED_IN_FLIGHT, A.ABANDONED_IN_FLIGHT}:
            self.in_flight.append((resend_epoch, people, reference))
        if what in {A.KILLED_BEFORE, A.KILLED_AFTER, A.KILLED_IN_FLIGHT}:
            self._kill(attempt)
        if what in {A.UNKNOWN_ACCEPTED, A.UNKNOWN_NOT}:
            raise CpaasUnknownOutcomeError("No readable answer came.")
        if what in {A.BUG_ACCEPTED, A.BUG_NOT}:
            raise BugError
        if what in {A.ABANDONED_IN_FLIGHT, A.ABANDONED_LOST}:
            attempt.happened.add("abandoned")
            self._stop(attempt)
            # The end of the grace period ends it.
            await asyncio.Event().wait()
        if what is A.STOPPED_ACCEPTED and not {A.ABANDONED_IN_FLIGHT, A.ABANDONED_LOST} & set(attempt.plan.requests):
            self._stop(attempt)
        if what in {A.REJECTED, A.NOT_SENT}:
            self._withdraw(people, doubted)
            self.left.discard(reference)
            if what is A.REJECTED:
                raise CpaasRejectedError("The service refused the request.")
            raise CpaasNotSentError("The service could not be reached.")
        result = accept()
        if what is A.ACCEPTED_THEN_REPLACED:
            self._replace(attempt)
        return result, ()

    def _answer(
        self, form: Form, resend_epoch: int, people: tuple[str, ...], reference: str, doubted: dict[str, set[str]]
    ) -> tuple[dict[str, Any], tuple[str, ...]]:
        """Act as the form says, and answer in it; the client's own code reads that, as an operator does."""
        left_out = untouched(form, people)
        self._withdraw(left_out, doubted)
        if not form.lost:
            self.left.discard(reference)
        result: dict[str, Any] = {}
        if form.accepted or form.lost:
            result = self._accept(resend_epoch, tuple(one for one in people if one not in left_out), reference)
        return result, read(form, people, result.get("id", "")).rejected_recipients

    def _withdraw(self, people: Iterable[str], doubted: dict[str, set[str]]) -> None:
        """Take back what a request put in doubt, because it was surely not sent; what was in doubt before stays so."""
        for one in people:
            self.maybe.pop(one, None)
            if one in doubted:
                self.maybe[one] = doubted[one]

    def arrive(self) -> None:
        """Let a request that was under way when its try ended reach the service."""
        self._accept(*self.in_flight.pop(0))

    def _accept(self, resend_epoch: int, people: tuple[str, ...], reference: str) -> dict[str, Any]:
        self.messages += 1
        result = {"id": f"m{self.messages}"}
        self.results[reference].append(result)
        if resend_epoch == self.resend_epoch:
            self.reached.update(people)
        return result

    def _text_for(self, one: str) -> str:
        return f"{self.text} {(self.personal or {}).get(one)}"

    def _judge(self, attempt: Attempt, people: tuple[str, ...], reference: str) -> None:
        """Note what must not have left."""
        say = self.violations.append
        if attempt.plan.late:
            say("a request left too late")
        if attempt.claim_refused:
            say("a request left although its claim could not be written")
        if attempt.stop.requested:
            say("a request left after the stop")
        claim = self.requests_at_rest.get(reference)
        if attempt.owner == self.owner and (claim is None or claim["state"] != "pending"):
            say("a request left that is not claimed at rest")
        elif claim is not None and self.recipients_of(claim["recipient_hashes"]) != set(people):
            say("a claim names others than the request")
        if strangers := set(people) - set(self.source):
            say(f"a request to {strangers}, who are not in the source")
        for one in people if attempt.resend_epoch == self.resend_epoch else ():
            if attempt.policy is OnUnknown.RESEND:
                if one in attempt.settled_before:
                    say(f"{one} is settled and was sent to again")
                if self.maybe.get(one, set()) - {self._text_for(one)}:
                    say(f"{one} was sent another text than the one in doubt")
            elif one in self.maybe:
                say(f"{one} may have been reached, and was sent to again")

    # --- evidence -------------------------------------------------------------------------------------------------

    def _look(self, attempt: Attempt) -> AtLook:
        what = next(attempt.looks, AtLook.FINE)
        match what:
            case AtLook.DOWN:
                attempt.happened.add("look")
                raise CpaasUnknownOutcomeError("No readable answer came.", maybe_sent=False, retryable=True)
            case AtLook.KILLED:
                self._kill(attempt)
            case AtLook.STOPPED:
                self._stop(attempt)
            case AtLook.REPLACED:
                self._replace(attempt)
        return what

    def evidence(self, attempt: Attempt) -> Any:
        async def before(client: Any) -> Any:
            return None if self._look(attempt) is AtLook.BLIND else [f"m{self.messages}"]

        async def find(client: Any, entry: RequestRecord) -> dict[str, Any] | None:
            if self._look(attempt) is AtLook.BLIND or entry.probe_snapshot is None:
                return None
            recorded = journals.accepted_ids(self.keys, entry.reference)
            made = self.results[entry.reference]
            found = next((one for one in made if one["id"] not in recorded), made[0] if made else None)
            if found is not None and found["id"] not in recorded:
                # Whom a response that was lost rejected by name, nothing tells: they count as accepted.
                self.declared |= self.recipients_of(entry.members)
            return found

        return SimpleNamespace(max_wait=PATIENCE, snapshot=before, check=find)

    # --- a try ----------------------------------------------------------------------------------------------------

    def run(self, plan: Plan = UNDISTURBED) -> Attempt:
        """Run the next try, or what follows a deferral, and judge its end."""
        self.attempts += 1
        if self.state != "deferred":
            self.number += 1
        self.depth += 1
        gives_up_at_once = {AtRequest.ABANDONED_IN_FLIGHT, AtRequest.ABANDONED_LOST} & set(plan.requests)
        stop = StopSignal(0.0 if gives_up_at_once else 30.0)
        self.state = "running"
        self.copies = []
        attempt = Attempt(self.number, self.owner, plan, self.policy, stop, self.resend_epoch)
        attempt.settled_before = frozenset(self._settled_at_rest())
        first_after_clear, self.first_after_clear = self.first_after_clear, False
        facts = TryInfo(self.number, self.max_tries, self.retries, self.clear_number)
        empty, stored_before = not self.has_journal, self.requests_at_rest
        # What each try left, and that there is no more of it; after a clear, also whether nothing was sent.
        # With other secrets it reads all of it once more, to see whether anything was sent.
        reads = 1 if self.number == 1 and empty else 2 * (3 * len(self.keys) + 8 * self.number) + 1
        refused = self._is_rekeyed_while_deferred()
        lost = not refused and self._lost(facts)
        if lost:
            self.was_lost = True
            self._forget_texts()
        policy = self.policy
        try:
            journal = Journal(
                SimpleNamespace(get=partial(self.get, attempt), set=partial(self.set, attempt), delete=self.keys.pop),
                self.secrets,
                IDENTITY,
                facts,
                resend_on_clear=self.resend_on_clear,
            )
            spec = WorldSpec(
                OPERATION,
                self.source,
                {"content": self.text},
                personal=self.personal and {one: {"name": self.personal[one]} for one in self.source},
                probes=(self.evidence(attempt),) if self.looks else (),
                world=self,
            )
            client = FunctionClient(
                lambda fields: self.perform(attempt, tuple(fields["recipients"]), fields["external_ref"]),
                lambda: attempt.happened.add("client stopped"),
            )
            attempt.once = SingleSendState(spec, journal, NoDelivery(), clock=self.now)
            engine = SendEngine(
                attempt.once,
                client,
                Ports(attempt.stop, partial(self._may_begin, attempt)),
                UnknownPolicy(policy, probes=spec.probes),
                clock=self.now,
            )
            asyncio.run(engine.run())
            if not attempt.killed:
                attempt.outcome = attempt.once.outcome()
        except Exception as error:  # noqa: BLE001 - it is judged below
            if not attempt.killed:
                attempt.error = error
        finally:
            self.depth -= 1
        if attempt.owner == self.owner:
            self._end(attempt)
        if attempt.get_count > reads:
            self.violations.append(f"{attempt.get_count} gets")
        most = 1 + MAX_RESENDS if policy is OnUnknown.RESEND else 1
        if len(attempt.requests) > most:
            self.violations.append(f"{len(attempt.requests)} requests in one try")
        self._judge_start(attempt, facts, empty=empty, lost=lost)
        if refused and (attempt.requests or attempt.set_count or attempt.outcome):
            self.violations.append("a try went on in the series of a secret that it does not have")
        if refused:
            attempt.happened.add("store")
        if not attempt.killed and "replaced" not in attempt.happened:
            self._judge_end(attempt, first_after_clear=first_after_clear, stored_before=stored_before)
        return attempt

    @staticmethod
    def _may_begin(attempt: Attempt) -> None:
        if attempt.plan.late:
            raise RunNotAllowedError("Too late. Nothing was sent.")

    def _end(self, attempt: Attempt) -> None:
        if isinstance(attempt.error, ProbeLaterError):
            if not self.clock < attempt.error.until <= self.clock + PATIENCE:
                self.violations.append(f"deferred until {attempt.error.until}, now {self.clock}")
            self.clock = max(self.clock, attempt.error.until)
            self.state = "deferred"
        elif attempt.outcome is not None:
            self.state = "success"
        elif getattr(attempt.error, "permanent", False) or (
            isinstance(attempt.error, CpaasError) and not attempt.error.retryable
        ):
            self.state = "failed"
        else:
            self.state = "up_for_retry" if self.number <= self.max_tries else "failed"

    def _lost(self, facts: TryInfo) -> bool:
        """Tell whether nobody can know what earlier tries did."""
        if not self.has_journal:
            ordered = self.resend_on_clear and facts.max_tries > facts.retries
            return not ordered and facts.after_clear
        stored = journals.segments(self.keys)[-1]
        if self.resend_on_clear and stored["clear_epoch"] < self.max_tries:
            return False
        return stored["key_id"] not in self._key_ids

    def _is_rekeyed_while_deferred(self) -> bool:
        """Tell whether this try has stored something already, with a secret that is gone."""
        if not any(journals.is_of_try(key, self.number) for key in self.keys):
            return False
        return journals.segments(self.keys)[-1]["key_id"] not in self._key_ids

    @property
    def _key_ids(self) -> set[str]:
        return {KeyedHasher(secret, IDENTITY).key_id for secret in self.secrets}

    def _settled_at_rest(self) -> set[str]:
        stored = journals.segments(self.keys)[-1] if self.has_journal else None
        if stored is None or stored["key_id"] not in self._key_ids:
            return set()
        if self.resend_on_clear and stored["clear_epoch"] < self.max_tries:
            return set()
        settled = (entry for entry in self.requests_at_rest.values() if entry["state"] == "accepted")
        return {one for entry in settled for one in self.recipients_of(entry["recipient_hashes"])}

    @staticmethod
    def recipients_of(members: Iterable[str | bytes]) -> set[str]:
        """Return the recipients behind hashes."""
        return {_PEOPLE_BY_HASH[member if isinstance(member, str) else member.hex()] for member in members}

    def recipients_in(self, entries: Iterable[RequestRecord]) -> set[str]:
        return {one for entry in entries for one in self.recipients_of(entry.members)}

    # --- what must be true of a try -------------------------------------------------------------------------------

    def _judge_start(self, attempt: Attempt, facts: TryInfo, *, empty: bool, lost: bool) -> None:
        ordered = self.resend_on_clear and facts.max_tries > facts.retries
        if empty and lost and attempt.policy is not OnUnknown.RESEND and attempt.requests and not ordered:
            self.violations.append("an empty state after a clear was taken for a fresh start")
        if empty and facts.clear_number == 0 and attempt.plan.undisturbed:
            if attempt.requests != [self.source] or attempt.outcome is None:
                self.violations.append("an empty state without a clear was not taken for a fresh start")
            # Of each earlier try it looks for what that may have left.
            if (attempt.get_count, attempt.set_count) != (2 * facts.number - 1, 2):
                self.violations.append(f"an undisturbed try made {attempt.get_count} gets and {attempt.set_count} sets")

    def _judge_end(
        self, attempt: Attempt, *, first_after_clear: bool, stored_before: Mapping[str, Mapping[str, Any]]
    ) -> None:
        say, error, happened, once = self.violations.append, attempt.error, attempt.happened, attempt.once
        if "abandoned" in happened and "client stopped" not in happened:
            say("the client was not told to stop")
        kinds = {type(error)} if error is not None else set()
        causes: list[tuple[type[Exception], bool]] = [
            (JournalUnavailableError, "store" in happened),
            (TrySupersededError, False),
            (StoppedError, "stopped" in happened),
            (AnswerNotAwaitedError, "stopped" in happened),
            (RunNotAllowedError, attempt.plan.late),
            (CpaasNotSentError, AtRequest.NOT_SENT in happened or Form.NOT_SENT_425 in happened),
            (CpaasRateLimitedError, Form.NOT_SENT_429 in happened),
            (CpaasRejectedError, any(one.rejected for one in happened if isinstance(one, Form))),
            (PartlyRejectedError, Form.ACCEPTED_FOR_OTHERS in happened),
            (CpaasRejectedError, AtRequest.REJECTED in happened or self._rejected_in(stored_before, first_after_clear)),
            (CpaasUnknownOutcomeError, "look" in happened),
            (ProbeFailedError, "look" in happened),
            (BugError, bool({AtRequest.BUG_ACCEPTED, AtRequest.BUG_NOT} & happened)),
            (ProbeLaterError, self.looks),
            (UnknownOutcomeError, attempt.policy is OnUnknown.FAIL),
            (ResendLimitError, attempt.policy is OnUnknown.RESEND and not attempt.plan.undisturbed),
            (ChangedBodyError, True),
        ]
        if error is not None and not any(kind in kinds and cause for kind, cause in causes):
            say(f"the try ended in {error!r} without a cause")
        if once is None:
            return
        outcome = attempt.outcome or once.outcome()
        settled, unknown = self.recipients_in(outcome.accepted), self.recipients_in(outcome.unknown)
        if outcome.sent != len(settled) or outcome.unknown_recipients != len(unknown - settled):
            counted = outcome.sent, outcome.unknown_recipients
            say(f"counts {counted}, but {len(settled)} and {len(unknown - settled)}")
        if untrue := settled - self.reached - self.declared:
            say(f"{untrue} count as sent to and were not")
        for entry in outcome.accepted:
            if entry.resolution is None and entry.result not in self.results[entry.reference]:
                say(f"a result that the service never gave: {entry.result}")
        if not self.was_lost and (baseless := {entry.reference for entry in outcome.unknown} - set(self.open)):
            say(f"{baseless} were never claimed, or are settled, and count as unknown")
        source = set(self.source)
        named = {
            one
            for entry in outcome.unknown
            if error is not None and entry.reference in str(error)
            for one in self.recipients_of(entry.members)
        }
        if silent := (source & set(self.maybe)) - settled - unknown:
            say(f"{silent} may have been reached and are neither settled nor unknown")
        if attempt.outcome is not None:
            if missing := source - settled - unknown:
                say(f"{missing} are missing")
            if attempt.policy is OnUnknown.FAIL and unknown - settled:
                say("succeeded although some are unknown")
            if attempt.policy is OnUnknown.RESEND and source - self.reached - self.declared:
                say("succeeded although some were not resent to")
            if source <= attempt.settled_before and attempt.requests:
                say("settled work was done again")
            if not attempt.requests and not outcome.earlier:
                say("claims to have done something")
        elif isinstance(error, UnknownOutcomeError | ResendLimitError | ProbeLaterError | ProbeFailedError):
            if missing := source - settled - named:
                say(f"{missing} are neither reached nor named")
        elif isinstance(error, ChangedBodyError):
            if missing := source - settled - named - unknown:
                say(f"{missing} are neither reached nor named nor unknown")
            if not named:
                say("names nobody")
        elif isinstance(error, AnswerNotAwaitedError) and attempt.requests and not set(attempt.requests[-1]) <= named:
            say("was abandoned without naming its request")

    @staticmethod
    def _rejected_in(stored: Mapping[str, Mapping[str, Any]], first_after_clear: bool) -> bool:
        if first_after_clear:
            return False
        return any(entry["state"] == "rejected" for entry in stored.values())


_PEOPLE_BY_HASH = {
    KeyedHasher(secret, IDENTITY).member_hasher(OPERATION)(recipient).hex(): recipient
    for secret in SECRETS
    for recipient in PEOPLE
}
