"""A source of the rows whose recipients have no delivered message yet."""

from __future__ import annotations

from array import array
from bisect import bisect_left
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from hashlib import blake2b
from typing import Any

from cpaas_provider.sources import _validators
from cpaas_provider.sources.base import InvalidRow, Source, SourceError, Table
from cpaas_provider.sources.factory import as_source
from cpaas_provider.sources.tables import FilteredTable, missing_columns

_DELIVERED = "delivered"


class UndeliveredSource(_validators.Argument):
    """The rows of a source, without recipients that a message was delivered to.

    It compares the source with the results file of a ``DeliverySensor``, in any usual form of a number or address, and
    leaves out rows whose recipient is delivered there. All other rows stay: undelivered, without a final status,
    without a report. A row whose recipient cannot be read stays, too, because the next channel may use another column.

    :param source: the rows, as for a campaign (templated)
    :param delivery_results: the results file of the sensor (templated)
    :param column: the column of the recipients of that message, such as ``phone``
    :param accepted: the number of recipients who may have got that message: ``sent`` and ``unknown_recipients`` of the
        campaign's result, added up. If it is 0, no file is needed, and all rows stay. Default: the file is needed
        (templated)
    :param region: two-letter region of numbers that are not international, e.g. ``NG``. Default: the
        ``default_region`` of ``cpaas_conn_id`` (templated)
    :param cpaas_conn_id: the connection that the message was sent through (templated). Default: none, then numbers that
        are not international are read with ``region`` only
    """

    template_fields = ("source", "delivery_results", "accepted", "region", "cpaas_conn_id")

    def __init__(
        self,
        source: Any,
        delivery_results: Any,
        *,
        column: str,
        accepted: Any = None,
        region: str | None = None,
        cpaas_conn_id: str | None = None,
    ) -> None:
        self.source = source
        self.delivery_results = _validators.path("delivery_results", delivery_results)
        self.column = _validators.text("column", column)
        self.accepted = accepted
        self.region = _validators.text_or_none("region", region)
        self.cpaas_conn_id = _validators.text_or_none("cpaas_conn_id", cpaas_conn_id)

    @contextmanager
    def open(self) -> Iterator[Table]:
        """Read the results file, then open the source for one reading.

        :raises SourceError: when one of them cannot be read, or the source has no such column
        """
        delivered = array("Q") if str(self.accepted).strip() == "0" else self._delivered()
        source = as_source(self.source)
        with source.open() as table:
            _check_column(table, self.column, source)
            yield FilteredTable(table, [self.column], _undelivered_check(delivered, self._region()))

    def __str__(self) -> str:
        try:
            return f"undelivered rows of {as_source(self.source)}"
        except ValueError:
            # Airflow shows the source before its template is rendered.
            return "undelivered rows of a source"

    def _region(self) -> str | None:
        """Return the region in which the campaign has read national numbers."""
        if self.region is not None or self.cpaas_conn_id is None:
            return self.region
        from cpaas_provider.hooks.cpaas import CpaasHook

        return CpaasHook(self.cpaas_conn_id).get_connection_settings().settings.default_region

    def _delivered(self) -> array[int]:
        """Return the sorted hashes of the recipients that the message was delivered to, 8 bytes each."""
        hashes = array("Q")
        with as_source(self.delivery_results).open() as table:
            for row in table.rows(["recipient", "outcome"]):
                if isinstance(row, InvalidRow):
                    raise SourceError(
                        f"Line {row.number} of the delivery results cannot be read, so a recipient it names would get "
                        "the message again. Nothing was sent."
                    )
                recipient, outcome = row.values
                if outcome == _DELIVERED and recipient:
                    text = str(recipient)
                    hashes.append(_hash(_address(text) if "@" in text else text))
        return array("Q", sorted(hashes))


def _check_column(table: Table, column: str, source: Source) -> None:
    if table.columns is None or not missing_columns(source, table.columns, [column]):
        return
    # Imported on the worker, so that parsing a DAG stays fast.
    from cpaas_provider.api.redact import describe_columns

    raise SourceError(f"{source} has no column {column}. {describe_columns(table.columns)}. Nothing was sent.")


def _undelivered_check(delivered: array[int], region: str | None) -> Callable[[Any], bool]:
    """Return a function that returns whether a recipient, in any usual form, is not among the delivered hashes."""
    # Imported on the worker, so that parsing a DAG stays fast.
    from cpaas_provider.api.recipients.msisdn import InvalidMsisdnError, normalise_msisdn

    def is_undelivered(value: Any) -> bool:
        text = str(value or "").strip()
        if not delivered or not text:
            return True
        if "@" in text:
            recipient = _address(text)
        else:
            try:
                recipient = normalise_msisdn(value, region)
            except InvalidMsisdnError:
                return True
        wanted = _hash(recipient)
        place = bisect_left(delivered, wanted)
        return place == len(delivered) or delivered[place] != wanted

    return is_undelivered


def _address(text: str) -> str:
    """Return an address in the form that a campaign sends to."""
    from cpaas_provider.api.recipients.email_address import InvalidEmailAddressError, normalise_email

    try:
        return normalise_email(text).lower()
    except InvalidEmailAddressError:
        return text.lower()


def _hash(recipient: str) -> int:
    return int.from_bytes(blake2b(recipient.encode(), digest_size=8).digest())
