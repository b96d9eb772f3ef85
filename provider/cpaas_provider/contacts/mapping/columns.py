"""Translates between column names, which DAG authors use, and column ids, which are on the wire."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from cpaas_provider.api.errors import CpaasInvalidRequestError
from cpaas_provider.api.recipients.msisdn import INTERNATIONAL, NumberReader
from cpaas_provider.contacts.mapping.cells import ClearAs, column_type, encode_cell

if TYPE_CHECKING:
    from cpaas_provider.api.models.contacts import ContactColumn, ContactTable

_RECIPIENT_TYPES = frozenset({"PHONE NUMBER", "EMAIL"})


def recipient_columns(table: ContactTable) -> list[str]:
    """Return the ids of the columns whose cells are recipients."""
    return [column.id for column in table.columns if column_type(column.type) in _RECIPIENT_TYPES]


class ContactColumns:
    """The columns of a contact table, found by name.

    An exact name is found first, then a name in other case if it is unambiguous, then a column id.
    """

    def __init__(self, table: ContactTable) -> None:
        self._columns = table.columns
        self._by_name: dict[str, list[ContactColumn]] = defaultdict(list)
        self._by_folded: dict[str, list[ContactColumn]] = defaultdict(list)
        for column in table.columns:
            self._by_name[column.name].append(column)
            self._by_folded[column.name.strip().casefold()].append(column)

    def find(self, name: str) -> ContactColumn:
        """Return the column of a name or id.

        :raises ValueError: when there is none, or there are several of that name, with the names there are
        """
        column = self.find_or_none(name)
        if column is None:
            known = ", ".join(sorted(self._by_name)) or "none"
            raise ValueError(f"is no column of the contact table (it has: {known})")
        return column

    def find_or_none(self, name: str) -> ContactColumn | None:
        """Return the column of a name or id, ``None`` where there is none.

        :raises ValueError: when there are several of that name
        """
        for found in (self._by_name.get(name), self._by_folded.get(str(name).strip().casefold())):
            if found and len(found) == 1:
                return found[0]
            if found:
                raise ValueError("is the name of several columns; give the column's id")
        return next((column for column in self._columns if column.id == name), None)

    def encode(
        self, cells: Mapping[str, Any], *, numbers: NumberReader = INTERNATIONAL, empty_cell_value: ClearAs = "null"
    ) -> dict[str, Any]:
        """Return cells by column id, each as its column's type takes it.

        :param cells: values by column name; a blank one, such as ``None`` or text of blanks, clears a cell
        :param numbers: reads phone numbers as the connection has it
        :param empty_cell_value: what clears a cell on the wire: ``null`` or an empty string
        :raises CpaasInvalidRequestError: when a column is unknown or ambiguous, or a value does not fit; names all
            such columns and shows no value
        """
        if not isinstance(cells, Mapping):
            raise CpaasInvalidRequestError(
                "The contact's cells must be a mapping of column names to values. Nothing was sent."
            )
        encoded: dict[str, Any] = {}
        faults: list[str] = []
        for name, value in cells.items():
            try:
                column = self.find(name)
                if column.id in encoded:
                    raise ValueError("is given twice")
                encoded[column.id] = encode_cell(column.type, value, numbers=numbers, empty_cell_value=empty_cell_value)
            except ValueError as error:
                faults.append(f"{name}: {error}")
        if faults or not encoded:
            raise CpaasInvalidRequestError(
                f"The contact's cells do not fit the table: {'; '.join(faults) or 'no column is given'}. "
                "Nothing was sent."
            )
        return encoded

    def decode(self, cells: Mapping[str, Any]) -> dict[str, Any]:
        """Return a row's cells by column name; ``None`` for a column without a cell.

        A cell keeps its column's id if several columns have the same name, or the table has no such column.
        """
        names = {column.id: column.name for column in self._columns if len(self._by_name[column.name]) == 1}
        all_cells = {**dict.fromkeys(column.id for column in self._columns), **cells}
        return {names.get(column_id, column_id): value for column_id, value in all_cells.items()}
