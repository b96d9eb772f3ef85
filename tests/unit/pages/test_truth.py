"""Pages after a kill, a retry and a long wait: states of tasks, versions of what is counted, and the end of polling."""

from __future__ import annotations

import re
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from fastapi.testclient import TestClient
from sqlalchemy import Connection, event, update

from cpaas_provider.database.activity.progress import (
    CAMPAIGN,
    CONTACT_SYNC,
    FAILED,
    FINISHED,
    RUNNING,
    WAITING,
    RecordedTask,
    record_progress,
)
from cpaas_provider.database.database import Database
from cpaas_provider.database.schema.activity import task_progress
from cpaas_provider.database.schema.changes import COUNTED_TABLES
from cpaas_provider.database.schema.delivery import deliveries, requests, sends
from cpaas_provider.delivery.campaigns import LEFT_OUT, Place, TaskState, read_campaigns
from cpaas_provider.delivery.tracking.sent_requests import SentRequest, record_send_finished
from cpaas_provider.pages.summaries import count_campaign, read_versions
from cpaas_provider.sending.campaign.recipients import LEFT_OUT as GUARDS
from tests.unit.delivery.report_builders import (
    ADA,
    OBI,
    finish_send,
    report,
    save_reports,
    save_requests,
    start_send,
    token_for,
)
from tests.unit.pages.conftest import ALL, mounted
from tests.unit.pages.recorded import campaign

PLACE: Place = ("spring_dag", "run 1", "send", -1)


class AirflowTasks:
    """Airflow's states of tasks, and how often a page asks for them."""

    def __init__(self) -> None:
        self.states: dict[Place, TaskState] = {}
        self.questions = 0

    def read(self, places: Any) -> dict[Place, TaskState]:
        self.questions += 1
        return {place: self.states[place] for place in places if place in self.states}


@pytest.fixture
def tasks() -> AirflowTasks:
    return AirflowTasks()


@pytest.fixture
def page(database: Database, tasks: AirflowTasks) -> Iterator[TestClient]:
    """Somebody who may read every DAG, with Airflow's states."""
    with TestClient(
        mounted(database, tasks.read), base_url="http://testserver/cpaas", headers={"x-dags": ALL}
    ) as client:
        yield client


class TestTasks:
    def test_killed_try_shows_what_may_be_sent_as_unknown(
        self, database: Database, page: TestClient, tasks: AirflowTasks
    ) -> None:
        campaign(database, "spring", state=RUNNING, recipients=10, sent=0, rejected=0, not_sent=10)
        start_send(database, "spring")
        save_reports(database, report(ADA, "delivered", token=token_for(ADA, OBI, reference="pack")))
        retry_at = datetime(2026, 5, 1, 12, 5, tzinfo=UTC)
        tasks.states[PLACE] = TaskState("up_for_retry", 1, retry_at=retry_at)
        html = page.get("/campaigns/spring").text
        assert ">interrupted<" in html
        assert "Airflow: up for retry at 2026-05-01 12:05:00 UTC, try 1" in html
        assert "<dt>Accepted</dt><dd>1 " in html
        assert "<dt>Unknown</dt><dd>9 <small>at most</small>" in html
        assert "<dt>Not sent</dt><dd>\N{EN DASH}" in html
        assert "airflow cpaas journal show spring_dag" in html

    @pytest.mark.parametrize("has_begun", [True, False], ids=["by sending", "by a probe before sending"])
    def test_killed_later_try_shows_the_requests_that_it_recorded(
        self, database: Database, page: TestClient, tasks: AirflowTasks, has_begun: bool
    ) -> None:
        campaign(database, "spring", state=RUNNING, recipients=10, sent=4, rejected=0, not_sent=6)
        start_send(database, "spring")
        save_requests(database, SentRequest("pack", 4))
        finish_send(database, "spring", expected=4)
        if has_begun:
            start_send(database, "spring")
        save_requests(database, SentRequest("again", 3))
        tasks.states[PLACE] = TaskState("up_for_retry", 1)
        html = page.get("/campaigns/spring").text
        assert "<dt>Accepted</dt><dd>7 " in html
        assert "<dt>Unknown</dt><dd>3 <small>at most</small>" in html

    @pytest.mark.parametrize(
        ("recorded", "state", "try_number", "shown"),
        [
            (RUNNING, "running", 1, "sending"),
            (RUNNING, "queued", 1, "interrupted"),
            (RUNNING, None, 1, "interrupted"),
            (RUNNING, "running", 2, "interrupted"),
            (RUNNING, "up_for_retry", 0, "sending"),
            (WAITING, "deferred", 1, "waiting"),
            (WAITING, "failed", 1, "interrupted"),
            (FAILED, "up_for_retry", 1, "failed"),
        ],
    )
    def test_state_is_that_of_the_try_that_recorded_it(
        self,
        database: Database,
        page: TestClient,
        tasks: AirflowTasks,
        recorded: str,
        state: str | None,
        try_number: int,
        shown: str,
    ) -> None:
        campaign(database, "spring", state=recorded)
        tasks.states[PLACE] = TaskState(state, try_number)
        assert f">{shown}<" in page.get("/campaigns/spring").text

    def test_state_that_changed_a_moment_ago_is_not_compared_yet(
        self, database: Database, page: TestClient, tasks: AirflowTasks
    ) -> None:
        campaign(database, "spring", state=RUNNING)
        tasks.states[PLACE] = TaskState("success", 1, changed_at=datetime.now(UTC))
        assert ">sending<" in page.get("/campaigns/spring").text

    def test_page_asks_once_for_the_states_of_all_its_tasks(
        self, database: Database, page: TestClient, tasks: AirflowTasks
    ) -> None:
        for number in range(5):
            campaign(database, f"c{number}", map_index=number)
        page.get("/campaigns")
        assert tasks.questions == 1

    def test_failed_task_shows_its_error(self, database: Database, page: TestClient) -> None:
        campaign(database, "spring", state=FAILED, error="The service rejected the sender id. Nothing was sent.")
        assert "The service rejected the sender id." in page.get("/campaigns/spring").text

    def test_every_guard_is_shown(self, database: Database, page: TestClient) -> None:
        assert {status.word for status in GUARDS} < set(LEFT_OUT)
        campaign(database, "spring", **{name: 10 + number for number, name in enumerate(LEFT_OUT)})
        html = page.get("/campaigns/spring").text
        for number, name in enumerate(LEFT_OUT):
            assert f"<dt>{name.replace('_', ' ')}</dt><dd>{10 + number}</dd>" in html
        assert "<dt>Left out</dt><dd>60" in html


class TestReplacedTry:
    def _record(self, database: Database, number: int, run_id: str, sent: int) -> None:
        task = RecordedTask("spring", CAMPAIGN, "send_sms", "shop", "dag", run_id, "send", -1, number)
        database.write(lambda connection: record_progress(connection, task, RUNNING, {"sent": sent}))

    def _sent(self, database: Database) -> Any:
        with database.connect() as connection:
            return read_campaigns(connection, ["spring"])["spring"].report["sent"]

    def test_progress_of_a_replaced_try_is_ignored(self, database: Database) -> None:
        self._record(database, 2, "run", 7)
        self._record(database, 1, "run", 3)
        assert self._sent(database) == 7
        self._record(database, 2, "run", 8)
        assert self._sent(database) == 8

    def test_another_run_of_a_keyed_campaign_counts_its_tries_anew(self, database: Database) -> None:
        self._record(database, 2, "run", 7)
        self._record(database, 1, "next run", 9)
        assert self._sent(database) == 9


class TestPolling:
    @pytest.mark.parametrize(("age", "is_read_again"), [(timedelta(hours=71), True), (timedelta(hours=73), False)])
    def test_page_stops_reading_again_when_reports_are_overdue(
        self, database: Database, page: TestClient, age: timedelta, is_read_again: bool
    ) -> None:
        campaign(database, "spring", recipients=2, sent=2, rejected=0, not_sent=0)
        start_send(database, "spring")
        save_requests(database, SentRequest("pack", 2))
        finish_send(database, "spring", expected=2)
        long_ago = {"ended_at": datetime.now(UTC) - age}
        database.write(lambda connection: connection.execute(update(task_progress).values(long_ago)))
        html = page.get("/campaigns/spring").text
        assert ("data-refresh" in html) == is_read_again
        assert ("waiting for reports" if is_read_again else "reports missing") in html

    @pytest.mark.parametrize(("state", "is_read_again"), [("up_for_retry", True), ("failed", False)])
    def test_page_of_a_killed_task_is_read_again_while_airflow_tries_again(
        self, database: Database, page: TestClient, tasks: AirflowTasks, state: str, is_read_again: bool
    ) -> None:
        campaign(database, "spring", state=RUNNING, delivery_reports=None)
        tasks.states[PLACE] = TaskState(state, 1)
        assert ("data-refresh" in page.get("/campaigns/spring").text) == is_read_again


class TestVersions:
    """Whoever changes what is counted, the version moves."""

    @pytest.fixture
    def counted(self, database: Database) -> Database:
        for name in ("spring", "summer"):
            campaign(database, name)
            start_send(database, name)
            save_requests(database, SentRequest(f"of-{name}", 2), campaign=name)
            token = token_for(ADA, OBI, campaign=name, reference=f"of-{name}")
            save_reports(database, report(ADA, "sent", token=token))
        return database

    def _versions(self, database: Database) -> dict[str, int]:
        with database.connect() as connection:
            return read_versions(connection, ["spring", "summer"])

    @pytest.mark.parametrize("table", COUNTED_TABLES, ids=[table.name for table in COUNTED_TABLES])
    def test_each_change_of_a_counted_table_moves_the_version_of_its_campaign(
        self, counted: Database, table: Any
    ) -> None:
        is_spring = table.c.campaign == "spring"
        with counted.connect() as connection:
            row = connection.execute(table.select().where(is_spring)).mappings().first()
        assert row is not None
        changes = [
            table.update().where(is_spring).values(conn_id=table.c.conn_id),
            table.delete().where(is_spring),
            table.insert().values(**row),
        ]
        for change in changes:
            before = self._versions(counted)
            counted.write(lambda connection, change=change: connection.execute(change))
            after = self._versions(counted)
            assert after["spring"] > before["spring"], str(change)
            assert after["summer"] == before["summer"]

    def test_counting_reads_no_table_whose_changes_move_no_version(self, counted: Database) -> None:
        statements: list[str] = []

        def listen(_: Connection, __: Any, statement: str, *___: Any) -> None:
            statements.append(statement)

        with counted.connect() as connection:
            record = read_campaigns(connection, ["spring"])["spring"]
            event.listen(connection, "before_cursor_execute", listen)
            count_campaign(connection, record)
        read = set(re.findall(r"cpaas_\w+", " ".join(statements)))
        assert read == {deliveries.name, requests.name, sends.name} == {table.name for table in COUNTED_TABLES}

    def test_change_that_is_rolled_back_moves_no_version(self, counted: Database) -> None:
        before = self._versions(counted)

        def fail(connection: Connection) -> None:
            record_send_finished(connection, "spring", 1)
            raise RuntimeError

        with pytest.raises(RuntimeError):
            counted.write(fail)
        assert self._versions(counted) == before

    def test_single_messages_have_no_version(self, database: Database) -> None:
        start_send(database, "single")
        save_requests(database, SentRequest("single", 1), campaign="single")
        save_reports(database, report(ADA, "sent", token=token_for(ADA, campaign="single", reference="single")))
        with database.connect() as connection:
            assert read_versions(connection, ["single"]) == {"single": 0}

    def test_concurrent_writers_of_a_campaign_do_not_wait_for_each_other(self, counted: Database) -> None:
        if counted.engine.dialect.name == "sqlite":
            pytest.skip("SQLite has one writer at a time")

        def of_reference(reference: str) -> Any:
            return deliveries.update().where(deliveries.c.reference == reference).values(reason="x")

        save_reports(counted, report(OBI, "sent", token=token_for(OBI, campaign="spring", reference="another")))
        before = self._versions(counted)["spring"]

        def change(connection: Connection) -> None:
            connection.execute(of_reference("of-spring"))
            # In the middle of the first transaction.
            counted.write(lambda other: other.execute(of_reference("another")))

        counted.write(change)
        assert self._versions(counted)["spring"] == before + 2


class TestContactSync:
    def test_contact_sync_has_a_page_that_says_why_it_failed(self, database: Database, reader: TestClient) -> None:
        task = RecordedTask(
            "sync-1", CONTACT_SYNC, "sync_contacts", "shop", "d", "run", "sync", -1, 1, {"max_deletes": 5}
        )
        figures = {
            "rows": 90,
            "planned_requests": 12,
            "invalid_rows": 4,
            "missing": 8,
            "invalid_cells": {"phone": 4},
            "error": "The sync would delete 8 rows. max_deletes is 5. Nothing was deleted.",
        }
        database.write(lambda connection: record_progress(connection, task, FAILED, figures))
        listed = reader.get("/contact-syncs").text
        assert 'href="/cpaas/contact-syncs/sync-1"' in listed
        html = reader.get("/contact-syncs/sync-1").text
        for shown in (listed, html):
            assert "The sync would delete" in shown
        for name, number in (("Planned", 12), ("Gone", 8), ("Invalid", 4)):
            assert f"<dt>{name}</dt><dd>{number}</dd>" in html
            assert f'data-name="{name}">{number}</td>' in listed
        assert "<dt>phone</dt><dd>4</dd>" in html

    def test_page_of_another_dag_and_of_a_campaign_are_not_found(
        self, database: Database, reader: TestClient, anonymous: TestClient
    ) -> None:
        task = RecordedTask("sync-1", CONTACT_SYNC, "sync_contacts", "shop", "theirs", "run", "sync", -1)
        database.write(lambda connection: record_progress(connection, task, FINISHED, {}))
        campaign(database, "spring")
        assert reader.get("/contact-syncs/spring").status_code == 404
        assert anonymous.get("/contact-syncs/sync-1", headers={"x-dags": "mine"}).status_code == 404


def test_search_finds_a_national_number_by_the_region_of_the_connection(database: Database, reader: TestClient) -> None:
    campaign(database, "spring")
    start_send(database, "spring")
    save_reports(database, report(ADA, "delivered", token=token_for(ADA)))
    found = reader.post("/search", data={"q": f"0{ADA.removeprefix('234')}"}).text
    assert 'href="/cpaas/campaigns/spring"' in found
