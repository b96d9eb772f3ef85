"""The guide and the reference name what the plugin has, and nothing else."""

from __future__ import annotations

import dataclasses
import re
from pathlib import Path

import pytest

from cpaas_sandbox import pytest_plugin
from cpaas_sandbox.faults.kinds import KINDS
from cpaas_sandbox.pytest_plugin import DagRunResult, Sandbox, items

DOCS = Path(__file__).parents[3] / "docs"
GUIDE = (DOCS / "guides" / "test-your-dags.md").read_text(encoding="utf-8")
REFERENCE = (DOCS / "reference" / "pytest-plugin.md").read_text(encoding="utf-8")


def names_below(heading: str, page: str = REFERENCE) -> set[str]:
    """Return the names in the first column of the table below a heading."""
    section = re.split(r"^##", page.split(f"\n## {heading}\n", 1)[1], flags=re.MULTILINE)[0]
    return {
        name for line in re.findall(r"^\| (`.*?) \|", section, re.MULTILINE) for name in re.findall(r"`(\w+)`", line)
    }


def test_every_fixture_is_in_the_reference() -> None:
    fixtures = {name for name, value in vars(pytest_plugin).items() if "Fixture" in type(value).__name__}
    assert names_below("Fixtures") == {name for name in fixtures if not name.startswith("_")}


def test_every_option_is_in_the_reference() -> None:
    assert names_below("Options and marker") == set(pytest_plugin._OPTIONS)


def test_every_attribute_of_sandbox_and_run_is_in_the_reference() -> None:
    properties = {name for name, value in vars(Sandbox).items() if isinstance(value, property)}
    attributes = set(vars(Sandbox("http://127.0.0.1:1", "key")))
    assert names_below("Sandbox") == properties | {name for name in attributes if not name.startswith("_")}
    fields = {field.name for field in dataclasses.fields(DagRunResult)}
    properties = {name for name, value in vars(DagRunResult).items() if isinstance(value, property)}
    assert names_below("Finished run") == fields | properties


@pytest.mark.parametrize("kind", [items.Sms, items.Email, items.Otp, items.Airtime])
def test_every_attribute_of_an_item_is_in_the_reference(kind: type) -> None:
    (row,) = re.findall(rf"^\| `{kind.__name__}` \| (.*) \|$", REFERENCE, re.MULTILINE)
    fields = {field.name for field in dataclasses.fields(kind)}
    assert set(re.findall(r"`(\w+)`", row)) == {name for name in fields if not name.startswith("_")}


def test_every_public_class_is_named_and_can_be_imported() -> None:
    for name in pytest_plugin.__all__:
        assert getattr(pytest_plugin, name).__name__ == name
        assert name in REFERENCE


def test_faults_of_the_guide_exist() -> None:
    rows = re.findall(r"^\| [^`|]+ \| (.*`.*) \|$", GUIDE.split("## Have the service fail")[1].split("\n## ")[0], re.M)
    named = {name for row in rows for name in re.findall(r"`(\w+)`", row)}
    parameters = {parameter for kind in KINDS.values() for parameter in kind.params}
    assert named - parameters - {"timeout"} <= set(KINDS)
    assert len(named & set(KINDS)) > 8
