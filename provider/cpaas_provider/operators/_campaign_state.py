"""What campaigns keep in the provider's own store: who was sent what where they happen once, and look-ups."""

from __future__ import annotations

import logging
import threading
from contextlib import ExitStack
from typing import TYPE_CHECKING, Any

from airflow.sdk.exceptions import AirflowException, AirflowFailException

from cpaas_provider.operators._run_facts import address_of
from cpaas_provider.operators._task_state import task_state
from cpaas_provider.sending.entries import JOURNAL_KEY
from cpaas_provider.sending.fingerprints import Fingerprints, campaign_identity
from cpaas_provider.store.campaigns import LEASE, CampaignState
from cpaas_provider.store.database import open_store
from cpaas_provider.store.errors import LeaseLostError, StoreError
from cpaas_provider.store.lookups import LookupMemory

if TYPE_CHECKING:
    from airflow.sdk import Context

    from cpaas_provider.hooks.connection import CpaasConnection
    from cpaas_provider.sending.campaign.partitions import Partition
    from cpaas_provider.sending.journal import Store

log = logging.getLogger(__name__)

_PARTS = "partitions"
_WITNESS = "cpaas_campaign"


def campaign_state(
    key: Any, partition: Partition, connection: CpaasConnection, context: Context, open_things: ExitStack
) -> WitnessedState:
    """Return what is kept of a campaign that happens once; nobody else can go on with it until the try ends.

    :raises AirflowException: when another task is at it, or the store cannot be used
    """
    if not isinstance(key, str) or not key.strip():
        raise AirflowFailException("campaign_key must be text that is not empty. Nothing was sent.")
    # The key may say something; what lies in the store does not. Nor does it go by a secret: with a new API key this
    # would be another campaign, and everybody be sent to again.
    name = Fingerprints(connection.base_url, campaign_identity(key)).lock
    owner = f"task instance {address_of(context)}"
    try:
        database = open_things.enter_context(open_store())
        _refuse_other_parts(CampaignState(database, f"{name}/{_PARTS}", name), partition)
        state = CampaignState(database, f"{name}/{partition.part}", owner)
        state.take()
    except StoreError as error:
        raise AirflowException(f"{error} Nothing was sent.") from None
    open_things.callback(_release, state)
    open_things.callback(_kept(state).set)
    witness = task_state(context)
    if witness is None:
        raise AirflowFailException("This task has no state to keep a word of its campaign in. Nothing was sent.")
    return WitnessedState(state, witness, name)


class WitnessedState:
    """A campaign's state in the store, whose first write leaves a word in the task's own state.

    A retry on a worker with a store of its own finds no journal there, and the word tells it that there was one.

    :param name: the campaign's name in the store
    """

    def __init__(self, state: CampaignState, witness: Store, name: str) -> None:
        self._state = state
        self._witness = witness
        self._name = name
        self._told = witness.get(_WITNESS) == name

    @property
    def lost(self) -> bool:
        """Whether an earlier try of this task instance claimed something that is not in this store."""
        return self._told and self._state.get(JOURNAL_KEY) is None

    def get(self, key: str) -> Any:
        """Return what is stored, or ``None``."""
        return self._state.get(key)

    def set(self, key: str, value: Any) -> None:
        """Store for good, before returning."""
        if not self._told:
            self._witness.set(_WITNESS, self._name)
            self._told = True
        self._state.set(key, value)


def lookup_memory(open_things: ExitStack) -> LookupMemory | None:
    """Return what remembers look-ups; without a store there is none."""
    try:
        return LookupMemory(open_things.enter_context(open_store()))
    except StoreError as error:
        log.warning("Look-ups are not remembered: %s", error)
        return None


def _refuse_other_parts(state: CampaignState, partition: Partition) -> None:
    """Refuse to go on in other parts than the campaign began in: each knows only whom it sent to itself."""
    before = state.get(_PARTS)
    if before is None:
        try:
            state.take()
            state.set(_PARTS, partition.of)
        except LeaseLostError:
            # Another part was quicker.
            before = state.get(_PARTS)
    if before is not None and before != partition.of:
        raise AirflowFailException(
            f"This campaign was begun in {before} parts, and would now go on in {partition.of}, which would send to "
            f"people twice. Nothing was sent. Map it over partitions({before}) again, or use another campaign_key."
        )


def _kept(state: CampaignState) -> threading.Event:
    """Renew a lease in the background, until the event is set."""
    ended = threading.Event()

    def renew() -> None:
        while not ended.wait(LEASE.total_seconds() / 5):
            try:
                state.renew()
            except StoreError as error:
                # The next write says so, where it matters.
                log.warning("%s", error)

    threading.Thread(target=renew, name="cpaas-lease", daemon=True).start()
    return ended


def _release(state: CampaignState) -> None:
    try:
        state.release()
    except StoreError as error:
        log.warning("%s", error)
