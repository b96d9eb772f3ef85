"""One try of ``BulkPhoneLookupOperator``: a source in, a results file out, and no number paid for twice."""

from __future__ import annotations

import json
import re
import time
from collections.abc import Generator, Mapping, Sequence
from contextlib import closing
from datetime import timedelta
from typing import IO, TYPE_CHECKING, Any, NamedTuple

from airflow.sdk import timezone
from airflow.sdk.exceptions import AirflowFailException

from cpaas_provider._common.local_files import open_unnamed_file
from cpaas_provider._common.records import PrivateRecord
from cpaas_provider.api.amounts import counted, share_of
from cpaas_provider.api.operations import lookup_phone
from cpaas_provider.api.recipients.msisdn import Msisdn, NumberReader
from cpaas_provider.api.redact import describe_columns
from cpaas_provider.api.values import readable_text
from cpaas_provider.database.bulk import batched
from cpaas_provider.database.recipients.lookups import PhoneRecord, PhoneRecordCache
from cpaas_provider.sending.campaign.guards.lookups import MOST_FAILURES_IN_A_ROW, LookupCircuitOpenError, PhoneLookups
from cpaas_provider.sending.errors import SendingError
from cpaas_provider.sending.journal.hashing import lookup_hashers
from cpaas_provider.sources.base import InvalidRow, Row, SourceError
from cpaas_provider.sources.files import redacted_path
from cpaas_provider.sources.phone_lookups import LOOKUP_COLUMNS
from cpaas_provider.sources.results_file import Columns, write_outcomes
from cpaas_provider.sources.tables import missing_columns
from cpaas_provider.tasks.bulk import BulkAttempt
from cpaas_provider.tasks.errors import PreflightError
from cpaas_provider.tasks.lineage import WrittenFile
from cpaas_provider.tasks.runner import REPORT_KEY

if TYPE_CHECKING:
    from cpaas_provider.api.client import AsyncCpaasClient
    from cpaas_provider.sources.base import Source
    from cpaas_provider.tasks.runtime import TaskRuntime

_ROWS_AT_ONCE = 200
"""Rows whose numbers are looked up together."""
_COUNTRIES_SHOWN = 50
_UNSTORABLE = re.compile("[\0\ud800-\udfff]")
"""What JSON may hold and databases and files do not: NUL, and half a character."""


class LookupLimitError(SendingError):
    """More lookups are needed than ``max_lookups`` allows, or more failed than ``max_failure_ratio`` allows.

    :param permanent: whether a retry would find the same
    """

    def __init__(self, message: str, *, permanent: bool) -> None:
        super().__init__(message)
        self.permanent = permanent


class BulkLookupSpec(PrivateRecord, frozen=True, kw_only=True):
    """A bulk lookup as its operator was given it. The operator's arguments explain each.

    :param source_summary: the source as Airflow shows it
    """

    source: Any
    source_summary: Any
    phone_column: str
    include_columns: Sequence[str]
    results_path: Any
    lookup_ttl: timedelta
    max_lookups: int | None
    max_failure_ratio: float
    spool_path: str | None
    progress_interval: float


class _Phone(NamedTuple):
    """A row with a number."""

    row: int
    number: Msisdn
    others: tuple[str | None, ...]


class BulkLookup(BulkAttempt):
    """One try of a bulk lookup."""

    nothing_done = "Nothing was looked up."

    def __init__(self, spec: BulkLookupSpec, runtime: TaskRuntime) -> None:
        super().__init__(runtime, spec.results_path)
        self._spec = spec
        self._counts = dict.fromkeys(("rows", "found", "invalid_rows", "lookup_failed", "lookups", "cached", "dnd"), 0)
        self._countries: dict[str, int] = {}
        self._reported_at = time.monotonic()
        self._is_begun = False

    def run(self) -> dict[str, Any]:
        """Look up what is not cached, and write the file.

        :return: the report
        """
        spec, runtime = self._spec, self._runtime
        limit = "unlimited" if spec.max_lookups is None else f"{spec.max_lookups:,}"
        words = [f"max_lookups {limit}", f"results_path {redacted_path(spec.results_path)}"]
        runtime.log_begin(f", from {spec.source_summary}", words)
        self._check_results_file()
        # A path that is None after rendering fails here, before numbers are paid for.
        path = self._results_file
        source = self._read_source("source", spec.source)
        connection = runtime.connection
        self._lookups = PhoneLookups(
            self._find_record,
            lookup_hashers(connection.hash_secrets),
            PhoneRecordCache(runtime.database),
            # Fixed at the start, so that a number with two rows is looked up once, however short lookup_ttl is.
            since=timezone.utcnow() - spec.lookup_ttl,
            at_once=connection.settings.max_concurrency,
            # Without the cache a retry would pay for every number again.
            needs_cache=True,
        )
        self._is_begun = True
        # A try that fails closes the source at once.
        with self._spool() as spool, closing(self._rows(source)) as found:
            for rows in batched(found, _ROWS_AT_ONCE):
                runtime.stop.raise_if_stopped()
                lines = runtime.run(self._look_up(runtime.async_client, rows))
                spool.writelines(f"{json.dumps(line)}\n" for line in lines)
                self._report_progress()
            spool.seek(0)
            write_outcomes(path, map(json.loads, spool), self._columns)
            self._written.append(WrittenFile(path, self._columns, self._counts["rows"]))
        report = self._report()
        runtime.log.info("%s: %s.", runtime.task_type, _in_words(report))
        self._refuse_failures(report)
        return report

    def push_report(self, *, quietly: bool) -> bool:
        """Push what is known of a try that fails."""
        if self._is_begun:
            self._runtime.push_or_warn(REPORT_KEY, self._report())
        return False

    def describe_progress(self) -> str:
        """Return the counts so far. Lookups are stored."""
        return f"So far: {_in_words(self._counts)}." if self._is_begun else ""

    @property
    def _columns(self) -> Columns:
        return {**LOOKUP_COLUMNS, **dict.fromkeys(self._spec.include_columns, "text")}

    def _spool(self) -> IO[str]:
        try:
            return open_unnamed_file(self._spec.spool_path)
        except OSError as error:
            raise PreflightError(
                f"The file for the rows could not be made ({error.strerror}). Nothing was looked up in this try.",
                permanent=False,
            ) from None

    def _rows(self, source: Source) -> Generator[Row | InvalidRow]:
        spec = self._spec
        wanted = [spec.phone_column, *spec.include_columns]
        with source.open() as table:
            if table.columns is not None and (missing := missing_columns(source, table.columns, wanted)):
                raise AirflowFailException(
                    f"{source} has no column {', '.join(missing)}. {describe_columns(table.columns)}. Nothing was "
                    "looked up."
                )
            yield from table.rows(wanted)
            if absent := sorted(table.absent):
                raise SourceError(f"No row of {source} has the column {', '.join(absent)}.")

    async def _look_up(self, client: AsyncCpaasClient, rows: Sequence[Row | InvalidRow]) -> list[dict[str, Any]]:
        """Return the lines of some rows. What was paid for is stored before anything is raised."""
        read = [self._read(row, client.settings.numbers) for row in rows]
        numbers = dict.fromkeys(row.number for row in read if isinstance(row, _Phone))
        lookups = self._lookups
        cached = await lookups.find_cached(list(numbers))
        self._counts["cached"] += len(cached)
        uncached = [number for number in numbers if number not in cached]
        self._refuse_too_many(len(uncached))
        try:
            asked = await self._runtime.stop.finish(lookups.ask(uncached), client)
        finally:
            self._counts["lookups"] = lookups.made
            await lookups.store()
        if lookups.is_open:
            raise LookupCircuitOpenError(
                f"{MOST_FAILURES_IN_A_ROW} lookups in a row failed. No more were made. Numbers that were looked up "
                "are stored. A retry of the task continues with the numbers that are left."
            )
        return [self._line(row, cached | asked) for row in read]

    def _read(self, row: Row | InvalidRow, numbers: NumberReader) -> _Phone | InvalidRow:
        self._counts["rows"] += 1
        if isinstance(row, InvalidRow):
            return row
        value, *others = row.values
        try:
            number = numbers.read(value)
        except ValueError as error:
            return InvalidRow(row.number, f"{self._spec.phone_column} {error}")
        texts = tuple(_storable(readable_text(one)) for one in others)
        return _Phone(row.number, number, texts)

    async def _find_record(self, number: str) -> PhoneRecord:
        record = await self._runtime.async_client.run(lookup_phone(number))
        return PhoneRecord(_storable(record.operator), _storable(record.country), record.ported, record.dnd)

    def _line(self, row: _Phone | InvalidRow, known: Mapping[str, PhoneRecord | None]) -> dict[str, Any]:
        line: dict[str, Any] = dict.fromkeys(self._columns)
        if isinstance(row, InvalidRow):
            self._counts["invalid_rows"] += 1
            return {**line, "row": row.number, "outcome": "invalid_row", "reason": row.reason}
        line |= {
            "row": row.row,
            "phone": row.number,
            **dict(zip(self._spec.include_columns, row.others, strict=True)),
        }
        record = known.get(row.number)
        if record is None:
            self._counts["lookup_failed"] += 1
            return {**line, "outcome": "lookup_failed"}
        self._counts["found"] += 1
        self._counts["dnd"] += bool(record.dnd)
        country = record.country or "unknown"
        self._countries[country] = self._countries.get(country, 0) + 1
        return {**line, "outcome": "found", **record._asdict()}

    def _refuse_too_many(self, wanted: int) -> None:
        limit, asked = self._spec.max_lookups, self._lookups.asked
        if limit is not None and asked + wanted > limit:
            raise LookupLimitError(
                f"max_lookups ({limit}) is reached: {counted(asked, 'number')} looked up in this try, and "
                f"{wanted:,} more would follow. Failed lookups count, because the service may charge for them. The "
                "others are stored. To look up the rest, raise max_lookups in the DAG and clear the task, or in the "
                "params of a new run.",
                permanent=True,
            )

    def _refuse_failures(self, report: Mapping[str, Any]) -> None:
        failed, limit = report["lookup_failed"] + report["invalid_rows"], self._spec.max_failure_ratio
        if failed > share_of(limit, report["rows"]):
            raise LookupLimitError(
                f"{counted(report['lookup_failed'], 'lookup')} failed and {counted(report['invalid_rows'], 'row')} "
                f"cannot be used, of {report['rows']:,}: more than max_failure_ratio ({limit:g}) allows. The results "
                f"file has a line for each row. {self._describe_retry(report)}",
                permanent=not report["lookup_failed"],
            )

    def _describe_retry(self, report: Mapping[str, Any]) -> str:
        """Return what a retry can and cannot do about the rows without a lookup."""
        sentences = []
        if report["found"]:
            sentences.append(
                f"The lookups of {counted(report['found'], 'row')} are stored for lookup_ttl, and not charged again."
            )
        if report["lookup_failed"]:
            sentences.append("A retry makes only the lookups that failed. The service may charge for them again.")
        if report["invalid_rows"]:
            sentences.append(
                "A retry cannot use invalid rows. Correct them in the source, or raise max_failure_ratio, and clear "
                "the task."
            )
        return " ".join(sentences)

    def _report_progress(self) -> None:
        if time.monotonic() - self._reported_at >= self._spec.progress_interval:
            self._reported_at = time.monotonic()
            self._runtime.log.info("%s: %s so far.", self._runtime.task_type, _in_words(self._counts))

    def _report(self) -> dict[str, Any]:
        most = sorted(self._countries.items(), key=lambda country: (-country[1], country[0]))[:_COUNTRIES_SHOWN]
        return {**self._counts, "countries": dict(most), "results_path": redacted_path(self._spec.results_path)}


def _storable(text: str | None) -> str | None:
    """Replace what not every database and file can store, so that no paid lookup is lost for one character."""
    return None if text is None else _UNSTORABLE.sub("\N{REPLACEMENT CHARACTER}", text)


def _in_words(counts: Mapping[str, Any]) -> str:
    return (
        f"{counted(counts['rows'], 'row')}, {counts['found']:,} found ({counts['lookups']:,} looked up, "
        f"{counts['cached']:,} cached, {counts['dnd']:,} do-not-disturb), {counts['lookup_failed']:,} failed, "
        f"{counted(counts['invalid_rows'], 'invalid row')}"
    )
