"""The journal as a log in segments: what was stored is found again, by whom, and how much fits where."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cpaas_provider.sending.errors import JournalUnavailableError, PartitionChangedError, TrySupersededError
from cpaas_provider.sending.journal.hashing import KeyedHasher
from cpaas_provider.sending.journal.log import MAX_BYTES, MAX_RECIPIENTS_PER_INTENT, ROLL_BYTES
from cpaas_provider.sending.journal.model import JOURNAL_KEY, NOTHING_SENT_KEY, VERSION, Intent, LogEntry, Result, State
from cpaas_provider.sending.journal.segments import MOST_PARTS, SERIES, part_key, whole_key
from cpaas_provider.sending.journal.store import LOST, REKEYED, TryInfo, record_nothing_sent
from cpaas_provider.sending.partitions import Partition
from tests.unit.sending.campaign.parts import (
    CLEARED,
    FIRST_TRY,
    IDENTITY,
    OPERATION,
    SECOND_TRY,
    SECRETS,
    WHEN,
    GoneError,
    MemoryStore,
    batch,
    journal_log,
    make_intent,
    make_result,
    member,
    opened,
    phones,
)
from tests.unit.sending.journal.written import WrittenJournal

MOST_BYTES = 65_535  # of one value of the state on MySQL


@pytest.fixture
def store() -> MemoryStore:
    return MemoryStore()


def replayed(store: MemoryStore, tries: TryInfo = SECOND_TRY, **how: Any) -> list[LogEntry]:
    return list(journal_log(store, tries, **how).replay())


def filled(store: MemoryStore, segments: int) -> list[LogEntry]:
    """Add packs of 500 until so many segments are put together; return what was added."""
    added, journal = [], opened(store)
    while len([key for key in store.values if key.count(".") == 1]) < segments:
        number = len(added)
        added.append(batch([make_intent(number, *phones(500, number * 500))], [make_result(number)]))
        journal.append(added[-1])
    return added


class TestStoredEntries:
    def test_next_try_reads_entries_in_order(self, store: MemoryStore) -> None:
        journal = opened(store)
        first = batch([make_intent(0, *phones(2), words=["Ada", "Obi"]), make_intent(1, *phones(1, 2))])
        second = batch([make_intent(2, *phones(1, 3))], [make_result(0), Result(1, State.REJECTED, reason="refused")])
        journal.append(first)
        journal.append(second)
        found = replayed(store)
        assert found == [_as_lists(first), _as_lists(second)]
        assert [len(words) for _, words in found[0].intents[0].each()] == [6, 6]

    def test_full_segment_is_never_written_again(self, store: MemoryStore) -> None:
        added = filled(store, 3)
        assert len(store.written) == len(set(store.written)) == len(added)
        assert all(ROLL_BYTES <= len(store.values[whole_key(index)]) <= MAX_BYTES for index in range(3))
        assert [one.number for found in replayed(store) for one in found.intents] == list(range(len(added)))

    def test_next_try_writes_segments_of_its_own(self, store: MemoryStore) -> None:
        added = filled(store, 2)
        before = dict(store.values)
        opened(store, SECOND_TRY).append(batch([make_intent(len(added), "2348030000000")], tries=SECOND_TRY))
        assert {key: store.values[key] for key in before} == before
        assert set(store.values) - set(before) == {part_key(SERIES, 0)}
        assert replayed(store)[-1].try_number == 2

    def test_deferred_task_continues_after_a_gap_in_the_segments(self, store: MemoryStore) -> None:
        for number in range(3):
            opened(store).append(batch([make_intent(number, *phones(1, number))]))
        assert sorted(store.values) == [part_key(index, 0) for index in (0, 2, 4)]
        assert [one.number for found in replayed(store) for one in found.intents] == [0, 1, 2]

    def test_parts_are_merged_before_there_are_many(self, store: MemoryStore) -> None:
        journal = opened(store)
        for number in range(2 * MOST_PARTS + 3):
            journal.append(batch([make_intent(number, *phones(1, number))]))
        journal.tidy(1000)
        assert len(store.values) == 1 + 2 + 3
        assert [one.number for found in replayed(store) for one in found.intents] == list(range(2 * MOST_PARTS + 3))

    def test_large_write_is_stored_only_once(self, store: MemoryStore, monkeypatch: pytest.MonkeyPatch) -> None:
        journal = opened(store)
        for number in range(6):
            journal.append(batch([make_intent(number, *phones(1_600, number * 1_600))]))
        journal.tidy(1_000)
        # The first one shows that the series exists.
        assert store.written == [part_key(0, 0), *map(whole_key, range(1, 6))] == list(store.values)
        assert all(ROLL_BYTES / 2 <= len(value) < ROLL_BYTES for value in store.values.values())
        asked: list[str] = []
        get = store.get
        monkeypatch.setattr(store, "get", lambda key: asked.append(key) or get(key))
        assert [one.number for found in replayed(store) for one in found.intents] == list(range(6))
        assert [key for key in asked if key in map(whole_key, range(1, 6))] == list(map(whole_key, range(1, 6)))
        assert not [key for key in asked if key in (part_key(index, 0) for index in range(1, 6))]

    def test_late_first_write_of_a_try_that_was_deferred_hides_nothing(self, store: MemoryStore) -> None:
        opened(store).append(batch([make_intent(0, *phones(1))]))
        lost = opened(store)
        store.failing = [OSError()]
        with pytest.raises(JournalUnavailableError):
            lost.append(late := batch([make_intent(1, *phones(1_600))]))
        again = opened(store)
        for number in (2, 3, 4):
            again.append(batch([make_intent(number, *phones(1, number))]))
        # The store carries out the failed write after all.
        lost.append(late)
        assert {3, 4} <= {one.number for found in replayed(store) for one in found.intents}

    def test_store_holds_no_number_text_or_secret(self, store: MemoryStore) -> None:
        opened(store).append(batch([make_intent(0, "2348031234567", words=["Adaobi"])], [make_result(0)]))
        (stored,) = store.values.values()
        assert "8031234567" not in stored
        assert "Adaobi" not in stored
        assert SECRETS[0] not in stored

    def test_first_try_reads_once(self, store: MemoryStore, monkeypatch: pytest.MonkeyPatch) -> None:
        asked: list[str] = []
        get = store.get
        monkeypatch.setattr(store, "get", lambda key: asked.append(key) or get(key))
        opened(store)
        assert asked == [JOURNAL_KEY]

    @given(st.lists(st.tuples(st.integers(1, 500), st.integers(0, 300)), min_size=1, max_size=12))
    def test_entries_of_any_size_fit_in_a_segment(self, packs: list[tuple[int, int]]) -> None:
        store = MemoryStore()
        journal = opened(store)
        for number, (size, reason) in enumerate(packs):
            words = ["word"] * size
            end = Result(number, State.UNKNOWN, reason="r" * reason)
            journal.append(batch([make_intent(number, *phones(size), words=words)], [end]))
        assert max(store.sizes) <= MOST_BYTES
        assert len(replayed(store)) == len(packs)


class TestFailedWrites:
    def test_failed_write_is_not_part_of_the_next_one(self, store: MemoryStore) -> None:
        journal = opened(store)
        journal.append(batch([make_intent(0, *phones(1))]))
        store.failing = [OSError("down")]
        with pytest.raises(JournalUnavailableError, match=r"could not be reached \(OSError\).*could not be stored"):
            journal.append(batch([make_intent(1, *phones(1, 1))]))
        journal.append(batch([make_intent(2, *phones(1, 2))]))
        assert [one.number for found in replayed(store) for one in found.intents] == [0, 2]

    @pytest.mark.parametrize("before", [0, 1])
    @pytest.mark.parametrize("failing", range(1, 6))
    @pytest.mark.parametrize("tries", [FIRST_TRY, SECOND_TRY], ids=["the same try", "the next try"])
    def test_failed_writes_hide_no_later_intent(
        self, store: MemoryStore, before: int, failing: int, tries: TryInfo
    ) -> None:
        journal = opened(store)
        for number in range(before):
            journal.append(batch([make_intent(number, *phones(1, number))]))
        for number in range(before, before + failing):
            store.failing = [OSError("down")]
            with pytest.raises(JournalUnavailableError):
                journal.append(batch([make_intent(number, *phones(1, number))]))
        journal.append(batch([make_intent(9, *phones(1, 9))]))
        assert [one.number for found in replayed(store, tries) for one in found.intents] == [*range(before), 9]

    def test_failed_write_is_skipped_by_the_next_one(self, store: MemoryStore) -> None:
        added = filled(store, 1)
        journal = opened(store, SECOND_TRY)
        for _ in range(3):
            journal.append(batch([make_intent(len(added), *phones(500))]))
            added.append(batch())
        store.failing = [OSError("down"), None]
        with pytest.raises(JournalUnavailableError):
            journal.append(batch([make_intent(98, "2348030000000")]))
        journal.append(batch([make_intent(99, "2348030000000")]))
        assert not any(98 in [one.number for one in found.intents] for found in replayed(store))
        assert [one.number for one in replayed(store)[-1].intents] == [99]

    def test_write_of_a_superseded_try_raises_superseded(self, store: MemoryStore) -> None:
        journal = opened(store)
        store.failing = [GoneError()]
        with pytest.raises(TrySupersededError, match=r"replaced this try with another one"):
            journal.append(batch([make_intent(0, *phones(1))]))

    def test_failed_read_prevents_sending(self, store: MemoryStore) -> None:
        store.deaf = OSError("down")
        with pytest.raises(JournalUnavailableError, match="nothing was sent"):
            journal_log(store)

    def test_failed_read_of_a_later_segment_prevents_sending(self, store: MemoryStore) -> None:
        filled(store, 2)
        journal = journal_log(store, SECOND_TRY)
        store.deaf = OSError("down")
        with pytest.raises(JournalUnavailableError):
            list(journal.replay())


class TestUnusableJournal:
    @pytest.mark.parametrize(
        "stored",
        [{"version": 9}, {"version": VERSION, "key_id": "x"}, "[]", [], {}, {"version": 5, "requests": 5}, 7],
        ids=["later version", "torn", "text", "list", "empty", "torn single", "number"],
    )
    def test_invalid_journal_is_not_read_as_empty(self, store: MemoryStore, stored: Any) -> None:
        store.values[JOURNAL_KEY] = json.dumps(stored)
        with pytest.raises(JournalUnavailableError, match=r"cannot use.*Nothing was sent"):
            journal_log(store, SECOND_TRY)

    def test_torn_later_segment_is_not_skipped(self, store: MemoryStore) -> None:
        filled(store, 2)
        store.values[whole_key(1)] = json.dumps({"version": VERSION, "key_id": "x"})
        with pytest.raises(JournalUnavailableError):
            replayed(store)

    @pytest.mark.parametrize(
        "stored",
        [
            {
                "version": 5,
                "key_id": "x",
                "clear_epoch": 3,
                "resend_epoch": 0,
                "requests": {"cpaas-1": {"operation": "send_sms", "recipient_hashes": ["a"], "state": "accepted"}},
            },
            {
                "version": 6,
                "key_id": "x",
                "operation": OPERATION,
                "resend_epoch": 0,
                "lost": None,
                "partition": [0, 1],
                "clear_epoch": 3,
                "batches": [],
            },
        ],
        ids=["single send", "campaign"],
    )
    def test_journal_of_an_earlier_version_is_refused_with_an_explanation(
        self, store: MemoryStore, stored: Any
    ) -> None:
        store.values[JOURNAL_KEY] = json.dumps(stored)
        with pytest.raises(
            JournalUnavailableError, match=r"its version is [56]\. Nothing was sent\. Install the version"
        ):
            journal_log(store, SECOND_TRY)

    def test_campaign_continues_the_journal_of_a_single_send(self, store: MemoryStore) -> None:
        journal = WrittenJournal(store, SECRETS[:1], IDENTITY, FIRST_TRY, clock=lambda: WHEN)
        journal.end(journal.begin(OPERATION, ["2348031200000"], {}), State.ACCEPTED, result={"id": "m1"})
        assert [intent.members for each in replayed(store) for intent in each.intents] == [member("2348031200000")]

    def test_journal_of_another_operation_is_refused(self, store: MemoryStore) -> None:
        filled(store, 1)
        with pytest.raises(JournalUnavailableError, match=r"another kind of send.*Start a new run"):
            journal_log(store, SECOND_TRY, operation="send_email")


class TestLostJournal:
    """An empty journal where tries were already made counts as unknown for all, never as a fresh start."""

    def test_first_try_lost_nothing(self, store: MemoryStore) -> None:
        assert journal_log(store).lost is None

    def test_retry_without_a_clear_lost_nothing(self, store: MemoryStore) -> None:
        assert journal_log(store, SECOND_TRY).lost is None

    def test_clear_that_left_no_journal_lost_it(self, store: MemoryStore) -> None:
        assert journal_log(store, CLEARED).lost == LOST

    def test_everything_after_a_clear_of_something_else_in_the_run(self, store: MemoryStore) -> None:
        assert journal_log(store, TryInfo(2, 3, 3, clear_number=1)).lost == LOST

    def test_recorded_try_without_a_request_lost_nothing(self, store: MemoryStore) -> None:
        record_nothing_sent(store, FIRST_TRY)
        journal = opened(store, CLEARED)
        assert journal.lost is None
        journal.append(batch([make_intent(0, *phones(1))], tries=CLEARED))
        assert len(replayed(store, CLEARED)) == 1

    def test_failed_try_after_one_that_sent_stores_no_nothing_sent_key(self, store: MemoryStore) -> None:
        opened(store, SECOND_TRY).append(batch([make_intent(0, *phones(1))], tries=SECOND_TRY))
        record_nothing_sent(store, TryInfo(3, 3, 3))
        assert NOTHING_SENT_KEY not in store.values

    def test_loss_is_stored_first_and_stays(self, store: MemoryStore) -> None:
        opened(store, CLEARED).record_head()
        again = TryInfo(3, 4, 3, 1)
        journal = opened(store, again)
        assert journal.lost == LOST
        journal.append(batch([make_intent(0, *phones(1))], tries=again))
        journal.record_head()
        assert journal_log(store, TryInfo(4, 4, 3, 1)).lost == LOST
        assert len(replayed(store, TryInfo(4, 4, 3, 1))) == 1

    def test_loss_is_stored_in_every_segment(self, store: MemoryStore) -> None:
        journal = opened(store, CLEARED)
        number = 0
        while len(store.values) < 2:
            journal.append(batch([make_intent(number, *phones(500))], tries=CLEARED))
            number += 1
        assert {json.loads(one)["lost"] for one in store.values.values()} == {LOST}

    def test_everything_when_no_secret_opens_it(self, store: MemoryStore) -> None:
        filled(store, 1)
        journal = opened(store, SECOND_TRY, SECRETS[1:2])
        assert journal.lost == REKEYED
        assert replayed(store, SECOND_TRY, secrets=SECRETS[1:2]) == []

    def test_journal_that_an_earlier_secret_opens_is_not_lost(self, store: MemoryStore) -> None:
        filled(store, 1)
        journal = opened(store, SECOND_TRY, SECRETS[1::-1])
        assert journal.lost is None
        assert journal.hasher.key_id == KeyedHasher(SECRETS[0], IDENTITY).key_id

    def test_change_of_secret_before_the_first_intent_loses_nothing(self, store: MemoryStore) -> None:
        opened(store)
        journal = opened(store, SECOND_TRY, SECRETS[1:2])
        assert journal.lost is None

    def test_entries_of_an_older_secret_are_not_read_after_those_of_a_newer(self, store: MemoryStore) -> None:
        filled(store, 3)
        opened(store, SECOND_TRY, SECRETS[1:2]).append(batch([make_intent(0, *phones(1))], tries=SECOND_TRY))
        third = TryInfo(3, 3, 3)
        assert len(replayed(store, third, secrets=SECRETS[1:2])) == 1

    def test_secret_changed_back_does_not_restore_its_old_entries(self, store: MemoryStore) -> None:
        filled(store, 3)
        for number, secrets in ((2, SECRETS[1:2]), (3, SECRETS[:1])):
            tries = TryInfo(number, 9, 9)
            opened(store, tries, secrets).append(batch([make_intent(0, *phones(1))], tries=tries))
        last = TryInfo(4, 9, 9)
        assert len(replayed(store, last)) == 1
        assert journal_log(store, last).lost == REKEYED


class TestSecretsChangedWhileDeferred:
    """A later try with both secrets must not find two journals in one series."""

    OLD, NEW, BOTH = SECRETS[:1], SECRETS[1:2], SECRETS[1::-1]

    @pytest.fixture(autouse=True)
    def deferred(self, store: MemoryStore) -> None:
        opened(store, FIRST_TRY, self.OLD).append(batch([make_intent(0, *phones(1))], [make_result(0)]))

    @pytest.mark.parametrize("tries", [FIRST_TRY, TryInfo(1, 0, 0, run="monday")], ids=["deferred", "shared"])
    def test_missing_earlier_secret_ends_the_try_without_a_write(self, store: MemoryStore, tries: TryInfo) -> None:
        before = dict(store.values)
        with pytest.raises(JournalUnavailableError, match="callback_secret, after the new one"):
            journal_log(store, tries, self.NEW)
        assert store.values == before

    @pytest.mark.parametrize("secrets", [OLD, BOTH])
    def test_with_the_earlier_secret_the_next_try_finds_everything(
        self, store: MemoryStore, secrets: tuple[str, ...]
    ) -> None:
        with pytest.raises(JournalUnavailableError):
            journal_log(store, FIRST_TRY, self.NEW)
        journal = journal_log(store, SECOND_TRY, secrets)
        assert [entry.results for entry in journal.replay()] == [[make_result(0)]]
        assert journal.lost is None

    def test_missing_earlier_secret_makes_the_journal_lost_for_the_next_try(self, store: MemoryStore) -> None:
        assert opened(store, SECOND_TRY, self.NEW).lost == REKEYED


class TestPartitions:
    """Each part knows only whom it sent to itself, so it does not go on as another."""

    @pytest.mark.parametrize("other", [Partition(0, 8), Partition(), Partition(1, 4)])
    def test_changed_partition_is_refused_naming_both(self, store: MemoryStore, other: Partition) -> None:
        opened(store, partition=Partition(0, 4)).append(batch([make_intent(0, *phones(1))]))
        with pytest.raises(PartitionChangedError, match=f"partition 0 of 4, .* partition {other.part} of {other.of}"):
            journal_log(store, SECOND_TRY, partition=other)
        assert len(replayed(store, partition=Partition(0, 4))) == 1

    def test_after_a_clear_that_resends_another_one_is_fine(self, store: MemoryStore) -> None:
        opened(store, partition=Partition(0, 4)).append(batch([make_intent(0, *phones(1))]))
        assert journal_log(store, CLEARED, partition=Partition(0, 8), resend_on_clear=True).resend_epoch > 0

    def test_partition_may_change_before_anything_is_stored(self, store: MemoryStore) -> None:
        opened(store, partition=Partition(0, 4))
        journal_log(store, SECOND_TRY, partition=Partition(0, 8))


class TestResendOnClear:
    def test_retry_without_a_clear_starts_no_resend(self, store: MemoryStore) -> None:
        filled(store, 1)
        journal = journal_log(store, SECOND_TRY, resend_on_clear=True)
        assert journal.resend_epoch == 0
        assert len(list(journal.replay())) > 0

    def test_resend_after_a_clear_starts_over_in_a_new_epoch(self, store: MemoryStore) -> None:
        filled(store, 2)
        journal = opened(store, CLEARED, resend_on_clear=True)
        assert journal.resend_epoch > 0
        journal.append(batch([make_intent(0, *phones(1))], tries=CLEARED))
        assert len(replayed(store, TryInfo(3, 4, 3, 1), resend_on_clear=True)) == 1

    def test_once_a_clear(self, store: MemoryStore) -> None:
        filled(store, 2)
        first = opened(store, CLEARED, resend_on_clear=True)
        first.append(batch([make_intent(0, *phones(1))], tries=CLEARED))
        retry = journal_log(store, TryInfo(3, 4, 3, 1), resend_on_clear=True)
        assert (retry.resend_epoch, len(list(retry.replay()))) == (first.resend_epoch, 1)
        second_clear = opened(store, TryInfo(4, 6, 3, 2), resend_on_clear=True)
        assert second_clear.resend_epoch > first.resend_epoch

    def test_resend_starts_over_if_the_clear_dropped_the_state(self, store: MemoryStore) -> None:
        journal = opened(store, CLEARED, resend_on_clear=True)
        assert (journal.lost, journal.resend_epoch > 0) == (None, True)

    def test_clear_of_another_task_starts_no_resend(self, store: MemoryStore) -> None:
        filled(store, 1)
        journal = journal_log(store, TryInfo(2, 3, 3, clear_number=1), resend_on_clear=True)
        assert journal.resend_epoch == 0

    def test_retry_after_the_clear_starts_no_second_resend(self, store: MemoryStore) -> None:
        """The first segment is not touched again, so it does not know of the clear."""
        filled(store, 2)
        opened(store, CLEARED).append(batch([make_intent(900, "2348030000000")], tries=CLEARED))
        journal = journal_log(store, TryInfo(3, 4, 3, 1), resend_on_clear=True)
        assert journal.resend_epoch == 0

    def test_change_of_secrets_starts_no_second_resend_of_one_clear(self, store: MemoryStore) -> None:
        filled(store, 1)
        opened(store, CLEARED, resend_on_clear=True).append(batch([make_intent(0, *phones(1))], tries=CLEARED))
        journal = opened(store, TryInfo(3, 4, 3, 1), SECRETS[1:2], resend_on_clear=True)
        assert journal.lost == REKEYED


def _as_lists(one: LogEntry) -> LogEntry:
    return LogEntry(one.at, one.try_number, one.clear_epoch, one.body, list(one.intents), list(one.results))


@pytest.mark.parametrize("before", [0, 1, 100, 30_000, 31_900])
def test_largest_intent_never_makes_a_segment_too_large_for_mysql(store: MemoryStore, before: int) -> None:
    book = opened(store)
    if before:
        book.append(batch([Intent(0, "cpaas-first", bytes(before * 3 // 4 // 9 * 9))]))
    largest = Intent(1, "cpaas-second", b"m" * 9 * MAX_RECIPIENTS_PER_INTENT, b"w" * 6 * MAX_RECIPIENTS_PER_INTENT)
    book.append(batch([largest], [make_result(0)]))
    assert max(store.sizes) < 61_440 < MOST_BYTES
    numbers = [claim.number for one in replayed(store) for claim in one.intents]
    assert numbers == ([0, 1] if before else [1])
