"""What campaigns store in the provider's own database: the journals of those with a key, and look-ups."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from cpaas_provider.database.errors import DatabaseError, OtherServiceError, PartitionsChangedError
from cpaas_provider.database.leases import LEASE, LeasedState
from cpaas_provider.database.recipients.lookups import DndCache
from cpaas_provider.database.registry import CampaignKey, OpenCampaign, open_campaign
from cpaas_provider.sending.errors import OlderDatabaseError
from cpaas_provider.sending.journal.model import CAMPAIGN_MARKER, WRITES_KEY
from cpaas_provider.sending.journal.store import CampaignMarker, storage_error
from cpaas_provider.tasks.database.newest_try import TaskNewestTry
from cpaas_provider.tasks.database.shared_database import check_database
from cpaas_provider.tasks.errors import PreflightError

if TYPE_CHECKING:
    from cpaas_provider.sending.journal.newest_try import NewestTry
    from cpaas_provider.sending.journal.store import StateStore
    from cpaas_provider.sending.partitions import Partition
    from cpaas_provider.tasks.runtime import TaskRuntime

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
    task_store = runtime.require_task_state()
    owner, name = f"task instance {runtime.cli_address}", f"{key.name}/{partition.part}"
    try:
        database = runtime.database
        newest_try = TaskNewestTry(database)
        check_database(database)
        # Before the lease is acquired: in an older copy, a task that has ended may still hold it.
        if (older := newest_try.find_older()) is not None:
            campaign = OpenCampaign(LeasedState(database, name, owner), secret="")
        else:
            campaign = open_campaign(database, key, (partition.part, partition.of), owner)
    except (PartitionsChangedError, OtherServiceError) as error:
        raise PreflightError(f"{error} Nothing was sent. {_ADVICE[type(error)]}", permanent=True) from None
    except DatabaseError as error:
        raise PreflightError(f"{error} Nothing was sent.", permanent=False) from None
    runtime.exit_stack.callback(_run_or_warn, campaign.state.release)
    state = MarkedStateStore(campaign, task_store, name, runtime.instance_nonce, newest_try)
    refuse_older_database(state, older, runtime)
    runtime.exit_stack.callback(_renew_in_background(campaign.state).set)
    runtime.exit_stack.callback(newest_try.record_end)
    return state


def refuse_older_database(state: MarkedStateStore, older: OlderDatabaseError | None, runtime: TaskRuntime) -> None:
    """Raise if Airflow knows more of the campaigns than the database.

    :param older: the error if Airflow's variables do
    :raises PreflightError: when the task's own state does
    :raises OlderDatabaseError: when only Airflow's variables do
    """
    if state.lost:
        raise PreflightError(
            f"The journal of an earlier try is not in the database {runtime.database.redacted_url}, or only a part of "
            "it. It is another database, or it was restored from an older copy. Nothing was sent. Set [cpaas] database "
            "to the database that has the journal. If that database is lost for good, run the following and then clear "
            "the task. It sends again to every recipient that is not recorded in this database: "
            f"{f'{older.way_out}; ' if older else ''}airflow cpaas journal forget {runtime.cli_address}",
            permanent=True,
        )
    if older is not None:
        raise older


class MarkedStateStore:
    """A campaign's state in the database. A marker in the task's own state has the number of the newest write.

    Each task instance counts its own writes. If others write to an older copy, it still lacks the writes of this one.

    :param name: the name of the campaign's partition in the database
    :param instance: a name that no other task instance has
    """

    def __init__(
        self, campaign: OpenCampaign, task_store: StateStore, name: str, instance: str, newest_try: NewestTry
    ) -> None:
        self.secret = campaign.secret
        self._state = campaign.state
        self._task_store = task_store
        self._name = name
        self._newest_try = newest_try
        self._writes_key = f"{WRITES_KEY}.{instance}"
        self._writes = int(campaign.state.get(self._writes_key) or 0)
        self._known = _known_writes(task_store, name)

    @property
    def lost(self) -> bool:
        """Whether earlier tries of this task instance stored something that is not in this database."""
        return self._writes < self._known

    def get(self, key: str) -> Any:
        """Return what is stored, or ``None``."""
        return self._state.get(key)

    def set(self, key: str, value: Any) -> None:
        """Store for good, before returning: first in the database, then the number of the write in the task's state.

        A request leaves only after both, so a database without it has a smaller number than the task's state.
        """
        self._writes += 1
        self._state.set_all({key: value, self._writes_key: self._writes})
        self._task_store.set(CAMPAIGN_MARKER, CampaignMarker(self._name, self._writes).as_json())
        self._newest_try.record_begin()

    def delete(self, key: str) -> None:
        """Remove what is stored under a key."""
        self._state.delete(key)

    def confirm_current(self) -> None:
        """Check that no other task has the campaign meanwhile.

        :raises DatabaseError: when one has, or that cannot be found out
        """
        self._state.renew()


def _known_writes(task_store: StateStore, name: str) -> int:
    """Return how often this task instance has written the journal of a campaign, as its own state has it.

    :raises PreflightError: when this version cannot use what is stored
    :raises JournalUnavailableError: when that cannot be read
    """
    try:
        stored = task_store.get(CAMPAIGN_MARKER)
        marker = None if stored is None else CampaignMarker.from_json(stored)
    except ValueError as error:
        raise PreflightError(
            f"The task state store holds a record of a campaign that this version of the provider cannot use: {error}. "
            "Nothing was sent. Install the version that wrote it, or start a new run.",
            permanent=True,
        ) from None
    except Exception as error:  # noqa: BLE001 - Airflow raises several kinds
        raise storage_error(error, "read, so nothing was sent") from None
    return marker.writes if marker is not None and marker.campaign == name else 0


def open_dnd_cache(runtime: TaskRuntime) -> DndCache | None:
    """Return the cache of do-not-disturb flags, ``None`` without a database."""
    try:
        return DndCache(runtime.database)
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
