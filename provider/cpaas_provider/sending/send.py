"""One request, sent once: operators, the idempotent client and commands call ``send_once``."""

from __future__ import annotations

import logging
import secrets
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from typing import Any, Protocol

from cpaas_provider.api.errors import CpaasError
from cpaas_provider.sending.engine import SendEngine, TryPorts
from cpaas_provider.sending.errors import ProbeLaterError, SendingError, StoppedError, TrySupersededError
from cpaas_provider.sending.journal.hashing import campaign_identity
from cpaas_provider.sending.journal.journal import Journal
from cpaas_provider.sending.journal.store import TryInfo
from cpaas_provider.sending.shutdown import in_thread
from cpaas_provider.sending.single import SingleSendState
from cpaas_provider.sending.spec import Client, Delivery, SendOutcome, UnknownPolicy

log = logging.getLogger(__name__)


class SendReports(Delivery, Protocol):
    """What a single send needs of delivery tracking."""

    def record_outcome(self, outcome: SendOutcome, members: Mapping[bytes, str]) -> None:
        """Record the accepted requests. This may block.

        :param members: the recipients of this try, by their hashes in the journal
        """


class NoReports:
    """Delivery tracking of a send without delivery reports."""

    def callback_url(self, reference: str, recipients: int) -> str | None:
        """Return ``None``: the service sends no delivery reports."""
        return None

    def record_outcome(self, outcome: SendOutcome, members: Mapping[bytes, str]) -> None:
        """Record nothing."""


async def send_once(
    state: SingleSendState,
    client: Client,
    ports: TryPorts,
    reports: SendReports,
    policy: UnknownPolicy,
    *,
    waits: bool = False,
) -> SendOutcome:
    """Make the request to the remaining recipients, and resolve what is unknown.

    What the service accepted is recorded for delivery tracking, also if the send fails.

    :param state: the recipients of the request, and what the journal knows of them
    :param ports: the stop signal, and what else the send needs of who makes it
    :param waits: whether to wait here while a probe may still establish an outcome
    :return: the outcome of all tries
    :raises CpaasError: when the request was rejected or not sent
    :raises PartlyRejectedError: when the service accepted it for some recipients only
    :raises ProbeLaterError: when a probe may establish an outcome later
    :raises SendingError: when the send ended for another reason, see its subclasses
    """

    def record() -> SendOutcome:
        outcome = state.outcome()
        reports.record_outcome(outcome, state.by_member)
        return outcome

    engine = SendEngine(state, client, ports, policy)
    try:
        while True:
            try:
                await engine.run()
                break
            except ProbeLaterError as later:
                if not waits:
                    raise
                log.warning("%s Waiting until %s.", later, later.until.isoformat(timespec="seconds"))
                await ports.stop.sleep(max(0.0, (later.until - datetime.now(UTC)).total_seconds()))
    except (CpaasError, SendingError) as error:
        # What was accepted is tracked also if the task fails, as no later try may follow.
        if state.outcome().accepted and not isinstance(error, (ProbeLaterError, StoppedError, TrySupersededError)):
            await in_thread(record)
        raise
    return await in_thread(record)


class _MemoryStore:
    """The store of a journal that ends with the process."""

    def __init__(self) -> None:
        self._values: dict[str, Any] = {}

    def get(self, key: str) -> Any:
        return self._values.get(key)

    def set(self, key: str, value: Any) -> None:
        self._values[key] = value

    def delete(self, key: str) -> None:
        self._values.pop(key, None)


def open_memory_journal(hash_secrets: Sequence[str]) -> Journal:
    """Return the journal of a send that no other process continues.

    :param hash_secrets: the connection's secrets, of which the first keys the hashes
    """
    identity = campaign_identity(secrets.token_hex(16))
    return Journal(_MemoryStore(), hash_secrets, identity, TryInfo(1, 0, 0))
