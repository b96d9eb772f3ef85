"""One request from the command line, at most once for each idempotency key, with the engine that tasks use."""

from __future__ import annotations

import asyncio
import contextlib
import secrets
import signal
import socket
from argparse import Namespace
from collections.abc import AsyncIterator, Callable, Iterator, Sequence
from dataclasses import dataclass
from datetime import timedelta

from msgspec import Struct
from msgspec.structs import replace

from cpaas_provider.api.amounts import counted
from cpaas_provider.api.errors import CpaasError
from cpaas_provider.cli.messages.suppressions import all_suppressed
from cpaas_provider.cli.messages.tracking import Tracking
from cpaas_provider.cli.running import STOPPED, UNKNOWN
from cpaas_provider.cli.terminal import warn
from cpaas_provider.database.database import Database
from cpaas_provider.database.registry import CampaignKey, open_campaign
from cpaas_provider.hooks.connection import CpaasConnection
from cpaas_provider.sending.errors import (
    ChangedBodyError,
    PartlyRejectedError,
    ProbeFailedError,
    ResendLimitError,
    StoppedError,
    UnknownOutcomeError,
    join_references,
)
from cpaas_provider.sending.journal.hashing import campaign_identity
from cpaas_provider.sending.journal.journal import Journal
from cpaas_provider.sending.journal.model import RequestRecord, State, members_of
from cpaas_provider.sending.journal.store import TryInfo
from cpaas_provider.sending.resolver import describe_unknown
from cpaas_provider.sending.send import NoReports, SendReports, open_memory_journal, send_once
from cpaas_provider.sending.shutdown import StopSignal
from cpaas_provider.sending.single import SingleSendState
from cpaas_provider.sending.spec import (
    OnUnknown,
    SendOutcome,
    SendSpec,
    SuppressionList,
    UnknownPolicy,
    channel_of,
)

GRACE_SECONDS = 10.0
"""How long the command waits for a response after Ctrl-C, in seconds."""


class Sent(Struct, frozen=True):
    """The result for the recipients of this run, whichever run with the same idempotency key sent to them.

    :param recipients: the number of recipients of this run that the service accepted
    :param changed: the number of these that an earlier run sent other content to
    :param partly: why the service rejected some of the recipients
    """

    outcome: SendOutcome
    recipients: int
    changed: int
    partly: str | None


@dataclass
class _Ports:
    """What the engine needs of a command."""

    stop: _CommandStop
    tracking: Tracking | None
    resends: int = 0
    cli_address = ""

    def check_may_send(self) -> None:
        """Raise if delivery reports would be lost."""
        if self.tracking is not None:
            self.tracking.check()


def run_request(
    spec: SendSpec,
    args: Namespace,
    connection: CpaasConnection,
    database: Database | None,
    tracking: Tracking | None = None,
    *,
    suppressions: SuppressionList | None = None,
    wait: timedelta = timedelta(),
) -> Sent:
    """Make one request, unless an earlier run with the same idempotency key has made it.

    :param database: the database that stores the key; ``None`` without a key
    :param suppressions: the suppression list
    :param wait: how long to wait for the probe of an unknown outcome
    :raises CpaasError: when nothing was sent
    :raises SystemExit: when the outcome is unknown, or the command was stopped
    """
    key = getattr(args, "idempotency_key", None)
    on_unknown = OnUnknown.RESEND if getattr(args, "resend_unknown", False) else OnUnknown.SKIP
    policy = UnknownPolicy(on_unknown, wait, spec.probes)
    with _open_journal(spec, key, args.conn_id, connection, database) as journal, _stopped_by_signals() as stop:
        reports = tracking or NoReports()
        state = SingleSendState(spec, journal, reports, suppressions=suppressions)
        earlier = {record.number for record in journal.records}
        partly = None
        try:
            asyncio.run(_run(state, connection, _Ports(stop, tracking), reports, policy))
        except PartlyRejectedError:
            rejected = [entry for entry in state.records if entry.state is State.REJECTED]
            partly = rejected[-1].reason if rejected else None
        except ChangedBodyError:
            outcome = state.outcome()
            if earlier.issuperset(entry.number for entry in outcome.unknown):
                sent = [entry for entry in outcome.accepted if entry.number not in earlier]
                raise SystemExit(_describe_changed(sent)) from None
        except (ProbeFailedError, ResendLimitError, UnknownOutcomeError):
            # They advise what to do with a task. The unknown outcome is described below.
            pass
        except CpaasError as error:
            if not state.outcome().unknown_recipients:
                raise
            warn(str(error))
        except (StoppedError, KeyboardInterrupt, asyncio.CancelledError):
            unsent = set(state.remaining(state.latest())) - state.suppressed
            # Those that an earlier run sent to make no success of a run that did not send to the others.
            if unsent and not state.outcome().unknown:
                warn("Nothing was sent: the command was stopped by Ctrl-C.")
                raise SystemExit(STOPPED) from None
            reports.record_outcome(state.outcome(), state.by_member)
    outcome = state.outcome()
    if outcome.unknown_recipients:
        _end_unknown(spec.operation, outcome, key)
    reached = [entry for entry in state.latest().values() if entry is not None and entry.state is State.ACCEPTED]
    if outcome.suppressed and not reached:
        raise all_suppressed(outcome.suppressed)
    # Earlier runs with the key may have sent to others, too.
    references = {entry.reference for entry in reached}
    accepted = tuple(entry for entry in outcome.accepted if entry.reference in references)
    changed = sum(entry.number in earlier and state.is_changed(entry) for entry in reached)
    return Sent(replace(outcome, accepted=accepted), len(reached), changed, partly)


async def _run(
    state: SingleSendState, connection: CpaasConnection, ports: _Ports, reports: SendReports, policy: UnknownPolicy
) -> None:
    async with ports.stop.cancelling(), await asyncio.to_thread(connection.make_async_client) as client:
        await send_once(state, client, ports, reports, policy, waits=True)


def _describe_changed(sent: Sequence[RequestRecord]) -> str:
    """Return that an earlier run with the key had other content, and what this run sent.

    :param sent: the requests of this run that the service accepted
    """
    words = "An earlier run with this --idempotency-key had other content, and its outcome is unknown."
    if not sent:
        return f"{words} Nothing was sent. Use the same content, or another key."
    return (
        f"{words} Its recipients were not sent to again. The service accepted this content for "
        f"{counted(len(members_of(sent)), 'other recipient')}, references: "
        f"{join_references([entry.reference for entry in sent])}. To send to the recipients of the earlier run, name "
        "them alone, and use the same content, or another key."
    )


def _end_unknown(operation: str, outcome: SendOutcome, key: str | None) -> None:
    """Describe the unknown outcome, and end the command."""
    twice = "get a second passcode" if operation == "request_otp" else "get the message twice"
    warn(describe_unknown(outcome.unknown, outcome.unknown_recipients))
    warn(
        f"Do not simply run the command again: recipients could {twice}. Look into the service's own records first, by "
        "recipient and time, or by the reference."
    )
    if key is not None:
        warn("With this --idempotency-key it is not sent again, unless you give --resend-unknown.")
    raise SystemExit(UNKNOWN)


class _CommandStop(StopSignal):
    """A stop signal that Ctrl-C and SIGTERM set. A second one ends the command at once."""

    def __init__(self) -> None:
        super().__init__(GRACE_SECONDS)
        self._cancel: Callable[[], object] | None = None

    def on_signal(self, _number: int, _frame: object) -> None:
        """Handle a signal."""
        if not self.requested:
            warn(f"Stopping. A response to a request in flight is waited for, up to {GRACE_SECONDS:.0f} seconds.")
            self.request()
            return
        if self._cancel is None:
            raise KeyboardInterrupt
        # Raised within the event loop, KeyboardInterrupt can lose the callback that the loop was about to run. Its task
        # would never end, and neither would the command. A third signal raises it all the same.
        cancel, self._cancel = self._cancel, None
        cancel()

    @property
    def reason(self) -> str:
        """Why the command ends, as a sentence."""
        return "A signal stopped the command."

    @contextlib.asynccontextmanager
    async def cancelling(self) -> AsyncIterator[None]:
        """Let a second signal cancel the task that runs this block."""
        loop, task = asyncio.get_running_loop(), asyncio.current_task()
        assert task is not None  # noqa: S101 - a coroutine runs in a task
        self._cancel = lambda: loop.call_soon_threadsafe(task.cancel)
        try:
            yield
        finally:
            self._cancel = None


@contextlib.contextmanager
def _stopped_by_signals() -> Iterator[_CommandStop]:
    """Yield a stop signal that signals set."""
    stop = _CommandStop()
    before = {number: signal.signal(number, stop.on_signal) for number in (signal.SIGINT, signal.SIGTERM)}
    try:
        yield stop
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


@contextlib.contextmanager
def _open_journal(
    spec: SendSpec, key: str | None, conn_id: str, connection: CpaasConnection, database: Database | None
) -> Iterator[Journal]:
    if key is None or database is None:
        # Each run is a separate send.
        yield open_memory_journal(connection.hash_secrets)
        return
    owner = f"airflow cpaas on {socket.gethostname()}"
    # A campaign of a task may have the same key. The prefix keeps both apart.
    channel = channel_of(spec.operation, spec.body)
    name = CampaignKey(conn_id, channel, f"airflow cpaas {spec.operation} {key}", connection.base_url)
    # The random part makes a second run on this machine another owner.
    campaign = open_campaign(database, name, (0, 1), f"{owner} ({secrets.token_hex(3)})")
    try:
        tries = TryInfo(1, 1, 1, run=secrets.token_hex(6))
        yield Journal(campaign.state, (campaign.secret,), campaign_identity(name.key), tries)
    finally:
        with contextlib.suppress(Exception):  # the lease ends by itself
            campaign.state.release()
