"""What the tests of campaigns put together: a task's state that can fail, tries, plans of a few people."""

from __future__ import annotations

import json
from collections.abc import Iterable
from contextlib import AbstractContextManager, nullcontext
from datetime import UTC, datetime
from types import SimpleNamespace
from typing import Any

from cpaas_provider.sending.campaign.content import Content
from cpaas_provider.sending.campaign.recipients import RecipientRow, RecipientStatus, RecipientTable
from cpaas_provider.sending.journal.hashing import KeyedHasher, task_identity
from cpaas_provider.sending.journal.log import JournalLog
from cpaas_provider.sending.journal.model import Intent, LogEntry, Result, State
from cpaas_provider.sending.journal.store import TryInfo
from cpaas_provider.sending.requests.channels import SMS
from cpaas_provider.sources.base import InvalidRow, Row

SECRETS = ("sk_first_key", "sk_second_key", "sk_third_key")
IDENTITY = task_identity("campaign", "manual__1", "send", -1)
PRINTS = KeyedHasher(SECRETS[0], IDENTITY)
OPERATION = SMS.endpoint.operation
WHEN = datetime(2026, 3, 1, tzinfo=UTC)
BODY = PRINTS.body({"sender_id": "Shop", "content": "Hello"})
FIRST_TRY = TryInfo(number=1, max_tries=3, retries=3)
SECOND_TRY = TryInfo(number=2, max_tries=3, retries=3)
CLEARED = TryInfo(number=2, max_tries=4, retries=3, clear_number=1)


class GoneError(Exception):
    """What Airflow answers to a try that was replaced."""

    def __init__(self) -> None:
        super().__init__("not found")
        self.response = SimpleNamespace(status_code=404)


class MemoryStore:
    """A task's state in memory, which takes nothing but plain JSON.

    :param failing: raised by as many of the next writes or reads as it lists; ``None`` lets one pass
    """

    def __init__(self) -> None:
        self.values: dict[str, str] = {}
        self.written: list[str] = []
        self.failing: list[Exception | None] = []
        self.deaf: Exception | None = None

    def get(self, key: str) -> Any:
        if self.deaf is not None:
            raise self.deaf
        return json.loads(self.values[key]) if key in self.values else None

    def set(self, key: str, value: Any) -> None:
        assert json.loads(json.dumps(value, allow_nan=False)) == value, "no plain JSON"
        if self.failing and (error := self.failing.pop(0)) is not None:
            raise error
        self.values[key] = json.dumps(value)
        self.written.append(key)

    def delete(self, key: str) -> None:
        self.values.pop(key, None)

    @property
    def sizes(self) -> list[int]:
        """Bytes of what is stored, as Airflow stores it."""
        return [len(value.encode()) for value in self.values.values()]


def journal_log(
    store: MemoryStore, tries: TryInfo = FIRST_TRY, secrets: Iterable[str] = SECRETS[:1], **how: Any
) -> JournalLog:
    """Return a ledger as a try opens it, before anything is replayed."""
    return JournalLog(store, tuple(secrets), IDENTITY, how.pop("operation", OPERATION), tries, **how)


def opened(
    store: MemoryStore, tries: TryInfo = FIRST_TRY, secrets: Iterable[str] = SECRETS[:1], **how: Any
) -> JournalLog:
    """Return one that can be added to."""
    made = journal_log(store, tries, secrets, **how)
    list(made.replay())
    return made


def member(phone: str, hasher: KeyedHasher = PRINTS) -> bytes:
    return hasher.member_hasher(OPERATION)(phone)


def make_intent(number: int, *phones: str, words: Iterable[str] = (), hasher: KeyedHasher = PRINTS) -> Intent:
    members = [member(phone, hasher) for phone in phones]
    reference = hasher.reference(OPERATION, members, "nonce", 0)
    return Intent(number, reference, b"".join(members), b"".join(hasher.values_hash(word) for word in words))


def make_result(number: int, charge: float | None = 2.5, balance: float | None = 100.0) -> Result:
    return Result(number, State.ACCEPTED, (f"m{number}", charge, balance))


def batch(
    intents: Iterable[Intent] = (), results: Iterable[Result] = (), tries: TryInfo = FIRST_TRY, body: str = BODY
) -> LogEntry:
    return LogEntry(WHEN, tries.number, tries.max_tries, body, tuple(intents), tuple(results))


def phones(count: int, first: int = 0) -> list[str]:
    """Return normalised numbers that are nobody's twice."""
    return [f"23480312{number:05d}" for number in range(first, first + count)]


def planned(phone: str, row: int = 1, **facts: Any) -> RecipientRow:
    return RecipientRow(row, facts.pop("status", RecipientStatus.NOT_SENT), member(phone), phone, **facts)


def plan_of(*people: str, **facts: Any) -> RecipientTable:
    """Return a plan of some people, in order, ready to be sent by."""
    plan = RecipientTable()
    plan.add(planned(phone, row, **facts) for row, phone in enumerate(people, 1))
    plan.deduplicate_and_suppress()
    return plan


def statuses(plan: RecipientTable) -> dict[str, str]:
    """Return the outcome of each recipient who stands in the plan with a number; of duplicates the first."""
    found: dict[str, str] = {}
    for line in plan.rows():
        found.setdefault(str(line["recipient"]), line["outcome"])
    return found


def message(content: str = "Hello", columns: dict[str, str] | None = None, **given: Any) -> Content:
    return Content(
        SMS, {"sender_id": "Shop", "content": content}, [content], columns or {}, **{"measured": True, **given}
    )


class Rows:
    """A source of rows.

    :param columns: ``None`` where each row has its own, as in a list
    """

    def __init__(self, *rows: Any, columns: tuple[str, ...] | None = None) -> None:
        self._rows = rows
        self.columns = columns

    def open(self) -> AbstractContextManager[Any]:
        return nullcontext(self)

    def rows(self, wanted: Any) -> Any:
        for number, row in enumerate(self._rows, 1):
            if row is None:
                yield InvalidRow(number, "cannot be read")
            else:
                cells = {wanted[0]: row} if isinstance(row, str) else row
                yield Row(number, tuple(cells.get(name) for name in wanted))

    def __str__(self) -> str:
        return "list of rows"
