"""The request for a notification, and the log lines about its outcome."""

from __future__ import annotations

import contextlib
import logging
import threading
from collections.abc import Iterator
from enum import Enum
from typing import TYPE_CHECKING, Any

from msgspec.structs import replace

from cpaas_provider.api.amounts import counted
from cpaas_provider.api.errors import CpaasConfigurationError, CpaasError, CpaasNotSentError, CpaasUnknownOutcomeError
from cpaas_provider.api.text import one_line
from cpaas_provider.notifications._runtime.message import Alert, Batch, email_texts, sms_text
from cpaas_provider.sending.requests.message import EMAIL, SMS, MessageSpec

if TYPE_CHECKING:
    from cpaas_provider.api.client import CpaasClient
    from cpaas_provider.api.settings import ClientOptions
    from cpaas_provider.hooks.connection import CpaasConnection

log = logging.getLogger(__name__)

KINDS = {"sms": SMS, "email": EMAIL}
"""The kind of message of each channel of notifiers."""

CONNECT_SECONDS = 3.0
CALLER_SECONDS = 5.0
"""The longest wait of a caller for a response: Airflow kills its process 20 seconds after the task has ended."""

BACKGROUND_SECONDS = 30.0
"""The longest time for a notification of the background sender, which has others to send."""

_UNKNOWN = "Notification %s about %s is of unknown outcome. It may have been sent, so it is not sent again. %s"


class NotificationOutcome(Enum):
    """How the request for a notification ended."""

    ACCEPTED = "accepted"
    NOT_SENT = "not sent"
    REJECTED = "rejected"
    UNKNOWN = "unknown"


def send(
    alert: Alert,
    alerts: Batch,
    connection: CpaasConnection,
    *,
    seconds: float | None = None,
    is_stored: bool = True,
) -> NotificationOutcome:
    """Send a notification, and log what was sent and what was not.

    :param alert: the newest of the alerts, which gives the recipients and the texts
    :param seconds: the longest wait for a response; ``None`` for that of the connection
    :param is_stored: whether alerts that were not sent wait for another notification
    """
    about = counted(alerts.count, "alert")
    try:
        # An alert may be about the database itself.
        client = _shorten_timeouts(connection, seconds).make_client(needs_database=False)
        with client, _limit_time(client, seconds):
            spec = _build_spec(alert, alerts)
            response = client.run(spec.build_call(spec.recipients, alerts.reference, None))
            rejected = len(spec.read_result(response, repeated=False).rejected)
    except (CpaasConfigurationError, CpaasNotSentError) as error:
        what_next = "The next one reports them." if is_stored else "They are not stored, so no other one reports them."
        log.warning("Notification not sent, alerts: %s. %s %s", alerts.count, what_next, error)
        return NotificationOutcome.NOT_SENT
    except CpaasUnknownOutcomeError as error:
        log.warning(_UNKNOWN, alerts.reference, about, error)
        return NotificationOutcome.UNKNOWN
    except CpaasError as error:
        log.error(  # noqa: TRY400 - a traceback may show values
            "Notification about %s was rejected. Nothing was sent, and it is not sent again. %s", about, error
        )
        return NotificationOutcome.REJECTED
    except Exception as error:
        log.error(_UNKNOWN, alerts.reference, about, f"{type(error).__name__}.")  # noqa: TRY400 - as above
        log.debug("What failed in a notification.", exc_info=error)
        return NotificationOutcome.UNKNOWN
    log.info(
        "Notification sent: %s, alerts: %s, recipients: %s, reference: %s.",
        alert.channel,
        alerts.count,
        len(alert.recipients) - rejected,
        alerts.reference,
    )
    if rejected:
        log.error("The service rejected %s of this notification.", counted(rejected, "recipient"))
    return NotificationOutcome.ACCEPTED


def _shorten_timeouts(connection: CpaasConnection, seconds: float | None) -> CpaasConnection:
    """Return the connection with at most one retry and short timeouts; unchanged if ``seconds`` is ``None``."""
    if seconds is None:
        return connection
    settings = connection.settings
    limits: ClientOptions = {
        "connect_timeout": min(settings.connect_timeout, CONNECT_SECONDS),
        "timeout": min(settings.timeout, seconds),
        "max_retries": min(settings.max_retries, 1),
        "max_retry_after": 1.0,
    }
    return replace(connection, options={**connection.options, **limits})


@contextlib.contextmanager
def _limit_time(client: CpaasClient, seconds: float | None) -> Iterator[None]:
    """Limit the time of a client as a whole, including waits for a rate limit and responses that arrive slowly."""

    def end() -> None:
        client.stop()
        if seconds is not None:
            client.close()

    timer = threading.Timer(BACKGROUND_SECONDS if seconds is None else CONNECT_SECONDS + seconds, end)
    timer.daemon = True
    timer.start()
    try:
        yield
    finally:
        timer.cancel()


def _build_spec(alert: Alert, alerts: Batch) -> MessageSpec:
    """Return the notification. Its texts are complete: what they have in braces is no placeholder."""
    kind = KINDS[alert.channel]
    body: dict[str, Any] = {"sender_id": alert.sender_id}
    if kind is SMS:
        body |= {"content": sms_text(alert, alerts), "channel": "sms"}
    else:
        body["subject"], body["content"] = email_texts(alert, alerts)
        body["from_name"] = one_line(alert.from_name or "") or None
    return MessageSpec(
        operation=kind.channel.endpoint.operation, recipients=tuple(alert.recipients), body=body, kind=kind
    )
