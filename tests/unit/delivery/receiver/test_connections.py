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
    begun,
    counts,
    ended,
    noted,
    outcomes,
    report,
    save_reports,
    to,
)
from tests.unit.delivery.running_receiver import serving
from tests.unit.sending.records import record

OURS = "cpaas-" + "a" * 24
STRANGER = "2348039999999"
STAGING = ConnectionSecrets(("of-staging",), "of-staging-webhooks", "X-Signature")
EVER = dict.fromkeys(KINDS, dt.datetime(2000, 1, 1, tzinfo=dt.UTC))


def collected(database: Database) -> list[DeliveryEvent]:
    detect_events(database, EVER)
    with database.connect() as connection:
        return unpublished(connection)


@pytest.fixture
def sent(database: Database) -> Database:
    """A campaign of the connection shop: a request to two, which the service calls 1001."""
    begun(database)
    noted(database, SentRequest(OURS, 2, "1001"))
    ended(database, expected=2)
    return database


class TestAReportOfAnotherConnection:
    @pytest.mark.parametrize("name", [{"id": "1001"}, {"external_ref": OURS}, {"id": "1001", "external_ref": OURS}])
    def test_of_the_same_message_changes_nothing(self, sent: Database, name: dict[str, str]) -> None:
        save_reports(sent, *(report(phone, "delivered", conn_id="staging", **name) for phone in (ADA, STRANGER)))
        assert counts(sent) == (0, 0, 0)
        assert outcomes(sent) == {}
        save_reports(sent, *(report(phone, "failed", **name) for phone in (ADA, OBI)))
        assert outcomes(sent) == {ADA: "undelivered", OBI: "undelivered"}

    def test_by_a_callback_url_of_its_own_changes_nothing(self, sent: Database) -> None:
        save_reports(sent, report(ADA, "delivered", token=to(ADA, OBI, reference=OURS), conn_id="staging"))
        assert outcomes(sent) == {}

    def test_of_a_message_that_both_have_is_that_of_its_own(self, sent: Database) -> None:
        begun(sent, "rehearsal", "staging")
        noted(sent, SentRequest(OURS, 1, "1001"), campaign="rehearsal", conn_id="staging")
        ended(sent, "rehearsal", expected=1)
        save_reports(sent, report(UMA, "delivered", id="1001", conn_id="staging"), report(ADA, "failed", id="1001"))
        assert (outcomes(sent), outcomes(sent, "rehearsal")) == ({ADA: "undelivered"}, {UMA: "delivered"})

    @pytest.mark.parametrize("name", [{"id": "1001"}, {"external_ref": OURS}])
    def test_that_comes_before_the_send_is_noted_stays_its_own(self, database: Database, name: dict[str, str]) -> None:
        save_reports(database, report(ADA, "delivered", conn_id="staging", **name), report(ADA, "failed", **name))
        save_reports(database, report(STRANGER, "delivered", conn_id="staging", **name))
        begun(database)
        noted(database, SentRequest(OURS, 2, "1001"))
        ended(database, expected=2)
        assert outcomes(database) == {ADA: "undelivered"}
        begun(database, "rehearsal", "staging")
        noted(database, SentRequest("cpaas-" + "b" * 24, 2, "1001"), campaign="rehearsal", conn_id="staging")
        assert outcomes(database, "rehearsal").keys() == ({ADA, STRANGER} if "id" in name else set())

    def test_that_comes_before_a_request_that_is_a_campaign_by_itself_is_not_its(self, database: Database) -> None:
        save_reports(database, report(STRANGER, "delivered", external_ref=OURS, conn_id="staging"))
        begun(database, OURS)
        noted(database, SentRequest(OURS, 1, "1001"), campaign=OURS)
        ended(database, OURS, expected=1)
        assert outcomes(database, OURS) == {}
        save_reports(database, report(ADA, "failed", external_ref=OURS))
        assert outcomes(database, OURS) == {ADA: "undelivered"}

    def test_of_what_nobody_noted_counts_for_neither(self, database: Database) -> None:
        save_reports(database, report(ADA, "delivered", external_ref=OURS))
        assert counts(database, OURS) == (1, 0, 0)
        save_reports(database, report(STRANGER, "delivered", external_ref=OURS, conn_id="staging"))
        assert counts(database, OURS) == (0, 0, 0)
        assert outcomes(database, OURS) == {}


class TestWhatIsStarted:
    def test_no_campaign_of_another_connection_is_finished(self, sent: Database) -> None:
        for token in (None, to(ADA, OBI, reference=OURS)):
            told = {"token": token} if token else {"id": "1001"}
            save_reports(sent, *(report(phone, "delivered", conn_id="staging", **told) for phone in (ADA, OBI)))
        assert collected(sent) == []

    def test_what_failed_is_told_to_whoever_waits_for_that_connection(self, sent: Database) -> None:
        save_reports(sent, report(STRANGER, "failed", token=to(ADA, OBI, reference=OURS), conn_id="staging"))
        save_reports(sent, report(ADA, "failed", id="1001"))
        found = {(one.kind, one.conn_id, one.campaign, one.facts["recipients"]) for one in collected(sent)}
        assert found == {(MESSAGES_FAILED, "shop", "spring", 1), (MESSAGES_FAILED, "staging", "", 1)}

    def test_nobody_but_its_own_recipients_is_in_a_campaign_s_source(
        self, sent: Database, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setenv("AIRFLOW__CPAAS__DATABASE", sent.engine.url.render_as_string(hide_password=False))
        save_reports(sent, report(STRANGER, "failed", token=to(ADA, OBI, reference=OURS), conn_id="staging"))
        save_reports(sent, report(ADA, "failed", id="1001"))
        with DeliveryEventSource("spring").open() as table:
            assert [row.values for row in table.rows(["recipient"])] == [(f"+{ADA}",)]

    def test_no_wait_for_another_connection_ends(self, sent: Database, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setenv("AIRFLOW__CPAAS__DATABASE", sent.engine.url.render_as_string(hide_password=False))
        save_reports(sent, *(report(phone, "delivered", id="1001", conn_id="staging") for phone in (ADA, OBI)))
        now = dt.datetime.now(dt.UTC).isoformat()

        async def told() -> dict[str, Any]:
            async for event in DeliveryTrigger(["spring"], 2, None, now, 1).run():
                return dict(event.payload)
            raise AssertionError

        result = asyncio.run(told())
        assert (result["outcome"], result["delivered"], result["unreported"]) == ("timed_out", 0, 2)


class TestEvidence:
    @pytest.fixture
    def request_(self) -> RequestRecord:
        return record(OURS, "buy_airtime", started_at=dt.datetime(2026, 1, 1, tzinfo=dt.UTC))

    @pytest.mark.parametrize("way", [DeliveryReportProbe, PurchaseReportProbe])
    @pytest.mark.parametrize("by_ticket", [True, False])
    def test_is_a_report_of_its_own_connection(
        self, database: Database, request_: RequestRecord, way: Any, by_ticket: bool
    ) -> None:
        evidence = way(SimpleNamespace(database=database, conn_id="shop"))
        token = to(ADA, campaign=OURS, reference=OURS) if by_ticket else None
        for conn_id, found in (("staging", None), ("shop", "m1")):
            told = report(ADA, "success", token=token, conn_id=conn_id, external_ref=OURS, id="m1")
            save_reports(database, told)
            result = asyncio.run(evidence.check(None, request_))
            assert (result and result["id"]) == found

    def test_is_no_request_that_another_connection_has_noted(self, database: Database, request_: RequestRecord) -> None:
        noted(database, SentRequest(OURS, 1, "m1"), campaign=OURS, conn_id="staging")
        probe = DeliveryReportProbe(SimpleNamespace(database=database, conn_id="shop"))  # type: ignore[arg-type]
        assert asyncio.run(probe.check(None, request_)) is None  # type: ignore[arg-type]


def test_over_http_a_secret_reports_on_its_own_connection_alone(sent: Database) -> None:
    with serving(sent) as served:
        served.connections["staging"] = STAGING
        body = {"id": "1001", "external_ref": OURS, "recipient": STRANGER, "status": "delivered"}
        assert served.post_signed(body, "of-staging-webhooks", "staging").status_code == 200
        url = served.callback(to(ADA, OBI, reference=OURS), "staging", "of-staging")
        assert served.post(url, {**body, "recipient": ADA}).status_code == 200
        assert (counts(sent), outcomes(sent)) == ((0, 0, 0), {})
        assert served.post_signed({**body, "recipient": OBI}).status_code == 200
    assert outcomes(sent) == {OBI: "delivered"}
