"""One call of a notifier: it makes an alert, and sends a notification or leaves the alert to another process."""

from __future__ import annotations

import logging
import re
import secrets
import time
from collections.abc import Iterator, Mapping, Sequence
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any, ClassVar, Literal, Protocol

from cpaas_provider._common.rendering import typed
from cpaas_provider.api.amounts import counted
from cpaas_provider.api.errors import CpaasError
from cpaas_provider.api.text import placeholders_in
from cpaas_provider.api.text.sms import strip_byte_order_marks
from cpaas_provider.api.values import no_value_reason
from cpaas_provider.database.database import Database, open_database
from cpaas_provider.database.errors import DatabaseError
from cpaas_provider.notifications._runtime.alerts import AlertGroups, PendingAlerts, Timing
from cpaas_provider.notifications._runtime.events import AirflowEvent, read_event
from cpaas_provider.notifications._runtime.message import Alert, Batch, group_name, seal
from cpaas_provider.notifications._runtime.request import CALLER_SECONDS, KINDS, NotificationOutcome, send
from cpaas_provider.sending.errors import NoSenderError
from cpaas_provider.sending.requests.message import sender_of

if TYPE_CHECKING:
    from cpaas_provider.api.recipients.reader import RecipientKind
    from cpaas_provider.hooks.connection import CpaasConnection

log = logging.getLogger(__name__)

TIMING = Timing()
"""The times of alert groups: a caller must end within 20 seconds, when Airflow kills the process of an ended task."""

DATABASE_SECONDS = 10.0

MAX_STORED = 20_000
"""The most characters of a text that are stored with an alert. No message is as long, and a storm stores hundreds."""

_JINJA = re.compile(r"\{\{.*?\}\}|\{%.*?%\}|\{#.*?#\}", re.DOTALL)

_POLL_INTERVAL = 1.0
"""Seconds between two checks of a waiting caller whether it still has to send."""


class Notifier(Protocol):
    """What is read of a notifier, besides the templated fields."""

    channel: ClassVar[str]
    template_fields: Sequence[str]
    content: str | None
    window: timedelta
    include_link: bool

    def get_template_env(self, dag: Any = None) -> Any:
        """Return the environment that renders templates."""
        ...

    def render_template(self, content: Any, context: Any, jinja_env: Any = None) -> Any:
        """Return a rendered template."""
        ...


class NotSentError(Exception):
    """A notification cannot be sent, with the reason for the log."""


def run_notifier(notifier: Notifier, context: Mapping[str, Any]) -> Iterator[float]:
    """Make an alert, and send a notification or leave the alert to another process.

    It yields the seconds until its next step, so that the caller can wait in its own way. Errors are logged, and never
    raised into Airflow's callback.
    """
    # By the monotonic clock, and with the time that the database took.
    until = time.monotonic() + TIMING.max_wait.total_seconds()
    token: int | None = None
    try:
        event = read_event(context)
        fields = _render_fields(notifier, context)
        connection = _read_connection(fields["cpaas_conn_id"])
        alert = _make_alert(notifier, connection, event, fields)
        if not notifier.window:
            alerts = Batch(1, {event.subject: 1}, datetime.now(UTC), f"cpaas-{secrets.token_hex(10)}")
            send(alert, alerts, connection, seconds=CALLER_SECONDS, is_stored=False)
            return
        with _open_database() as database:
            groups = AlertGroups(database, TIMING)
            # Sender, recipients, kind and the author's texts make the group.
            identity = (alert.channel, fields["cpaas_conn_id"], alert.sender_id, *sorted(alert.recipients))
            texts = (str(notifier.content), str(getattr(notifier, "subject", None)), str(fields["group"]))
            name = group_name(connection.hash_secrets[0], event.kind, identity, texts)
            stored = seal(alert, connection.hash_secrets)
            token = groups.add(name, fields["cpaas_conn_id"], event.subject, stored, notifier.window)
            while token is not None and (due_in := groups.due_in(name, token)) is not None:
                seconds = min(_POLL_INTERVAL, due_in.total_seconds(), until - time.monotonic())
                if seconds > 0:
                    yield seconds
                    continue
                if (pending := groups.take(name, token)) is not None:
                    deliver(pending, alert, connection, groups, seconds=CALLER_SECONDS)
                return
            log.info("Alert added to the next notification, which another process sends.")
    except Exception as error:  # noqa: BLE001 - no error may hide the error of the task
        _log_failure(error, is_leader=token is not None)


def _log_failure(error: Exception, *, is_leader: bool) -> None:
    # Messages of other errors may show a number or an address.
    is_safe = isinstance(error, (NotSentError, CpaasError, DatabaseError))
    reason = error if is_safe else f"{type(error).__name__}."
    if is_leader:
        log.error("This process does not send the notification. The next one reports its alerts. %s", reason)
    else:
        log.error("A notification could not be sent. %s", reason)
    log.debug("A notifier failed.", exc_info=error)


def _render_fields(notifier: Notifier, event_context: Mapping[str, Any]) -> dict[str, Any]:
    """Return the templated fields, rendered. This does not change the notifier."""
    context: Any = {**_variables(), **event_context}
    rendered: dict[str, Any] = {}
    dag = context.get("dag")
    # The DAG in the context of ``dag.test()`` has no template environment.
    env = notifier.get_template_env(dag if hasattr(dag, "get_template_env") else None)
    for name in notifier.template_fields:
        try:
            # Recipients of a list that is rendered to text are recipients all the same: an alert has no second try.
            rendered[name] = typed(name, notifier.render_template(getattr(notifier, name), context, env))
        except Exception as error:  # noqa: BLE001 - a template may raise anything
            if name not in ("content", "subject", "from_name"):
                raise NotSentError(
                    f"The template of {name} cannot be rendered ({type(error).__name__}). Nothing was sent."
                ) from None
            log.warning("The template of %s cannot be rendered (%s). The default is sent.", name, type(error).__name__)
            rendered[name] = None
    return rendered


def _read_connection(conn_id: str) -> CpaasConnection:
    from cpaas_provider.hooks.cpaas import CpaasHook

    try:
        return CpaasHook(conn_id).get_connection_settings()
    except CpaasError:
        raise
    except Exception as error:  # noqa: BLE001 - a secrets backend may raise anything
        raise NotSentError(
            f"The connection {conn_id!r} could not be read ({type(error).__name__}). Nothing was sent."
        ) from None


def _make_alert(
    notifier: Notifier, connection: CpaasConnection, event: AirflowEvent, fields: Mapping[str, Any]
) -> Alert:
    kind = KINDS[notifier.channel]
    sender = fields["sender_id"]
    if sender is not None and (reason := no_value_reason(sender)):
        raise NotSentError(f"sender_id {reason} after rendering. Nothing was sent.")
    try:
        sender = sender_of(kind, sender, connection)
    except NoSenderError as error:
        advice = f"Set sender_id on the notifier, or {error.option} on the connection."
        raise NotSentError(f"No sender is set. {advice}") from None
    return Alert(
        notifier.channel,
        _recipients(connection, fields["recipients"], kind.channel.recipients),
        str(sender),
        _author_text("content", notifier, fields, connection),
        f"{event.subject} ({event.details})" if event.details else event.subject,
        event.link if notifier.include_link else None,
        getattr(notifier, "max_pages", 1),
        _author_text("subject", notifier, fields, connection),
        _author_text("from_name", notifier, fields, connection),
        getattr(notifier, "encoding", None),
    )


def _recipients(connection: CpaasConnection, given: Any, kind: RecipientKind) -> list[str]:
    """Return the valid and allowed recipients, each once."""
    found = connection.settings.recipient_reader(kind).read_list(given)
    if found.invalid:
        log.error("Recipients of the notifier left out as invalid: %s.", found.describe_invalid())
    if found.not_allowed:
        log.warning(
            "Recipients of the notifier left out by allowed_recipients of the connection: %s.", len(found.not_allowed)
        )
    if not found.allowed:
        raise NotSentError("The notifier has no valid and allowed recipient.")
    limit = connection.recipients_per_request
    if len(found.allowed) > limit:
        raise NotSentError(f"The notifier has {len(found.allowed)} recipients, and one request takes {limit} at most.")
    return list(found.allowed)


def _open_database() -> Database:
    try:
        return open_database(write_timeout=DATABASE_SECONDS)
    except DatabaseError as error:
        raise NotSentError(
            f"{error} Without it the number of notifications has no limit, so nothing was sent. A notifier with "
            "window=0 needs no database."
        ) from None


def deliver(
    pending: PendingAlerts,
    alert: Alert,
    connection: CpaasConnection,
    groups: AlertGroups,
    *,
    seconds: float | None = None,
) -> NotificationOutcome:
    """Send the notification about alerts that are recorded as in flight, and record its outcome.

    If the outcome cannot be recorded, it counts as unknown, so the notification is not sent again.

    :param alert: the newest of the alerts, which gives the recipients and the texts
    :param seconds: the longest wait for a response; ``None`` for that of the connection
    """
    if pending.unrecorded:
        log_unrecorded(pending.conn_id, pending.unrecorded)
    reference = f"cpaas-{group_name(pending.name, pending.token)[:20]}"
    alerts = Batch(pending.count, pending.subjects, pending.first_at, reference)
    outcome = send(alert, alerts, connection, seconds=seconds)
    try:
        groups.finish(pending, not_sent=outcome is NotificationOutcome.NOT_SENT)
    except DatabaseError as error:
        log.error(  # noqa: TRY400 - a traceback may show values
            "The outcome (%s) could not be recorded, so no other notification reports these alerts. %s",
            outcome.value,
            error,
        )
    return outcome


def log_unrecorded(conn_id: str, alerts: int) -> None:
    """Log a notification whose sender ended before it recorded the outcome."""
    log.error(
        "A notification by connection %r about %s has no recorded outcome: its sender ended early. It may have been "
        "sent, so it is not sent again.",
        conn_id,
        counted(alerts, "alert"),
    )


def _author_text(name: str, notifier: Notifier, fields: Mapping[str, Any], connection: CpaasConnection) -> str | None:
    """Return a text of the author, rendered; ``None`` for the default.

    The default replaces a text without a value, and one that the author wrote with a placeholder, which no notification
    fills. Half characters, which UTF-8 cannot encode, are replaced.
    """
    value = fields.get(name)
    if value is None:
        return None
    # What the event's own texts have in braces is no placeholder.
    written = _JINJA.sub("", str(getattr(notifier, name)))
    reason = no_value_reason(str(value))
    if placeholders := placeholders_in(written, connection.placeholder_format):
        reason = f"has placeholders ({', '.join(placeholders)}), which a notification cannot fill"
    if reason:
        log.warning("%s %s. The default is sent.", name, reason)
        return None
    return strip_byte_order_marks(str(value)).strip()[:MAX_STORED].encode("utf-8", "replace").decode()


def _variables() -> dict[Literal["var"], Any]:
    """Return Airflow's variables for templates, because the context of a deadline lacks them."""
    from airflow.sdk.execution_time.context import VariableAccessor

    return {"var": {"json": VariableAccessor(deserialize_json=True), "value": VariableAccessor(deserialize_json=False)}}
