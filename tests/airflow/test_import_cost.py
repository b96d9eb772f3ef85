"""What one SMS costs a task process beyond a task that does nothing: the modules it loads and the models it builds."""

from __future__ import annotations

import json
from typing import Any

import pytest

from tests.airflow.harness import task_process
from tests.sandbox import Sandbox

# Five of them ask whether the connection is stopped, or open the journal where the task keeps it.
MOST_OF_OURS = 102
# Each region of the phonenumbers library is a module, and so is each country with other formats.
MOST_OF_NUMBERING_PLANS = 51
MOST_OF_OTHERS = 11
MOST_IN_EXECUTE = 87

OURS = "cpaas_provider."
NUMBERING_PLANS = "cpaas_provider.api.recipients._numbering_plans"


@pytest.fixture(scope="module")
def processes(sandbox_process: Sandbox) -> dict[str, dict[str, Any]]:
    """What was measured of a task process that does nothing, and of one that sends an SMS."""
    return {kind: measured for kind, (measured,) in task_process.measure(sandbox_process).items()}


@pytest.fixture(scope="module")
def added(processes: dict[str, dict[str, Any]]) -> list[str]:
    """The modules that an SMS loads beyond those of a task that does nothing."""
    return sorted(set(processes["sms"]["modules"]) - set(processes["empty"]["modules"]))


def test_sms_loads_few_modules(added: list[str]) -> None:
    plans = [name for name in added if name.startswith(NUMBERING_PLANS)]
    ours = [name for name in added if name.startswith(OURS) and name not in plans]
    others = [name for name in added if name not in ours and name not in plans]
    assert 0 < len(ours) <= MOST_OF_OURS, ours
    assert len(plans) <= MOST_OF_NUMBERING_PLANS, plans
    assert len(others) <= MOST_OF_OTHERS, others


def test_execute_of_sms_loads_few_modules(processes: dict[str, dict[str, Any]]) -> None:
    in_execute = processes["sms"]["modules_of_execute"]
    assert 0 < len(in_execute) <= MOST_IN_EXECUTE, in_execute


@pytest.mark.parametrize(
    "library", ["phonenumbers", "sqlalchemy.dialects", "alembic", "jinja2.sandbox", "cpaas_provider.database.database"]
)
def test_sms_does_not_load(added: list[str], library: str) -> None:
    assert [name for name in added if name.startswith(library)] == []


def test_sms_loads_nothing_of_other_operations_and_failures(added: list[str]) -> None:
    unused = {
        *(f"api.models.{name}" for name in ("airtime", "contacts", "email", "lookup", "otp")),
        *(f"api.responses.{name}" for name in ("classification", "error_items", "failures", "statements", "wording")),
        *("contacts", "delivery", "sending.campaign", "sources", "tasks.campaign", "tasks.contacts"),
    }
    assert unused.isdisjoint(name.removeprefix(OURS) for name in added)


def test_sms_builds_the_model_of_its_request_only(processes: dict[str, dict[str, Any]]) -> None:
    models = processes["sms"]["models"]
    assert len(models) == 10, json.dumps(models)
    # The validator of the response is built with those of its parts.
    assert [name for name, is_built in models.items() if is_built] == ["SendSmsRequest"]
