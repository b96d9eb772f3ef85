"""What the distribution declares, and that it installs and works where nothing else is."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tarfile
import venv
import zipfile
from importlib import metadata, resources
from pathlib import Path

import jsonschema
import pytest

from cpaas_provider import __version__
from cpaas_provider.provider_info import get_provider_info

ROOT = Path(__file__).parent.parent.parent


def test_provider_info_is_valid_by_airflow_s_own_schema() -> None:
    schema = json.loads((resources.files("airflow") / "provider_info.schema.json").read_text())
    jsonschema.validate(get_provider_info(), schema)


def test_every_module_and_class_it_names_exists() -> None:
    info = get_provider_info()
    for section in ("operators", "sensors", "hooks", "triggers"):
        for group in info[section]:
            for module in group["python-modules"]:
                __import__(module)
    path, _, name = info["connection-types"][0]["hook-class-name"].rpartition(".")
    hook = getattr(__import__(path, fromlist=[name]), name)
    assert (hook.conn_type, hook.hook_name) == ("cpaas", info["connection-types"][0]["hook-name"])


def test_every_operator_module_is_named() -> None:
    here = {path.stem for path in (ROOT / "provider/cpaas_provider/operators").glob("[!_]*.py")}
    named = {module.rpartition(".")[2] for module in get_provider_info()["operators"][0]["python-modules"]}
    assert named == {module for module in here if not module.startswith("base")}


@pytest.mark.parametrize("field", ["webhook_secret", "callback_secret", "proxy_password"])
def test_secret_fields_are_masked_by_their_name(field: str) -> None:
    from airflow.sdk._shared.secrets_masker import should_hide_value_for_key

    assert should_hide_value_for_key(field)
    fields = get_provider_info()["connection-types"][0]["conn-fields"]
    assert fields[field]["schema"]["format"] == "password"


def test_version_is_the_same_everywhere() -> None:
    assert metadata.version("airflow-provider-cpaas") == __version__
    assert f"## {__version__}" in (ROOT / "CHANGELOG.md").read_text()


def test_entry_points_are_those_airflow_needs() -> None:
    ours = {(point.group, point.name) for point in metadata.distribution("airflow-provider-cpaas").entry_points}
    assert ours >= {
        ("apache_airflow_provider", "provider_info"),
        ("airflow.plugins", "cpaas"),
        ("console_scripts", "cpaas-sandbox"),
        ("pytest11", "cpaas_sandbox"),
    }


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Wheel and sdist, built by the environment's own build backend."""
    out = tmp_path_factory.mktemp("dist")
    command = [sys.executable, "-m", "build", "--no-isolation", "--outdir", str(out), str(ROOT)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    return out


def test_wheel_holds_only_the_packages_and_their_pages(built: Path) -> None:
    (wheel,) = built.glob("*.whl")
    with zipfile.ZipFile(wheel) as archive:
        names = archive.namelist()
    assert {name.split("/")[0].split("-")[0] for name in names} == {
        "cpaas_provider",
        "cpaas_sandbox",
        "airflow_provider_cpaas",
    }
    assert not [name for name in names if "__pycache__" in name or name.endswith(".pyc")]
    assert {"cpaas_provider/py.typed", "cpaas_sandbox/py.typed"} <= set(names)
    pages = {str(p.relative_to(ROOT / "provider")) for p in (ROOT / "provider").rglob("*.html")}
    assert pages
    assert pages <= set(names)
    assert any(name.endswith("licenses/LICENSE") for name in names)
    assert any(name.endswith("licenses/NOTICE") for name in names)


def test_airflow_finds_the_example_dags_in_the_wheel(built: Path) -> None:
    """It derives the module from the distribution's name; each of our DAG files is there, with what it needs."""
    import airflow_provider_cpaas

    (wheel,) = built.glob("*.whl")
    with zipfile.ZipFile(wheel) as archive:
        packed = {name.partition("/example_dags/")[2] for name in archive.namelist() if "/example_dags/" in name}
    assert airflow_provider_cpaas.__name__ == metadata.metadata("airflow-provider-cpaas")["Name"].replace("-", "_")
    here = {str(path.relative_to(ROOT / "example_dags")) for path in (ROOT / "example_dags").glob("**/*.py")}
    assert here <= packed
    assert {"data/customers.csv", ".airflowignore"} <= packed


def test_wheel_has_a_short_list_in_the_place_of_the_whole_one(built: Path) -> None:
    (wheel,) = built.glob("*.whl")
    with zipfile.ZipFile(wheel) as archive:
        lists = [info for info in archive.infolist() if info.filename.endswith(".csv")]
        assert [archive.read(info) for info in lists] == [(ROOT / "example_dags/data/few_customers.csv").read_bytes()]
    assert lists[0].filename == "airflow_provider_cpaas/example_dags/data/customers.csv"
    assert lists[0].file_size < 5_000


def test_sdist_holds_all_files_for_build_and_test(built: Path) -> None:
    (sdist,) = built.glob("*.tar.gz")
    with tarfile.open(sdist) as archive:
        names = {name.partition("/")[2] for name in archive.getnames()}
    assert names >= {"pyproject.toml", "README.md", "LICENSE", "Makefile", "constraints.txt", "tests/conftest.py"}
    assert names >= {"SECURITY.md", "CONTRIBUTING.md", "CODE_OF_CONDUCT.md", "NOTICE", "deploy/compose.yaml", ".ci/run"}
    assert names >= {"docs/conf.py", "docs/index.md", "docs/_ext/cpaas_docs/__init__.py", "docs/_static/messages.js"}


def test_no_path_or_host_of_a_machine_is_packed(built: Path) -> None:
    (wheel,) = built.glob("*.whl")
    with zipfile.ZipFile(wheel) as archive:
        for name in archive.namelist():
            assert str(ROOT).encode() not in archive.read(name), name


def test_pytest_finds_the_plugin_in_the_wheel(built: Path, tmp_path: Path) -> None:
    """A test that requests its fixture finds it by the entry point alone, and the code of the wheel."""
    (wheel,) = built.glob("*.whl")
    with zipfile.ZipFile(wheel) as archive:
        archive.extractall(tmp_path / "packages")
    (tmp_path / "test_it.py").write_text(
        "import sys\n"
        "def test_it(sandbox):\n"
        "    assert sandbox.sms == []\n"
        f"    assert sys.modules['cpaas_sandbox.pytest_plugin'].__file__.startswith({str(tmp_path)!r})\n"
    )
    # The first distribution on the path counts, so that of this environment is not found.
    environment = {**os.environ, "PYTHONPATH": str(tmp_path / "packages")}
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:schemathesis", "test_it.py"]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=False, env=environment)
    assert done.returncode == 0, done.stdout + done.stderr


def test_wheel_works_in_its_own_environment(built: Path, tmp_path: Path) -> None:
    """Its dependencies are lent by this environment, so that no index is asked; ours is not importable there."""
    home = tmp_path / "env"
    venv.create(home, with_pip=False)
    (wheel,) = built.glob("*.whl")
    (packages,) = home.glob("lib/python*/site-packages")
    with zipfile.ZipFile(wheel) as archive:
        archive.extractall(packages)
    # A plain path line lends the packages; editable installs hook in by .pth files, which are read here only.
    lent = next(path for path in sys.path if path.endswith("site-packages"))
    (packages / "lent.pth").write_text(lent + "\n")
    script = (
        "import cpaas_provider, importlib.metadata as m; "
        "from cpaas_provider.operators import SendSmsOperator; from cpaas_provider.api import CpaasClient; "
        "print(cpaas_provider.__file__)"
    )
    environment = {**os.environ, "PYTHONNOUSERSITE": "1"}
    done = subprocess.run(
        [str(home / "bin" / "python"), "-c", script], capture_output=True, text=True, check=False, env=environment
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout.splitlines()[-1].startswith(str(packages))
