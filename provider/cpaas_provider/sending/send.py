"""The door of a single send: operators, the idempotent client, notifiers and commands make their request here."""

from __future__ import annotations

import logging
import secrets
from collections.abc import Sequence
from datetime import UTC, datetime
from typing import Any

from cpaas_provider.sending.engine import SendEngine
from cpaas_provider.sending.errors import PartlyRejectedError, ProbeLaterError
from cpaas_provider.sending.hashing import campaign_identity
from cpaas_provider.sending.journal.journal import Journal
from cpaas_provider.sending.journal.store import TryInfo
from cpaas_provider.sending.shutdown import StopSignal
from cpaas_provider.sending.single import SingleSendState
from cpaas_provider.sending.spec import Client, FrequencyCap, Outcome, SendSpec, SuppressionList, UnknownPolicy

log = logging.getLogger(__name__)


class NoReports:
    """Delivery tracking of a send without delivery reports. Others have the same methods."""

    def callback_url(self, reference: str, recipients: int) -> str | None:
        """Return the URL for the delivery reports of a request; ``None`` for no delivery reports."""
        return None

    def record_outcome(self, outcome: Outcome, recipients: Sequence[str], rejected: Sequence[str]) -> None:
        """Record the accepted requests for delivery tracking. This may block.

        :param rejected: the recipients that the service rejected from them
        """


class SendPorts:
    """What a send needs of who makes it. The defaults are those of a send that nothing guards.

    :param stop: ends the send
    :param suppressions: the stored suppression list; ``None`` without one
    """

    cli_address = ""
    """The task instance as an argument of `airflow cpaas journal`; empty outside of a task."""

    def __init__(self, stop: StopSignal, reports: NoReports, suppressions: SuppressionList | None = None) -> None:
        self.stop = stop
        self.reports = reports
        self.suppressions = suppressions

    def open_frequency_cap(self, send: str) -> FrequencyCap | None:
        """Return what counts messages to recipients over all sends; ``None`` without it.

        :param send: the name of this send, the same in all its tries
        """
        return None

    def check_may_send(self) -> None:
        """Raise if no request may leave. This may block."""


def open_send(spec: SendSpec, journal: Journal, ports: SendPorts) -> SingleSendState:
    """Return the status of the recipients of a send, as earlier tries left it."""
    cap = ports.open_frequency_cap(journal.log.reference((), spec.operation))
    return SingleSendState(spec, journal, ports.reports, suppressions=ports.suppressions, frequency_cap=cap)


async def send_once(
    state: SingleSendState, client: Client, ports: SendPorts, policy: UnknownPolicy, *, waits: bool = False
) -> Outcome:
    """Make the request to the remaining recipients, and resolve what is unknown. Record it for delivery tracking.

    :param waits: whether to wait here while a probe may still establish an outcome
    :return: the outcome of all tries
    :raises CpaasError: when the request was rejected or not sent
    :raises PartlyRejectedError: when the service accepted it for some recipients only. They are recorded all the same
    :raises ProbeLaterError: when a probe may establish an outcome later
    :raises SendingError: when the send ended for another reason, see its subclasses
    """
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
    except PartlyRejectedError:
        ports.reports.record_outcome(state.outcome(), state.spec.recipients, state.rejected())
        raise
    outcome = state.outcome()
    ports.reports.record_outcome(outcome, state.spec.recipients, state.rejected())
    return outcome


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
