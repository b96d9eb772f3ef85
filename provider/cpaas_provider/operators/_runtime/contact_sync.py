"""One try of ``SyncContactsOperator``: from its arguments to a sync, and from what came of it to report and file."""

from __future__ import annotations

import contextlib
from collections.abc import AsyncIterator, Iterator, Mapping
from datetime import datetime, timedelta
from functools import partial
from typing import TYPE_CHECKING, Any

from airflow.sdk import timezone
from airflow.sdk.exceptions import AirflowException, AirflowFailException

from cpaas_provider.api.amounts import counted
from cpaas_provider.contacts.errors import ContactsError, LeaseTakenError
from cpaas_provider.contacts.mapping.rules import parse_mapping
from cpaas_provider.contacts.sync.decisions import SyncRules
from cpaas_provider.contacts.sync.sync import ContactSync, SyncSpec
from cpaas_provider.database.database import open_database
from cpaas_provider.database.errors import DatabaseError
from cpaas_provider.operators._runtime.campaign_database import check_database
from cpaas_provider.operators._runtime.context import cli_address, task_digest
from cpaas_provider.operators.base_idempotent import REPORT_KEY
from cpaas_provider.sending.partitions import Partition
from cpaas_provider.sources import as_source
from cpaas_provider.sources.base import SourceError
from cpaas_provider.sources.files import redacted_path
from cpaas_provider.sources.results_file import (
    SUFFIXES,
    Columns,
    ResultsFileError,
    check_writable,
    write_outcomes,
)

if TYPE_CHECKING:
    from airflow.sdk import Context

    from cpaas_provider.api.client import AsyncCpaasClient, CpaasClient
    from cpaas_provider.hooks.connection import CpaasConnection
    from cpaas_provider.operators.contact_sync import SyncContactsOperator
    from cpaas_provider.sending.shutdown import StopSignal
    from cpaas_provider.sources.base import Source

PREVIEW_KEY = "preview"
_LEASE_PAUSE = timedelta(seconds=30)

OF_A_SYNC: Columns = {
    "row": "number",
    "key": "text",
    "outcome": "text",
    "row_id": "text",
    "columns": "text",
    "reason": "text",
}
"""The columns of the results file."""


class ContactSyncTry:
    """One try."""

    def __init__(
        self,
        operator: SyncContactsOperator,
        context: Context,
        client: CpaasClient,
        connection: CpaasConnection,
        stop: StopSignal,
        deadline: str | None,
    ) -> None:
        self._operator = operator
        self._context = context
        self._client = client
        self._stop = stop
        self._deadline = deadline
        self._partition = Partition.read(operator.partition)
        self._connection = connection.divided_by(self._partition.of) if self._partition.of > 1 else connection

    def run(self) -> dict[str, Any]:
        """Sync and report.

        :return: the report
        """
        operator = self._operator
        self._log_begin()
        self._refuse_results_path()
        source = self._source()
        with contextlib.ExitStack() as exit_stack, self._in_airflow_words():
            database = exit_stack.enter_context(open_database())
            check_database(database)
            sync = exit_stack.enter_context(
                ContactSync(
                    self._spec(),
                    database,
                    self._client.get_contact_table(),
                    self._stop,
                    conn_id=operator.cpaas_conn_id,
                    base_url=self._connection.base_url,
                    default_region=self._connection.settings.default_region,
                    requests_per_second=self._connection.settings.requests_per_second,
                    connect=self._connect,
                    publish=partial(_publish, _tags(self._context)),
                )
            )
            cursor = self._begun(sync)
            if operator.cursor_column is not None:
                source = _from_cursor(source, cursor)
            with self._reported(sync):
                sync.run(source, cursor)
                self._write_results(sync)
            report = sync.report()
            operator.__dict__["_lineage"] = (source, self._connection.base_url, sync.column_sources, report)
            if operator.preview_count:
                self._context["ti"].xcom_push(key=PREVIEW_KEY, value=sync.preview)
            if sync.changed:
                self._publish_change()
                sync.mark_published()
            operator.log.info("%s", _done(report))
            return report

    def _begun(self, sync: ContactSync) -> Any:
        """Take the lease; where another task has it, wait for that or fail."""
        operator = self._operator
        try:
            return sync.begin()
        except LeaseTakenError as taken:
            if operator.on_concurrent_sync == "fail":
                raise AirflowFailException(f"{taken} on_concurrent_sync='wait' waits for it.") from None
            now = timezone.utcnow()
            stored = operator.__dict__.get("_lease_deadline")
            deadline = datetime.fromisoformat(stored) if stored else now + operator.lease_timeout
            if now >= deadline:
                raise AirflowException(f"{taken} lease_timeout is over. A retry of the task waits again.") from None
            operator.__dict__["_lease_deadline"] = deadline.isoformat()
            self._defer(str(taken), min(now + _LEASE_PAUSE, deadline))
            raise

    def _defer(self, why: str, until: datetime) -> None:
        from cpaas_provider.triggers.wait import WaitTrigger

        self._operator.log.warning("%s The task is deferred until %s.", why, until.isoformat(timespec="seconds"))
        self._operator.defer(
            trigger=WaitTrigger(until=until.isoformat()),
            method_name="resume_after_wait",
            kwargs=self._operator.resume_kwargs(self._deadline),
        )

    def _spec(self) -> SyncSpec:
        operator = self._operator
        on_missing: Any = operator.on_missing
        if isinstance(on_missing, Mapping):
            missing_cells: Mapping[str, Any] = on_missing
            on_missing = "set"
        else:
            missing_cells = dict.fromkeys(operator.clear_columns or ())
        if on_missing not in ("keep", "delete", "clear", "set"):
            raise AirflowFailException("on_missing is none of its values once it is rendered. Nothing was sent.")
        if not isinstance(operator.map_name, str) or not 0 < len(operator.map_name.strip()) <= 100:
            raise AirflowFailException("map_name must be text of 1 to 100 characters. Nothing was sent.")
        return SyncSpec(
            key=(operator.key,) if isinstance(operator.key, str) else tuple(operator.key),
            columns=parse_mapping(operator.columns),
            run=task_digest(self._context),
            owner=f"Task instance {cli_address(self._context)}",
            rules=SyncRules(
                mode=operator.mode,
                on_missing=on_missing,
                on_deleted_row=operator.on_deleted_row,
                on_unknown=operator.on_unknown,
                retry_rejected=operator.retry_rejected,
                on_duplicate_key=operator.on_duplicate_key,
            ),
            map_name=operator.map_name,
            missing_cells=missing_cells,
            empty_cell_value=operator.empty_cell_value,
            resync=operator.resync,
            cursor_column=operator.cursor_column,
            max_changes=operator.max_changes,
            max_deletes=operator.max_deletes,
            max_failure_ratio=operator.max_failure_ratio,
            max_duration=None if operator.max_duration is None else operator.max_duration.total_seconds(),
            max_pending_requests=operator.max_pending_requests,
            partition=(self._partition.part, self._partition.of),
            dry_run=operator.without_sending,
            preview_count=operator.preview_count,
            spool_path=operator.spool_path,
            progress_interval=operator.progress_interval,
        )

    def _source(self) -> Source:
        given = self._operator.rendered("source")
        if given is None:
            raise AirflowFailException("source is None once it is rendered or its task has run. Nothing was sent.")
        try:
            return as_source(given)
        except ValueError as error:
            raise AirflowFailException(f"source: {error} Nothing was sent.") from None

    @contextlib.asynccontextmanager
    async def _connect(self) -> AsyncIterator[AsyncCpaasClient]:
        import asyncio

        from cpaas_provider.hooks.cpaas import async_client

        client = await asyncio.to_thread(async_client, self._connection)
        async with client:
            yield client

    @contextlib.contextmanager
    def _reported(self, sync: ContactSync) -> Iterator[None]:
        """Leave report and results file of a sync that fails."""
        try:
            yield
        except Exception:
            report = sync.report()
            with contextlib.suppress(ResultsFileError):
                self._write_results(sync)
            self._operator.log.warning("%s", _done(report))
            self._operator._push(self._context, REPORT_KEY, report)
            raise

    @contextlib.contextmanager
    def _in_airflow_words(self) -> Iterator[None]:
        """Turn our errors into those of Airflow."""
        try:
            yield
        except ContactsError as error:
            kind = AirflowFailException if error.permanent else AirflowException
            raise kind(str(error)) from None
        except SourceError as error:
            raise AirflowException(f"{str(error).rstrip('.')}. Nothing was sent in this try.") from None
        except (DatabaseError, ResultsFileError) as error:
            raise AirflowException(str(error)) from None

    def _refuse_results_path(self) -> None:
        path = self._operator.results_path
        if path is None:
            return
        if not str(path).endswith(SUFFIXES):
            raise AirflowFailException(f"results_path must end in one of {', '.join(SUFFIXES)}. Nothing was sent.")
        try:
            check_writable(_storage_path(path))
        except ResultsFileError as error:
            raise AirflowException(f"{error} Nothing was sent in this try.") from None

    def _write_results(self, sync: ContactSync) -> None:
        if self._operator.results_path is None:
            return
        path = _storage_path(self._operator.results_path)
        lines = (
            {
                "row": line.number,
                "key": line.key,
                "outcome": line.outcome.value,
                "row_id": line.row_id,
                "columns": line.columns,
                "reason": line.reason,
            }
            for line in sync.outcomes()
        )
        write_outcomes(path, lines, OF_A_SYNC)
        self._operator.log.info("Results file written: %s.", redacted_path(path))

    def _publish_change(self) -> None:
        """Have DAGs start that are scheduled on changes of this list."""
        from airflow.sdk import AssetAlias

        from cpaas_provider.assets import contacts_changed
        from cpaas_provider.operators.contact_sync import CONTACTS_ALIAS

        events: Any = self._context["outlet_events"]
        events[AssetAlias(CONTACTS_ALIAS)].add(contacts_changed(self._operator.cpaas_conn_id))

    def _log_begin(self) -> None:
        operator, settings = self._operator, self._connection.settings
        words = [
            f"key {operator.key if isinstance(operator.key, str) else ' and '.join(operator.key)}",
            f"mode {operator.mode}",
            f"on_missing {operator.on_missing if isinstance(operator.on_missing, str) else 'set'}",
            f"{settings.requests_per_second:g} requests a second",
            f"{settings.max_concurrency} at a time",
        ]
        for name in ("max_deletes", "max_changes", "max_duration", "cursor_column"):
            if (value := getattr(operator, name)) is not None:
                words.append(f"{name} {value}")
        if self._partition.of > 1:
            words.append(f"partition {self._partition.part + 1} of {self._partition.of}")
        operator.log.info(
            "%s begins on connection %r, map %r, from %s: %s.",
            operator.task_type,
            operator.cpaas_conn_id,
            operator.map_name,
            operator.source,
            ", ".join(words),
        )


def _from_cursor(source: Source, cursor: Any) -> Source:
    """Return a source that gets the cursor of the last run, where it can."""
    from cpaas_provider.sources.sql import SqlSource

    return source.at_cursor(cursor) if isinstance(source, SqlSource) else source


def _done(report: Mapping[str, Any]) -> str:
    """Return the last line of a sync: its counts."""
    left_out = ", ".join(
        f"{report[name]:,} {name.replace('_', ' ')}"
        for name in ("rejected", "rejected_before", "invalid_rows", "unknown", "not_sent", "remaining", "not_in_mode")
    )
    return (
        f"Contact sync ended. The source has {counted(report['rows'], 'row')}. In the contact list "
        f"{report['created']:,} were created, {report['updated']:,} updated, {report['deleted']:,} deleted, and "
        f"{report['unchanged']:,} are unchanged. Left out: {left_out}. Gone from the source: {report['missing']:,}. "
        f"{counted(report['requests'], 'request')}."
    )


def _storage_path(path: Any) -> Any:
    from airflow.sdk import ObjectStoragePath

    return path if isinstance(path, ObjectStoragePath) else ObjectStoragePath(str(path))


def _publish(tags: Mapping[str, str], figures: Mapping[str, float]) -> None:
    """Publish figures as metrics of Airflow."""
    from airflow.sdk.observability import stats

    from cpaas_provider.hooks.metrics import CONTACTS

    for name, value in figures.items():
        stats.gauge(f"{CONTACTS}.{name}", value, tags=dict(tags))


def _tags(context: Context) -> dict[str, str]:
    instance: Any = context["ti"]
    return {"dag_id": instance.dag_id, "task_id": instance.task_id}
