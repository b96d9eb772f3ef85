"""The journal of the single sends of a task, with its requests in memory.

It is stored in the task state (``context["task_state_store"]``), which outlives tries and killed workers. It holds
hashes, ids and counts, never a number, an address or a text.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from datetime import datetime

from cpaas_provider.sending.journal.log import JournalLog
from cpaas_provider.sending.journal.model import (
    BROKE_OFF,
    Intent,
    RequestRecord,
    Result,
    State,
    replay,
)
from cpaas_provider.sending.journal.store import StateStore, TryInfo

SEVERAL_OPERATIONS = "several"
"""The operation in the journal of a task whose sends have several operations."""


class Journal:
    """The journal of a task instance, opened by one try. A ``JournalWriter`` stores new records.

    :param store: stores the journal
    :param secrets: the connection's secrets. The first keys the hashes of a new journal. Any may have keyed an old one
    :param identity: the identity of the send, see ``task_identity``
    :param tries: what Airflow states about this try
    :param resend_on_clear: after a clear, send to all recipients again
    :param several: whether the task makes several sends, of any operations
    :raises JournalUnavailableError: when the journal cannot be read
    """

    def __init__(
        self,
        store: StateStore,
        secrets: Sequence[str],
        identity: Sequence[str | int],
        tries: TryInfo,
        *,
        resend_on_clear: bool = False,
        several: bool = False,
    ) -> None:
        self.log = JournalLog(store, secrets, identity, None, tries, resend_on_clear=resend_on_clear)
        self.several = several
        self._records: dict[int, RequestRecord] = {}
        for entry in self.log.replay():
            replay(entry, self.log.operation or "", self._records)
        self.interrupted = [
            Result(record.number, State.UNKNOWN, reason=BROKE_OFF)
            for record in self._records.values()
            if record.state is State.PENDING
        ]
        """Results (unknown) for requests of earlier tries that have none. Each try derives them, without a write."""
        for result in self.interrupted:
            self.end(result)

    @property
    def records(self) -> Collection[RequestRecord]:
        """All requests, in the order in which they were made."""
        return self._records.values()

    def add(self, intent: Intent, operation: str, at: datetime | None, body: str | None) -> None:
        """Add a request of this try."""
        self._records[intent.number] = RequestRecord(intent, operation, at, self.log.tries.number, body)

    def end(self, result: Result) -> Result:
        """Add the result of a request, and return it."""
        self._records[result.number] = self._records[result.number].ended(result)
        return result
