"""The README's reference is made from the code, and the code documents itself."""

from __future__ import annotations

import ast
import importlib
import importlib.util
import inspect
import re
from pathlib import Path
from types import ModuleType

import pytest

from cpaas_provider import assets, operators, sensors, sources
from cpaas_provider.api import operations
from cpaas_provider.api.settings import ClientSettings
from cpaas_provider.hooks.connection import _CONVERSIONS
from cpaas_provider.operators.campaigns import CampaignOperator
from cpaas_provider.operators.journaled import JournaledOperator
from cpaas_provider.operators.sends import SendOperator
from cpaas_provider.provider_info import CONNECTION_FIELDS

ROOT = Path(__file__).parent.parent.parent
README = (ROOT / "README.md").read_text(encoding="utf-8")


def load_reference() -> ModuleType:
    spec = importlib.util.spec_from_file_location("reference", ROOT / "docs" / "reference.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


reference = load_reference()
NAMED = [getattr(operators, name) for name in operators.__all__]
DAG_CLASSES = [kind for kind in NAMED if inspect.isclass(kind)] + [getattr(sensors, name) for name in sensors.__all__]
SOURCES = [kind for name in sources.__all__ if inspect.isclass(kind := getattr(sources, name))]


def test_the_reference_is_up_to_date() -> None:
    assert reference.reference() in README


@pytest.mark.parametrize("kind", DAG_CLASSES, ids=lambda kind: kind.__name__)
def test_every_argument_is_documented_and_nothing_else(kind: type) -> None:
    own = {argument.name for argument in reference.arguments(kind)} - reference.documented_elsewhere(kind)
    assert own == set(reference.documentation(kind))


@pytest.mark.parametrize("kind", [JournaledOperator, SendOperator, CampaignOperator], ids=lambda kind: kind.__name__)
def test_what_sending_operators_share_is_documented_once(kind: type) -> None:
    own = {argument.name for argument in reference.own_arguments(kind)}
    assert own == set(reference.documentation(kind)) - {"cpaas_conn_id"}


@pytest.mark.parametrize("kind", DAG_CLASSES, ids=lambda kind: kind.__name__)
def test_templated_says_what_is_templated(kind: type) -> None:
    documented = reference.documentation(kind)
    if issubclass(kind, CampaignOperator):
        documented = reference.documentation(CampaignOperator) | documented
    said = {name for name, text in documented.items() if text.endswith("(templated)")}
    assert said == set(kind.template_fields)


@pytest.mark.parametrize("name", [*operators.__all__, *sensors.__all__])
def test_every_operator_and_sensor_is_in_the_reference(name: str) -> None:
    assert f"### `{name}`" in README


@pytest.mark.parametrize("name", assets.__all__)
def test_everything_that_starts_dags_is_in_the_reference(name: str) -> None:
    assert f"`{name}` |" in README or f"### `{name}`" in README


@pytest.mark.parametrize("kind", SOURCES, ids=lambda kind: kind.__name__)
def test_every_source_is_in_the_reference(kind: type) -> None:
    assert f"### `{kind.__name__}`" in README
    assert set(inspect.signature(kind).parameters) == set(reference.documentation(kind))
    said = {name for name, text in reference.documentation(kind).items() if text.endswith("(templated)")}
    assert said == set(getattr(kind, "template_fields", ()))


def test_every_client_option_is_documented() -> None:
    assert set(inspect.signature(ClientSettings).parameters) == set(reference.documentation(ClientSettings))


def test_the_documented_connection_defaults_are_the_real_ones() -> None:
    real = {name: option.default for name, option in inspect.signature(ClientSettings).parameters.items()}
    for name in set(CONNECTION_FIELDS) & set(real):
        documented = CONNECTION_FIELDS[name]["schema"].get("default")
        if documented is not None:
            default = ", ".join(real[name]) if isinstance(real[name], tuple) else real[name]
            assert documented == default or documented == str(default).lower(), name


def test_every_field_of_the_connection_is_read() -> None:
    assert set(CONNECTION_FIELDS) == set(_CONVERSIONS)


def test_every_operation_documents_its_arguments() -> None:
    for name, operation in vars(operations).items():
        if inspect.isfunction(operation) and operation.__module__ == operations.__name__:
            documented = set(reference.documentation(operation))
            assert set(inspect.signature(operation).parameters) == documented, name


@pytest.mark.parametrize("command", ["make demo", "make test", "airflow cpaas ping", "cpaas-sandbox --port"])
def test_the_commands_are_named(command: str) -> None:
    assert command in README


@pytest.mark.parametrize(
    "words",
    [
        "A request of a try that Airflow has given up for dead (a worker cut off from the network) may still arrive",
        "The state goes with the DAG run",
        "`airflow db clean` forget what was sent",
        "`[state_store] clear_on_success`",
    ],
)
def test_what_is_beyond_us_is_said(words: str) -> None:
    assert words in " ".join(README.split())


DOCUMENTS = [ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md"))]


@pytest.mark.parametrize("document", DOCUMENTS, ids=lambda document: document.name)
def test_programs_in_the_documents_import_what_there_is(document: Path) -> None:
    for block in re.findall(r"^```python\n(.*?)^```", document.read_text(encoding="utf-8"), re.DOTALL | re.MULTILINE):
        if not block.startswith(("import ", "from ")):
            continue
        for statement in ast.walk(ast.parse(block)):
            if isinstance(statement, ast.ImportFrom) and (statement.module or "").startswith("cpaas_provider"):
                module = importlib.import_module(str(statement.module))
                assert [name.name for name in statement.names if not hasattr(module, name.name)] == []


@pytest.mark.parametrize("document", DOCUMENTS, ids=lambda document: document.name)
def test_links_between_the_documents_lead_somewhere(document: Path) -> None:
    text = without_programs(document)
    for path, _, heading in (link.partition("#") for link in re.findall(r"\]\((?!https?:)([^)]+)\)", text)):
        target = (document.parent / path).resolve() if path else document
        assert target.exists(), path
        assert not heading or heading in headings(target), f"{path}#{heading}"


def headings(document: Path) -> set[str]:
    lines = re.findall(r"^#+ (.*)$", without_programs(document), re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", line.lower()).replace(" ", "-") for line in lines}


def without_programs(document: Path) -> str:
    return re.sub(r"^```.*?^```", "", document.read_text(encoding="utf-8"), flags=re.DOTALL | re.MULTILINE)
