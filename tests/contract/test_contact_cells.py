"""Cells as they are rendered are taken by the service and come back as they were."""

from __future__ import annotations

import pytest

from cpaas_provider.api import CpaasClient
from cpaas_provider.contacts.mapping.cells import encode_cell
from tests.reading import NIGERIAN
from tests.sandbox import Sandbox
from tests.unit.contacts.mapping.good_cells import GOOD


@pytest.mark.parametrize("column_type", GOOD)
def test_every_rendered_cell_is_stored_as_it_is(sandbox: Sandbox, column_type: str) -> None:
    sandbox.control("POST", "seed", {"columns": [{"id": "c1", "name": "Cell", "type": column_type}]})
    cells = [encode_cell(column_type, value, numbers=NIGERIAN) for value, _ in GOOD[column_type]]
    with CpaasClient(sandbox.url, sandbox.api_key, requests_per_second=10_000) as client:
        row_id = client.create_contact_row({"c1": None}).row.id
        stored = [client.update_contact_row(row_id, {"c1": cell}).row.columns["c1"] for cell in cells]
    assert stored == cells
