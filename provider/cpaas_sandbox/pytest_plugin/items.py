"""What the sandbox accepted, as a test reads it."""

from __future__ import annotations

import datetime as dt
import time
from dataclasses import dataclass, field
from http import HTTPStatus
from typing import Any

from cpaas_sandbox.pytest_plugin._control import Control
from cpaas_sandbox.pytest_plugin.errors import SandboxError

_REPORT_SECONDS = 15.0
_PAUSE = 0.02


@dataclass(frozen=True)
class Message:
    """A message to one recipient.

    :param recipient: the number as international digits without plus, or the email address
    :param text: the text as the recipient reads it, with a template and its values filled in
    :param sender_id: the sender
    :param id: the id of the message, which all recipients of one request share
    :param status: what became of it, such as ``delivered`` or ``undelivered``
    :param external_ref: the reference that the DAG gave; ``None`` without one
    :param template_id: the template; ``None`` without one
    :param charge: its price
    :param created: when the sandbox accepted it, on the sandbox's clock
    """

    recipient: str
    text: str
    sender_id: str
    id: str
    status: str
    external_ref: str | None
    template_id: str | None
    charge: float
    created: dt.datetime
    _control: Control = field(repr=False, compare=False)

    def report(self, status: str, reason: str | None = None) -> None:
        """Send a delivery report of this message now, and return when the receiver has stored it.

        :param status: for SMS ``delivered``, ``undelivered`` or ``clicked``; for email ``delivered``, ``bounced``,
            ``opened`` or ``clicked``
        :param reason: the reason of a failure
        :raises SandboxError: when the message cannot have that status, was sent without a callback URL, or the
            receiver did not store the report
        """
        __tracebackhide__ = True
        body = {"recipient": self.recipient, "status": status, "message_id": self.id}
        try:
            self._control.call("POST", "reports", body | ({"reason": reason} if reason else {}))
        except SandboxError as error:
            if "no URL to report to" not in str(error):
                raise
            raise SandboxError(
                "No report can be sent, because the message has no callback URL. Request the fixture cpaas_receiver, "
                "or give the operator a callback."
            ) from error
        wait_for_reports(self._control, message_id=self.id, recipient=self.recipient)

    def deliver(self) -> None:
        """Report the message as delivered; see ``report``."""
        __tracebackhide__ = True
        self.report("delivered")

    def click(self) -> None:
        """Report that the recipient followed a link; see ``report``. An SMS must be trackable."""
        __tracebackhide__ = True
        self.report("clicked")


@dataclass(frozen=True)
class Sms(Message):
    """An SMS or WhatsApp message to one recipient.

    :param channel: ``sms`` or ``whatsapp``
    :param pages: the number of pages (segments)
    :param is_trackable: whether clicks can be reported
    """

    channel: str = "sms"
    pages: int | None = None
    is_trackable: bool = False

    def fail(self, reason: str | None = None) -> None:
        """Report the message as undelivered; see ``report``.

        :param reason: such as ``Unknown subscriber``
        """
        __tracebackhide__ = True
        self.report("undelivered", reason)


@dataclass(frozen=True)
class Email(Message):
    """An email to one recipient.

    :param subject: the subject as the recipient reads it
    :param from_name: the name of the sender
    :param reply_to: the address for replies
    """

    subject: str | None = None
    from_name: str | None = None
    reply_to: str | None = None

    def fail(self, reason: str | None = None) -> None:
        """Report the email as bounced; see ``report``.

        :param reason: such as ``Mailbox does not exist``
        """
        __tracebackhide__ = True
        self.report("bounced", reason)

    def open(self) -> None:
        """Report the email as opened; see ``report``."""
        __tracebackhide__ = True
        self.report("opened")


@dataclass(frozen=True)
class Otp:
    """A one-time passcode.

    :param recipient: the number as international digits without plus
    :param code: the code that the customer reads
    :param id: the id of the passcode
    :param status: ``SENT``, ``VERIFIED``, ``EXPIRED``, ``FAILED`` or ``REVOKED``
    :param channel: ``sms`` or ``whatsapp``
    :param created: when it was requested, on the sandbox's clock
    :param expires: when it expires, on the sandbox's clock
    """

    recipient: str
    id: str
    status: str
    channel: str
    created: dt.datetime
    expires: dt.datetime
    code: str = field(repr=False)
    _control: Control = field(repr=False, compare=False)

    def verify(self, code: str | None = None) -> bool:
        """Have the customer type a code, and return whether it was right.

        :param code: what is typed; ``None`` for the right code
        :raises SandboxError: when the response is neither 200 nor 404, as with a fault, so the code was not checked
        """
        __tracebackhide__ = True
        body = {"id": self.id, "token": self.code if code is None else code}
        status = self._control.call_service("POST", "/otp/verify", body)
        if status not in (HTTPStatus.OK, HTTPStatus.NOT_FOUND):
            raise SandboxError(f"The sandbox did not check the code. POST /otp/verify: HTTP {status}")
        return status == HTTPStatus.OK


@dataclass(frozen=True)
class Airtime:
    """An airtime purchase.

    :param recipient: the number as international digits without plus
    :param amount: the amount bought
    :param network: the carrier
    :param id: the id of the purchase
    :param status: ``pending``, ``sent``, ``success``, ``failed``, ``error`` or ``duplicate``
    :param external_ref: the reference that the DAG gave; ``None`` without one
    :param created: when the sandbox accepted it, on the sandbox's clock
    """

    recipient: str
    amount: float
    network: str
    id: str
    status: str
    external_ref: str | None
    created: dt.datetime


def wait_for_reports(control: Control, **filters: str) -> None:
    """Return when every delivery report that is due was acknowledged.

    :param filters: those of the inbox, for the reports whose refusal is an error
    :raises SandboxError: when one was refused or given up, or there is no response in time
    """
    __tracebackhide__ = True
    until = time.monotonic() + _REPORT_SECONDS
    while (counts := control.call("GET", "counters")["reports"])["due"]:
        if time.monotonic() > until:
            raise SandboxError(f"The receiver did not acknowledge all delivery reports within {_REPORT_SECONDS:g} s.")
        time.sleep(_PAUSE)
    if not (counts["refused"] or counts["given_up"]):
        return
    for report in control.read_inbox("reports", **filters):
        # A refused report is due again later, or given up after its last attempt.
        if report["state"] == "given_up" or (report["state"] == "pending" and report["attempts"]):
            reason = report["result"]
            raise SandboxError(f"The receiver did not store a delivery report ({reason}). Its log has the reason.")


def _moment(text: str) -> dt.datetime:
    return dt.datetime.fromisoformat(text)


def _message(item: dict[str, Any], control: Control) -> dict[str, Any]:
    names = ("recipient", "text", "sender_id", "status", "external_ref", "template_id", "charge")
    values = {name: item[name] for name in names}
    return values | {"id": item["message_id"], "created": _moment(item["created_datetime"]), "_control": control}


def sms_of(item: dict[str, Any], control: Control) -> Sms:
    """Return an item of the inbox as an SMS."""
    return Sms(
        **_message(item, control), channel=item["channel"], pages=item["pages"], is_trackable=item["is_trackable"]
    )


def email_of(item: dict[str, Any], control: Control) -> Email:
    """Return an item of the inbox as an email."""
    names = ("subject", "from_name", "reply_to")
    return Email(**_message(item, control), **{name: item[name] for name in names})


def otp_of(item: dict[str, Any], control: Control) -> Otp:
    """Return an item of the inbox as a passcode."""
    return Otp(
        item["recipient"],
        item["id"],
        item["status_desc"],
        item["channel"],
        _moment(item["created_datetime"]),
        _moment(item["expires_datetime"]),
        code=item["code"],
        _control=control,
    )


def airtime_of(item: dict[str, Any], control: Control) -> Airtime:
    """Return an item of the inbox as an airtime purchase."""
    names = ("recipient", "amount", "network", "id", "status", "external_ref")
    return Airtime(**{name: item[name] for name in names}, created=_moment(item["created_datetime"]))
