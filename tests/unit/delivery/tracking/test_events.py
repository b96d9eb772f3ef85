"""What DAGs are started on is found once, and kept until somebody was told."""

from __future__ import annotations

import threading
from datetime import UTC, datetime, timedelta

import pytest
from sqlalchemy import select, update

from cpaas_provider.database.schema import delivery as schema
from cpaas_provider.database.schema.delivery import RequestState, deliveries, requests, sends
from cpaas_provider.delivery.callbacks.tokens import CallbackToken
from cpaas_provider.delivery.tracking import events
from cpaas_provider.delivery.tracking.erasure import erase
from cpaas_provider.delivery.tracking.events import (
    AIRTIME_SUCCEEDED,
    CAMPAIGN_FINISHED,
    KINDS,
    LINK_CLICKED,
    MESSAGES_FAILED,
    detect_events,
    mark_published,
    unpublished,
)
from cpaas_provider.delivery.tracking.sent_requests import (
    SentRequest,
    TrackedSend,
    record_requests,
    record_send_finished,
    record_send_started,
)
from cpaas_provider.sources.base import SourceError
from cpaas_provider.sources.csv_file import CsvSource
from cpaas_provider.sources.delivery_events import DeliveryEventSource
from tests.unit.delivery.report_builders import ADA, OBI, UMA, report, save_reports, token_for

PACK = CallbackToken("spring", "pack", 20)
EVER = dict.fromkeys(KINDS, datetime(2000, 1, 1, tzinfo=UTC))


def start_send(database, campaign="spring", operation="send_sms"):
    database.write(lambda c: record_send_started(c, TrackedSend(campaign, operation, "shop", "dag", "run", "send", -1)))


def finish_send(database, campaign="spring", expected=2):
    database.write(lambda c: record_send_finished(c, campaign, expected))


def save_send(database, campaign="spring", expected=2, operation="send_sms", reference=None):
    start_send(database, campaign, operation)
    save_request(database, campaign, expected, reference)
    finish_send(database, campaign, expected)


def save_request(database, campaign="spring", recipients=2, reference=None):
    request = SentRequest(reference or token_for(campaign=campaign).reference, recipients)
    database.write(lambda c: record_requests(c, campaign, "shop", [request]))


def find_events(database, kind=None, since=EVER, looked=None):
    """Detect events, and return those that are not published."""
    detect_events(database, since, looked)
    with database.connect() as connection:
        return [one for one in unpublished(connection) if kind in (None, one.kind)]


def publish_events(database):
    with database.connect() as connection:
        all_ = unpublished(connection)
    database.write(lambda c: mark_published(c, all_))


def make_older(database, column=None, by=timedelta(hours=73)):
    """Have everything recorded so far be older."""
    for table, name in ((sends, "started_at"), (sends, "ended_at"), (deliveries, "updated_at")):
        moment = table.c[name]
        if column not in (None, name):
            continue
        with database.connect() as connection:
            keys = list(table.primary_key)
            rows = connection.execute(select(*keys, moment)).all()
        for *key, at in rows:
            where = [one == value for one, value in zip(keys, key, strict=True)]
            if at:
                database.write(
                    lambda c, w=where, t=table, n=name, a=at: c.execute(update(t).where(*w).values({n: a - by}))
                )


@pytest.fixture
def batches_at_once(monkeypatch):
    monkeypatch.setattr(events, "MIN_BATCH_INTERVAL", timedelta(0))


class TestCampaignFinishedEvent:
    def test_campaign_finishes_once_every_recipient_has_a_final_status(self, database):
        save_send(database)
        save_reports(database, report(ADA, "delivered", token=token_for(ADA, OBI)))
        assert find_events(database) == []
        save_reports(database, report(OBI, "sent", token=token_for(ADA, OBI)))
        assert find_events(database) == []
        save_reports(database, report(OBI, "failed", token=token_for(ADA, OBI)))
        [one] = find_events(database, CAMPAIGN_FINISHED)
        assert (one.key, one.campaign, one.conn_id) == ("spring", "spring", "shop")
        assert one.facts == {
            "operation": "send_sms",
            "dag_id": "dag",
            "run_id": "run",
            "task_id": "send",
            "map_index": -1,
            "recipients": 2,
            "delivered": 1,
            "undelivered": 1,
            "in_flight": 0,
            "unreported": 0,
            "unknown": 0,
            "single": False,
        }

    def test_campaign_does_not_finish_while_its_task_runs(self, database):
        start_send(database)
        save_reports(
            database,
            report(ADA, "delivered", token=token_for(ADA, OBI)),
            report(OBI, "delivered", token=token_for(ADA, OBI)),
        )
        assert find_events(database) == []
        save_request(database)
        finish_send(database)
        assert [one.key for one in find_events(database)] == ["spring"]

    def test_campaign_finishes_at_its_deadline_with_unreported_recipients(self, database):
        save_send(database)
        save_reports(database, report(ADA, "delivered", token=token_for(ADA, OBI)))
        make_older(database)
        [one] = find_events(database)
        assert (one.facts["delivered"], one.facts["unreported"]) == (1, 1)

    def test_campaign_whose_task_never_ended_finishes_after_some_days(self, database):
        start_send(database)
        save_reports(database, report(ADA, "delivered", token=token_for(ADA, OBI)))
        make_older(database)
        assert find_events(database) == []
        make_older(database, by=timedelta(days=5))
        assert [one.key for one in find_events(database)] == ["spring"]

    def test_campaign_finishes_once_despite_later_reports(self, database):
        save_send(database, expected=1)
        save_reports(database, report(ADA, "delivered", token=PACK))
        assert len(find_events(database)) == 1
        assert len(find_events(database)) == 1
        publish_events(database)
        save_reports(database, report(ADA, "clicked", token=PACK))
        finish_send(database, expected=2)
        save_reports(database, report(OBI, "delivered", token=PACK))
        assert find_events(database, CAMPAIGN_FINISHED) == []

    def test_finished_campaign_is_found_by_reports_since_the_last_scan(self, database):
        save_send(database, "old", 1)
        save_send(database, "new", 1)
        save_reports(database, report(ADA, "delivered", token=token_for(ADA, campaign="old")))
        make_older(database, by=timedelta(hours=1))
        save_reports(database, report(ADA, "delivered", token=token_for(ADA, campaign="new")))
        assert [one.key for one in find_events(database, looked=datetime.now(UTC))] == ["new"]
        assert [one.key for one in find_events(database)] == ["new", "old"]

    def test_more_finished_campaigns_than_one_query_finds_are_all_found(self, database, monkeypatch):
        monkeypatch.setattr(events, "MAX_FINISHED", 2)
        for number in range(5):
            save_send(database, f"c{number}", 1)
        save_reports(database, *(report(ADA, "delivered", token=token_for(ADA, campaign=f"c{n}")) for n in range(5)))
        assert len(find_events(database)) == 5

    def test_events_from_before_a_dag_was_scheduled_are_never_published(self, database):
        save_send(database, expected=1)
        save_reports(database, report(ADA, "failed", token=PACK))
        later = dict.fromkeys(KINDS, datetime.now(UTC) + timedelta(seconds=1))
        assert find_events(database, since=later) == []
        assert find_events(database) == []

    def test_click_in_a_campaign_that_is_long_complete_starts_no_new_dag(self, database):
        save_send(database, expected=1)
        save_reports(database, report(ADA, "delivered", token=PACK))
        make_older(database, by=timedelta(days=60))
        save_reports(database, report(ADA, "clicked", token=PACK))
        new_dag = dict.fromkeys(KINDS, datetime.now(UTC) - timedelta(hours=1))
        assert find_events(database, CAMPAIGN_FINISHED, since=new_dag) == []
        assert find_events(database, CAMPAIGN_FINISHED) == []

    def test_erasure_of_the_last_open_recipient_starts_no_dag(self, database):
        save_send(database, expected=2)
        save_reports(
            database,
            report(ADA, "delivered", token=token_for(ADA, OBI)),
            report(OBI, "sent", token=token_for(ADA, OBI)),
        )
        erase(database, f"+{OBI}")
        assert find_events(database) == []
        assert find_events(database, looked=datetime.now(UTC)) == []
        make_older(database, "ended_at")
        [one] = find_events(database)
        assert (one.facts["delivered"], one.facts["undelivered"]) == (1, 1)

    def test_campaign_closed_by_an_erasure_starts_a_dag_that_was_scheduled_before_its_deadline(self, database):
        save_send(database, expected=1)
        save_reports(database, report(ADA, "sent", token=token_for(ADA)))
        erase(database, f"+{ADA}")
        make_older(database)
        new_dag = dict.fromkeys(KINDS, datetime.now(UTC) - timedelta(hours=2))
        assert [one.key for one in find_events(database, CAMPAIGN_FINISHED, since=new_dag)] == ["spring"]

    def test_last_report_after_an_erasure_finishes_the_campaign(self, database):
        save_send(database, expected=2)
        save_reports(database, report(OBI, "sent", token=token_for(ADA, OBI)))
        erase(database, f"+{OBI}")
        assert find_events(database) == []
        save_reports(database, report(ADA, "delivered", token=token_for(ADA, OBI)))
        assert [one.key for one in find_events(database)] == ["spring"]

    def test_next_report_finishes_a_campaign_whose_last_open_recipient_was_erased(self, database):
        save_send(database, expected=2)
        save_reports(
            database,
            report(ADA, "delivered", token=token_for(ADA, OBI)),
            report(OBI, "sent", token=token_for(ADA, OBI)),
        )
        erase(database, f"+{OBI}")
        assert find_events(database) == []
        save_reports(database, report(ADA, "clicked", token=token_for(ADA, OBI)))
        assert [one.key for one in find_events(database, CAMPAIGN_FINISHED)] == ["spring"]

    def test_end_of_the_task_after_an_erasure_finishes_the_campaign(self, database):
        start_send(database)
        save_request(database, recipients=1)
        save_reports(database, report(OBI, "sent", token=token_for(OBI)))
        erase(database, f"+{OBI}")
        finish_send(database, expected=1)
        assert [one.key for one in find_events(database)] == ["spring"]

    def test_report_on_another_connection_or_campaign_finishes_no_campaign(self, database):
        save_send(database, "spring", 1)
        save_send(database, "summer", 1)
        save_reports(database, report(ADA, "delivered", token=token_for(ADA, campaign="spring"), conn_id="other"))
        save_reports(database, report(ADA, "delivered", token=token_for(ADA, campaign="summer")))
        assert [one.key for one in find_events(database)] == ["summer"]

    def test_concurrent_scans_find_each_event_once(self, database):
        for number in range(60):
            save_send(database, f"c{number}", 1)
        save_reports(database, *(report(ADA, "failed", token=token_for(ADA, campaign=f"c{n}")) for n in range(60)))
        together = threading.Barrier(4)

        def process():
            together.wait()
            detect_events(database, EVER)

        threads = [threading.Thread(target=process) for _ in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        with database.connect() as connection:
            all_ = unpublished(connection)
        assert sorted(one.campaign for one in all_ if one.kind == CAMPAIGN_FINISHED) == sorted(
            f"c{n}" for n in range(60)
        )
        failed = [one for one in all_ if one.kind == MESSAGES_FAILED]
        assert sorted(one.campaign for one in failed) == sorted(f"c{n}" for n in range(60))
        assert len({one.batch for one in failed}) == 1


class TestRecipientReachedByAnotherRequest:
    @pytest.mark.parametrize(
        ("spelling", "other"),
        [(ADA, f"0{ADA[3:]}"), (f"0{ADA[3:]}", f"+{ADA}"), ("a@x.org", "Ann <a@x.org>"), ("Ann <a@x.org>", "A@X.org")],
    )
    def test_recipient_that_another_request_reached_in_any_spelling_is_no_failure(self, database, spelling, other):
        start_send(database)
        save_reports(
            database,
            report(spelling, "failed", token=CallbackToken("spring", "first", 20), region="NG"),
            report(other, "delivered", token=CallbackToken("spring", "second", 20), region="NG"),
            report(UMA, "failed", token=CallbackToken("spring", "second", 20), region="NG"),
        )
        save_request(database, recipients=20, reference="first")
        save_request(database, recipients=20, reference="second")
        assert [event.facts for event in find_events(database, MESSAGES_FAILED)] == [{"recipients": 1}]


class TestEventBatches:
    def test_batch_has_the_failures_since_the_last_one(self, database, batches_at_once):
        save_reports(database, report(ADA, "failed", token=PACK), report(OBI, "delivered", token=PACK))
        save_reports(database, report(UMA, "bounced", token=token_for(UMA, campaign="summer")))
        first = find_events(database)
        assert {(one.kind, one.campaign, one.facts["recipients"]) for one in first} == {
            (MESSAGES_FAILED, "spring", 1),
            (MESSAGES_FAILED, "summer", 1),
        }
        assert len({one.batch for one in first}) == 1
        assert {one.key for one in first} == {f"{one.campaign}.{one.batch}" for one in first}
        publish_events(database)
        save_reports(database, report(ADA, "rejected", token=PACK), report(UMA, "failed", token=PACK))
        [second] = find_events(database)
        assert second.batch > first[0].batch
        assert second.facts == {"recipients": 1}

    @pytest.mark.parametrize("kind", events.BATCHED)
    def test_recipient_of_two_requests_is_in_one_batch(self, database, batches_at_once, kind):
        operation, status = {
            MESSAGES_FAILED: ("send_sms", "failed"),
            AIRTIME_SUCCEEDED: ("buy_airtime", "success"),
            LINK_CLICKED: ("send_sms", "clicked"),
        }[kind]
        start_send(database, operation=operation)
        for reference in ("first", "second"):
            save_request(database, reference=reference)
        save_reports(database, report(ADA, status, token=CallbackToken("spring", "first", 2)))
        assert [event.facts for event in find_events(database, kind)] == [{"recipients": 1}]
        publish_events(database)
        save_reports(database, report(ADA, status, token=CallbackToken("spring", "second", 2)))
        assert find_events(database, kind) == []

    def test_failures_without_a_name_are_in_the_batches_of_their_requests(self, database, batches_at_once):
        start_send(database)
        for reference in ("first", "second"):
            save_request(database, recipients=1, reference=reference)
            save_reports(database, report("", "failed", token=CallbackToken("spring", reference, 1)))
            assert [event.facts for event in find_events(database, MESSAGES_FAILED)] == [{"recipients": 1}]
            publish_events(database)

    def test_next_batch_waits_for_the_minimum_interval(self, database):
        save_reports(database, report(ADA, "failed", token=PACK))
        assert len(find_events(database)) == 1
        save_reports(database, report(OBI, "failed", token=PACK))
        assert len(find_events(database)) == 1

    def test_batch_of_a_clock_that_was_ahead_delays_no_later_batch(self, database):
        """A publisher on a machine with a wrong clock made one batch."""
        save_reports(database, report(ADA, "failed", token=PACK))
        [first] = find_events(database)
        ahead = first.batch + 10**16
        database.write(lambda c: c.execute(update(schema.events).values(batch=ahead)))
        database.write(lambda c: c.execute(update(deliveries).values(failed_batch=ahead)))
        save_reports(database, report(OBI, "failed", token=PACK))
        [_, second] = find_events(database)
        assert first.batch < second.batch < ahead
        save_reports(database, report(UMA, "failed", token=PACK))
        assert len(find_events(database)) == 2

    def test_failures_beyond_the_size_of_a_batch_are_in_the_next_ones(self, database, batches_at_once, monkeypatch):
        monkeypatch.setattr(events, "BATCH_SIZE", 2)
        save_reports(database, *(report(f"23480300000{n}", "failed", token=PACK) for n in range(10, 15)))
        for _ in range(3):
            detect_events(database, EVER)
        assert [one.facts["recipients"] for one in find_events(database)] == [2, 2, 1]

    def test_clicked_links_and_successful_airtime_are_published(self, database):
        save_send(database, "reward", 1, "buy_airtime")
        save_reports(database, report(ADA, "success", token=token_for(ADA, campaign="reward")))
        save_reports(database, report(OBI, "clicked", token=PACK))
        save_reports(database, report(UMA, "delivered", token=PACK))
        assert {(one.kind, one.campaign) for one in find_events(database)} == {
            (CAMPAIGN_FINISHED, "reward"),
            (AIRTIME_SUCCEEDED, "reward"),
            (LINK_CLICKED, "spring"),
        }

    @pytest.mark.parametrize("named", ["message_id", "external_ref", "callback"])
    def test_airtime_reported_before_its_purchase_was_recorded_is_published(self, database, batches_at_once, named):
        ours = "cpaas-" + "a" * 24
        early = {
            "message_id": report(ADA, "success", message_id="m1"),
            "external_ref": report(ADA, "success", external_ref=ours),
            "callback": report(ADA, "success", token=token_for(ADA, campaign=ours, reference=ours)),
        }
        save_reports(database, early[named])
        start_send(database, ours, "buy_airtime")
        database.write(lambda c: record_requests(c, ours, "shop", [SentRequest(ours, 1, "m1")]))
        finish_send(database, ours, 1)
        assert [one.campaign for one in find_events(database, AIRTIME_SUCCEEDED)] == [ours]

    def test_recipient_with_a_failure_and_a_delivery_is_in_no_batch(self, database):
        save_reports(database, report(ADA, "failed", token=PACK), report(ADA, "delivered", token=PACK))
        assert find_events(database) == []

    def test_erased_recipient_that_another_request_reached_is_in_no_batch(self, database, batches_at_once):
        start_send(database)
        for reference in ("first", "second"):
            save_request(database, reference=reference)
        save_reports(database, report(ADA, "failed", token=CallbackToken("spring", "first", 2)))
        save_reports(database, report(ADA, "delivered", token=CallbackToken("spring", "second", 2)))
        finish_send(database, expected=4)
        assert find_events(database) == []
        erase(database, ADA)
        assert find_events(database) == []

    def test_failure_of_an_unrecorded_request_waits_for_its_campaign(self, database, batches_at_once):
        ours = "cpaas-" + "a" * 24
        save_reports(database, report(ADA, "failed", external_ref=ours))
        assert find_events(database) == []
        start_send(database)
        database.write(lambda c: record_requests(c, "spring", "shop", [SentRequest(ours, 2)]))
        assert [one.campaign for one in find_events(database)] == ["spring"]
        publish_events(database)
        save_reports(database, report(OBI, "failed", external_ref="cpaas-" + "b" * 24))
        make_older(database, "updated_at")
        assert [one.campaign for one in find_events(database)] == ["cpaas-" + "b" * 24]

    def test_failure_of_a_single_send_is_published_at_once(self, database):
        ours = "cpaas-" + "a" * 24
        start_send(database, ours)
        save_reports(database, report(ADA, "failed", external_ref=ours))
        assert [one.campaign for one in find_events(database, MESSAGES_FAILED)] == [ours]

    def test_failure_of_an_unrecorded_message_waits_for_its_campaign(self, database):
        save_reports(database, report(ADA, "failed", message_id="m1"), report(OBI, "failed", message_id="m2"))
        assert find_events(database) == []
        database.write(lambda c: record_requests(c, "spring", "shop", [SentRequest("pack", 1, "m1")]))
        make_older(database, by=timedelta(minutes=11))
        assert {(one.campaign, one.facts["recipients"]) for one in find_events(database)} == {("spring", 1), ("", 1)}

    @pytest.mark.parametrize("kind", events.BATCHED)
    def test_events_of_a_batch_are_found_by_the_index_of_their_kind(self, database, kind):
        query = select(deliveries.c.conn_id).where(events._waiting(kind, datetime.now(UTC)))
        text = str(query.compile(database.engine, compile_kwargs={"literal_binds": True})).replace("%%", "%")
        explain = "EXPLAIN QUERY PLAN"
        with database.connect() as connection:
            if connection.dialect.name == "postgresql":
                explain = "EXPLAIN"
                connection.exec_driver_sql("SET LOCAL enable_seqscan = off")  # which small tables are read by
            plan = str(connection.exec_driver_sql(f"{explain} {text}".replace("%", "%%")).all())
        assert f"cpaas_deliveries_{events.BATCHED[kind].batch.name}" in plan

    def test_batch_is_never_split(self, database):
        save_reports(database, *(report(ADA, "failed", token=token_for(ADA, campaign=f"c{n}")) for n in range(5)))
        detect_events(database, EVER)
        with database.connect() as connection:
            assert len(unpublished(connection, limit=1)) == 5


class TestDeliveryEventSource:
    @pytest.fixture(autouse=True)
    def configured_database(self, database, monkeypatch):
        url = database.engine.url.render_as_string(hide_password=False)
        monkeypatch.setenv("AIRFLOW__CPAAS__DATABASE", url)

    def rows(self, source, *wanted):
        with source.open() as table:
            return [row.values for row in table.rows(wanted)]

    def test_source_of_a_campaign_has_the_recipients_it_did_not_reach(self, database):
        save_reports(database, report(ADA, "failed", token=PACK, reason="absent"), report(OBI, "delivered", token=PACK))
        save_reports(database, report(UMA, "failed", token=token_for(UMA, campaign="other")))
        rows = self.rows(DeliveryEventSource("spring"), "recipient", "outcome", "reason")
        assert rows == [(f"+{ADA}", "undelivered", "absent")]

    def test_source_of_a_batch_has_its_recipients_that_are_still_not_reached(self, database, batches_at_once):
        save_reports(database, *(report(one, "failed", token=PACK) for one in (ADA, OBI)))
        save_reports(database, report(UMA, "failed", token=token_for(UMA, campaign="other")))
        key = find_events(database)[0].batch
        save_reports(database, report(OBI, "delivered", token=PACK))
        save_reports(database, report("2348030000009", "failed", token=PACK))
        detect_events(database, EVER)
        assert self.rows(DeliveryEventSource(str(key)), "recipient") == [(f"+{UMA}",), (f"+{ADA}",)]
        assert self.rows(DeliveryEventSource(f"spring.{key}"), "recipient") == [(f"+{ADA}",)]

    def test_failure_of_a_repeated_request_is_in_the_batch_of_the_first_one(self, database, batches_at_once):
        """A run that starts late finds the recipient by the request that counts."""
        start_send(database)
        save_request(database, reference="first")
        save_reports(database, report(ADA, "failed", token=CallbackToken("spring", "first", 2)))
        [first] = find_events(database)
        database.write(lambda c: c.execute(update(requests).values(state=RequestState.SUPERSEDED)))
        save_request(database, reference="second")
        save_reports(database, report(ADA, "failed", token=CallbackToken("spring", "second", 2)))
        assert find_events(database) == [first]
        assert self.rows(DeliveryEventSource(first.key), "recipient") == [(f"+{ADA}",)]

    def test_source_finds_contacts_by_their_number_in_any_notation(self, database, tmp_path):
        save_reports(database, report(ADA, "failed", token=PACK), report(OBI, "failed", token=PACK))
        people = tmp_path / "people.csv"
        people.write_text(f"phone,email\n0803 000 0001,ada@example.com\n+{UMA},uma@example.com\nnobody,x@example.com\n")
        source = DeliveryEventSource("spring", CsvSource(str(people)), region="NG")
        assert self.rows(source, "email") == [("ada@example.com",)]
        assert self.rows(DeliveryEventSource("spring", str(people)), "email") == []

    def test_source_finds_contacts_by_their_address(self, database):
        save_reports(database, report("Ada@Example.com", "bounced", token=PACK))
        people = [{"mail": "ADA@example.com ", "name": "Ada"}, {"mail": "obi@example.com", "name": "Obi"}]
        assert self.rows(DeliveryEventSource("spring", people, column="mail"), "name") == [("Ada",)]

    @pytest.mark.parametrize("key", ["spring 1", "a/b", "'; drop table cpaas_sends; --"])
    def test_invalid_partition_key_is_refused(self, key):
        with pytest.raises(SourceError, match="partition key is neither"):
            self.rows(DeliveryEventSource(key), "recipient")

    @pytest.mark.parametrize("key", ["sprong", "Spring", "cpaas-0123456789"])
    def test_campaign_without_a_record_is_refused(self, database, key):
        save_reports(database, report(ADA, "failed", token=PACK))
        with pytest.raises(SourceError, match=f"no record of a campaign {key}"):
            self.rows(DeliveryEventSource(key), "recipient")

    def test_recorded_campaign_without_reports_has_no_recipients(self, database):
        start_send(database)
        assert self.rows(DeliveryEventSource("spring"), "recipient") == []

    @pytest.mark.parametrize("key", ["None", "null", "nan", " ", "", "none"])
    def test_partition_key_without_a_value_is_refused(self, database, key):
        source = DeliveryEventSource("{{ dag_run.partition_key }}")
        source.partition_key = key
        with pytest.raises(SourceError, match="partition_key is"):
            self.rows(source, "recipient")

    def test_contacts_without_the_column_are_refused(self, database, tmp_path):
        start_send(database)
        people = tmp_path / "people.csv"
        people.write_text("number,email\n1,2\n")
        with pytest.raises(SourceError, match="no column 'phone'"):
            self.rows(DeliveryEventSource("spring", str(people)), "email")
