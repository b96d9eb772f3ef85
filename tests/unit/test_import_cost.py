"""Importing operators is what every DAG parse pays for."""

from __future__ import annotations

import json
import subprocess
import sys

import pytest

MOST_MODULES = 25
OPERATOR_MODULES = ("airtime", "contacts", "email", "email_campaign", "lookup", "otp", "sms", "sms_campaign")
MOST_OF_ONE = 12

_MEASURE = """
import importlib, json, sys
import airflow.sdk
from airflow.sdk import BaseHook, BaseOperator, BaseSensorOperator, timezone
before = set(sys.modules)
for name in sys.argv[1:]:
    importlib.import_module(name)
print(json.dumps(sorted(set(sys.modules) - before)))
"""


def modules_added_by(*names: str) -> list[str]:
    """Return what importing adds to an interpreter that has the Task SDK loaded."""
    done = subprocess.run([sys.executable, "-c", _MEASURE, *names], capture_output=True, text=True, check=True)
    return list(json.loads(done.stdout.splitlines()[-1]))


@pytest.mark.parametrize("module", OPERATOR_MODULES)
def test_one_operator_adds_few_modules(module: str) -> None:
    assert len(modules_added_by(f"cpaas_provider.operators.{module}")) <= MOST_OF_ONE


def test_partitions_are_had_beside_the_operators_at_no_further_cost() -> None:
    script = (
        "import sys; from cpaas_provider.operators import SmsCampaignOperator; before = set(sys.modules); "
        "from cpaas_provider.operators import partitions; print(*sorted(set(sys.modules) - before))"
    )
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    assert done.stdout.split() == []


@pytest.mark.parametrize("module", ["csv_files", "json_lines", "lists", "parquet", "sql"])
def test_a_source_adds_few_modules_and_no_library(module: str) -> None:
    added = modules_added_by(f"cpaas_provider.sources.{module}")
    assert len(added) <= MOST_OF_ONE
    assert [name for name in added if not name.startswith("cpaas_provider")] == []


def test_all_operators_and_sensors_add_few_modules_and_no_library() -> None:
    added = modules_added_by(
        *(f"cpaas_provider.operators.{module}" for module in OPERATOR_MODULES),
        "cpaas_provider.sensors.otp",
        "cpaas_provider.sensors.delivery",
    )
    assert len(added) <= MOST_MODULES
    assert [name for name in added if not name.startswith(("cpaas_provider", "airflow.sdk"))] == []


def test_the_hook_adds_few_modules_and_no_library() -> None:
    added = modules_added_by("cpaas_provider.hooks.cpaas", "cpaas_provider.hooks.retry_policy")
    assert len(added) <= MOST_OF_ONE
    assert [name for name in added if not name.startswith(("cpaas_provider", "airflow.sdk"))] == []


def test_schedules_on_delivery_add_few_modules_and_no_library() -> None:
    added = modules_added_by("cpaas_provider.assets.schedules", "cpaas_provider.delivery.concerned")
    assert len(added) <= MOST_OF_ONE
    assert [name for name in added if not name.startswith("cpaas_provider")] == []


def test_an_asset_of_delivery_has_airflow_load_no_provider() -> None:
    script = (
        "import sys; from airflow.sdk import Asset, PartitionedAssetTimetable; "
        "PartitionedAssetTimetable(assets=Asset('loaded')); before = set(sys.modules); "
        "from cpaas_provider.assets import ConcernedSource, on_campaign_finished; "
        "on_campaign_finished(); ConcernedSource('key', [1]); print(*sorted(set(sys.modules) - before))"
    )
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    assert [name for name in done.stdout.split() if not name.startswith("cpaas_provider")] == []


def test_provider_info_imports_nothing() -> None:
    script = (
        "import sys; before = set(sys.modules); "
        "from cpaas_provider.provider_info import get_provider_info; get_provider_info(); "
        "print(*sorted(set(sys.modules) - before))"
    )
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    assert set(done.stdout.split()) <= {"__future__", "cpaas_provider", "cpaas_provider.provider_info"}


def test_the_plugin_is_light_in_task_processes() -> None:
    script = (
        "import sys; import airflow.sdk.plugins_manager; before = set(sys.modules); "
        "import cpaas_provider.plugin; print(*sorted(set(sys.modules) - before))"
    )
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    assert set(done.stdout.split()) <= {"cpaas_provider", "cpaas_provider.plugin"}
