"""Erasing a recipient: exactly that one, in every form, and out of the file as well."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
from sqlalchemy import event, select, update

from cpaas_provider.database import database as store
from cpaas_provider.database.activity.single_requests import record_passcode
from cpaas_provider.database.database import Database, open_database
from cpaas_provider.database.leases import LeasedState
from cpaas_provider.database.schema.activity import passcodes
from cpaas_provider.database.schema.delivery import deliveries, events, reports, requests
from cpaas_provider.delivery.reports import DeliveryStatus
from cpaas_provider.delivery.tracking import erasure
from cpaas_provider.delivery.tracking import events as delivery_events
from cpaas_provider.delivery.tracking.erasure import erase, find_remaining
from cpaas_provider.delivery.tracking.mentions import RecipientMatcher, UnknownRecipientError, find
from cpaas_provider.delivery.tracking.sent_requests import (
    SentRequest,
    TrackedSend,
    record_recipients,
    record_requests,
    record_send_started,
)
from cpaas_provider.sending.journal.model import LogEntry, Result, Segment, State
from tests.growth import LINEAR, growth
from tests.unit.delivery.report_builders import (
    ADA,
    OBI,
    UMA,
    counts,
    outcomes,
    received_report,
    report,
    save_reports,
    token_for,
)

FORMS: list[Any] = [
    f"+{ADA}",
    f"00{ADA}",
    "+234 803 000 0001",
    "+234 (0) 803-000-0001",
    "0803 000 0001",
    "(0803) 000.0001",
]
FORMS += [int(ADA), float(ADA), "8030000001"]

# What only looks like it: longer numbers, those of other countries, figures of their own, dates.
OTHERS: list[Any] = [
    {"raw": json.dumps({"id": "8030000001"})},
    {"id": "1" + ADA}, {"id": ADA + "1"}, {"id": 8030000001}, {"timestamp": 8030000001}, {"of": 0.5},
    {"to": "+2348030000002"}, {"to": "+448030000001"}, {"to": "+44 803 000 0001"}, {"to": "0044 (0) 803-000-0001"},
    {"of": "for +1 (803) 0000001"}, {"of": "joann@example.com"}, {"at": "2026-05-01 12:00:00"},
]  # fmt: skip

# As East Asian keyboards write it.
WIDE = "".join(chr(0xFF10 + int(digit)) for digit in ADA)


@pytest.fixture
def filled(database: Database) -> Database:
    """A store with reports of several, Ada among them."""
    save_reports(
        database,
        report(ADA, "delivered", token=token_for(campaign="spring")),
        report(OBI, "failed", token=token_for(campaign="spring"), reason="absent"),
        report("ann@example.com", "opened", token=token_for(campaign="mail")),
        report("joann@example.com", "opened", token=token_for(campaign="mail")),
    )
    return database


def bodies(database: Database) -> list[str]:
    with database.connect() as connection:
        return list(connection.execute(select(reports.c.body)).scalars())


def all_rows(database: Database) -> str:
    """Return what all tables that may name somebody hold, as text."""
    with database.connect() as connection:
        tables = (deliveries, requests, events, reports)
        return "\n".join(str(row) for table in tables for row in connection.execute(select(table)))


class TestRecipientToErase:
    @pytest.mark.parametrize("notation", [f"+{ADA}", "+234 803 000 0001", ADA, "00234 803 000 0001"])
    def test_erased_number_is_removed_and_the_counts_stay(self, filled: Database, notation: str) -> None:
        assert erase(filled, notation).rows == 2
        assert counts(filled) == (1, 1, 0)
        assert set(outcomes(filled)) == {"", OBI}
        assert ADA not in all_rows(filled)
        assert erase(filled, notation).rows == 0

    @pytest.mark.parametrize("notation", ["0803 000 0001", "8030000001", "+234 803 000 0001"])
    def test_national_number_is_read_in_the_given_region(self, filled: Database, notation: str) -> None:
        erased = erase(filled, notation, "NG")
        assert (erased.rows, erased.read_as) == (2, "a phone number of NG")
        assert ADA not in all_rows(filled)

    @pytest.mark.parametrize(
        ("notation", "region"),
        [("0", None), ("1", None), ("0803 000 0001", None), ("2025550123", None), ("8030000001", None), ("", None),
         ("Ada", None), ("%", None), ("_" * 10, None), ("x@" + "y" * 300, None), ("@", None), ("@example.com", None),
         ("0803 000 0001", "ZZ"), ("0", "NG"), ("12345", "NG")],
    )  # fmt: skip
    def test_unreadable_recipient_is_an_error_and_nothing_is_deleted(
        self, filled: Database, notation: str, region: str | None
    ) -> None:
        before = all_rows(filled)
        with pytest.raises(UnknownRecipientError, match="Nothing was deleted") as refused:
            erase(filled, notation, region)
        assert len(notation) < 2 or notation not in str(refused.value)
        assert all_rows(filled) == before

    def test_address_is_erased_in_any_case_and_longer_addresses_stay(self, filled: Database) -> None:
        assert erase(filled, "Ann@Example.com").rows == 2
        assert set(outcomes(filled, "mail")) == {"", "joann@example.com"}
        assert [body for body in bodies(filled) if "joann@example.com" in body]

    def test_erasure_of_an_unknown_number_deletes_nothing(self, filled: Database) -> None:
        before = all_rows(filled)
        assert erase(filled, "+2348039999999").rows == 0
        assert all_rows(filled) == before


class TestNotationsOfTheRecipient:
    @pytest.mark.parametrize(
        "write",
        [
            lambda form: {"recipient": form, "status": "delivered"},
            lambda form: {"about": [{"person": form}]},
            lambda form: {"from": f"+44 20 7946 0958, {form}"},
            lambda form: {"status": "failed", "reason": f"{form} is switched off."},
            lambda form: {"status": "failed", "message_id": f"sms-{form}-17"},
            lambda form: {str(form): "delivered"},
            lambda form: {"raw": json.dumps({"to": str(form)})},
        ],
    )
    def test_report_with_the_number_in_any_form_is_deleted(self, sqlite_url: str, write: Callable[[Any], Any]) -> None:
        with open_database(sqlite_url) as database:
            save_reports(
                database,
                *(received_report(write(form), token=token_for(campaign=f"odd-{n}")) for n, form in enumerate(FORMS)),
            )
            save_reports(database, report(OBI, "delivered", token=token_for()))
            erase(database, ADA)
            assert [OBI in body for body in bodies(database)] == [True]

    @pytest.mark.parametrize(
        "body",
        [r'{"to": "\u002b\u0032348030000001"}', '{"to": "+WIDE"}', '{"to": 2.348030000001E12}',
         '{"to": "+2348030000001", "to": "x"}', '{"url": "a?to=%2B234%20803%20000%200001"}'],
    )  # fmt: skip
    def test_report_with_the_number_in_any_json_notation_is_deleted(self, database: Database, body: str) -> None:
        save_reports(database, received_report({}, token=token_for(campaign="odd")))
        body = body.replace("WIDE", WIDE)
        database.write(lambda connection: connection.execute(update(reports).values(body=body)))
        assert erase(database, ADA).rows == 1
        assert bodies(database) == []

    @pytest.mark.parametrize(
        ("recipient", "text"),
        [
            (f"+{ADA}", "(0803) - (000) - (0001)"), (f"+{ADA}", "0803, 000, 0001"), (f"+{ADA}", "0092348030000001"),
            (f"+{ADA}", "234+803+000+0001"), (f"+{ADA}", "%25252B2348030000001"),
            (f"+{ADA}", "0803\u2011000\u20110001"),
            ("+375 29 491 19 11", "8 029 491-19-11"), ("+45 2012 0131", "+45 2012-01-31"),
            ("ada@example.org", r'smtp: {"err":"user \u003cada@example.org\u003e unknown"}'),
            ("ada@example.org", r"error:\nada@example.org"), ("ada@example.org", "to ...ada@example.org"),
            ("ada@example.org", "ada&#64;example.org"), ("ada@stra\u00dfe.de", "ada@xn--strae-oqa.de"),
        ],
    )  # fmt: skip
    def test_recipient_is_found_in_unusual_notation(self, recipient: str, text: str) -> None:
        assert find(recipient).in_body(json.dumps({"note": text}))

    @pytest.mark.parametrize(
        ("recipient", "text"),
        [
            (f"+{ADA}", "+1\u2011803\u2011000\u20110001"), (f"+{ADA}", "+1_803_000_0001"), (f"+{ADA}", "+1,8030000001"),
            (f"+{ADA}", "011 1 803 000 0001"), ("ada@stra\u00dfe.de", "ada@strasse.de"),
        ],
    )  # fmt: skip
    def test_similar_recipient_in_unusual_notation_is_not_found(self, recipient: str, text: str) -> None:
        assert not find(recipient).in_body(json.dumps({"note": text}))

    def test_report_with_a_similar_number_or_address_stays(self, database: Database) -> None:
        save_reports(database, *(received_report(body, token=token_for(campaign="odd")) for body in OTHERS))
        for one in (ADA, "ann@example.com", "+1 202 605 0112", "+20 26050112"):
            assert erase(database, one).rows == 0
        assert sorted(bodies(database)) == sorted(map(json.dumps, OTHERS))

    def test_report_with_the_address_beside_a_number_is_deleted(self, database: Database) -> None:
        save_reports(database, received_report({"from": "+44 ann@example.com"}, token=token_for(campaign="odd")))
        assert erase(database, "ann@example.com").rows == 1

    def test_number_is_removed_from_rows_of_other_recipients(self, database: Database) -> None:
        save_reports(
            database,
            report(OBI, "failed", token=token_for(), reason="forwarded to 0803 000 0001"),
            report(None, "failed", message_id="sms-2348030000001"),
            report(UMA, "0803-000-0001 delivered", token=token_for()),
        )
        send = TrackedSend("spring", "send_sms", "shop", "dag", "run", "send", -1)
        database.write(lambda connection: record_send_started(connection, send))
        made = [SentRequest("pack", 2, "0803.000.0001"), SentRequest("other", 2, "m2")]
        database.write(lambda connection: record_requests(connection, "spring", "shop", made))
        erase(database, ADA)
        left = re.sub(r"[^0-9]", "", all_rows(database))
        assert "8030000001" not in left
        assert outcomes(database) == {OBI: "undelivered"}
        with database.connect() as connection:
            ids = {row.reference: row.message_id for row in connection.execute(select(requests))}
        assert ids == {"pack": None, "other": "m2"}

    def test_number_is_erased_from_all_pages_of_rows(self, database: Database, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(erasure, "PAGE_ROWS", 3)
        others = [f"23480400000{number:02}" for number in range(10)]
        save_reports(database, *(report(one, "delivered", token=token_for(*others, ADA)) for one in (*others, ADA)))
        save_reports(
            database, *(report(ADA, "delivered", token=token_for(campaign=f"c{number}")) for number in range(5))
        )
        assert erase(database, ADA).rows == 12
        assert len(bodies(database)) == 10
        assert ADA not in all_rows(database)


ODD_BODIES = [
    '{"to": "+2348030000001", "score": 1e9999999999999999999}',
    '{"to": "+2348030000001", "score": -1.5E+99999999999999999999, "other": 1e-9999999999999999999}',
    '{"to": "+2348030000001", "score": ' + "9" * 100_000 + "}",
    '{"to": "+2348030000001", "score": 0.' + "0" * 100_000 + "1}",
    '{"to": "+2348030000001", "score": [NaN, Infinity, -Infinity]}',
    '{"to": "+2348030000001", "half": "\\ud800"}',
    '{"to": "+2348030000001", "in": ' + "[" * 100_000 + "]" * 100_000 + "}",
    '{"to": "+2348030000001", "in": "{\\"score\\": 1e9999999999999999999}"}',
    '{"to": "+2348030000001", "in": "' + "00 1" * 40_000 + '"}',
    '{"to": "+2348030000001", "in": "' + "8030000001 " * 20_000 + '"}',
    '{"to": "+2348030000001", "in": "%' + "%25" * 50_000 + '"}',
    '{"to": "+2348030000001", "in": "' + "a\u0301\u0327" * 30_000 + '"}',
    '{"to": "+2348030000001"',
]


class TestUnusualBodies:
    @pytest.mark.parametrize("body", ODD_BODIES, ids=range(len(ODD_BODIES)))
    def test_unusual_body_with_the_number_is_deleted_and_others_stay(self, sqlite_url: str, body: str) -> None:
        with open_database(sqlite_url) as database:
            save_reports(database, report(None, "delivered", token=token_for()))
            database.write(lambda connection: connection.execute(update(reports).values(body=body)))
            save_reports(database, report(OBI, "delivered", token=token_for(campaign="other")))
            erased = erase(database, ADA)
            assert (erased.rows, erased.unreadable) == (1, 0)
            assert [OBI in body for body in bodies(database)] == [True]

    def test_body_that_breaks_the_search_is_deleted_and_the_erasure_goes_on(
        self, database: Database, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        in_body = RecipientMatcher.in_body

        def fail(matcher: RecipientMatcher, body: str) -> bool:
            if "odd" in body:
                raise OverflowError(body)
            return in_body(matcher, body)

        monkeypatch.setattr(RecipientMatcher, "in_body", fail)
        save_reports(
            database,
            report(OBI, "delivered", token=token_for(), note="odd"),
            report(OBI, "delivered", token=token_for()),
        )
        save_reports(database, *(report(ADA, "delivered", token=token_for(campaign=name)) for name in ("a", "b", "z")))
        erased = erase(database, ADA)
        assert (erased.rows, erased.unreadable) == (6, 1)
        assert ADA not in all_rows(database)
        assert len(bodies(database)) == 1

    def test_search_for_a_number_takes_time_in_proportion_to_the_body(self) -> None:
        matcher = find(ADA)
        for unit in (
            "8030000001 ",
            "00 8030000001 ",
            "00234 ",
            "0 ",
            "234803",
            "2 3 4 8 0 3 ",
            "+(",
            "2026-05-01 ",
            "\u0301\u0327",
            "&#64;",
        ):
            assert growth(matcher.in_text, unit, 40_000) < LINEAR, unit


def test_report_that_joins_its_campaign_during_the_erasure_is_erased(url: str) -> None:
    reference = "cpaas-" + "a" * 24
    request = SentRequest(reference, 2, "m1")
    with open_database(url) as database, open_database(url) as sender:
        save_reports(database, report(ADA, "delivered", external_ref=reference))
        recorded: list[SentRequest] = []

        def record(connection: Any, cursor: Any, statement: str, *rest: Any) -> None:
            if "FROM cpaas_deliveries" in statement and not recorded:
                recorded.append(request)
                # A campaign whose rows have been read already.
                sender.write(lambda connection: record_requests(connection, "autumn", "shop", recorded))

        event.listen(database.engine, "after_cursor_execute", record)
        erased = erase(database, ADA)
        event.remove(database.engine, "after_cursor_execute", record)
        assert outcomes(database, "autumn") == {"": "delivered"}
        assert (len(recorded), erased.rows) == (1, 2)


class TestRecipientInFlight:
    def test_recipient_erased_in_flight_is_no_longer_waited_for(self, database: Database) -> None:
        database.write(lambda connection: record_recipients(connection, "spring", "shop", {"pack": [ADA, OBI]}))
        save_reports(database, report(OBI, "delivered", token=token_for()))
        assert counts(database) == (1, 0, 1)
        erase(database, ADA)
        assert counts(database) == (1, 1, 0)
        assert outcomes(database) == {"": "undelivered", OBI: "delivered"}

    def test_status_word_of_a_recipient_erased_in_flight_is_retained(self, database: Database) -> None:
        save_reports(database, report(ADA, "pending", token=token_for()))
        erase(database, ADA)
        with database.connect() as connection:
            row = connection.execute(select(deliveries)).one()
        assert (row.delivery_status, row.status, row.failed) == (DeliveryStatus.UNDELIVERED, "pending", False)

    def test_late_report_without_a_name_is_counted_once(self, database: Database) -> None:
        send = TrackedSend("spring", "send_sms", "shop", "dag", "run", "send", -1)
        database.write(lambda connection: record_send_started(connection, send))
        database.write(lambda connection: record_requests(connection, "spring", "shop", [SentRequest("pack", 1, "m1")]))
        database.write(lambda connection: record_recipients(connection, "spring", "shop", {"pack": [ADA]}))
        erase(database, ADA)
        for status, known in (("sent", (0, 1, 0)), ("delivered", (1, 0, 0))):
            save_reports(database, report(None, status, token=token_for(ADA)))
            assert counts(database) == known

    @pytest.mark.parametrize("written", [ADA, f"0{ADA[3:]}"])
    def test_late_report_in_any_spelling_is_counted_once(self, database: Database, written: str) -> None:
        request = SentRequest("pack", 2, "m1")
        database.write(lambda connection: record_requests(connection, "spring", "shop", [request]))
        save_reports(database, report(ADA, "sent", token=token_for()))
        erase(database, ADA)
        save_reports(
            database, report(written, "delivered", token=token_for()), report(OBI, "delivered", token=token_for())
        )
        assert outcomes(database) == {"": "delivered", OBI: "delivered"}
        assert counts(database) == (2, 0, 0)

    def test_erasure_of_a_recipient_in_flight_publishes_no_event(self, database: Database) -> None:
        database.write(lambda connection: record_recipients(connection, "spring", "shop", {"pack": [ADA]}))
        erase(database, ADA)
        delivery_events.detect_events(database, {delivery_events.MESSAGES_FAILED: received_report({}).at})
        with database.connect() as connection:
            assert delivery_events.unpublished(connection) == []


class TestDatabaseFile:
    def test_erased_number_is_gone_from_the_file_and_its_log(self, tmp_path: Path) -> None:
        path = tmp_path / "store.db"
        others = [f"23480400{number:05}" for number in range(1500)]
        all_of_them = token_for(*others, ADA)
        with open_database(f"sqlite:///{path}") as database, open_database(f"sqlite:///{path}") as receiver:
            save_reports(receiver, *(report(one, "sent", token=all_of_them) for one in others))
            save_reports(
                receiver, *(report(f"+{ADA}", "sent", token=all_of_them, reason=f"no {one}") for one in range(80))
            )
            save_reports(receiver, *(report(one, "failed", token=all_of_them, reason="x" * 200) for one in others))
            assert count_in_files(path) >= 80
            erased = erase(database, ADA)
            assert (erased.rows, erased.leftovers) == (81, False)
            assert count_in_files(path) == 0
            save_reports(receiver, report(OBI, "delivered", token=all_of_them))

    def test_rows_that_another_program_deleted_are_gone_from_the_file(self, tmp_path: Path) -> None:
        path = tmp_path / "store.db"
        with open_database(f"sqlite:///{path}") as database:
            save_reports(
                database, *(report(ADA, "sent", token=token_for(campaign=f"c{number}")) for number in range(200))
            )
            with database.engine.connect() as connection:
                connection.exec_driver_sql("PRAGMA secure_delete = OFF")
                connection.exec_driver_sql("DELETE FROM cpaas_reports")
                connection.exec_driver_sql("DELETE FROM cpaas_deliveries")
                connection.commit()
            assert count_in_files(path) > 0
            assert erase(database, ADA).rows == 0
            assert count_in_files(path) == 0

    def test_leftovers_are_reported_while_a_reader_holds_the_log(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        path = tmp_path / "store.db"
        monkeypatch.setattr(store, "LOCK_TIMEOUT", 0.05)
        with open_database(f"sqlite:///{path}") as database, open_database(f"sqlite:///{path}") as other:
            save_reports(database, report(ADA, "sent", token=token_for()))
            with other.connect() as reader:
                reader.exec_driver_sql("BEGIN")
                reader.execute(select(reports.c.digest)).all()
                assert erase(database, ADA).leftovers
            assert not erase(database, ADA).leftovers
            assert count_in_files(path) == 0


def count_in_files(path: Path) -> int:
    """Count the number in the database's files, in a process of its own."""
    files = [one for one in (path, Path(f"{path}-wal")) if one.exists()]
    counting = "import sys; print(sum(open(p,'rb').read().count(b'8030000001') for p in sys.argv[1:]))"
    done = subprocess.run(
        [sys.executable, "-c", counting, *map(str, files)], capture_output=True, check=True, text=True
    )
    return int(done.stdout)


@pytest.mark.parametrize(
    ("otp_id", "is_erased"), [(f"otp-+{ADA}-1", True), (f"otp-+{OBI}-1", False), ("4f0c-9a", False)]
)
def test_passcode_whose_id_names_the_recipient_stays_counted_without_it(
    database: Database, otp_id: str, *, is_erased: bool
) -> None:
    for name in (otp_id, "other"):
        database.write(
            lambda c, name=name: record_passcode(
                c, "shop", name, dag_id="dag", requested_at=datetime.now(UTC), expires_at=None
            )
        )
    assert erase(database, f"+{ADA}").rows == int(is_erased)
    with database.connect() as connection:
        left = set(connection.execute(select(passcodes.c.otp_id)).scalars())
    assert len(left) == 2
    assert ({otp_id, "other"} == left) is not is_erased
    assert not any(ADA in name for name in left)


@pytest.mark.parametrize(
    ("message_id", "remaining"),
    [
        (f"m-+{ADA}", {"cpaas_campaign_values": 1}),
        (ADA, {"cpaas_campaign_values": 1}),
        (f"m-+{OBI}", {}),
        # A time in seconds, for example. It has the digits of a national number.
        (ADA[3:], {}),
    ],
    ids=["made of the number", "the number", "of another number", "time"],
)
@pytest.mark.parametrize("is_single", [True, False], ids=["single", "campaign"])
def test_journal_with_an_id_made_from_the_number_is_reported_as_remaining(
    database: Database, message_id: str, remaining: dict[str, int], *, is_single: bool
) -> None:
    state = LeasedState(database, "spring/0", "owner")
    database.write(state.acquire_within)
    extra = {"id": message_id} if is_single else None
    result = Result(0, State.ACCEPTED, None if is_single else (message_id, 2.5, 97.5), extra=extra)
    segment = Segment(
        "key", "nonce", "send_sms", batches=[LogEntry(datetime.now(UTC), 1, 0, "body", [], [result]).as_text()]
    )
    state.set("cpaas_journal", segment.as_json())
    erase(database, f"+{ADA}")
    assert find_remaining(database, f"+{ADA}") == remaining
