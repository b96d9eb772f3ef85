"""Turns source rows into contact cells: the columns that a row fills, its key, and its cells as on the wire."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from cpaas_provider.contacts.mapping.binding import BoundColumn, bind_columns
from cpaas_provider.contacts.mapping.cells import CLEARED, ClearAs, column_type
from cpaas_provider.contacts.mapping.keys import key_reader, raw_reader
from cpaas_provider.contacts.mapping.rules import ColumnRule

if TYPE_CHECKING:
    from cpaas_provider.api.models.contacts import ContactTable

# Increase it when the same values give other cells than before.
_CELL_FORMAT_VERSION = 1


@dataclass(frozen=True)
class InvalidCell:
    """A value that does not fit. The reason never holds the value.

    ``column`` is the name of the list column, or of the source column for a part of the key.
    """

    column: str
    reason: str


class InvalidRowError(ValueError):
    """A row that cannot be used. ``cells`` names every column whose value does not fit."""

    def __init__(self, cells: tuple[InvalidCell, ...]) -> None:
        super().__init__("; ".join(f"{cell.column}: {cell.reason}" for cell in cells))
        self.cells = cells


class RowMapping:
    """How the rows of one source fill the columns of one contact table (INTERFACE.md 2.5).

    ``bind`` makes it, and checks everything that can be checked before the first row.
    """

    def __init__(self, columns: Sequence[BoundColumn], key: tuple[str, ...], clear_as: ClearAs, signature: str) -> None:
        self.column_sources: Mapping[str, tuple[str, ...]] = {column.name: column.reads for column in columns}
        """The source columns that fill each written column, by its name."""
        self.source_columns = tuple(dict.fromkeys([*key, *(name for column in columns for name in column.reads)]))
        """All source columns that are read, each once, those of the key first."""
        self.key_of = key_reader(key, lambda column, reason: InvalidRowError((InvalidCell(column, reason),)))
        """Returns a row's key, ``None`` where a part of it is blank or missing.

        A part is text that is the same whether a file or a database holds the value: see ``keys.key_text``. It raises
        ``InvalidRowError`` when a value cannot be a key, such as a boolean or a list.
        """
        # Sorted, because the order of the mapping may change without a change of any cell.
        self.raw_values = raw_reader(sorted({name for column in columns for name in column.reads}))
        """Returns the values that the mapping reads, for a hash of their ``repr``.

        The same values have the same ``repr`` in any process, and values of different types have another. While
        ``rules_signature`` and ``type_signature`` stay the same, rows of the same raw values have the same cells.
        """
        self.rules_signature = signature
        """A text that differs whenever the same values may give other cells.

        It contains the rules, the source columns, the region, ``empty_cell_value`` and the version of the cell format.
        """
        self.type_signature = json.dumps(sorted([column.id, column.type] for column in columns))
        """The ids and types of the written columns, as text to store for ``changed_types``."""
        self._columns = tuple(columns)
        self._cleared = CLEARED[clear_as]

    @classmethod
    def bind(
        cls,
        rules: Mapping[str, ColumnRule],
        table: ContactTable,
        source_columns: Sequence[str] | None,
        *,
        default_region: str | None,
        empty_cell_value: ClearAs,
        key: tuple[str, ...],
    ) -> RowMapping:
        """Return the mapping of a source to a table.

        :param rules: what ``parse_mapping`` returned; empty for every source column whose name is a column of the table
        :param table: the contact table as it is now
        :param source_columns: the source's columns; ``None`` where each row has its own, which are then checked row by
            row
        :param default_region: region of national phone numbers where a rule names none
        :param empty_cell_value: what clears a cell on the wire: ``null`` or ``empty`` (an empty string)
        :param key: the source columns that identify a row
        :raises CpaasInvalidRequestError: names all list columns that are unknown, ambiguous or given twice, all source
            columns that do not exist, and all rules that do not fit the type of their column
        """
        columns = bind_columns(rules, table, source_columns, default_region=default_region, key=key)
        declared = {name: rule.as_dict() for name, rule in rules.items()}
        reads = {column.id: column.reads for column in columns}
        signature = json.dumps(
            [_CELL_FORMAT_VERSION, declared, reads, default_region, empty_cell_value], default=repr, sort_keys=True
        )
        return cls(columns, tuple(key), empty_cell_value, signature)

    def cells(self, row: Mapping[str, Any]) -> dict[str, Any]:
        """Return a row's cells as they go on the wire, by column id.

        A blank value clears the cell, or is left out with ``keep_when_blank``.

        :raises InvalidRowError: names every cell whose value does not fit
        """
        cells: dict[str, Any] = {}
        invalid: list[InvalidCell] = []
        for column in self._columns:
            try:
                cell = column.parse(column.read(row))
            except KeyError as missing:
                if not column.keep_when_blank:
                    invalid.append(InvalidCell(column.name, f"the row has no column {missing.args[0]!r}"))
            except ValueError as error:
                invalid.append(InvalidCell(column.name, str(error)))
            else:
                if cell is not None:
                    cells[column.id] = cell
                elif not column.keep_when_blank:
                    cells[column.id] = self._cleared
        if invalid:
            raise InvalidRowError(tuple(invalid))
        return cells

    def changed_types(self, old_signature: str) -> list[str]:
        """Return a text for each written column whose type has changed, with its name, old and new type.

        :param old_signature: an earlier result of ``type_signature``; a column that it does not contain is unchanged
        :raises ValueError: when the signature cannot be read
        """
        try:
            old = {str(column_id): str(kind) for column_id, kind in json.loads(old_signature)}
        except (TypeError, ValueError):
            raise ValueError("The stored types of the contact columns cannot be read.") from None
        return [
            f"{column.name} was {old[column.id]} and is now {column.type}"
            for column in self._columns
            if old.get(column.id, column.type) != column.type
        ]

    def changed_columns(self, table: ContactTable) -> list[str]:
        """Return a text for each written column that has changed since ``bind``, in the order of their ids.

        :param table: the contact table as it is now
        """
        types = {column.id: column_type(column.type) for column in table.columns}
        return [
            f"{column.name} is gone"
            if column.id not in types
            else f"{column.name} was {column.type} and is now {types[column.id]}"
            for column in sorted(self._columns, key=lambda column: column.id)
            if types.get(column.id) != column.type
        ]
