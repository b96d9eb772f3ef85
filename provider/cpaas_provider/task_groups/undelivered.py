"""A source of the rows whose recipients have no delivered message yet."""

from __future__ import annotations

from array import array
from bisect import bisect_left
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from hashlib import blake2b
from typing import TYPE_CHECKING, Any

from cpaas_provider.sources import _validators
from cpaas_provider.sources.base import InvalidRow, Source, SourceError, Table
from cpaas_provider.sources.factory import as_source
from cpaas_provider.sources.tables import FilteredTable, missing_columns

if TYPE_CHECKING:
    from cpaas_provider.api.recipients.reader import RecipientReader


class UndeliveredSource(_validators.Argument):
    """The rows of a source, without recipients that a message was delivered to.

    It compares the source with the results file of a ``DeliverySensor``, in any usual form of a number or address, and
    leaves out rows whose recipient was reached there: delivered, opened or clicked. All other rows stay: undelivered,
    without a final status, without a report. A row whose recipient cannot be read stays, too, because the next channel
    may use another column. If no report names a reached recipient, it may be any of the rows, and that is an error.

    :param source: the rows, as for a campaign (templated)
    :param delivery_results: the results file of the sensor (templated)
    :param column: the column of the recipients of that message, such as ``phone``
    :param accepted: the number of recipients who may have got that message: ``sent`` and ``unknown_recipients`` of the
        campaign's result, added up. If it is 0, no file is needed, and all rows stay. Default: the file is needed
        (templated)
    :param region: two-letter region of numbers that are not international, e.g. ``NG``, if ``cpaas_conn_id`` has no
        ``default_region`` (templated)
    :param cpaas_conn_id: the connection that the message was sent through, which decides how its numbers were read.
        Default: none, then numbers that are not international are read with ``region`` (templated)
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
            yield FilteredTable(table, [self.column], _undelivered_check(delivered, self._reader()))

    def __str__(self) -> str:
        try:
            return f"undelivered rows of {as_source(self.source)}"
        except ValueError:
            # Airflow shows the source before its template is rendered.
            return "undelivered rows of a source"

    def _reader(self) -> RecipientReader:
        """Return what reads recipients as the campaign has read them."""
        # Imported on the worker, so that parsing a DAG stays fast.
        from cpaas_provider.api.recipients.msisdn import NumberReader
        from cpaas_provider.api.recipients.reader import RecipientReader
        from cpaas_provider.hooks.cpaas import CpaasHook

        if self.cpaas_conn_id is None:
            # The connection of the message may have accepted numbers that are only possible.
            return RecipientReader("any", NumberReader(self.region, "possible"))
        settings = CpaasHook(self.cpaas_conn_id).get_connection_settings().settings
        return settings.recipient_reader("any", settings.default_region or self.region)

    def _delivered(self) -> array[int]:
        """Return the sorted hashes of the recipients that the message reached, 8 bytes each."""
        # Imported on the worker, so that parsing a DAG stays fast.
        from cpaas_provider.delivery.reports import DeliveryStatus

        hashes = array("Q")
        with as_source(self.delivery_results).open() as table:
            for row in table.rows(["recipient", "outcome"]):
                if isinstance(row, InvalidRow):
                    raise SourceError(
                        f"Line {row.number} of the delivery results cannot be read, so a recipient it names would get "
                        "the message again. Nothing was sent."
                    )
                recipient, outcome = row.values
                status = DeliveryStatus.of_word(outcome)
                if status is None:
                    raise SourceError(
                        f"Line {row.number} of the delivery results has no outcome of a DeliverySensor, so a recipient "
                        "that the message reached would get it again. Nothing was sent. Give the file that the sensor "
                        "wrote to its results_path."
                    )
                # Null stands for an erased recipient, which is no longer in the source.
                if not status.reached or recipient is None:
                    continue
                if not recipient:
                    raise SourceError(
                        f"Line {row.number} of the delivery results names no recipient, because no report names it. "
                        "The message reached this recipient, who would get it again. Nothing was sent. Set "
                        "track_recipients on the campaign before its next run. In this run, remove the line from the "
                        "file and the recipient from the source, and clear the task."
                    )
                hashes.append(_hash(_address(str(recipient))))
        return array("Q", sorted(hashes))


def _check_column(table: Table, column: str, source: Source) -> None:
    if table.columns is None or not missing_columns(source, table.columns, [column]):
        return
    # Imported on the worker, so that parsing a DAG stays fast.
    from cpaas_provider.api.redact import describe_columns

    raise SourceError(f"{source} has no column {column}. {describe_columns(table.columns)}. Nothing was sent.")


def _undelivered_check(delivered: array[int], reader: RecipientReader) -> Callable[[Any], bool]:
    """Return a function that returns whether a recipient, in any usual form, is not among the delivered hashes."""
    read = reader.read

    def is_undelivered(value: Any) -> bool:
        if not delivered:
            return True
        try:
            wanted = _hash(read(value))
        except ValueError:
            return True
        place = bisect_left(delivered, wanted)
        return place == len(delivered) or delivered[place] != wanted

    return is_undelivered


def _address(recipient: str) -> str:
    """Return an address of a results file as it is read today. A number of a file is international, and stays."""
    # Imported on the worker, so that parsing a DAG stays fast.
    from cpaas_provider.api.recipients.email_address import InvalidEmailAddressError, normalise_email

    try:
        return normalise_email(recipient) if "@" in recipient else recipient
    except InvalidEmailAddressError:
        return recipient


def _hash(recipient: str) -> int:
    """Return the hash of a recipient that was read, or that a results file names, with or without its plus."""
    # Imported on the worker, so that parsing a DAG stays fast.
    from cpaas_provider.api.recipients.reader import recipient_key

    return int.from_bytes(blake2b(recipient_key(recipient).encode(), digest_size=8).digest())
