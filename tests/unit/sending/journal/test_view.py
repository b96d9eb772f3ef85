"""What a person decides of a campaign's requests, and how it stands in the log afterwards."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cpaas_provider.sending.journal.log import MAX_BYTES
from cpaas_provider.sending.journal.model import (
    JOURNAL_KEY,
    UNRESOLVED,
    Intent,
    LogEntry,
    Result,
    State,
    latest_by_member,
    unresolved,
)
from cpaas_provider.sending.journal.resolution import CannotResolveError, Resolution
from cpaas_provider.sending.journal.segments import part_key
from cpaas_provider.sending.journal.view import JournalView
from tests.unit.sending.campaign.parts import SECOND_TRY, MemoryStore, journal_log, opened

SENT, UNSENT = Resolution.SENT, Resolution.NOT_SENT
AT = datetime(2026, 3, 1, 12, tzinfo=UTC)


def read(kept: MemoryStore) -> JournalView:
    return JournalView.read(kept.get)


def batches(kept: MemoryStore) -> list[LogEntry]:
    """Return what the next try reads."""
    return list(journal_log(kept, SECOND_TRY).replay())


def member(name: str) -> bytes:
    return name.encode().ljust(9, b".")


def log_of(*requests: tuple[str, str, State | None], many: int = 1) -> MemoryStore:
    """Return a log of requests by reference, members (a letter each), and what became of them.

    :param many: how often all of it happens
    """
    kept = MemoryStore()
    log = opened(kept)
    number = 0
    for _ in range(many):
        for reference, names, state in requests:
            claim = Intent(number, reference, b"".join(member(name) for name in names))
            log.append(LogEntry(AT, 1, 3, "body", [claim]))
            if state is not None:
                reason = None if state is State.ACCEPTED else "because"
                result = ("id", 4.0, 96.0) if state is State.ACCEPTED else None
                log.append(LogEntry(AT, 1, 3, "body", results=[Result(number, state, result, reason)]))
            number += 1
    return kept


def states_of(kept: MemoryStore) -> list[tuple[str, State]]:
    return [(entry.reference, entry.state) for entry in read(kept).entries()]


def store(kept: MemoryStore, values: Any) -> MemoryStore:
    for key, value in values.items():
        kept.set(key, value)
    return kept


MIXED: Sequence[tuple[str, str, State | None]] = (
    ("ref-settled", "a", State.ACCEPTED),
    ("ref-unknown", "bc", State.UNKNOWN),
    ("ref-claimed", "cd", None),
    ("ref-rejected", "e", State.REJECTED),
    ("ref-not-sent", "f", State.NOT_SENT),
    ("ref-reached", "a", State.UNKNOWN),
)


class TestResolving:
    def test_resolving_changes_unresolved_requests_only(self) -> None:
        kept = log_of(*MIXED)
        decided = read(kept).resolve(UNSENT)
        assert [entry.reference for entry in decided.before] == ["ref-unknown", "ref-claimed"]
        assert (decided.recipients, decided.left) == (3, ())
        assert dict(states_of(store(kept, decided.values))) == {
            **{reference: state for reference, _, state in MIXED},
            "ref-unknown": State.NOT_SENT,
            "ref-claimed": State.NOT_SENT,
        }

    def test_earlier_reason_stays_in_the_reason_of_the_resolution(self) -> None:
        kept = log_of(*MIXED)
        store(kept, read(kept).resolve(SENT, ["ref-unknown"], result_id="m9").values)
        (entry,) = (entry for entry in read(kept).entries() if entry.reference == "ref-unknown")
        assert (entry.resolution, entry.result) == ("sent", {"id": "m9"})
        assert entry.reason == "manually resolved as sent (before: because)"

    def test_resolving_leaves_the_view_unchanged(self) -> None:
        kept = log_of(*MIXED)
        log = read(kept)
        log.resolve(SENT)
        assert list(log.entries()) == list(read(kept).entries())
        assert log.last == read(kept).last

    def test_resolution_is_stored_as_an_entry_without_an_intent(self) -> None:
        kept = log_of(*MIXED)
        before = batches(kept)
        now = AT + timedelta(hours=1)
        store(kept, read(kept).resolve(UNSENT, ["ref-claimed"], now=now).values)
        *earlier, added = batches(kept)
        assert earlier == before
        assert (added.at, added.try_number, added.clear_epoch, added.intents) == (now, 1, 3, [])
        assert [(end.number, end.state, end.resolution) for end in added.results] == [(2, State.NOT_SENT, "not_sent")]

    def test_resolution_continues_the_newest_series_for_any_try_number(self) -> None:
        # As the first part of the next try's series it would be its head: after a clear, with the old clear epoch.
        kept = log_of(*MIXED)
        for tries in (1, 2, 3):
            assert list(JournalView.read(kept.get, tries).resolve(UNSENT).values) == [part_key(2, 0)]


REFUSED: dict[str, tuple[Resolution, list[str], str | None, str]] = {
    "not there": (SENT, ["ref-claimed", "ref-other"], None, "no request ref-other"),
    "settled": (UNSENT, ["ref-settled"], None, "accepted by the service"),
    "settled beside one in doubt": (UNSENT, ["ref-unknown", "ref-settled"], None, "ref-settled is resolved already"),
    "rejected": (SENT, ["ref-rejected"], None, "rejected by the service"),
    "not sent": (UNSENT, ["ref-not-sent"], None, "resolved already: not sent"),
    "an id of what was not sent": (UNSENT, ["ref-unknown"], "m2", "has no id"),
    "one id of two": (SENT, [], "m2", "2 would be resolved: ref-unknown, ref-claimed"),
}


@pytest.mark.parametrize("case", REFUSED)
def test_invalid_resolution_is_refused(case: str) -> None:
    decision, references, result_id, said = REFUSED[case]
    with pytest.raises(CannotResolveError, match="Nothing was changed") as refused:
        read(log_of(*MIXED)).resolve(decision, references, result_id=result_id)
    assert said in str(refused.value)


class TestInFlight:
    @pytest.mark.parametrize("references", [[], ["ref-unknown"], ["ref-claimed"]])
    def test_pending_request_blocks_resolving(self, references: list[str]) -> None:
        with pytest.raises(CannotResolveError, match=r"ago: ref-claimed\..*Nothing was changed\. Try again in 43 s\."):
            read(log_of(*MIXED)).resolve(SENT, references, now=AT + timedelta(seconds=17.2))

    def test_request_started_a_minute_ago_blocks_nothing(self) -> None:
        assert read(log_of(*MIXED)).resolve(SENT, now=AT + timedelta(seconds=60)).recipients == 3

    def test_accepted_request_blocks_nothing(self) -> None:
        kept = log_of(("ref-unknown", "a", State.UNKNOWN), ("ref-settled", "b", State.ACCEPTED))
        assert read(kept).resolve(UNSENT, now=AT).recipients == 1


def test_many_resolutions_take_several_segments() -> None:
    kept = log_of(("ref", "a", State.UNKNOWN), many=1000)
    before = dict(kept.values)
    decided = read(kept).resolve(UNSENT)
    assert len(decided.before) == 1000
    assert len(decided.values) > 2
    store(kept, decided.values)
    assert {state for _, state in states_of(kept)} == {State.NOT_SENT}
    assert max(kept.sizes) < MAX_BYTES + 1000
    unchanged = [key for key in before if key not in decided.values]
    assert [kept.values[key] for key in unchanged] == [before[key] for key in unchanged]
    assert len(batches(kept)) > 1000


def test_change_keys_reveal_every_kind_of_change() -> None:
    for many in (1, 20, 300):
        kept = log_of(("ref", "abcdefgh", State.ACCEPTED), many=many)
        change_keys = read(kept).change_keys
        assert not set(change_keys) & set(kept.values)
        goes_on, begins, decides = MemoryStore(), MemoryStore(), MemoryStore()
        for changed in (goes_on, begins, decides):
            changed.values = dict(kept.values)
        opened(goes_on).append(LogEntry(AT, 1, 3, "body", [Intent(999, "new", member("z"))]))
        opened(begins, SECOND_TRY).append(LogEntry(AT, 2, 3, "body", [Intent(999, "new", member("z"))]))
        log = read(kept)
        decides.values[part_key(log.index, 0)] = "{}"
        assert all(set(change_keys) & set(changed.values) for changed in (goes_on, begins, decides))


@pytest.mark.parametrize("other", [{"version": 5, "requests": {}}, {"version": 6}, ["version"], "version", 7])
def test_other_version_or_no_journal_is_refused_with_an_explanation(other: Any) -> None:
    with pytest.raises(ValueError, match=r"its version is|cannot be read"):
        JournalView.read({JOURNAL_KEY: other}.get)


def test_sums_count_requests_and_recipients_by_state() -> None:
    log = read(log_of(*MIXED))
    assert {one.state: (one.requests, one.recipients) for one in log.sums()} == {
        State.PENDING: (1, 2),
        State.ACCEPTED: (1, 1),
        State.NOT_SENT: (1, 1),
        State.REJECTED: (1, 1),
        State.UNKNOWN: (2, 3),
    }
    beside = {one.state: one.requests for one in log.sums(include_unresolved=False)}
    assert beside == {State.ACCEPTED: 1, State.NOT_SENT: 1, State.REJECTED: 1, State.UNKNOWN: 1}
    assert [entry.reference for entry in log.entries(include_unresolved=False)] == [
        "ref-settled",
        "ref-rejected",
        "ref-not-sent",
        "ref-reached",
    ]


REQUESTS_PER_TRY = st.lists(
    st.tuples(
        st.sampled_from(["r1", "r2", "r3", "r4"]),
        st.lists(st.sampled_from("abcde"), min_size=1, unique=True).map("".join),
        st.none() | st.sampled_from([State.ACCEPTED, State.NOT_SENT, State.REJECTED, State.UNKNOWN]),
    ),
    max_size=8,
)


@given(REQUESTS_PER_TRY, st.sampled_from(Resolution), st.sets(st.sampled_from(["r1", "r2", "r3", "r4"])))
def test_resolving_changes_only_unresolved_requests_that_are_named(
    requests: list[tuple[str, str, State | None]], decision: Resolution, names: set[str]
) -> None:
    kept = log_of(*requests)
    if not requests:
        assert not kept.values
        return
    before = list(read(kept).entries())
    assert read(kept).unresolved() == tuple(unresolved(before))
    try:
        decided = read(kept).resolve(decision, sorted(names))
    except CannotResolveError:
        in_doubt = {entry.reference for entry in before if entry.is_unresolved}
        assert names - in_doubt if names else not tuple(unresolved(before))
        return
    after = list(read(store(kept, decided.values)).entries())
    changed = [old for old, new in zip(before, after, strict=True) if old != new]
    assert sorted(changed, key=repr) == sorted(decided.before, key=repr)
    assert all(entry.state in UNRESOLVED and (not names or entry.reference in names) for entry in changed)
    assert read(kept).unresolved() == decided.left
    if decision is UNSENT and not names:
        sent_to = {name for name, entry in latest_by_member(after).items() if entry.state is not State.ACCEPTED}
        assert decided.recipients == len(sent_to & {name for entry in changed for name in entry.members})


def test_result_without_a_stored_intent_is_skipped() -> None:
    kept = log_of(("ref-a", "a", State.UNKNOWN))
    end = Result(1, State.NOT_SENT, reason="Airflow stopped the task before")
    opened(kept).append(LogEntry(AT, 1, 3, "body", results=[end]))
    assert states_of(kept) == [("ref-a", State.UNKNOWN)]
