"""The journal of a task's single sends, as one try reads it: its requests in memory.

It lives in the task's own state (``context["task_state_store"]``), which outlives tries and killed workers. It holds
hashes, ids and counts, never a number, an address or a text.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Collection, Iterable, Mapping, Sequence
from datetime import datetime
from typing import Any

from cpaas_provider.sending.hashing import KeyedHasher
from cpaas_provider.sending.journal.log import JournalLog
from cpaas_provider.sending.journal.model import (
    BROKE_OFF,
    Intent,
    RequestRecord,
    Result,
    State,
    by_reference,
    latest_by_member,
    replay,
    unresolved,
)
from cpaas_provider.sending.journal.store import StateStore, TryInfo

SEVERAL_OPERATIONS = "several"
"""What stands in the journal for the operation if a task makes sends of several."""


class Journal:
    """One task instance's journal, opened by one of its tries. What is new is stored by a ``JournalWriter``.

    :param store: where it is kept
    :param secrets: what its hashes may be keyed with; the first is used for a new journal, any opens an old one
    :param identity: whose it is, see ``task_identity``
    :param tries: what Airflow says of this try
    :param resend_on_clear: after a clear, send to all recipients again
    :param several: whether the task makes several sends, of whatever operation
    :raises JournalUnavailableError: when it cannot be read
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
            replay(entry, self.log.operation or "", self._records, tries.clear_epoch)
        self._next_number = max(self.log.first_number, *(number + 1 for number in self._records), 0)
        self.interrupted = [
            Result(record.number, State.UNKNOWN, reason=BROKE_OFF)
            for record in self._records.values()
            if record.state is State.PENDING
        ]
        """That requests of an earlier try without a result are unknown. A later try knows it without a write."""
        for result in self.interrupted:
            self.end(result)

    @property
    def hasher(self) -> KeyedHasher:
        """The keyed hashes of its recipients and texts."""
        return self.log.hasher

    @property
    def records(self) -> Collection[RequestRecord]:
        """All requests, in the order in which they were made."""
        return self._records.values()

    def check_operation(self, operation: str) -> None:
        """Raise where the journal is that of another kind of send.

        :raises JournalUnavailableError: when it is
        """
        self.log.check_operation(SEVERAL_OPERATIONS if self.several else operation)

    def members(self, operation: str, recipients: Iterable[str]) -> list[bytes]:
        """Return the hashes of recipients."""
        return [self.hasher.member(operation, one) for one in recipients]

    def reference(self, operation: str, members: Iterable[bytes]) -> str:
        """Return the name of a request to these recipients."""
        return self.hasher.batch_reference(operation, members, self.log.resend_epoch)

    def new_intent(
        self, operation: str, members: Sequence[bytes], words: bytes = b"", probe_snapshot: Any = None
    ) -> Intent:
        """Return the intent of a new request."""
        reference = self.reference(operation, members)
        unknown = any(one.is_unresolved for one in self.records if one.reference == reference)
        number, self._next_number = self._next_number, self._next_number + 1
        return Intent(number, reference, b"".join(members), words, probe_snapshot, unknown)

    def add(self, intent: Intent, operation: str, at: datetime | None, body: str | None) -> None:
        """Add a request of this try."""
        self._records[intent.number] = RequestRecord(intent, operation, at, self.log.tries.number, body)

    def end(self, result: Result) -> None:
        """Add what became of a request."""
        self._records[result.number] = self._records[result.number].ended(result)


def unresolved_requests(records: Iterable[RequestRecord]) -> list[RequestRecord]:
    """Return the requests of unknown outcome that have a recipient no other request surely reached.

    There is one for each reference, the newest: what the service says of a reference may be about any of its requests.
    """
    records = list(records)
    found = []
    for record in by_reference(unresolved(records)):
        others = [one for one in records if one.reference == record.reference and one.number != record.number]
        unknown = record.previous_unknown or any(one.is_unresolved for one in others)
        intent = dataclasses.replace(record.intent, previous_unknown=unknown)
        found.append(dataclasses.replace(record, intent=intent))
    return found


def latest_requests(records: Iterable[RequestRecord], members: Mapping[str, bytes]) -> dict[str, RequestRecord | None]:
    """Return the request that decides about each recipient; ``None`` where there is none.

    :param members: the hashes of the recipients
    """
    found = latest_by_member(records)
    return {one: found.get(member) for one, member in members.items()}
