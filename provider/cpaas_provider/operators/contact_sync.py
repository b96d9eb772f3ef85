"""The operator that synchronises a contact list with a source. It sends only changed cells of changed rows."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from datetime import timedelta
from typing import TYPE_CHECKING, Any, ClassVar, Literal

from airflow.sdk import AssetAlias

from cpaas_provider.operators import _masking as masking
from cpaas_provider.operators.base import CpaasOperator
from cpaas_provider.tasks import validators
from cpaas_provider.tasks.contacts.spec import CONTACTS_ALIAS

if TYPE_CHECKING:
    from cpaas_provider.tasks.contacts.spec import ContactSyncSpec
    from cpaas_provider.tasks.runner import Attempt
    from cpaas_provider.tasks.runtime import TaskRuntime

SYNC_LIMITS = (
    "resync",
    "retry_rejected",
    "max_deletes",
    "max_changes",
    "max_new",
    "new_map",
    "max_failure_ratio",
    "max_duration",
    "allow_backfill",
    "max_lateness",
    "preview_count",
    "on_limit",
)
"""The limits and switches that params of a run may set, beside ``dry_run``."""


class SyncContactsOperator(CpaasOperator):
    """Synchronise the contact list with a source (contract.md 4.9 to 4.13).

    The service lists no rows, so the provider records in its own database which row belongs to which key. A sync reads
    the source once, compares it with that map, and sends only rows that changed, and in them only the changed cells. If
    ``row_updates`` of the connection is ``whole``, it sends all cells of these rows.
    A retry sends what is left. A run after a crash creates no row twice: the report names creations of unknown outcome.

    Returns the report, which is the XCom ``report`` when the task fails:

    :returns:
        * ``rows`` - rows of the source
        * ``created``, ``updated``, ``deleted`` - rows of the list that this try changed
        * ``unchanged`` - rows that the list has as they are
        * ``before_cursor`` - rows below the cursor of the last run, which are not compared
        * ``future_cursor`` - rows of any outcome whose cursor is in the future
        * ``rejected`` - rows that the service rejected in this try
        * ``rejected_before`` - rows that it rejected in an earlier run, unchanged since
        * ``invalid_rows`` - rows that cannot be used; ``duplicates`` of them have the key of another row
        * ``partial_rows`` - rows that were synced without their invalid cells (``on_invalid_cell="skip_cell"``). Each
          is also created, updated or unchanged. A rejected row is only ``rejected``
        * ``invalid_cells`` - the number of cells that do not fit, by list column
        * ``unknown`` - creations of unknown outcome; ``unknown_rows`` names up to 100. No usable row of the source has
          the key of ``unknown_missing`` of them
        * ``not_sent`` - rows whose request failed; a retry sends them
        * ``remaining`` - rows that ``max_duration`` left for the next run
        * ``not_in_mode`` - rows that ``mode`` leaves alone
        * ``missing`` - rows of the list that are gone from the source, unless ``on_missing`` is ``keep``;
          ``missing_unchanged`` of them need no request
        * ``missing_skipped`` - those that were not deleted or cleared, because a row of the source has no usable key,
          and may be one of them
        * ``failed_before_cursor`` - rows that an earlier run rejected, could not use or left alone, and that
          ``cursor_column`` passes over now
        * ``in_other_partitions`` - rows that other partitions sync
        * ``creates``, ``updates``, ``deletes`` - requests that were planned; ``planned_requests`` is their sum
        * ``requests`` - requests that were made
        * ``complete`` - whether the list equals the source, as far as the mapping goes; a partition, for its rows
        * ``incomplete_because`` - why it may differ: the number of rows by the name of their figure. ``ended_early`` is
          1 if the sync failed before its end. ``dry_run`` is the number of requests that were not made
        * ``run`` - rows that were ``created``, ``updated`` and ``deleted`` in all tries of this run. The other figures
          are those of this try
        * ``map``, ``dry_run`` - the arguments

    :param source: the rows: a path or ``ObjectStoragePath`` of a CSV, JSON Lines or Parquet file, a source of
        ``cpaas_provider.sources``, or a list of mappings, e.g. from an upstream task (templated)
    :param key: the source column that identifies a row, or several
    :param columns: how list columns are filled: a list of names that source and list share, or a mapping of list
        columns. Its values are source columns, or mappings such as ``{"template": "{first} {last}"}``,
        ``{"constant": "crm"}``, ``{"source": "born", "date_format": "%d.%m.%Y"}`` (see ``ColumnRule``). Default: every
        source column whose name is a list column
    :param mode: ``upsert`` creates and updates rows, ``insert`` only creates, ``update`` only updates
    :param on_missing: for rows that are gone from the source: ``keep`` them, ``delete`` them, ``clear`` the cells of
        ``clear_columns``, or a mapping of list columns to values to set (templated)
    :param clear_columns: the list columns that ``on_missing="clear"`` empties
    :param max_deletes: how many rows may be deleted, cleared or set because they are gone from the source: a count, a
        share of the rows in the map (a float from 0 to 1), or ``None`` for any number. If there are more, the sync
        stops before its first request. Each partition counts its own rows. An empty source never deletes a row.
        ``1`` is one row, and ``1.0`` is all rows. A template gives ``unlimited`` for any number. It may not give
        ``1.0``, because a param may be written like that for one row (templated)
    :param max_changes: the same for all rows that would be created, updated or deleted. A share does not limit the
        first sync, which finds an empty map. ``1`` and ``1.0`` are as for ``max_deletes`` (templated)
    :param max_new: how many rows may be created if the map has rows already: a count, a share of the rows in the map,
        or ``None`` for any number. If there are more, the sync stops before its first request. A source whose keys
        changed would create each contact again. A share does not limit a sync whose source has at least half of the
        rows in the map. ``1`` and ``1.0`` are as for ``max_deletes`` (templated)
    :param new_map: let the first sync create rows although another map has rows of the same list. Otherwise it stops
        before its first request, because the same contacts would be created twice (templated)
    :param on_duplicate_key: for rows with the same key: use the ``first``, or ``none`` of them. The others are invalid
        rows
    :param on_invalid_cell: for a row with a cell that does not fit its column: ``skip_row`` sends nothing of it.
        ``skip_cell`` sends its other cells, and leaves that cell in the list as it is. Each run names the row until the
        source is corrected, and it counts for ``max_failure_ratio``. A key that cannot be used makes an invalid row
    :param on_deleted_row: for rows that another client deleted from the list: ``create`` them again, or ``report`` them
        as rejected
    :param on_unknown: for creations of unknown outcome: ``fail`` the task after everything else, ``skip`` them, or
        ``create`` them again in the next try or run, which may create a row twice
    :param retry_rejected: send rows again that the service rejected in an earlier run, although they did not change
        (templated)
    :param resync: send all cells of all rows once more, without creating rows twice (templated)
    :param cursor_column: a source column that grows with every change, such as ``updated_at``. Rows below its largest
        value of the last complete run are skipped. A ``SqlSource`` gets that value as the parameter ``cursor``.
        The sync then cannot determine which rows are gone, so ``on_missing`` must be ``keep``. After a change of key,
        columns, mode or cursor column, the next run reads all rows. So does one with ``resync``, and one with
        ``retry_rejected`` if there are rejected rows. The stored value stays while a creation is unknown
    :param max_failure_ratio: the share of rows that may be rejected, invalid or partial, 0 to 1, before the task fails.
        The sync ends early only if rows from all over the source are rejected (templated)
    :param max_duration: time after which no further request is started, as a timedelta or in seconds. ``None`` and
        ``unlimited`` set no limit. The task succeeds, and the next run continues with the rows that are left
        (templated)
    :param on_concurrent_sync: when another task syncs the same part of the list: ``wait`` for it, deferred, or ``fail``
    :param lease_timeout: longest wait for the other task, as a timedelta or in seconds
    :param allow_backfill: let backfills and catch-up runs send, too. Their source may be older than the list
        (templated)
    :param max_lateness: how long after ``run_after`` any other run may still send, such as one that was cleared, as a
        timedelta or in seconds. ``None`` and ``unlimited`` set no limit (templated)
    :param dry_run: do everything except requests that change rows. The report has ``creates``, ``updates`` and
        ``deletes``, and the results file has a line for each row that would change (templated)
    :param preview_count: number of changed rows to push as the XCom ``preview``: row number, masked key, key hash, row
        id, action, and the masked cells that the request sets (templated)
    :param results_path: path of the results file, ``.jsonl`` or ``.parquet``. It has a line for each row that
        this run created, updated or deleted, or that is rejected, invalid, unknown or not sent. The file of a retry has
        the rows of the earlier tries, too (templated)
    :param partition: one of the values of ``partitions(count)``, to map the operator over
    :param map_name: distinguishes several key maps of one list, such as those of two sources (templated)
    :param empty_cell_value: how a cleared cell is sent: ``null`` or ``empty`` (an empty string)
    :param max_pending_requests: highest number of requests with an intent and no result yet. After a crash, at most
        this many creations are unknown. Fewer are pending if that is enough for ``requests_per_second`` of the
        connection. Default: twice ``max_concurrency`` of the connection
    :param spool_path: a folder on the worker's disk for the rows. Default: the system's folder for temporary files
    :param progress_interval: seconds between progress log lines
    :param stop_grace_period: seconds to wait for responses after Airflow stops the task, or before its
        ``execution_timeout``
    :param on_limit: what to do when ``max_deletes``, ``max_changes`` or ``max_new`` stops the sync. ``fail`` fails the
        task. ``ask`` has the task wait for a user to confirm the figures, under Required Actions in Airflow's UI. If
        they are approved, the sync continues with the confirmed limit. Otherwise it fails (templated)
    :param confirmation_timeout: longest wait for this confirmation, as a timedelta or in seconds. ``None`` waits for
        any time
    """

    template_fields: Collection[str] = (
        "source",
        "on_missing",
        "results_path",
        "map_name",
        "without_sending",
        *SYNC_LIMITS,
        "cpaas_conn_id",
    )
    typed_fields: ClassVar[Mapping[str, validators.Check]] = {
        name: validators.OPTION_CHECKS[name] for name in (*SYNC_LIMITS, "dry_run")
    }
    masked_fields: ClassVar[Mapping[str, Callable[[Any], Any]]] = {"source": masking.source}

    def __init__(
        self,
        *,
        source: Any,
        key: str | Sequence[str],
        columns: Sequence[str] | Mapping[str, Any] | None = None,
        mode: Literal["upsert", "insert", "update"] = "upsert",
        on_missing: Literal["keep", "delete", "clear"] | Mapping[str, Any] = "keep",
        clear_columns: Sequence[str] | None = None,
        max_deletes: float | str | None = 0.1,
        max_changes: float | str | None = None,
        max_new: float | str | None = 0.5,
        new_map: bool | str = False,
        on_duplicate_key: Literal["first", "none"] = "first",
        on_invalid_cell: Literal["skip_row", "skip_cell"] = "skip_row",
        on_deleted_row: Literal["create", "report"] = "create",
        on_unknown: Literal["fail", "skip", "create"] = "fail",
        retry_rejected: bool | str = False,
        resync: bool | str = False,
        cursor_column: str | None = None,
        max_failure_ratio: float | str = 0.0,
        max_duration: timedelta | float | str | None = None,
        on_concurrent_sync: Literal["wait", "fail"] = "wait",
        lease_timeout: timedelta | float = timedelta(hours=1),
        allow_backfill: bool | str = False,
        max_lateness: timedelta | float | str | None = timedelta(days=1),
        dry_run: bool | str = False,
        preview_count: int | str = 0,
        results_path: Any = None,
        partition: Mapping[str, int] | None = None,
        map_name: str = "default",
        empty_cell_value: Literal["null", "empty"] = "null",
        max_pending_requests: int | None = None,
        spool_path: str | None = None,
        progress_interval: float = 10.0,
        stop_grace_period: float = 4.0,
        on_limit: Literal["fail", "ask"] | str = "fail",
        confirmation_timeout: timedelta | float | None = timedelta(days=1),
        **kwargs: Any,
    ) -> None:
        outlets = kwargs.pop("outlets", None) or []
        kwargs["outlets"] = [*(outlets if isinstance(outlets, list) else [outlets]), AssetAlias(CONTACTS_ALIAS)]
        super().__init__(**kwargs)
        del outlets  # so that it is none of the arguments
        self._set_arguments(locals(), on_unknown=validators.one_of("fail", "skip", "create"))
        self._check_arguments()

    def build_spec(self) -> ContactSyncSpec:
        """Return the sync as plain values, from the rendered arguments."""
        from cpaas_provider.tasks.contacts.spec import ContactSyncSpec

        return self._build_spec(ContactSyncSpec, source_summary=self.source)

    def make_attempt(self, runtime: TaskRuntime, **resumed: Any) -> Attempt:
        """Return one try of the sync.

        :param resumed: ``lease_deadline``: latest time until which this task waits for another sync;
            ``started_in_time``: whether it was checked before that the run may send
        """
        from cpaas_provider.tasks.contacts.sync import ContactSyncTry

        return ContactSyncTry(self.build_spec(), runtime, **resumed)

    def _check_arguments(self) -> None:
        """Refuse arguments that cannot work, where the DAG is written."""
        try:
            key = [self.key] if isinstance(self.key, str) else self.key
            if not isinstance(key, Sequence) or not key or not all(isinstance(name, str) and name for name in key):
                raise ValueError("key must be the name of a source column, or a list of them.")
            if self.columns is not None:
                from cpaas_provider.contacts.mapping.rules import parse_mapping

                parse_mapping(self.columns)
            validators.check_partition(self.partition, self.results_path)
            if isinstance(self.on_missing, str) and self.on_missing not in ("keep", "delete", "clear"):
                raise ValueError(
                    "on_missing must be keep, delete, clear or a mapping of list columns to values; it is "
                    f"{self.on_missing!r}."
                )
            if (self.on_missing == "clear") != bool(self.clear_columns):
                raise ValueError("clear_columns and on_missing='clear' go together: name the columns to empty.")
            if self.columns is not None:
                self._check_missing_columns()
            if self.cursor_column is not None:
                self._check_cursor()
        except ValueError as error:
            raise ValueError(f"{self}: {error}") from None

    def _check_missing_columns(self) -> None:
        """Refuse values for rows that are gone in columns that are not filled again when the row comes back."""
        from cpaas_provider.api.bounds import is_known
        from cpaas_provider.contacts.mapping.rules import unfilled_message

        written = self.on_missing if isinstance(self.on_missing, Mapping) else self.clear_columns or ()
        filled = {str(name).strip().casefold() for name in self.columns or ()}
        if unfilled := [name for name in written if is_known(name) and str(name).strip().casefold() not in filled]:
            raise ValueError(unfilled_message(unfilled))

    def _check_cursor(self) -> None:
        if not isinstance(self.cursor_column, str) or not self.cursor_column:
            raise ValueError("cursor_column must be the name of a source column.")
        if self.on_missing != "keep":
            raise ValueError("cursor_column reads a part of the source, so on_missing must be 'keep'.")
        if self.partition is not None:
            raise ValueError("cursor_column and partition exclude each other: one task reads all new rows.")
