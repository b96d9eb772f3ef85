"""Contact tables as tests write them."""

from __future__ import annotations

from cpaas_provider.api.models.contacts import ContactTable


def table(**columns: tuple[str, str]) -> ContactTable:
    """Return a table of columns ``id=(name, type)``."""
    shown = [{"id": id_, "name": name, "type": kind} for id_, (name, kind) in columns.items()]
    return ContactTable.model_validate({"id": "t", "columns": shown})
