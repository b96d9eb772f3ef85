"""A request of unknown outcome of which a part was sent again: it is finished only once each other one is final."""

from __future__ import annotations

import datetime as dt

import pytest

from cpaas_provider.cli.journal.instances import Found, Instance
from cpaas_provider.cli.journal.tracking import record_in_database
from cpaas_provider.database.database import Database
from cpaas_provider.database.schema.delivery import RequestState
from cpaas_provider.delivery.tracking.counts import read_sends
from cpaas_provider.delivery.tracking.erasure import erase
from cpaas_provider.delivery.tracking.events import CAMPAIGN_FINISHED, detect_events, unpublished
from cpaas_provider.delivery.tracking.sent_requests import SentRequest
from cpaas_provider.sending.journal.model import State
from cpaas_provider.sending.journal.resolution import Resolution
from cpaas_provider.sending.journal.view import JournalView
from cpaas_provider.sensors.delivery import DeliverySensor
from tests.unit.delivery.report_builders import (
    ADA,
    OBI,
    UMA,
    finish_send,
    report,
    save_reports,
    save_requests,
    start_send,
    token_for,
)
from tests.unit.sending.journal.test_view import log_of

FIRST, AGAIN = token_for(ADA, OBI, UMA, reference="first"), token_for(ADA, reference="again")
ALL_TIME = {CAMPAIGN_FINISHED: dt.datetime(2000, 1, 1, tzinfo=dt.UTC)}


@pytest.fixture
def partly_resent(database: Database) -> Database:
    """A campaign with a request to three, of which only ADA was sent to again."""
    start_send(database)
    save_requests(
        database,
        SentRequest("first", 3, state=RequestState.UNKNOWN, unknown=2),
        SentRequest("again", 1),
    )
    finish_send(database, expected=1)
    return database


def is_finished(database: Database) -> bool:
    detect_events(database, ALL_TIME)
    with database.connect() as connection:
        return bool(unpublished(connection))


@pytest.mark.parametrize("name", [ADA, None, "08030000001", "8030000001"])
def test_resent_recipient_does_not_count_for_another(partly_resent: Database, name: str | None) -> None:
    """Whatever the reports of the second request call it."""
    save_reports(partly_resent, report(name, "delivered", token=AGAIN))
    save_reports(partly_resent, *(report(one, "delivered", token=FIRST) for one in (ADA, OBI)))
    assert not is_finished(partly_resent)
    save_reports(partly_resent, report(UMA, "failed", token=FIRST))
    assert is_finished(partly_resent)


@pytest.mark.parametrize(
    ("numbers", "national"),
    [
        ((ADA, OBI, UMA), "08030000001"),
        ((ADA, OBI, UMA), "8030000001"),
        (("79161234567", "79161234568", "79161234569"), "89161234567"),
    ],
)
def test_resent_recipient_in_national_form_does_not_count_for_another(
    partly_resent: Database, numbers: tuple[str, str, str], national: str
) -> None:
    repeated, second, third = numbers
    save_reports(partly_resent, report(repeated, "delivered", token=AGAIN))
    save_reports(partly_resent, *(report(one, "delivered", token=FIRST) for one in (national, second)))
    assert not is_finished(partly_resent)
    save_reports(partly_resent, report(third, "failed", token=FIRST))
    assert is_finished(partly_resent)


def test_erased_resent_recipient_does_not_count_for_another(partly_resent: Database) -> None:
    save_reports(partly_resent, report(ADA, "delivered", token=AGAIN), report(ADA, "delivered", token=FIRST))
    erase(partly_resent, f"+{ADA}")
    save_reports(partly_resent, report(OBI, "delivered", token=FIRST))
    assert not is_finished(partly_resent)
    save_reports(partly_resent, report(UMA, "failed", token=FIRST))
    assert is_finished(partly_resent)


def test_sensor_waits_for_the_recipient_without_a_report(
    partly_resent: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    url = partly_resent.engine.url.render_as_string(hide_password=False)
    monkeypatch.setenv("AIRFLOW__CPAAS__DATABASE", url)
    result = {"reference": "spring", "sent": 1, "unknown_recipients": 2, "delivery_reports": "callback"}
    sensor = DeliverySensor(task_id="wait", send_result=result, wait_for_unknown=True, deferrable=False)
    save_reports(partly_resent, report(None, "delivered", token=AGAIN))
    save_reports(partly_resent, *(report(one, "delivered", token=FIRST) for one in (ADA, OBI)))
    assert sensor.poke({}) is False
    save_reports(partly_resent, report(UMA, "failed", token=FIRST))
    assert sensor.poke({})


def test_campaign_finishes_if_only_the_resend_reports_the_resent_recipient(partly_resent: Database) -> None:
    save_reports(partly_resent, report(ADA, "delivered", token=AGAIN))
    save_reports(partly_resent, *(report(one, "delivered", token=FIRST) for one in (OBI, UMA)))
    assert is_finished(partly_resent)


def test_first_message_in_flight_to_a_resent_recipient_does_not_delay_the_finish(partly_resent: Database) -> None:
    save_reports(partly_resent, report(ADA, "delivered", token=AGAIN), report(ADA, "sent", token=FIRST))
    save_reports(partly_resent, *(report(one, "delivered", token=FIRST) for one in (OBI, UMA)))
    detect_events(partly_resent, {CAMPAIGN_FINISHED: dt.datetime.now(dt.UTC) + dt.timedelta(seconds=1)})
    # It had finished before anything was to be published.
    assert not is_finished(partly_resent)


def count_unknown(database: Database) -> int | None:
    with database.connect() as connection:
        return read_sends(connection, ["spring"])["spring"].unknown


def test_first_report_of_a_resent_recipient_does_not_lower_the_unknown_number(
    partly_resent: Database,
) -> None:
    """No row says yet that ADA is in the second request. It may be any of the three."""
    save_reports(partly_resent, report(ADA, "delivered", token=FIRST))
    assert count_unknown(partly_resent) == 2
    save_reports(partly_resent, report(OBI, "delivered", token=FIRST))
    assert count_unknown(partly_resent) == 1
    save_reports(partly_resent, report(ADA, "delivered", token=AGAIN))
    assert count_unknown(partly_resent) == 1
    save_reports(partly_resent, report(UMA, "delivered", token=FIRST))
    assert count_unknown(partly_resent) == 0


def test_recipient_that_the_resend_rejected_stays_unknown_until_its_report(database: Database) -> None:
    """A request to three of which ADA was sent to again, and OBI was rejected."""
    start_send(database)
    first = SentRequest("first", 3, state=RequestState.UNKNOWN, unknown=2)
    save_requests(database, first, SentRequest("again", 1, rejected=(OBI,)))
    finish_send(database, expected=1)
    save_reports(database, report(ADA, "delivered", token=AGAIN))
    assert count_unknown(database) == 2
    save_reports(database, report(OBI, "delivered", token=FIRST))
    assert count_unknown(database) == 1
    assert not is_finished(database)
    save_reports(database, report(UMA, "failed", token=FIRST))
    assert count_unknown(database) == 0
    assert is_finished(database)


@pytest.mark.parametrize("decision", [Resolution.NOT_SENT, Resolution.SENT])
def test_first_request_stays_unknown_if_its_resend_is_resolved_as_not_sent(
    database: Database, monkeypatch: pytest.MonkeyPatch, decision: Resolution
) -> None:
    """A request to ADA and OBI is unknown, and so is its resend to ADA alone."""
    monkeypatch.setenv("AIRFLOW__CPAAS__DATABASE", database.engine.url.render_as_string(hide_password=False))
    start_send(database)
    again = SentRequest("again", 1, state=RequestState.UNKNOWN, unknown=1)
    save_requests(database, SentRequest("first", 2, state=RequestState.UNKNOWN, unknown=1), again)
    finish_send(database, expected=0)
    journal = JournalView.read(log_of(("first", "ao", State.UNKNOWN), ("again", "a", State.UNKNOWN)).get)
    instance = Instance("dag", "run", "send")
    said = record_in_database(
        instance, Found(instance, journal, {}), journal.resolve(decision, ["again"]), decision, None
    )
    assert said is not None
    assert said.startswith("Recorded for delivery tracking: 1 request of spring")
    is_sent = decision is Resolution.SENT
    with database.connect() as connection:
        assert read_sends(connection, ["spring"])["spring"] == ((1, 1) if is_sent else (0, 2))
    if is_sent:
        save_reports(database, report(ADA, "delivered", token=AGAIN))
    save_reports(database, report(OBI, "delivered", token=token_for(ADA, OBI, reference="first")))
    assert is_finished(database) is is_sent
