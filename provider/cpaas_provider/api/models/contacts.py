"""The contact table, its columns and rows (contract.md 2.5, 4.9 to 4.13)."""

from __future__ import annotations

from typing import Annotated, Any

from pydantic import Field

from cpaas_provider.api.models.base import (
    GivenText,
    OptionalTimestamp,
    ResourceId,
    ServiceWord,
    Text,
    WireRequest,
    WireResource,
)

Cells = Annotated[dict[Text, Any], Field(min_length=1)]


class RowReference(WireRequest):
    """Path of the operations on one row."""

    row_id: GivenText


class CreateRowRequest(WireRequest):
    """Body of ``POST /lists/contact/rows``; a cell that is ``None`` is sent as null."""

    columns: Cells


class UpdateRowRequest(RowReference):
    """Path and body of ``PATCH /lists/contact/rows/{row_id}``."""

    columns: Cells


class ContactColumn(WireResource):
    """A typed column. ``type`` is one of the contract's eight types, or a word that the contract does not list."""

    id: Text
    name: str
    type: ServiceWord


class ContactTable(WireResource):
    """The one contact table with its columns."""

    STORED = frozenset({"columns"})

    id: Text
    columns: list[ContactColumn]
    created_datetime: OptionalTimestamp = None
    updated_datetime: OptionalTimestamp = None


class ContactRow(WireResource):
    """A row; ``columns`` maps column id to cell value."""

    id: ResourceId
    columns: dict[str, Any]
    created_datetime: OptionalTimestamp = None
    updated_datetime: OptionalTimestamp = None


class ContactRowRecord(WireResource):
    """The response to reading, creating or updating a row: the row, and the table it is in."""

    row: ContactRow
    table: ContactTable | None = None
