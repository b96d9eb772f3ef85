"""A task whose ``execution_timeout`` is up in the middle, and long enough for a busy machine to make the request."""

from __future__ import annotations

import datetime as dt

import pytest

from tests.airflow.deeds import OTP, SMS, Kind
from tests.airflow.stage import Stage

# The answer stalls for 5 s.
TIMEOUT = dt.timedelta(seconds=4)


@pytest.fixture
def patient(stage: Stage) -> Stage:
    """A connection that waits for an answer longer than the task may run."""
    stage.connect("cpaas_default", timeout=30)
    return stage


@pytest.mark.parametrize("kind", [SMS, OTP], ids=lambda kind: kind.name)
def test_the_journal_is_written_before_airflow_ends_the_try(patient: Stage, kind: Kind) -> None:
    kind.lose(patient, "stall_body")
    run = kind.run(patient, execution_timeout=TIMEOUT, settle_timeout=0)
    ended = run.once()
    ((reference, entry),) = run.journal().items()
    assert (ended.state, ended.references, entry["state"]) == ("up_for_retry", [reference], "unknown")
    assert "execution_timeout is about to end it" in ended.error


def test_a_try_that_airflow_ended_all_the_same_leaves_its_claim(patient: Stage) -> None:
    SMS.lose(patient, "stall_body")
    run = SMS.run(patient, execution_timeout=TIMEOUT, stop_grace=0)
    run.once()
    failed = run.once()
    assert (failed.state, SMS.requests(patient)) == ("failed", 1)
    assert failed.references == list(run.journal())
