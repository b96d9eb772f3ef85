"""Turns source rows into contact cells: the columns that a row fills, its key, and its cells as on the wire.

The rules are bound to the contact table and the source before the first row, which gives a reader and a parser for each
column.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Collection, Mapping, Sequence
from functools import partial
from operator import itemgetter
from typing import TYPE_CHECKING, Any

from msgspec import Struct
from msgspec.structs import astuple

from cpaas_provider.api.errors import CpaasInvalidRequestError
from cpaas_provider.api.recipients.msisdn import NumberReader
from cpaas_provider.api.values import as_text, is_blank, plain
from cpaas_provider.contacts.mapping.cells import CLEARED, FIELDS_OF_TYPE, ClearAs, Parse, cell_parser, column_type
from cpaas_provider.contacts.mapping.columns import ContactColumns
from cpaas_provider.contacts.mapping.keys import key_reader, raw_reader
from cpaas_provider.contacts.mapping.rules import CellTemplate, ColumnRule
from cpaas_provider.sources.tables import AmbiguousColumnError, find_column

if TYPE_CHECKING:
    from cpaas_provider.api.models.contacts import ContactColumn, ContactTable

# Increase it when the same values give other cells than before.
_CELL_FORMAT_VERSION = 2
_TYPED_FIELDS = frozenset().union(*FIELDS_OF_TYPE.values())


class InvalidCell(Struct, frozen=True):
    """A value that does not fit. The reason never holds the value.

    ``column`` is the name of the list column, or of the source column for a part of the key.
    """

    column: str
    reason: str


class InvalidRowError(ValueError):
    """A row with values that cannot be used.

    :param cells: every column whose value does not fit
    :param usable: the other cells of the row, by column id
    """

    def __init__(self, cells: tuple[InvalidCell, ...], usable: Mapping[str, Any] | None = None) -> None:
        super().__init__("; ".join(f"{cell.column}: {cell.reason}" for cell in cells))
        self.cells = cells
        self.usable = usable or {}


class _BoundColumn(Struct, frozen=True):
    """A column that is written: the source columns it reads, and the parser that makes its cells."""

    id: str
    name: str
    type: str
    reads: tuple[str, ...]
    read: Callable[[Mapping[str, Any]], Any]
    parse: Parse
    keep_when_blank: bool


class RowMapping:
    """How the rows of one source fill the columns of one contact table (contract.md 2.5).

    It checks everything that can be checked before the first row.

    :param rules: what ``parse_mapping`` returned; empty for every source column whose name is a column of the table
    :param table: the contact table as it is now
    :param source_columns: the source's columns; ``None`` where each row has its own, which are then checked row by row
    :param numbers: reads phone numbers as the connection has it
    :param empty_cell_value: what clears a cell on the wire: ``null`` or ``empty`` (an empty string)
    :param key: the source columns that identify a row
    :raises CpaasInvalidRequestError: names all list columns that are unknown, ambiguous or given twice, all source
        columns that do not exist, and all rules that do not fit the type of their column
    """

    def __init__(
        self,
        rules: Mapping[str, ColumnRule],
        table: ContactTable,
        source_columns: Sequence[str] | None,
        *,
        numbers: NumberReader,
        empty_cell_value: ClearAs,
        key: tuple[str, ...],
    ) -> None:
        columns = _bind_columns(rules, table, source_columns, numbers, key)
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
        declared = {name: rule.as_dict() for name, rule in rules.items()}
        reads = {column.id: column.reads for column in columns}
        self.rules_signature = json.dumps(
            [_CELL_FORMAT_VERSION, declared, reads, astuple(numbers), empty_cell_value], default=repr, sort_keys=True
        )
        """A text that differs whenever the same values may give other cells.

        It contains the rules, the source columns, the region, ``empty_cell_value`` and the version of the cell format.
        """
        self.type_signature = json.dumps(sorted([column.id, column.type] for column in columns))
        """The ids and types of the written columns, as text to store for ``changed_types``."""
        self.key_columns = frozenset(column.id for column in columns if column.reads and set(column.reads) <= set(key))
        """The ids of the columns that hold nothing but the key."""
        self._columns = columns
        self._cleared = CLEARED[empty_cell_value]

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
            raise InvalidRowError(tuple(invalid), cells)
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

    def whole_row_faults(self, missing_cells: Collection[str]) -> list[str]:
        """Return why updates cannot carry all cells of a row, as ``row_updates="whole"`` needs.

        :param missing_cells: the ids of the columns that ``on_missing`` writes into rows missing from the source
        """
        faults = []
        if kept := [column.name for column in self._columns if column.keep_when_blank]:
            faults.append(f"keep_when_blank leaves out {', '.join(kept)} where the source is blank")
        unwritten = [column.name for column in self._columns if column.id not in missing_cells]
        if missing_cells and unwritten:
            faults.append(f"on_missing writes no cell of {', '.join(unwritten)}, and the source no longer has the row")
        return faults

    def columns_not_filled(self, table: ContactTable) -> list[str]:
        """Return the names of the table's columns that this mapping does not fill."""
        filled = {column.id for column in self._columns}
        return [column.name for column in table.columns if column.id not in filled]

    def changed_columns(self, table: ContactTable) -> list[str]:
        """Return a text for each written column that has changed since the mapping was made, in the order of their ids.

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


def _bind_columns(
    rules: Mapping[str, ColumnRule],
    table: ContactTable,
    source_columns: Sequence[str] | None,
    numbers: NumberReader,
    key: Sequence[str],
) -> list[_BoundColumn]:
    """Return the columns to write, checked against the table and the source."""
    faults = _key_faults(key, source_columns)
    columns = ContactColumns(table)
    if not rules:
        rules = _same_names(columns, source_columns, faults)
    bound: list[_BoundColumn] = []
    written: set[str] = set()
    for name, rule in rules.items():
        try:
            column = columns.find(name)
            if column.id in written:
                raise ValueError("is given twice")
            written.add(column.id)
            bound.append(_bind(column, rule, source_columns, numbers))
        except ValueError as error:
            faults.append(f"{name}: {error}")
    if faults:
        raise CpaasInvalidRequestError(
            f"The contact list cannot be filled from this source. {'; '.join(faults)}. Nothing was sent."
        )
    return bound


def _key_faults(key: Sequence[str], source_columns: Sequence[str] | None) -> list[str]:
    if not key:
        return ["The key names no source column"]
    try:
        faults = [f"key: the source has no column {name!r}" for name in _lacking(source_columns, key)]
    except ValueError as error:
        faults = [f"key: {error}"]
    if len(set(key)) < len(key):
        faults.append("key: names a column twice")
    return faults


def _lacking(source_columns: Sequence[str] | None, names: Sequence[str]) -> list[str]:
    """Return the names that no column of the source has.

    :raises ValueError: when several columns of the source match a name
    """
    try:
        return [name for name in names if source_columns is not None and find_column(source_columns, name) is None]
    except AmbiguousColumnError as error:
        raise ValueError(f"in the source, {error}; rename one") from None


def _same_names(
    columns: ContactColumns, source_columns: Sequence[str] | None, faults: list[str]
) -> dict[str, ColumnRule]:
    """Return rules for the source columns that have the name of a list column."""
    if source_columns is None:
        # Otherwise a column that no row of the source has would be cleared in every row of the list.
        faults.append("The source does not say which columns it has: give columns")
        return {}
    rules: dict[str, ColumnRule] = {}
    for name in source_columns:
        try:
            if name and columns.find_or_none(name) is not None:
                rules[name] = ColumnRule(source=name)
        except ValueError as error:
            faults.append(f"{name}: {error}")
    if not rules and not faults:
        faults.append("No column of the source has the name of a column of the contact table: give columns")
    return rules


def _bind(
    column: ContactColumn, rule: ColumnRule, source_columns: Sequence[str] | None, numbers: NumberReader
) -> _BoundColumn:
    kind = column_type(column.type)
    unusable = sorted(_TYPED_FIELDS.intersection(rule.as_dict()) - FIELDS_OF_TYPE.get(kind, frozenset()))
    if unusable:
        raise ValueError(f"{' and '.join(unusable)} cannot be used for a column of type {kind}")
    if kind == "PHONE NUMBER":
        _check_region(rule.region or numbers.default_region)
    parse = cell_parser(kind, rule, numbers)
    bound = partial(_BoundColumn, id=column.id, name=column.name, type=kind, keep_when_blank=rule.keep_when_blank)
    if rule.constant is not None:
        return bound(reads=(), read=lambda row: None, parse=_constant(parse, rule.constant))
    if rule.template is not None:
        template = CellTemplate(rule.template)
        reads = template.fields
        read: Callable[[Mapping[str, Any]], Any] = partial(_filled, template)
    else:
        reads = (rule.source or column.name,)
        read = itemgetter(reads[0])
    if lacking := _lacking(source_columns, reads):
        raise ValueError(f"the source has no column {', '.join(map(repr, lacking))}")
    return bound(reads=reads, read=read, parse=parse)


def _constant(parse: Parse, value: Any) -> Parse:
    try:
        cell = parse(value)
    except ValueError as error:
        raise ValueError(f"its constant {error}") from None
    # A copy for each row, so that a change of one row's list does not change the others.
    return (lambda _: list(cell)) if isinstance(cell, list) else (lambda _: cell)


def _filled(template: CellTemplate, row: Mapping[str, Any]) -> str | None:
    if all(is_blank(plain(row[name])) for name in template.fields):
        return None
    return template.fill(row, _field_text)


def _field_text(value: Any) -> str:
    value = plain(value)
    return "" if is_blank(value) else as_text(value).strip()


def _check_region(region: str | None) -> None:
    import phonenumbers

    if region and region.upper() not in phonenumbers.SUPPORTED_REGIONS:
        raise ValueError("the region of its numbers is no ISO 3166 region such as NG")
