from __future__ import annotations

import ast
import importlib
import subprocess
import sys
from pathlib import Path

import pytest

from cpaas_provider import api

HOMES = {(home, name) for home, names in api._HOMES.items() for name in names}


def test_type_checking_imports_equal_the_lazy_exports() -> None:
    tree = ast.parse(Path(api.__file__).read_text())
    guarded = next(node for node in tree.body if isinstance(node, ast.If))
    seen = set()
    for line in guarded.body:
        assert isinstance(line, ast.ImportFrom)
        for alias in line.names:
            assert alias.asname == alias.name, "only 'import X as X' is an export"
            seen.add(((line.module or "").removeprefix("cpaas_provider.api."), alias.name))
    assert seen == HOMES


@pytest.mark.parametrize(("home", "name"), sorted(HOMES))
def test_every_name_loads_from_its_home(home: str, name: str) -> None:
    assert getattr(api, name) is getattr(importlib.import_module(f"cpaas_provider.api.{home}"), name)


def test_all_and_dir_name_the_exports() -> None:
    names = sorted(name for _, name in HOMES)
    assert list(api.__all__) == names
    assert dir(api) == names


def test_unknown_name_is_an_attribute_error() -> None:
    with pytest.raises(AttributeError, match="Cpaas0"):
        _ = api.Cpaas0  # type: ignore[attr-defined]
    with pytest.raises(ImportError):
        importlib.import_module("cpaas_provider.api.nothing")


def test_import_of_the_package_loads_no_heavy_module() -> None:
    heavy = "httpx", "pydantic", "phonenumbers", "pendulum", "email_validator"
    program = f"import sys, cpaas_provider.api; print([name for name in {heavy} if name in sys.modules])"
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"


def test_numbers_and_texts_need_no_http_client() -> None:
    program = (
        "import sys; from cpaas_provider.api import normalise_msisdn, measure_sms, CpaasError; "
        "print([name for name in ('httpx', 'pydantic') if name in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"
