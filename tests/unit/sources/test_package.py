"""The package itself costs nothing; what it names is there."""

from __future__ import annotations

import subprocess
import sys

import cpaas_provider.sources


def test_importing_it_loads_no_source() -> None:
    script = (
        "import sys, typing, importlib; before = set(sys.modules); "
        "import cpaas_provider.sources; print(*sorted(set(sys.modules) - before))"
    )
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    assert set(done.stdout.split()) <= {
        "__future__",
        "cpaas_provider",
        "cpaas_provider._lazy",
        "cpaas_provider.sources",
    }


def test_a_dag_file_that_names_all_sources_loads_no_library() -> None:
    script = (
        "import sys; from airflow.sdk import BaseOperator; before = set(sys.modules)\n"
        "from cpaas_provider.sources import *\n"
        "CsvSource('a.csv'), ParquetSource('a.parquet'), SqlSource('db', 'SELECT 1'), as_source(['1'])\n"
        "print(*sorted(set(sys.modules) - before))"
    )
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    loaded = {name for name in done.stdout.split() if not name.startswith("cpaas_provider")}
    assert loaded <= {"csv", "_csv"}


def test_everything_it_names_is_there() -> None:
    assert cpaas_provider.sources.__all__ == [
        "CsvSource",
        "JsonLinesSource",
        "ListSource",
        "ParquetSource",
        "SqlSource",
        "as_source",
    ]
    for name in cpaas_provider.sources.__all__:
        assert getattr(cpaas_provider.sources, name)
