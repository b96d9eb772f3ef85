"""A table with some of the rows of another one."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from collections.abc import Set as AbstractSet

from cpaas_provider.sources.base import InvalidRow, Row, Table


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
