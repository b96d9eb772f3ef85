"""The plan on disk: who is in it, who is left out, and that it leaves nothing behind."""

from __future__ import annotations

from pathlib import Path

from cpaas_provider.sending.campaign.recipients import Fate, Plan, Planned
from tests.unit.sending.campaign.parts import fates, member, phones, plan_of, planned


def test_the_first_of_several_lines_for_one_person_counts() -> None:
    with plan_of("2348030000001", "2348030000002", "2348030000001", "2348030000001") as plan:
        assert [line["outcome"] for line in plan.everybody()] == [
            "not_sent",
            "not_sent",
            "duplicate",
            "duplicate",
        ]
        assert [person.row for person in plan.not_sent()] == [1, 2]


def test_who_is_banned_is_left_out_wherever_they_stand() -> None:
    with Plan() as plan:
        plan.add([planned("2348030000001"), planned("2348030000002"), planned("2348030000002")])
        plan.ban([member("2348030000002"), member("2348030000002"), member("2348030000009")])
        plan.leave_out()
        assert [line["outcome"] for line in plan.everybody()] == ["not_sent", "suppressed", "duplicate"]


def test_who_is_not_allowed_stays_so_when_banned_too() -> None:
    with Plan() as plan:
        plan.add([planned("2348030000001", fate=Fate.NOT_ALLOWED)])
        plan.ban([member("2348030000001")])
        plan.leave_out()
        assert plan.counts()[Fate.NOT_ALLOWED] == 1


def test_rows_that_name_nobody_are_nobody_s_duplicates() -> None:
    with Plan() as plan:
        plan.add([Planned(1, Fate.INVALID_ROW, reason="x"), Planned(2, Fate.INVALID_ROW, reason="y")])
        plan.leave_out()
        counts = plan.counts()
        assert (counts[Fate.INVALID_ROW], counts[Fate.DUPLICATE]) == (2, 0)


def test_counts_name_every_fate_also_where_there_is_none() -> None:
    with plan_of("2348030000001") as plan:
        assert plan.counts() == {**dict.fromkeys(Fate, 0), Fate.NOT_SENT: 1}


def test_lengths_are_of_recipients_only() -> None:
    with Plan() as plan:
        plan.add(planned(phone, pages=1, encoding="GSM-7") for phone in phones(3))
        plan.add([planned("2348030000001", pages=2, encoding="UCS-2"), planned("2348030000001", pages=2)])
        plan.ban([member(phones(1)[0])])
        plan.leave_out()
        assert plan.lengths() == [("GSM-7", 1, 2), ("UCS-2", 2, 1)]


def test_people_can_be_gone_through_while_the_first_of_them_are_dealt_with() -> None:
    people = phones(3500)
    with plan_of(*people) as plan:
        seen = []
        for person in plan.not_sent():
            seen.append(person.address)
            plan.settle([person.place], Fate.SENT)
        assert seen == people
        assert plan.counts()[Fate.SENT] == 3500


def test_people_of_some_time_zones_only() -> None:
    with Plan() as plan:
        zones = ["Africa/Lagos", None, "Asia/Tokyo"] * 2
        plan.add(
            planned(phone, row, zone=zone) for row, (phone, zone) in enumerate(zip(phones(6), zones, strict=True), 1)
        )
        plan.leave_out()
        assert [one.row for one in plan.not_sent(["Africa/Lagos", None])] == [1, 2, 4, 5]
        assert [one.row for one in plan.not_sent([])] == []
        plan.settle([1, 4], Fate.SENT)
        assert set(plan.zones()) == {None, "Asia/Tokyo"}


def test_everybody_is_named_with_what_became_of_them() -> None:
    with plan_of(*phones(2)) as plan:
        plan.settle([1], Fate.REJECTED, reason="no such number")
        first, second = plan.everybody()
        assert (first["row"], first["recipient"], first["outcome"]) == (1, phones(1)[0], "rejected")
        assert (first["reason"], second["reason"]) == ("no such number", None)
        assert fates(plan) == {phones(1)[0]: "rejected", phones(2)[1]: "not_sent"}


def test_no_file_is_left_even_while_it_is_used(tmp_path: Path) -> None:
    plan = Plan(str(tmp_path))
    plan.add(planned(phone) for phone in phones(50_000))
    assert list(tmp_path.iterdir()) == []
    plan.leave_out()
    assert plan.counts()[Fate.NOT_SENT] == 50_000
    plan.close()
    assert list(tmp_path.iterdir()) == []
