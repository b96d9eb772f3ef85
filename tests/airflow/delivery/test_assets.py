"""DAGs that start on delivery, with Airflow's own database and scheduler: one run for each campaign or batch."""

from __future__ import annotations

import itertools
import os
import threading
from datetime import UTC, datetime, timedelta

import pytest

from cpaas_provider.assets import (
    airtime_succeeded,
    campaign_finished,
    contacts_changed,
    link_clicked,
    messages_failed,
    on_airtime_succeeded,
    on_campaign_finished,
    on_link_clicked,
    on_messages_failed,
)
from cpaas_provider.assets.schedules import DeliveryAsset, parse_uri
from cpaas_provider.database.database import open_database
from cpaas_provider.delivery.tracking.sent_requests import (
    SentRequest,
    TrackedSend,
    record_requests,
    record_send_finished,
    record_send_started,
)
from tests.unit.delivery.report_builders import ADA, OBI, report, save_reports, token_for

_numbers = itertools.count()


@pytest.fixture
def store(airflow_db, tmp_path, monkeypatch):
    """A database of the test's own, named in the configuration."""
    monkeypatch.setenv("AIRFLOW__CPAAS__DATABASE", f"sqlite:///{tmp_path / 'store.db'}")
    with open_database() as opened:
        yield opened


@pytest.fixture
def scheduled(airflow_db):
    """Schedule DAGs, and remove them at the end; return a function from a schedule to the DAG's id."""
    from airflow.dag_processing.dagbag import DagBag, sync_bag_to_db
    from airflow.models.dagbundle import DagBundleModel
    from airflow.providers.standard.operators.empty import EmptyOperator
    from airflow.sdk import DAG
    from airflow.utils.session import create_session

    bag = DagBag(dag_folder=os.devnull, collect_dags=False, bundle_name="delivery")
    with create_session() as session:
        session.merge(DagBundleModel(name="delivery"))

    def schedule(timetable, paused=False):
        with DAG(f"on_delivery_{next(_numbers)}", schedule=timetable) as dag:
            EmptyOperator(task_id="task")
        bag.bag_dag(dag)
        sync_bag_to_db(bag, "delivery", None)
        set_paused(paused, dag.dag_id)
        # Events from before the DAG do not start it; the clock is too coarse for that here.
        since(datetime.now(UTC) - timedelta(minutes=1))
        return dag.dag_id

    yield schedule
    set_paused(True)
    bag.dags.clear()
    from airflow.models.asset import AssetEvent, AssetPartitionDagRun, DagScheduleAssetReference, PartitionedAssetKeyLog

    with create_session() as session:
        for table in (DagScheduleAssetReference, PartitionedAssetKeyLog, AssetPartitionDagRun, AssetEvent):
            session.query(table).delete()


def set_paused(paused, *dag_ids):
    from airflow.models.dag import DagModel
    from airflow.utils.session import create_session
    from sqlalchemy import update

    with create_session() as session:
        which = DagModel.dag_id.in_(dag_ids) if dag_ids else DagModel.dag_id.startswith("on_delivery_")
        session.execute(update(DagModel).where(which).values(is_paused=paused))


def since(moment, dag_id=None):
    from airflow.models.asset import DagScheduleAssetReference
    from airflow.utils.session import create_session
    from sqlalchemy import true, update

    with create_session() as session:
        which = DagScheduleAssetReference.dag_id == dag_id if dag_id else true()
        session.execute(update(DagScheduleAssetReference).where(which).values(created_at=moment))


def run_once():
    """Publish once, as a new process."""
    from cpaas_provider.assets.publisher import EventPublisher

    publisher = EventPublisher()
    try:
        return publisher.run_once()
    finally:
        publisher.stop()


def runs_of(dag_id):
    """Have Airflow's scheduler start due runs; return their keys and the contents of their events."""
    from airflow.jobs.job import Job
    from airflow.jobs.scheduler_job_runner import SchedulerJobRunner
    from airflow.models.dagrun import DagRun
    from airflow.utils.session import create_session
    from sqlalchemy import select

    runner = SchedulerJobRunner(Job())
    with create_session() as session:
        while runner._create_dagruns_for_partitioned_asset_dags(session):
            pass
    with create_session() as session:
        runs = session.scalars(select(DagRun).where(DagRun.dag_id == dag_id).order_by(DagRun.id)).all()
        return [(run.partition_key, [event.extra for event in run.consumed_asset_events]) for run in runs]


def finished(store, *campaigns, conn_id="shop", is_single=False):
    """Send a campaign to two recipients, and deliver it to one. A single send is a campaign of its one request."""
    for name in campaigns:
        store.write(
            lambda c, n=name: record_send_started(c, TrackedSend(n, "send_sms", conn_id, "dag", "run", "send", -1))
        )
        request = SentRequest(name if is_single else token_for(campaign=name).reference, 2)
        store.write(lambda c, n=name, one=request: record_requests(c, n, conn_id, [one]))
        store.write(lambda c, n=name: record_send_finished(c, n, 2))
    token = [token_for(ADA, OBI, campaign=name, reference=name if is_single else None) for name in campaigns]
    save_reports(store, *(report(ADA, "delivered", token=one, conn_id=conn_id) for one in token))
    save_reports(store, *(report(OBI, "failed", token=one, conn_id=conn_id) for one in token))


class TestPublishing:
    def test_starts_one_run_for_each_campaign_that_finished(self, store, scheduled):
        dag_id = scheduled(on_campaign_finished())
        finished(store, "spring", "summer")
        assert run_once() == 2
        runs = runs_of(dag_id)
        assert [key for key, _ in runs] == ["spring", "summer"]
        [extra] = runs[0][1]
        assert extra == {
            "campaign": "spring",
            "connection": "shop",
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
        assert run_once() == 0
        assert len(runs_of(dag_id)) == 2

    def test_case_of_the_connection_s_id_makes_no_other_connection(self, store, scheduled):
        dag_id, other = scheduled(on_campaign_finished("Shop")), scheduled(on_campaign_finished("shop2"))
        finished(store, "spring", conn_id="SHOP")
        assert run_once() == 1
        assert ([key for key, _ in runs_of(dag_id)], runs_of(other)) == (["spring"], [])

    def test_single_send_starts_a_run_only_with_include_single_messages(self, store, scheduled):
        campaigns, both = (
            scheduled(on_campaign_finished()),
            scheduled(on_campaign_finished(include_single_messages=True)),
        )
        finished(store, "spring")
        finished(store, "alone", is_single=True)
        assert run_once() == 3
        assert [key for key, _ in runs_of(campaigns)] == ["spring"]
        assert {key for key, _ in runs_of(both)} == {"spring", "alone"}

    def test_starts_no_second_run_if_the_publication_was_not_recorded(self, store, scheduled, monkeypatch):
        from cpaas_provider.assets import publisher

        dag_id = scheduled(on_campaign_finished())
        finished(store, "spring")

        def killed(*_, **__):
            raise RuntimeError("killed")

        with monkeypatch.context() as patch:
            patch.setattr(publisher, "mark_published", killed)
            with pytest.raises(RuntimeError, match="killed"):
                run_once()
        assert len(runs_of(dag_id)) == 1
        assert run_once() == 0
        assert len(runs_of(dag_id)) == 1

    def test_starts_no_second_run_if_several_processes_publish(self, store, scheduled):
        dag_id = scheduled(on_campaign_finished())
        finished(store, *(f"c{number}" for number in range(30)))
        together = threading.Barrier(3)

        def process():
            together.wait()
            run_once()

        processes = [threading.Thread(target=process) for _ in range(3)]
        for one in processes:
            one.start()
        for one in processes:
            one.join()
        run_once()
        keys = [key for key, _ in runs_of(dag_id)]
        assert sorted(keys) == sorted(f"c{number}" for number in range(30))

    def test_starts_one_run_for_all_failures_of_a_batch(self, store, scheduled):
        whole, each = scheduled(on_messages_failed()), scheduled(on_messages_failed("shop", by_campaign=True))
        save_reports(
            store, *(report(OBI, "failed", token=token_for(OBI, campaign=name)) for name in ("spring", "summer"))
        )
        assert run_once() == 3
        [(batch, [extra])] = runs_of(whole)
        assert extra == {
            "connection": "shop",
            "recipients": 2,
            "campaigns": 2,
            "by_campaign": {"spring": 1, "summer": 1},
        }
        assert [key for key, _ in runs_of(each)] == [f"spring.{batch}", f"summer.{batch}"]

    def test_starts_only_dags_of_the_same_connection(self, store, scheduled):
        mine, other = scheduled(on_campaign_finished("shop")), scheduled(on_campaign_finished("bank"))
        finished(store, "spring")
        assert run_once() == 1
        assert [len(runs_of(one)) for one in (mine, other)] == [1, 0]

    def test_starts_dags_on_airtime_and_on_clicks(self, store, scheduled):
        topped_up, clicked = scheduled(on_airtime_succeeded()), scheduled(on_link_clicked())
        store.write(
            lambda c: record_send_started(c, TrackedSend("reward", "buy_airtime", "shop", "dag", "run", "buy", -1))
        )
        save_reports(store, report(ADA, "success", token=token_for(ADA, campaign="reward")))
        save_reports(store, report(OBI, "clicked", token=token_for(OBI)))
        assert run_once() == 2
        assert [[extra["by_campaign"] for extra in extras] for _, extras in runs_of(topped_up)] == [[{"reward": 1}]]
        assert [[extra["by_campaign"] for extra in extras] for _, extras in runs_of(clicked)] == [[{"spring": 1}]]

    def test_events_hold_no_number_and_no_address(self, store, scheduled):
        every = (on_campaign_finished, on_messages_failed, on_airtime_succeeded, on_link_clicked)
        dag_ids = [scheduled(one()) for one in every]
        finished(store, "spring")
        store.write(
            lambda c: record_send_started(c, TrackedSend("reward", "buy_airtime", "shop", "dag", "run", "buy", -1))
        )
        save_reports(
            store,
            report(ADA, "clicked", token=token_for(ADA)),
            report(ADA, "success", token=token_for(ADA, campaign="reward")),
            report("ann@example.com", "bounced", token=token_for("ann@example.com", campaign="mail")),
        )
        run_once()
        events = [runs_of(one) for one in dag_ids]
        assert all(events)
        contents = str(events)
        assert "mail" in contents
        assert [text for text in (ADA, ADA[3:], OBI, OBI[3:], "ann@", "example.com") if text in contents] == []

    def test_opens_no_database_while_no_dag_is_scheduled(self, airflow_db, tmp_path, monkeypatch):
        monkeypatch.setenv("AIRFLOW__CPAAS__DATABASE", f"sqlite:///{tmp_path / 'none.db'}")
        assert run_once() is None
        assert not (tmp_path / "none.db").exists()

    def test_scans_every_five_seconds_and_every_thirty_while_no_dag_is_scheduled(self, store, scheduled):
        from cpaas_provider.assets.publisher import EventPublisher

        publisher = EventPublisher()
        assert publisher._step() == 30
        scheduled(on_campaign_finished())
        assert publisher._step() == 5
        publisher.stop()

    def test_events_from_before_the_dag_start_no_run(self, store, scheduled):
        finished(store, "spring")
        dag_id = scheduled(on_campaign_finished())
        since(datetime.now(UTC) + timedelta(seconds=1))
        assert run_once() == 0
        since(datetime.now(UTC) - timedelta(minutes=1))
        assert run_once() == 0
        assert runs_of(dag_id) == []

    def test_starts_no_paused_dag(self, store, scheduled):
        dag_id = scheduled(on_campaign_finished(), paused=True)
        finished(store, "spring")
        run_once()
        assert runs_of(dag_id) == []

    def test_unpaused_dag_runs_for_events_published_while_it_was_paused(self, store, scheduled):
        paused, other = scheduled(on_campaign_finished(), paused=True), scheduled(on_campaign_finished())
        finished(store, "spring", "summer")
        from cpaas_provider.assets.publisher import EventPublisher

        publisher = EventPublisher()
        try:
            assert publisher.run_once() == 2
            assert [len(runs_of(one)) for one in (paused, other)] == [0, 2]
            set_paused(False, paused)
            assert publisher.run_once() == 0
            assert [key for key, _ in runs_of(paused)] == ["spring", "summer"]
            assert publisher.run_once() == 0
        finally:
            publisher.stop()
        # A new process starts no second run.
        assert run_once() == 0
        assert [len(runs_of(one)) for one in (paused, other)] == [2, 2]

    def test_unpaused_dag_runs_for_missed_events_after_a_restart(self, store, scheduled):
        dag_id = scheduled(on_messages_failed(), paused=True)
        save_reports(store, report(OBI, "failed", token=token_for(OBI)))
        assert run_once() == 1
        set_paused(False, dag_id)
        assert run_once() == 0
        [(_, [extra])] = runs_of(dag_id)
        assert extra["by_campaign"] == {"spring": 1}

    def test_new_dag_does_not_run_for_events_that_others_missed(self, store, scheduled):
        scheduled(on_campaign_finished(), paused=True)
        finished(store, "spring")
        assert run_once() == 1
        new = scheduled(on_campaign_finished())
        since(datetime.now(UTC) + timedelta(seconds=1), new)
        assert run_once() == 0
        assert runs_of(new) == []


class TestServing:
    def test_publishes_while_the_application_is_served(self, store, scheduled):
        from fastapi import FastAPI
        from fastapi.testclient import TestClient

        from cpaas_provider.assets.publisher import EventPublisher
        from cpaas_provider.delivery.background_job import run_while_serving
        from tests.waiting import until

        dag_id = scheduled(on_campaign_finished())
        finished(store, "spring")
        before = set(threading.enumerate())
        with TestClient(run_while_serving(FastAPI(), EventPublisher)):
            until(lambda: runs_of(dag_id))
        assert set(threading.enumerate()) <= before

    def test_publishes_again_after_the_database_failed(self, airflow_db, scheduled, tmp_path, monkeypatch, caplog):
        from fastapi import FastAPI
        from fastapi.testclient import TestClient

        from cpaas_provider.assets import publisher
        from cpaas_provider.delivery.background_job import run_while_serving
        from tests.waiting import until

        dag_id = scheduled(on_campaign_finished())
        monkeypatch.setattr(publisher, "PAUSE", 0.05)
        folder = tmp_path / "later"
        folder.write_text("in the way")
        monkeypatch.setenv("AIRFLOW__CPAAS__DATABASE", f"sqlite:///{folder / 'store.db'}")
        with TestClient(run_while_serving(FastAPI(), publisher.EventPublisher)):
            until(lambda: "Delivery events were not published" in caplog.text)
            folder.unlink()
            folder.mkdir()
            with open_database() as store:
                finished(store, "spring")
            until(lambda: runs_of(dag_id))
        assert caplog.text.count("Delivery events were not published") == 1


class TestUris:
    @pytest.mark.parametrize("conn_id", [None, "shop", "a/b c?d", "Größe"])
    @pytest.mark.parametrize("asset", [messages_failed, airtime_succeeded, link_clicked])
    @pytest.mark.parametrize("by_campaign", [False, True])
    def test_parse_uri_reverses_the_uri_of_an_asset(self, asset, conn_id, by_campaign):
        found = asset(conn_id, by_campaign=by_campaign)
        assert parse_uri(found.uri) == DeliveryAsset(asset.__name__, conn_id, by_campaign)
        assert found.uri == DeliveryAsset(asset.__name__, conn_id, by_campaign).uri  # Airflow does not change it

    def test_contact_list_is_one_asset_whatever_the_case_of_its_connection_s_id(self):
        assert contacts_changed("Shop") == contacts_changed("shop")
        assert contacts_changed("Shop") != contacts_changed("shop2")

    def test_parse_uri_reverses_the_uri_of_a_campaign_asset(self):
        assert parse_uri(campaign_finished("shop").uri) == DeliveryAsset("campaign_finished", "shop")
        assert parse_uri(campaign_finished(include_single_messages=True).uri) == DeliveryAsset(
            "campaign_finished", include_single_messages=True
        )
        assert parse_uri("s3://campaign_finished/shop") is None
