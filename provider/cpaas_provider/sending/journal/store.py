"""The store of a journal, what Airflow states about the try that opens it, and the errors of a store."""

from __future__ import annotations

import logging
from collections.abc import Mapping
from typing import Any, Protocol, Self

import msgspec.structs
from msgspec import Struct

from cpaas_provider.database.errors import DatabaseError, LeaseLostError, TryReplacedError
from cpaas_provider.sending.errors import JournalUnavailableError, TrySupersededError
from cpaas_provider.sending.journal.model import CURRENT_KEY, IN_DATABASE, NOTHING_SENT_KEY, unreadable
from cpaas_provider.sending.journal.segments import newest_series

log = logging.getLogger(__name__)

LOST = (
    "earlier tries left no journal, because they ended before they recorded a request, or because Airflow dropped the "
    "task state in a clear"
)
REKEYED = "the connection's secrets changed, and the hashes of the journal are keyed with them"


class StateStore(Protocol):
    """Stores a journal: the task state, or the database (an idempotency key, or ``[cpaas] journal = database``)."""

    def get(self, key: str) -> Any:
        """Return the value of a key, or ``None``."""

    def set(self, key: str, value: Any) -> None:
        """Store a value. It is stored when this returns, and outlives the process."""

    def delete(self, key: str) -> None:
        """Remove a key, if it is stored."""


class TryInfo(Struct, frozen=True):
    """What Airflow states about this try.

    :param number: the number of the try, from 1
    :param max_tries: the most tries of the task instance less one; a clear sets it to the tries made plus ``retries``
    :param retries: the ``retries`` of the task
    :param clear_number: how often a task of the run was cleared
    :param run: identifies the task instance if several write one journal, one after the other; else empty
    """

    number: int
    max_tries: int
    retries: int
    clear_number: int = 0
    run: str = ""

    @property
    def clear_epoch(self) -> int | str:
        """Changes with a clear, and with each run of a shared journal: rejected recipients are then sent to again."""
        return f"{self.run}:{self.max_tries}" if self.run else self.max_tries

    @property
    def after_clear(self) -> bool:
        """Whether there were earlier tries, and Airflow may have dropped the task state since.

        Only a clear drops the state. Without one, an empty state means that no earlier try recorded an intent.
        """
        return self.number > 1 and (self.max_tries > self.retries or self.clear_number > 0)


class CampaignMarker(Struct, frozen=True):
    """What a task instance knows of the journal of its campaign, which is in the database.

    :param campaign: the name of the campaign's partition in the database
    :param writes: how often the task instance has written the journal
    """

    campaign: str
    writes: int

    def as_json(self) -> dict[str, Any]:
        """Return what is stored in the task state."""
        return msgspec.structs.asdict(self)

    @classmethod
    def from_json(cls, stored: Any) -> Self:
        """Return what was stored.

        :raises ValueError: when it is no marker of this version
        """
        try:
            return cls(str(stored["campaign"]), int(stored["writes"]))
        except (LookupError, TypeError) as error:
            raise unreadable(error) from None


class JournalMarker(Struct, frozen=True):
    """What the task state has in place of a journal that is stored in the database.

    :param name: the name of the journal in the database
    :param writes: how often the journal was written
    """

    name: str
    writes: int

    def as_json(self) -> dict[str, Any]:
        """Return what is stored in the task state."""
        return {IN_DATABASE: self.name, "writes": self.writes}

    @classmethod
    def of(cls, stored: Any) -> Self | None:
        """Return the marker that is stored; ``None`` if it is a journal."""
        if not isinstance(stored, Mapping) or IN_DATABASE not in stored:
            return None
        return cls(str(stored[IN_DATABASE]), int(stored["writes"]))


def record_nothing_sent(store: StateStore, tries: TryInfo, *, is_new: bool = False) -> None:
    """Store that a try ended before it recorded an intent. Otherwise a later clear would count it as a lost journal.

    Does nothing if there is a journal, or may have been one that a clear dropped. If this record cannot be stored, an
    empty state after a clear counts as unknown, which is safe.

    :param is_new: whether there is no journal, as its log has read
    """
    if tries.after_clear:
        return
    try:
        if is_new or newest_series(store.get, tries.number) is None:
            store.set(NOTHING_SENT_KEY, {"max_tries": tries.max_tries})
    except Exception as error:  # noqa: BLE001 - it must not hide the failure that ends the try
        log.warning("The record that this try sent nothing could not be stored (%s).", type(error).__name__)


def confirm_current(store: StateStore, tries: TryInfo) -> None:
    """Check by a write that a try is the current one: Airflow lets no other one write.

    :raises TrySupersededError: when another try has taken its place
    :raises JournalUnavailableError: when that cannot be found out
    """
    try:
        store.set(CURRENT_KEY, tries.number)
    except Exception as error:  # noqa: BLE001 - Airflow raises several kinds
        raise storage_error(error, "written") from None


def is_superseded(error: BaseException) -> bool:
    """Return whether another try has replaced this one, or has taken over the campaign.

    Airflow answers 404 to the writes of a try that was replaced.
    """
    if isinstance(error, LeaseLostError):
        return True
    detail = getattr(getattr(error, "error", None), "detail", None)
    status = detail.get("status_code") if isinstance(detail, Mapping) else None
    return 404 in (status, getattr(getattr(error, "response", None), "status_code", None))


def storage_error(error: BaseException, what: str) -> JournalUnavailableError | TrySupersededError:
    """Return the error for a failure of the store.

    :param what: completes "the journal could not be" in the message
    """
    if is_superseded(error):
        cause = (
            "Another task instance has taken over the campaign of this idempotency_key"
            if isinstance(error, LeaseLostError) and not isinstance(error, TryReplacedError)
            else "Airflow has replaced this try with another one"
        )
        return TrySupersededError(
            f"{cause}, and the journal could not be {what}. The other try continues from the journal."
        )
    store = "provider's database" if isinstance(error, DatabaseError) else "task state store"
    return JournalUnavailableError(
        f"The {store} could not be reached ({type(error).__name__}), and the journal could not be {what}. A retry of "
        "the task continues from the journal."
    )
