"""``run_dag`` in the project of a user, whose tests run in two processes of pytest-xdist, each with its own Airflow."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections import defaultdict
from dataclasses import dataclass
from pathlib import Path
from xml.etree import ElementTree

import pytest

from tests.airflow_home import without_airflow

PROJECT = Path(__file__).parent / "project"
RUN_SECONDS = 540
INI = """[pytest]
pythonpath = .
cpaas_region = NG
cpaas_extra = {"sender_id": "Example"}
asyncio_default_fixture_loop_scope = function
"""


@dataclass(frozen=True)
class Outcome:
    """What became of a test of the user.

    :param failure: what pytest shows of its failure; empty if it passed
    :param properties: what it recorded
    """

    failure: str
    properties: dict[str, str]


@dataclass(frozen=True)
class Project:
    """The project after its tests ran.

    :param home: the home of the user, in which an Airflow would be
    :param output: what pytest printed
    """

    outcomes: dict[str, Outcome]
    home: Path
    output: str

    def failure_of(self, name: str) -> str:
        assert name in self.outcomes, self.output
        return self.outcomes[name].failure

    def values_of(self, name: str) -> dict[str, set[str]]:
        """Return the values of a property by xdist worker."""
        values: defaultdict[str, set[str]] = defaultdict(set)
        for outcome in self.outcomes.values():
            if name in outcome.properties:
                values[outcome.properties["worker"]].add(outcome.properties[name])
        return values


@pytest.fixture(scope="module")
def project(tmp_path_factory: pytest.TempPathFactory) -> Project:
    folder = tmp_path_factory.mktemp("project")
    shutil.copytree(PROJECT, folder, dirs_exist_ok=True)
    (folder / "checks.py").rename(folder / "test_welcome.py")
    (folder / "pytest.ini").write_text(INI)
    home = tmp_path_factory.mktemp("home")
    environment = {**without_airflow(os.environ), "HOME": str(home), "EXPECTED_UNDER": str(folder)}
    command = [sys.executable, "-m", "pytest", "-q", "-n", "2", "--dist", "loadgroup", "--show-capture", "no"]
    options = ["--junitxml", "results.xml", "-p", "no:schemathesis", "--basetemp", str(folder / "temp")]
    done = subprocess.run(
        [*command, *options],
        cwd=folder,
        env=environment,
        capture_output=True,
        text=True,
        check=False,
        timeout=RUN_SECONDS,
    )
    cases = ElementTree.parse(folder / "results.xml").iter("testcase")
    return Project({case.attrib["name"].partition("@")[0]: outcome_of(case) for case in cases}, home, done.stdout)


def outcome_of(case: ElementTree.Element) -> Outcome:
    failures = [failed.text or "" for kind in ("failure", "error") for failed in case.iter(kind)]
    properties = {one.attrib["name"]: one.attrib["value"] for one in case.iter("property")}
    return Outcome("\n".join(failures), properties)


def test_all_tests_of_the_user_pass_but_the_one_of_a_failed_dag(project: Project) -> None:
    failed = {name: outcome.failure for name, outcome in project.outcomes.items() if outcome.failure}
    assert len(project.outcomes) == 20, project.output
    assert set(failed) == {"test_failed"}, project.output


def test_failed_dag_shows_the_error_of_its_task_and_all_states(project: Project) -> None:
    failure = project.failure_of("test_failed")
    assert "DAG 'welcome' failed." in failure
    assert "Task 'wait' failed at try 1: AirflowFailException: " in failure
    assert "The states are: request success, wait failed, " in failure
    assert "greet upstream_failed" in failure
    # The plugin's own code is not in the traceback, nor what Airflow does around a task.
    assert "def __call__" not in failure
    assert "_execute_task" not in failure


def test_each_worker_has_its_own_sandbox_and_home(project: Project) -> None:
    urls, homes = project.values_of("url"), project.values_of("home")
    assert set(urls) == {"gw0", "gw1"}
    assert [len(values) for values in urls.values()] == [1, 1]
    assert urls["gw0"].isdisjoint(urls["gw1"])
    assert homes["gw0"].isdisjoint(homes["gw1"])


def test_each_test_has_its_own_home(project: Project) -> None:
    tests = [outcome for outcome in project.outcomes.values() if "home" in outcome.properties]
    assert len({outcome.properties["home"] for outcome in tests}) == len(tests) > 10


def test_database_of_the_user_is_not_touched(project: Project) -> None:
    assert list(project.home.rglob("*.db")) == []
