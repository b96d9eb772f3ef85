"""What the accepted requests of one reference come to."""

from __future__ import annotations

from cpaas_provider.sending.journal.model import RequestRecord, State, accepted_by_reference
from tests.unit.sending.records import member, record

BOTH = ("a", "b")


def accepted(number: int, *left_out: str, reference: str = "ref") -> RequestRecord:
    packed = b"".join(map(member, left_out))
    return record(
        reference, "send_sms", BOTH, State.ACCEPTED, number=number, result=(f"m{number}", None, None), left_out=packed
    )


def ids_and_members(*records: RequestRecord) -> list[tuple[object, list[bytes]]]:
    return [((one.result or {}).get("id"), one.members) for one in accepted_by_reference(records)]


def test_newest_counts_for_the_recipients_of_all() -> None:
    both = [member("a"), member("b")]
    assert ids_and_members(accepted(0), accepted(1)) == [("m1", both)]
    assert ids_and_members(accepted(0), accepted(1, "a")) == [("m1", both)]
    assert ids_and_members(accepted(0, "a"), accepted(1)) == [("m1", both)]
    assert ids_and_members(accepted(0, "b"), accepted(1, "a")) == [("m1", both)]
    assert ids_and_members(accepted(0, "a"), accepted(1, "a")) == [("m1", [member("b")])]


def test_references_are_in_the_order_of_their_first_accepted_requests() -> None:
    found = ids_and_members(accepted(0), accepted(1, reference="other"), accepted(2))
    assert [message_id for message_id, _ in found] == ["m2", "m1"]


def test_unaccepted_requests_do_not_count() -> None:
    unknown = record("ref", "send_sms", BOTH, State.UNKNOWN, number=0)
    pending = record("ref", "send_sms", BOTH, State.PENDING, number=2)
    assert ids_and_members(unknown, accepted(1, "a"), pending) == [("m1", [member("b")])]
