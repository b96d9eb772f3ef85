"""``airflow cpaas stop`` and ``resume``, and what ``ping`` and ``doctor`` say meanwhile."""

from __future__ import annotations

import getpass
from collections.abc import Iterator
from pathlib import Path

import pytest
from airflow.models.variable import Variable

from cpaas_provider.cli.messages import stops
from cpaas_provider.database.default_file import read_stops
from cpaas_provider.sending.journal.model import CAMPAIGN_DATABASE
from tests.airflow.harness.command_line import CommandLine
from tests.airflow.harness.task_runner import TaskRunner, forget_campaign_database

STOP = ("stop", "--conn-id", "cpaas_default")
RESUME = ("resume", "--conn-id", "cpaas_default")


@pytest.fixture
def cpaas(
    task_runner: TaskRunner, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> Iterator[CommandLine]:
    monkeypatch.setenv("AIRFLOW__CPAAS__DATABASE", f"sqlite:///{tmp_path}/cpaas.db")
    # All commands run in this process.
    monkeypatch.setattr("cpaas_provider.hooks._account.guard.INTERVAL", 0)
    forget_campaign_database()
    yield CommandLine(monkeypatch, capsys, "cpaas")
    forget_campaign_database()


def test_stop_names_the_database_and_the_way_out(cpaas: CommandLine, tmp_path: Path) -> None:
    done = cpaas(*STOP, "--reason", "The text is wrong.")
    assert (done.status, done.err) == (0, "")
    assert f"Connection 'cpaas_default' is stopped in the database sqlite:///{tmp_path}/cpaas.db." in done.out
    assert "s no request that changes something or costs money leaves" in done.out
    assert "airflow cpaas resume --conn-id cpaas_default" in done.out
    (found,) = read_stops("cpaas_default") or []
    assert (found.stopped_by, found.reason) == (getpass.getuser(), "The text is wrong.")


def test_second_stop_changes_nothing_and_shows_the_first(cpaas: CommandLine) -> None:
    cpaas(*STOP, "--reason", "first")
    done = cpaas(*STOP, "--reason", "second")
    assert done.status == 0
    assert f"It was stopped before. {getpass.getuser()} stopped connection 'cpaas_default'" in done.out
    assert "first. Nothing was changed." in done.out


def test_resume_lets_requests_leave_and_says_what_to_clear(cpaas: CommandLine, task_runner: TaskRunner) -> None:
    cpaas(*STOP)
    sent = cpaas("send-sms", "+2348031234567", "--content", "Hello", "--sender-id", "Shop")
    assert (sent.status, task_runner.sandbox.counters()["requests"]) == (1, {})
    assert "stopped connection 'cpaas_default'" in sent.err
    done = cpaas(*RESUME)
    assert (done.status, read_stops("cpaas_default")) == (0, [])
    assert "Clear those that are to send what is left." in done.out
    assert cpaas("send-sms", "+2348031234567", "--content", "Hello", "--sender-id", "Shop").status == 0


def test_resume_of_a_connection_that_is_not_stopped_fails(cpaas: CommandLine) -> None:
    done = cpaas(*RESUME)
    assert done.status == 1
    assert "is not stopped in the database" in done.err


@pytest.mark.parametrize("reason", ["x" * 201, "two\nlines"])
def test_reason_that_cannot_be_shown_is_refused(cpaas: CommandLine, reason: str) -> None:
    done = cpaas(*STOP, "--reason", reason)
    assert done.status == 1
    assert "one line of at most 200 characters. Nothing was stopped." in done.err


def test_unknown_connection_is_stopped_with_a_warning(cpaas: CommandLine) -> None:
    done = cpaas("stop", "--conn-id", "nowhere")
    assert done.status == 0
    assert "See that the name is right: " in done.err


def test_files_of_other_machines_are_named(cpaas: CommandLine, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(stops, "spreading_executor", lambda: "CeleryExecutor")
    done = cpaas(*STOP)
    assert done.status == 0
    assert "the tasks of CeleryExecutor run on several machines" in done.err
    assert "Tasks on other machines go on." in done.err


def test_stop_is_refused_where_tasks_use_another_database(cpaas: CommandLine) -> None:
    Variable.set(f"{CAMPAIGN_DATABASE}.{'0' * 32}.x", "postgresql://elsewhere/cpaas")
    done = cpaas(*STOP)
    assert done.status == 1
    assert "in another database: postgresql://elsewhere/cpaas." in done.err
    assert "Nothing was stopped." in done.err


def test_ping_and_doctor_say_that_the_connection_is_stopped(cpaas: CommandLine) -> None:
    assert "stopped" not in cpaas("ping").out
    cpaas(*STOP, "--reason", "The text is wrong.")
    ping = cpaas("ping")
    assert ping.status == 0
    assert "UTC: The text is wrong. No request that changes something or costs money leaves." in ping.out
    doctor = cpaas("doctor", "--output", "json")
    (found,) = [line for line in doctor.lines if line["check"] == "stop"]
    assert (doctor.status, found["status"]) == (1, "failed")
    assert found["what_to_do"] == "Run `airflow cpaas resume --conn-id cpaas_default`, and clear the tasks that failed."
