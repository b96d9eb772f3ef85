"""What an author asks of a contact sync, as plain values: rendered arguments and options."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import timedelta
from typing import Any

from cpaas_provider._common.records import PrivateRecord

CONTACTS_ALIAS = "cpaas contacts_changed"
"""The name of the asset alias through which a sync publishes that a list changed."""


class ContactSyncSpec(PrivateRecord, frozen=True, kw_only=True):
    """A contact sync as its operator was given it. The operator's arguments explain each.

    :param source_summary: the source as Airflow shows it
    """

    source: Any
    source_summary: Any
    key: str | Sequence[str]
    columns: Sequence[str] | Mapping[str, Any] | None
    mode: str
    on_missing: Any
    clear_columns: Sequence[str] | None
    max_deletes: float | None
    max_changes: float | None
    max_new: float | None
    new_map: bool
    on_duplicate_key: str
    on_invalid_cell: str
    on_deleted_row: str
    on_unknown: str
    retry_rejected: bool
    resync: bool
    cursor_column: str | None
    max_failure_ratio: float
    max_duration: timedelta | None
    on_concurrent_sync: str
    lease_timeout: timedelta
    allow_backfill: bool
    max_lateness: timedelta | None
    dry_run: bool
    preview_count: int
    results_path: Any
    partition: Mapping[str, int] | None
    map_name: Any
    empty_cell_value: str
    max_pending_requests: int | None
    spool_path: str | None
    progress_interval: float
    on_limit: str
    confirmation_timeout: timedelta | None
