"""From rows to the plan: who is a recipient, whose row is bad and why, who belongs elsewhere."""

from __future__ import annotations

from decimal import Decimal
from typing import Any

import msgspec.structs
import pytest

from cpaas_provider.api.recipients.reader import AllowedRecipients
from cpaas_provider.sending.campaign.content import Content
from cpaas_provider.sending.campaign.loader import CannotPlanError, Columns, RecipientLoader, SuppressionStats
from cpaas_provider.sending.campaign.recipients import RecipientStatus, RecipientTable
from cpaas_provider.sending.partitions import Partition, partitions
from cpaas_provider.sending.requests.channels import EMAIL
from tests.reading import nigerian_reader
from tests.unit.sending.campaign.parts import PRINTS, Rows, message, phones

PHONE = Columns("phone")
GREETING = message("Hello {name}", {"name": "name"})


def plan_from(*rows: Any, said: Content = GREETING, columns: Columns = PHONE, **how: Any) -> RecipientTable:
    plan = RecipientTable()
    how.setdefault("reader", nigerian_reader(said))
    RecipientLoader(plan, said, PRINTS, **how).read(Rows(*rows), columns)
    plan.deduplicate_and_suppress()
    return plan


def outcomes(plan: RecipientTable) -> list[tuple[str, str | None]]:
    return [(line["outcome"], line["reason"]) for line in plan.rows()]


def test_number_written_in_several_forms_is_one_recipient() -> None:
    plan = plan_from("08031200000", {"phone": "+234 803 120 0000"}, {"phone": 2348031200000}, said=message())
    assert [one.address for one in plan.not_sent()] == ["2348031200000"]
    assert plan.counts()[RecipientStatus.DUPLICATE] == 2


def test_member_of_another_channel_is_another_one() -> None:
    said = message()
    members = {
        recipient.member
        for channel in (None, "sms", "whatsapp")
        for recipient in plan_from(
            "08031200000", said=msgspec.structs.replace(said, body={**said.body, "channel": channel})
        ).not_sent()
    }
    assert len(members) == 2


def test_email_addresses_meet_in_any_case_of_the_domain() -> None:
    said = Content(EMAIL, {"content": "Hello"}, ["Hello"], {})
    plan = plan_from("Ada@Example.org", "Ada@example.ORG", "nobody", said=said, columns=Columns("email"))
    counts = plan.counts()
    assert (
        counts[RecipientStatus.NOT_SENT],
        counts[RecipientStatus.DUPLICATE],
        counts[RecipientStatus.INVALID_ROW],
    ) == (1, 1, 1)


def test_placeholder_values_follow_the_order_of_the_placeholders() -> None:
    said = message("{b} {a}", {"b": "second", "a": "first"})
    (recipient,) = plan_from({"phone": "08031200000", "first": "1", "second": "2"}, said=said).not_sent()
    assert said.substitutions([recipient.placeholder_values or ""]) == [{"b": "2", "a": "1"}]
    assert said.rendered(recipient.placeholder_values) == ["2 1"]


@pytest.mark.parametrize(
    ("row", "reason"),
    [
        ({"phone": "12", "name": "Ada"}, "phone"),
        ({"phone": None, "name": "Ada"}, "phone"),
        ({"phone": "08031200000", "name": " "}, "has no value for the placeholder name"),
        ({"phone": "08031200000"}, "has no value for the placeholder name"),
        (None, "cannot be read"),
    ],
)
def test_invalid_row_has_a_reason_without_its_number(row: Any, reason: str) -> None:
    plan = plan_from(row, {"phone": "08031200001", "name": "Obi"})
    (outcome, why), (other, _) = outcomes(plan)
    assert (outcome, other) == ("invalid_row", "not_sent")
    assert reason in (why or "")
    assert "0803120" not in (why or "")


def test_recipient_of_an_invalid_row_is_loaded_from_a_valid_one() -> None:
    plan = plan_from({"phone": "08031200000"}, {"phone": "08031200000", "name": "Ada"})
    assert [one.row for one in plan.not_sent()] == [2]


def test_pages_and_encoding_are_of_the_rendered_text() -> None:
    rows = [{"phone": phone, "name": name} for phone, name in zip(phones(3), ["Ada", "Adé ọ", "x" * 200], strict=True)]
    plan = plan_from(*({**row, "phone": f"+{row['phone']}"} for row in rows))
    assert [one.pages for one in plan.not_sent()] == [1, 1, 2]
    assert plan.lengths() == [("GSM-7", 1, 1), ("GSM-7", 2, 1), ("UCS-2", 1, 1)]


def test_text_that_cannot_be_measured_has_unknown_pages() -> None:
    plan = plan_from("08031200000", said=message(measured=False))
    assert (plan.lengths(), [one.pages for one in plan.not_sent()]) == ([], [None])


def test_recipient_outside_allowed_recipients_is_not_allowed() -> None:
    reader = msgspec.structs.replace(
        nigerian_reader(GREETING), allowed=AllowedRecipients("2348031200001", nigerian_reader(GREETING).read)
    )
    plan = plan_from("08031200000", "08031200001", said=message(), reader=reader)
    assert [line for line, _ in outcomes(plan)] == ["not_allowed", "not_sent"]


class TestTimeZones:
    COLUMNS = Columns("phone", "zone")

    def test_time_zone_is_stored_with_the_recipient(self) -> None:
        plan = plan_from({"phone": "08031200000", "zone": "Asia/Tokyo"}, said=message(), columns=self.COLUMNS)
        assert [one.zone for one in plan.not_sent()] == ["Asia/Tokyo"]

    @pytest.mark.parametrize("zone", ["Africa/Atlantis", "+01:00", "", None, "../../etc/passwd", 5, "Africa"])
    def test_invalid_time_zone_makes_the_row_invalid(self, zone: Any) -> None:
        plan = plan_from({"phone": "08031200000", "zone": zone}, said=message(), columns=self.COLUMNS)
        assert outcomes(plan) == [("invalid_row", "zone is no time zone such as Africa/Lagos")]

    def test_time_zone_is_separate_from_placeholder_values(self) -> None:
        row = {"phone": "08031200000", "zone": "Asia/Tokyo", "name": "Ada"}
        (recipient,) = plan_from(row, columns=self.COLUMNS).not_sent()
        assert (recipient.zone, recipient.placeholder_values) == ("Asia/Tokyo", '["Ada"]')


class TestColumns:
    def test_missing_columns_are_named_beside_the_existing_ones(self) -> None:
        planner = RecipientLoader(RecipientTable(), GREETING, PRINTS, reader=nigerian_reader(GREETING))
        with pytest.raises(CannotPlanError, match=r"no column name, phone. It has: tel, x. Nothing was sent"):
            planner.read(Rows(columns=("tel", "x")), PHONE)

    @pytest.mark.parametrize("data", ["+2348031200000", "ada@example.com"])
    def test_columns_that_are_data_of_a_recipient_are_not_shown(self, data: str) -> None:
        planner = RecipientLoader(RecipientTable(), GREETING, PRINTS, reader=nigerian_reader(GREETING))
        with pytest.raises(CannotPlanError, match="it seems to have no header") as told:
            planner.read(Rows(columns=(data, "Ada Obi")), PHONE)
        assert data not in str(told.value)
        assert "Ada" not in str(told.value)

    def test_columns_of_a_list_may_differ_from_row_to_row(self) -> None:
        plan = plan_from({"phone": "08031200000", "name": "Ada"}, {"tel": "08031200001", "name": "Obi"})
        assert [line for line, _ in outcomes(plan)] == ["not_sent", "invalid_row"]


class TestSuppression:
    def suppressed(
        self, *banned: Any, columns: tuple[str, ...] | None = None
    ) -> tuple[RecipientTable, SuppressionStats]:
        plan = RecipientTable()
        planner = RecipientLoader(plan, message(), PRINTS, reader=nigerian_reader(message()))
        planner.read(Rows("08031200000", "08031200001"), PHONE)
        found = planner.suppress(Rows(*banned, columns=columns), "phone")
        plan.deduplicate_and_suppress()
        return plan, found

    def test_suppression_compares_normalised_numbers(self) -> None:
        plan, found = self.suppressed({"phone": "+234 803 120 0001"})
        assert ([line for line, _ in outcomes(plan)], found.invalid) == (["not_sent", "suppressed"], 0)

    @pytest.mark.parametrize(
        "written",
        [
            "08031200001",
            "8031200001",
            Decimal(2348031200001),
            "\u202a+234 803 120 0001\u202c",
            "\ufeff\u200e08031200001",
        ],
    )
    def test_suppression_reads_every_written_form_of_a_number(self, written: Any) -> None:
        plan, found = self.suppressed({"phone": written})
        assert ([line for line, _ in outcomes(plan)], found.invalid) == (["not_sent", "suppressed"], 0)

    def test_invalid_suppression_rows_are_counted_with_their_reasons(self) -> None:
        found = self.suppressed({"phone": "?"}, None, {"tel": "08031200001"})[1]
        assert (found.rows, found.invalid, found.empty) == (3, 3, 0)
        assert [number for number, _ in found.first_invalid] == [1, 2, 3]
        assert "is not a phone number" in found.first_invalid[0][1]

    def test_empty_cell_of_a_suppression_table_counts_as_empty(self) -> None:
        found = self.suppressed({"phone": None}, {"phone": " "}, {"phone": "08031200001"}, columns=("phone",))[1]
        assert (found.rows, found.invalid, found.empty) == (3, 0, 2)


class TestPartitions:
    def test_partitions_hold_every_recipient_once_and_each_duplicate_in_one(self) -> None:
        rows = [*phones(200), *phones(200), None, None]
        plans = [
            plan_from(*(row and f"+{row}" for row in rows), said=message(), partition=Partition.read(one))
            for one in partitions(3)
        ]
        reached = [one.address for plan in plans for one in plan.not_sent()]
        assert sorted(reached) == phones(200)
        assert sum(plan.counts()[RecipientStatus.DUPLICATE] for plan in plans) == 200
        assert sum(plan.counts()[RecipientStatus.INVALID_ROW] for plan in plans) == 2

    def test_recipients_of_other_partitions_are_counted(self) -> None:
        plan = RecipientTable()
        planner = RecipientLoader(plan, message(), PRINTS, reader=nigerian_reader(message()), partition=Partition(0, 3))
        planner.read(Rows(*(f"+{one}" for one in phones(90))), PHONE)
        assert planner.stats.other_partitions + plan.counts()[RecipientStatus.NOT_SENT] == 90
        assert planner.stats.rows == 90


def test_error_of_the_check_ends_the_reading() -> None:
    class EndedError(Exception):
        pass

    def check() -> None:
        raise EndedError

    with pytest.raises(EndedError):
        plan_from("08031200000", said=message(), check=check)


def test_test_recipients_have_row_zero() -> None:
    plan = RecipientTable()
    planner = RecipientLoader(plan, message(), PRINTS, reader=nigerian_reader(message()))
    planner.read(Rows(*(f"+{one}" for one in phones(5))), PHONE, test=True)
    assert [one.row for one in plan.not_sent()] == [0] * 5


def test_test_recipient_belongs_to_the_partition_that_it_belongs_to_as_a_row() -> None:
    def loaded(part: int, *, test: bool) -> set[str]:
        with RecipientTable() as plan:
            planner = RecipientLoader(
                plan, message(), PRINTS, reader=nigerian_reader(message()), partition=Partition(part, 3)
            )
            planner.read(Rows(*(f"+{one}" for one in phones(30))), PHONE, test=test)
            return {one.address for one in plan.not_sent()}

    as_tests, as_rows = ([loaded(part, test=test) for part in range(3)] for test in (True, False))
    assert as_tests == as_rows
    assert all(as_tests)
    assert sorted(one for part in as_tests for one in part) == sorted(phones(30))
