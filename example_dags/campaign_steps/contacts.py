"""One customer as one row of the contact list."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import date
from typing import TYPE_CHECKING, Any

from airflow.sdk.exceptions import AirflowFailException

from cpaas_provider.api import (
    CpaasAuthenticationError,
    CpaasError,
    CpaasInsufficientBalanceError,
    CpaasNotFoundError,
    CpaasRejectedError,
    normalise_email,
)

if TYPE_CHECKING:
    from cpaas_provider.api import AsyncCpaasClient
    from cpaas_provider.api.models.contacts import ContactColumn, ContactTable

Columns = dict[str, "ContactColumn"]


def resolve_columns(table: ContactTable, wanted: Mapping[str, str]) -> Columns:
    """Return the table's column for each field of the CSV, given the column's name."""
    by_name = {column.name: column for column in table.columns}
    if missing := sorted(set(wanted) - set(by_name)):
        raise AirflowFailException(f"The contact list has no column {missing}. It has {sorted(by_name)}.")
    return {field: by_name[name] for name, field in wanted.items()}


async def put_row(
    client: AsyncCpaasClient, row_id: str | None, customer: dict[str, Any], columns: Columns
) -> dict[str, Any]:
    """Update the row, or create it if there is none. Return its id and its outcome.

    A field that is no valid cell of its column is left out and named. An empty field is not sent.
    """
    cells, left_out = {}, {}
    for field, column in columns.items():
        try:
            if customer.get(field):
                cells[column.id] = cell_for(column.type, customer[field])
        except ValueError as error:
            left_out[field] = str(error)
    facts: dict[str, Any] = {"left_out": left_out} if left_out else {}
    try:
        row_id, outcome = await _update_or_create(client, row_id, cells)
    except (CpaasAuthenticationError, CpaasInsufficientBalanceError):
        raise
    except CpaasRejectedError as error:
        outcome, facts["reason"] = "rejected", str(error)
    except CpaasError as error:
        if not error.maybe_sent:
            raise
        outcome, facts["reason"] = "unknown", str(error)
    return {"row_id": row_id, "outcome": outcome, **facts}


async def _update_or_create(client: AsyncCpaasClient, row_id: str | None, cells: dict[str, Any]) -> tuple[str, str]:
    if row_id:
        try:
            return (await client.update_contact_row(row_id, cells)).row.id, "updated"
        except CpaasNotFoundError:
            pass  # the row was deleted at the service
    return (await client.create_contact_row(cells)).row.id, "created"


def cell_for(column_type: str, text: str) -> Any:
    """Return a field as the cell of a contact column (INTERFACE.md 2.5, contract.md "Cell formats").

    :raises ValueError: if it is not a valid cell; the message has the reason without the value
    """
    if column_type == "NUMBER":
        try:
            number = float(text.replace(",", ""))
        except ValueError:
            raise ValueError("is not a number") from None
        return int(number) if number.is_integer() else number
    if column_type == "DATE":
        try:
            return date.fromisoformat(text).isoformat()
        except ValueError:
            raise ValueError("is not a date in the form 2026-01-31") from None
    if column_type == "EMAIL":
        return normalise_email(text)
    if column_type == "MULTI SELECT":
        return [part for part in (part.strip() for part in text.split(";")) if part]
    return text
