"""``airflow cpaas budget``, and what ``doctor`` says of budgets, after real sends."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from tests.airflow.harness.campaigns import PRICE
from tests.airflow.harness.command_line import CommandLine
from tests.airflow.harness.task_runner import TaskRunner, forget_campaign_database

SEND = ("send-sms", "+2348031234567", "--content", "Hello", "--sender-id", "Shop")


@pytest.fixture
def cpaas(
    task_runner: TaskRunner, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> Iterator[CommandLine]:
    monkeypatch.setenv("AIRFLOW__CPAAS__DATABASE", f"sqlite:///{tmp_path}/cpaas.db")
    forget_campaign_database()
    yield CommandLine(monkeypatch, capsys, "cpaas")
    forget_campaign_database()


def spend(cpaas: CommandLine, times: int) -> None:
    for _ in range(times):
        assert cpaas(*SEND).status == 0


def found_by_doctor(cpaas: CommandLine) -> list[tuple[str, str]]:
    lines = cpaas("doctor", "--output", "json").lines
    return [(line["status"], line["found"]) for line in lines if line["check"] == "budget"]


def test_budget_shows_what_is_spent_in_day_and_month(task_runner: TaskRunner, cpaas: CommandLine) -> None:
    task_runner.connect("cpaas_default", daily_budget=5 * PRICE, monthly_budget=100, budget_timezone="UTC")
    spend(cpaas, 3)
    done = cpaas("budget", "--output", "json")
    now = datetime.now(UTC)
    common: dict[str, Any] = {"conn_id": "cpaas_default", "time_zone": "UTC", "spent": 3 * PRICE, "state": "available"}
    assert (done.status, done.lines) == (
        0,
        [
            {**common, "budget": "daily_budget", "period": f"{now:%Y-%m-%d}", "limit": 5 * PRICE,
             "remaining": 2 * PRICE, "percent": 60},
            {**common, "budget": "monthly_budget", "period": f"{now:%Y-%m}", "limit": 100,
             "remaining": 100 - 3 * PRICE, "percent": 12},
        ],
    )  # fmt: skip
    assert "Spent are the costs of all requests of the connection that use this database" in done.err


def test_status_of_the_command_is_1_when_a_budget_is_reached(task_runner: TaskRunner, cpaas: CommandLine) -> None:
    task_runner.connect("cpaas_default", daily_budget=PRICE)
    spend(cpaas, 1)
    done = cpaas("budget", "--conn-id", "cpaas_default", "--output", "json")
    assert (done.status, done.lines[0]["state"], done.lines[0]["remaining"]) == (1, "reached", 0)
    assert "No request that costs money leaves." in done.err


def test_connection_without_a_budget_is_named(cpaas: CommandLine) -> None:
    done = cpaas("budget", "--output", "json")
    assert (done.status, done.lines) == (1, [])
    assert "has no budget, so nothing is counted. Set daily_budget or monthly_budget" in done.err


class TestDoctor:
    def test_no_budget_is_no_finding(self, cpaas: CommandLine) -> None:
        assert found_by_doctor(cpaas) == [("ok", "no daily_budget and no monthly_budget is set")]

    @pytest.mark.parametrize(
        ("sent", "status", "words"),
        [
            (1, "ok", "is reached to 20 % in"),
            (4, "warning", "is reached to 80 % in"),
            (5, "failed", "is reached to 100 % in"),
        ],
    )
    def test_spent_share_decides(
        self, task_runner: TaskRunner, cpaas: CommandLine, sent: int, status: str, words: str
    ) -> None:
        prices = {"price_per_passcode": 1, "price_per_lookup": 1}
        task_runner.connect("cpaas_default", daily_budget=5 * PRICE, **prices)
        spend(cpaas, sent)
        ((found_status, found),) = found_by_doctor(cpaas)
        assert (found_status, words in found) == (status, True)

    def test_missing_prices_are_named(self, task_runner: TaskRunner, cpaas: CommandLine) -> None:
        task_runner.connect("cpaas_default", daily_budget=5, price_per_lookup=1)
        spend(cpaas, 1)
        assert found_by_doctor(cpaas)[-1][0] == "warning"
        assert found_by_doctor(cpaas)[-1][1].startswith("price_per_passcode not set.")

    def test_budget_without_a_readable_database_fails(
        self, task_runner: TaskRunner, cpaas: CommandLine, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        task_runner.connect("cpaas_default", daily_budget=5)
        monkeypatch.setenv("AIRFLOW__CPAAS__DATABASE", "postgresql://nobody@127.0.0.1:1/none")
        ((status, found),) = found_by_doctor(cpaas)
        assert (status, "what is spent cannot be read" in found) == ("failed", True)

    def test_budget_in_a_file_of_each_machine_fails(
        self, task_runner: TaskRunner, cpaas: CommandLine, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        task_runner.connect("cpaas_default", daily_budget=100)
        monkeypatch.delenv("AIRFLOW__CPAAS__DATABASE")
        monkeypatch.setenv("AIRFLOW__CORE__EXECUTOR", "CeleryExecutor")
        spend(cpaas, 1)
        assert ("failed", True) in [
            (status, "Each machine would spend the whole budget." in found) for status, found in found_by_doctor(cpaas)
        ]
