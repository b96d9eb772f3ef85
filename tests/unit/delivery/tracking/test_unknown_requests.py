"""Reports of requests of unknown outcome: they count beside the accepted recipients, never in the place of one."""

from __future__ import annotations

import asyncio
import datetime as dt
from typing import Any

import pytest
from airflow.sdk.exceptions import AirflowFailException
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
from cpaas_provider.sensors import _delivery_status
from cpaas_provider.sensors.delivery import DeliverySensor
from cpaas_provider.sources.base import Row
from cpaas_provider.sources.delivery_events import DeliveryEventSource
from cpaas_provider.triggers._polling import delivery_poller
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
from tests.unit.triggers.test_delivery import queries_with, until

EVER = dict.fromkeys(KINDS, dt.datetime(2000, 1, 1, tzinfo=dt.UTC))
SURE, LOST = token_for(ADA, OBI, reference="sure"), CallbackToken("spring", "lost", 10)
FIGURES = ("recipients", "delivered", "undelivered", "unreported")
OTHERS = [f"23480200000{number:02}" for number in range(10)]


@pytest.fixture
def sent(database: Database, monkeypatch: pytest.MonkeyPatch) -> Database:
    """A campaign of which the service accepted a request to two; the outcome of one to ten is unknown."""
    monkeypatch.setenv("AIRFLOW__CPAAS__DATABASE", database.engine.url.render_as_string(hide_password=False))
    start_send(database)
    save_requests(database, SentRequest("sure", 2))
    finish_send(database, expected=2, unknown=10)
    return database


def make_older(database: Database, age: dt.timedelta) -> None:
    """Move the end of every send into the past."""
    with database.connect() as connection:
        ends = connection.execute(select(sends.c.campaign, sends.c.ended_at)).all()
    for campaign, ended_at in ends:
        change = update(sends).where(sends.c.campaign == campaign).values(ended_at=ended_at - age)
        database.write(lambda connection, change=change: connection.execute(change))


def finished_events(database: Database) -> list[DeliveryEvent]:
    detect_events(database, EVER)
    with database.connect() as connection:
        return [one for one in unpublished(connection) if one.kind == CAMPAIGN_FINISHED]


async def poll_trigger(*campaigns: str, accepted: int = 2, share: float | None = None, **more: Any) -> dict[str, Any]:
    """Return the result of a trigger that polls now."""
    now = dt.datetime.now(dt.UTC).isoformat()
    trigger = DeliveryTrigger(list(campaigns or ["spring"]), accepted, share, now, 1, **more)
    (found,) = [dict(event.payload) async for event in trigger.run()]
    return found


def trigger_result(
    outcome: str, expected: int, delivered: int, undelivered: int, in_flight: int, unreported: int
) -> Any:
    names = ("outcome", "expected", "delivered", "undelivered", "in_flight", "unreported")
    return dict(zip(names, (outcome, expected, delivered, undelivered, in_flight, unreported), strict=True))


def failed_events(database: Database, since: dt.datetime | None = None) -> list[DeliveryEvent]:
    detect_events(database, dict.fromkeys(KINDS, since) if since else EVER)
    with database.connect() as connection:
        return [event for event in unpublished(connection) if event.kind == MESSAGES_FAILED]


class TestMessagesFailedEvent:
    def test_failure_of_a_request_that_was_sent_again_is_left_out(self, database: Database) -> None:
        start_send(database)
        save_reports(database, report(ADA, "failed", token=token_for(ADA, reference="first")))
        # The task may still send it again, so nothing is published yet.
        assert failed_events(database) == []
        save_requests(database, SentRequest("second", 1))
        save_reports(database, report(ADA, "sent", token=token_for(ADA, reference="second")))
        finish_send(database, expected=1)
        assert failed_events(database) == []
        save_reports(database, report(ADA, "failed", token=token_for(ADA, reference="second")))
        assert [event.facts for event in failed_events(database)] == [{"recipients": 1}]

    def test_failure_of_a_recipient_that_another_request_reached_is_left_out(
        self, database: Database, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setenv("AIRFLOW__CPAAS__DATABASE", database.engine.url.render_as_string(hide_password=False))
        start_send(database)
        save_requests(database, SentRequest("first", 2), SentRequest("second", 1))
        save_reports(database, report(ADA, "delivered", token=token_for(ADA, reference="second")))
        save_reports(
            database, *(report(one, "failed", token=token_for(ADA, OBI, reference="first")) for one in (ADA, OBI))
        )
        # A message of another campaign, or of another connection, is another message.
        save_reports(database, report(OBI, "delivered", token=token_for(OBI, campaign="summer")))
        save_reports(database, report(OBI, "delivered", token=token_for(OBI, reference="theirs"), conn_id="other"))
        finish_send(database, expected=3)
        assert [event.facts for event in failed_events(database)] == [{"recipients": 1}]
        with DeliveryEventSource("spring").open() as table:
            assert [row.values for row in table.rows(["recipient"])] == [(f"+{OBI}",)]

    def test_recipient_that_failed_in_two_accepted_requests_is_listed_and_counted_once(
        self, database: Database, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setenv("AIRFLOW__CPAAS__DATABASE", database.engine.url.render_as_string(hide_password=False))
        start_send(database)
        save_requests(database, SentRequest("first", 2), SentRequest("second", 1))
        save_reports(
            database,
            *(report(one, "failed", token=token_for(ADA, OBI, reference="first")) for one in (ADA, OBI)),
            report(ADA, "bounced", token=token_for(ADA, reference="second")),
        )
        finish_send(database, expected=3)
        (event,) = failed_events(database)
        assert event.facts == {"recipients": 2}
        for key in ("spring", event.key, str(event.batch)):
            with DeliveryEventSource(key).open() as table:
                rows = [row.values for row in table.rows(["recipient", "status"]) if isinstance(row, Row)]
            assert rows == [(f"+{ADA}", "bounced"), (f"+{OBI}", "failed")]

    def test_failures_of_an_unknown_request_are_published_once_the_task_has_ended(self, database: Database) -> None:
        start_send(database)
        save_reports(database, report(ADA, "failed", token=token_for(ADA, OBI, reference="lost")))
        assert failed_events(database) == []
        finish_send(database, expected=0, unknown=2)
        assert len(failed_events(database)) == 1


class TestWaiting:
    @pytest.mark.parametrize("share", [None, 1.0, 0.9])
    async def test_sensor_waits_for_accepted_recipients_despite_reports_of_unknown_ones(
        self, sent: Database, share: float | None
    ) -> None:
        save_reports(sent, *(report(one, "delivered", token=LOST) for one in OTHERS))
        assert await poll_trigger(share=share) == trigger_result("timed_out", 12, 10, 0, 0, 2)
        save_reports(sent, *(report(one, "delivered", token=SURE) for one in (ADA, OBI)))
        assert await poll_trigger(share=share) == trigger_result("done", 12, 12, 0, 0, 0)

    async def test_sensor_does_not_wait_for_unknown_recipients_without_reports(self, sent: Database) -> None:
        save_reports(sent, *(report(one, "delivered", token=SURE) for one in (ADA, OBI)))
        assert await poll_trigger(share=1.0) == trigger_result("done", 2, 2, 0, 0, 0)

    async def test_sensor_counts_reported_unknown_recipients_in_the_share(self, sent: Database) -> None:
        save_reports(sent, *(report(one, "delivered", token=SURE) for one in (ADA, OBI)))
        save_reports(sent, report(OTHERS[0], "failed", token=LOST), report(OTHERS[1], "delivered", token=LOST))
        assert await poll_trigger(share=0.75) == trigger_result("done", 4, 3, 1, 0, 0)
        assert await poll_trigger(share=0.9) == trigger_result("missed", 4, 3, 1, 0, 0)

    async def test_sensor_waits_for_unknown_recipients_that_are_reported_in_flight(self, sent: Database) -> None:
        save_reports(sent, *(report(one, "delivered", token=SURE) for one in (ADA, OBI)))
        save_reports(sent, report(OTHERS[0], "sent", token=LOST))
        assert await poll_trigger() == trigger_result("timed_out", 3, 2, 0, 1, 0)

    async def test_sensor_of_single_sends_knows_from_their_tasks_which_are_unknown(self, sent: Database) -> None:
        for name, recipients in (("one", 1), ("lost-one", 3)):
            token = CallbackToken(name, name, recipients)
            save_reports(sent, *(report(phone, "delivered", token=token) for phone in OTHERS[:recipients]))
        names = ("one", "silent", "lost-one")
        found = await poll_trigger(*names, share=1.0, unknown=("lost-one",))
        assert found == trigger_result("timed_out", 5, 4, 0, 0, 1)

    def test_sensor_by_reference_waits_for_the_requests_of_a_later_try(self, sent: Database) -> None:
        sensor = DeliverySensor(task_id="wait", send_result="spring", deferrable=False)
        save_reports(sent, *(report(one, "delivered", token=SURE) for one in (ADA, OBI)))
        start_send(sent)
        save_requests(sent, SentRequest("again", 1))
        assert sensor.poke({}) is False
        save_reports(sent, report(UMA, "delivered", token=token_for(UMA, reference="again")))
        assert sensor.poke({})

    @pytest.mark.parametrize("has_reports", [True, False])
    async def test_second_message_to_a_recipient_stands_for_no_recipient_of_another_campaign(
        self, sent: Database, *, has_reports: bool
    ) -> None:
        """ADA is in two accepted requests of the first campaign, and the results of both campaigns name three."""
        save_requests(sent, SentRequest("again", 1))
        save_reports(sent, *(report(one, "delivered", token=SURE) for one in (ADA, OBI)))
        save_reports(sent, report(ADA, "delivered", token=token_for(ADA, reference="again")))
        start_send(sent, "summer")
        save_requests(sent, SentRequest("summer-pack", 1 + has_reports), campaign="summer")
        finish_send(sent, "summer", expected=1 + has_reports)
        if has_reports:
            save_reports(sent, report(OBI, "delivered", token=token_for(OBI, UMA, campaign="summer")))
        figures = (4 + has_reports, 3 + has_reports, 0, 0, 1)
        assert await poll_trigger("spring", "summer", accepted=3 + has_reports) == trigger_result("timed_out", *figures)
        save_reports(
            sent, report(UMA, "failed", token=token_for(*((OBI, UMA) if has_reports else (UMA,)), campaign="summer"))
        )
        figures = (4 + has_reports, 3 + has_reports, 1, 0, 0)
        assert await poll_trigger("spring", "summer", accepted=3 + has_reports) == trigger_result("done", *figures)

    async def test_sensor_counts_a_request_that_was_resolved_later_as_accepted(self, sent: Database) -> None:
        save_reports(sent, *(report(one, "delivered", token=LOST) for one in OTHERS))
        save_requests(sent, SentRequest("lost", 10, "m1"))
        finish_send(sent, expected=12)
        assert await poll_trigger(accepted=12) == trigger_result("timed_out", 12, 10, 0, 0, 2)


class TestCampaignFinishedEvent:
    def test_campaign_does_not_finish_while_accepted_recipients_are_unreported(self, sent: Database) -> None:
        save_reports(sent, *(report(one, "delivered", token=LOST) for one in OTHERS))
        assert finished_events(sent) == []
        save_reports(sent, report(ADA, "delivered", token=SURE), report(OBI, "failed", token=SURE))
        (one,) = finished_events(sent)
        assert [one.facts[name] for name in FIGURES] == [12, 11, 1, 0]

    def test_campaign_does_not_finish_while_unknown_recipients_are_unreported(self, sent: Database) -> None:
        save_reports(sent, report(ADA, "delivered", token=SURE), report(OBI, "failed", token=SURE))
        assert finished_events(sent) == []
        save_reports(sent, *(report(one, "delivered", token=LOST) for one in OTHERS))
        (one,) = finished_events(sent)
        assert [one.facts[name] for name in (*FIGURES, "unknown")] == [12, 11, 1, 0, 0]

    @pytest.mark.parametrize("reported", [0, 1])
    def test_campaign_with_mostly_unknown_recipients_finishes_once_at_its_deadline(
        self, database: Database, reported: int
    ) -> None:
        start_send(database)
        finish_send(database, expected=0, unknown=500)
        save_reports(database, *(report(one, "delivered", token=LOST) for one in OTHERS[:reported]))
        assert finished_events(database) == []
        make_older(database, dt.timedelta(hours=73))
        (one,) = finished_events(database)
        assert [one.facts[name] for name in (*FIGURES, "unknown")] == [reported, reported, 0, 0, 500 - reported]
        # A report that comes later changes the figures, and starts no second run.
        save_reports(database, *(report(one, "delivered", token=LOST) for one in OTHERS))
        assert len(finished_events(database)) == 1

    def test_campaign_finishes_when_a_later_try_resolved_its_unknown_recipients(self, sent: Database) -> None:
        save_reports(sent, report(ADA, "delivered", token=SURE), report(OBI, "failed", token=SURE))
        assert finished_events(sent) == []
        start_send(sent)
        finish_send(sent, expected=2)
        (one,) = finished_events(sent)
        assert [one.facts[name] for name in (*FIGURES, "unknown")] == [2, 1, 1, 0, 0]

    def test_campaign_does_not_finish_while_a_later_try_sends(self, sent: Database) -> None:
        start_send(sent)
        save_requests(sent, SentRequest("lost", 10))
        save_reports(sent, report(ADA, "delivered", token=SURE), report(OBI, "failed", token=SURE))
        save_reports(sent, *(report(one, "delivered", token=LOST) for one in OTHERS))
        assert finished_events(sent) == []
        finish_send(sent, expected=12)
        assert len(finished_events(sent)) == 1

    def test_counts_expect_accepted_recipients_beside_reported_unknown_ones(self, sent: Database) -> None:
        save_reports(sent, *(report(one, "delivered", token=LOST) for one in OTHERS))
        with sent.connect() as connection:
            counts = read_counts(connection, ["spring"])["spring"]
        assert (counts.expected(2), counts.expected(2) - counts.known) == (12, 2)

    def test_event_source_includes_unknown_recipients_that_failed(self, sent: Database) -> None:
        save_reports(sent, report(UMA, "failed", token=LOST), report(ADA, "failed", token=SURE))
        with DeliveryEventSource("spring").open() as table:
            assert [row.values for row in table.rows(["recipient"])] == [(f"+{ADA}",), (f"+{UMA}",)]
        assert outcomes(sent).keys() == {ADA, UMA}


def steps_to_count(database: Database, campaign: str, number: int) -> int:
    """Return how many thousand steps SQLite takes to count unknown requests, each of which was sent again."""
    start_send(database, campaign)
    made = [
        SentRequest(f"{campaign}-{n}{part}", 20, state=RequestState.UNKNOWN, unknown=unknown)
        for n in range(number)
        for part, unknown in (("a", 0), ("b", 20))
    ]
    save_requests(database, *made, campaign=campaign)
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
ALL_UNKNOWN = {"reference": "spring", "sent": 0, "unknown_recipients": 2, "delivery_reports": "callback"}
PLACE = ("dag", "run", "send", -1)


def resolve(database: Database, state: RequestState, *references: str) -> str | None:
    """Have a person resolve the request ``lost``."""
    resolved = SentRequest("lost", 2, state=state)
    return database.write(
        lambda connection: record_resolution(connection, PLACE, ["lost", *references], [resolved])
    ).tracked


def sent_counts(database: Database) -> tuple[int | None, int | None]:
    with database.connect() as connection:
        return read_sends(connection, ["spring"])["spring"]


def expected(database: Database) -> int | None:
    with database.connect() as connection:
        return connection.execute(select(sends.c.expected)).scalar_one()


class TestStatesOfRequests:
    """The state of each request is in the database once the task has ended."""

    @pytest.fixture
    def partly_unknown(self, database: Database, monkeypatch: pytest.MonkeyPatch) -> Database:
        """A campaign with a request of one that was accepted, and one of two whose outcome is unknown."""
        monkeypatch.setenv("AIRFLOW__CPAAS__DATABASE", database.engine.url.render_as_string(hide_password=False))
        start_send(database)
        save_requests(database, SentRequest("sure", 1), UNKNOWN)
        finish_send(database, expected=1)
        save_reports(database, report(ADA, "delivered", token=token_for(ADA, reference="sure")))
        return database

    def test_resend_of_one_request_finishes_no_campaign_for_another(self, partly_unknown: Database) -> None:
        save_requests(partly_unknown, SentRequest("repeated", 1, state=RequestState.SUPERSEDED))
        save_reports(
            partly_unknown,
            *(report(one, "delivered", token=token_for(OBI, UMA, reference="repeated")) for one in (OBI, UMA)),
        )
        assert finished_events(partly_unknown) == []
        assert sent_counts(partly_unknown) == (1, 2)
        save_reports(
            partly_unknown, *(report(one, "failed", token=token_for(OBI, UMA, reference="lost")) for one in (OBI, UMA))
        )
        (one,) = finished_events(partly_unknown)
        assert [one.facts[name] for name in (*FIGURES, "unknown")] == [3, 1, 2, 0, 0]

    def test_later_end_of_a_send_supersedes_a_request_that_it_does_not_have(self, partly_unknown: Database) -> None:
        partly_unknown.write(lambda connection: record_states(connection, "spring", "shop", [SentRequest("sure", 1)]))
        finish_send(partly_unknown, expected=1)
        assert len(finished_events(partly_unknown)) == 1

    def test_accepted_request_stays_accepted(self, partly_unknown: Database) -> None:
        save_requests(partly_unknown, SentRequest("sure", 1, state=RequestState.UNKNOWN, unknown=1))
        assert sent_counts(partly_unknown) == (1, 2)

    def test_report_to_the_webhook_of_an_unknown_request_counts_for_its_campaign(
        self, partly_unknown: Database
    ) -> None:
        save_reports(partly_unknown, report(OBI, "delivered", external_ref="lost"))
        assert sent_counts(partly_unknown) == (1, 1)

    async def test_sensor_waits_for_a_request_that_is_resolved_as_sent(self, partly_unknown: Database) -> None:
        to_resolve = [["spring", 1, 0]]
        assert await poll_trigger(accepted=1, to_resolve=to_resolve) == trigger_result("done", 1, 1, 0, 0, 0)
        assert resolve(partly_unknown, RequestState.ACCEPTED) == "spring"
        assert await poll_trigger(accepted=1, to_resolve=to_resolve) == trigger_result("timed_out", 3, 1, 0, 0, 2)
        assert finished_events(partly_unknown) == []

    async def test_sensor_no_longer_waits_for_a_request_that_is_resolved_as_not_sent(
        self, partly_unknown: Database
    ) -> None:
        waiting: dict[str, Any] = {"to_resolve": [["spring", 1, 2, True]], "unknown_recipients": 2}
        assert await poll_trigger(accepted=1, **waiting) == trigger_result("timed_out", 3, 1, 0, 0, 2)
        assert resolve(partly_unknown, RequestState.NOT_SENT) == "spring"
        assert await poll_trigger(accepted=1, **waiting) == trigger_result("done", 1, 1, 0, 0, 0)
        assert len(finished_events(partly_unknown)) == 1

    @pytest.mark.parametrize("state", [RequestState.ACCEPTED, RequestState.NOT_SENT])
    def test_second_resolution_after_a_kill_changes_nothing(
        self, partly_unknown: Database, state: RequestState
    ) -> None:
        save_reports(partly_unknown, report(OBI, "delivered", token=token_for(OBI, UMA, reference="lost")))
        resolve(partly_unknown, state)
        once = sent_counts(partly_unknown), counts(partly_unknown), expected(partly_unknown)
        resolve(partly_unknown, state)
        assert (sent_counts(partly_unknown), counts(partly_unknown), expected(partly_unknown)) == once
        # A later command cannot take back what was accepted.
        resolve(partly_unknown, RequestState.NOT_SENT)
        assert (sent_counts(partly_unknown), counts(partly_unknown), expected(partly_unknown)) == once

    def test_sensor_waits_for_all_of_a_request_that_a_later_try_found_to_be_accepted(
        self, partly_unknown: Database
    ) -> None:
        result = {"reference": "spring", "sent": 1, "unknown_recipients": 2, "delivery_reports": "callback"}
        sensor = DeliverySensor(task_id="wait", send_result=result, wait_for_unknown=True, deferrable=False)
        later_try = RecordedTask("spring", CAMPAIGN, "send_sms", "shop", *PLACE, try_number=2)
        figures = {"sent": 1, "unknown_recipients": 2}
        partly_unknown.write(lambda connection: record_progress(connection, later_try, RUNNING, figures))
        save_reports(partly_unknown, report(OBI, "delivered", token=token_for(OBI, UMA, reference="lost")))
        save_requests(partly_unknown, SentRequest("lost", 2))
        assert sensor.poke({}) is False
        save_reports(partly_unknown, report(UMA, "failed", token=token_for(OBI, UMA, reference="lost")))
        assert sensor.poke({})

    async def test_sensor_by_reference_waits_for_recipients_of_unknown_outcome(self, partly_unknown: Database) -> None:
        """As one that has the task's result does."""
        sensor = DeliverySensor(task_id="wait", send_result="spring", wait_for_unknown=True, deferrable=False)
        trigger = sensor._trigger(dt.datetime.now(dt.UTC).isoformat())
        assert [event.payload async for event in trigger.run()] == [trigger_result("timed_out", 3, 1, 0, 0, 2)]
        assert sensor.poke({}) is False
        save_reports(
            partly_unknown, *(report(one, "failed", token=token_for(OBI, UMA, reference="lost")) for one in (OBI, UMA))
        )
        assert [event.payload async for event in trigger.run()] == [trigger_result("done", 3, 1, 2, 0, 0)]
        assert sensor.poke({})

    async def test_sensor_by_reference_waits_for_no_recipient_of_unknown_outcome_by_default(
        self, partly_unknown: Database
    ) -> None:
        sensor = DeliverySensor(task_id="wait", send_result="spring", deferrable=False)
        trigger = sensor._trigger(dt.datetime.now(dt.UTC).isoformat())
        assert [event.payload async for event in trigger.run()] == [trigger_result("done", 1, 1, 0, 0, 0)]
        assert sensor.poke({})

    @pytest.fixture
    def one_is_silent(self, partly_unknown: Database) -> Database:
        """Of the recipients of unknown outcome, only OBI has no report."""
        save_reports(partly_unknown, report(UMA, "failed", token=token_for(OBI, UMA, reference="lost")))
        return partly_unknown

    @pytest.fixture
    def reported_meanwhile(self, one_is_silent: Database, monkeypatch: pytest.MonkeyPatch) -> None:
        """Has OBI reported as in flight between two queries of a read."""

        def read(*arguments: Any) -> Any:
            save_reports(one_is_silent, report(OBI, "sent", token=token_for(OBI, UMA, reference="lost")))
            return read_sends(*arguments)

        for module in (_delivery_status, delivery_poller):
            monkeypatch.setattr(module, "read_sends", read)

    @pytest.mark.usefixtures("reported_meanwhile")
    async def test_report_between_two_queries_ends_no_wait_for_its_recipient(self) -> None:
        result = {"reference": "spring", "sent": 1, "unknown_recipients": 2, "delivery_reports": "callback"}
        sensor = DeliverySensor(task_id="wait", send_result=result, wait_for_unknown=True, deferrable=False)
        assert sensor.poke({}) is False
        waiting: dict[str, Any] = {"to_resolve": [["spring", 1, 2, True]], "unknown_recipients": 2}
        assert (await poll_trigger(accepted=1, **waiting))["outcome"] == "timed_out"

    async def test_read_for_a_new_sensor_ends_no_other_wait(self, one_is_silent: Database) -> None:
        """Its round reads the numbers of requests, and not the reports that the other sensors wait for."""

        def wait(campaign: str, *numbers: Any) -> Any:
            end = dt.datetime.now(dt.UTC) + dt.timedelta(minutes=1)
            to_resolve = [[campaign, *numbers]] if numbers else []
            trigger = DeliveryTrigger([campaign], 1, None, end.isoformat(), 60, [], 2, [], to_resolve)
            return asyncio.create_task(anext(trigger.run()))

        with queries_with("cpaas_sends") as reads:
            first = wait("spring", 1, 2, True)
            await until(lambda: reads)
        save_reports(one_is_silent, report(OBI, "sent", token=token_for(OBI, UMA, reference="lost")))
        with queries_with("cpaas_deliveries") as reads:
            second = wait("summer")
            await until(lambda: reads)
        await asyncio.sleep(0.5)
        assert not first.done()
        for task in (first, second):
            task.cancel()

    async def test_reports_of_two_campaigns_at_once_end_no_wait_early(self, one_is_silent: Database) -> None:
        start_send(one_is_silent, "autumn")
        save_requests(one_is_silent, SentRequest("autumn-pack", 1), campaign="autumn")
        finish_send(one_is_silent, "autumn", expected=1)
        end = dt.datetime.now(dt.UTC) + dt.timedelta(minutes=1)
        trigger = DeliveryTrigger(
            ["spring", "autumn"], 2, None, end.isoformat(), 1, [], 2, [], [["spring", 1, 2, True]]
        )
        with queries_with("updated_at >=") as rounds:
            waiting = asyncio.create_task(anext(trigger.run()))
            await until(lambda: rounds)
            save_reports(
                one_is_silent,
                report(ADA, "delivered", token=token_for(ADA, campaign="autumn")),
                report(OBI, "sent", token=token_for(OBI, UMA, reference="lost")),
            )
            seen = len(rounds)
            await until(lambda: waiting.done() or len(rounds) > seen + 1)
        assert not waiting.done()
        waiting.cancel()

    async def test_report_of_unknown_outcome_in_one_campaign_stands_for_no_recipient_of_another(
        self, partly_unknown: Database
    ) -> None:
        """A later try of the other campaign has not recorded its request yet."""
        start_send(partly_unknown, "summer")
        save_requests(partly_unknown, SentRequest("summer-pack", 1), campaign="summer")
        finish_send(partly_unknown, "summer", expected=1)
        start_send(partly_unknown, "summer")
        save_reports(
            partly_unknown,
            report(ADA, "delivered", token=token_for(ADA, campaign="summer")),
            *(
                report(one, "delivered", token=token_for(OBI, UMA, campaign="summer", reference="later"))
                for one in (OBI, UMA)
            ),
        )
        results = [
            {"reference": "spring", "sent": 1, "unknown_recipients": 2, "delivery_reports": "callback"},
            {"reference": "summer", "sent": 1, "unknown_recipients": 0, "delivery_reports": "callback"},
        ]
        sensor = DeliverySensor(task_id="wait", send_result=results, wait_for_unknown=True, deferrable=False)
        trigger = sensor._trigger(dt.datetime.now(dt.UTC).isoformat())
        assert [event.payload async for event in trigger.run()] == [trigger_result("timed_out", 6, 4, 0, 0, 2)]
        assert sensor.poke({}) is False

    @pytest.fixture
    def all_unknown(self, database: Database, monkeypatch: pytest.MonkeyPatch) -> Database:
        """A campaign of which the service is known to have accepted nothing: the outcome of its request is unknown."""
        monkeypatch.setenv("AIRFLOW__CPAAS__DATABASE", database.engine.url.render_as_string(hide_password=False))
        start_send(database)
        save_requests(database, UNKNOWN)
        finish_send(database, expected=0)
        return database

    @pytest.mark.parametrize("send_result", ["spring", ALL_UNKNOWN])
    async def test_sensor_waits_for_unknown_recipients_alone(self, all_unknown: Database, send_result: Any) -> None:
        sensor = DeliverySensor(task_id="wait", send_result=send_result, wait_for_unknown=True, deferrable=False)
        trigger = sensor._trigger(dt.datetime.now(dt.UTC).isoformat())
        assert [event.payload async for event in trigger.run()] == [trigger_result("timed_out", 2, 0, 0, 0, 2)]
        assert sensor.poke({}) is False
        save_reports(
            all_unknown, *(report(one, "failed", token=token_for(OBI, UMA, reference="lost")) for one in (OBI, UMA))
        )
        assert [event.payload async for event in trigger.run()] == [trigger_result("done", 2, 0, 2, 0, 0)]
        assert sensor.poke({})

    @pytest.mark.parametrize("send_result", ["spring", ALL_UNKNOWN])
    @pytest.mark.parametrize("is_resolved", [True, False])
    async def test_sensor_of_a_campaign_without_accepted_recipients_fails_and_names_the_unknown_ones(
        self, all_unknown: Database, send_result: Any, *, is_resolved: bool
    ) -> None:
        """Also if a person found that its unknown recipients were not sent to."""
        if is_resolved:
            resolve(all_unknown, RequestState.NOT_SENT)
        sensor = DeliverySensor(task_id="wait", send_result=send_result, wait_for_unknown=is_resolved, deferrable=False)
        trigger = sensor._trigger(dt.datetime.now(dt.UTC).isoformat())
        events = [event.payload async for event in trigger.run()]
        assert events == [trigger_result("nothing", 0, 0, 0, 0, 0)]
        for end in (lambda: sensor.execute_complete({}, events[0]), lambda: sensor.poke({})):
            with pytest.raises(AirflowFailException, match="wait_for_unknown=True"):
                end()

    async def test_sensor_fails_alike_if_the_last_unknown_recipients_are_resolved_as_not_sent_while_it_waits(
        self, all_unknown: Database
    ) -> None:
        sensor = DeliverySensor(task_id="wait", send_result="spring", wait_for_unknown=True, deferrable=False)
        assert sensor.poke({}) is False
        resolve(all_unknown, RequestState.NOT_SENT)
        for process in (sensor, DeliverySensor(task_id="wait", send_result="spring", deferrable=False)):
            with pytest.raises(AirflowFailException, match="no accepted recipient"):
                process.poke({})

    @pytest.mark.parametrize("send_result", ["spring", ALL_UNKNOWN])
    async def test_sensor_waits_for_unknown_recipients_that_were_resolved_as_sent_before_it_began(
        self, all_unknown: Database, send_result: Any
    ) -> None:
        resolve(all_unknown, RequestState.ACCEPTED)
        sensor = DeliverySensor(task_id="wait", send_result=send_result, deferrable=False)
        trigger = sensor._trigger(dt.datetime.now(dt.UTC).isoformat())
        assert [event.payload async for event in trigger.run()] == [trigger_result("timed_out", 2, 0, 0, 0, 2)]
        assert sensor.poke({}) is False

    def test_sensor_on_a_worker_follows_a_resolution(self, partly_unknown: Database) -> None:
        result = {"reference": "spring", "sent": 1, "unknown_recipients": 2, "delivery_reports": "callback"}
        sensor = DeliverySensor(task_id="wait", send_result=result, wait_for_unknown=True, deferrable=False)
        assert sensor.poke({}) is False
        resolve(partly_unknown, RequestState.NOT_SENT)
        assert sensor.poke({})

    @pytest.mark.parametrize("state", [RequestState.ACCEPTED, RequestState.NOT_SENT])
    def test_send_of_an_earlier_version_has_only_the_number_of_unknown_recipients(
        self, database: Database, state: RequestState
    ) -> None:
        start_send(database)
        save_requests(database, SentRequest("sure", 1))
        finish_send(database, expected=1, unknown=5)
        save_reports(database, report(ADA, "delivered", token=token_for(ADA, reference="sure")))
        save_reports(database, report(OBI, "delivered", token=token_for(OBI, UMA, reference="lost")))
        assert sent_counts(database) == (1, 4)
        assert resolve(database, state) == "spring"
        is_accepted = state is RequestState.ACCEPTED
        assert sent_counts(database) == (3 if is_accepted else 1, 3)

    def test_resolution_of_another_send_changes_nothing(self, partly_unknown: Database) -> None:
        resolved = [SentRequest("lost-elsewhere", 2)]
        place = ("other", "run", "send", -1)
        recorded = partly_unknown.write(
            lambda connection: record_resolution(connection, place, ["lost-elsewhere"], resolved)
        )
        assert recorded == (None, [])
        assert sent_counts(partly_unknown) == (1, 2)

    def test_resolution_of_a_single_request_adds_it_to_no_other(self, database: Database) -> None:
        start_send(database, "alone")
        save_requests(database, SentRequest("alone", 1), campaign="alone")
        finish_send(database, "alone", expected=1)
        assert resolve(database, RequestState.ACCEPTED, "alone") is None
