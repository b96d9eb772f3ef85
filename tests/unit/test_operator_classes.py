"""How deep the classes of the operators are stacked."""

from __future__ import annotations

import pytest

from cpaas_provider import notifications, operators, sensors
from cpaas_provider._common.rendering import TEXT_FIELDS

MAX_CLASSES = 3
OBJECT_FIELDS = {
    *("amount", "columns", "expires_in", "key", "length", "on_missing", "personalisation", "phone", "recipient"),
    *("recipients", "results_path", "send_result", "source", "suppression_list", "test_recipients"),
    *(
        "max_changes",
        "max_new",
        "new_map",
        "max_deletes",
        "max_failure_ratio",
        "resync",
        "retry_rejected",
        "without_sending",
    ),
}
"""Templated fields that native rendering may make a list, a mapping or a number."""
PUBLIC = [name for name in operators.__all__ if name.endswith("Operator")]


@pytest.mark.parametrize("name", PUBLIC)
def test_operator_is_at_most_three_classes_of_ours(name: str) -> None:
    ours = [kind for kind in getattr(operators, name).__mro__ if kind.__module__.startswith("cpaas_provider")]
    assert len(ours) <= MAX_CLASSES


def test_native_rendering_knows_for_each_templated_field_whether_it_is_text() -> None:
    classes = [getattr(package, name) for package in (notifications, operators, sensors) for name in package.__all__]
    fields = {field for kind in classes for field in getattr(kind, "template_fields", ())}
    assert fields == TEXT_FIELDS | OBJECT_FIELDS
    assert not TEXT_FIELDS & OBJECT_FIELDS
