"""Campaigns with an idempotency key, whatever run sends them, and campaigns in partitions."""

from __future__ import annotations

import asyncio
import datetime as dt
import threading
import time
from collections import Counter
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest
from airflow.sdk import timezone
from sqlalchemy import select

from cpaas_provider.database.leases import LEASE, LeasedState
from cpaas_provider.database.schema.campaigns import campaigns
from cpaas_provider.operators.base_campaign import partitions
from cpaas_provider.operators.sms import SmsCampaignOperator
from cpaas_provider.tasks.campaign import store as campaign_store
from tests.airflow.harness.campaigns import (
    TEXT,
    around_requests,
    clear_faults,
    count_messages,
    counts,
    digits,
    limit_batches,
    requests,
    rows,
    sms,
    stored_state_text,
)
from tests.airflow.harness.task_runner import TaskRunner, fault
from tests.airflow.harness.tries import Run, new_dag

KEY = {"idempotency_key": "spring"}


@pytest.fixture(autouse=True)
def store(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A database of each test's own."""
    monkeypatch.setenv("AIRFLOW__CPAAS__DATABASE", f"sqlite:///{tmp_path}/store.db")
    return tmp_path / "store.db"


def parts(task_runner: TaskRunner, count: int, source: Any = None, **given: Any) -> Run:
    """Return a run of a campaign that is mapped over its parts."""
    with new_dag() as dag:
        SmsCampaignOperator.partial(
            task_id="campaign", source=rows(40) if source is None else source, content=TEXT, **given
        ).expand(partition=partitions(count))
    return Run(task_runner, dag)


def test_new_run_without_a_key_sends_again(task_runner: TaskRunner) -> None:
    assert [sms(task_runner, rows(4)).run_try().state for _ in range(2)] == ["success", "success"]
    assert count_messages(task_runner) == Counter(digits(4) * 2)


class TestIdempotencyKey:
    def test_another_run_sends_nothing_and_reports_the_same(self, task_runner: TaskRunner) -> None:
        first = sms(task_runner, rows(4), **KEY).run_try()
        second = sms(task_runner, rows(4), **KEY).run_try()
        assert (second.state, second.result, requests(task_runner)) == ("success", first.result, 1)

    def test_report_names_the_day_of_the_first_request_in_all_runs(self, task_runner: TaskRunner) -> None:
        today = timezone.utcnow().date()
        first = sms(task_runner, rows(2), **KEY).run_try()
        second = sms(task_runner, rows(3), **KEY).run_try()
        days = {done.result["first_request_on"] for done in (first, second)}
        assert days in ({str(today)}, {str(today + dt.timedelta(days=1))})
        assert sms(task_runner, rows(2), dry_run=True).run_try().result["first_request_on"] is None

    def test_another_run_sends_only_to_added_recipients(self, task_runner: TaskRunner) -> None:
        sms(task_runner, rows(4), **KEY).run_try()
        sms(task_runner, rows(6), **KEY).run_try()
        assert count_messages(task_runner) == Counter(digits(6))

    def test_another_run_continues_where_the_first_ended(self, task_runner: TaskRunner) -> None:
        limit_batches(task_runner)
        task_runner.sandbox.control(*fault("send_sms", "unauthorized", after=2))
        assert sms(task_runner, rows(5), **KEY).run_try().state == "failed"
        clear_faults(task_runner)
        done = sms(task_runner, rows(5), **KEY).run_try()
        assert (counts(done.result), count_messages(task_runner)) == ({"sent": 5}, Counter(digits(5)))

    def test_another_key_is_another_campaign_and_the_key_is_a_template(self, task_runner: TaskRunner) -> None:
        for _ in range(2):
            sms(task_runner, rows(2), idempotency_key="spring-{{ dag.dag_id }}").run_try()
        assert count_messages(task_runner) == Counter(digits(2) * 2)

    def test_unknown_request_stays_unknown_in_another_run(self, task_runner: TaskRunner) -> None:
        task_runner.sandbox.control(*fault("send_sms", "cut_after", times=1))
        first = sms(task_runner, rows(2), **KEY).run_try()
        second = sms(task_runner, rows(2), **KEY).run_try()
        assert (second.state, second.references, requests(task_runner)) == ("failed", first.references, 1)

    @pytest.mark.parametrize("drop_state", [False, True])
    def test_clear_drops_nothing_of_the_journal(self, task_runner: TaskRunner, drop_state: bool) -> None:
        run = sms(task_runner, rows(4), **KEY)
        run.run_try()
        again = run.clear(drop_state=drop_state).run_try()
        assert (again.state, counts(again.result), requests(task_runner)) == ("success", {"sent": 4}, 1)

    def test_database_and_state_hold_nothing_private(self, task_runner: TaskRunner, store: Path) -> None:
        run = sms(task_runner, rows(4), idempotency_key="spring for everybody")
        run.run_try()
        lies = b"".join(one.read_bytes() for one in store.parent.glob("store.db*")) + stored_state_text(run).encode()
        assert not [one for one in (*digits(4), "Person 1", "order", "everybody") if one.encode() in lies]

    def test_campaign_without_the_database_sends_nothing_and_is_retried(
        self, task_runner: TaskRunner, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setenv("AIRFLOW__CPAAS__DATABASE", "sqlite:////proc/nowhere/store.db")
        run = sms(task_runner, rows(2), **KEY)
        failed = run.run_try()
        assert (failed.state, requests(task_runner)) == ("up_for_retry", 0)
        assert "Nothing was sent" in failed.error

    @pytest.mark.parametrize("key", ["", "  ", 5])
    def test_invalid_key_is_refused(self, task_runner: TaskRunner, key: Any) -> None:
        failed = sms(task_runner, rows(2), idempotency_key=key).run_try()
        assert (failed.state, requests(task_runner)) == ("failed", 0)

    def test_key_with_resend_on_clear_is_refused(self, task_runner: TaskRunner) -> None:
        with pytest.raises(ValueError, match="cannot be combined with resend_on_clear"):
            sms(task_runner, rows(2), **KEY, resend_on_clear=True)


class TestConcurrentRuns:
    def test_second_waits_for_its_retries_and_sends_nothing(
        self, task_runner: TaskRunner, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        other = sms(task_runner, rows(4), **KEY)
        seen: list[Any] = []

        async def during(request: Callable[[], Awaitable[Any]]) -> Any:
            """Another run asks for the same while this one's first request is under way."""
            if not seen:
                thread = threading.Thread(target=lambda: seen.append(state_of_another()))
                thread.start()
                thread.join()
            return await request()

        def state_of_another() -> str:
            from cpaas_provider.database.database import open_database
            from cpaas_provider.database.errors import DatabaseError

            with open_database() as database:
                name = campaigns_of(database)
                try:
                    LeasedState(database, name, "somebody else").acquire()
                except DatabaseError as error:
                    return str(error)
            return "taken"

        around_requests(monkeypatch, during)
        done = sms(task_runner, rows(4), **KEY).run_try()
        assert done.state == "success"
        assert "is working on this campaign" in seen[0]
        assert (other.run_try().state, count_messages(task_runner)) == ("success", Counter(digits(4)))

    def test_task_fails_while_another_holds_the_lease_and_its_retry_continues(self, task_runner: TaskRunner) -> None:
        from cpaas_provider.database.database import open_database

        sms(task_runner, rows(2), **KEY).run_try()
        with open_database() as database:
            state = LeasedState(database, campaigns_of(database), "somebody else")
            state.acquire()
            run = sms(task_runner, rows(4), **KEY)
            failed = run.run_try()
            assert (failed.state, "working on this campaign: somebody else" in failed.error) == ("up_for_retry", True)
            assert requests(task_runner) == 1
            state.release()
        assert (run.run_try().state, count_messages(task_runner)) == ("success", Counter(digits(4)))

    def test_lease_of_a_dead_task_expires(self, task_runner: TaskRunner) -> None:
        from cpaas_provider.database.database import open_database

        sms(task_runner, rows(2), **KEY).run_try()
        with open_database() as database:
            gone = timezone.utcnow() - LEASE - dt.timedelta(seconds=1)
            LeasedState(database, campaigns_of(database), "somebody dead").acquire(now=gone)
        assert sms(task_runner, rows(4), **KEY).run_try().state == "success"

    def test_lease_is_renewed_while_a_request_takes_long(
        self, task_runner: TaskRunner, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        from cpaas_provider.database.database import open_database

        monkeypatch.setattr(campaign_store, "LEASE", dt.timedelta(seconds=0.25))
        ends: list[Any] = []

        async def wait_for_renewals(request: Callable[[], Awaitable[Any]]) -> Any:
            deadline = time.monotonic() + 30
            with open_database() as database, database.connect() as connection:
                while len(ends) < 3 and time.monotonic() < deadline:
                    end = connection.execute(select(campaigns.c.lease_expires_at)).scalar_one()
                    if end not in ends:
                        ends.append(end)
                    connection.rollback()
                    await asyncio.sleep(0.01)
            return await request()

        around_requests(monkeypatch, wait_for_renewals)
        assert sms(task_runner, rows(2), **KEY).run_try().state == "success"
        assert len(ends) == 3
        assert ends == sorted(ends)

    def test_task_that_lost_its_lease_sends_nothing_more(
        self, task_runner: TaskRunner, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        limit_batches(task_runner)
        from cpaas_provider.database.database import open_database

        async def loses(request: Callable[[], Awaitable[Any]]) -> Any:
            """Another task takes the lease after the first request."""
            answer = await request()
            with open_database() as database:
                later = timezone.utcnow() + 2 * LEASE
                LeasedState(database, campaigns_of(database), "somebody else").acquire(now=later)
            return answer

        around_requests(monkeypatch, loses)
        ended = sms(task_runner, rows(4), **KEY).run_try()
        assert (ended.state, requests(task_runner)) == ("up_for_retry", 1)
        assert "has taken over the campaign" in ended.error


def campaigns_of(database: Any) -> str:
    """Return the name under which the one campaign there is is kept."""
    from sqlalchemy import text

    with database.connect() as connection:
        names = [row[0] for row in connection.execute(text("SELECT campaign FROM cpaas_campaigns")).all()]
    (name,) = [one for one in names if one.endswith("/0")]
    return str(name)


class TestPartitions:
    @pytest.mark.parametrize(("max_recipients", "state", "sent"), [(19, "failed", 0), (20, "success", 20)])
    def test_max_recipients_counts_the_recipients_of_all_partitions(
        self, task_runner: TaskRunner, max_recipients: int, state: str, sent: int
    ) -> None:
        run = parts(task_runner, 2, rows(20), max_recipients=max_recipients)
        tries = [run.run_try(map_index=index) for index in (0, 1)]
        assert ([ended.state for ended in tries], count_messages(task_runner).total()) == ([state] * 2, sent)
        if state == "failed":
            assert all("has 20 recipients in all partitions" in ended.error for ended in tries)

    def test_each_recipient_is_in_one_partition(self, task_runner: TaskRunner) -> None:
        run = parts(task_runner, 3, [*rows(40), *rows(10)])
        tries = [run.run_try(map_index=index) for index in range(3)]
        assert [one.state for one in tries] == ["success"] * 3
        assert count_messages(task_runner) == Counter(digits(40))
        assert sum(one.result["sent"] for one in tries) == 40
        assert sum(one.result["duplicates"] for one in tries) == 10
        assert all(one.result["sent"] + one.result["in_other_partitions"] >= 40 for one in tries)

    def test_budget_is_divided(self, task_runner: TaskRunner) -> None:
        limit_batches(task_runner)
        run = parts(task_runner, 2, max_charge=40.0)
        tries = [run.run_try(map_index=index) for index in range(2)]
        assert [one.report["charge"] for one in tries] == [20.0, 20.0]

    def test_rate_is_divided(self, task_runner: TaskRunner) -> None:
        limit_batches(task_runner, requests_per_second=20, max_concurrency=8)
        parts(task_runner, 2, rows(12)).run_try(map_index=0)
        sent = sorted(one["created_datetime"] for one in task_runner.sandbox.inbox("sms")["items"])
        first, last = (dt.datetime.fromisoformat(one) for one in (sent[0], sent[-1]))
        # An answer may come a little late, but no request leaves sooner than a tenth of a second after the one before.
        assert (last - first).total_seconds() >= (len(sent) - 1) / 10 - 0.05

    def test_invalid_rows_and_test_recipients_count_in_one_partition(self, task_runner: TaskRunner) -> None:
        given = [*rows(6), {"phone": "x"}, {"phone": "y"}, {"phone": "z"}]
        run = parts(
            task_runner, 2, given, test_recipients=[{"phone": "+2348099000001", "name": "Tess"}], max_failure_ratio=1
        )
        tries = [run.run_try(map_index=index) for index in range(2)]
        assert sum(one.result["invalid_rows"] for one in tries) == 3
        assert count_messages(task_runner) == Counter([*digits(6), "2348099000001"])

    def test_second_run_of_the_partitions_under_the_key_sends_nothing(self, task_runner: TaskRunner) -> None:
        for _ in range(2):
            run = parts(task_runner, 2, **KEY)
            assert [run.run_try(map_index=index).state for index in range(2)] == ["success", "success"]
        assert count_messages(task_runner) == Counter(digits(40))

    def test_another_number_of_partitions_under_the_key_is_refused(self, task_runner: TaskRunner) -> None:
        run = parts(task_runner, 2, **KEY)
        for index in range(2):
            run.run_try(map_index=index)
        before = requests(task_runner)
        failed = parts(task_runner, 3, **KEY).run_try(map_index=0)
        assert (failed.state, requests(task_runner)) == ("failed", before)
        assert "started in 2 partitions and cannot continue in 3 partitions" in failed.error
        assert sms(task_runner, rows(40), **KEY).run_try().state == "failed"

    def test_partition_that_a_guard_leaves_empty_succeeds(self, task_runner: TaskRunner) -> None:
        task_runner.connect("cpaas_default", allowed_recipients="2348099999999")
        run = parts(task_runner, 2, rows(4))
        tries = [run.run_try(map_index=index) for index in range(2)]
        assert [attempt.state for attempt in tries] == ["success"] * 2
        assert sum(attempt.result["not_allowed"] for attempt in tries) == 4
        assert requests(task_runner) == 0

    def test_invalid_partition_is_refused(self, task_runner: TaskRunner) -> None:
        with pytest.raises(ValueError, match="partition must be a value of"):
            sms(task_runner, rows(1), partition={"part": 3, "of": 3})
