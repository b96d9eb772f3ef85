"""An opt-out that arrives while a campaign runs acts in that campaign."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest

from cpaas_provider.database.database import open_database
from cpaas_provider.database.schema.recipients import message_counts, suppressions
from cpaas_provider.hooks.suppressions import add_suppressions
from cpaas_provider.sending.campaign.guards import suppressions as running
from cpaas_provider.tasks.database import suppressions as stored
from tests.airflow.harness.campaigns import (
    around_requests,
    count_messages,
    counts,
    digits,
    limit_batches,
    outcomes,
    rows,
    sms,
)
from tests.airflow.harness.task_runner import TaskRunner, forget_campaign_database
from tests.unit.database.conftest import postgres_url as postgres_url
from tests.unit.database.conftest import sqlite_url as sqlite_url
from tests.unit.database.conftest import url as url


@pytest.fixture(autouse=True)
def database(airflow_db: Path, url: str, monkeypatch: pytest.MonkeyPatch) -> Any:
    monkeypatch.setenv("AIRFLOW__CPAAS__DATABASE", url)
    # So that a test need not wait for seconds.
    monkeypatch.setattr(running, "CHECK_EVERY", 0)
    monkeypatch.setattr(stored, "_EMPTY_FOR", 0)
    forget_campaign_database()
    yield
    forget_campaign_database()


@pytest.fixture
def after(monkeypatch: pytest.MonkeyPatch) -> Callable[[int, Callable[[], Any]], None]:
    """Do something after so many requests of a campaign."""

    def register(number: int, work: Callable[[], Any]) -> None:
        made = 0

        async def around(request: Callable[[], Awaitable[Any]]) -> Any:
            nonlocal made
            response = await request()
            made += 1
            if made == number:
                await asyncio.to_thread(work)
            return response

        around_requests(monkeypatch, around)

    return register


@pytest.mark.parametrize("had_entries", [False, True])
def test_recipient_who_opts_out_meanwhile_gets_no_message(
    task_runner: TaskRunner, after: Callable[..., None], tmp_path: Path, *, had_entries: bool
) -> None:
    if had_entries:
        add_suppressions("+2348039999999")
    limit_batches(task_runner)
    late = digits(1, 6)[0]
    after(2, lambda: add_suppressions(f"+{late}"))
    results = tmp_path / "results.jsonl"
    done = sms(task_runner, rows(8), results_path=str(results)).run_try()
    assert counts(done.result) == {"sent": 7, "suppressed": 1}
    assert set(count_messages(task_runner)) == set(digits(8)) - {late}
    assert outcomes(results)[late] == "suppressed"
    assert "Added to the suppression list since the campaign began, and left out: 1 recipient." in done.log
    assert late not in done.log


def test_message_of_a_recipient_who_opts_out_does_not_count_for_the_frequency_cap(
    task_runner: TaskRunner, after: Callable[..., None]
) -> None:
    limit_batches(task_runner)
    after(2, lambda: add_suppressions(f"+{digits(1, 6)[0]}"))
    done = sms(task_runner, rows(8), frequency_category="offers").run_try()
    assert done.state == "success", done.error
    assert counts(done.result) == {"sent": 7, "suppressed": 1}
    with open_database() as opened, opened.connect() as connection:
        assert len(connection.execute(message_counts.select()).all()) == 7


def test_list_that_cannot_be_read_any_more_ends_the_try_and_the_retry_sends_the_rest(
    task_runner: TaskRunner, after: Callable[..., None]
) -> None:
    def break_list() -> None:
        with open_database() as opened:
            opened.write(suppressions.drop)

    add_suppressions("+2348039999999")
    limit_batches(task_runner)
    after(3, break_list)
    run = sms(task_runner, rows(8))
    done = run.run_try()
    assert (done.state, counts(done.report)) == ("up_for_retry", {"sent": 3, "not_sent": 5})
    assert "The suppression list could not be read" in done.error
    with open_database() as opened:
        opened.write(suppressions.create)
    assert counts(run.run_try().result) == {"sent": 8}
