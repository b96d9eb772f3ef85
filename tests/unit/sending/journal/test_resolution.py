"""What a person may decide of requests in doubt, and what that makes of the journal."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cpaas_provider.sending.journal.model import IN_DOUBT, Pages, RequestRecord, State
from cpaas_provider.sending.journal.resolution import (
    CannotResolveError,
    Resolution,
    count_recipients,
    doubtful,
    resolve,
)

SENT, UNSENT = Resolution.SENT, Resolution.NOT_SENT
CLAIMED_AT = datetime(2026, 3, 1, 12, tzinfo=UTC)


def entry(reference: str, state: State, *members: str, **facts: Any) -> RequestRecord:
    return RequestRecord(reference, "send_sms", members or (f"of {reference}",), state, **facts)


def journal(*entries: RequestRecord) -> Pages:
    return Pages("lock", 3, resend_epoch=1, entries={one.reference: one for one in entries})


MIXED = journal(
    entry("ref-settled", State.ACCEPTED, result={"id": "m1"}),
    entry("ref-unknown", State.UNKNOWN, "ada", "obi", reason="the answer was lost", doubted=True),
    entry("ref-claimed", State.PENDING, "obi"),
    entry("ref-rejected", State.REJECTED),
    entry("ref-not-sent", State.NOT_SENT),
)


class TestDeciding:
    def test_without_references_all_in_doubt_are_decided_and_nothing_else(self) -> None:
        after = resolve(MIXED, UNSENT).pages
        assert {name: one.state for name, one in after.entries.items()} == {
            "ref-settled": State.ACCEPTED,
            "ref-unknown": State.NOT_SENT,
            "ref-claimed": State.NOT_SENT,
            "ref-rejected": State.REJECTED,
            "ref-not-sent": State.NOT_SENT,
        }
        assert list(after.entries) == list(MIXED.entries)

    def test_sent(self) -> None:
        one = resolve(MIXED, SENT, ["ref-unknown"]).pages.entries["ref-unknown"]
        assert (one.state, one.resolution, one.result) == (State.ACCEPTED, "sent", None)
        assert one.reason == "manually resolved as sent (before: the answer was lost)"

    def test_sent_under_an_id(self) -> None:
        assert resolve(MIXED, SENT, ["ref-claimed"], result_id="m2").pages.entries["ref-claimed"].result == {"id": "m2"}

    def test_unsent_leaves_no_doubt_behind(self) -> None:
        one = resolve(MIXED, UNSENT, ["ref-unknown"]).pages.entries["ref-unknown"]
        assert (one.state, one.resolution, one.doubted) == (State.NOT_SENT, "not_sent", False)
        assert one.reason == "manually resolved as not sent (before: the answer was lost)"

    def test_a_reference_named_twice_is_one_request(self) -> None:
        decided = resolve(MIXED, SENT, ["ref-claimed", "ref-claimed"], result_id="m2")
        assert [one.reference for one in decided.before] == ["ref-claimed"]

    def test_a_recipient_of_two_requests_is_counted_once(self) -> None:
        assert resolve(MIXED, SENT).recipients == 2
        assert count_recipients(MIXED.entries.values()) == 5

    def test_the_journal_it_was_made_from_stays_as_it_was(self) -> None:
        before = MIXED.as_json()
        resolve(MIXED, SENT)
        assert MIXED.as_json() == before


REFUSED = {
    "not there": (MIXED, SENT, ["ref-claimed", "ref-other"], None, "no request ref-other"),
    "settled, sent": (MIXED, SENT, ["ref-settled"], None, "accepted by the service"),
    "settled, unsent": (MIXED, UNSENT, ["ref-settled"], None, "start a new run"),
    "settled beside one in doubt": (
        MIXED,
        UNSENT,
        ["ref-unknown", "ref-settled"],
        None,
        "ref-settled is resolved already",
    ),
    "rejected": (MIXED, SENT, ["ref-rejected"], None, "rejected by the service"),
    "not sent": (MIXED, UNSENT, ["ref-not-sent"], None, "resolved already: not sent"),
    "marked sent": (resolve(MIXED, SENT).pages, UNSENT, ["ref-unknown"], None, "manually resolved as sent"),
    "marked unsent": (resolve(MIXED, UNSENT).pages, SENT, ["ref-unknown"], None, "manually resolved as not sent"),
    "none in doubt": (resolve(MIXED, SENT).pages, UNSENT, [], None, "This journal has no unresolved request"),
    "no requests": (journal(), SENT, [], None, "This journal has no unresolved request"),
    "an id of what was not sent": (MIXED, UNSENT, ["ref-unknown"], "m2", "has no id"),
    "one id of two": (MIXED, SENT, [], "m2", "2 would be resolved: ref-unknown, ref-claimed"),
}


@pytest.mark.parametrize("case", REFUSED)
def test_refused(case: str) -> None:
    pages, decision, references, result_id, said = REFUSED[case]
    before = pages.as_json()
    with pytest.raises(CannotResolveError, match="Nothing was changed") as refused:
        resolve(pages, decision, references, result_id=result_id)
    assert said in str(refused.value)
    assert pages.as_json() == before


class TestUnderWay:
    """A process may live on for some seconds after its task was marked failed."""

    FRESH = journal(
        entry("ref-unknown", State.UNKNOWN, started_at=CLAIMED_AT),
        entry("ref-claimed", State.PENDING, started_at=CLAIMED_AT),
    )

    @pytest.mark.parametrize("decision", Resolution)
    @pytest.mark.parametrize(("age", "left"), [(0, 60), (17.2, 43), (59.9, 1), (-5, 65)])
    def test_what_was_just_claimed_is_not_decided(self, decision: Resolution, age: float, left: int) -> None:
        before = self.FRESH.as_json()
        with pytest.raises(CannotResolveError, match="Nothing was changed") as refused:
            resolve(self.FRESH, decision, ["ref-claimed"], now=CLAIMED_AT + timedelta(seconds=age))
        assert "Started less than 60 seconds ago: ref-claimed." in str(refused.value)
        assert str(refused.value).endswith(f"Try again in {left} s.")
        assert self.FRESH.as_json() == before

    def test_it_holds_up_the_others_unless_they_are_named(self) -> None:
        now = CLAIMED_AT + timedelta(seconds=1)
        with pytest.raises(CannotResolveError, match=r"Try again in 59 s, or name only other requests\.") as refused:
            resolve(self.FRESH, SENT, now=now)
        assert "ref-unknown" not in str(refused.value)
        assert resolve(self.FRESH, SENT, ["ref-unknown"], now=now).before == (self.FRESH.entries["ref-unknown"],)

    def test_the_youngest_says_how_long(self) -> None:
        later = entry("ref-later", State.PENDING, started_at=CLAIMED_AT + timedelta(seconds=10))
        with pytest.raises(CannotResolveError, match=r"ref-claimed, ref-later\..*Try again in 40 s"):
            resolve(journal(*self.FRESH.entries.values(), later), SENT, now=CLAIMED_AT + timedelta(seconds=30))

    def test_a_minute_later_it_is(self) -> None:
        now = CLAIMED_AT + timedelta(seconds=60)
        assert len(resolve(self.FRESH, UNSENT, now=now).before) == 2

    def test_nor_is_it_held_up_where_the_time_of_the_claim_is_lost(self) -> None:
        assert len(resolve(MIXED, UNSENT, now=CLAIMED_AT).before) == 2


ENTRIES = st.builds(
    RequestRecord,
    reference=st.uuids().map(str),
    operation=st.sampled_from(["send_sms", "buy_airtime"]),
    members=st.lists(st.sampled_from("abcd"), min_size=1, unique=True).map(tuple),
    state=st.sampled_from(State),
    reason=st.none() | st.text(max_size=5),
    doubted=st.booleans(),
)


@given(st.lists(ENTRIES, max_size=6), st.sampled_from(Resolution), st.data())
def test_only_what_is_in_doubt_and_asked_for_is_ever_changed(
    entries: list[RequestRecord], decision: Resolution, data: st.DataObject
) -> None:
    pages = journal(*entries)
    names = data.draw(st.lists(st.sampled_from([one.reference for one in entries]), unique=True)) if entries else []
    try:
        after = resolve(pages, decision, names).pages
    except CannotResolveError:
        chosen = [pages.entries[name] for name in names]
        assert not doubtful(pages) if not chosen else any(one.state not in IN_DOUBT for one in chosen)
        return
    changed = {name for name, one in after.entries.items() if one != pages.entries[name]}
    assert changed == (set(names) or {one.reference for one in doubtful(pages)})
    assert not any(after.entries[name].in_doubt for name in changed)
    assert Pages.from_json(after.as_json()).as_json() == after.as_json()
