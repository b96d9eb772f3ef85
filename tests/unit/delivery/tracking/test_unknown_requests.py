"""Reports of requests of unknown outcome: they count beside the accepted recipients, never in the place of one."""

from __future__ import annotations

import datetime as dt
from typing import Any

import pytest
from sqlalchemy import select, update

from cpaas_provider.database.activity.progress import CAMPAIGN, RUNNING, RecordedTask, record_progress
from cpaas_provider.database.database import Database
from cpaas_provider.database.schema.delivery import RequestState, sends
from cpaas_provider.delivery.callbacks.tokens import CallbackToken
from cpaas_provider.delivery.tracking.counts import read_counts, read_sends
from cpaas_provider.delivery.tracking.events import (
    CAMPAIGN_FINISHED,
    KINDS,
    MESSAGES_FAILED,
    DeliveryEvent,
    detect_events,
    unpublished,
)
from cpaas_provider.delivery.tracking.sent_requests import SentRequest, record_resolution, record_states
from cpaas_provider.sensors.delivery import DeliverySensor
from cpaas_provider.sources.delivery_events import DeliveryEventSource
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

EVER = dict.fromkeys(KINDS, dt.datetime(2000, 1, 1, tzinfo=dt.UTC))
SURE, LOST = to(ADA, OBI, reference="sure"), CallbackToken("spring", "lost", 10)
FIGURES = ("recipients", "delivered", "undelivered", "unreported")
OTHERS = [f"23480200000{number:02}" for number in range(10)]


@pytest.fixture
def sent(database: Database, monkeypatch: pytest.MonkeyPatch) -> Database:
    """A campaign of which the service accepted a request to two; of one to ten nobody knows."""
    monkeypatch.setenv("AIRFLOW__CPAAS__DATABASE", database.engine.url.render_as_string(hide_password=False))
    begun(database)
    noted(database, SentRequest("sure", 2))
    ended(database, expected=2, unknown=10)
    return database


def make_older(database: Database, age: dt.timedelta) -> None:
    """Move the end of every send into the past."""
    with database.connect() as connection:
        ends = connection.execute(select(sends.c.campaign, sends.c.ended_at)).all()
    for campaign, ended_at in ends:
        change = update(sends).where(sends.c.campaign == campaign).values(ended_at=ended_at - age)
        database.write(lambda connection, change=change: connection.execute(change))


def finished(database: Database) -> list[DeliveryEvent]:
    detect_events(database, EVER)
    with database.connect() as connection:
        return [one for one in unpublished(connection) if one.kind == CAMPAIGN_FINISHED]


async def looked(*campaigns: str, accepted: int = 2, share: float | None = None, **more: Any) -> dict[str, Any]:
    """Return what a sensor is told that looks now."""
    now = dt.datetime.now(dt.UTC).isoformat()
    trigger = DeliveryTrigger(list(campaigns or ["spring"]), accepted, share, now, 1, **more)
    (found,) = [dict(event.payload) async for event in trigger.run()]
    return found


def told(outcome: str, expected: int, delivered: int, undelivered: int, in_flight: int, unreported: int) -> Any:
    names = ("outcome", "expected", "delivered", "undelivered", "in_flight", "unreported")
    return dict(zip(names, (outcome, expected, delivered, undelivered, in_flight, unreported), strict=True))


def failed(database: Database, since: dt.datetime | None = None) -> list[DeliveryEvent]:
    detect_events(database, dict.fromkeys(KINDS, since) if since else EVER)
    with database.connect() as connection:
        return [event for event in unpublished(connection) if event.kind == MESSAGES_FAILED]


class TestFailures:
    def test_leave_out_a_request_that_was_repeated(self, database: Database) -> None:
        begun(database)
        save_reports(database, report(ADA, "failed", token=to(ADA, reference="first")))
        # The task may still send it again, so nothing is published yet.
        assert failed(database) == []
        noted(database, SentRequest("second", 1))
        save_reports(database, report(ADA, "sent", token=to(ADA, reference="second")))
        ended(database, expected=1)
        assert failed(database) == []
        save_reports(database, report(ADA, "failed", token=to(ADA, reference="second")))
        assert [event.facts for event in failed(database)] == [{"recipients": 1}]

    def test_leave_out_a_recipient_whom_another_request_of_the_campaign_reached(
        self, database: Database, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setenv("AIRFLOW__CPAAS__DATABASE", database.engine.url.render_as_string(hide_password=False))
        begun(database)
        noted(database, SentRequest("first", 2), SentRequest("second", 1))
        save_reports(database, report(ADA, "delivered", token=to(ADA, reference="second")))
        save_reports(database, *(report(one, "failed", token=to(ADA, OBI, reference="first")) for one in (ADA, OBI)))
        # A message of another campaign, or of another connection, is another message.
        save_reports(database, report(OBI, "delivered", token=to(OBI, campaign="summer")))
        save_reports(database, report(OBI, "delivered", token=to(OBI, reference="theirs"), conn_id="other"))
        ended(database, expected=3)
        assert [event.facts for event in failed(database)] == [{"recipients": 1}]
        with DeliveryEventSource("spring").open() as table:
            assert [row.values for row in table.rows(["recipient"])] == [(f"+{OBI}",)]

    def test_of_unknown_outcome_are_published_once_the_task_has_ended(self, database: Database) -> None:
        begun(database)
        save_reports(database, report(ADA, "failed", token=to(ADA, OBI, reference="lost")))
        assert failed(database) == []
        ended(database, expected=0, unknown=2)
        assert len(failed(database)) == 1


class TestASensor:
    @pytest.mark.parametrize("share", [None, 1.0, 0.9])
    async def test_waits_for_the_accepted_whatever_is_reported_of_others(
        self, sent: Database, share: float | None
    ) -> None:
        save_reports(sent, *(report(one, "delivered", token=LOST) for one in OTHERS))
        assert await looked(share=share) == told("timed_out", 12, 10, 0, 0, 2)
        save_reports(sent, *(report(one, "delivered", token=SURE) for one in (ADA, OBI)))
        assert await looked(share=share) == told("done", 12, 12, 0, 0, 0)

    async def test_does_not_wait_for_others_of_whom_nothing_is_reported(self, sent: Database) -> None:
        save_reports(sent, *(report(one, "delivered", token=SURE) for one in (ADA, OBI)))
        assert await looked(share=1.0) == told("done", 2, 2, 0, 0, 0)

    async def test_counts_others_on_both_sides_of_a_share(self, sent: Database) -> None:
        save_reports(sent, *(report(one, "delivered", token=SURE) for one in (ADA, OBI)))
        save_reports(sent, report(OTHERS[0], "failed", token=LOST), report(OTHERS[1], "delivered", token=LOST))
        assert await looked(share=0.75) == told("done", 4, 3, 1, 0, 0)
        assert await looked(share=0.9) == told("missed", 4, 3, 1, 0, 0)

    async def test_waits_for_others_that_are_reported_to_be_on_their_way(self, sent: Database) -> None:
        save_reports(sent, *(report(one, "delivered", token=SURE) for one in (ADA, OBI)))
        save_reports(sent, report(OTHERS[0], "sent", token=LOST))
        assert await looked() == told("timed_out", 3, 2, 0, 1, 0)

    async def test_of_requests_that_are_campaigns_by_themselves_goes_by_what_their_senders_returned(
        self, sent: Database
    ) -> None:
        for name, recipients in (("one", 1), ("lost-one", 3)):
            token = CallbackToken(name, name, recipients)
            save_reports(sent, *(report(phone, "delivered", token=token) for phone in OTHERS[:recipients]))
        names = ("one", "silent", "lost-one")
        found = await looked(*names, share=1.0, unknown=("lost-one",))
        assert found == told("timed_out", 5, 4, 0, 0, 1)

    def test_sensor_by_reference_waits_for_the_requests_of_a_later_try(self, sent: Database) -> None:
        sensor = DeliverySensor(task_id="wait", send_result="spring", deferrable=False)
        save_reports(sent, *(report(one, "delivered", token=SURE) for one in (ADA, OBI)))
        begun(sent)
        noted(sent, SentRequest("again", 1))
        assert sensor.poke({}) is False
        save_reports(sent, report(UMA, "delivered", token=to(UMA, reference="again")))
        assert sensor.poke({})

    @pytest.mark.parametrize("has_reports", [True, False])
    async def test_second_message_to_a_recipient_stands_for_no_recipient_of_another_campaign(
        self, sent: Database, *, has_reports: bool
    ) -> None:
        """ADA is in two accepted requests of the first campaign, and the results of both campaigns name three."""
        noted(sent, SentRequest("again", 1))
        save_reports(sent, *(report(one, "delivered", token=SURE) for one in (ADA, OBI)))
        save_reports(sent, report(ADA, "delivered", token=to(ADA, reference="again")))
        begun(sent, "summer")
        noted(sent, SentRequest("summer-pack", 1 + has_reports), campaign="summer")
        ended(sent, "summer", expected=1 + has_reports)
        if has_reports:
            save_reports(sent, report(OBI, "delivered", token=to(OBI, UMA, campaign="summer")))
        figures = (4 + has_reports, 3 + has_reports, 0, 0, 1)
        assert await looked("spring", "summer", accepted=3 + has_reports) == told("timed_out", *figures)
        save_reports(sent, report(UMA, "failed", token=to(*((OBI, UMA) if has_reports else (UMA,)), campaign="summer")))
        figures = (4 + has_reports, 3 + has_reports, 1, 0, 0)
        assert await looked("spring", "summer", accepted=3 + has_reports) == told("done", *figures)

    async def test_takes_one_that_a_report_settled_later_for_accepted(self, sent: Database) -> None:
        save_reports(sent, *(report(one, "delivered", token=LOST) for one in OTHERS))
        noted(sent, SentRequest("lost", 10, "m1"))
        ended(sent, expected=12)
        assert await looked(accepted=12) == told("timed_out", 12, 10, 0, 0, 2)


class TestACampaign:
    def test_is_not_finished_while_accepted_recipients_are_open(self, sent: Database) -> None:
        save_reports(sent, *(report(one, "delivered", token=LOST) for one in OTHERS))
        assert finished(sent) == []
        save_reports(sent, report(ADA, "delivered", token=SURE), report(OBI, "failed", token=SURE))
        (one,) = finished(sent)
        assert [one.facts[name] for name in FIGURES] == [12, 11, 1, 0]

    def test_waits_for_recipients_of_unknown_outcome(self, sent: Database) -> None:
        save_reports(sent, report(ADA, "delivered", token=SURE), report(OBI, "failed", token=SURE))
        assert finished(sent) == []
        save_reports(sent, *(report(one, "delivered", token=LOST) for one in OTHERS))
        (one,) = finished(sent)
        assert [one.facts[name] for name in (*FIGURES, "unknown")] == [12, 11, 1, 0, 0]

    @pytest.mark.parametrize("reported", [0, 1])
    def test_of_which_most_are_unknown_finishes_once_at_its_age(self, database: Database, reported: int) -> None:
        begun(database)
        ended(database, expected=0, unknown=500)
        save_reports(database, *(report(one, "delivered", token=LOST) for one in OTHERS[:reported]))
        assert finished(database) == []
        make_older(database, dt.timedelta(hours=73))
        (one,) = finished(database)
        assert [one.facts[name] for name in (*FIGURES, "unknown")] == [reported, reported, 0, 0, 500 - reported]
        # A report that comes later changes the figures, and starts no second run.
        save_reports(database, *(report(one, "delivered", token=LOST) for one in OTHERS))
        assert len(finished(database)) == 1

    def test_finishes_when_a_later_try_resolved_what_was_unknown(self, sent: Database) -> None:
        save_reports(sent, report(ADA, "delivered", token=SURE), report(OBI, "failed", token=SURE))
        assert finished(sent) == []
        begun(sent)
        ended(sent, expected=2)
        (one,) = finished(sent)
        assert [one.facts[name] for name in (*FIGURES, "unknown")] == [2, 1, 1, 0, 0]

    def test_does_not_finish_while_a_later_try_sends(self, sent: Database) -> None:
        begun(sent)
        noted(sent, SentRequest("lost", 10))
        save_reports(sent, report(ADA, "delivered", token=SURE), report(OBI, "failed", token=SURE))
        save_reports(sent, *(report(one, "delivered", token=LOST) for one in OTHERS))
        assert finished(sent) == []
        ended(sent, expected=12)
        assert len(finished(sent)) == 1

    def test_is_shown_with_the_accepted_open(self, sent: Database) -> None:
        save_reports(sent, *(report(one, "delivered", token=LOST) for one in OTHERS))
        with sent.connect() as connection:
            counts = read_counts(connection, ["spring"])["spring"]
        assert (counts.expected(2), counts.expected(2) - counts.known) == (12, 2)

    def test_has_those_of_unknown_outcome_whom_it_did_not_reach_among_its_concerned(self, sent: Database) -> None:
        save_reports(sent, report(UMA, "failed", token=LOST), report(ADA, "failed", token=SURE))
        with DeliveryEventSource("spring").open() as table:
            assert [row.values for row in table.rows(["recipient"])] == [(f"+{ADA}",), (f"+{UMA}",)]
        assert outcomes(sent).keys() == {ADA, UMA}


def steps_to_count(database: Database, campaign: str, number: int) -> int:
    """Return how many thousand steps SQLite takes to count unknown requests, each of which was sent again."""
    begun(database, campaign)
    made = [
        SentRequest(f"{campaign}-{n}{part}", 20, state=RequestState.UNKNOWN, unknown=unknown)
        for n in range(number)
        for part, unknown in (("a", 0), ("b", 20))
    ]
    noted(database, *made, campaign=campaign)
    names = {request.reference: f"{campaign}{place // 2:03}" for place, request in enumerate(made)}
    rows = [
        report(f"{name}{n}@example.com", "sent", token=CallbackToken(campaign, reference, 20))
        for reference, name in names.items()
        for n in range(20)
    ]
    save_reports(database, *rows)
    steps = 0

    def count() -> None:
        nonlocal steps
        steps += 1

    with database.connect() as connection:
        driver: Any = connection.connection.driver_connection
        driver.set_progress_handler(count, 1000)
        try:
            assert read_sends(connection, [campaign])[campaign].unknown == 0
        finally:
            driver.set_progress_handler(None, 0)
    return steps


def test_time_to_count_unknown_requests_grows_with_their_number(database: Database) -> None:
    if database.engine.dialect.name != "sqlite":
        pytest.skip("Only SQLite counts its steps.")
    fewer, more = (steps_to_count(database, campaign, number) for campaign, number in (("c", 20), ("d", 80)))
    assert more < 6 * fewer


UNKNOWN = SentRequest("lost", 2, state=RequestState.UNKNOWN, unknown=2)
PLACE = ("dag", "run", "send", -1)


def resolve(database: Database, state: RequestState, *known: str) -> str | None:
    """Have a person resolve the request ``lost``."""
    resolved = SentRequest("lost", 2, state=state)
    return database.write(lambda connection: record_resolution(connection, PLACE, ["lost", *known], [resolved])).tracked


def sent_counts(database: Database) -> tuple[int | None, int | None]:
    with database.connect() as connection:
        return read_sends(connection, ["spring"])["spring"]


def expected(database: Database) -> int | None:
    with database.connect() as connection:
        return connection.execute(select(sends.c.expected)).scalar_one()


class TestStatesOfRequests:
    """The state of each request is in the database once the task has ended."""

    @pytest.fixture
    def known(self, database: Database, monkeypatch: pytest.MonkeyPatch) -> Database:
        """A campaign with a request of one that was accepted, and one of two whose outcome is unknown."""
        monkeypatch.setenv("AIRFLOW__CPAAS__DATABASE", database.engine.url.render_as_string(hide_password=False))
        begun(database)
        noted(database, SentRequest("sure", 1), UNKNOWN)
        ended(database, expected=1)
        save_reports(database, report(ADA, "delivered", token=to(ADA, reference="sure")))
        return database

    def test_resend_of_one_request_finishes_no_campaign_for_another(self, known: Database) -> None:
        noted(known, SentRequest("repeated", 1, state=RequestState.SUPERSEDED))
        save_reports(known, *(report(one, "delivered", token=to(OBI, UMA, reference="repeated")) for one in (OBI, UMA)))
        assert finished(known) == []
        assert sent_counts(known) == (1, 2)
        save_reports(known, *(report(one, "failed", token=to(OBI, UMA, reference="lost")) for one in (OBI, UMA)))
        (one,) = finished(known)
        assert [one.facts[name] for name in (*FIGURES, "unknown")] == [3, 1, 2, 0, 0]

    def test_later_end_without_a_request_supersedes_it(self, known: Database) -> None:
        known.write(lambda connection: record_states(connection, "spring", "shop", [SentRequest("sure", 1)]))
        ended(known, expected=1)
        assert len(finished(known)) == 1

    def test_accepted_request_stays_accepted(self, known: Database) -> None:
        noted(known, SentRequest("sure", 1, state=RequestState.UNKNOWN, unknown=1))
        assert sent_counts(known) == (1, 2)

    def test_report_to_the_webhook_of_an_unknown_request_counts_for_its_campaign(self, known: Database) -> None:
        save_reports(known, report(OBI, "delivered", external_ref="lost"))
        assert sent_counts(known) == (1, 1)

    async def test_sensor_waits_for_what_a_person_resolved_as_sent(self, known: Database) -> None:
        to_resolve = [["spring", 1, 0]]
        assert await looked(accepted=1, to_resolve=to_resolve) == told("done", 1, 1, 0, 0, 0)
        assert resolve(known, RequestState.ACCEPTED) == "spring"
        assert await looked(accepted=1, to_resolve=to_resolve) == told("timed_out", 3, 1, 0, 0, 2)
        assert finished(known) == []

    async def test_sensor_waits_no_longer_for_what_a_person_resolved_as_not_sent(self, known: Database) -> None:
        waiting: dict[str, Any] = {"to_resolve": [["spring", 1, 2]], "unknown_recipients": 2}
        assert await looked(accepted=1, **waiting) == told("timed_out", 3, 1, 0, 0, 2)
        assert resolve(known, RequestState.NOT_SENT) == "spring"
        assert await looked(accepted=1, **waiting) == told("done", 1, 1, 0, 0, 0)
        assert len(finished(known)) == 1

    @pytest.mark.parametrize("state", [RequestState.ACCEPTED, RequestState.NOT_SENT])
    def test_resolution_that_is_repeated_after_a_kill_changes_nothing(
        self, known: Database, state: RequestState
    ) -> None:
        save_reports(known, report(OBI, "delivered", token=to(OBI, UMA, reference="lost")))
        resolve(known, state)
        once = sent_counts(known), counts(known), expected(known)
        resolve(known, state)
        assert (sent_counts(known), counts(known), expected(known)) == once
        # A later command cannot take back what was accepted.
        resolve(known, RequestState.NOT_SENT)
        assert (sent_counts(known), counts(known), expected(known)) == once

    def test_sensor_waits_for_all_of_a_request_that_a_later_try_found_to_be_accepted(self, known: Database) -> None:
        result = {"reference": "spring", "sent": 1, "unknown_recipients": 2, "delivery_reports": "callback"}
        sensor = DeliverySensor(task_id="wait", send_result=result, wait_for_unknown=True, deferrable=False)
        later_try = RecordedTask("spring", CAMPAIGN, "send_sms", "shop", *PLACE, try_number=2)
        figures = {"sent": 1, "unknown_recipients": 2}
        known.write(lambda connection: record_progress(connection, later_try, RUNNING, figures))
        save_reports(known, report(OBI, "delivered", token=to(OBI, UMA, reference="lost")))
        noted(known, SentRequest("lost", 2))
        assert sensor.poke({}) is False
        save_reports(known, report(UMA, "failed", token=to(OBI, UMA, reference="lost")))
        assert sensor.poke({})

    async def test_sensor_by_reference_waits_for_recipients_of_unknown_outcome(self, known: Database) -> None:
        """As one that has the task's result does."""
        sensor = DeliverySensor(task_id="wait", send_result="spring", wait_for_unknown=True, deferrable=False)
        trigger = sensor._trigger(dt.datetime.now(dt.UTC).isoformat())
        assert [event.payload async for event in trigger.run()] == [told("timed_out", 3, 1, 0, 0, 2)]
        assert sensor.poke({}) is False
        save_reports(known, *(report(one, "failed", token=to(OBI, UMA, reference="lost")) for one in (OBI, UMA)))
        assert [event.payload async for event in trigger.run()] == [told("done", 3, 1, 2, 0, 0)]
        assert sensor.poke({})

    async def test_sensor_by_reference_waits_for_no_recipient_of_unknown_outcome_by_default(
        self, known: Database
    ) -> None:
        sensor = DeliverySensor(task_id="wait", send_result="spring", deferrable=False)
        trigger = sensor._trigger(dt.datetime.now(dt.UTC).isoformat())
        assert [event.payload async for event in trigger.run()] == [told("done", 1, 1, 0, 0, 0)]
        assert sensor.poke({})

    def test_sensor_on_a_worker_follows_a_resolution(self, known: Database) -> None:
        result = {"reference": "spring", "sent": 1, "unknown_recipients": 2, "delivery_reports": "callback"}
        sensor = DeliverySensor(task_id="wait", send_result=result, wait_for_unknown=True, deferrable=False)
        assert sensor.poke({}) is False
        resolve(known, RequestState.NOT_SENT)
        assert sensor.poke({})

    @pytest.mark.parametrize("state", [RequestState.ACCEPTED, RequestState.NOT_SENT])
    def test_send_of_an_earlier_version_has_only_the_number_of_unknown_recipients(
        self, database: Database, state: RequestState
    ) -> None:
        begun(database)
        noted(database, SentRequest("sure", 1))
        ended(database, expected=1, unknown=5)
        save_reports(database, report(ADA, "delivered", token=to(ADA, reference="sure")))
        save_reports(database, report(OBI, "delivered", token=to(OBI, UMA, reference="lost")))
        assert sent_counts(database) == (1, 4)
        assert resolve(database, state) == "spring"
        is_accepted = state is RequestState.ACCEPTED
        assert sent_counts(database) == (3 if is_accepted else 1, 3)

    def test_resolution_of_another_send_changes_nothing(self, known: Database) -> None:
        resolved = [SentRequest("lost-elsewhere", 2)]
        place = ("other", "run", "send", -1)
        recorded = known.write(lambda connection: record_resolution(connection, place, ["lost-elsewhere"], resolved))
        assert recorded == (None, [])
        assert sent_counts(known) == (1, 2)

    def test_resolution_of_a_single_request_adds_it_to_no_other(self, database: Database) -> None:
        begun(database, "alone")
        noted(database, SentRequest("alone", 1), campaign="alone")
        ended(database, "alone", expected=1)
        assert resolve(database, RequestState.ACCEPTED, "alone") is None
