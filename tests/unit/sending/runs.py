"""A model of runs beside one provider database: deleted, made again under the same id, cleared, cloned, restored.

Journals, database, frequency cap and delivery reports are real. The service is the oracle: it knows which run reached
which recipient.
"""

from __future__ import annotations

import asyncio
import json
import secrets
import shutil
import sqlite3
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass, field
from datetime import timedelta
from enum import Enum
from itertools import count
from pathlib import Path
from types import SimpleNamespace
from typing import Any

from cpaas_provider.api.core import Call
from cpaas_provider.api.endpoints import SEND_SMS
from cpaas_provider.api.errors import CpaasNotSentError, CpaasRejectedError, CpaasUnknownOutcomeError
from cpaas_provider.database.database import Database, open_database
from cpaas_provider.database.recipients.frequency import Cap, MessageCounts
from cpaas_provider.database.registry import CampaignKey, open_campaign
from cpaas_provider.delivery.callbacks.tokens import CallbackToken
from cpaas_provider.delivery.tracking.counts import confirmed_requests
from cpaas_provider.delivery.tracking.sent_requests import SentRequest
from cpaas_provider.sending.engine import SendEngine
from cpaas_provider.sending.errors import OlderDatabaseError
from cpaas_provider.sending.journal.hashing import campaign_identity, task_identity
from cpaas_provider.sending.journal.journal import Journal
from cpaas_provider.sending.journal.model import INSTANCE_KEY, RequestRecord
from cpaas_provider.sending.journal.newest_try import NewestTry
from cpaas_provider.sending.journal.store import TryInfo
from cpaas_provider.sending.shutdown import StopSignal
from cpaas_provider.sending.single import SingleSendState
from cpaas_provider.sending.spec import OnUnknown, RequestResult, SendOutcome, SendSpec, UnknownPolicy
from cpaas_provider.tasks.campaign.store import MarkedStateStore, refuse_older_database
from cpaas_provider.tasks.errors import PreflightError
from tests import journals
from tests.unit.delivery.report_builders import report, save_reports, save_requests
from tests.unit.sending.ports import FunctionClient, NoDelivery, Ports

OPERATION, CONN_ID = "send_sms", "shop"
PEOPLE = ("2348030001111", "2348030002222")
KEYED_PEOPLE = ("2348030003333", "2348030004444")
RETRIES = 2
CAP = Cap("marketing", 3, timedelta(days=7))
KEY = CampaignKey(CONN_ID, "sms", "spring", "https://api.example.com")
RUNS = ("scheduled__2026-03-01", "scheduled__2026-03-02")


class KilledError(Exception):
    """The process is gone: nothing it does has any effect."""


class Weather(Enum):
    """What the service does with a request, and what the task learns of it."""

    ACCEPTED = "accepted"
    REJECTED = "rejected"
    NOT_SENT = "not sent"
    UNKNOWN_ACCEPTED = "unknown, carried out"
    UNKNOWN_NOT = "unknown, not carried out"
    KILLED_BEFORE = "killed before it arrived"
    KILLED_AFTER = "killed after it was carried out"

    @property
    def is_carried_out(self) -> bool:
        return self in {Weather.ACCEPTED, Weather.UNKNOWN_ACCEPTED, Weather.KILLED_AFTER}

    @property
    def is_killed(self) -> bool:
        return self in {Weather.KILLED_BEFORE, Weather.KILLED_AFTER}


@dataclass(eq=False)
class Run:
    """A task instance, from its creation until its run is deleted. No other run has the number."""

    number: int
    run_id: str
    state: dict[str, str] = field(default_factory=dict)
    try_number: int = 0
    max_tries: int = RETRIES
    clear_number: int = 0

    @property
    def tries(self) -> TryInfo:
        return TryInfo(self.try_number, self.max_tries, RETRIES, self.clear_number)

    def clear(self, *, dropped: bool) -> None:
        """Clear it as Airflow 3.3 does, or as 3.4 does, which drops the state."""
        self.max_tries, self.clear_number = self.try_number + RETRIES, self.clear_number + 1
        if dropped:
            self.state = {}

    @property
    def has_journal(self) -> bool:
        return any(map(journals.is_key, self.state))


@dataclass(eq=False)
class Attempt:
    """One try, and what it did."""

    run: Run
    weather: Weather
    policy: OnUnknown
    key: str | None
    killed: bool = False
    requested: list[str] = field(default_factory=list)
    outcome: SendOutcome | None = None
    error: Exception | None = None


class TaskState:
    """The state of a task instance, or the journal in the database, for a process that may be killed."""

    def __init__(self, attempt: Attempt, store: Any = None) -> None:
        self._attempt, self._store = attempt, store

    def get(self, key: str) -> Any:
        self._check()
        if self._store is not None:
            return self._store.get(key)
        stored = self._attempt.run.state.get(key)
        return None if stored is None else json.loads(stored)

    def set(self, key: str, value: Any) -> None:
        self._check()
        if self._store is not None:
            self._store.set(key, value)
        else:
            self._attempt.run.state[key] = json.dumps(value)

    def delete(self, key: str) -> None:
        self._check()
        if self._store is not None:
            self._store.delete(key)
        else:
            self._attempt.run.state.pop(key, None)

    def _check(self) -> None:
        if self._attempt.killed:
            raise KilledError


class Variables(dict[str, str]):
    """Airflow's variables."""

    def names(self, prefix: str) -> list[str]:
        return [name for name in self if name.startswith(prefix)]

    def set(self, name: str, value: str, description: str) -> None:
        self[name] = value

    def delete(self, name: str) -> None:
        self.pop(name, None)


@dataclass(frozen=True)
class CountedMessages:
    """The frequency cap of one send."""

    counts: MessageCounts

    def reserve(self, recipients: Sequence[str]) -> Iterable[str]:
        return self.counts.reserve(recipients)

    def release(self, recipients: Sequence[str]) -> None:
        self.counts.release(recipients)


@dataclass(frozen=True)
class ReportProbe:
    """Establishes a request that the database has as accepted, or has a report of."""

    database: Database
    max_wait = timedelta()

    async def snapshot(self, client: Any) -> None:
        return None

    async def check(self, client: Any, entry: RequestRecord) -> dict[str, Any] | None:
        with self.database.connect() as connection:
            found = confirmed_requests(connection, CONN_ID, [entry.reference])
        return {"id": found[entry.reference]} if entry.reference in found else None


class Spec(SendSpec, frozen=True, kw_only=True):
    def build_call(self, recipients: Sequence[str], reference: str, callback_url: str | None) -> Call[Any]:
        return Call(SEND_SMS, {"recipients": list(recipients), "external_ref": reference})

    def read_result(self, response: Mapping[str, Any], *, repeated: bool) -> RequestResult:
        return RequestResult(response["id"], details=dict(response))


class World:
    """Two deployments of Airflow beside one database of the provider, and the service.

    :param folder: has the file of the database
    """

    def __init__(self, folder: Path) -> None:
        self.violations: list[str] = []
        self._folder = folder
        self._file, self._copy = folder / "store.db", folder / "copy.db"
        self.database = open_database(f"sqlite:///{self._file}")
        self._numbers, self._messages = count(1), count(1)
        self.deployments: list[dict[str, Run]] = [{}, {}]
        self.variables = Variables()
        self.copies = 0
        self.was_restored = False
        self.reached: dict[str, set[int]] = defaultdict(set)
        """The numbers of the runs whose request to a recipient the service carried out."""
        self.messages: list[tuple[str, str]] = []
        """The reference and the recipient of each message without a report."""
        self.may_have: set[tuple[int | str, str]] = set()
        """Recipients that a request may have reached, by the number of the run or the key."""
        self.counted: dict[str, set[int]] = defaultdict(set)
        """The numbers of the runs that may count for the cap of a recipient."""

    def close(self) -> None:
        self.database.close()

    # --- Airflow, and what people do ------------------------------------------------------------------------------

    def run_of(self, deployment: int, run_id: str) -> Run:
        """Return the run of an id, which a deployment makes on first use."""
        runs = self.deployments[deployment]
        return runs.setdefault(run_id, Run(next(self._numbers), run_id))

    def delete(self, deployment: int, run_id: str) -> None:
        self.deployments[deployment].pop(run_id, None)

    def copy_database(self) -> None:
        with closing(sqlite3.connect(self._file)) as source, closing(sqlite3.connect(self._copy)) as target:
            source.backup(target)
        self.copies += 1

    def restore_database(self) -> None:
        self.database.close()
        for old in self._folder.glob("store.db*"):
            old.unlink()
        shutil.copy(self._copy, self._file)
        self.database = open_database(f"sqlite:///{self._file}")
        self.was_restored = True

    def report_all(self) -> None:
        """Let the delivery reports of all messages arrive."""
        for reference, recipient in self.messages:
            token = CallbackToken(reference, reference, 1)
            save_reports(self.database, report(recipient, "delivered", token=token, conn_id=CONN_ID))
        self.messages.clear()

    # --- tries ----------------------------------------------------------------------------------------------------

    def send(self, run: Run, weather: Weather = Weather.ACCEPTED, policy: OnUnknown = OnUnknown.FAIL) -> Attempt:
        """Run a try of a send whose names belong to its run."""
        run.try_number += 1
        attempt = Attempt(run, weather, policy, None)
        lost = run.tries.after_clear and not run.has_journal
        is_first = run.try_number == 1
        counted = {one: set(numbers) for one, numbers in self.counted.items()}
        store = TaskState(attempt)
        self._run(attempt, lambda: Journal(store, ("sk",), task_identity("dag", run.run_id, "send", -1), run.tries))
        self._judge(attempt, {one for one in PEOPLE if run.number in self.reached[one]})
        if lost and policy is not OnUnknown.RESEND:
            if attempt.requested:
                self.violations.append("a request left after the journal was lost")
            if attempt.outcome is not None and attempt.outcome.accepted:
                self.violations.append("a request was established after the journal was lost")
        if is_first and weather is Weather.ACCEPTED and not self.was_restored:
            free = {one for one in PEOPLE if len(counted.get(one, ())) < (CAP.messages or 0)}
            if free - set(attempt.requested):
                self.violations.append("a new run did not send to a recipient below the cap")
        if not self.was_restored and any(len(self.reached[one]) > (CAP.messages or 0) for one in PEOPLE):
            self.violations.append("more runs reached a recipient than the cap allows")
        return attempt

    def send_keyed(self, run: Run, weather: Weather = Weather.ACCEPTED, policy: OnUnknown = OnUnknown.FAIL) -> Attempt:
        """Run a try of a campaign with an idempotency key, as its operator opens it."""
        run.try_number += 1
        attempt = Attempt(run, weather, policy, KEY.key)
        task_state = TaskState(attempt)
        nonce = task_state.get(INSTANCE_KEY) or secrets.token_hex(8)
        task_state.set(INSTANCE_KEY, nonce)
        campaign = open_campaign(self.database, KEY, (0, 1), f"run {run.number}")
        newest_try = NewestTry(self.database, self.variables)
        try:
            state = MarkedStateStore(campaign, task_state, f"{KEY.name}/0", nonce, newest_try)
            runtime = SimpleNamespace(database=self.database, cli_address="send")
            refuse_older_database(state, _older(newest_try), runtime)  # type: ignore[arg-type] # all that it reads
            tries = TryInfo(run.try_number, run.max_tries, run.max_tries, run=nonce)
            store = TaskState(attempt, state)
            self._run(attempt, lambda: Journal(store, (campaign.secret,), campaign_identity(KEY.key), tries))
            self._judge(attempt, {one for one in KEYED_PEOPLE if self.reached[one]})
        except (PreflightError, OlderDatabaseError) as error:
            attempt.error = error
        finally:
            if not attempt.killed:
                newest_try.record_end()
            # The lease of a killed process ends after a while.
            campaign.state.release()
        return attempt

    def _run(self, attempt: Attempt, open_journal: Any) -> None:
        try:
            journal = open_journal()
            people = PEOPLE if attempt.key is None else KEYED_PEOPLE
            cap = None
            if attempt.key is None:
                cap = CountedMessages(MessageCounts(self.database, CAP, journal.log.reference((), OPERATION)))
            probe = ReportProbe(self.database)
            spec = Spec(OPERATION, people, {"content": "Your parcel waits"}, probes=(probe,))
            state = SingleSendState(spec, journal, NoDelivery(), frequency_cap=cap)
            client = FunctionClient(lambda fields: self._perform(attempt, fields["recipients"], fields["external_ref"]))
            engine = SendEngine(
                state, client, Ports(StopSignal(30.0)), UnknownPolicy(attempt.policy, timedelta(), spec.probes)
            )
            try:
                asyncio.run(engine.run())
            except Exception as error:  # noqa: BLE001 - it is judged by what was sent
                attempt.error = error
            if not attempt.killed:
                attempt.outcome = state.outcome()
                self._record(attempt.outcome)
        except KilledError as error:
            attempt.error = error

    def _record(self, outcome: SendOutcome) -> None:
        """Record accepted requests for delivery tracking, as a task does at its end."""
        for entry in outcome.accepted:
            made = SentRequest(entry.reference, len(entry.members), (entry.result or {}).get("id"))
            save_requests(self.database, made, campaign=entry.reference, conn_id=CONN_ID)

    def _perform(self, attempt: Attempt, people: Sequence[str], reference: str) -> dict[str, Any]:
        if attempt.killed:
            raise KilledError
        weather, name = attempt.weather, attempt.key or attempt.run.number
        attempt.requested.extend(people)
        for one in people:
            if attempt.policy is not OnUnknown.RESEND and (name, one) in self.may_have:
                self.violations.append(f"a recipient that may have the message of {name} was sent to again")
            if weather not in {Weather.REJECTED, Weather.NOT_SENT}:
                self.may_have.add((name, one))
                self.counted[one].add(attempt.run.number)
            if weather.is_carried_out:
                self.reached[one].add(attempt.run.number)
                self.messages.append((reference, one))
        if weather.is_killed:
            attempt.killed = True
            raise KilledError
        if weather is Weather.REJECTED:
            raise CpaasRejectedError("The service refused the request.")
        if weather is Weather.NOT_SENT:
            raise CpaasNotSentError("The service could not be reached.")
        if weather is not Weather.ACCEPTED:
            raise CpaasUnknownOutcomeError("No readable answer came.")
        return {"id": f"m{next(self._messages)}"}

    def _judge(self, attempt: Attempt, reached: set[str]) -> None:
        """Note a recipient that counts as sent to, although no request of this run, or of this key, reached it."""
        if attempt.outcome is not None and attempt.outcome.sent > len(reached):
            self.violations.append("evidence of another run counts")


def _older(newest_try: NewestTry) -> OlderDatabaseError | None:
    try:
        newest_try.check()
    except OlderDatabaseError as error:
        return error
    return None
