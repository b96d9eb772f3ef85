"""Delivery reports in whatever shape they come."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cpaas_provider.api.redact import MAX_WORD
from cpaas_provider.delivery.reports import (
    MAX_ID,
    MAX_REASON,
    MAX_RECIPIENT,
    DeliveryStatus,
    Report,
    normalise_recipient,
    read_report,
)

KEYS = [
    "id",
    "message_id",
    "transaction_id",
    "external_ref",
    "client_ref",
    "recipient",
    "to",
    "msisdn",
    "status",
    "text",
    "description",
    "reason",
    "error",
    "status_desc",
    "event",
    "data",
    "channel",
    "created_datetime",
    "timestamp",
]
SCALARS = (
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats()
    | st.text()
    | st.sampled_from(["delivered", "failed", "text.clicked", "+234 803 123 4567", "A@B.com", "2026-01-01T00:00:00Z"])
)
BODIES = st.recursive(
    SCALARS,
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.sampled_from(KEYS) | st.text(), inner, max_size=8),
    max_leaves=30,
)


class TestDeliveryStatus:
    def test_delivery_statuses_are_ordered_by_rank(self) -> None:
        assert sorted(DeliveryStatus) == [
            DeliveryStatus.IN_FLIGHT,
            DeliveryStatus.UNDELIVERED,
            DeliveryStatus.DELIVERED,
            DeliveryStatus.BOUNCED,
            DeliveryStatus.OPENED,
            DeliveryStatus.CLICKED,
        ]

    def test_statuses_that_reached_the_recipient_and_final_statuses(self) -> None:
        assert [state for state in DeliveryStatus if state.reached] == [
            DeliveryStatus.DELIVERED,
            DeliveryStatus.OPENED,
            DeliveryStatus.CLICKED,
        ]
        assert [state for state in DeliveryStatus if not state.final] == [DeliveryStatus.IN_FLIGHT]


class TestStatusOfReport:
    @pytest.mark.parametrize(
        ("word", "state"),
        [
            ("delivered", DeliveryStatus.DELIVERED),
            ("SUCCESS", DeliveryStatus.DELIVERED),
            (" Delivered ", DeliveryStatus.DELIVERED),
            ("undelivered", DeliveryStatus.UNDELIVERED),
            ("failed", DeliveryStatus.UNDELIVERED),
            ("rejected", DeliveryStatus.UNDELIVERED),
            ("expired", DeliveryStatus.UNDELIVERED),
            ("error", DeliveryStatus.UNDELIVERED),
            ("duplicate", DeliveryStatus.UNDELIVERED),
            ("bounced", DeliveryStatus.BOUNCED),
            ("opened", DeliveryStatus.OPENED),
            ("clicked", DeliveryStatus.CLICKED),
            ("pending", DeliveryStatus.IN_FLIGHT),
            ("sent", DeliveryStatus.IN_FLIGHT),
            ("queued", DeliveryStatus.IN_FLIGHT),
            ("levitating", None),
            ("", None),
            (5, None),
            (True, None),
            (None, None),
            ([], None),
        ],
    )
    def test_status_word_gives_the_delivery_status(self, word: Any, state: DeliveryStatus | None) -> None:
        assert read_report({"id": "1", "status": word}).delivery_status is state

    def test_status_object_with_text_and_description_is_read(self) -> None:
        report = read_report({"status": {"text": "FAILED", "description": "absent subscriber"}})
        assert (report.delivery_status, report.status, report.reason) == (
            DeliveryStatus.UNDELIVERED,
            "failed",
            "absent subscriber",
        )

    def test_status_object_with_a_description_alone_is_read(self) -> None:
        assert read_report({"status": {"description": "Delivered"}}).delivery_status is DeliveryStatus.DELIVERED

    @pytest.mark.parametrize(
        ("event", "kind", "state"),
        [
            ("text.delivered", "sms", DeliveryStatus.DELIVERED),
            ("text.undelivered", "sms", DeliveryStatus.UNDELIVERED),
            ("text.clicked", "sms", DeliveryStatus.CLICKED),
            ("sms.delivered", "sms", DeliveryStatus.DELIVERED),
            ("email.bounced", "email", DeliveryStatus.BOUNCED),
            ("email.opened", "email", DeliveryStatus.OPENED),
            ("airtime.success", "airtime", DeliveryStatus.DELIVERED),
            ("airtime.duplicate", "airtime", DeliveryStatus.UNDELIVERED),
            ("Email.Clicked", "email", DeliveryStatus.CLICKED),
            ("fax.delivered", None, DeliveryStatus.DELIVERED),
            ("delivered", None, DeliveryStatus.DELIVERED),
            ("text.levitated", "sms", None),
            ("text.", "sms", None),
        ],
    )
    def test_event_name_gives_kind_and_delivery_status(
        self, event: str, kind: str | None, state: DeliveryStatus | None
    ) -> None:
        report = read_report({"event": event, "data": {"id": "1"}})
        assert (report.kind, report.delivery_status) == (kind, state)

    def test_known_event_overrides_the_status(self) -> None:
        assert read_report({"event": "text.clicked", "status": "delivered"}).delivery_status is DeliveryStatus.CLICKED

    def test_status_counts_if_the_event_is_unknown(self) -> None:
        assert read_report({"event": "text.report", "status": "failed"}).delivery_status is DeliveryStatus.UNDELIVERED

    @pytest.mark.parametrize("body", [{"status": "success"}, {"status": "sent"}, {"event": "airtime.success"}])
    @pytest.mark.parametrize("refunded", [True, "true", 1])
    def test_purchase_that_was_refunded_is_neither_bought_nor_in_flight(
        self, body: dict[str, Any], refunded: Any
    ) -> None:
        def read(body: dict[str, Any], refunded: Any) -> list[DeliveryStatus | None]:
            purchase = {**body, "meta": {"charge": {"amount": 100, "refunded": refunded}}}
            return [read_report(form).delivery_status for form in (purchase, {"status": "success", "data": purchase})]

        assert read(body, refunded) == [None, None]
        assert None not in read(body, False)
        assert read({"status": "failed"}, refunded) == [DeliveryStatus.UNDELIVERED] * 2

    def test_unknown_status_word_is_cut_to_the_maximum_length(self) -> None:
        assert read_report({"status": "X" * 1000}).status == "x" * (MAX_WORD - 1) + "…"


class TestFieldsOfReport:
    @pytest.mark.parametrize("name", ["id", "message_id", "transaction_id"])
    @pytest.mark.parametrize(
        ("value", "meant"), [("m-1", "m-1"), (4711, "4711"), (" m ", "m"), ("", None), (True, None)]
    )
    def test_message_id_is_read_from_any_of_its_fields(self, name: str, value: Any, meant: str | None) -> None:
        assert read_report({name: value}).message_id == meant

    def test_message_id_field_comes_before_the_id_of_the_event(self) -> None:
        assert read_report({"id": "event-1", "message_id": "message-1"}).message_id == "message-1"

    @pytest.mark.parametrize("name", ["external_ref", "client_ref"])
    def test_reference_is_read_from_any_of_its_fields(self, name: str) -> None:
        assert read_report({name: "cpaas-1"}).reference == "cpaas-1"

    @pytest.mark.parametrize("name", ["recipient", "to", "msisdn"])
    def test_recipient_is_read_from_any_of_its_fields(self, name: str) -> None:
        assert read_report({name: "+2348031234567"}).recipient == "2348031234567"

    @pytest.mark.parametrize("name", ["description", "reason", "error", "status_desc"])
    def test_reason_is_read_from_any_of_its_fields(self, name: str) -> None:
        assert read_report({name: "absent subscriber"}).reason == "absent subscriber"

    @pytest.mark.parametrize(
        "text",
        [
            "why " * 500,
            " \n why" + "x" * 2000,
            "\x01 why" + "x" * 2000,
            "why" + " " * 2000,
            " " * 2000 + "why",
            "x" * 310 + "\n" * 2000,
            "x" * 299 + "\x00\x00" + "x" * 2000,
            "x" * 700 + "\ud800" * 5,
        ],
    )
    def test_long_reason_is_cut(self, text: str) -> None:
        whole = " ".join("".join(letter if letter.isprintable() else " " for letter in text).split())
        reason = read_report({"reason": text}).reason
        assert reason is not None
        assert len(reason) <= MAX_REASON
        assert reason.removesuffix("…") == whole[: len(reason.removesuffix("…"))]
        assert len(reason) >= min(len(whole), MAX_REASON - 1)

    @pytest.mark.parametrize("at", range(30, 55))
    @pytest.mark.parametrize("private", ["ada.lovelace@example.org", "+234 803 123 4567", "2348031234567"])
    def test_recipient_at_the_end_of_a_status_or_reason_is_hidden_before_it_is_cut(self, private: str, at: int) -> None:
        status = read_report({"status": "x" * at + " " + private}).status
        reason = read_report({"reason": "x" * (at + 270) + " " + private}).reason
        for shown in (status, reason):
            assert "ada" not in str(shown)
            assert "803" not in str(shown)

    @pytest.mark.parametrize(("channel", "kind"), [("sms", "sms"), ("TEXT", "sms"), ("email", "email"), ("fax", None)])
    def test_channel_gives_the_kind(self, channel: str, kind: str | None) -> None:
        assert read_report({"channel": channel}).kind == kind

    def test_fields_in_data_come_before_those_of_the_envelope(self) -> None:
        body = {"id": "event-1", "status": "success", "data": {"id": "m-1", "status": "failed", "recipient": "A@B.com"}}
        expected = Report(DeliveryStatus.UNDELIVERED, "failed", "a@b.com", "m-1", causes=("failed",))
        assert read_report(body) == expected

    def test_recipient_of_the_envelope_counts_if_data_has_none(self) -> None:
        assert read_report({"recipient": "a@b.com", "data": {"id": "m-1"}}).recipient == "a@b.com"

    @pytest.mark.parametrize("status", ["success", "Success", "error", {"text": "success"}])
    @pytest.mark.parametrize(
        "inner",
        [
            {"id": "m-1", "recipient": "a@b.com"},
            {"id": "m-1", "status": None},
            {"id": "m-1", "status": {}},
            {},
            [{"id": "m-1", "status": "failed"}],
        ],
    )
    def test_status_of_an_envelope_is_not_the_status_of_the_message(self, status: Any, inner: Any) -> None:
        for more in ({}, {"message": "Delivered", "type": "object"}, {"id": "event-1"}):
            assert read_report({"status": status, "data": inner, **more}).delivery_status is None

    @pytest.mark.parametrize(
        ("body", "state"),
        [
            ({"status": "delivered", "data": {"id": "m-1"}}, DeliveryStatus.DELIVERED),
            ({"status": "success", "recipient": "+2348031234567", "data": {}}, DeliveryStatus.DELIVERED),
            ({"status": "success", "id": "m-1"}, DeliveryStatus.DELIVERED),
            ({"status": "success", "data": None}, DeliveryStatus.DELIVERED),
            ({"event": "airtime.success", "status": "error", "data": {"id": "m-1"}}, DeliveryStatus.DELIVERED),
        ],
    )
    def test_status_or_event_outside_data_counts_if_it_is_about_the_message(
        self, body: Any, state: DeliveryStatus
    ) -> None:
        assert read_report(body).delivery_status is state

    def test_message_id_that_is_too_long_is_ignored(self) -> None:
        assert read_report({"id": "m" * MAX_ID}).message_id == "m" * MAX_ID
        assert read_report({"id": "m" * (MAX_ID + 1)}).message_id is None
        assert read_report({"id": 10**4000}).message_id is None

    @pytest.mark.parametrize("body", [None, True, 5, 1.5, "text", [], [{"id": "1", "status": "delivered"}], {}])
    def test_body_of_unknown_shape_is_an_empty_report(self, body: Any) -> None:
        assert read_report(body) == Report(None)


class TestNormaliseRecipient:
    @pytest.mark.parametrize(
        ("written", "key"),
        [
            ("+2348031234567", "2348031234567"),
            ("2348031234567", "2348031234567"),
            (2348031234567, "2348031234567"),
            ("+234 803 123-4567", "2348031234567"),
            ("+234 (803) 123.4567", "2348031234567"),
            ("002348031234567", "2348031234567"),
            ("08031234567", "08031234567"),
            (["+2348031234567"], "2348031234567"),
            ("Ada@Example.COM", "ada@example.com"),
            (" ada@example.com\n", "ada@example.com"),
            ("", None),
            ("+", None),
            ("00", None),
            ("Shop", None),
            ("1" * 21, None),
            (True, None),
            (None, None),
            ("a@" + "b" * MAX_RECIPIENT, None),
            (["1", "2"], None),
            ({}, None),
            ("٠١٢٣٤٥٦", None),
        ],
    )
    def test_recipient_is_normalised_to_one_form(self, written: Any, key: str | None) -> None:
        assert normalise_recipient(written) == key

    @pytest.mark.parametrize(
        "written",
        [
            "Ann <a@x.org>",
            '"Ann, of the shop" <A@X.org>',
            "<a@x.org>",
            "Zo\u00eb <a@x.org>",
            "a@x.org (Ann)",
            "mailto:a@x.org",
            "MAILTO:<a@x.org>",
            "rfc822; a@x.org",
        ],
    )
    def test_address_with_a_name_is_normalised_to_the_address(self, written: str) -> None:
        assert normalise_recipient(written) == "a@x.org"

    @pytest.mark.parametrize(
        ("written", "region", "key"),
        [
            ("08031234567", "NG", "2348031234567"),
            ("0803 123 4567", "NG", "2348031234567"),
            ("8031234567", "NG", "2348031234567"),
            ("2348031234567", "NG", "2348031234567"),
            ("447911123456", "NG", "447911123456"),
            ("+44 7911 123456", "NG", "447911123456"),
            ("07911 123456", "GB", "447911123456"),
            ("(212) 555-0123", "US", "12125550123"),
            ("08031234567", None, "08031234567"),
            ("08031234567", "no region", "08031234567"),
            ("12345", "NG", "12345"),
            ("a@x.org", "NG", "a@x.org"),
        ],
    )
    def test_national_number_is_read_in_the_region_of_the_connection(
        self, written: str, region: str | None, key: str
    ) -> None:
        assert normalise_recipient(written, region) == key


class TestTimeOfReport:
    @pytest.mark.parametrize(
        "written",
        [
            "2026-01-31T12:00:00Z",
            "2026-01-31T12:00:00+00:00",
            "2026-01-31T13:00:00+01:00",
            "2026-01-31 12:00:00",
            1769860800,
            1769860800.0,
            1769860800000,
        ],
    )
    def test_time_of_a_report_is_read_in_any_of_its_formats(self, written: Any) -> None:
        assert read_report({"created_datetime": written}).reported_at == datetime(2026, 1, 31, 12, tzinfo=UTC)

    @pytest.mark.parametrize(
        "written",
        [None, "", "soon", True, [], {}, float("nan"), float("inf"), 10**400, -(10**400), "0001-01-01T00:00:00+14:00"],
    )
    def test_value_that_is_no_time_is_ignored(self, written: Any) -> None:
        assert read_report({"timestamp": written}).reported_at is None


class TestAnyBody:
    @given(BODIES)
    def test_any_json_value_is_read_into_fields_of_limited_length(self, body: Any) -> None:
        report = read_report(body)
        read_report(body)
        assert report.delivery_status is None or isinstance(report.delivery_status, DeliveryStatus)
        bounds = {"status": MAX_WORD, "recipient": MAX_RECIPIENT, "message_id": MAX_ID, "reference": MAX_ID}
        for name, bound in {**bounds, "reason": MAX_REASON, "kind": 10}.items():
            text = getattr(report, name)
            assert text is None or len(text) <= bound, name

    @given(st.dictionaries(st.sampled_from(KEYS), st.text(st.characters(), min_size=1), min_size=1))
    def test_texts_of_a_report_can_be_stored_in_any_database(self, body: dict[str, str]) -> None:
        report = read_report(body)
        for text in (report.status, report.recipient, report.message_id, report.reference, report.reason):
            assert "\0" not in (text or "")
            (text or "").encode()

    @pytest.mark.parametrize("text", ["a\0b", "\ud800", "a\u202eb"])
    def test_message_id_has_no_unprintable_characters(self, text: str) -> None:
        report = read_report({"id": f"1{text}2", "status": text, "reason": f"1{text}2", "recipient": f"{text}@b.com"})
        assert report.message_id.encode() == report.message_id.encode("ascii")  # type: ignore[union-attr]
