"""What campaigns store in the provider's own database: the journals of those with a key, and look-ups."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from cpaas_provider.database.errors import DatabaseError, OtherServiceError, PartitionsChangedError
from cpaas_provider.database.leases import LEASE, LeasedState
from cpaas_provider.database.recipients.lookups import LookupCache
from cpaas_provider.database.registry import CampaignKey, OpenCampaign, open_campaign
from cpaas_provider.operators._runtime.database.shared_database import check_database
from cpaas_provider.operators._runtime.errors import PreflightError
from cpaas_provider.sending.journal.model import CAMPAIGN_MARKER, JOURNAL_KEY

if TYPE_CHECKING:
    from cpaas_provider.operators._runtime.runtime import TaskRuntime
    from cpaas_provider.sending.journal.store import StateStore
    from cpaas_provider.sending.partitions import Partition

log = logging.getLogger(__name__)

_ADVICE = {
    PartitionsChangedError: "Use the number of partitions the campaign began with, or another idempotency_key.",
    OtherServiceError: "Set the connection to that service again, or use another idempotency_key.",
}


def open_campaign_store(key: CampaignKey, partition: Partition, runtime: TaskRuntime) -> MarkedStateStore:
    """Return the stored state of a campaign with a key. No other task can continue the campaign until the try ends.

    :raises PreflightError: when it began with other partitions, in another database or at another service, when another
        task runs it, or when the database cannot be used
    """
    if not isinstance(key.key, str) or not key.key.strip():
        raise PreflightError("idempotency_key must be text that is not empty. Nothing was sent.", permanent=True)
    task_store = runtime.require_state_store()
    owner = f"task instance {runtime.cli_address}"
    try:
        check_database(runtime.database)
        campaign = open_campaign(runtime.database, key, (partition.part, partition.of), owner)
    except (PartitionsChangedError, OtherServiceError) as error:
        raise PreflightError(f"{error} Nothing was sent. {_ADVICE[type(error)]}", permanent=True) from None
    except DatabaseError as error:
        raise PreflightError(f"{error} Nothing was sent.", permanent=False) from None
    runtime.exit_stack.callback(_run_or_warn, campaign.state.release)
    runtime.exit_stack.callback(_renew_in_background(campaign.state).set)
    state = MarkedStateStore(campaign, task_store, f"{key.name}/{partition.part}")
    if state.lost:
        raise PreflightError(
            f"The journal of an earlier try is not in the database {runtime.database.redacted_url}. It is another "
            "database, or it was restored from an older copy. Nothing was sent. Set [cpaas] database to the database "
            "that has the journal. If that database is lost for good, run the following and then clear the task. It "
            "sends again to every recipient that is not recorded in this database: airflow cpaas journal forget "
            f"{runtime.cli_address}",
            permanent=True,
        )
    return state


class MarkedStateStore:
    """A campaign's state in the database. After the first write, a marker in the task's own state says that it exists.

    :param name: the name of the campaign's partition in the database
    """

    def __init__(self, campaign: OpenCampaign, task_store: StateStore, name: str) -> None:
        self.secret = campaign.secret
        self._state = campaign.state
        self._task_store = task_store
        self._name = name
        self._marked = task_store.get(CAMPAIGN_MARKER) == name

    @property
    def lost(self) -> bool:
        """Whether an earlier try of this task instance stored something that is not in this database."""
        return self._marked and self._state.get(JOURNAL_KEY) is None

    def get(self, key: str) -> Any:
        """Return what is stored, or ``None``."""
        return self._state.get(key)

    def set(self, key: str, value: Any) -> None:
        """Store for good, before returning."""
        self._state.set(key, value)
        if not self._marked:
            self._mark()

    def delete(self, key: str) -> None:
        """Remove what is stored under a key."""
        self._state.delete(key)

    def confirm_current(self) -> None:
        """Check that no other task has the campaign meanwhile.

        :raises DatabaseError: when one has, or that cannot be found out
        """
        self._state.renew()

    def _mark(self) -> None:
        # Only after the write: if the first write fails, nothing was sent and no journal is missing.
        try:
            self._task_store.set(CAMPAIGN_MARKER, self._name)
            self._marked = True
        except Exception as error:  # noqa: BLE001 - the journal itself is stored
            log.warning(
                "The marker of the campaign's journal could not be stored in the task state store (%s). "
                "The journal itself is stored.",
                type(error).__name__,
            )


def open_lookup_cache(runtime: TaskRuntime) -> LookupCache | None:
    """Return the cache of look-ups, ``None`` without a database."""
    try:
        return LookupCache(runtime.database)
    except DatabaseError as error:
        log.warning("Lookups are not cached, so every number is looked up again: %s", error)
        return None


def _renew_in_background(state: LeasedState) -> threading.Event:
    """Renew a lease in the background, until the event is set."""
    ended = threading.Event()

    def renew() -> None:
        while not ended.wait(LEASE.total_seconds() / 5):
            # If the lease is lost, the next write of the journal fails.
            _run_or_warn(state.renew)

    threading.Thread(target=renew, name="cpaas-lease", daemon=True).start()
    return ended


def _run_or_warn(work: Callable[[], None]) -> None:
    try:
        work()
    except DatabaseError as error:
        log.warning("%s", error)
