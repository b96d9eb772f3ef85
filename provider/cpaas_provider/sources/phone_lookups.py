"""The results file of a bulk phone lookup, as a source for campaigns."""

from __future__ import annotations

from collections.abc import Collection, Iterator
from contextlib import contextmanager
from typing import Any

from cpaas_provider.sources import _validators
from cpaas_provider.sources.base import Source, Table
from cpaas_provider.sources.factory import as_source
from cpaas_provider.sources.files import redacted_path
from cpaas_provider.sources.results_file import Columns
from cpaas_provider.sources.tables import FilteredTable

LOOKUP_COLUMNS: Columns = {
    "row": "number",
    "phone": "recipient",
    "outcome": "text",
    "operator": "text",
    "country": "text",
    "ported": "flag",
    "dnd": "flag",
    "reason": "text",
}
"""The columns of the results file; columns of the source follow."""

_FOUND = "found"
_INSPECTED = ("outcome", "operator", "country", "dnd")


class PhoneLookupSource(_validators.Argument):
    """Numbers that ``BulkPhoneLookupOperator`` looked up, filtered by the results.

    It has the columns of the results file: ``phone``, ``operator``, ``country``, ``ported``, ``dnd``, and those that
    ``include_columns`` named. Numbers whose lookup failed and invalid rows are left out.

    :param results_path: the results file, as of the operator (templated)
    :param dnd: only numbers that are marked as do-not-disturb (``True``), or that are not (``False``). A number whose
        mark the service does not know counts as neither. ``None`` for all
    :param countries: only numbers of these countries, as the service names them. ``None`` for all
    :param operators: only numbers of these network operators, as the service names them. ``None`` for all
    """

    template_fields = ("results_path",)

    def __init__(
        self,
        results_path: Any,
        *,
        dnd: bool | None = False,
        countries: Collection[str] | None = None,
        operators: Collection[str] | None = None,
    ) -> None:
        for name, value in (("countries", countries), ("operators", operators)):
            if isinstance(value, str):
                raise ValueError(f"{name} must be a list of names, not one text.")
        if dnd is not None and not isinstance(dnd, bool):
            raise ValueError("dnd must be True, False or None.")
        self.results_path = _validators.path("results_path", results_path)
        self.dnd = dnd
        self.countries = None if countries is None else list(countries)
        self.operators = None if operators is None else list(operators)

    @contextmanager
    def open(self) -> Iterator[Table]:
        """Open it for one reading."""
        source: Source = as_source(self.results_path)
        with source.open() as table:
            yield FilteredTable(table, _INSPECTED, self.accepts)

    def accepts(self, outcome: Any, operator: Any, country: Any, dnd: Any) -> bool:
        """Return whether a line of the file is a row of this source."""
        return (
            outcome == _FOUND
            and (self.dnd is None or dnd is self.dnd)
            and (self.countries is None or country in self.countries)
            and (self.operators is None or operator in self.operators)
        )

    def __str__(self) -> str:
        return f"phone lookups in {redacted_path(self.results_path)}"
