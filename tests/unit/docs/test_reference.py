"""The reference has an entry for every public name and every parameter, each as the code has it."""

from __future__ import annotations

import functools
import importlib
import inspect
import pkgutil
import re
import tomllib
from datetime import timedelta
from pathlib import Path

import pytest

from cpaas_provider.contacts.sync.report import SyncProgress
from cpaas_provider.contacts.sync.results import Counts
from cpaas_provider.contacts.sync.spool import RowOutcome
from cpaas_provider.database import schema
from cpaas_provider.database.schema.base import metadata
from cpaas_provider.delivery.receiver.writer import StoreResult
from cpaas_provider.delivery.reports import DeliveryStatus
from cpaas_provider.hooks import metrics
from cpaas_provider.hooks.connection import _CONVERSIONS
from cpaas_provider.provider_info import CONNECTION_FIELDS, DOCUMENTATION, get_provider_info
from cpaas_provider.sending.campaign.progress import Progress
from cpaas_provider.sending.campaign.recipients import RecipientStatus
from cpaas_provider.sensors._delivery_status import COLUMNS
from cpaas_provider.sources.phone_lookups import LOOKUP_COLUMNS
from cpaas_provider.sources.results_file import CAMPAIGN_COLUMNS
from cpaas_provider.tasks.contacts.sync import OF_A_SYNC
from tests.unit.docs import DOCS, README, ROOT, named
from tests.unit.docs.test_links import headings, links_of

from cpaas_docs import argument_index, commands, docstrings, examples, meanings, signatures  # isort: skip
from cpaas_docs.pages import PART, Part, generated_pages, regenerated  # isort: skip

REFERENCE = sorted((DOCS / "reference").glob("*.md"))
PUBLIC = [(package, name) for package, names in signatures.public_names().items() for name in names]
OTHERS = ("cpaas_provider.hooks.cpaas.CpaasHook", "cpaas_provider.hooks.retry_policy.CpaasRetryPolicy")
TRIGGERS = [
    f"{module}.{name}"
    for kind in get_provider_info()["triggers"]  # type: ignore[attr-defined]
    for module in kind["python-modules"]
    for name in vars(importlib.import_module(module))
    if name.endswith("Trigger") and vars(importlib.import_module(module))[name].__module__ == module
]
CLASSES = [
    kind
    for package, name in PUBLIC
    if package in ("operators", "sensors", "notifications", "sources", "task_groups")
    and inspect.isclass(kind := signatures.find(f"cpaas_provider.{package}.{name}"))
]


def text_of(page: Path) -> str:
    return page.read_text(encoding="utf-8")


@functools.cache
def reference() -> str:
    return "\n".join(text_of(page) for page in REFERENCE)


def entry(name: str) -> str:
    """Return what is below the heading of a name."""
    found = re.search(rf"^#+ `{re.escape(name)}`\n(.*?)(?=^#|^<!-- |\Z)", reference(), re.M | re.S)
    assert found, f"{name} has no entry in docs/reference"
    return found[1]


@pytest.mark.parametrize("page", generated_pages(), ids=named)
def test_page_in_the_repository_equals_the_code(page: Path) -> None:
    text = text_of(page)
    assert text == regenerated(text), "run 'make reference'"


def test_generated_parts_are_found() -> None:
    assert {page.parent.name for page in generated_pages()} >= {"reference", "guides", "contributing"}
    for page in generated_pages():
        assert text_of(page).count("<!-- generated: ") == len(PART.findall(text_of(page))), page


def test_changed_docstring_changes_the_page() -> None:
    page = DOCS / "reference" / "operators.md"
    stale = text_of(page).replace("in any usual form", "in any form", 1)
    assert stale != text_of(page)
    assert regenerated(stale) == text_of(page)


@pytest.mark.parametrize(("package", "name"), PUBLIC, ids=lambda part: part)
def test_every_public_name_has_an_entry(package: str, name: str) -> None:
    text = entry(name)
    is_error = inspect.isclass(kind := signatures.find(f"cpaas_provider.{package}.{name}")) and issubclass(
        kind, Exception
    )
    assert is_error or f"`from cpaas_provider.{package} import {name}`" in text


@pytest.mark.parametrize("path", [*OTHERS, *TRIGGERS])
def test_hook_retry_policy_and_triggers_have_an_entry(path: str) -> None:
    assert path.rpartition(".")[0] in entry(path.rpartition(".")[2])


def test_there_are_triggers() -> None:
    assert len(TRIGGERS) >= 3


@pytest.mark.parametrize("kind", CLASSES, ids=lambda kind: kind.__name__)
def test_every_parameter_has_an_entry_with_its_default(kind: type) -> None:
    text = entry(kind.__name__)
    for one in signatures.arguments(kind):
        default = "required" if one.default is inspect.Parameter.empty else f"default {signatures.shown(one.default)}"
        anchor = f'<a id="{kind.__name__.lower()}-{one.name}"></a>'
        assert re.search(rf"^\* {anchor}`{one.name}` \(.*{re.escape(default)}\): \S", text, re.M), one.name


def test_anchors_of_a_page_are_unique() -> None:
    for page in REFERENCE:
        text = text_of(page)
        anchors = [*re.findall(r'<a id="([^"]+)"', text), *headings(page)]
        assert len(anchors) == len(set(anchors)), page


def test_every_argument_is_two_clicks_from_readme() -> None:
    """A reader of a Git host follows links of README, then those of the page that they lead to."""
    first = {(README.parent / link.partition("#")[0]).resolve() for link in links_of(README) if ":" not in link}
    second: set[tuple[Path, str]] = set()
    for page in (page for page in first if page.suffix == ".md"):
        for path, _, anchor in (link.partition("#") for link in links_of(page) if ":" not in link):
            second.add(((page.parent / path).resolve() if path else page, anchor))
    checked = 0
    for package, page_name in argument_index.PAGES.items():
        page = DOCS / "reference" / page_name
        for name in signatures.public_names()[package]:
            for one in signatures.arguments(signatures.find(f"cpaas_provider.{package}.{name}")):
                if one.kind is one.VAR_KEYWORD:
                    continue
                anchor = signatures.argument_anchor(name, one.name)
                assert (page, anchor) in second, anchor
                assert f'<a id="{anchor}"></a>' in text_of(page), anchor
                checked += 1
    assert checked > 300


@pytest.mark.parametrize("kind", CLASSES, ids=lambda kind: kind.__name__)
def test_no_docstring_describes_what_is_no_parameter(kind: type) -> None:
    taken = {one.name for one in signatures.arguments(kind)}
    assert set(docstrings.read(kind).params) <= taken | {"cpaas_conn_id"}


@pytest.mark.parametrize("kind", CLASSES, ids=lambda kind: kind.__name__)
def test_docstring_marks_templated_fields(kind: type) -> None:
    said = {name for name, text in signatures._documentation(kind).items() if text.endswith("(templated)")}
    # BaseOperator has a method dry_run.
    fields = {"dry_run" if name == "without_sending" else name for name in getattr(kind, "template_fields", ())}
    assert said & {one.name for one in signatures.arguments(kind)} == fields


def test_every_client_and_hook_method_has_an_entry() -> None:
    for path in ("cpaas_provider.api.CpaasClient", "cpaas_provider.hooks.cpaas.CpaasHook"):
        kind = signatures.find(path)
        assert len(signatures.method_names(kind)) > 5
        for name in signatures.method_names(kind):
            assert entry(f"{kind.__name__}.{name}")


def test_both_clients_have_the_same_operations() -> None:
    sync, asynchronous = (signatures.find(f"cpaas_provider.api.{name}") for name in ("CpaasClient", "AsyncCpaasClient"))
    assert set(signatures.method_names(sync)) - {"close"} == set(signatures.method_names(asynchronous)) - {"aclose"}


@pytest.mark.parametrize("name", signatures.find("cpaas_provider.api.settings.ClientSettings").__struct_fields__)
def test_every_client_option_has_an_entry(name: str) -> None:
    options = reference().partition("### Options")[2].partition("### Operations")[0]
    assert re.search(rf"^\* .*`{name}` ", options, re.M)


def test_every_connection_field_has_an_entry_and_is_read() -> None:
    text = text_of(DOCS / "reference" / "connection.md")
    assert set(CONNECTION_FIELDS) == set(_CONVERSIONS)
    for name in ("host", "password", *CONNECTION_FIELDS):
        assert re.search(rf"^\* .*`{name}`.*: \S", text, re.M), name


def test_defaults_of_connection_fields_are_those_of_the_client() -> None:
    real = inspect.signature(signatures.find("cpaas_provider.api.settings.ClientSettings")).parameters
    for name in set(CONNECTION_FIELDS) & set(real):
        documented = CONNECTION_FIELDS[name]["schema"].get("default")  # type: ignore[attr-defined]
        default = real[name].default
        if documented is not None:
            shown = ", ".join(default) if isinstance(default, tuple) else default
            assert documented == shown or documented == str(shown).lower(), name


def test_every_table_of_the_database_is_on_the_page_of_retention() -> None:
    for module in pkgutil.iter_modules(schema.__path__, f"{schema.__name__}."):
        importlib.import_module(module.name)
    text = (DOCS / "operations" / "retention.md").read_text(encoding="utf-8")
    listed = set(re.findall(r"`(cpaas_\w+)`", text.partition("## Tables")[2].partition("## Prune")[0]))
    assert listed == set(metadata.tables)


def test_every_option_of_the_configuration_has_an_entry() -> None:
    text = text_of(DOCS / "reference" / "configuration.md")
    options = get_provider_info()["config"]["cpaas"]["options"]  # type: ignore[index]
    for name in options:
        assert f"## `[cpaas] {name}`" in text
        assert f"`AIRFLOW__CPAAS__{name.upper()}`" in text


@pytest.mark.parametrize("program", ["airflow", "cpaas-sandbox"])
def test_every_command_and_option_has_an_entry(program: str) -> None:
    text = text_of(DOCS / "reference" / "cli.md")
    leaves = list(commands.leaves(commands.parser_of(program)))
    assert leaves
    for parser, _ in leaves:
        below = re.split(r"^#", text.partition(f" `{parser.prog}`\n")[2], flags=re.M)[0]
        for option in (option for action in parser._actions for option in action.option_strings):
            assert option in ("-h", "--help") or f"`{option}" in below, f"{parser.prog} {option}"


def test_metrics_are_those_that_are_published() -> None:
    """Of campaigns and syncs every figure; of the receiver every kind of report, and what it counts beside."""
    progress = Progress(10, sent=1)
    figures = {f"{metrics.CAMPAIGN}.{name}" for name in progress.figures(1.0, 2.0)}
    synced: dict[str, float] = {}
    SyncProgress(10.0, synced.update).log(Counts(), 1)
    figures |= {f"{metrics.CONTACTS}.{name}" for name in synced}
    counted = {result.value for result in StoreResult if result is not StoreResult.NEW} | {
        "received",
        "lag",
        "refused.<status>",
    }
    # Those of a real send are in tests/airflow/account/test_budget.py.
    figures |= {f"{metrics.BUDGET}.{name}" for name in ("spent", "limit")}
    table = [metric.name for metric in metrics.METRICS]
    assert set(table) == figures | {f"{metrics.DELIVERY}.{name}" for name in counted}
    assert len(set(table)) == len(table)
    text = text_of(DOCS / "reference" / "metrics.md")
    assert all(f"| `{name}` | " in text for name in table)


def test_columns_and_outcomes_of_results_files_have_a_meaning() -> None:
    text = text_of(DOCS / "reference" / "results-file.md")
    for column in (*CAMPAIGN_COLUMNS, *OF_A_SYNC, *COLUMNS, *LOOKUP_COLUMNS):
        assert re.search(rf"^\| `{column}` \| \w+ \| \S", text, re.M), column
    assert set(meanings.COLUMNS) == {*CAMPAIGN_COLUMNS, *OF_A_SYNC, *COLUMNS, *LOOKUP_COLUMNS}
    for word in (*(member.name.lower() for member in (*RecipientStatus, *DeliveryStatus)), *RowOutcome):
        assert re.search(rf"^\| `{word}` \| \S", text, re.M), word
    assert set(meanings.CAMPAIGN_OUTCOMES) == {member.value for member in RecipientStatus}
    assert set(meanings.CONTACT_OUTCOMES) == {*RowOutcome}
    assert set(meanings.DELIVERY_OUTCOMES) == {member.value for member in DeliveryStatus}


def test_every_example_dag_is_shown() -> None:
    text = text_of(DOCS / "reference" / "example-dags.md")
    assert len(examples.files()) >= 7
    for path in examples.files():
        assert path.read_text(encoding="utf-8").rstrip() in text, path


def test_part_of_an_example_needs_its_marks() -> None:
    assert list(examples.example("customer_campaign", "howto_custom_source"))
    for missing in (("customer_campaign", "howto_pigeons"), ("pigeons",)):
        with pytest.raises(LookupError):
            list(examples.example(*missing))


def test_documentation_url_is_the_same_everywhere() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    assert project["urls"]["Documentation"] == DOCUMENTATION
    (integration,) = get_provider_info()["integrations"]  # type: ignore[misc]
    assert integration["external-doc-url"] == DOCUMENTATION
    guides = {page.stem for page in (DOCS / "guides").glob("*.md")}
    assert {f"{DOCUMENTATION}guides/{name}.html" for name in guides} == set(integration["how-to-guide"])


@pytest.mark.parametrize(("kind", "rest"), [("class", "cpaas_provider.operators.SendPigeonOperator"), ("pigeons", "")])
def test_part_of_what_is_not_there_is_refused(kind: str, rest: str) -> None:
    with pytest.raises(LookupError):
        Part(kind, (rest,)).make()


def test_parameter_without_a_description_fails_the_build() -> None:
    class Silent:
        """It takes something.

        :param told: what is told
        """

        def __init__(self, told: int, untold: int) -> None: ...

    said = docstrings.read(Silent).params
    with pytest.raises(LookupError, match="untold"):
        list(signatures.parameters(inspect.signature(Silent).parameters.values(), said, "Silent"))


def test_docstring_is_parsed() -> None:
    def documented() -> None:
        """Do it, see ``that`` (contract.md 4.3).

        .. code-block:: python

            with documented():
                pass

        :param one: the first,
            of two
        :return: ``None``
        :raises ValueError: never
        """

    found = docstrings.read(documented)
    assert found.text == "Do it, see `that`.\n\n```python\nwith documented():\n    pass\n```"
    assert found.params == {"one": "the first, of two"}
    assert found.returned == "`None`"
    assert found.raised == {"ValueError": "never"}


def test_keys_of_a_result_are_a_list() -> None:
    def documented() -> None:
        """Do it.

        :returns: the report:

            * ``sent``: how many
              were accepted
            * ``rejected``: how many were not
        """

    returned = docstrings.read(documented).returned
    assert returned == "the report:\n\n* `sent`: how many\n  were accepted\n* `rejected`: how many were not"


@pytest.mark.parametrize(
    ("default", "shown"),
    [
        (timedelta(days=1), "1 day"),
        (timedelta(days=30), "30 days"),
        (timedelta(minutes=10), "10 minutes"),
        (None, "`None`"),
        ("", "empty"),
        ("sms", "`sms`"),
        (4.0, "`4.0`"),
    ],
)
def test_default_is_shown_in_readable_form(default: object, shown: str) -> None:
    assert signatures.shown(default) == shown
