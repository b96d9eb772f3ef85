"""The journal: what a task is about to send is stored before it leaves, and what became of it afterwards.

It lives in the task's own state (``context["task_state_store"]``), which outlives tries and killed workers. It holds
hashes, ids and counts, never a number, an address or a text.
"""

from __future__ import annotations

import dataclasses
import json
import logging
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any, Protocol

from tenacity import Retrying, retry_if_exception, stop_after_attempt, wait_random_exponential

from cpaas_provider.database.errors import LeaseLostError
from cpaas_provider.sending.errors import JournalTooLargeError, JournalUnavailableError, TrySupersededError
from cpaas_provider.sending.hashing import KeyedHasher
from cpaas_provider.sending.journal.model import JOURNAL_KEY, NOTHING_SENT_KEY, Pages, RequestRecord, State, claim_key

log = logging.getLogger(__name__)

LOST = (
    "earlier tries left no journal, because they ended before they recorded a request, or because Airflow dropped the "
    "task state in a clear"
)
REKEYED = "the connection's secrets changed, and the hashes of the journal are keyed with them"

_ROOM = 60_000
"""Bytes a journal may have when a request is about to leave; MySQL holds 64 KB in one value of the state."""

_SETTLING_ATTEMPTS = 3
_LONGEST_PAUSE = 5.0


class StateStore(Protocol):
    """Where a journal lives: the task's state, or what a campaign that happens once is kept in."""

    def get(self, key: str) -> Any:
        """Return what is stored, or ``None``."""

    def set(self, key: str, value: Any) -> None:
        """Store for good, before returning."""

    def delete(self, key: str) -> None:
        """Remove what is stored under a key, if anything is."""


@dataclass(frozen=True)
class TryInfo:
    """What Airflow says of this try.

    :param number: its number, from 1
    :param max_tries: the task instance's limit less one; a clear sets it to the tries made plus ``retries``
    :param retries: what the task allows
    :param clear_number: how often anything of the run was cleared
    :param run: tells task instances apart where several write one journal, one after the other; else empty
    """

    number: int
    max_tries: int
    retries: int
    clear_number: int = 0
    run: str = ""

    @property
    def clear_epoch(self) -> int | str:
        """What changes whenever rejected recipients are to be tried again: with a clear, or with another run."""
        return f"{self.run}:{self.max_tries}" if self.run else self.max_tries

    @property
    def after_clear(self) -> bool:
        """Whether earlier tries were made and the task's state may have been dropped since.

        Retries keep the state, so without a clear an empty one means that no earlier try had come to claim anything.
        """
        return self.number > 1 and (self.max_tries > self.retries or self.clear_number > 0)


class Journal:
    """One task instance's journal, opened by one of its tries.

    :param store: where it is kept
    :param secrets: what its hashes may be keyed with; the first is used for a new journal, any opens an old one
    :param identity: whose it is, see ``task_identity``
    :param tries: what Airflow says of this try
    :param resend_on_clear: after a clear, begin anew and send to everybody again
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
        clock: Callable[[], datetime] = lambda: datetime.now(UTC),
    ) -> None:
        self._store = store
        self._tries = tries
        self._clock = clock
        keys = [KeyedHasher(secret, identity) for secret in secrets]
        found = self._read()
        self._key = None if found is None else claim_key(found.claims)
        self._claims = found.claims if found else 0
        self.hasher, self.pages = self._open(found, keys)
        # A clear sets max_tries anew; where retries were lowered meanwhile, to less than before.
        self.cleared = found is not None and found.clear_epoch != tries.max_tries
        dropped = found is None and self.lost is not None and tries.max_tries > tries.retries
        if resend_on_clear and (self.cleared or dropped):
            # Different after each clear, also where nothing of the last edition was kept.
            resend_epoch = max(found.resend_epoch if found else 0, tries.max_tries + tries.clear_number) + 1
            self.pages = Pages(self.hasher.key_id, tries.max_tries, resend_epoch=resend_epoch)
        elif self.cleared:
            # Whatever they were rejected for, somebody cleared the task to have it tried again.
            for entry in self.pages.entries.values():
                entry.state = State.NOT_SENT if entry.state is State.REJECTED else entry.state
        for entry in self.pages.entries.values():
            if entry.state is State.PENDING:
                entry.state = State.UNKNOWN
                entry.reason = entry.reason or "the try ended before a response was recorded"

    @property
    def lost(self) -> str | None:
        """Why nobody can tell what earlier tries sent to people without an entry, where that is so."""
        return self.pages.lost

    @property
    def entries(self) -> Iterable[RequestRecord]:
        """All requests, in the order of their first claims."""
        return self.pages.entries.values()

    def standings(self, operation: str, recipients: Iterable[str]) -> dict[str, RequestRecord | None]:
        """Return the entry that says most about each recipient, the newest of several; ``None`` where there is none."""
        strongest: dict[str, RequestRecord] = {}
        for entry in self.entries:
            if entry.operation == operation:
                for member in entry.members:
                    if member not in strongest or entry.strength >= strongest[member].strength:
                        strongest[member] = entry
        return {one: strongest.get(self.hasher.recipient(operation, one)) for one in recipients}

    def reference(self, operation: str, recipients: Iterable[str]) -> str:
        """Return the name of a request to these recipients."""
        members = [self.hasher.recipient(operation, one) for one in recipients]
        return self.hasher.reference(operation, members, self.pages.resend_epoch)

    def claim(
        self,
        operation: str,
        recipients: Sequence[str],
        body: Mapping[str, Any],
        personal: Mapping[str, Any] | None = None,
        evidence: Any = None,
    ) -> RequestRecord:
        """Store that a request is about to leave; when this returns, it may.

        :param personal: what the request says to each recipient alone
        :param evidence: small JSON to know its outcome by
        :raises JournalUnavailableError: when that could not be stored; the request must not leave
        :raises JournalTooLargeError: when there is no room for it
        :raises TrySupersededError: when another try has taken this one's place
        """
        reference = self.reference(operation, recipients)
        before = self.pages.entries.get(reference)
        entry = RequestRecord(
            reference=reference,
            operation=operation,
            members=tuple(self.hasher.recipient(operation, one) for one in recipients),
            state=State.PENDING,
            body=self.hasher.body(body),
            personal=tuple(self.hasher.body({"": personal.get(one)}) for one in recipients) if personal else None,
            started_at=self._clock(),
            try_number=self._tries.number,
            evidence=evidence,
            doubted=before is not None and (before.in_doubt or before.doubted),
        )
        self.pages.entries[reference] = entry
        written = self._key
        # A late copy of what was written before must not take its place.
        claims = self._claims if written is None else self._claims + 1
        self._key = claim_key(claims)
        try:
            self._refuse_too_large(len(recipients))
            self._write()
            self._claims = claims
        except Exception as error:
            self._key = written
            if before is None:
                del self.pages.entries[reference]
            else:
                self.pages.entries[reference] = before
            if isinstance(error, JournalTooLargeError):
                raise
            raise storage_error(error, "stored, so nothing was sent") from None
        return entry

    def _refuse_too_large(self, recipients: int) -> None:
        size = len(json.dumps(self.pages.as_json()))
        if size > _ROOM:
            raise JournalTooLargeError(
                f"A request to {recipients} recipients makes the journal of this task {size} bytes large, and the task "
                f"state store holds {_ROOM}. Nothing was sent in this try. Name fewer recipients in one task, or use "
                "SmsCampaignOperator or EmailCampaignOperator."
            )

    def settle(
        self, entry: RequestRecord, state: State, *, result: dict[str, Any] | None = None, reason: str | None = None
    ) -> None:
        """Store what became of a request.

        What cannot be stored is logged: the next try finds the request unknown, which is safe.

        :raises TrySupersededError: when another try has taken this one's place
        """
        if entry.doubted and state is not State.ACCEPTED:
            # That this one did not arrive says nothing about the earlier one.
            state = State.UNKNOWN
        entry.state, entry.result, entry.reason = state, result, reason
        try:
            Retrying(
                retry=retry_if_exception(lambda error: isinstance(error, Exception) and not _replaced(error)),
                stop=stop_after_attempt(_SETTLING_ATTEMPTS),
                wait=wait_random_exponential(max=_LONGEST_PAUSE),
                reraise=True,
            )(self._write)
        except Exception as error:  # noqa: BLE001 - Airflow raises several kinds, and the request is made either way
            if _replaced(error):
                raise storage_error(error, f"stored. Request {entry.reference} was made") from None
            log.warning(
                "The outcome of request %s (%s) could not be stored (%s). If the task is retried, this request is "
                "treated as unknown.",
                entry.reference,
                state.value,
                type(error).__name__,
            )

    def settle_in_part(
        self,
        entry: RequestRecord,
        rejected: Sequence[str],
        *,
        result: dict[str, Any] | None = None,
        reason: str | None = None,
    ) -> None:
        """Store that a request was accepted for all but some, who have an entry of their own from then on.

        :param rejected: the recipients it was not accepted for
        :raises TrySupersededError: when another try has taken this one's place
        """
        named = {self.hasher.recipient(entry.operation, one) for one in rejected}
        apart, rest = entry.divided(lambda member: member in named)
        if not rest.members:
            self.settle(entry, State.REJECTED, reason=reason)
            return
        reference = self.hasher.reference(entry.operation, apart.members, self.pages.resend_epoch)
        before = self.pages.entries.get(reference)
        doubted = entry.doubted or (before is not None and (before.in_doubt or before.doubted))
        state = State.UNKNOWN if doubted else State.REJECTED
        self.pages.entries[reference] = dataclasses.replace(
            apart, reference=reference, state=state, reason=reason, doubted=doubted
        )
        entry.members, entry.personal = rest.members, rest.personal
        self.settle(entry, State.ACCEPTED, result=result)

    def keep_doubts(self) -> None:
        """Store that what an earlier try had claimed is unknown now, for whoever looks; a next try knows it anyhow."""
        try:
            self._write()
        except Exception as error:  # noqa: BLE001 - nothing depends on it
            log.warning("The journal could not be updated (%s).", type(error).__name__)

    def record_loss(self, operation: str, recipients: Sequence[str]) -> None:
        """Store that nobody can tell whether an earlier try sent to those recipients that have no entry."""
        strangers = [one for one, entry in self.standings(operation, recipients).items() if entry is None]
        if self.lost is None or not strangers:
            return
        reference = self.reference(operation, strangers)
        entry = RequestRecord(
            reference=reference,
            operation=operation,
            members=tuple(self.hasher.recipient(operation, one) for one in strangers),
            state=State.UNKNOWN,
        )
        self.pages.entries[reference] = entry
        self.settle(entry, State.UNKNOWN, reason=self.lost)

    def _read(self) -> Pages | None:
        try:
            return Pages.read(self._get)
        except ValueError as error:
            raise JournalUnavailableError(
                f"The task state store holds a journal that this version of the provider cannot use: {error}. Nothing "
                "was sent. Install the version that wrote it, or start a new run."
            ) from None

    def _get(self, key: str) -> Any:
        try:
            return self._store.get(key)
        except Exception as error:  # noqa: BLE001 - Airflow raises several kinds, and none may let a request leave
            raise storage_error(error, "read, so nothing was sent") from None

    def _open(self, found: Pages | None, keys: Sequence[KeyedHasher]) -> tuple[KeyedHasher, Pages]:
        empty = Pages(keys[0].key_id, self._tries.max_tries)
        if found is None:
            if self._tries.after_clear and self._get(NOTHING_SENT_KEY) is None:
                empty.lost = LOST
            return keys[0], empty
        for key in keys:
            if key.key_id == found.key_id:
                return key, found
        if found.lost or any(entry.in_doubt or entry.state is State.ACCEPTED for entry in found.entries.values()):
            empty.lost = REKEYED
        return keys[0], empty

    def _write(self) -> None:
        self.pages.clear_epoch = self._tries.max_tries
        self._key = self._key or JOURNAL_KEY
        self._store.set(self._key, self.pages.as_json())


def record_nothing_sent(store: StateStore, tries: TryInfo) -> None:
    """Store that a try ended before it claimed anything, so that a clear need not take its silence for lost words.

    Does nothing where there is a journal, or where there may have been one that a clear dropped. What cannot be stored
    is left: an empty state after a clear then counts as unknown, which is safe.
    """
    if tries.after_clear:
        return
    try:
        if store.get(JOURNAL_KEY) is None:
            store.set(NOTHING_SENT_KEY, {"max_tries": tries.max_tries})
    except Exception as error:  # noqa: BLE001 - the failure that is being noted matters more
        log.warning("The record that this try sent nothing could not be stored (%s).", type(error).__name__)


def _replaced(error: BaseException) -> bool:
    """Tell whether Airflow no longer knows this try, or somebody else has the campaign.

    Airflow answers 404 to the writes of a try that was replaced.
    """
    if isinstance(error, LeaseLostError):
        return True
    detail = getattr(getattr(error, "error", None), "detail", None)
    status = detail.get("status_code") if isinstance(detail, Mapping) else None
    return 404 in (status, getattr(getattr(error, "response", None), "status_code", None))


def _who_instead(error: BaseException) -> str:
    if isinstance(error, LeaseLostError):
        return "Another task instance has taken over the campaign of this idempotency_key"
    return "Airflow has replaced this try with another one"


def storage_error(error: BaseException, what: str) -> JournalUnavailableError | TrySupersededError:
    """Return in words that the journal could not be ``what``."""
    if _replaced(error):
        return TrySupersededError(
            f"{_who_instead(error)}, and the journal could not be {what}. The other try continues from the journal."
        )
    return JournalUnavailableError(
        f"The task state store could not be reached ({type(error).__name__}), and the journal could not be {what}. A "
        "retry of the task continues from the journal."
    )
