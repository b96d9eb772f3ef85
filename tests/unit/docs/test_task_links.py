"""A task leads to the entry of its operator: the Docs tab of Airflow's UI shows ``doc_md``."""

from __future__ import annotations

import inspect
import re
from typing import Any

import pytest

from cpaas_provider.operators import SendSmsOperator
from cpaas_provider.provider_info import DOCUMENTATION
from tests.unit.docs import DOCS

from cpaas_docs import signatures  # isort: skip

_GIVEN: dict[str, Any] = {
    "results_path": "out.jsonl",
    "source": "people.csv",
    "recipients": ["2348031234567"],
    "content": "Hi",
    "subject": "Hi",
}
KINDS = [
    (package, kind)
    for package in ("operators", "sensors")
    for name in signatures.public_names()[package]
    if inspect.isclass(kind := signatures.find(f"cpaas_provider.{package}.{name}"))
]


def task_of(kind: Any, **given: Any) -> Any:
    required = [one for one in signatures.arguments(kind) if one.default is inspect.Parameter.empty]
    values = {one.name: _GIVEN.get(one.name, "50" if one.name == "amount" else "mtn") for one in required}
    taken = {one.name for one in signatures.arguments(kind)}
    values |= {name: value for name, value in _GIVEN.items() if name in ("content", "subject") and name in taken}
    return kind(task_id="it", **values, **given)


@pytest.mark.parametrize(("package", "kind"), KINDS, ids=lambda part: getattr(part, "__name__", part))
def test_task_links_to_the_entry_of_its_operator(package: str, kind: type) -> None:
    (link,) = re.findall(r"\((.*)\)", task_of(kind).doc_md)
    page, _, anchor = link.removeprefix(DOCUMENTATION).partition("#")
    assert page == f"reference/{package}.html"
    assert f"### `{kind.__name__}`\n" in (DOCS / page).with_suffix(".md").read_text(encoding="utf-8")
    assert anchor == kind.__name__.lower()


@pytest.mark.parametrize("field", ["doc_md", "doc", "doc_rst"])
def test_words_of_the_author_take_precedence(field: str) -> None:
    task = task_of(SendSmsOperator, **{field: "Mine."})
    assert getattr(task, field) == "Mine."
    assert task.doc_md in (None, "Mine.")


def test_subclass_links_to_the_entry_of_its_base_class() -> None:
    class Reminder(SendSmsOperator):
        """An operator that the site does not have."""

    assert "#sendsmsoperator)" in task_of(Reminder).doc_md
