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
    link_clicked,
    messages_failed,
    on_airtime_succeeded,
    on_campaign_finished,
    on_link_clicked,
    on_messages_failed,
)
from cpaas_provider.assets._uri import AssetName, read_uri
from cpaas_provider.database.database import open_database
from cpaas_provider.delivery.tracking.sent_requests import (
    SentRequest,
    TrackedSend,
    record_requests,
    record_send_finished,
    record_send_started,
)
from tests.unit.delivery.report_builders import ADA, OBI, report, save_reports, to

_numbers = itertools.count()


@pytest.fixture
def store(airflow_db, tmp_path, monkeypatch):
    """A store of its own, which the configuration names."""
    monkeypatch.setenv("AIRFLOW__CPAAS__DATABASE", f"sqlite:///{tmp_path / 'store.db'}")
    with open_database() as opened:
        yield opened


@pytest.fixture
def scheduled(airflow_db):
    """Schedule DAGs, and take them away in the end; returns a function from a schedule to the DAG's id."""
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
        # What happened earlier is nobody's concern; here the clock is too coarse to tell.
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


def look():
    """Have a new process look and tell."""
    from cpaas_provider.assets.publisher import Teller

    publisher = Teller()
    try:
        return publisher.look()
    finally:
        publisher.stop()


def runs_of(dag_id):
    """Have Airflow's scheduler start what is due; return the runs' keys and what their events say."""
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


def finished(store, *campaigns, conn_id="shop"):
    """Send a campaign to two, one of whom gets it."""
    for name in campaigns:
        store.write(
            lambda c, n=name: record_send_started(c, TrackedSend(n, "send_sms", conn_id, "dag", "run", "send", -1))
        )
        request = SentRequest(to(campaign=name).reference, 2)
        store.write(lambda c, n=name, one=request: record_requests(c, n, conn_id, [one]))
        store.write(lambda c, n=name: record_send_finished(c, n, 2))
    token = [to(ADA, OBI, campaign=name) for name in campaigns]
    save_reports(store, *(report(ADA, "delivered", token=one, conn_id=conn_id) for one in token))
    save_reports(store, *(report(OBI, "failed", token=one, conn_id=conn_id) for one in token))


class TestTelling:
    def test_starts_one_run_for_each_campaign_that_finished(self, store, scheduled):
        dag_id = scheduled(on_campaign_finished())
        finished(store, "spring", "summer")
        assert look() == 2
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
            "single": False,
        }
        assert look() == 0
        assert len(runs_of(dag_id)) == 2

    def test_takes_no_single_send_for_a_campaign_unless_told_to(self, store, scheduled):
        campaigns, both = (
            scheduled(on_campaign_finished()),
            scheduled(on_campaign_finished(include_single_messages=True)),
        )
        finished(store, "spring", "alone")
        store.write(lambda c: record_requests(c, "alone", "shop", [SentRequest("alone", 2, "m1")]))
        assert look() == 3
        assert [key for key, _ in runs_of(campaigns)] == ["spring"]
        assert {key for key, _ in runs_of(both)} == {"spring", "alone"}

    def test_starts_none_twice_when_it_was_not_noted_that_it_was_told(self, store, scheduled, monkeypatch):
        from cpaas_provider.assets import publisher

        dag_id = scheduled(on_campaign_finished())
        finished(store, "spring")

        def killed(*_, **__):
            raise RuntimeError("killed")

        with monkeypatch.context() as patch:
            patch.setattr(publisher, "mark_published", killed)
            with pytest.raises(RuntimeError, match="killed"):
                look()
        assert len(runs_of(dag_id)) == 1
        assert look() == 0
        assert len(runs_of(dag_id)) == 1

    def test_starts_none_twice_when_several_tell(self, store, scheduled):
        dag_id = scheduled(on_campaign_finished())
        finished(store, *(f"c{number}" for number in range(30)))
        together = threading.Barrier(3)

        def process():
            together.wait()
            look()

        processes = [threading.Thread(target=process) for _ in range(3)]
        for one in processes:
            one.start()
        for one in processes:
            one.join()
        look()
        keys = [key for key, _ in runs_of(dag_id)]
        assert sorted(keys) == sorted(f"c{number}" for number in range(30))

    def test_starts_one_run_for_all_that_failed(self, store, scheduled):
        whole, each = scheduled(on_messages_failed()), scheduled(on_messages_failed("shop", by_campaign=True))
        save_reports(store, *(report(OBI, "failed", token=to(OBI, campaign=name)) for name in ("spring", "summer")))
        assert look() == 3
        [(batch, [extra])] = runs_of(whole)
        assert extra == {
            "connection": "shop",
            "recipients": 2,
            "campaigns": 2,
            "by_campaign": {"spring": 1, "summer": 1},
        }
        assert [key for key, _ in runs_of(each)] == [f"spring.{batch}", f"summer.{batch}"]

    def test_starts_dags_of_their_own_connection_alone(self, store, scheduled):
        mine, other = scheduled(on_campaign_finished("shop")), scheduled(on_campaign_finished("bank"))
        finished(store, "spring")
        assert look() == 1
        assert [len(runs_of(one)) for one in (mine, other)] == [1, 0]

    def test_starts_dags_on_airtime_and_on_clicks(self, store, scheduled):
        topped_up, clicked = scheduled(on_airtime_succeeded()), scheduled(on_link_clicked())
        store.write(
            lambda c: record_send_started(c, TrackedSend("reward", "buy_airtime", "shop", "dag", "run", "buy", -1))
        )
        save_reports(store, report(ADA, "success", token=to(ADA, campaign="reward")))
        save_reports(store, report(OBI, "clicked", token=to(OBI)))
        assert look() == 2
        assert [[extra["by_campaign"] for extra in extras] for _, extras in runs_of(topped_up)] == [[{"reward": 1}]]
        assert [[extra["by_campaign"] for extra in extras] for _, extras in runs_of(clicked)] == [[{"spring": 1}]]

    def test_says_no_number(self, store, scheduled):
        every = (on_campaign_finished, on_messages_failed, on_airtime_succeeded, on_link_clicked)
        dag_ids = [scheduled(one()) for one in every]
        finished(store, "spring")
        save_reports(store, report(ADA, "clicked", token=to(ADA)))
        look()
        said = str([runs_of(one) for one in dag_ids])
        assert "spring" in said
        assert ADA not in said
        assert OBI not in said

    def test_opens_no_store_while_no_dag_waits(self, airflow_db, tmp_path, monkeypatch):
        monkeypatch.setenv("AIRFLOW__CPAAS__DATABASE", f"sqlite:///{tmp_path / 'none.db'}")
        assert look() is None
        assert not (tmp_path / "none.db").exists()

    def test_tells_a_new_dag_nothing_old(self, store, scheduled):
        finished(store, "spring")
        dag_id = scheduled(on_campaign_finished())
        since(datetime.now(UTC) + timedelta(seconds=1))
        assert look() == 0
        since(datetime.now(UTC) - timedelta(minutes=1))
        assert look() == 0
        assert runs_of(dag_id) == []

    def test_starts_no_paused_dag(self, store, scheduled):
        dag_id = scheduled(on_campaign_finished(), paused=True)
        finished(store, "spring")
        look()
        assert runs_of(dag_id) == []

    def test_a_dag_that_is_paused_no_longer_runs_for_what_happened_meanwhile(self, store, scheduled):
        paused, other = scheduled(on_campaign_finished(), paused=True), scheduled(on_campaign_finished())
        finished(store, "spring", "summer")
        from cpaas_provider.assets.publisher import Teller

        publisher = Teller()
        try:
            assert publisher.look() == 2
            assert [len(runs_of(one)) for one in (paused, other)] == [0, 2]
            set_paused(False, paused)
            assert publisher.look() == 0
            assert [key for key, _ in runs_of(paused)] == ["spring", "summer"]
            assert publisher.look() == 0
        finally:
            publisher.stop()
        # Nor does a new process start anything anew.
        assert look() == 0
        assert [len(runs_of(one)) for one in (paused, other)] == [2, 2]

    def test_so_it_does_when_the_process_was_started_anew_meanwhile(self, store, scheduled):
        dag_id = scheduled(on_messages_failed(), paused=True)
        save_reports(store, report(OBI, "failed", token=to(OBI)))
        assert look() == 1
        set_paused(False, dag_id)
        assert look() == 0
        [(_, [extra])] = runs_of(dag_id)
        assert extra["by_campaign"] == {"spring": 1}

    def test_a_new_dag_is_told_nothing_of_what_others_missed(self, store, scheduled):
        scheduled(on_campaign_finished(), paused=True)
        finished(store, "spring")
        assert look() == 1
        new = scheduled(on_campaign_finished())
        since(datetime.now(UTC) + timedelta(seconds=1), new)
        assert look() == 0
        assert runs_of(new) == []


class TestServing:
    def test_goes_on_for_as_long_as_the_application_is_served(self, store, scheduled):
        from fastapi import FastAPI
        from fastapi.testclient import TestClient

        from cpaas_provider.assets.publisher import telling
        from tests.airflow.harness.examples import wait_for

        dag_id = scheduled(on_campaign_finished())
        finished(store, "spring")
        before = set(threading.enumerate())
        with TestClient(telling(FastAPI())):
            wait_for(lambda: runs_of(dag_id))
        assert set(threading.enumerate()) <= before

    def test_goes_on_after_the_store_could_not_be_used(self, airflow_db, scheduled, tmp_path, monkeypatch, caplog):
        from fastapi import FastAPI
        from fastapi.testclient import TestClient

        from cpaas_provider.assets import publisher
        from tests.airflow.harness.examples import wait_for

        dag_id = scheduled(on_campaign_finished())
        monkeypatch.setattr(publisher, "PAUSE", 0.05)
        folder = tmp_path / "later"
        folder.write_text("in the way")
        monkeypatch.setenv("AIRFLOW__CPAAS__DATABASE", f"sqlite:///{folder / 'store.db'}")
        with TestClient(publisher.telling(FastAPI())):
            wait_for(lambda: "Delivery events were not published" in caplog.text)
            folder.unlink()
            folder.mkdir()
            with open_database() as store:
                finished(store, "spring")
            wait_for(lambda: runs_of(dag_id))
        assert caplog.text.count("Delivery events were not published") == 1


class TestNames:
    @pytest.mark.parametrize("conn_id", [None, "shop", "a/b c?d", "Größe"])
    @pytest.mark.parametrize("asset", [messages_failed, airtime_succeeded, link_clicked])
    @pytest.mark.parametrize("by_campaign", [False, True])
    def test_are_read_as_they_are_written(self, asset, conn_id, by_campaign):
        found = asset(conn_id, by_campaign=by_campaign)
        assert read_uri(found.uri) == AssetName(asset.__name__, conn_id, by_campaign)
        assert found.uri == AssetName(asset.__name__, conn_id, by_campaign).uri  # Airflow changes nothing of it

    def test_of_a_campaign_are_read_as_they_are_written(self):
        assert read_uri(campaign_finished("shop").uri) == AssetName("campaign_finished", "shop")
        assert read_uri(campaign_finished(include_single_messages=True).uri) == AssetName(
            "campaign_finished", include_single_messages=True
        )
        assert read_uri("s3://campaign_finished/shop") is None
