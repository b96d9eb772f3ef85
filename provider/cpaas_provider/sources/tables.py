"""What tables of all kinds share: columns found by their names, records without content, and tables of some rows.

A column has the requested name if it is written exactly so. If there is none, capitals and blanks around names are
ignored, and one column must match. Only requested columns need a name of their own.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from collections.abc import Set as AbstractSet
from typing import Any

from cpaas_provider._common.values import is_blank
from cpaas_provider.sources.base import InvalidRow, Row, SourceError, Table, make_row

_MOST_SHAPES = 200
"""The number of sets of names that a reader remembers."""


class AmbiguousColumnError(ValueError):
    """Several columns match a name. The message gives places, because without a header the names may be recipients."""

    def __init__(self, places: Sequence[int], fault: str) -> None:
        self.places, self.fault = f"{places[0] + 1} and {places[1] + 1}", fault
        super().__init__(f"columns {self.places} have {fault}")


def find_column(columns: Sequence[Any], name: str) -> int | None:
    """Return the place of a column, from 0; ``None`` if no column matches.

    :raises AmbiguousColumnError: when several columns match
    """
    wanted = _folded(name)
    if not wanted:
        return None
    places = [place for place, column in enumerate(columns) if column == name]
    if len(places) > 1:
        raise AmbiguousColumnError(places, "the same name")
    places = places or [place for place, column in enumerate(columns) if _folded(column) == wanted]
    if len(places) > 1:
        raise AmbiguousColumnError(places, "the same name but for capitals and blanks")
    return places[0] if places else None


def column_places(source: object, columns: Sequence[Any], wanted: Iterable[str]) -> list[int | None]:
    """Return the places of the requested columns; ``None`` for a column that does not exist.

    :raises SourceError: when several columns match one of the names
    """
    try:
        return [find_column(columns, name) for name in wanted]
    except AmbiguousColumnError as error:
        raise SourceError(f"Columns {error.places} of {source} have {error.fault}. Rename one.") from None


def missing_columns(source: object, columns: Sequence[str] | None, wanted: Iterable[str]) -> list[str]:
    """Return the requested columns that a source lacks, sorted; none if each of its rows may have other columns.

    :param columns: ``Table.columns``
    :raises SourceError: when several columns match one of the names
    """
    if columns is None:
        return []
    names = sorted(set(wanted))
    return [name for name, place in zip(names, column_places(source, columns, names), strict=True) if place is None]


def has_content(values: Iterable[Any]) -> bool:
    """Return whether one of a record's values is not blank. A record without content is no row."""
    for value in values:
        # Text that begins with a visible ASCII character, as most does, is not blank: a third of the time.
        if value is not None and ((type(value) is str and "!" <= value < "\x7f") or not is_blank(value)):
            return True
    return False


def all_have_content(column: Sequence[Any]) -> bool:
    """Return whether each value is text that begins with a visible ASCII character, or each is an integer.

    It compares whole columns, so that rows need not be looked at one by one.
    """
    kind = type(column[0]) if column else None
    try:
        if kind is str:
            return bool(min(column) >= "!" and max(column) < "\x7f")
        return kind is int and type(sum(column)) is int
    except TypeError:
        # There is a value of another type, such as None.
        return False


def read_sequences(records: Iterable[Sequence[Any]], places: Sequence[int | None]) -> Iterator[Row]:
    """Yield the values at these places of each record with content, numbered from 1; ``None`` for no place."""
    for number, record in enumerate(records, 1):
        values = tuple([None if place is None else record[place] for place in places])
        if has_content(values) or has_content(record):
            yield make_row((number, values))


class FilteredTable:
    """The rows of an open source that a function accepts, in their order.

    :param inspected: the columns whose values the function gets, in this order
    :param accepts: returns whether a row stays
    :param keep_invalid: whether rows that cannot be read stay
    """

    def __init__(
        self, table: Table, inspected: Sequence[str], accepts: Callable[..., bool], *, keep_invalid: bool = True
    ) -> None:
        self.columns = table.columns
        self.missing_values = getattr(table, "missing_values", None)
        self._table = table
        self._inspected = tuple(inspected)
        self._accepts = accepts
        self._keep_invalid = keep_invalid

    @property
    def absent(self) -> AbstractSet[str]:
        """The columns that no row had."""
        return self._table.absent

    def rows(self, wanted: Sequence[str]) -> Iterator[Row | InvalidRow]:
        """Yield the rows that stay, with the wanted columns alone."""
        end = len(wanted)
        for row in self._table.rows((*wanted, *self._inspected)):
            if isinstance(row, InvalidRow):
                if self._keep_invalid:
                    yield row
            elif self._accepts(*row.values[end:]):
                yield Row(row.number, row.values[:end])


class RecordReader:
    """Reads the requested values of records that may each have other columns.

    :param wanted: the names of the columns
    """

    def __init__(self, wanted: Sequence[str]) -> None:
        self._wanted = wanted
        self._shapes: dict[tuple[Any, ...], list[Any]] = {}
        self.absent: set[str] = set(wanted)
        """The requested columns that no record had so far."""

    def values(self, record: Mapping[Any, Any]) -> tuple[Any, ...] | None:
        """Return the requested values of a record; ``None`` if the record has no content.

        :raises AmbiguousColumnError: when several of its columns match one of the names
        """
        try:
            if self.absent or type(record) is not dict:
                raise KeyError
            values = tuple([record[name] for name in self._wanted])
        except KeyError:
            names = self._names(record)
            pairs = zip(self._wanted, names, strict=True)
            self.absent.difference_update([wanted for wanted, name in pairs if name in record])
            values = tuple([record.get(name) for name in names])
        return values if has_content(values) or has_content(record.values()) else None

    def _names(self, record: Mapping[Any, Any]) -> list[Any]:
        """Return the record's own names of the requested columns."""
        shape = tuple(record)
        if (names := self._shapes.get(shape)) is None:
            places = [find_column(shape, name) for name in self._wanted]
            names = [name if place is None else shape[place] for name, place in zip(self._wanted, places, strict=True)]
            if len(self._shapes) >= _MOST_SHAPES:
                self._shapes.clear()
            self._shapes[shape] = names
        return names


def _folded(name: Any) -> str:
    return name.strip().casefold() if isinstance(name, str) else ""
