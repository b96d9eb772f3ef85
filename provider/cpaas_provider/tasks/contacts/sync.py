"""One try of ``SyncContactsOperator``: from its arguments to a sync, and from what came of it to report and file."""

from __future__ import annotations

import contextlib
from collections.abc import AsyncIterator, Mapping
from datetime import datetime, timedelta
from typing import TYPE_CHECKING, Any

from airflow.sdk import timezone
from airflow.sdk.exceptions import AirflowFailException

from cpaas_provider.api.amounts import counted
from cpaas_provider.contacts.errors import LeaseTakenError, TooManyChangesError
from cpaas_provider.contacts.mapping.rules import parse_mapping
from cpaas_provider.contacts.sync.decisions import Plan, SyncRules
from cpaas_provider.contacts.sync.limits import ConfirmedChanges
from cpaas_provider.contacts.sync.report import in_words
from cpaas_provider.contacts.sync.sync import ContactSync, SyncSpec
from cpaas_provider.database.activity.progress import CONTACT_SYNC, FAILED, FINISHED, WAITING
from cpaas_provider.hooks.metrics import CONTACTS
from cpaas_provider.sending.errors import RetryLaterError
from cpaas_provider.sources.files import redacted_path
from cpaas_provider.sources.results_file import Columns, ResultsFileError
from cpaas_provider.tasks.airflow.confirmation import Confirmations, Question
from cpaas_provider.tasks.airflow.progress import ProgressRecorder
from cpaas_provider.tasks.bulk import PREVIEW_KEY, BulkAttempt
from cpaas_provider.tasks.contacts.spec import CONTACTS_ALIAS
from cpaas_provider.tasks.database.shared_database import check_database
from cpaas_provider.tasks.errors import PreflightError
from cpaas_provider.tasks.lineage import WrittenList
from cpaas_provider.tasks.runner import REPORT_KEY, failure_text

if TYPE_CHECKING:
    from cpaas_provider.api.client import AsyncCpaasClient
    from cpaas_provider.tasks.contacts.spec import ContactSyncSpec
    from cpaas_provider.tasks.runtime import TaskRuntime

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


class ContactSyncTry(BulkAttempt):
    """One try of a contact sync.

    :param lease_deadline: latest time until which the task waits for another sync; ``None`` before the first wait
    :param started_in_time: whether the try that waited was allowed to send, so that this one is, too
    """

    metrics = CONTACTS

    def __init__(
        self,
        spec: ContactSyncSpec,
        runtime: TaskRuntime,
        *,
        lease_deadline: str | None = None,
        started_in_time: bool = False,
    ) -> None:
        super().__init__(runtime, spec.results_path, spec.partition)
        self._spec = spec
        self._started_in_time = started_in_time
        self._lease_deadline = datetime.fromisoformat(lease_deadline) if lease_deadline else None
        self._confirmations = Confirmations(runtime) if spec.on_limit == "ask" and not spec.dry_run else None
        self._done = ""

    def run(self) -> dict[str, Any]:
        """Sync and report.

        :return: the report
        """
        spec, runtime = self._spec, self._runtime
        if not (spec.dry_run or self._started_in_time):
            # The source of an old run may be older than the list.
            runtime.check_run_may_send(allow_backfill=spec.allow_backfill, max_lateness=spec.max_lateness)
        client = runtime.client
        self._log_begin()
        self._check_results_file()
        if spec.source is None:
            raise AirflowFailException("source is None once it is rendered or its task has run. Nothing was sent.")
        source = self._read_source("source", spec.source)
        check_database(runtime.database)
        sync = runtime.exit_stack.enter_context(
            ContactSync(
                self._sync_spec(),
                runtime.database,
                client.get_contact_table(),
                runtime.stop,
                conn_id=runtime.conn_id,
                base_url=self._connection.base_url,
                numbers=self._connection.settings.numbers,
                requests_per_second=self._connection.settings.requests_per_second,
                connect=self._connect,
                publish=self._publish,
            )
        )
        cursor = self._begin(sync)
        unfiltered = source
        if spec.cursor_column is not None:
            from cpaas_provider.sources.sql import SqlSource

            # Other sources are read whole, and the rows below the cursor are passed over.
            source = source.at_cursor(cursor) if isinstance(source, SqlSource) else source
        if not spec.dry_run:
            self._progress = ProgressRecorder(
                runtime, f"sync-{runtime.instance_nonce}", CONTACT_SYNC, "sync_contacts", self._settings()
            )
            self._progress.begin({})
        try:
            try:
                sync.run(source, is_filtered=cursor is not None and source is not unfiltered)
            except TooManyChangesError as error:
                self._ask(sync, error)
                raise
            self._write_outcomes(sync)
        except Exception as error:
            self._report_failure(sync, error)
            raise
        report = sync.report()
        self._end_progress(FINISHED, self._figures(report))
        changes = report["created"] + report["updated"] + report["deleted"]
        self._written.insert(0, WrittenList(self._connection.base_url, sync.column_sources, changes))
        if spec.preview_count:
            runtime.push(PREVIEW_KEY, sync.preview)
        if sync.changed:
            from airflow.sdk import AssetAlias

            from cpaas_provider.assets import contacts_changed

            # Starts the DAGs that are scheduled on changes of this list.
            events: Any = runtime.context["outlet_events"]
            events[AssetAlias(CONTACTS_ALIAS)].add(contacts_changed(runtime.conn_id))
            sync.mark_published()
        runtime.log.info("%s", _done(report))
        return report

    def describe_progress(self) -> str:
        """Return the counts of a sync that failed."""
        return self._done

    def resume_kwargs(self) -> dict[str, Any]:
        """Return until when another sync is waited for, and that this one began in time."""
        deadline = None if self._lease_deadline is None else self._lease_deadline.isoformat()
        return {"lease_deadline": deadline, "started_in_time": True}

    def _ask(self, sync: ContactSync, error: TooManyChangesError) -> None:
        """Have a user confirm what a limit stopped, if the author wants that and it can be confirmed."""
        if self._confirmations is None or not error.exceeded or not self._confirmations.may_ask():
            return
        report = sync.report()
        self._end_progress(WAITING, self._figures(report))
        question = Question(str(error), _planned(sync.plan), error.exceeded, sync.done)
        self._confirmations.ask(question, self._spec.confirmation_timeout, {"started_in_time": True})

    def _settings(self) -> dict[str, Any]:
        spec = self._spec
        return {
            "map": spec.map_name,
            "mode": spec.mode,
            "max_changes": spec.max_changes,
            "max_deletes": spec.max_deletes,
            "max_new": spec.max_new,
            "max_failure_ratio": spec.max_failure_ratio,
            "partition": self._partition.label,
        }

    def _figures(self, report: Mapping[str, Any]) -> dict[str, Any]:
        path = self._spec.results_path
        return {**report, **report["run"], "results_path": None if path is None else redacted_path(path)}

    def _begin(self, sync: ContactSync) -> Any:
        """Take the lease. If another task has it, wait for that or fail.

        :raises RetryLaterError: when the task waits for the other one
        """
        spec = self._spec
        try:
            return sync.begin()
        except LeaseTakenError as taken:
            if spec.on_concurrent_sync == "fail":
                raise PreflightError(f"{taken} on_concurrent_sync='wait' waits for it.", permanent=True) from None
            now = timezone.utcnow()
            self._lease_deadline = self._lease_deadline or now + spec.lease_timeout
            if now >= self._lease_deadline:
                raise PreflightError(
                    f"{taken} lease_timeout is over. A retry of the task waits again.", permanent=False
                ) from None
            raise RetryLaterError(str(taken), min(now + _LEASE_PAUSE, self._lease_deadline)) from None

    def _sync_spec(self) -> SyncSpec:
        spec = self._spec
        asked = self._confirmations.read() if self._confirmations else None
        confirmed = None
        if asked is not None and asked.confirmed:
            confirmed = ConfirmedChanges({name: int(limit) for name, limit in asked.confirmed.items()}, asked.done)
        on_missing: Any = spec.on_missing
        if isinstance(on_missing, Mapping):
            missing_cells: Mapping[str, Any] = on_missing
            on_missing = "set"
        else:
            missing_cells = dict.fromkeys(spec.clear_columns or ())
        if on_missing not in ("keep", "delete", "clear", "set"):
            raise AirflowFailException("on_missing is none of its values once it is rendered. Nothing was sent.")
        return SyncSpec(
            key=(spec.key,) if isinstance(spec.key, str) else tuple(spec.key),
            columns=parse_mapping(spec.columns),
            run=self._runtime.instance_nonce,
            owner=f"Task instance {self._runtime.cli_address}",
            rules=SyncRules(
                mode=spec.mode,
                on_missing=on_missing,
                on_deleted_row=spec.on_deleted_row,
                on_unknown=spec.on_unknown,
                retry_rejected=spec.retry_rejected,
                on_duplicate_key=spec.on_duplicate_key,
                row_updates=self._connection.row_updates,
                on_invalid_cell=spec.on_invalid_cell,
            ),
            map_name=spec.map_name,
            missing_cells=missing_cells,
            empty_cell_value=spec.empty_cell_value,
            resync=spec.resync,
            cursor_column=spec.cursor_column,
            max_changes=spec.max_changes,
            max_deletes=spec.max_deletes,
            max_new=spec.max_new,
            new_map=spec.new_map,
            max_failure_ratio=spec.max_failure_ratio,
            max_duration=None if spec.max_duration is None else spec.max_duration.total_seconds(),
            max_pending_requests=spec.max_pending_requests,
            partition=(self._partition.part, self._partition.of),
            dry_run=spec.dry_run,
            preview_count=spec.preview_count,
            spool_path=spec.spool_path,
            progress_interval=spec.progress_interval,
            confirmed=confirmed,
            refusal=asked.refusal if asked else "",
        )

    @contextlib.asynccontextmanager
    async def _connect(self) -> AsyncIterator[AsyncCpaasClient]:
        import asyncio

        client = await asyncio.to_thread(self._connection.make_async_client)
        async with client:
            yield client

    def _report_failure(self, sync: ContactSync, error: Exception) -> None:
        """Leave report and results file of a sync that failed."""
        report = sync.report()
        is_waiting = isinstance(error, RetryLaterError)
        why = {} if is_waiting else {"error": failure_text(error)}
        self._end_progress(WAITING if is_waiting else FAILED, {**self._figures(report), **why})
        # Without the whole source, the file would lack lines of earlier tries that it has now.
        if sync.is_planned or not sync.counts.earlier.tokens:
            with contextlib.suppress(ResultsFileError):
                self._write_outcomes(sync)
        self._done = _done(report)
        self._runtime.log.warning("%s", self._done)
        self._runtime.push_or_warn(REPORT_KEY, report)

    def _write_outcomes(self, sync: ContactSync) -> None:
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
        self._write_results(lines, OF_A_SYNC)

    def _log_begin(self) -> None:
        spec, settings = self._spec, self._connection.settings
        words = [
            f"key {spec.key if isinstance(spec.key, str) else ' and '.join(spec.key)}",
            f"mode {spec.mode}",
            f"on_missing {spec.on_missing if isinstance(spec.on_missing, str) else 'set'}",
            f"{counted(settings.requests_per_second, 'request')} a second",
            f"{settings.max_concurrency} at a time",
        ]
        for name in ("max_deletes", "max_changes", "max_new", "max_duration", "cursor_column"):
            if (value := getattr(spec, name)) is not None:
                words.append(f"{name} {value}")
        if self._partition.label:
            words.append(f"partition {self._partition.label}")
        self._runtime.log.info(
            "%s begins on connection %r, map %r, from %s: %s.",
            self._runtime.task_type,
            self._runtime.conn_id,
            spec.map_name,
            spec.source_summary,
            ", ".join(words),
        )


def _planned(plan: Plan) -> dict[str, str]:
    """Return the figures of a plan that a user is asked to confirm."""
    share = f" ({plan.missing_changes / plan.mapped:.1%} of the rows in the map)" if plan.mapped else ""
    return {
        "Rows of the source": f"{plan.rows:,}",
        "Rows in the map": f"{plan.mapped:,}",
        "Rows to delete, clear or set": f"{plan.missing_changes:,}{share}",
        "Rows to create": f"{plan.creates:,}",
        "Requests": f"{plan.requests:,}",
        "Invalid rows": f"{plan.invalid_rows:,}",
    }


def _done(report: Mapping[str, Any]) -> str:
    """Return the last line of a sync: its counts."""
    left_out = ", ".join(
        f"{report[name]:,} {name.replace('_', ' ')}"
        for name in (
            "rejected",
            "rejected_before",
            "invalid_rows",
            "partial_rows",
            "unknown",
            "not_sent",
            "remaining",
            "not_in_mode",
        )
    )
    causes = in_words(report["incomplete_because"])
    run = report["run"]
    return (
        f"Contact sync ended. In all tries of this run {run['created']:,} rows were created, {run['updated']:,} "
        f"updated, {run['deleted']:,} deleted. The source has {counted(report['rows'], 'row')}. In this try "
        f"{report['created']:,} were created, {report['updated']:,} updated, {report['deleted']:,} deleted, and "
        f"{report['unchanged']:,} are unchanged. Left out: {left_out}. Gone from the source: {report['missing']:,}. "
        f"Below the cursor: {report['before_cursor']:,}. {counted(report['requests'], 'request')}. "
        + (f"The list does not equal the source: {causes}." if causes else "The list equals the source.")
    )
