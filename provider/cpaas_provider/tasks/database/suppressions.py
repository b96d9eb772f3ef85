"""The stored suppression list, as a send consults it."""

from __future__ import annotations

import time
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from cpaas_provider.database.default_file import describe_spreading, may_exist, spreading_executor, suppresses_any
from cpaas_provider.database.errors import DatabaseError
from cpaas_provider.tasks.database.shared_database import check_database, recorded_databases
from cpaas_provider.tasks.errors import PreflightError

if TYPE_CHECKING:
    from cpaas_provider.database.recipients.suppressions import SuppressionTable
    from cpaas_provider.tasks.runtime import TaskRuntime


_EMPTY_FOR = 5.0
"""Seconds for which a list without entries is not read again."""


@dataclass
class StoredSuppressionList:
    """The entries that hold for one connection and channel.

    :param reasons: which entries count; ``None`` for all
    """

    runtime: TaskRuntime
    channel: str
    reasons: Collection[str] | None = None
    _empty_until: float = field(default=float("-inf"), init=False)
    _has_entries: bool = field(default=False, init=False)

    def find(self, recipients: Sequence[str]) -> Mapping[str, str]:
        """Return the reason of each of the recipients that is on the list. An empty list counts for some seconds.

        :raises PreflightError: when it cannot be read, or another database may have the list
        """
        if time.monotonic() < self._empty_until:
            return {}
        try:
            return self._find(recipients)
        except DatabaseError as error:
            raise PreflightError(
                f"The suppression list could not be read: {str(error).rstrip('.')}. Nothing more was sent in this try. "
                "use_suppression_list=False sends without the list, if the database can be read.",
                permanent=False,
            ) from None

    def _find(self, recipients: Sequence[str]) -> Mapping[str, str]:
        scope = (self.runtime.conn_id, self.channel, self.reasons)
        if not self._has_entries:
            read_at = time.monotonic()
            has_entries = suppresses_any(*scope) if may_exist() else False
            if has_entries is None:
                has_entries = self._table.holds_any(*scope)
            self._check_database(is_empty=not has_entries)
            if not has_entries:
                self._empty_until = read_at + _EMPTY_FOR
                return {}
            self._has_entries = True
        return self._table.find(recipients, *scope)

    @property
    def _table(self) -> SuppressionTable:
        from cpaas_provider.database.recipients.suppressions import SuppressionTable

        return SuppressionTable(self.runtime.database)

    def _check_database(self, *, is_empty: bool) -> None:
        """Check once a try that this is the list of all workers, and warn where they have no database in common.

        :raises PreflightError: when another database may have the list
        """
        runtime = self.runtime
        if not (is_empty or runtime.suppression_database_checked):
            # Also if the list had no entry when the try began.
            check_database(runtime.database)
            runtime.suppression_database_checked = True
        if runtime.suppression_list_checked:
            return
        if is_empty and (recorded := recorded_databases()):
            check_database(runtime.database if may_exist() else None, recorded)
        if executor := spreading_executor():
            self._warn_or_refuse(executor)
        runtime.suppression_list_checked = True

    def _warn_or_refuse(self, executor: str) -> None:
        from airflow.sdk.configuration import conf

        problem = f"{describe_spreading(executor, 'suppression list')} A recipient who opted out may be on another one."
        if conf.getboolean("cpaas", "require_shared_database", fallback=False):
            raise PreflightError(
                f"{problem} Nothing was sent, because of [cpaas] require_shared_database. Set [cpaas] database to one "
                "database for all workers. use_suppression_list=False sends without the list.",
                permanent=True,
            )
        self.runtime.log.warning(
            "%s Set [cpaas] database to one database for all workers. [cpaas] require_shared_database refuses to send "
            "without it.",
            problem,
        )
