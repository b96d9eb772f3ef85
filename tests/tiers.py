"""Which tests run when: a test's tier follows from the place of its file, never from a mark on the test itself.

* fast: everything that is in no table here. ``make test`` runs it, and a test in it may take ``MOST_SECONDS``.
* slow: ``make test-slow``. Whole programs, browsers, builds, generated requests, walks through everything there is.
* system: ``make test-system``. Real Airflow processes, one test at a time.

``make test-all`` runs the three; ``make torture`` runs all tests, the slow and the system tests whole instead of a
sample, and what a table has beyond one case for each way through the code, see ``spread``.
``make test-floors`` runs those of the fast tests that depend on the versions of what is installed, see ``VERSIONED``,
each function with one case a database.

Run as a program, this module looks at what a run of the fast tests took: ``python -m tests.tiers check FILE``.
"""

from __future__ import annotations

import argparse
import itertools
import json
import os
import subprocess
import sys
import tempfile
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, TypeVar

import pytest

from tests.promises import BOTH_DATABASES, TASKS

ROOT = Path(__file__).parents[1]
MOST_SECONDS = 1.5
# Something else may have kept the machine busy meanwhile; what is slow by itself is slow every time.
ALONE = 2
TOLD = 30

PLACES = {
    "system": ("tests/system/",),
    "slow": (
        "tests/airflow/delivery/test_callbacks_airtime.py",
        "tests/airflow/campaigns/test_answers.py",
        "tests/airflow/campaigns/test_attacked.py",
        "tests/airflow/campaigns/test_before.py",
        "tests/airflow/campaigns/test_circuit.py",
        "tests/airflow/campaigns/test_fallback.py",
        "tests/airflow/campaigns/test_fallback_guards.py",
        "tests/airflow/campaigns/test_frequency_cap.py",
        "tests/airflow/campaigns/test_large.py",
        "tests/airflow/campaigns/test_partitions.py",
        "tests/airflow/campaigns/test_privacy.py",
        "tests/airflow/campaigns/test_shared_rate_limit.py",
        "tests/airflow/cli/test_commands.py",
        "tests/airflow/cli/test_campaigns.py",
        "tests/airflow/cli/test_programs.py",
        "tests/airflow/cli/test_keyed_campaigns.py",
        "tests/airflow/cli/test_receiver.py",
        "tests/airflow/cli/test_db.py",
        "tests/airflow/contacts/test_sync_map.py",
        "tests/airflow/contacts/test_sync_attacked.py",
        "tests/airflow/campaigns/test_example.py",
        "tests/airflow/test_example_dags.py",
        "tests/airflow/test_import_cost.py",
        "tests/airflow/test_odd_service.py",
        "tests/airflow/journal/test_late_writes.py",
        "tests/airflow/journal/test_timeouts.py",
        "tests/airflow/delivery/test_modes.py",
        "tests/airflow/delivery/test_mounted_receiver.py",
        "tests/airflow/notifications/test_storm.py",
        "tests/airflow/delivery/test_plugin.py",
        "tests/contract/test_sandbox_openapi.py",
        "tests/unit/database/test_rate_limit_forked.py",
        "tests/unit/database/test_rate_limit_processes.py",
        "tests/unit/api/recipients/test_msisdn_fast_path.py",
        "tests/unit/api/test_connections_attacked.py",
        "tests/unit/contacts/sync/test_readings.py",
        "tests/unit/sending/test_every_step.py",
        "tests/unit/delivery/receiver/test_openapi.py",
        "tests/unit/delivery/receiver/test_failing_server.py",
        "tests/unit/delivery/receiver/test_fuzzed.py",
        "tests/unit/delivery/receiver/test_under_load.py",
        "tests/unit/delivery/tracking/model/test_model.py",
        "tests/unit/docs/test_promises.py",
        "tests/unit/docs/test_search.py",
        "tests/unit/pages/test_odd_requests.py",
        "tests/unit/docs/test_site.py",
        "tests/cpaas_sandbox/test_command.py",
        "tests/cpaas_sandbox/page/test_page.py",
        "tests/cpaas_sandbox/pytest_plugin/test_dags.py",
        "tests/cpaas_sandbox/pytest_plugin/test_light.py",
        "tests/cpaas_sandbox/test_guard.py",
        "tests/unit/sending/campaign/guards/test_send_window_everywhere.py",
        "tests/unit/sending/campaign/test_capped_many.py",
        "tests/unit/sources/test_memory.py",
        "tests/unit/database/test_processes_at_once.py",
        "tests/unit/test_packaging.py",
    ),
}

VERSIONED = (
    "tests/airflow/campaigns/test_results.py",
    "tests/airflow/campaigns/test_sources.py",
    "tests/airflow/campaigns/test_stopping.py",
    "tests/airflow/campaigns/test_tries.py",
    "tests/airflow/cli/test_journal.py",
    "tests/airflow/contacts/test_confirmed.py",
    "tests/airflow/test_lineage.py",
    "tests/airflow/contacts/test_run_params.py",
    "tests/airflow/contacts/test_sync.py",
    "tests/airflow/delivery/test_assets.py",
    "tests/airflow/delivery/test_receiving_connections.py",
    "tests/airflow/delivery/test_sensor.py",
    "tests/airflow/journal/test_clear.py",
    "tests/airflow/journal/test_retries.py",
    "tests/airflow/journal/test_store.py",
    "tests/airflow/notifications/",
    "tests/airflow/operators/test_airtime.py",
    "tests/airflow/operators/test_bulk_lookup.py",
    "tests/airflow/operators/test_contacts.py",
    "tests/airflow/operators/test_email.py",
    "tests/airflow/operators/test_idempotent_client.py",
    "tests/airflow/operators/test_lookup.py",
    "tests/airflow/operators/test_otp",
    "tests/airflow/operators/test_sms.py",
    "tests/airflow/pages/",
    "tests/airflow/test_arguments.py",
    "tests/airflow/test_deferral.py",
    "tests/airflow/test_mapped_data.py",
    "tests/airflow/test_native_rendering.py",
    "tests/airflow/test_private_parts.py",
    "tests/airflow/test_retry_policy.py",
    "tests/contract/test_operations.py",
    "tests/cpaas_sandbox/control/",
    "tests/unit/api/recipients/",
    "tests/unit/api/test_client.py",
    "tests/unit/api/test_models_built_late.py",
    "tests/unit/api/test_responses.py",
    "tests/unit/contacts/key_map/test_key_map.py",
    "tests/unit/database/",
    "tests/unit/delivery/receiver/test_app.py",
    "tests/unit/delivery/receiver/test_connection",
    "tests/unit/delivery/tracking/test_report_store.py",
    "tests/unit/hooks/",
    "tests/unit/pages/test_activity.py",
    "tests/unit/pages/test_campaigns.py",
    "tests/unit/pages/test_deliveries.py",
    "tests/unit/sending/test_shutdown.py",
    "tests/unit/sources/test_data_frames.py",
    "tests/unit/sources/test_parquet.py",
    "tests/unit/sources/test_sql.py",
    "tests/unit/test_dependencies.py",
    "tests/unit/test_import_cost.py",
    "tests/unit/triggers/test_otp.py",
    "tests/unit/triggers/test_wait.py",
)
"""Each way in which we use another package: imports, real tasks of every operator, SQL, pages and servers.

What the other tests check is decided by our own code, and the same whatever the versions are.
"""

# With other cases of a function, the installed versions do the same; with another database they do not.
DATABASES = frozenset({"sqlite", "postgres", "mysql", "mariadb"})

# What each value comes to is tested below. A real task shows that all is connected.
REAL_TASKS = "tests/airflow/"
# The tests of tables and of the key map run on each database, and those that are promised for both. What uses those
# runs on one.
ON_EACH_DATABASE = ("tests/unit/database/", "tests/unit/contacts/key_map/")

_OF_TASKS = frozenset(TASKS.values())

Case = TypeVar("Case")

# State machines, which hypothesis does not mark as its own.
MACHINES = ("tests/unit/sending/test_model.py", "tests/unit/sending/campaign/test_model.py")


def few(cases: Sequence[Case], chosen: Sequence[Case] | int) -> Sequence[Case]:
    """Return all cases in ``make torture``, and elsewhere those that differ most.

    :param chosen: these of the cases, or how many of them stand for one
    """
    if os.environ.get("TORTURE"):
        return cases
    if isinstance(chosen, int):
        return cases[::chosen]
    assert set(chosen) <= set(cases), f"{set(chosen) - set(cases)} are no cases"
    return chosen


def tier_of(path: str) -> str | None:
    """Return the mark of a test file, given relative to the repository; ``None`` for a fast one."""
    for tier, places in PLACES.items():
        if path.startswith(places):
            return tier
    return None


def is_generated(path: str) -> bool:
    """Return whether a file may hold tests with generated input: those of hypothesis name it."""
    return path in MACHINES or "hypothesis" in (ROOT / path).read_text(encoding="utf-8")


def may_select(expression: str, path: str) -> bool:
    """Return whether a mark expression may select tests of a file, so that the file has to be read at all.

    :param expression: what ``-m`` was given; with marks that do not follow from a file's place, every file may do
    """
    try:
        code = compile(expression.strip() or "True", "-m", "eval")
    except SyntaxError:
        return True  # pytest tells what is wrong with it
    tier = tier_of(path)
    possible: dict[str, tuple[bool, ...]] = {name: (tier == name,) for name in PLACES}
    possible["versioned"] = (False, True) if path.startswith(VERSIONED) else (False,)
    possible["torture"] = (False,) if tier == "system" else (False, True)
    possible["generated"] = (False, True) if tier is None and is_generated(path) else (False,)
    if not possible.keys() >= {*code.co_names}:
        return True
    marks = (dict(zip(possible, values, strict=True)) for values in itertools.product(*possible.values()))
    return any(eval(code, {"__builtins__": {}}, marked) for marked in marks)


def mark(items: Sequence[pytest.Item]) -> None:
    """Mark collected tests by their places."""
    for item in items:
        path = item.path.relative_to(ROOT).as_posix()
        tier = tier_of(path)
        if tier:
            item.add_marker(tier)
            continue
        if path in MACHINES or getattr(getattr(item, "obj", None), "is_hypothesis_test", False):
            assert is_generated(path), f"{path} does not name hypothesis: -m generated would leave it out"
            item.add_marker("generated")
    for item in versioned(items):
        item.add_marker("versioned")
    for item in spread(items):
        item.add_marker("torture")


def versioned(items: Sequence[pytest.Item]) -> Iterator[pytest.Item]:
    """Yield the tests that run at the lowest versions.

    Of a function with many cases it is the first for each database. Of a file of real tasks it is every second
    function, and the one that runs the operator for ``TASKS``: with Airflow, HTTP and SQL the others do the same.
    """
    positions: dict[str, dict[str, int]] = {}
    first = set[tuple[str, ...]]()
    for item in items:
        path, function = item.nodeid.partition("::")[0], _function_of(item)
        if not path.startswith(VERSIONED):
            continue
        of_file = positions.setdefault(path, {})
        if of_file.setdefault(function, len(of_file)) % 2 and path.startswith(REAL_TASKS) and function not in _OF_TASKS:
            continue
        case = (function, *DATABASES.intersection(item.nodeid.removeprefix(function).strip("[]").split("-")))
        if case not in first:
            first.add(case)
            yield item


def spread(items: Sequence[pytest.Item]) -> Iterator[pytest.Item]:
    """Yield the fast and slow tests that only ``make torture`` runs.

    Each case of each function runs on one database in turn. A function without cases runs on each in the places of
    ``ON_EACH_DATABASE``, and where it is promised for both. And of crossed tables, a fast real task runs each line
    once.
    """
    tier = {item.nodeid: tier_of(item.nodeid.partition("::")[0]) for item in items}
    fast = [item for item in items if tier[item.nodeid] is None]
    real = [item for item in fast if item.nodeid.startswith(REAL_TASKS) and hasattr(item, "callspec")]
    crossed = set[str]()
    for _, cases in itertools.groupby(sorted(real, key=_function_of), _function_of):
        crossed.update(_off_the_diagonal(list(cases)))
    files: dict[str, dict[tuple[str, str], dict[str, pytest.Item]]] = {}
    for item in items:
        if tier[item.nodeid] == "system":
            continue
        if item.nodeid in crossed:
            yield item
            continue
        path, function = item.nodeid.partition("::")[0], _function_of(item)
        names = item.nodeid.removeprefix(function).strip("[]").split("-")
        for database in DATABASES.intersection(names):
            names.remove(database)
            files.setdefault(path, {}).setdefault((function, "-".join(names)), {})[database] = item
    for path, by_case in files.items():
        counts = Counter(function for function, _ in by_case)
        is_exempt = path.startswith(ON_EACH_DATABASE)
        spreading = [
            (function, case)
            for function, case in by_case
            if counts[function] > 1 or not (is_exempt or function in BOTH_DATABASES)
        ]
        for turn, case in enumerate(spreading):
            databases = sorted(by_case[case])
            del databases[turn % len(databases)]
            yield from map(by_case[case].__getitem__, databases)


def _function_of(item: pytest.Item) -> str:
    return item.nodeid.partition("[")[0]


def _off_the_diagonal(items: Sequence[Any]) -> Iterator[str]:
    """Yield the cases of crossed tables without which each line of each table is still there."""
    lines = [
        {name: line for name, line in item.callspec.indices.items() if str(item.callspec.params[name]) not in DATABASES}
        for item in items
    ]
    sizes = {name: max(by_name[name] for by_name in lines) + 1 for name in lines[0]}
    longest = max(sizes, key=sizes.__getitem__, default="")
    for item, by_name in zip(items, lines, strict=True):
        if any(line != by_name[longest] % sizes[name] for name, line in by_name.items()):
            yield item.nodeid


class Durations:
    """Records what each test took by itself, without what was set up for it, and writes it down at the end."""

    def __init__(self, file: Path) -> None:
        self._file = file
        self._seconds: dict[str, float] = {}

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        if report.when == "call":
            self._seconds[report.nodeid] = report.duration

    def pytest_sessionfinish(self) -> None:
        self._file.parent.mkdir(parents=True, exist_ok=True)
        self._file.write_text(json.dumps(self._seconds, indent=0))


def read_durations(file: Path) -> dict[str, float]:
    """Return the seconds each test took, by its id."""
    return dict(json.loads(file.read_text()))


def run_alone(tests: Sequence[str]) -> dict[str, float]:
    """Run tests one after the other, and return the seconds each took."""
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "durations.json"
        command = [sys.executable, "-m", "pytest", "--quiet", f"--write-durations={file}", *tests]
        subprocess.run(command, cwd=ROOT, stdout=subprocess.DEVNULL, check=False)
        return read_durations(file) if file.exists() else {}


def check(
    recorded: Mapping[str, float], rerun: Callable[[Sequence[str]], Mapping[str, float]] = run_alone
) -> list[str]:
    """Return the ids of tests that are too slow to be fast, slowest first.

    :param recorded: seconds by id, of a run of the fast tests
    :param rerun: runs tests one after the other, and returns the seconds each took
    """
    slow = {test: seconds for test, seconds in recorded.items() if seconds > MOST_SECONDS}
    for _ in range(ALONE):
        if not slow:
            break
        again = rerun(list(slow))
        slow = {test: min(seconds, again.get(test, seconds)) for test, seconds in slow.items()}
        slow = {test: seconds for test, seconds in slow.items() if seconds > MOST_SECONDS}
    return sorted(slow, key=lambda test: -slow[test])


def main() -> int:
    """Look at a run of the fast tests; return 1 where one of them is none."""
    parser = argparse.ArgumentParser(prog="python -m tests.tiers", description="Looks at what a run of tests took.")
    commands = parser.add_subparsers(required=True, dest="command")
    checking = commands.add_parser("check", help="fail where a test of the fast tier is slow each time")
    slowest = commands.add_parser("slowest", help=f"list the {TOLD} slowest tests of one or more runs")
    checking.add_argument("file", type=Path, help="what --write-durations wrote")
    slowest.add_argument("file", type=Path, nargs="+", help="what --write-durations wrote")
    given = parser.parse_args()
    if given.command == "slowest":
        recorded = {
            test: seconds for file in given.file if file.exists() for test, seconds in read_durations(file).items()
        }
        for test in sorted(recorded, key=lambda test: -recorded[test])[:TOLD]:
            print(f"{recorded[test]:8.2f} s  {test}")
        return 0
    recorded = read_durations(given.file)
    if not recorded:
        print(f"{given.file} holds no test: the run that wrote it ran none.")
        return 1
    slow = check(recorded)
    for test in slow:
        print(f"over {MOST_SECONDS:g} s each time, and so not fast: {test}")
    if slow:
        print("Make it faster, or move it into a file that tests/tiers.py names as slow.")
    else:
        print(f"{len(recorded)} fast tests, none of them over {MOST_SECONDS:g} s by itself.")
    return 1 if slow else 0


if __name__ == "__main__":
    sys.exit(main())
