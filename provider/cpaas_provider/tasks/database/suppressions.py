"""The stored suppression list, as a send consults it."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from cpaas_provider.database.default_file import may_exist, spreading_executor, suppresses_any
from cpaas_provider.database.errors import DatabaseError
from cpaas_provider.tasks.database.shared_database import check_database, recorded_databases
from cpaas_provider.tasks.errors import PreflightError

if TYPE_CHECKING:
    from cpaas_provider.database.recipients.suppressions import SuppressionTable
    from cpaas_provider.tasks.runtime import TaskRuntime


@dataclass
class StoredSuppressionList:
    """The entries that hold for one connection and channel.

    :param reasons: which entries count; ``None`` for all
    """

    runtime: TaskRuntime
    channel: str
    reasons: Collection[str] | None = None
    _is_empty: bool | None = field(default=None, init=False)

    def find(self, recipients: Sequence[str]) -> Mapping[str, str]:
        """Return the reason of each of the recipients that is on the list. An empty list is read once a try.

        :raises PreflightError: when it cannot be read, or another database may have the list
        """
        if self._is_empty:
            return {}
        try:
            return self._find(recipients)
        except DatabaseError as error:
            raise PreflightError(
                f"The suppression list could not be read: {str(error).rstrip('.')}. Nothing more was sent in this try. "
                "use_suppression_list=False sends without it.",
                permanent=False,
            ) from None

    def _find(self, recipients: Sequence[str]) -> Mapping[str, str]:
        scope = (self.runtime.conn_id, self.channel, self.reasons)
        if self._is_empty is None:
            has_entry = suppresses_any(*scope) if may_exist() else False
            if has_entry is None:
                has_entry = self._table.holds_any(*scope)
            self._check_database(is_empty=not has_entry)
            self._is_empty = not has_entry
        return {} if self._is_empty else self._table.find(recipients, *scope)

    @property
    def _table(self) -> SuppressionTable:
        from cpaas_provider.database.recipients.suppressions import SuppressionTable

        return SuppressionTable(self.runtime.database)

    def _check_database(self, *, is_empty: bool) -> None:
        """Check once a try that this is the list of all workers, and warn where they have no database in common.

        :raises PreflightError: when another database may have the list
        """
        if self.runtime.suppression_list_checked:
            return
        if not is_empty:
            check_database(self.runtime.database)
        elif recorded := recorded_databases():
            check_database(self.runtime.database if may_exist() else None, recorded)
        if executor := spreading_executor():
            self._warn_or_refuse(executor)
        self.runtime.suppression_list_checked = True

    def _warn_or_refuse(self, executor: str) -> None:
        from airflow.sdk.configuration import conf

        problem = (
            f"[cpaas] database is not set, and the tasks of {executor} run on several machines, each with a "
            "suppression list of its own. A recipient who opted out may be on another one."
        )
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
