"""The stored suppression list, as a send consults it."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from cpaas_provider.database.default_file import may_exist
from cpaas_provider.database.errors import DatabaseError
from cpaas_provider.operators._runtime.errors import PreflightError

if TYPE_CHECKING:
    from cpaas_provider.operators._runtime.runtime import TaskRuntime


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

        :raises PreflightError: when it cannot be read
        """
        if self._is_empty or not may_exist():
            return {}
        from cpaas_provider.database.recipients.suppressions import REASONS, SuppressionTable

        scope = self.runtime.conn_id, self.channel, self.reasons or REASONS
        try:
            table = SuppressionTable(self.runtime.database)
            if self._is_empty is None:
                self._is_empty = not table.holds_any(*scope)
            return {} if self._is_empty else table.find(recipients, *scope)
        except DatabaseError as error:
            raise PreflightError(
                f"The suppression list could not be read: {str(error).rstrip('.')}. Nothing more was sent in this try. "
                "use_suppression_list=False sends without it.",
                permanent=False,
            ) from None
