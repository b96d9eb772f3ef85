"""What the plugin costs a project that does not use it, and what works without Airflow: in processes of their own."""

from __future__ import annotations

import subprocess
import sys

import pytest

pytest_plugins = "pytester"


@pytest.fixture(autouse=True)
def no_other_plugins(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PYTEST_DISABLE_PLUGIN_AUTOLOAD", "1")


class TestProjectsThatDoNotUseIt:
    def test_run_loads_no_module_but_the_plugin_and_starts_nothing(self, pytester: pytest.Pytester) -> None:
        pytester.makepyfile("""
import os, sys, threading

def test_it():
    ours = {name for name in sys.modules if name.startswith(("cpaas_", "airflow"))}
    assert ours <= {"cpaas_sandbox", "cpaas_sandbox.pytest_plugin"}
    assert not {"fastapi", "uvicorn", "pydantic", "phonenumbers"} & sys.modules.keys()
    assert [thread.name for thread in threading.enumerate() if "cpaas" in thread.name] == []
    assert [name for name in os.environ if name.startswith("AIRFLOW_CONN_")] == []
""")
        # Other plugins of this environment load what they like.
        result = pytester.run(
            sys.executable, "-m", "pytest", "-q", "-p", "cpaas_sandbox.pytest_plugin", "--strict-markers"
        )
        result.assert_outcomes(passed=1)

    def test_fixtures_are_described(self, pytester: pytest.Pytester) -> None:
        command = [sys.executable, "-m", "pytest", "--fixtures", "-p", "cpaas_sandbox.pytest_plugin"]
        shown = subprocess.run(command, cwd=pytester.path, capture_output=True, text=True, check=False).stdout
        for name in ("cpaas_sandbox", "sandbox", "cpaas_run_dag", "run_dag", "cpaas_receiver"):
            assert f"\n{name}" in shown, shown


class TestWithoutAirflow:
    def test_sandbox_works_and_run_dag_names_what_is_missing(self, pytester: pytest.Pytester) -> None:
        (pytester.path / "airflow.py").write_text("raise ImportError('no Airflow here')\n")
        pytester.makepyfile("""
def test_sandbox(sandbox):
    assert sandbox.sms == []

def test_run_dag(run_dag):
    pass
""")
        command = (sys.executable, "-m", "pytest", "-q", "-p", "cpaas_sandbox.pytest_plugin")
        result = pytester.run(*command)
        result.assert_outcomes(passed=1, errors=1)
        result.stdout.fnmatch_lines(["*run_dag needs Airflow, which cannot be imported: no Airflow here*"])
