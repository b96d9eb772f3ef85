"""The idempotent client: sends, purchases and passcodes of a ``@task`` function, at most once across its tries."""

from __future__ import annotations

import asyncio
import logging
import signal
import threading
import time
from collections import deque
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from types import FrameType
from typing import TYPE_CHECKING, Any, Self
from weakref import WeakValueDictionary

from airflow.sdk import timezone
from airflow.sdk.exceptions import AirflowFailException
from msgspec.structs import replace

from cpaas_provider.api.values import no_value_reason
from cpaas_provider.sending.errors import NoRecipientsError, RunNotAllowedError
from cpaas_provider.sending.journal.journal import Journal
from cpaas_provider.sending.journal.model import State
from cpaas_provider.sending.requests.message import EMAIL, SMS, MessageRequest
from cpaas_provider.sending.requests.phone import AirtimeRequest, OtpRequest
from cpaas_provider.sending.shutdown import StopSignal
from cpaas_provider.sending.spec import SendOutcome
from cpaas_provider.tasks import validators
from cpaas_provider.tasks.airflow.context import SKIP_REASON_KEY
from cpaas_provider.tasks.delivery.reports import ReportOptions
from cpaas_provider.tasks.errors import PreflightError
from cpaas_provider.tasks.runner import airflow_exception
from cpaas_provider.tasks.runtime import TaskRuntime
from cpaas_provider.tasks.single.send import SendOptions, SingleSender, open_journal

if TYPE_CHECKING:
    from airflow.sdk import Context

    from cpaas_provider.sending.requests.request import SingleRequest
    from cpaas_provider.sending.single import SingleSendState
    from cpaas_provider.tasks.runtime import Hook

log = logging.getLogger(__name__)

_MADE = frozenset({State.PENDING, State.ACCEPTED, State.UNKNOWN})


@dataclass(eq=False)
class SharedJournal:
    """The journal of a task that makes several sends, one at a time, through one connection.

    :param opened_by: the try of the client that opened the journal
    """

    journal: Journal
    opened_by: TaskRuntime
    lock: threading.Lock = field(default_factory=threading.Lock)


_open_journals: WeakValueDictionary[tuple[Any, int], SharedJournal] = WeakValueDictionary()
"""The journals of this process, by task instance and try. Two clients of one task share one, and lose no entry."""
_uncertain_journals: deque[SharedJournal] = deque(maxlen=100)
"""Journals whose last write failed, so that they stay open. The write may still be carried out, and another client of
the try must not store another value under its key."""

_opening = threading.Lock()
_connections: dict[tuple[Any, int], str] = {}
"""The connections of the last tries of this process, also after their clients are closed."""
_MOST_CONNECTIONS = 1_000


class IdempotentClient:
    """Sends, purchases and passcodes of a task, each at most once across its tries, as the operators make them.

    Each request is recorded in the task's journal before it leaves. A retry returns the results of accepted requests
    without a request, and makes only what is left. The task may call a method in a loop. Two sends of one task
    differ by operation, recipient and ``idempotency_key``, not by content or order:

    * A second call with the same recipient and content sends nothing and returns the first result.
    * A second call with the same recipient and other content in the same try fails. To send both, give each its own
      ``idempotency_key``, such as the number of the order.
    * In a later try other content for a recipient that was sent to is not sent. The log has a warning.

    Requests are made one after the other, also from several threads or coroutines. A task has one connection.

    Methods return the same mapping as their operators. A request that the service rejects or that was not sent raises
    ``CpaasError``, as without this client. If the outcome of a request is unknown, ``on_unknown`` decides.

    Open the client in a ``with`` block. If a function of another module opens it, open it first in the task: a task
    that is killed before that, and is then cleared, has no journal, so its sends count as unknown.

    :param options: all arguments of ``CpaasHook.get_idempotent_client`` but the context
    :raises ValueError: when one of them cannot be used
    """

    def __init__(self, hook: Hook, context: Context, **options: Any) -> None:
        checked = _checked(options)
        task: Any = context["task"]
        started = context["ti"].start_date
        began = time.monotonic()
        if started is not None:
            began -= max(0.0, (timezone.utcnow() - started).total_seconds())
        self._stop: StopSignal = StopSignal(checked.pop("stop_grace_period"), task.execution_timeout, began)
        self._runtime = TaskRuntime(context, hook, retries=task.retries, stop=self._stop, log=task.log)
        self._track_recipients: bool = checked.pop("track_recipients")
        self._options = SendOptions(**checked)
        self._journal: SharedJournal | None = None
        self._previous_handler: Any = None

    def __enter__(self) -> Self:
        """Listen for the stop of the task."""
        if threading.current_thread() is threading.main_thread():
            self._previous_handler = signal.signal(signal.SIGTERM, self._on_stop)
        return self

    def __exit__(self, *exception: object) -> None:
        """Close the client."""
        self.close()

    def close(self) -> None:
        """Close the client, and record where this try has sent nothing."""
        self.stop_listening()
        self.release()

    def stop_listening(self) -> None:
        """Leave the stop of the task to the handler that was set before; only in the thread that entered the block."""
        if self._previous_handler is not None:
            signal.signal(signal.SIGTERM, self._previous_handler)
            self._previous_handler = None

    def release(self) -> None:
        """Record where this try has sent nothing, and close the connections; this may block."""
        try:
            with _opening:
                shared = _open_journals.get(self._which)
                if shared is not None and shared.opened_by is self._runtime and shared.journal.log.write_failed:
                    _uncertain_journals.append(shared)
                    self._runtime.exit_stack.pop_all()
                    return
                # A client that opens the journal again would end the writes of the one that has it open.
                if shared is None or shared.opened_by is self._runtime:
                    self._runtime.record_nothing_sent()
        finally:
            self._runtime.exit_stack.close()

    def send_sms(
        self,
        recipients: str | Sequence[str],
        content: str | None = None,
        *,
        sender_id: str | None = None,
        template_id: str | None = None,
        personalisation: Sequence[Mapping[str, Any]] | None = None,
        channel: str = "sms",
        is_trackable: bool | None = None,
        encoding: str | None = None,
        external_ref: str | None = None,
        callback: str | None = None,
        idempotency_key: str | None = None,
    ) -> dict[str, Any]:
        """Send one SMS to one or more recipients. ``SendSmsOperator`` describes the arguments and what is returned.

        :param idempotency_key: the name of a deliberate repetition to a recipient
        """
        try:
            validators.sms_encoding(channel)("encoding", encoding)
        except ValueError as error:
            raise ValueError(f"{error} Nothing was sent.") from None
        body = {"content": content, "template_id": template_id, "channel": channel, "is_trackable": is_trackable}
        request = MessageRequest(SMS, recipients, sender_id, body, personalisation, external_ref, encoding)
        return self._send(request, self._report_options(request, callback), idempotency_key)

    def send_email(
        self,
        recipients: str | Sequence[str],
        content: str | None = None,
        *,
        subject: str | None = None,
        sender_id: str | None = None,
        from_name: str | None = None,
        reply_to: str | None = None,
        template_id: str | None = None,
        personalisation: Sequence[Mapping[str, Any]] | None = None,
        external_ref: str | None = None,
        callback: str | None = None,
        idempotency_key: str | None = None,
    ) -> dict[str, Any]:
        """Send one email to one or more recipients. ``SendEmailOperator`` describes the arguments and what is returned.

        :param idempotency_key: the name of a deliberate repetition to a recipient
        """
        body = {
            "content": content,
            "subject": subject,
            "template_id": template_id,
            "from_name": from_name,
            "reply_to": reply_to,
        }
        request = MessageRequest(EMAIL, recipients, sender_id, body, personalisation, external_ref)
        return self._send(request, self._report_options(request, callback), idempotency_key)

    def request_otp(
        self,
        recipient: str,
        *,
        length: int | None = None,
        expires_in: int | None = None,
        token: str | None = None,
        channel: str | None = None,
        idempotency_key: str | None = None,
    ) -> dict[str, Any]:
        """Request a one-time passcode. ``RequestOtpOperator`` describes the arguments and what is returned.

        :param idempotency_key: the name of a deliberate repetition to a recipient
        """
        request = OtpRequest(recipient, length, expires_in, token, channel)
        return self._send(request, ReportOptions(), idempotency_key)

    def buy_airtime(
        self,
        network: str,
        amount: float,
        recipient: str,
        *,
        external_ref: str | None = None,
        callback: str | None = None,
        idempotency_key: str | None = None,
    ) -> dict[str, Any]:
        """Buy airtime for a phone. ``BuyAirtimeOperator`` describes the arguments and what is returned.

        :param idempotency_key: the name of a deliberate repetition to a recipient
        """
        request = AirtimeRequest(recipient, network, amount, external_ref)
        return self._send(request, self._report_options(request, callback), idempotency_key)

    def _report_options(self, request: MessageRequest | AirtimeRequest, callback: str | None) -> ReportOptions:
        return ReportOptions(request.operation, callback, request.external_ref, self._track_recipients)

    def _send(self, request: SingleRequest, reported: ReportOptions, key: str | None) -> dict[str, Any]:
        if key is not None and (not isinstance(key, str) or no_value_reason(key)):
            raise ValueError("idempotency_key must be text with a value.")
        try:
            with _opening:
                journal = self._find_journal()
            with journal.lock:
                return self._send_once(journal.journal, request, reported, key)
        except RunNotAllowedError as error:
            if self._journal is not None and SendOutcome.of(self._journal.journal.records):
                raise AirflowFailException(
                    f"{error} An earlier request of this task was sent, or may have been sent."
                ) from None
            self._runtime.push_or_warn(SKIP_REASON_KEY, str(error))
            raise airflow_exception(error) from None
        except Exception as error:
            ours = airflow_exception(error)
            if ours is error:
                raise
            raise ours from None

    def _send_once(
        self, journal: Journal, request: SingleRequest, reported: ReportOptions, key: str | None
    ) -> dict[str, Any]:
        sender = SingleSender(request, self._options, reported, self._runtime)
        try:
            spec = request.build_spec(self._runtime.connection, sender.reports.probes())
        except NoRecipientsError as error:
            log.warning("%s", error)
            return sender.build_result(SendOutcome(not_allowed=error.not_allowed))
        if key is not None:
            # Keyed, as a key may be a number or an address.
            scope = journal.log.hasher.body({"idempotency_key": key})[:16]
            spec = replace(spec, operation=f"{spec.operation}/{scope}")
        state = sender.open_state(spec, journal)
        self._check_content(state)
        outcome = sender.send(state, waits=True)
        try:
            sender.check_left_out(outcome)
        except NoRecipientsError as error:
            log.warning("%s", error)
        result = sender.build_result(outcome)
        if "recipients" in result:
            latest = state.latest().values()
            result["recipients"] = sum(1 for entry in latest if entry and entry.state is State.ACCEPTED)
        return result

    def _check_content(self, state: SingleSendState) -> None:
        """Refuse other content for a recipient that this try has sent to. It would be left out without an error."""
        latest = state.latest()
        changed = sum(
            1
            for entry in latest.values()
            if entry is not None
            and entry.try_number == self._runtime.try_info.number
            and entry.state in _MADE
            and state.is_changed(entry)
        )
        if changed:
            raise AirflowFailException(
                f"This task has sent other content to {changed} of {len(latest)} recipients of this call. "
                "This call sent nothing. If both are wanted, give this call an idempotency_key of its own. A call that "
                "was made is made again if its key changes. If that cannot be avoided, do not clear this task: send "
                "the rest in a new run."
            )

    @property
    def _which(self) -> tuple[Any, int]:
        """The task instance and the try."""
        instance: Any = self._runtime.context["ti"]
        return instance.id, instance.try_number

    def _find_journal(self) -> SharedJournal:
        if self._journal is None:
            runtime, which = self._runtime, self._which
            conn_id = _connections.setdefault(which, runtime.conn_id)
            if conn_id != runtime.conn_id:
                raise PreflightError(
                    f"This task already sends through connection {conn_id!r}, and a task's journal belongs to "
                    "one connection. Nothing was sent. Send through the other connection in a task of its own.",
                    permanent=True,
                )
            if len(_connections) > _MOST_CONNECTIONS:
                del _connections[next(iter(_connections))]
            found = _open_journals.get(which)
            if found is None:
                found = SharedJournal(open_journal(runtime, self._options, several=True), runtime)
                _open_journals[which] = found
            self._journal = found
        return self._journal

    def _on_stop(self, number: int, frame: FrameType | None) -> None:
        self._stop.request()
        if callable(self._previous_handler):
            self._previous_handler(number, frame)


class AsyncIdempotentClient:
    """``IdempotentClient`` for code on an event loop. Its methods take and return the same.

    Requests are made one after the other, in threads.
    """

    def __init__(self, client: IdempotentClient) -> None:
        self._client = client

    async def __aenter__(self) -> Self:
        """Listen for the stop of the task."""
        self._client.__enter__()
        return self

    async def __aexit__(self, *exception: object) -> None:
        """Close the client."""
        await self.close()

    async def close(self) -> None:
        """Close the client, and record where this try has sent nothing."""
        self._client.stop_listening()
        await asyncio.to_thread(self._client.release)

    async def send_sms(self, *args: Any, **kwargs: Any) -> dict[str, Any]:
        """Send one SMS, as ``IdempotentClient.send_sms`` does."""
        return await asyncio.to_thread(self._client.send_sms, *args, **kwargs)

    async def send_email(self, *args: Any, **kwargs: Any) -> dict[str, Any]:
        """Send one email, as ``IdempotentClient.send_email`` does."""
        return await asyncio.to_thread(self._client.send_email, *args, **kwargs)

    async def request_otp(self, *args: Any, **kwargs: Any) -> dict[str, Any]:
        """Request a one-time passcode, as ``IdempotentClient.request_otp`` does."""
        return await asyncio.to_thread(self._client.request_otp, *args, **kwargs)

    async def buy_airtime(self, *args: Any, **kwargs: Any) -> dict[str, Any]:
        """Buy airtime, as ``IdempotentClient.buy_airtime`` does."""
        return await asyncio.to_thread(self._client.buy_airtime, *args, **kwargs)


def _checked(options: Mapping[str, Any]) -> dict[str, Any]:
    """Return the options as they are used; those that cannot work are refused before anything is sent."""
    try:
        return {name: validators.OPTION_CHECKS[name](name, value) for name, value in options.items()}
    except ValueError as error:
        raise ValueError(f"get_idempotent_client: {error} Nothing was sent.") from None
