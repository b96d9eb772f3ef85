"""Which delivery reports put a recipient on the suppression list, and on whose."""

from __future__ import annotations

from datetime import timedelta

import pytest

from cpaas_provider.database.database import Database
from cpaas_provider.database.recipients.suppressions import HARD_BOUNCE, INVALID_NUMBER, SuppressionTable
from cpaas_provider.delivery.receiver.writer import StoreResult
from tests.unit.delivery.report_builders import (
    ADA,
    OBI,
    UMA,
    WHEN,
    report,
    save_recipients,
    save_reports,
    start_send,
    token_for,
)

CY = "cy@example.com"


def at(seconds: float) -> str:
    """Return the time that a report gives itself, relative to its arrival."""
    return (WHEN + timedelta(seconds=seconds)).isoformat()


def listed(database: Database, conn_id: str = "shop") -> dict[str, str]:
    """Return why recipients are on the list of a connection."""
    table = SuppressionTable(database)
    return table.find([ADA, OBI, UMA], conn_id, "sms") | table.find([CY], conn_id, "email")


class TestListedFailures:
    @pytest.mark.parametrize("reason", ["Unknown subscriber", "INVALID NUMBER", "The number does not exist."])
    def test_invalid_number_is_listed(self, database: Database, reason: str) -> None:
        start_send(database)
        save_reports(database, report(ADA, "undelivered", token=token_for(ADA), reason=reason))
        assert listed(database) == {ADA: INVALID_NUMBER}

    @pytest.mark.parametrize("status", ["failed", "rejected"])
    def test_other_status_words_for_undelivered_count(self, database: Database, status: str) -> None:
        start_send(database)
        save_reports(database, report(ADA, status, token=token_for(ADA), reason="Unknown subscriber"))
        assert listed(database) == {ADA: INVALID_NUMBER}

    def test_event_of_the_account_webhook_counts(self, database: Database) -> None:
        save_reports(
            database,
            report(ADA, "", message_id="m-1", event="text.undelivered", reason="Unknown subscriber"),
            report(CY, "", message_id="m-2", event="email.bounced", reason="550 5.1.1 User unknown"),
        )
        assert listed(database) == {ADA: INVALID_NUMBER, CY: HARD_BOUNCE}

    @pytest.mark.parametrize(
        ("status", "reason"),
        [
            ("undelivered", "Absent subscriber"),
            ("undelivered", "Handset memory full"),
            ("undelivered", "Blocked by the operator"),
            ("undelivered", "Temporary failure: unknown subscriber, try again"),
            ("undelivered", None),
            ("expired", "Absent subscriber"),
            ("delivered", "Unknown subscriber"),
            ("sent", "Unknown subscriber"),
        ],
    )
    def test_report_without_a_permanent_failure_is_not_listed(
        self, database: Database, status: str, reason: str | None
    ) -> None:
        start_send(database)
        save_reports(database, report(ADA, status, token=token_for(ADA), reason=reason))
        assert listed(database) == {}

    @pytest.mark.parametrize("reason", ["Mailbox full", "Rejected by the recipient", None])
    def test_soft_bounce_is_not_listed(self, database: Database, reason: str | None) -> None:
        save_reports(database, report(CY, "bounced", message_id="m-1", reason=reason))
        assert listed(database) == {}

    def test_failed_airtime_lists_no_recipient(self, database: Database) -> None:
        said = {"event": "airtime.failed", "reason": "Invalid number"}
        save_reports(database, report(ADA, "", message_id="m-1", **said))
        assert listed(database) == {}

    def test_words_of_reasons_are_configured(self, database: Database, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setenv("AIRFLOW__CPAAS__HARD_BOUNCE_REASONS", "bounced")
        monkeypatch.setenv("AIRFLOW__CPAAS__INVALID_NUMBER_REASONS", "")
        save_reports(
            database,
            report(CY, "bounced", message_id="m-1"),
            report(ADA, "undelivered", message_id="m-2", reason="Unknown subscriber"),
        )
        assert listed(database) == {CY: HARD_BOUNCE}


class TestListedRecipient:
    def test_list_of_another_connection_is_not_changed(self, database: Database) -> None:
        save_reports(database, report(ADA, "undelivered", message_id="m-1", reason="Unknown subscriber"))
        assert listed(database) == {ADA: INVALID_NUMBER}
        assert listed(database, "bank") == {}

    def test_report_about_a_stranger_to_its_request_lists_no_recipient(self, database: Database) -> None:
        start_send(database)
        save_recipients(database, ADA, OBI)
        token = token_for(ADA, OBI)
        stranger = report(UMA, "undelivered", token=token, reason="Unknown subscriber")
        assert save_reports(database, stranger) == [StoreResult.EXCESS]
        assert listed(database) == {}

    def test_report_without_a_number_lists_the_only_recipient_of_its_request(self, database: Database) -> None:
        start_send(database)
        save_recipients(database, ADA)
        save_reports(database, report("", "undelivered", token=token_for(ADA), reason="Unknown subscriber"))
        assert listed(database) == {ADA: INVALID_NUMBER}

    def test_report_without_a_number_lists_no_recipient_while_none_is_recorded(self, database: Database) -> None:
        start_send(database)
        save_reports(database, report("", "undelivered", token=token_for(ADA), reason="Unknown subscriber"))
        assert listed(database) == {}

    @pytest.mark.parametrize("at_once", [True, False])
    def test_recipient_that_the_message_was_delivered_to_is_not_listed(self, database: Database, at_once: bool) -> None:
        start_send(database)
        token = token_for(ADA, OBI)
        delivered = report(ADA, "delivered", token=token)
        failed = report(ADA, "undelivered", token=token, reason="Unknown subscriber")
        for reports in [(delivered, failed)] if at_once else [(delivered,), (failed,)]:
            save_reports(database, *reports)
        assert listed(database) == {}

    def test_address_that_bounced_after_delivery_is_listed(self, database: Database) -> None:
        start_send(database)
        token = token_for(CY, "dee@example.com")
        bounced = report(CY, "bounced", token=token, reason="550 5.1.1 User unknown", channel="email")
        save_reports(database, report(CY, "delivered", token=token, timestamp=at(-60)), bounced)
        assert listed(database) == {CY: HARD_BOUNCE}

    def test_duplicate_report_after_a_removal_lists_no_recipient(self, database: Database) -> None:
        one = report(ADA, "undelivered", message_id="m-1", reason="Unknown subscriber")
        save_reports(database, one)
        assert SuppressionTable(database).remove([ADA]) == 1
        assert save_reports(database, one) == [StoreResult.REPEATED]
        assert listed(database) == {}

    def test_receiver_without_the_secret_stores_the_report(
        self, database: Database, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
    ) -> None:
        with monkeypatch.context() as patch:
            patch.setenv("AIRFLOW__CPAAS__RECIPIENT_SECRET", "old")
            save_reports(database, report(ADA, "undelivered", message_id="m-1", reason="Unknown subscriber"))
        other = report(OBI, "undelivered", message_id="m-2", reason="Unknown subscriber")
        assert save_reports(database, other) == [StoreResult.NEW]
        assert "The suppression list did not get 1 recipients" in caplog.text
        assert OBI not in caplog.text
