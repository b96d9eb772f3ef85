"""Two connections in one store: what is proved with one of them changes nothing of what the other sent."""

from __future__ import annotations

import asyncio
import datetime as dt
from types import SimpleNamespace
from typing import Any

import pytest

from cpaas_provider.database.database import Database
from cpaas_provider.delivery.receiver.secrets_cache import ConnectionSecrets
from cpaas_provider.delivery.tracking.events import KINDS, MESSAGES_FAILED, DeliveryEvent, detect_events, unpublished
from cpaas_provider.delivery.tracking.sent_requests import SentRequest
from cpaas_provider.sending.journal.model import RequestRecord
from cpaas_provider.sources.delivery_events import DeliveryEventSource
from cpaas_provider.tasks.delivery.tracker import DeliveryReportProbe, PurchaseReportProbe
from cpaas_provider.triggers.delivery import DeliveryTrigger
from tests.unit.delivery.report_builders import (
    ADA,
    OBI,
    UMA,
    counts,
    finish_send,
    outcomes,
    report,
    save_reports,
    save_requests,
    start_send,
    token_for,
)
from tests.unit.delivery.running_receiver import serving
from tests.unit.sending.records import record

OURS = "cpaas-" + "a" * 24
STRANGER = "2348039999999"
STAGING = ConnectionSecrets(("of-staging",), "of-staging-webhooks", "X-Signature")
EVER = dict.fromkeys(KINDS, dt.datetime(2000, 1, 1, tzinfo=dt.UTC))


def collect_events(database: Database) -> list[DeliveryEvent]:
    detect_events(database, EVER)
    with database.connect() as connection:
        return unpublished(connection)


@pytest.fixture
def sent(database: Database) -> Database:
    """A campaign of the connection shop: a request to two, which the service calls 1001."""
    start_send(database)
    save_requests(database, SentRequest(OURS, 2, "1001"))
    finish_send(database, expected=2)
    return database


class TestReportOfAnotherConnection:
    @pytest.mark.parametrize("name", [{"id": "1001"}, {"external_ref": OURS}, {"id": "1001", "external_ref": OURS}])
    def test_webhook_report_of_another_connection_changes_nothing(self, sent: Database, name: dict[str, str]) -> None:
        save_reports(sent, *(report(phone, "delivered", conn_id="staging", **name) for phone in (ADA, STRANGER)))
        assert counts(sent) == (0, 0, 0)
        assert outcomes(sent) == {}
        save_reports(sent, *(report(phone, "failed", **name) for phone in (ADA, OBI)))
        assert outcomes(sent) == {ADA: "undelivered", OBI: "undelivered"}

    def test_callback_report_of_another_connection_changes_nothing(self, sent: Database) -> None:
        save_reports(sent, report(ADA, "delivered", token=token_for(ADA, OBI, reference=OURS), conn_id="staging"))
        assert outcomes(sent) == {}

    def test_same_message_id_on_two_connections_counts_for_the_campaign_of_each(self, sent: Database) -> None:
        start_send(sent, "rehearsal", "staging")
        save_requests(sent, SentRequest(OURS, 1, "1001"), campaign="rehearsal", conn_id="staging")
        finish_send(sent, "rehearsal", expected=1)
        save_reports(sent, report(UMA, "delivered", id="1001", conn_id="staging"), report(ADA, "failed", id="1001"))
        assert (outcomes(sent), outcomes(sent, "rehearsal")) == ({ADA: "undelivered"}, {UMA: "delivered"})

    @pytest.mark.parametrize("name", [{"id": "1001"}, {"external_ref": OURS}])
    def test_early_report_counts_only_for_a_send_of_its_connection(
        self, database: Database, name: dict[str, str]
    ) -> None:
        save_reports(database, report(ADA, "delivered", conn_id="staging", **name), report(ADA, "failed", **name))
        save_reports(database, report(STRANGER, "delivered", conn_id="staging", **name))
        start_send(database)
        save_requests(database, SentRequest(OURS, 2, "1001"))
        finish_send(database, expected=2)
        assert outcomes(database) == {ADA: "undelivered"}
        start_send(database, "rehearsal", "staging")
        save_requests(database, SentRequest("cpaas-" + "b" * 24, 2, "1001"), campaign="rehearsal", conn_id="staging")
        assert outcomes(database, "rehearsal").keys() == ({ADA, STRANGER} if "id" in name else set())

    def test_early_report_counts_only_for_a_single_send_of_its_connection(self, database: Database) -> None:
        save_reports(database, report(STRANGER, "delivered", external_ref=OURS, conn_id="staging"))
        start_send(database, OURS)
        save_requests(database, SentRequest(OURS, 1, "1001"), campaign=OURS)
        finish_send(database, OURS, expected=1)
        assert outcomes(database, OURS) == {}
        save_reports(database, report(ADA, "failed", external_ref=OURS))
        assert outcomes(database, OURS) == {ADA: "undelivered"}

    def test_unrecorded_reference_on_two_connections_counts_for_neither(self, database: Database) -> None:
        save_reports(database, report(ADA, "delivered", external_ref=OURS))
        assert counts(database, OURS) == (1, 0, 0)
        save_reports(database, report(STRANGER, "delivered", external_ref=OURS, conn_id="staging"))
        assert counts(database, OURS) == (0, 0, 0)
        assert outcomes(database, OURS) == {}


class TestEventsOfTwoConnections:
    def test_report_of_another_connection_finishes_no_campaign(self, sent: Database) -> None:
        for token in (None, token_for(ADA, OBI, reference=OURS)):
            told = {"token": token} if token else {"id": "1001"}
            save_reports(sent, *(report(phone, "delivered", conn_id="staging", **told) for phone in (ADA, OBI)))
        assert collect_events(sent) == []

    def test_failure_is_published_for_the_connection_that_reported_it(self, sent: Database) -> None:
        save_reports(sent, report(STRANGER, "failed", token=token_for(ADA, OBI, reference=OURS), conn_id="staging"))
        save_reports(sent, report(ADA, "failed", id="1001"))
        found = {(one.kind, one.conn_id, one.campaign, one.facts["recipients"]) for one in collect_events(sent)}
        assert found == {(MESSAGES_FAILED, "shop", "spring", 1), (MESSAGES_FAILED, "staging", "", 1)}

    def test_event_source_has_only_recipients_reported_on_its_connection(
        self, sent: Database, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setenv("AIRFLOW__CPAAS__DATABASE", sent.engine.url.render_as_string(hide_password=False))
        save_reports(sent, report(STRANGER, "failed", token=token_for(ADA, OBI, reference=OURS), conn_id="staging"))
        save_reports(sent, report(ADA, "failed", id="1001"))
        with DeliveryEventSource("spring").open() as table:
            assert [row.values for row in table.rows(["recipient"])] == [(f"+{ADA}",)]

    def test_report_of_another_connection_ends_no_wait(self, sent: Database, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setenv("AIRFLOW__CPAAS__DATABASE", sent.engine.url.render_as_string(hide_password=False))
        save_reports(sent, *(report(phone, "delivered", id="1001", conn_id="staging") for phone in (ADA, OBI)))
        now = dt.datetime.now(dt.UTC).isoformat()

        async def told() -> dict[str, Any]:
            async for event in DeliveryTrigger(["spring"], 2, None, now, 1).run():
                return dict(event.payload)
            raise AssertionError

        result = asyncio.run(told())
        assert (result["outcome"], result["delivered"], result["unreported"]) == ("timed_out", 0, 2)


class TestReportProbes:
    @pytest.fixture
    def request_(self) -> RequestRecord:
        return record(OURS, "buy_airtime", started_at=dt.datetime(2026, 1, 1, tzinfo=dt.UTC))

    @pytest.mark.parametrize("probe_type", [DeliveryReportProbe, PurchaseReportProbe])
    @pytest.mark.parametrize("by_token", [True, False])
    def test_probe_finds_only_reports_of_its_connection(
        self, database: Database, request_: RequestRecord, probe_type: Any, by_token: bool
    ) -> None:
        evidence = probe_type(SimpleNamespace(database=database, conn_id="shop"))
        token = token_for(ADA, campaign=OURS, reference=OURS) if by_token else None
        for conn_id, found in (("staging", None), ("shop", "m1")):
            told = report(ADA, "success", token=token, conn_id=conn_id, external_ref=OURS, id="m1")
            save_reports(database, told)
            result = asyncio.run(evidence.check(None, request_))
            assert (result and result["id"]) == found

    def test_probe_ignores_requests_that_another_connection_recorded(
        self, database: Database, request_: RequestRecord
    ) -> None:
        save_requests(database, SentRequest(OURS, 1, "m1"), campaign=OURS, conn_id="staging")
        probe = DeliveryReportProbe(SimpleNamespace(database=database, conn_id="shop"))  # type: ignore[arg-type]
        assert asyncio.run(probe.check(None, request_)) is None  # type: ignore[arg-type]


def test_secret_over_http_reports_only_on_its_connection(sent: Database) -> None:
    with serving(sent) as served:
        served.connections["staging"] = STAGING
        body = {"id": "1001", "external_ref": OURS, "recipient": STRANGER, "status": "delivered"}
        assert served.post_signed(body, "of-staging-webhooks", "staging").status_code == 200
        url = served.callback(token_for(ADA, OBI, reference=OURS), "staging", "of-staging")
        assert served.post(url, {**body, "recipient": ADA}).status_code == 200
        assert (counts(sent), outcomes(sent)) == ((0, 0, 0), {})
        assert served.post_signed({**body, "recipient": OBI}).status_code == 200
    assert outcomes(sent) == {OBI: "delivered"}
