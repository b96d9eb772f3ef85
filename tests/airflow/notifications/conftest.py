"""A database for the alerts of each test, and callers that need not wait for seconds."""

from __future__ import annotations

from collections.abc import Callable
from datetime import timedelta
from typing import Any

import pytest

from cpaas_provider.notifications._runtime import background, run
from cpaas_provider.notifications._runtime.alerts import Timing

QUICK = Timing(
    quiet=timedelta(seconds=0.05), longest=timedelta(seconds=5), max_wait=timedelta(seconds=1), request=timedelta()
)


@pytest.fixture
def quick(own_database: None, monkeypatch: pytest.MonkeyPatch) -> None:
    """Callers wait for a twentieth of a second."""
    monkeypatch.setattr(run, "TIMING", QUICK)
    monkeypatch.setattr(background, "TIMING", QUICK)


@pytest.fixture
def texts(task_runner: Any) -> Callable[[], list[str]]:
    """Returns the texts of all SMS, oldest first."""
    return lambda: [one["text"] for one in reversed(task_runner.sandbox.inbox("sms", limit=500)["items"])]
