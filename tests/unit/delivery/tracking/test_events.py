"""What DAGs are started on is found once, and kept until somebody was told."""

from __future__ import annotations

import threading
from datetime import UTC, datetime, timedelta

import pytest
from sqlalchemy import select, update

from cpaas_provider.database.schema.delivery import deliveries, sends
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
from tests.unit.delivery.report_builders import ADA, OBI, UMA, report, save_reports, to

PACK = CallbackToken("spring", "pack", 20)
EVER = dict.fromkeys(KINDS, datetime(2000, 1, 1, tzinfo=UTC))


def begin(database, campaign="spring", operation="send_sms"):
    database.write(lambda c: record_send_started(c, TrackedSend(campaign, operation, "shop", "dag", "run", "send", -1)))


def end(database, campaign="spring", expected=2):
    database.write(lambda c: record_send_finished(c, campaign, expected))


def sent(database, campaign="spring", expected=2, operation="send_sms", reference=None):
    begin(database, campaign, operation)
    noted(database, campaign, expected, reference)
    end(database, campaign, expected)


def noted(database, campaign="spring", recipients=2, reference=None):
    request = SentRequest(reference or to(campaign=campaign).reference, recipients)
    database.write(lambda c: record_requests(c, campaign, "shop", [request]))


def found(database, kind=None, since=EVER, looked=None):
    """Collect, and return what is to be told."""
    detect_events(database, since, looked)
    with database.connect() as connection:
        return [one for one in unpublished(connection) if kind in (None, one.kind)]


def told(database):
    with database.connect() as connection:
        all_ = unpublished(connection)
    database.write(lambda c: mark_published(c, all_))


def an_age_passes(database, column=None, by=timedelta(hours=73)):
    """Have everything noted so far be older."""
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


class TestCampaignFinished:
    def test_is_told_once_everybody_is_known_to_be_reached_or_not(self, database):
        sent(database)
        save_reports(database, report(ADA, "delivered", token=to(ADA, OBI)))
        assert found(database) == []
        save_reports(database, report(OBI, "sent", token=to(ADA, OBI)))
        assert found(database) == []
        save_reports(database, report(OBI, "failed", token=to(ADA, OBI)))
        [one] = found(database, CAMPAIGN_FINISHED)
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

    def test_is_not_told_while_the_task_goes_on(self, database):
        begin(database)
        save_reports(
            database, report(ADA, "delivered", token=to(ADA, OBI)), report(OBI, "delivered", token=to(ADA, OBI))
        )
        assert found(database) == []
        noted(database)
        end(database)
        assert [one.key for one in found(database)] == ["spring"]

    def test_is_told_after_a_time_with_those_open_of_whom_nothing_is_known(self, database):
        sent(database)
        save_reports(database, report(ADA, "delivered", token=to(ADA, OBI)))
        an_age_passes(database)
        [one] = found(database)
        assert (one.facts["delivered"], one.facts["unreported"]) == (1, 1)

    def test_is_told_at_last_when_the_task_never_came_to_an_end(self, database):
        begin(database)
        save_reports(database, report(ADA, "delivered", token=to(ADA, OBI)))
        an_age_passes(database)
        assert found(database) == []
        an_age_passes(database, by=timedelta(days=5))
        assert [one.key for one in found(database)] == ["spring"]

    def test_is_told_once_whatever_comes_later(self, database):
        sent(database, expected=1)
        save_reports(database, report(ADA, "delivered", token=PACK))
        assert len(found(database)) == 1
        assert len(found(database)) == 1
        told(database)
        save_reports(database, report(ADA, "clicked", token=PACK))
        end(database, expected=2)
        save_reports(database, report(OBI, "delivered", token=PACK))
        assert found(database, CAMPAIGN_FINISHED) == []

    def test_is_seen_by_what_became_known_since_the_last_look(self, database):
        sent(database, "old", 1)
        sent(database, "new", 1)
        save_reports(database, report(ADA, "delivered", token=to(ADA, campaign="old")))
        an_age_passes(database, by=timedelta(hours=1))
        save_reports(database, report(ADA, "delivered", token=to(ADA, campaign="new")))
        assert [one.key for one in found(database, looked=datetime.now(UTC))] == ["new"]
        assert [one.key for one in found(database)] == ["new", "old"]

    def test_of_more_than_are_found_at_a_time_leaves_none_out(self, database, monkeypatch):
        monkeypatch.setattr(events, "MAX_FINISHED", 2)
        for number in range(5):
            sent(database, f"c{number}", 1)
        save_reports(database, *(report(ADA, "delivered", token=to(ADA, campaign=f"c{n}")) for n in range(5)))
        assert len(found(database)) == 5

    def test_of_before_anybody_wanted_to_know_is_told_to_nobody(self, database):
        sent(database, expected=1)
        save_reports(database, report(ADA, "failed", token=PACK))
        later = dict.fromkeys(KINDS, datetime.now(UTC) + timedelta(seconds=1))
        assert found(database, since=later) == []
        assert found(database) == []

    def test_click_in_a_campaign_that_is_long_complete_starts_no_new_dag(self, database):
        sent(database, expected=1)
        save_reports(database, report(ADA, "delivered", token=PACK))
        an_age_passes(database, by=timedelta(days=60))
        save_reports(database, report(ADA, "clicked", token=PACK))
        new_dag = dict.fromkeys(KINDS, datetime.now(UTC) - timedelta(hours=1))
        assert found(database, CAMPAIGN_FINISHED, since=new_dag) == []
        assert found(database, CAMPAIGN_FINISHED) == []

    def test_erasure_of_the_last_open_recipient_starts_no_dag(self, database):
        sent(database, expected=2)
        save_reports(database, report(ADA, "delivered", token=to(ADA, OBI)), report(OBI, "sent", token=to(ADA, OBI)))
        erase(database, f"+{OBI}")
        assert found(database) == []
        assert found(database, looked=datetime.now(UTC)) == []
        an_age_passes(database, "ended_at")
        [one] = found(database)
        assert (one.facts["delivered"], one.facts["undelivered"]) == (1, 1)

    def test_campaign_closed_by_an_erasure_starts_a_dag_that_was_scheduled_before_its_deadline(self, database):
        sent(database, expected=1)
        save_reports(database, report(ADA, "sent", token=to(ADA)))
        erase(database, f"+{ADA}")
        an_age_passes(database)
        new_dag = dict.fromkeys(KINDS, datetime.now(UTC) - timedelta(hours=2))
        assert [one.key for one in found(database, CAMPAIGN_FINISHED, since=new_dag)] == ["spring"]

    def test_is_told_with_the_last_report_after_somebody_was_erased(self, database):
        sent(database, expected=2)
        save_reports(database, report(OBI, "sent", token=to(ADA, OBI)))
        erase(database, f"+{OBI}")
        assert found(database) == []
        save_reports(database, report(ADA, "delivered", token=to(ADA, OBI)))
        assert [one.key for one in found(database)] == ["spring"]

    def test_next_report_finishes_a_campaign_whose_last_open_recipient_was_erased(self, database):
        sent(database, expected=2)
        save_reports(database, report(ADA, "delivered", token=to(ADA, OBI)), report(OBI, "sent", token=to(ADA, OBI)))
        erase(database, f"+{OBI}")
        assert found(database) == []
        save_reports(database, report(ADA, "clicked", token=to(ADA, OBI)))
        assert [one.key for one in found(database, CAMPAIGN_FINISHED)] == ["spring"]

    def test_is_told_when_the_task_ends_after_somebody_was_erased(self, database):
        begin(database)
        noted(database, recipients=1)
        save_reports(database, report(OBI, "sent", token=to(OBI)))
        erase(database, f"+{OBI}")
        end(database, expected=1)
        assert [one.key for one in found(database)] == ["spring"]

    def test_of_one_campaign_and_connection_is_not_told_by_reports_of_another(self, database):
        sent(database, "spring", 1)
        sent(database, "summer", 1)
        save_reports(database, report(ADA, "delivered", token=to(ADA, campaign="spring"), conn_id="other"))
        save_reports(database, report(ADA, "delivered", token=to(ADA, campaign="summer")))
        assert [one.key for one in found(database)] == ["summer"]

    def test_of_many_is_found_by_many_processes_once(self, database):
        for number in range(60):
            sent(database, f"c{number}", 1)
        save_reports(database, *(report(ADA, "failed", token=to(ADA, campaign=f"c{n}")) for n in range(60)))
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


class TestReachedByAnotherRequest:
    @pytest.mark.parametrize(
        ("spelling", "other"),
        [(ADA, f"0{ADA[3:]}"), (f"0{ADA[3:]}", f"+{ADA}"), ("a@x.org", "Ann <a@x.org>"), ("Ann <a@x.org>", "A@X.org")],
    )
    def test_whatever_spelling_each_has(self, database, spelling, other):
        begin(database)
        save_reports(
            database,
            report(spelling, "failed", token=CallbackToken("spring", "first", 20), region="NG"),
            report(other, "delivered", token=CallbackToken("spring", "second", 20), region="NG"),
            report(UMA, "failed", token=CallbackToken("spring", "second", 20), region="NG"),
        )
        noted(database, recipients=20, reference="first")
        noted(database, recipients=20, reference="second")
        assert [one.facts for one in found(database, MESSAGES_FAILED)] == [{"recipients": 1}]


class TestBatches:
    def test_hold_what_failed_since_the_last_one(self, database, batches_at_once):
        save_reports(database, report(ADA, "failed", token=PACK), report(OBI, "delivered", token=PACK))
        save_reports(database, report(UMA, "bounced", token=to(UMA, campaign="summer")))
        first = found(database)
        assert {(one.kind, one.campaign, one.facts["recipients"]) for one in first} == {
            (MESSAGES_FAILED, "spring", 1),
            (MESSAGES_FAILED, "summer", 1),
        }
        assert len({one.batch for one in first}) == 1
        assert {one.key for one in first} == {f"{one.campaign}.{one.batch}" for one in first}
        told(database)
        save_reports(database, report(ADA, "rejected", token=PACK), report(UMA, "failed", token=PACK))
        [second] = found(database)
        assert second.batch > first[0].batch
        assert second.facts == {"recipients": 1}

    def test_are_some_time_apart(self, database):
        save_reports(database, report(ADA, "failed", token=PACK))
        assert len(found(database)) == 1
        save_reports(database, report(OBI, "failed", token=PACK))
        assert len(found(database)) == 1

    def test_leave_nobody_out_when_there_are_too_many_for_one(self, database, batches_at_once, monkeypatch):
        monkeypatch.setattr(events, "BATCH_SIZE", 2)
        save_reports(database, *(report(f"23480300000{n}", "failed", token=PACK) for n in range(10, 15)))
        for _ in range(3):
            detect_events(database, EVER)
        assert [one.facts["recipients"] for one in found(database)] == [2, 2, 1]

    def test_tell_of_who_clicked_and_of_who_got_airtime(self, database):
        sent(database, "reward", 1, "buy_airtime")
        save_reports(database, report(ADA, "success", token=to(ADA, campaign="reward")))
        save_reports(database, report(OBI, "clicked", token=PACK))
        save_reports(database, report(UMA, "delivered", token=PACK))
        assert {(one.kind, one.campaign) for one in found(database)} == {
            (CAMPAIGN_FINISHED, "reward"),
            (AIRTIME_SUCCEEDED, "reward"),
            (LINK_CLICKED, "spring"),
        }

    @pytest.mark.parametrize("named", ["message_id", "external_ref", "callback"])
    def test_tell_of_airtime_that_was_reported_before_its_purchase_was_recorded(self, database, batches_at_once, named):
        ours = "cpaas-" + "a" * 24
        early = {
            "message_id": report(ADA, "success", message_id="m1"),
            "external_ref": report(ADA, "success", external_ref=ours),
            "callback": report(ADA, "success", token=to(ADA, campaign=ours, reference=ours)),
        }
        save_reports(database, early[named])
        begin(database, ours, "buy_airtime")
        database.write(lambda c: record_requests(c, ours, "shop", [SentRequest(ours, 1, "m1")]))
        end(database, ours, 1)
        assert [one.campaign for one in found(database, AIRTIME_SUCCEEDED)] == [ours]

    def test_leave_out_who_was_reached_after_all(self, database):
        save_reports(database, report(ADA, "failed", token=PACK), report(ADA, "delivered", token=PACK))
        assert found(database) == []

    def test_leave_out_who_was_reached_after_all_and_is_erased(self, database, batches_at_once):
        begin(database)
        for reference in ("first", "second"):
            noted(database, reference=reference)
        save_reports(database, report(ADA, "failed", token=CallbackToken("spring", "first", 2)))
        save_reports(database, report(ADA, "delivered", token=CallbackToken("spring", "second", 2)))
        end(database, expected=4)
        assert found(database) == []
        erase(database, ADA)
        assert found(database) == []

    def test_wait_a_while_for_the_campaign_of_a_request_that_nobody_has_noted(self, database, batches_at_once):
        ours = "cpaas-" + "a" * 24
        save_reports(database, report(ADA, "failed", external_ref=ours))
        assert found(database) == []
        begin(database)
        database.write(lambda c: record_requests(c, "spring", "shop", [SentRequest(ours, 2)]))
        assert [one.campaign for one in found(database)] == ["spring"]
        told(database)
        save_reports(database, report(OBI, "failed", external_ref="cpaas-" + "b" * 24))
        an_age_passes(database, "updated_at")
        assert [one.campaign for one in found(database)] == ["cpaas-" + "b" * 24]

    def test_tell_at_once_of_a_request_that_is_one_by_itself(self, database):
        ours = "cpaas-" + "a" * 24
        begin(database, ours)
        save_reports(database, report(ADA, "failed", external_ref=ours))
        assert [one.campaign for one in found(database, MESSAGES_FAILED)] == [ours]

    def test_wait_a_while_for_whoever_a_message_belongs_to(self, database):
        save_reports(database, report(ADA, "failed", message_id="m1"), report(OBI, "failed", message_id="m2"))
        assert found(database) == []
        database.write(lambda c: record_requests(c, "spring", "shop", [SentRequest("pack", 1, "m1")]))
        an_age_passes(database, by=timedelta(minutes=11))
        assert {(one.campaign, one.facts["recipients"]) for one in found(database)} == {("spring", 1), ("", 1)}

    @pytest.mark.parametrize("kind", events.BATCHED)
    def test_are_found_by_an_index_of_those_alone(self, database, kind):
        query = select(deliveries.c.conn_id).where(events._waiting(kind, datetime.now(UTC)))
        text = str(query.compile(database.engine, compile_kwargs={"literal_binds": True})).replace("%%", "%")
        explain = "EXPLAIN QUERY PLAN"
        with database.connect() as connection:
            if connection.dialect.name == "postgresql":
                explain = "EXPLAIN"
                connection.exec_driver_sql("SET LOCAL enable_seqscan = off")  # which small tables are read by
            plan = str(connection.exec_driver_sql(f"{explain} {text}".replace("%", "%%")).all())
        assert f"cpaas_deliveries_{events.BATCHED[kind].batch.name}" in plan

    def test_are_never_torn_apart(self, database):
        save_reports(database, *(report(ADA, "failed", token=to(ADA, campaign=f"c{n}")) for n in range(5)))
        detect_events(database, EVER)
        with database.connect() as connection:
            assert len(unpublished(connection, limit=1)) == 5


class TestConcerned:
    @pytest.fixture(autouse=True)
    def as_configured(self, database, monkeypatch):
        url = database.engine.url.render_as_string(hide_password=False)
        monkeypatch.setenv("AIRFLOW__CPAAS__DATABASE", url)

    def rows(self, source, *wanted):
        with source.open() as table:
            return [row.values for row in table.rows(wanted)]

    def test_are_those_a_campaign_did_not_reach(self, database):
        save_reports(database, report(ADA, "failed", token=PACK, reason="absent"), report(OBI, "delivered", token=PACK))
        save_reports(database, report(UMA, "failed", token=to(UMA, campaign="other")))
        found = self.rows(DeliveryEventSource("spring"), "recipient", "outcome", "reason")
        assert found == [(f"+{ADA}", "undelivered", "absent")]

    def test_are_those_of_a_batch_still_not_reached(self, database, batches_at_once):
        save_reports(database, *(report(one, "failed", token=PACK) for one in (ADA, OBI)))
        save_reports(database, report(UMA, "failed", token=to(UMA, campaign="other")))
        key = found(database)[0].batch
        save_reports(database, report(OBI, "delivered", token=PACK))
        save_reports(database, report("2348030000009", "failed", token=PACK))
        detect_events(database, EVER)
        assert self.rows(DeliveryEventSource(str(key)), "recipient") == [(f"+{UMA}",), (f"+{ADA}",)]
        assert self.rows(DeliveryEventSource(f"spring.{key}"), "recipient") == [(f"+{ADA}",)]

    def test_are_found_in_a_list_of_contacts_by_their_number_however_it_is_written(self, database, tmp_path):
        save_reports(database, report(ADA, "failed", token=PACK), report(OBI, "failed", token=PACK))
        people = tmp_path / "people.csv"
        people.write_text(f"phone,email\n0803 000 0001,ada@example.com\n+{UMA},uma@example.com\nnobody,x@example.com\n")
        source = DeliveryEventSource("spring", CsvSource(str(people)), region="NG")
        assert self.rows(source, "email") == [("ada@example.com",)]
        assert self.rows(DeliveryEventSource("spring", str(people)), "email") == []

    def test_are_found_by_their_address(self, database):
        save_reports(database, report("Ada@Example.com", "bounced", token=PACK))
        people = [{"mail": "ADA@example.com ", "name": "Ada"}, {"mail": "obi@example.com", "name": "Obi"}]
        assert self.rows(DeliveryEventSource("spring", people, column="mail"), "name") == [("Ada",)]

    @pytest.mark.parametrize("key", ["spring 1", "a/b", "'; drop table cpaas_sends; --"])
    def test_of_a_key_that_is_none_of_ours_are_refused(self, key):
        with pytest.raises(SourceError, match="partition key is neither"):
            self.rows(DeliveryEventSource(key), "recipient")

    @pytest.mark.parametrize("key", ["sprong", "Spring", "cpaas-0123456789"])
    def test_of_a_campaign_without_a_record_are_refused(self, database, key):
        save_reports(database, report(ADA, "failed", token=PACK))
        with pytest.raises(SourceError, match=f"no record of a campaign {key}"):
            self.rows(DeliveryEventSource(key), "recipient")

    def test_of_a_campaign_with_a_record_and_no_report_are_none(self, database):
        begin(database)
        assert self.rows(DeliveryEventSource("spring"), "recipient") == []

    @pytest.mark.parametrize("key", ["None", "null", "nan", " ", "", "none"])
    def test_of_a_key_without_a_value_are_refused(self, database, key):
        source = DeliveryEventSource("{{ dag_run.partition_key }}")
        source.partition_key = key
        with pytest.raises(SourceError, match="partition_key is"):
            self.rows(source, "recipient")

    def test_a_list_without_the_column_is_refused(self, database, tmp_path):
        begin(database)
        people = tmp_path / "people.csv"
        people.write_text("number,email\n1,2\n")
        with pytest.raises(SourceError, match="no column 'phone'"):
            self.rows(DeliveryEventSource("spring", str(people)), "email")
