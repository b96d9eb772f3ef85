"""The plan on disk: who is in it, who is left out, and that it leaves nothing behind."""

from __future__ import annotations

from pathlib import Path

import pytest

from cpaas_provider.sending.campaign.recipients import RecipientRow, RecipientStatus, RecipientTable
from tests.sqlite_memory import SqliteMemory
from tests.unit.sending.campaign.parts import member, phones, plan_of, planned, statuses


def test_first_of_several_rows_of_one_recipient_counts() -> None:
    with plan_of("2348030000001", "2348030000002", "2348030000001", "2348030000001") as plan:
        assert [line["outcome"] for line in plan.rows()] == [
            "not_sent",
            "not_sent",
            "duplicate",
            "duplicate",
        ]
        assert [recipient.row for recipient in plan.not_sent()] == [1, 2]


def test_suppressed_recipient_is_excluded_in_every_row() -> None:
    with RecipientTable() as plan:
        plan.add([planned("2348030000001"), planned("2348030000002"), planned("2348030000002")])
        plan.suppress([member("2348030000002"), member("2348030000002"), member("2348030000009")])
        plan.deduplicate_and_suppress()
        assert [line["outcome"] for line in plan.rows()] == ["not_sent", "suppressed", "duplicate"]


def test_recipient_that_is_not_allowed_stays_so_when_suppressed() -> None:
    with RecipientTable() as plan:
        plan.add([planned("2348030000001", status=RecipientStatus.NOT_ALLOWED)])
        plan.suppress([member("2348030000001")])
        plan.deduplicate_and_suppress()
        assert plan.counts()[RecipientStatus.NOT_ALLOWED] == 1


def test_invalid_rows_are_no_duplicates() -> None:
    with RecipientTable() as plan:
        plan.add(
            [
                RecipientRow(1, RecipientStatus.INVALID_ROW, reason="x"),
                RecipientRow(2, RecipientStatus.INVALID_ROW, reason="y"),
            ]
        )
        plan.deduplicate_and_suppress()
        counts = plan.counts()
        assert (counts[RecipientStatus.INVALID_ROW], counts[RecipientStatus.DUPLICATE]) == (2, 0)


def test_every_row_of_a_recipient_but_the_first_is_a_duplicate_of_it() -> None:
    one, other = phones(2)
    with RecipientTable() as plan:
        plan.add([planned(phone, row) for row, phone in enumerate([one, other, one, other, one], 1)])
        plan.add([RecipientRow(6, RecipientStatus.INVALID_ROW, reason="x"), planned(other, 7)])
        plan.deduplicate_and_suppress()
        duplicates = {line["row"]: line["reason"] for line in plan.rows() if line["outcome"] == "duplicate"}
        first, second = "the same recipient as row 1", "the same recipient as row 2"
        assert duplicates == {3: first, 4: second, 5: first, 7: second}


@pytest.mark.parametrize("places", [[], [1], [3, 4], [1, 2, 4, 6, 7, 8], [8, 7, 2, 1], [5, 1, 2]])
def test_settling_concerns_the_places_that_are_named(places: list[int]) -> None:
    with plan_of(*phones(8)) as plan:
        plan.set_status(places, RecipientStatus.SENT)
        assert [place for place, line in enumerate(plan.rows(), 1) if line["outcome"] == "sent"] == sorted(places)


def test_last_status_of_a_recipient_counts_and_its_reason_stays() -> None:
    with plan_of(*phones(5)) as plan:
        plan.set_status([1, 2, 3, 4, 5], RecipientStatus.REJECTED)
        plan.set_status([1, 3], RecipientStatus.REJECTED, reason="no such number")
        plan.set_status([2, 4, 5], RecipientStatus.SENT)
        assert [(line["outcome"], line["reason"]) for line in plan.rows()] == [
            ("rejected", "no such number"),
            ("sent", None),
            ("rejected", "no such number"),
            ("sent", None),
            ("sent", None),
        ]


def test_counts_follow_every_change() -> None:
    with plan_of(*phones(4)) as plan:
        assert plan.counts()[RecipientStatus.NOT_SENT] == 4
        plan.set_status([2], RecipientStatus.SENT)
        assert plan.counts()[RecipientStatus.NOT_SENT] == 3
        plan.database.execute("UPDATE recipient SET status = ? WHERE position = 3", (RecipientStatus.UNKNOWN,))
        counts = plan.counts()
        assert (counts[RecipientStatus.NOT_SENT], counts[RecipientStatus.UNKNOWN]) == (2, 1)
        counts.clear()
        assert plan.counts()[RecipientStatus.SENT] == 1


def test_counts_name_every_status_including_those_of_no_recipient() -> None:
    with plan_of("2348030000001") as plan:
        assert plan.counts() == {**dict.fromkeys(RecipientStatus, 0), RecipientStatus.NOT_SENT: 1}


def test_lengths_are_of_recipients_only() -> None:
    with RecipientTable() as plan:
        plan.add(planned(phone, pages=1, encoding="GSM-7") for phone in phones(3))
        plan.add([planned("2348030000001", pages=2, encoding="UCS-2"), planned("2348030000001", pages=2)])
        plan.suppress([member(phones(1)[0])])
        plan.deduplicate_and_suppress()
        assert plan.lengths() == [("GSM-7", 1, 2), ("UCS-2", 2, 1)]


def test_counting_takes_no_memory_however_many_there_are() -> None:
    with RecipientTable() as plan:
        with plan.transaction():
            plan.add(planned(one, encoding="GSM-7", pages=1 + place % 3) for place, one in enumerate(phones(60_000)))
        memory = SqliteMemory()
        before = memory.used()
        memory.most()
        assert plan.counts()[RecipientStatus.NOT_SENT] == 60_000
        assert [count for _, _, count in plan.lengths()] == [20_000] * 3
        # To sort that many lines takes more than a megabyte.
        assert memory.most() - before < 100_000


def test_recipients_can_be_iterated_while_their_status_changes() -> None:
    people = phones(3500)
    with plan_of(*people) as plan:
        seen = []
        for recipient in plan.not_sent():
            seen.append(recipient.address)
            plan.set_status([recipient.position], RecipientStatus.SENT)
        assert seen == people
        assert plan.counts()[RecipientStatus.SENT] == 3500


def test_recipients_of_selected_time_zones_are_returned() -> None:
    with RecipientTable() as plan:
        zones = ["Africa/Lagos", None, "Asia/Tokyo"] * 2
        plan.add(
            planned(phone, row, zone=zone) for row, (phone, zone) in enumerate(zip(phones(6), zones, strict=True), 1)
        )
        plan.deduplicate_and_suppress()
        assert [one.row for one in plan.not_sent(["Africa/Lagos", None])] == [1, 2, 4, 5]
        assert [one.row for one in plan.not_sent([])] == []
        plan.set_status([1, 4], RecipientStatus.SENT)
        assert set(plan.zones()) == {None, "Asia/Tokyo"}


def test_rows_name_every_recipient_with_status_and_reason() -> None:
    with plan_of(*phones(2)) as plan:
        plan.set_status([1], RecipientStatus.REJECTED, reason="no such number")
        first, second = plan.rows()
        assert (first["row"], first["recipient"], first["outcome"]) == (1, phones(1)[0], "rejected")
        assert (first["reason"], second["reason"]) == ("no such number", None)
        assert statuses(plan) == {phones(1)[0]: "rejected", phones(2)[1]: "not_sent"}


def test_table_leaves_no_visible_file_even_while_open(tmp_path: Path) -> None:
    plan = RecipientTable(str(tmp_path))
    plan.add(planned(phone) for phone in phones(50_000))
    assert list(tmp_path.iterdir()) == []
    plan.deduplicate_and_suppress()
    assert plan.counts()[RecipientStatus.NOT_SENT] == 50_000
    plan.close()
    assert list(tmp_path.iterdir()) == []
