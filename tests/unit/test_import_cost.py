"""Importing operators is what every DAG parse pays for."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import asdict, dataclass

import pytest

MOST_MODULES = 24
OPERATOR_MODULES = ("airtime", "contacts", "email", "lookup", "otp", "sms")
SOURCE_MODULES = ("csv_file", "delivery_events", "json_lines", "lists", "parquet", "sql")
MOST_OF_ONE = 12
OURS = "cpaas_provider"

# Airflow takes seconds to import. So one interpreter does it once and forks for each case.
_MEASURE = """
import json, os, sys

def added(case):
    reading, writing = os.pipe()
    child = os.fork()
    if not child:
        try:
            exec(case["first"], {})
            before = set(sys.modules)
            exec(case["then"], {})
            told = {"added": sorted(set(sys.modules) - before)}
        except BaseException as error:
            told = {"error": repr(error)}
        os.write(writing, json.dumps(told).encode())
        os._exit(0)
    os.close(writing)
    with os.fdopen(reading) as answer:
        told = json.loads(answer.read())
    os.waitpid(child, 0)
    return told

cases = json.loads(sys.argv[1])
found = {name: added(case) for name, case in cases.items() if not case["with_sdk"]}
import airflow.sdk
from airflow.sdk import BaseHook, BaseOperator, BaseSensorOperator, timezone
found.update((name, added(case)) for name, case in cases.items() if case["with_sdk"])
print(json.dumps(found))
"""


@dataclass(frozen=True)
class Case:
    """What to import, and into what interpreter.

    :param then: the statements whose imports count
    :param first: statements before them
    :param with_sdk: whether the interpreter has the Task SDK loaded, as any that parses DAGs
    """

    then: str
    first: str = ""
    with_sdk: bool = True


def importing(*modules: str) -> Case:
    return Case("\n".join(f"import {OURS}.{module}" for module in modules))


_OPERATORS = {f"operator {name}": importing(f"operators.{name}") for name in OPERATOR_MODULES}
_SOURCES = {f"source {name}": importing(f"sources.{name}") for name in SOURCE_MODULES}
CASES = {
    **_OPERATORS,
    **_SOURCES,
    "partitions": Case(
        f"from {OURS}.operators import partitions", first=f"from {OURS}.operators import SmsCampaignOperator"
    ),
    "all": importing(*(f"operators.{name}" for name in OPERATOR_MODULES), "sensors.otp", "sensors.delivery"),
    "notifiers": importing("notifications.sms", "notifications.email"),
    "hook": importing("hooks.cpaas", "hooks.retry_policy"),
    "schedules": importing("assets.schedules", "sources.delivery_events"),
    "asset": Case(
        f"from {OURS}.assets import on_campaign_finished\n"
        f"from {OURS}.sources import DeliveryEventSource\n"
        "on_campaign_finished(); DeliveryEventSource('key', [1])",
        first="from airflow.sdk import Asset, PartitionedAssetTimetable\n"
        "PartitionedAssetTimetable(assets=Asset('loaded'))",
        with_sdk=False,
    ),
    "contact rules": Case(
        f"from {OURS}.contacts.mapping.rules import parse_mapping\n"
        "parse_mapping({'Name': {'template': '{a} {b}'}, 'Born': {'date_format': '%d.%m.%Y', 'source': 'born'}})"
    ),
    "provider info": Case(f"from {OURS}.provider_info import get_provider_info; get_provider_info()", with_sdk=False),
    "sources": Case(f"import {OURS}.sources", first="import importlib, typing", with_sdk=False),
    "all sources": Case(
        f"from {OURS}.sources import *\n"
        "CsvSource('a.csv'), ParquetSource('a.parquet'), SqlSource('db', 'SELECT 1'), as_source(['1'])"
    ),
    "command line": Case(
        f"import {OURS}.cli as ours; ours.get_cli_commands()", first="import airflow.cli.cli_config", with_sdk=False
    ),
    "plugin": Case(f"import {OURS}.plugin", first="import airflow.sdk.plugins_manager", with_sdk=False),
    "pytest plugin": Case("import cpaas_sandbox.pytest_plugin", first="import pytest", with_sdk=False),
}


@pytest.fixture(scope="module")
def added() -> dict[str, list[str]]:
    """The modules that each case adds to its interpreter."""
    cases = json.dumps({name: asdict(case) for name, case in CASES.items()})
    done = subprocess.run([sys.executable, "-c", _MEASURE, cases], capture_output=True, text=True, check=True)
    found = json.loads(done.stdout.splitlines()[-1])
    assert [told for told in found.values() if "error" in told] == []
    return {name: told["added"] for name, told in found.items()}


def others(modules: Sequence[str], *known: str) -> list[str]:
    """Return the modules that are neither ours nor among the known ones."""
    return [name for name in modules if not name.startswith((OURS, *known))]


@pytest.mark.parametrize("operator", _OPERATORS)
def test_one_operator_adds_few_modules(added: dict[str, list[str]], operator: str) -> None:
    assert 0 < len(added[operator]) <= MOST_OF_ONE


def test_partitions_are_had_beside_the_operators_at_no_further_cost(added: dict[str, list[str]]) -> None:
    assert added["partitions"] == []


@pytest.mark.parametrize("source", _SOURCES)
def test_source_adds_few_modules_and_no_library(added: dict[str, list[str]], source: str) -> None:
    assert 0 < len(added[source]) <= MOST_OF_ONE
    assert others(added[source]) == []


def test_all_operators_and_sensors_add_few_modules_and_no_library(added: dict[str, list[str]]) -> None:
    assert 0 < len(added["all"]) <= MOST_MODULES
    assert others(added["all"], "airflow.sdk") == []


def test_notifiers_add_few_modules_and_no_library(added: dict[str, list[str]]) -> None:
    assert 0 < len(added["notifiers"]) <= MOST_OF_ONE
    assert others(added["notifiers"], "airflow.sdk") == []


def test_contact_rules_in_a_dag_file_load_no_library(added: dict[str, list[str]]) -> None:
    assert 0 < len(added["contact rules"]) <= MOST_OF_ONE
    assert others(added["contact rules"]) == []


def test_hook_adds_few_modules_and_no_library(added: dict[str, list[str]]) -> None:
    assert 0 < len(added["hook"]) <= MOST_OF_ONE
    assert others(added["hook"], "airflow.sdk") == []


def test_schedules_on_delivery_add_few_modules_and_no_library(added: dict[str, list[str]]) -> None:
    assert 0 < len(added["schedules"]) <= MOST_OF_ONE
    assert others(added["schedules"]) == []


def test_delivery_asset_makes_airflow_load_no_provider(added: dict[str, list[str]]) -> None:
    assert added["asset"] != []
    assert others(added["asset"]) == []


def test_provider_info_imports_nothing(added: dict[str, list[str]]) -> None:
    assert set(added["provider info"]) <= {"__future__", OURS, f"{OURS}.provider_info"}


def test_plugin_imports_only_itself_in_task_processes(added: dict[str, list[str]]) -> None:
    assert set(added["plugin"]) <= {OURS, f"{OURS}.plugin"}


def test_pytest_plugin_imports_only_itself_in_runs_of_pytest(added: dict[str, list[str]]) -> None:
    assert set(added["pytest plugin"]) <= {"__future__", "cpaas_sandbox", "cpaas_sandbox.pytest_plugin"}


def test_sources_package_loads_no_source(added: dict[str, list[str]]) -> None:
    assert set(added["sources"]) <= {"__future__", OURS, f"{OURS}._common", f"{OURS}.sources"}


def test_dag_file_with_all_sources_loads_no_library(added: dict[str, list[str]]) -> None:
    assert added["all sources"] != []
    assert set(others(added["all sources"])) <= {"csv", "_csv"}


def test_airflow_commands_import_few_modules_for_the_provider_commands(added: dict[str, list[str]]) -> None:
    assert added["command line"] != []
    assert set(added["command line"]) <= {
        OURS,
        f"{OURS}.cli",
        f"{OURS}.cli.arguments",
        f"{OURS}.cli.contacts",
        f"{OURS}.cli.contacts.commands",
        f"{OURS}.cli.deliveries",
        f"{OURS}.cli.deliveries.commands",
        f"{OURS}.cli.messages",
        f"{OURS}.cli.messages.commands",
        f"{OURS}.cli.sandbox",
        f"{OURS}.cli.suppressions",
        f"{OURS}.cli.suppressions.commands",
        f"{OURS}.provider_info",
    }
