"""The rows of a source whose recipients an earlier message was not delivered to."""

from __future__ import annotations

from array import array
from bisect import bisect_left
from collections.abc import Callable, Iterator, Sequence
from collections.abc import Set as AbstractSet
from contextlib import contextmanager
from hashlib import blake2b
from typing import Any

from cpaas_provider.sources import _validators
from cpaas_provider.sources.base import InvalidRow, Row, SourceError, Table
from cpaas_provider.sources.factory import as_source

_DELIVERED = "delivered"


class UndeliveredSource(_validators.Argument):
    """The rows of a source, without recipients that a message was delivered to.

    It compares the source with the results file of a ``DeliverySensor``. Rows whose recipient cannot be read stay: the
    next channel may have another column for them. Rows whose recipient is reported as undelivered, has no final status
    or no report at all stay, too.

    :param source: the rows, as for a campaign (templated)
    :param delivery_results: the results file of the sensor (templated)
    :param column: the column of the recipients of that message, such as ``phone``
    :param accepted: the number of recipients that the message was sent to, such as
        ``"{{ (ti.xcom_pull(task_ids='send') or {}).get('sent', 0) }}"``. If it is 0, no file is needed, and all rows
        stay. Default: the file is needed (templated)
    :param region: two-letter region of numbers that are not international, e.g. ``NG`` (templated)
    """

    template_fields = ("source", "delivery_results", "accepted", "region")

    def __init__(
        self, source: Any, delivery_results: Any, *, column: str, accepted: Any = None, region: str | None = None
    ) -> None:
        self.source = source
        self.delivery_results = _validators.path("delivery_results", delivery_results)
        self.column = _validators.text("column", column)
        self.accepted = accepted
        self.region = _validators.text_or_none("region", region)

    @contextmanager
    def open(self) -> Iterator[Table]:
        """Read the results file, then open the source for one reading.

        :raises SourceError: when one of them cannot be read
        """
        delivered = array("Q") if str(self.accepted).strip() == "0" else self._delivered()
        source = as_source(self.source)
        with source.open() as table:
            yield _UndeliveredTable(table, str(source), self.column, _recognised(delivered, self.region))

    def __str__(self) -> str:
        try:
            return f"undelivered rows of {as_source(self.source)}"
        except ValueError:
            # Airflow shows it before the template is rendered.
            return "undelivered rows of a source"

    def _delivered(self) -> array[int]:
        """Return the sorted hashes of the recipients that the message was delivered to, 8 bytes each."""
        found = array("Q")
        with as_source(self.delivery_results).open() as table:
            for row in table.rows(["recipient", "outcome"]):
                if isinstance(row, InvalidRow):
                    raise SourceError(
                        f"Line {row.number} of the delivery results cannot be read, so a recipient it names would get "
                        "the message again. Nothing was sent."
                    )
                recipient, outcome = row.values
                if outcome == _DELIVERED and recipient:
                    found.append(_hash(str(recipient).lower()))
        return array("Q", sorted(found))


class _UndeliveredTable:
    def __init__(self, table: Table, name: str, column: str, is_delivered: Callable[[Any], bool]) -> None:
        self._table = table
        self._name = name
        self._column = column
        self._is_delivered = is_delivered
        self.columns = table.columns

    @property
    def absent(self) -> AbstractSet[str]:
        return self._table.absent

    def rows(self, wanted: Sequence[str]) -> Iterator[Row | InvalidRow]:
        if self.columns is not None and self._column not in self.columns:
            # Read with the source, on a worker, not with the DAG.
            from cpaas_provider.api.redact import describe_columns

            raise SourceError(
                f"{self._name} has no column {self._column}. {describe_columns(self.columns)}. Nothing was sent."
            )
        for row in self._table.rows([*wanted, self._column]):
            if isinstance(row, InvalidRow):
                yield row
            elif not self._is_delivered(row.values[-1]):
                yield Row(row.number, row.values[:-1])


def _recognised(delivered: array[int], region: str | None) -> Callable[[Any], bool]:
    """Return a check whether a recipient, in any usual form, is among hashed ones."""
    # Read with the source, on a worker, not with the DAG.
    from cpaas_provider.api.recipients.msisdn import InvalidMsisdnError, normalise_msisdn

    def is_delivered(value: Any) -> bool:
        text = str(value or "").strip()
        if not delivered or not text:
            return False
        if "@" in text:
            wanted = text.lower()
        else:
            try:
                wanted = normalise_msisdn(value, region)
            except InvalidMsisdnError:
                return False
        hashed = _hash(wanted)
        place = bisect_left(delivered, hashed)
        return place < len(delivered) and delivered[place] == hashed

    return is_delivered


def _hash(recipient: str) -> int:
    return int.from_bytes(blake2b(recipient.encode(), digest_size=8).digest())
