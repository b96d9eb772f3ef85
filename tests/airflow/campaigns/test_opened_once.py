"""What one try of a campaign opens: the database once, and no client but the one it sends with."""

from __future__ import annotations

from collections import Counter
from typing import Any

import pytest

from cpaas_provider.api import client
from cpaas_provider.database import database
from tests.airflow.harness.campaigns import count_messages, rows, sms
from tests.airflow.harness.task_runner import TaskRunner


@pytest.fixture
def opened(monkeypatch: pytest.MonkeyPatch) -> Counter[str]:
    """Count what is opened."""
    counts: Counter[str] = Counter()
    open_database = database.open_database

    def counted(*given: Any, **options: Any) -> Any:
        counts["database"] += 1
        return open_database(*given, **options)

    monkeypatch.setattr(database, "open_database", counted)
    for kind in (client.CpaasClient, client.AsyncCpaasClient):
        of_settings = kind.of_settings

        def made(*given: Any, _kind: type = kind, _of_settings: Any = of_settings, **options: Any) -> Any:
            counts[_kind.__name__] += 1
            return _of_settings(*given, **options)

        monkeypatch.setattr(kind, "of_settings", made)
    return counts


def test_campaign_opens_the_database_once_for_its_progress(task_runner: TaskRunner, opened: Counter[str]) -> None:
    assert sms(task_runner, rows(3)).run_try().state == "success"
    assert opened == {"database": 1, "AsyncCpaasClient": 1}


def test_campaign_with_key_and_lookups_opens_the_database_once(task_runner: TaskRunner, opened: Counter[str]) -> None:
    ended = sms(task_runner, rows(3), idempotency_key="opened once", skip_dnd=True).run_try()
    assert (ended.state, len(count_messages(task_runner))) == ("success", 3)
    assert opened == {"database": 1, "AsyncCpaasClient": 1}
