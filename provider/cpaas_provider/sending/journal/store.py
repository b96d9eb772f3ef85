"""Where a journal is stored, what Airflow says of the try that opens it, and why a store fails."""

from __future__ import annotations

import logging
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Protocol

from cpaas_provider.database.errors import LeaseLostError
from cpaas_provider.sending.errors import JournalUnavailableError, TrySupersededError
from cpaas_provider.sending.journal.model import CURRENT_KEY, NOTHING_SENT_KEY
from cpaas_provider.sending.journal.segments import newest_series

log = logging.getLogger(__name__)

LOST = (
    "earlier tries left no journal, because they ended before they recorded a request, or because Airflow dropped the "
    "task state in a clear"
)
REKEYED = "the connection's secrets changed, and the hashes of the journal are keyed with them"


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


def record_nothing_sent(store: StateStore, tries: TryInfo) -> None:
    """Store that a try ended before it claimed anything, so that a clear need not take its silence for lost words.

    Does nothing where there is a journal, or where there may have been one that a clear dropped. What cannot be stored
    is left: an empty state after a clear then counts as unknown, which is safe.
    """
    if tries.after_clear:
        return
    try:
        if newest_series(store.get, tries.number) is None:
            store.set(NOTHING_SENT_KEY, {"max_tries": tries.max_tries})
    except Exception as error:  # noqa: BLE001 - the failure that is being noted matters more
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
    """Tell whether Airflow no longer knows this try, or another try has the campaign.

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
    if is_superseded(error):
        return TrySupersededError(
            f"{_who_instead(error)}, and the journal could not be {what}. The other try continues from the journal."
        )
    return JournalUnavailableError(
        f"The task state store could not be reached ({type(error).__name__}), and the journal could not be {what}. A "
        "retry of the task continues from the journal."
    )
