"""The journal: what it stores when, whose it is, and what it does where it cannot be had."""

from __future__ import annotations

import json
from collections.abc import Sequence
from datetime import UTC, datetime
from types import SimpleNamespace
from typing import Any

import pytest

from cpaas_provider.sending.errors import JournalTooLargeError, JournalUnavailableError, TrySupersededError
from cpaas_provider.sending.journal import writer as writer_module
from cpaas_provider.sending.journal.hashing import task_identity
from cpaas_provider.sending.journal.model import (
    JOURNAL_KEY,
    VERSION,
    Intent,
    LogEntry,
    RequestRecord,
    Result,
    Segment,
    State,
)
from cpaas_provider.sending.journal.store import TryInfo
from tests import journals
from tests.unit.sending.journal.written import WrittenJournal

IDENTITY = task_identity("dag", "run", "task", -1)
ADA, OBI, UMA = "2348030001111", "2348030002222", "2348030003333"
BODY = {"content": "hello"}
FIRST, SECOND = TryInfo(1, 2, 2), TryInfo(2, 2, 2)
CLEARED = TryInfo(2, 3, 2, 1)
AT = datetime(2026, 3, 1, tzinfo=UTC)


class ReplacedError(Exception):
    """As the Task SDK tells it."""

    error = SimpleNamespace(detail={"status_code": 404})


class ReplacedInHttpError(Exception):
    """As an HTTP client tells it."""

    response = SimpleNamespace(status_code=404)


class Store:
    """A task's state that fails as often as it is told to."""

    def __init__(self, stored: Any = None) -> None:
        self.values: dict[str, Any] = {} if stored is None else {JOURNAL_KEY: stored}
        self.gets, self.sets = 0, 0
        self.failures: list[Exception] = []

    @property
    def requests(self) -> dict[str, dict[str, Any]]:
        """What is stored of each reference."""
        return journals.requests(self.values)

    def get(self, key: str) -> Any:
        self.gets += 1
        if self.failures:
            raise self.failures.pop(0)
        return json.loads(json.dumps(self.values.get(key)))

    def set(self, key: str, value: Any) -> None:
        self.sets += 1
        if self.failures:
            raise self.failures.pop(0)
        self.values[key] = json.loads(json.dumps(value))

    def delete(self, key: str) -> None:
        self.values.pop(key, None)


@pytest.fixture(autouse=True)
def hurried(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(writer_module, "_FIRST_PAUSE", 0.0)


@pytest.fixture
def store() -> Store:
    return Store()


def opened(store: Store, tries: TryInfo = FIRST, secrets: Sequence[str] = ("key",), **options: Any) -> WrittenJournal:
    return WrittenJournal(store, secrets, IDENTITY, tries, clock=lambda: AT, **options)


def sent(
    store: Store, *people: str, tries: TryInfo = FIRST, state: State = State.ACCEPTED, **options: Any
) -> RequestRecord:
    journal = opened(store, tries, **options)
    entry = journal.begin("send_sms", people, BODY)
    journal.end(entry, state, result={"id": "m1"} if state is State.ACCEPTED else None)
    return entry


def states(journal: WrittenJournal, *people: str) -> list[State | None]:
    return [entry and entry.state for entry in journal.latest("send_sms", people).values()]


# --- claiming and settling


def test_intent_is_stored_when_begin_returns(store: Store) -> None:
    journal = opened(store)
    assert (store.gets, store.sets) == (1, 0)
    entry = journal.begin("send_sms", [ADA, OBI], BODY, {ADA: {"name": "Ada"}}, probe_snapshot=[["r1"]])
    assert (store.gets, store.sets) == (1, 1)
    facts = store.requests[entry.reference]
    assert facts["state"] == "pending"
    assert facts["try_number"] == 1
    assert facts["started_at"] == AT.isoformat()
    assert facts["probe_snapshot"] == [["r1"]]
    assert len(facts["recipient_hashes"]) == len(facts["personal"]) == 2
    assert "result" not in facts


def test_result_is_stored_when_end_returns(store: Store) -> None:
    journal = opened(store)
    journal.end(journal.begin("send_sms", [ADA], BODY), State.ACCEPTED, result={"id": "m1"})
    (facts,) = store.requests.values()
    assert (facts["state"], facts["result"]) == ("accepted", {"id": "m1"})
    assert store.sets == 2


def test_every_field_of_a_request_is_read_as_it_was_written() -> None:
    intent = Intent(3, "ref", b"a" * 9 + b"b" * 9, b"x" * 6 + b"y" * 6, [None, ["r"]], previous_unknown=True)
    result = Result(
        3, State.ACCEPTED, ("m1", 1.5, None), "why", "sent", left_out=b"b" * 9, extra={"id": "m1", "status": "ok"}
    )
    entry = LogEntry(AT, 3, "run:4", None, [intent], [result])
    assert LogEntry.from_text(json.loads(json.dumps(entry.as_text()))) == entry
    segment = Segment("key", "nonce", "send_sms", 2, "why", [0, 1], 3, [entry.as_text()])
    assert Segment.from_json(json.loads(json.dumps(segment.as_json()))).batches == segment.batches
    assert list(intent.each()) == [(b"a" * 9, b"x" * 6), (b"b" * 9, b"y" * 6)]
    assert RequestRecord(intent, "send_sms", outcome=result).members == [b"a" * 9]


@pytest.mark.parametrize("earlier", [None, State.NOT_SENT])
def test_intent_that_cannot_be_stored_leaves_the_earlier_state(store: Store, earlier: State | None) -> None:
    if earlier:
        sent(store, ADA, state=earlier)
    journal = opened(store, SECOND)
    store.failures = [OSError("down")] * 3
    with pytest.raises(JournalUnavailableError, match="requests to record were not sent"):
        journal.begin("send_sms", [ADA], BODY)
    assert states(journal, ADA) == [earlier]


@pytest.mark.parametrize("error", [ReplacedError(), ReplacedInHttpError()])
def test_superseded_try_writes_neither_intent_nor_result_and_raises(store: Store, error: Exception) -> None:
    journal = opened(store)
    entry = journal.begin("send_sms", [ADA], BODY)
    store.failures = [error]
    with pytest.raises(TrySupersededError) as caught:
        journal.end(entry, State.ACCEPTED, result={"id": "m1"})
    assert not caught.value.permanent
    assert store.sets == 2, "that another try is there does not change by trying again"
    store.failures = [error]
    with pytest.raises(TrySupersededError, match="were not sent"):
        journal.begin("send_sms", [OBI], BODY)


def test_result_that_three_writes_fail_to_store_is_unknown_to_the_next_try(
    store: Store, caplog: pytest.LogCaptureFixture
) -> None:
    journal = opened(store)
    entry = journal.begin("send_sms", [ADA], BODY)
    store.failures = [OSError("down")] * 2
    journal.end(entry, State.ACCEPTED, result={"id": "m1"})
    assert states(opened(store, SECOND), ADA) == [State.ACCEPTED]

    other = journal.begin("send_sms", [OBI], BODY)
    store.failures = [OSError("down")] * 3
    journal.end(other, State.ACCEPTED, result={"id": "m2"})
    assert not store.failures
    assert "The outcome of 1 request could not be stored" in caplog.text
    assert states(opened(store, SECOND), OBI) == [State.UNKNOWN]


def test_intent_without_a_result_is_unknown_to_the_next_try(store: Store) -> None:
    opened(store).begin("send_sms", [ADA], BODY)
    journal = opened(store, SECOND)
    assert states(journal, ADA) == [State.UNKNOWN]
    (entry,) = journal.records
    assert "ended before a response" in str(entry.reason)


@pytest.mark.parametrize("state", [State.NOT_SENT, State.REJECTED])
def test_failed_resend_leaves_the_first_request_unknown(store: Store, state: State) -> None:
    sent(store, ADA, state=State.UNKNOWN)
    entry = sent(store, ADA, tries=SECOND, state=state)
    assert entry.previous_unknown
    assert states(opened(store, TryInfo(3, 2, 2)), ADA) == [State.UNKNOWN]
    sent(store, ADA, tries=TryInfo(3, 2, 2))
    assert states(opened(store, TryInfo(4, 2, 2)), ADA) == [State.ACCEPTED]


def test_state_of_a_recipient_is_the_strongest_of_its_requests(store: Store) -> None:
    sent(store, ADA, OBI, state=State.UNKNOWN)
    sent(store, ADA, state=State.NOT_SENT)
    sent(store, OBI, state=State.ACCEPTED)
    sent(store, OBI, UMA, state=State.REJECTED)
    assert states(opened(store, SECOND), ADA, OBI, UMA) == [State.UNKNOWN, State.ACCEPTED, State.REJECTED]


def test_journal_of_another_operation_is_refused_with_an_explanation(store: Store) -> None:
    sent(store, ADA)
    for use in (
        lambda journal: journal.latest("send_email", [ADA]),
        lambda journal: journal.begin("send_email", [ADA], BODY),
        lambda journal: journal.record_head("send_email", [ADA]),
    ):
        with pytest.raises(JournalUnavailableError, match=r"another kind of send.*Nothing was sent"):
            use(opened(store, SECOND))


# --- reading


HEAD = {
    "version": VERSION,
    "key_id": "l",
    "nonce": "n",
    "operation": "send_sms",
    "resend_epoch": 0,
    "lost": None,
    "partition": [0, 1],
    "clear_epoch": 2,
}
OF_A_SINGLE_SEND_BEFORE = {
    "version": 5,
    "key_id": "l",
    "clear_epoch": 2,
    "resend_epoch": 0,
    "requests": {"ref": {"operation": "send_sms", "recipient_hashes": ["a"], "state": "accepted"}},
}
OF_A_CAMPAIGN_BEFORE = {**HEAD, "version": 6, "batches": []}
WITHOUT_NONCE = {name: fact for name, fact in {**HEAD, "version": 7, "batches": []}.items() if name != "nonce"}


@pytest.mark.parametrize("stored", [OF_A_SINGLE_SEND_BEFORE, OF_A_CAMPAIGN_BEFORE, WITHOUT_NONCE])
def test_journal_of_an_earlier_version_is_refused_with_an_explanation(stored: Any) -> None:
    with pytest.raises(JournalUnavailableError, match=r"its version is [567]\. Nothing was sent\. Install the version"):
        opened(Store(stored), SECOND)


@pytest.mark.parametrize(
    "stored",
    [
        {"version": VERSION + 1},
        {},
        [],
        "text",
        7,
        {"version": VERSION, "key_id": "l", "clear_epoch": 0, "resend_epoch": 0},
        {**HEAD, "batches": [{}]},
        {**HEAD, "batches": 3},
    ],
)
def test_invalid_journal_is_never_read_as_empty(stored: Any) -> None:
    with pytest.raises(JournalUnavailableError, match="Nothing was sent"):
        opened(Store(stored))


@pytest.mark.parametrize("batch", ["", "{}", "[]", '{"at": "now"}'])
def test_journal_with_an_invalid_entry_is_refused(batch: str) -> None:
    store = Store()
    sent(store, ADA)
    store.values[JOURNAL_KEY]["batches"].append(batch)
    with pytest.raises(JournalUnavailableError, match="Nothing was sent"):
        opened(store, SECOND)


def test_unreadable_journal_prevents_sending(store: Store) -> None:
    store.failures = [OSError("down"), ReplacedError()]
    with pytest.raises(JournalUnavailableError, match="nothing was sent"):
        opened(store)
    with pytest.raises(TrySupersededError, match="nothing was sent"):
        opened(store)


# --- retries and clears


@pytest.mark.parametrize(
    ("tries", "lost"),
    [
        (FIRST, False),
        (SECOND, False),
        (TryInfo(1, 3, 2, 1), False),
        (CLEARED, True),
        (TryInfo(2, 2, 2, clear_number=1), True),
        (TryInfo(2, 3, 2, clear_number=0), True),
    ],
)
def test_empty_state_is_a_lost_journal_only_after_a_clear_of_earlier_tries(
    store: Store, tries: TryInfo, lost: bool
) -> None:
    journal = opened(store, tries)
    assert (journal.lost is not None) is lost
    journal.record_head("send_sms", [ADA])
    assert states(journal, ADA) == [State.UNKNOWN if lost else None]
    assert store.sets == int(lost)


def test_lost_journal_stays_lost_for_recipients_added_later(store: Store) -> None:
    opened(store, CLEARED).record_head("send_sms", [ADA])
    journal = opened(store, TryInfo(3, 3, 2, 1))
    journal.record_head("send_sms", [ADA, OBI])
    assert states(journal, ADA, OBI) == [State.UNKNOWN, State.UNKNOWN]
    assert sorted(len(entry.members) for entry in journal.records) == [1, 1]
    sets = store.sets
    opened(store, TryInfo(4, 3, 2, 1)).record_head("send_sms", [ADA, OBI])
    assert store.sets == sets, "what is noted is not noted again"


def test_clear_retries_rejected_recipients_only(store: Store) -> None:
    sent(store, ADA)
    sent(store, OBI, state=State.REJECTED)
    sent(store, UMA, state=State.UNKNOWN)
    assert states(opened(store, SECOND), ADA, OBI, UMA) == [State.ACCEPTED, State.REJECTED, State.UNKNOWN]
    assert states(opened(store, CLEARED), ADA, OBI, UMA) == [State.ACCEPTED, State.NOT_SENT, State.UNKNOWN]


def test_retry_after_a_clear_keeps_rejections(store: Store) -> None:
    sent(store, ADA)
    sent(store, OBI, tries=CLEARED, state=State.REJECTED)
    assert states(opened(store, TryInfo(3, 3, 2, 1)), OBI) == [State.REJECTED]


def test_resend_on_clear_starts_over_once_per_clear(store: Store) -> None:
    first = sent(store, ADA)
    assert states(opened(store, SECOND, resend_on_clear=True), ADA) == [State.ACCEPTED], "a retry is no clear"
    assert states(opened(store, CLEARED, resend_on_clear=True), ADA) == [None]
    assert states(opened(store, CLEARED, resend_on_clear=True), ADA) == [None], "nothing was claimed since"
    second = sent(store, ADA, tries=CLEARED, resend_on_clear=True)
    assert second.reference != first.reference
    assert states(opened(store, TryInfo(3, 3, 2, 1), resend_on_clear=True), ADA) == [State.ACCEPTED]
    assert states(opened(store, TryInfo(3, 4, 2, 2), resend_on_clear=True), ADA) == [None]


def test_resend_on_clear_starts_over_if_the_clear_dropped_the_state(store: Store) -> None:
    journal = opened(store, CLEARED, resend_on_clear=True)
    assert journal.lost is None
    assert states(journal, ADA) == [None]


def test_resend_on_clear_of_a_running_task_with_dropped_state_is_a_lost_journal(store: Store) -> None:
    """Nobody can tell that from a retry after another task of the run was cleared."""
    assert opened(store, TryInfo(2, 2, 2, clear_number=1), resend_on_clear=True).lost


def test_each_resend_has_its_own_references(store: Store) -> None:
    once = sent(store, ADA, tries=TryInfo(2, 3, 2, 1), resend_on_clear=True)
    store.values.clear()
    again = sent(store, ADA, tries=TryInfo(3, 3, 2, 2), resend_on_clear=True)
    assert once.reference != again.reference


# --- secrets


def test_earlier_secret_still_listed_opens_the_journal_and_keeps_its_key(store: Store) -> None:
    first = sent(store, ADA, secrets=["old"])
    journal = opened(store, SECOND, secrets=["new", "old"])
    assert journal.lost is None
    assert states(journal, ADA, OBI) == [State.ACCEPTED, None]
    assert journal.reference("send_sms", [ADA]) == first.reference
    sent(store, OBI, tries=SECOND, secrets=["new", "old"])
    assert states(opened(store, TryInfo(3, 2, 2), secrets=["old"]), ADA, OBI) == [State.ACCEPTED, State.ACCEPTED]


@pytest.mark.parametrize("state", [State.ACCEPTED, State.UNKNOWN, State.PENDING])
def test_missing_secret_makes_every_recipient_unknown(store: Store, state: State) -> None:
    sent(store, ADA, state=state, secrets=["old"])
    journal = opened(store, SECOND, secrets=["new"])
    assert "secrets changed" in str(journal.lost)
    journal.record_head("send_sms", [ADA, OBI])
    assert states(journal, ADA, OBI) == [State.UNKNOWN, State.UNKNOWN]


@pytest.mark.parametrize("state", [State.NOT_SENT, State.REJECTED])
def test_missing_secret_loses_nothing_if_nothing_was_sent(store: Store, state: State) -> None:
    sent(store, ADA, state=state, secrets=["old"])
    assert opened(store, SECOND, secrets=["new"]).lost is None


def test_lost_journal_stays_lost_after_a_change_of_secret(store: Store) -> None:
    journal = opened(store, CLEARED, secrets=["old"])
    journal.record_head("send_sms", [ADA])
    (entry,) = journal.records
    journal.end(entry, State.NOT_SENT, reason="manually resolved as not sent")
    assert opened(store, TryInfo(3, 3, 2, 1), secrets=["new"]).lost


def test_store_holds_no_number_text_or_secret(store: Store) -> None:
    journal = opened(store, secrets=["sk_secret"])
    entry = journal.begin("send_sms", [ADA, OBI], {"content": "Hello Ada", "sender_id": "Shop"}, {ADA: {"name": "Ada"}})
    journal.end(entry, State.UNKNOWN, reason="no answer")
    at_rest = json.dumps(store.values)
    for private in (ADA, OBI, "Hello", "Ada", "Shop", "sk_secret"):
        assert private not in at_rest


class TestSize:
    """On MySQL one value of the task's state holds 64 KB."""

    PEOPLE = tuple(f"23480312{number:05d}" for number in range(4_000))

    @staticmethod
    def size(store: Store) -> int:
        return max(len(json.dumps(value)) for value in store.values.values())

    def test_intent_that_would_not_fit_is_refused_before_anything_is_sent(self, store: Store) -> None:
        journal = opened(store)
        personal = {one: {"name": "Ada"} for one in self.PEOPLE}
        with pytest.raises(JournalTooLargeError, match="4000 recipients") as caught:
            journal.begin("send_sms", self.PEOPLE, BODY, personal)
        assert caught.value.permanent
        assert (store.sets, list(journal.records)) == (0, [])

    @pytest.mark.parametrize("count", [500, 1_400, 2_500])
    def test_intent_that_fits_stays_below_the_limit_with_its_result(self, store: Store, count: int) -> None:
        journal = opened(store)
        people = self.PEOPLE[:count]
        entry = journal.begin("send_sms", people, BODY, {one: {"name": "Ada"} for one in people})
        journal.end(entry, State.ACCEPTED, result={"id": "m" * 100, "charge": 1.0, "balance": 2.0})
        assert self.size(store) < 65_535
