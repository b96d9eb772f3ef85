"""A small world to run campaigns in: Airflow, the task's state and the service, with all that can go wrong.

The service is the oracle: it knows who was reached, and notes a violation the moment a request leaves that must not.
After a kill nothing that the try still does has any effect, and what it says of itself reaches nobody.
"""

from __future__ import annotations

import asyncio
import json
import threading
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import Future
from dataclasses import dataclass, field
from datetime import timedelta
from enum import Enum
from types import SimpleNamespace
from typing import Any

from cpaas_provider.api.errors import (
    CpaasError,
    CpaasInsufficientBalanceError,
    CpaasNotSentError,
    CpaasRateLimitedError,
    CpaasRejectedError,
    CpaasUnknownOutcomeError,
)
from cpaas_provider.sending.campaign.campaign import Campaign, CampaignOptions
from cpaas_provider.sending.campaign.guards.circuit_breaker import CircuitOpenError
from cpaas_provider.sending.campaign.loader import Columns, RecipientLoader
from cpaas_provider.sending.campaign.queue import ServiceFailingError
from cpaas_provider.sending.campaign.recipients import RecipientStatus, RecipientTable
from cpaas_provider.sending.errors import (
    ChangedBodyError,
    JournalUnavailableError,
    ResendLimitError,
    SendingError,
    StoppedError,
    TrySupersededError,
    UnknownOutcomeError,
)
from cpaas_provider.sending.journal.hashing import KeyedHasher
from cpaas_provider.sending.journal.log import JournalLog
from cpaas_provider.sending.journal.model import JOURNAL_KEY, LogEntry, RequestRecord, State, split_members
from cpaas_provider.sending.journal.store import TryInfo
from cpaas_provider.sending.shutdown import AnswerNotAwaitedError, StopSignal
from cpaas_provider.sending.spec import OnUnknown, UnknownPolicy
from tests import journals
from tests.reading import nigerian_reader
from tests.unit.sending.answers import Form, read, untouched
from tests.unit.sending.campaign.parts import IDENTITY, OPERATION, SECRETS, GoneError, Rows, message, phones
from tests.unit.sending.ports import FunctionClient, NoDelivery, Ports, send

PEOPLE = tuple(phones(7))
TEXTS = ("Your parcel waits, {name}", "Come and fetch it, {name}")
NAMES = ("Adaeze", "Obinna")
PRIVATE = (*PEOPLE, *(one[3:] for one in PEOPLE), *NAMES, *SECRETS, "parcel", "fetch")
_BY_HASH = {
    KeyedHasher(secret, IDENTITY).member_hasher(OPERATION)(recipient): recipient
    for secret in SECRETS
    for recipient in PEOPLE
}


class DownError(Exception):
    """The API server cannot be reached."""


class BugError(Exception):
    """A fault of ours."""


class AtSet(Enum):
    FINE, DOWN, DOWN_COMMITTED, KILLED_BEFORE, KILLED_AFTER, STOPPED, REPLACED_BEFORE, REPLACED_AFTER = range(8)
    # After it a write is carried out once more that was made earlier, or failed: the first, or the one before.
    LATE_FIRST, LATE_LAST = range(8, 10)


class AtRequest(Enum):
    ACCEPTED, NOT_SENT, UNKNOWN_ACCEPTED, UNKNOWN_NOT, BUG_ACCEPTED, BUG_NOT = range(6)
    KILLED_BEFORE, KILLED_AFTER, STOPPED_ACCEPTED, STOPPED_LOST, REPLACED, NO_BALANCE = range(6, 12)


class Told(Enum):
    """What an accepted request's answer says of money."""

    NOTHING, A_PRICE, A_PRICE_OF_NOUGHT, THE_BALANCE = range(4)


class Replaced(Enum):
    """How another try takes a running one's place."""

    RETRIED, CLEARED_KEPT, CLEARED_DROPPED = range(3)


@dataclass(frozen=True)
class Script:
    """What happens to a try, call by call; where a list ends, nothing does."""

    deaf: bool = False
    sets: tuple[AtSet, ...] = ()
    requests: tuple[AtRequest | Form, ...] = ()
    replaced: Replaced = Replaced.RETRIED
    slow: tuple[int, ...] = ()
    """For how many turns of the loop each answer is waited for."""

    @property
    def undisturbed(self) -> bool:
        return not self.deaf and set(self.sets) <= {AtSet.FINE} and set(self.requests) <= {AtRequest.ACCEPTED}


UNDISTURBED = Script()


class Inline:
    """An executor that does it at once, so that the same happens in the same order every time."""

    def __init__(self, *_: Any) -> None:
        pass

    def submit(self, work: Callable[..., Any], *given: Any) -> Future[Any]:
        done: Future[Any] = Future()
        try:
            done.set_result(work(*given))
        except BaseException as error:  # noqa: BLE001 - it is the future's to raise
            done.set_exception(error)
        return done

    def shutdown(self, wait: bool = True) -> None:
        pass


@dataclass
class Attempt:
    """One try, and what it did."""

    number: int
    owner: int
    epoch: int
    script: Script
    policy: OnUnknown
    stop: StopSignal
    sets: Iterator[AtSet] = field(init=False)
    answers: Iterator[AtRequest | Form] = field(init=False)
    slow: Iterator[int] = field(init=False)
    dead: bool = False
    happened: set[Any] = field(default_factory=set)
    requests: list[tuple[str, ...]] = field(default_factory=list)
    writes: int = 0
    statuses: dict[str, RecipientStatus] = field(default_factory=dict)
    known: dict[str, State] = field(default_factory=dict)
    refused: set[str] = field(default_factory=set)
    """Whom the service refused in this try, each by name or alone."""
    error: Exception | None = None
    succeeded: bool = False

    def __post_init__(self) -> None:
        script = self.script
        self.sets, self.answers, self.slow = iter(script.sets), iter(script.requests), iter(script.slow)


class World:
    """Everything the tries of a campaign meet, and what must be true of them."""

    def __init__(
        self,
        *,
        policy: OnUnknown = OnUnknown.FAIL,
        resend_on_clear: bool = False,
        retries: int = 2,
        window: int = 2,
        per_request: int = 2,
        evidence: bool = False,
        names_refused: bool = True,
        max_identical_rejections: int | None = 20,
        told: Told = Told.NOTHING,
    ) -> None:
        self.violations: list[str] = []
        # The DAG author's.
        self.policy, self.resend_on_clear, self.retries = policy, resend_on_clear, retries
        self.window, self.per_request, self.evidence = window, per_request, evidence
        self.source: tuple[str, ...] = PEOPLE[:4]
        self.banned: frozenset[str] = frozenset()
        self.text, self.name = TEXTS[0], NAMES[0]
        self.secrets: tuple[str, ...] = SECRETS[:1]
        # Airflow's.
        self.number, self.max_tries, self.clear_number = 0, retries, 0
        self.owner, self.depth = 0, 0
        self.state = "none"
        self.stored: dict[str, str] = {}
        self.copies: list[tuple[str, str]] = []
        """Each write that was asked for, in order; any may be carried out again, or at all, later."""
        # The service's.
        self.names_refused = names_refused
        self.max_identical_rejections = max_identical_rejections
        self.told = told
        self.bad: frozenset[str] = frozenset()
        self.epoch = 0
        self.reached: dict[str, int] = {}
        self.messages = 0
        self.charged = 0.0
        self.accepted: dict[str, list[str]] = {}
        """The ids of the messages that the service made of the requests of each reference."""
        self.established = set[str]()
        """Who counts as reached because a probe said that of their request."""
        self.maybe: dict[str, set[str]] = {}
        """Who may have been reached in this epoch, and by which texts."""
        self.was_lost = False

    # --- Airflow and the author ---------------------------------------------------------------------------------

    def clear(self, *, dropped: bool) -> None:
        """Clear the task: as Airflow 3.3 does it, or as 3.4 will."""
        self.max_tries = self.number + self.retries
        self.clear_number += 1
        self.owner += 1
        self.state = "none"
        if dropped:
            self._drop()
        if self.resend_on_clear:
            self._begin_anew()

    def _drop(self) -> None:
        self.stored, self.copies = {}, []
        # Nobody can tell any more what was said.
        self.maybe = {one: set() for one in self.maybe}

    def _begin_anew(self) -> None:
        """Whatever was sent before, the author ordered it again."""
        self.epoch += 1
        self.reached, self.maybe, self.was_lost = {}, {}, False
        self.established = set()

    def _replace(self, attempt: Attempt) -> None:
        """Put another try in the place of a running one, and let it run to its end."""
        if self.depth > 1 or attempt.owner != self.owner:
            return
        attempt.happened.add("replaced")
        how = attempt.script.replaced
        self.owner += 1
        if how is not Replaced.RETRIED:
            self.clear(dropped=how is Replaced.CLEARED_DROPPED)
        # An event loop of its own needs a thread of its own.
        other = threading.Thread(target=self.run)
        other.start()
        other.join()

    # --- the task's state -----------------------------------------------------------------------------------------

    def get(self, attempt: Attempt, key: str) -> Any:
        if attempt.script.deaf:
            attempt.happened.add("store")
            raise DownError
        return json.loads(self.stored[key]) if key in self.stored else None

    def set(self, attempt: Attempt, key: str, value: Any) -> None:
        if json.loads(json.dumps(value, allow_nan=False)) != value:
            self.violations.append(f"what is stored is not plain JSON: {value}")
        if attempt.dead:
            raise DownError
        attempt.writes += 1
        what = next(attempt.sets, AtSet.FINE)
        attempt.happened.add(what)
        if what is AtSet.REPLACED_BEFORE:
            self._replace(attempt)
        if attempt.owner != self.owner:
            raise GoneError
        if what is AtSet.KILLED_BEFORE:
            self._kill(attempt)
        self.copies.append((key, json.dumps(value)))
        if what in {AtSet.DOWN, AtSet.KILLED_BEFORE}:
            attempt.happened.add("store")
            raise DownError
        self._commit(key, value)
        if what in {AtSet.LATE_FIRST, AtSet.LATE_LAST}:
            self.carry_out_again(0 if what is AtSet.LATE_FIRST else len(self.copies) - 2)
        if what is AtSet.KILLED_AFTER:
            self._kill(attempt)
        if what in {AtSet.DOWN_COMMITTED, AtSet.KILLED_AFTER}:
            attempt.happened.add("store")
            raise DownError
        if what is AtSet.STOPPED:
            self._stop(attempt)
        if what is AtSet.REPLACED_AFTER:
            self._replace(attempt)

    def delete(self, attempt: Attempt, key: str) -> None:
        if attempt.dead or attempt.owner != self.owner:
            raise DownError
        self.stored.pop(key, None)

    def carry_out_again(self, which: int) -> None:
        """Let a copy of a write arrive late."""
        if self.copies:
            key, text = self.copies[max(0, which) % len(self.copies)]
            self.stored[key] = text

    def _commit(self, key: str, value: Any) -> None:
        self.stored[key] = json.dumps(value)
        for private in PRIVATE:
            if private in self.stored[key]:
                self.violations.append(f"{private!r} stands in the journal")
        ahead = [number for number, one in self.at_rest().items() if one.number == self.number and one.ended is None]
        if len(ahead) > self.window:
            self.violations.append(f"{len(ahead)} requests are claimed and not settled, more than {self.window}")

    def at_rest(self) -> dict[int, AtRest]:
        """Return the requests the journal has, by number."""
        found: dict[int, AtRest] = {}
        segments = self.segments()
        for segment in segments:
            if any(segment[name] != segments[-1][name] for name in ("key_id", "resend_epoch")):
                continue
            for batch in map(LogEntry.from_text, segment["batches"]):
                for claim in batch.intents:
                    people = frozenset(_BY_HASH[member] for member, _ in claim.each())
                    made = AtRest(claim.reference, people, batch.try_number, batch.clear_epoch)
                    if found.setdefault(claim.number, made).people != people:
                        self.violations.append(f"there are two requests {claim.number}")
                for end in batch.results:
                    if end.number in found:
                        left_out = {_BY_HASH[member] for member in split_members(end.left_out)}
                        found[end.number].people -= left_out
                        found[end.number].ended = end.state
                        found[end.number].ended_in = batch.clear_epoch
        return found

    def segments(self) -> list[dict[str, Any]]:
        """Return the segments as they lie there, those of later tries behind those of earlier ones."""
        found: dict[tuple[int, int], dict[str, Any]] = {}
        whole = set[int]()
        for key, text in self.stored.items():
            if key == JOURNAL_KEY or key.startswith(f"{JOURNAL_KEY}."):
                index, *part = (
                    int(number) for number in (key.removeprefix(JOURNAL_KEY).strip(".") or "0.0").split(".")
                )
                found[index, part[0] if part else -1] = json.loads(text)
                whole |= set() if part else {index}
        return [found[index, part] for index, part in sorted(found) if part < 0 or index not in whole]

    # --- the service ----------------------------------------------------------------------------------------------

    async def send(
        self, attempt: Attempt, recipients: Sequence[str], personal: list[dict[str, Any]] | None, reference: str
    ) -> Any:
        people = tuple(one.removeprefix("+") for one in recipients)
        if attempt.dead:
            raise CpaasNotSentError("The process is gone.")
        attempt.requests.append(people)
        self._judge(attempt, people, personal, reference)
        what = next(attempt.answers, AtRequest.ACCEPTED)
        A = AtRequest  # noqa: N806 - short, for what follows
        said, before, epoch = self._said(), {one: set(self.maybe.get(one, ())) for one in people}, self.epoch
        were_in_doubt = {one for one in people if one in self.maybe}
        for one in people if attempt.epoch == epoch else ():
            self.maybe.setdefault(one, set()).add(said)
        for _ in range(next(attempt.slow, 0)):
            await asyncio.sleep(0)
        if attempt.dead:
            # It had left when the process went; this one got lost on the way.
            raise CpaasNotSentError("The process is gone.")
        attempt.happened.add(what)
        if what is A.KILLED_BEFORE:
            self._kill(attempt)
            raise CpaasNotSentError("The process is gone.")
        if what is A.REPLACED:
            self._replace(attempt)
        if isinstance(what, Form) and not self.bad & set(people):
            left_out = untouched(what, people)
            if attempt.epoch == self.epoch and "replaced" not in attempt.happened:
                self._as_before(left_out, before, were_in_doubt)
            if left_out and (what.accepted or (what.rejected and len(people) == 1)):
                attempt.refused.update(left_out)
            taken = [one for one in people if one not in left_out]
            message_id = self._accept(attempt, taken, reference)
            return self._priced(read(what, people, message_id), len(taken))
        if what in {A.NOT_SENT, A.NO_BALANCE} or self.bad & set(people):
            if attempt.epoch == self.epoch and "replaced" not in attempt.happened:
                self._as_before(people, before, were_in_doubt)
            if what is A.NOT_SENT:
                raise CpaasNotSentError("The service is busy.")
            if what is A.NO_BALANCE:
                raise CpaasInsufficientBalanceError("Insufficient balance.", status=400)
            raise self._refusal(people)
        if what in {A.UNKNOWN_NOT, A.BUG_NOT}:
            raise BugError if what is A.BUG_NOT else CpaasUnknownOutcomeError("No readable answer came.")
        if what is A.STOPPED_LOST:
            self._stop(attempt)
            # The stop's grace ends it, or, should the stop have come without one, nothing does.
            attempt.happened.add("abandoned")
            await asyncio.Event().wait()
        message_id = self._accept(attempt, people, reference)
        if what is A.KILLED_AFTER:
            self._kill(attempt)
        if what is A.STOPPED_ACCEPTED:
            self._stop(attempt)
        if what is A.BUG_ACCEPTED:
            raise BugError
        if what in {A.UNKNOWN_ACCEPTED, A.KILLED_AFTER}:
            raise CpaasUnknownOutcomeError("No readable answer came.")
        return self._priced(read(Form.ACCEPTED_PLAIN, people, message_id), len(people))

    def _as_before(self, people: Iterable[str], before: dict[str, set[str]], were_in_doubt: set[str]) -> None:
        for one in people:
            self.maybe[one] = before[one]
            if one not in were_in_doubt:
                del self.maybe[one]

    def _priced(self, answer: Any, people: int) -> Any:
        """Return an answer with what it tells of money."""
        charge = {Told.A_PRICE: 2.0 * people, Told.A_PRICE_OF_NOUGHT: 0.0}.get(self.told)
        self.charged += 0.0 if self.told is Told.A_PRICE_OF_NOUGHT else 2.0 * people
        balance = None if self.told is Told.NOTHING else 100_000.0 - self.charged
        meta = SimpleNamespace(estimate=SimpleNamespace(charge=charge, available_balance=balance))
        return answer.model_copy(update={"meta": meta})

    def _accept(self, attempt: Attempt, people: Iterable[str], reference: str) -> str:
        people = list(people)
        self.messages += 1
        message_id = f"m{self.messages}"
        if people:
            self.accepted.setdefault(reference, []).append(message_id)
        if attempt.epoch == self.epoch:
            for one in people:
                self.reached[one] = self.reached.get(one, 0) + 1
        return message_id

    def _refusal(self, people: Iterable[str]) -> CpaasRejectedError:
        error = CpaasRejectedError("A recipient is refused.", status=400)
        error.rejected_recipients = tuple(sorted(self.bad & set(people))) if self.names_refused else ()
        return error

    def _said(self) -> str:
        return f"{self.text} {self.name}"

    def _judge(
        self, attempt: Attempt, people: tuple[str, ...], personal: list[dict[str, Any]] | None, reference: str
    ) -> None:
        """Note what must not have left."""
        say = self.violations.append
        if len(set(people)) < len(people) or len(people) > self.per_request:
            say(f"a request to {people}")
        if [one["to"].removeprefix("+") for one in personal or ()] != list(people):
            say("not everybody's own words go with a request")
        if strangers := set(people) - set(self.source):
            say(f"a request to {strangers}, who are not in the source")
        if banned := set(people) & self.banned:
            say(f"a request to {banned}, who are suppressed")
        if attempt.owner == self.owner:
            claimed = [one for one in self.at_rest().values() if one.reference == reference and one.ended is None]
            if not any(one.people == frozenset(people) for one in claimed):
                say("a request left that is not claimed at rest")
        for one in people if attempt.epoch == self.epoch else ():
            if attempt.policy is OnUnknown.RESEND:
                if attempt.known.get(one) is State.ACCEPTED:
                    say(f"{one} is settled and was sent to again")
                if self.maybe.get(one, set()) - {self._said()}:
                    say(f"{one} was sent another text than the one in doubt")
            elif one in self.maybe:
                say(f"{one} may have been reached, and was sent to again")

    def _kill(self, attempt: Attempt) -> None:
        attempt.dead = True

    def _stop(self, attempt: Attempt) -> None:
        attempt.happened.add("stopped")
        attempt.stop.request()

    # --- a try ----------------------------------------------------------------------------------------------------

    def run(self, script: Script = UNDISTURBED) -> Attempt:
        """Run the next try, and judge its end."""
        self.number += 1
        self.depth += 1
        stop = StopSignal(0.0 if AtRequest.STOPPED_LOST in script.requests else 30.0)
        attempt = Attempt(self.number, self.owner, self.epoch, script, self.policy, stop)
        self.state = "running"
        tries = TryInfo(self.number, self.max_tries, self.retries, self.clear_number)
        lost = self._lost(tries)
        if lost:
            self.was_lost = True
            self.maybe = {one: set() for one in self.maybe}
        attempt.known = self._known(tries)
        try:
            self._campaign(attempt, tries)
        except Exception as error:  # noqa: BLE001 - it is judged below
            attempt.error = error
        else:
            attempt.succeeded = True
        self.depth -= 1
        if attempt.owner == self.owner:
            self._end(attempt)
        if not attempt.dead and "replaced" not in attempt.happened:
            self._judge_end(attempt, lost)
        return attempt

    def _campaign(self, attempt: Attempt, tries: TryInfo) -> None:
        store = SimpleNamespace(
            get=lambda key: self.get(attempt, key),
            set=lambda key, value: self.set(attempt, key, value),
            delete=lambda key: self.delete(attempt, key),
        )
        said = message(self.text, {"name": "name"})
        journal_log = JournalLog(store, self.secrets, IDENTITY, OPERATION, tries, resend_on_clear=self.resend_on_clear)
        options = CampaignOptions(
            self.per_request,
            self.window,
            attempt.policy,
            max_failure_ratio=1.0,
            max_identical_rejections=self.max_identical_rejections,
            max_charge=None if self.told is Told.NOTHING else 10_000.0,
        )
        with RecipientTable() as plan:
            campaign = Campaign(plan, journal_log, said, options, NoDelivery())
            planner = RecipientLoader(plan, said, journal_log.hasher, reader=nigerian_reader(said))
            rows = Rows(*({"phone": f"+{one}", "name": self.name} for one in self.source))
            banned = Rows(*(f"+{one}" for one in self.banned))
            try:
                campaign.prepare(planner, rows, Columns("phone"), tests=None, suppression_list=banned)
                client = FunctionClient(
                    lambda fields: self.send(
                        attempt, fields["recipients"], fields["personalisation"], fields["external_ref"]
                    ),
                    lambda: attempt.happened.add("client stopped"),
                )
                policy = UnknownPolicy(attempt.policy, probes=[self] if self.evidence else ())
                send(campaign, client, Ports(attempt.stop), policy)
            finally:
                attempt.statuses = self._statuses(plan)

    @staticmethod
    def _statuses(plan: RecipientTable) -> dict[str, RecipientStatus]:
        rows = plan.database.execute(
            "SELECT member, status FROM recipient WHERE status != ?", (RecipientStatus.DUPLICATE,)
        )
        return {_BY_HASH[member]: RecipientStatus(status) for member, status in rows}

    # What evidence is asked.
    max_wait = timedelta()

    async def check(self, client: Any, entry: RequestRecord) -> dict[str, Any] | None:
        if entry.reference not in self.accepted:
            return None
        recorded = journals.accepted_ids(self.stored, entry.reference)
        found = next((one for one in self.accepted[entry.reference] if one not in recorded), None)
        if found is not None:
            # Whom a response that was lost rejected by name, nothing tells: they count as accepted.
            self.established |= {_BY_HASH[member] for member in entry.members}
        return {"id": found or self.accepted[entry.reference][0]}

    # --- what must be true ----------------------------------------------------------------------------------------

    def _lost(self, tries: TryInfo) -> bool:
        """Tell whether nobody can know what earlier tries did."""
        ordered = self.resend_on_clear and tries.max_tries > tries.retries
        segments = self.segments()
        if not segments:
            return tries.after_clear and not ordered
        first = segments[-1]
        if first["key_id"] not in {KeyedHasher(secret, IDENTITY).key_id for secret in self.secrets}:
            return not (self.resend_on_clear and first["clear_epoch"] != self.max_tries)
        return False

    def _known(self, tries: TryInfo) -> dict[str, State]:
        """Return what the journal says of people, without the code that is tested."""
        segments = self.segments()
        if not segments or self._anew():
            return {}
        first = segments[-1]
        if first["key_id"] not in {KeyedHasher(secret, IDENTITY).key_id for secret in self.secrets}:
            return {}
        strength = [State.NOT_SENT, State.REJECTED, State.UNKNOWN, State.ACCEPTED]
        known: dict[str, State] = {}
        for request in self.at_rest().values():
            state = request.ended or State.UNKNOWN
            if state is State.REJECTED and request.ended_in != tries.max_tries:
                state = State.NOT_SENT
            for one in request.people:
                known[one] = max(known.get(one, State.NOT_SENT), state, key=strength.index)
        return known

    def _anew(self) -> bool:
        if not self.resend_on_clear:
            return False
        generations = [one["clear_epoch"] for one in self.segments()]
        return self.max_tries not in generations

    def _end(self, attempt: Attempt) -> None:
        if attempt.succeeded and not attempt.dead:
            self.state = "success"
        elif getattr(attempt.error, "permanent", False) and not attempt.dead:
            self.state = "failed"
        else:
            self.state = "up_for_retry" if self.number <= self.max_tries else "failed"

    def _judge_end(self, attempt: Attempt, lost: bool) -> None:
        say, happened, statuses = self.violations.append, attempt.happened, attempt.statuses
        error, source = attempt.error, set(self.source)
        causes: dict[type[Exception], bool] = {
            JournalUnavailableError: "store" in happened,
            StoppedError: "stopped" in happened,
            AnswerNotAwaitedError: "stopped" in happened,
            CpaasNotSentError: AtRequest.NOT_SENT in happened or Form.NOT_SENT_425 in happened,
            CpaasRateLimitedError: Form.NOT_SENT_429 in happened,
            CpaasInsufficientBalanceError: AtRequest.NO_BALANCE in happened,
            CircuitOpenError: bool(self.bad) or any(one.rejected for one in happened if isinstance(one, Form)),
            BugError: bool({AtRequest.BUG_ACCEPTED, AtRequest.BUG_NOT} & happened),
            UnknownOutcomeError: attempt.policy is not OnUnknown.SKIP,
            ResendLimitError: attempt.policy is OnUnknown.RESEND and (bool(self.bad) or not attempt.script.undisturbed),
            ChangedBodyError: True,
            ServiceFailingError: AtRequest.UNKNOWN_NOT in happened
            or AtRequest.UNKNOWN_ACCEPTED in happened
            or any(one.lost for one in happened if isinstance(one, Form)),
            TrySupersededError: False,
        }
        if error is not None and not causes.get(type(error), False):
            say(f"the try ended in {error!r} without a cause")
        if attempt.script.deaf:
            return
        if missing := source - set(statuses):
            say(f"{missing} are named nowhere")
        named = {one for one, status in statuses.items() if status in (RecipientStatus.SENT, RecipientStatus.UNKNOWN)}
        # Who left the source, or was suppressed, while the journal was lost is known to nobody.
        known = (set(self.maybe) & source) - self.banned if self.was_lost else set(self.maybe)
        if silent := known - named:
            say(f"{silent} may have been reached and are neither sent to nor unknown")
        for one, status in statuses.items():
            if status is RecipientStatus.SENT and one not in self.reached and one not in self.established:
                say(f"{one} counts as sent to and was not")
            baseless = one not in self.maybe and attempt.known.get(one) is not State.UNKNOWN
            if status is RecipientStatus.UNKNOWN and baseless and not (self.was_lost or lost):
                say(f"{one} counts as unknown and was never sent to, nor claimed")
            if status is RecipientStatus.SUPPRESSED and one not in self.banned:
                say(f"{one} counts as suppressed")
        unknown = {one for one, status in statuses.items() if status is RecipientStatus.UNKNOWN}
        # Whom the service refused before is not tried again by a retry, though it might take them by now.
        refused = {one for one, state in attempt.known.items() if state is State.REJECTED}
        wanted = source - self.banned - self.bad - refused - attempt.refused
        if attempt.succeeded:
            if unknown and attempt.policy is not OnUnknown.SKIP:
                say(f"it succeeded although {unknown} are unknown")
            if missing := wanted - set(self.reached) - self.established - unknown:
                say(f"it succeeded although {missing} are missing")
            if source <= {one for one, state in attempt.known.items() if state is State.ACCEPTED} and attempt.requests:
                say("settled work was done again")
        elif attempt.script.undisturbed and not unknown and not isinstance(error, (CpaasError, CircuitOpenError)):
            say(f"nothing went wrong and it failed: {error!r}")
        if isinstance(error, SendingError) and any(private in str(error) for private in PRIVATE):
            say("an error says what is private")


@dataclass
class AtRest:
    """A request as the journal has it."""

    reference: str
    people: frozenset[str]
    number: int
    clear_epoch: int
    ended: State | None = None
    ended_in: int | None = None
