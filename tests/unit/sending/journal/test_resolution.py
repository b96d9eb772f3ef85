"""What a person may resolve, request by request: the rules beside those of ``test_view``."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from cpaas_provider.sending.journal.model import JOURNAL_KEY, Intent, LogEntry, RequestRecord, Result, Segment, State
from cpaas_provider.sending.journal.resolution import CannotResolveError, Resolution, count_recipients
from cpaas_provider.sending.journal.view import JournalView
from tests.unit.sending.records import member

SENT, UNSENT = Resolution.SENT, Resolution.NOT_SENT
STARTED_AT = datetime(2026, 3, 1, 12, tzinfo=UTC)
UNKNOWN = Result(1, State.UNKNOWN, reason="the answer was lost")


def stored(*made: tuple[str, str, Result | None]) -> dict[str, Any]:
    """Return a journal of requests by reference, recipients (a letter each), and result, as a store holds it."""
    entries = []
    for number, (reference, names, result) in enumerate(made):
        intent = Intent(number, reference, b"".join(map(member, names)), previous_unknown=reference == "ref-unknown")
        entries.append(LogEntry(STARTED_AT, 1, 3, "body", [intent], [result] if result else []).as_text())
    return {JOURNAL_KEY: Segment("key", "nonce", "send_sms", 1, None, (0, 1), 3, entries).as_json()}


MIXED = stored(
    ("ref-settled", "x", Result(0, State.ACCEPTED, extra={"id": "m1"})),
    ("ref-unknown", "ab", UNKNOWN),
    ("ref-pending", "b", None),
    ("ref-rejected", "y", Result(3, State.REJECTED)),
    ("ref-not-sent", "z", Result(4, State.NOT_SENT)),
)


def after(journal: dict[str, Any], resolution: Resolution, *references: str, **how: Any) -> dict[str, Any]:
    """Return a journal with what was resolved of it."""
    return {**journal, **JournalView.read(journal.get).resolve(resolution, references, **how).values}


def requests(journal: dict[str, Any]) -> dict[str, RequestRecord]:
    return {one.reference: one for one in JournalView.read(journal.get).entries()}


class TestResolving:
    def test_resolving_without_references_changes_unresolved_requests_only(self) -> None:
        found = requests(after(MIXED, UNSENT))
        assert {name: one.state for name, one in found.items()} == {
            "ref-settled": State.ACCEPTED,
            "ref-unknown": State.NOT_SENT,
            "ref-pending": State.NOT_SENT,
            "ref-rejected": State.REJECTED,
            "ref-not-sent": State.NOT_SENT,
        }
        assert found["ref-settled"].result == {"id": "m1"}

    def test_request_resolved_as_sent_is_accepted(self) -> None:
        one = requests(after(MIXED, SENT, "ref-unknown"))["ref-unknown"]
        assert (one.state, one.resolution, one.result) == (State.ACCEPTED, "sent", None)
        assert one.reason == "manually resolved as sent (before: the answer was lost)"

    def test_sent_under_an_id(self) -> None:
        assert requests(after(MIXED, SENT, "ref-pending", result_id="m2"))["ref-pending"].result == {"id": "m2"}

    def test_request_resolved_as_not_sent_is_no_longer_unresolved(self) -> None:
        one = requests(after(MIXED, UNSENT, "ref-unknown"))["ref-unknown"]
        assert (one.state, one.resolution, one.is_unresolved) == (State.NOT_SENT, "not_sent", False)
        assert one.reason == "manually resolved as not sent (before: the answer was lost)"

    def test_reference_named_twice_is_one_request(self) -> None:
        resolved = JournalView.read(MIXED.get).resolve(SENT, ["ref-pending", "ref-pending"], result_id="m2")
        assert [one.reference for one in resolved.before] == ["ref-pending"]

    def test_requests_of_one_reference_are_resolved_together(self) -> None:
        twice = stored(("ref", "a", Result(0, State.UNKNOWN)), ("ref", "a", UNKNOWN))
        found = JournalView.read(after(twice, UNSENT, "ref").get)
        assert [one.state for one in found.entries()] == [State.NOT_SENT] * 2
        assert not found.unresolved()

    def test_recipient_of_two_requests_is_counted_once(self) -> None:
        view = JournalView.read(MIXED.get)
        assert view.resolve(SENT).recipients == 2
        assert count_recipients(list(view.entries())) == 5

    def test_resolving_leaves_the_view_unchanged(self) -> None:
        view = JournalView.read(MIXED.get)
        before = list(view.entries())
        view.resolve(SENT)
        assert list(view.entries()) == before


REFUSED: dict[str, tuple[dict[str, Any], Resolution, list[str], str | None, str]] = {
    "not there": (MIXED, SENT, ["ref-pending", "ref-other"], None, "no request ref-other"),
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
    "marked sent": (after(MIXED, SENT), UNSENT, ["ref-unknown"], None, "manually resolved as sent"),
    "marked unsent": (after(MIXED, UNSENT), SENT, ["ref-unknown"], None, "manually resolved as not sent"),
    "none in doubt": (after(MIXED, SENT), UNSENT, [], None, "This journal has no unresolved request"),
    "no requests": (stored(), SENT, [], None, "This journal has no unresolved request"),
    "an id of what was not sent": (MIXED, UNSENT, ["ref-unknown"], "m2", "has no id"),
    "one id of two": (MIXED, SENT, [], "m2", "2 would be resolved: ref-unknown, ref-pending"),
}


@pytest.mark.parametrize("case", REFUSED)
def test_invalid_resolution_is_refused(case: str) -> None:
    journal, resolution, references, result_id, said = REFUSED[case]
    with pytest.raises(CannotResolveError, match="Nothing was changed") as refused:
        JournalView.read(journal.get).resolve(resolution, references, result_id=result_id)
    assert said in str(refused.value)


class TestInFlight:
    """A process may live on for some seconds after its task was marked failed."""

    FRESH = stored(("ref-unknown", "a", Result(0, State.UNKNOWN)), ("ref-pending", "b", None))

    @pytest.mark.parametrize("resolution", Resolution)
    @pytest.mark.parametrize(("age", "left"), [(0, 60), (17.2, 43), (59.9, 1), (-5, 65)])
    @pytest.mark.parametrize("references", [[], ["ref-pending"], ["ref-unknown"]])
    def test_request_started_less_than_a_minute_ago_blocks_resolving(
        self, resolution: Resolution, age: float, left: int, references: list[str]
    ) -> None:
        with pytest.raises(CannotResolveError, match="Nothing was changed") as refused:
            JournalView.read(self.FRESH.get).resolve(resolution, references, now=STARTED_AT + timedelta(seconds=age))
        assert "Started less than 60 seconds ago: ref-pending." in str(refused.value)
        assert str(refused.value).endswith(f"Try again in {left} s.")

    def test_request_started_a_minute_ago_blocks_nothing(self) -> None:
        now = STARTED_AT + timedelta(seconds=60)
        assert len(JournalView.read(self.FRESH.get).resolve(UNSENT, now=now).before) == 2

    def test_request_of_a_lost_journal_blocks_nothing(self) -> None:
        lost = LogEntry(STARTED_AT, 1, 3, None, [Intent(0, "ref", member("a"))]).as_text()
        journal = {JOURNAL_KEY: Segment("key", "nonce", "send_sms", 0, "lost", (0, 1), 3, [lost]).as_json()}
        assert len(JournalView.read(journal.get).resolve(UNSENT, now=STARTED_AT).before) == 1
