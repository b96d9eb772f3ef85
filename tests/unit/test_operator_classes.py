"""How deep the classes of the operators are stacked."""

from __future__ import annotations

import pytest

from cpaas_provider import operators

MAX_CLASSES = 3
PUBLIC = [name for name in operators.__all__ if name.endswith("Operator")]


@pytest.mark.parametrize("name", PUBLIC)
def test_operator_is_at_most_three_classes_of_ours(name: str) -> None:
    ours = [kind for kind in getattr(operators, name).__mro__ if kind.__module__.startswith("cpaas_provider")]
    assert len(ours) <= MAX_CLASSES
