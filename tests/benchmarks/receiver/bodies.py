"""The kinds of report that are sent: each asks something else of who takes them."""

from __future__ import annotations

from collections.abc import Callable

from cpaas_provider.delivery.callbacks.signatures import sign

WEBHOOK_SECRET = "whsec_bench"
SIGNATURE_HEADER = "X-Bench-Signature"
_LONG_REASON = "The network of the recipient did not say why. " * 60

_REPORT = (
    '{{"id": "msg_{number}", "channel": "sms", "recipient": "+23480{number:08d}", "status": "{status}", '
    '"created_datetime": "2026-01-31T12:00:00+00:00"{more}}}'
)
_EVENT = '{{"event": "text.{status}", "data": {report}}}'
_STATUSES = ("queued", "sent", "delivered")


def small(number: int) -> tuple[str, str]:
    """A message's only report, to the URL of its request."""
    return _REPORT.format(number=number, status="delivered", more=""), ""


def progress(number: int) -> tuple[str, str]:
    """Three reports of each message, one after another: what the store has of it is changed twice."""
    message, turn = divmod(number, len(_STATUSES))
    return _REPORT.format(number=message, status=_STATUSES[turn], more=""), ""


def long(number: int) -> tuple[str, str]:
    """A report of nearly 3 KB, as a service writes it that explains itself."""
    return _REPORT.format(number=number, status="undelivered", more=f', "reason": "{_LONG_REASON}"'), ""


def webhook(number: int) -> tuple[str, str]:
    """A message's only report, signed, to the URL of the account."""
    report = _REPORT.format(number=number, status="delivered", more="")
    body = _EVENT.format(status="delivered", report=report)
    return body, f"{SIGNATURE_HEADER}: {sign(body.encode(), WEBHOOK_SECRET)}\r\n"


BODIES: dict[str, Callable[[int], tuple[str, str]]] = {
    "small": small,
    "progress": progress,
    "long": long,
    "webhook": webhook,
}
"""By name: returns the body of the report of a number, and the header lines it needs."""
