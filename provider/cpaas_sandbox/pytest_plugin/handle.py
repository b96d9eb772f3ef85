"""The sandbox as a test sees it: what was sent, and how the service behaves."""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, TypeVar

from cpaas_sandbox.pytest_plugin._control import Control
from cpaas_sandbox.pytest_plugin._numbers import digits_of
from cpaas_sandbox.pytest_plugin.clock import Clock
from cpaas_sandbox.pytest_plugin.errors import NotSentError
from cpaas_sandbox.pytest_plugin.items import (
    Airtime,
    Email,
    Otp,
    Sms,
    airtime_of,
    email_of,
    otp_of,
    sms_of,
    wait_for_reports,
)

DEFAULT_CONN_ID = "cpaas_default"

# Tests need no pause between requests.
_EXTRA = {"requests_per_second": 1000}
_HELD_SECONDS = 86_400
_MAX_SHOWN = 20
_MAX_TEXT = 60
_OPERATIONS = {"SMS": "send_sms", "email": "send_email", "passcode": "request_otp", "airtime purchase": "buy_airtime"}
_LISTS = {"SMS": "sms", "email": "emails", "passcode": "otps", "airtime purchase": "airtime"}

Item = TypeVar("Item", Sms, Email, Otp, Airtime)


class Sandbox:
    """A running sandbox and the Airflow connection to it.

    :param url: its base URL
    :param api_key: its API key
    :param conn_id: the id of the Airflow connection
    :param region: the country of numbers in national form, such as ``NG``; ``None`` if all are international
    :param extra: extras of the connection
    :param set_variable: sets the environment variable of a connection, by name and value
    """

    def __init__(
        self,
        url: str,
        api_key: str,
        conn_id: str = DEFAULT_CONN_ID,
        region: str | None = None,
        extra: Mapping[str, Any] | None = None,
        set_variable: Callable[[str, str], None] = os.environ.__setitem__,
    ) -> None:
        self.url = url
        self.api_key = api_key
        self.conn_id = conn_id
        self.region = region
        self.clock = Clock(control := Control(url, api_key))
        self._control = control
        self._set_variable = set_variable
        regional = {"default_region": region} if region else {}
        self._extra: dict[str, Any] = {**_EXTRA, **regional, **(extra or {})}

    def __repr__(self) -> str:
        return f"<Sandbox at {self.url}, connection {self.conn_id}>"

    # -- the connection ------------------------------------------------------------------------------------------------

    def connect(self, conn_id: str | None = None, **extra: Any) -> None:
        """Set an Airflow connection to the sandbox, by its environment variable.

        :param conn_id: its id; ``None`` for that of the fixture
        :param extra: extras to add or replace. With the fixture's own id, they stay for later calls
        """
        merged = {**self._extra, **extra}
        if conn_id in (None, self.conn_id):
            self._extra = merged
        connection = {"conn_type": "cpaas", "host": self.url, "password": self.api_key, "extra": merged}
        self._set_variable(f"AIRFLOW_CONN_{(conn_id or self.conn_id).upper()}", json.dumps(connection))

    # -- what was sent -------------------------------------------------------------------------------------------------

    @property
    def sms(self) -> list[Sms]:
        """All SMS and WhatsApp messages, one for each recipient, oldest first."""
        return [sms_of(item, self._control) for item in self._control.read_inbox("sms")]

    @property
    def emails(self) -> list[Email]:
        """All emails, one for each recipient, oldest first."""
        return [email_of(item, self._control) for item in self._control.read_inbox("email")]

    @property
    def otps(self) -> list[Otp]:
        """All one-time passcodes, oldest first."""
        return [otp_of(item, self._control) for item in self._control.read_inbox("otp")]

    @property
    def airtime(self) -> list[Airtime]:
        """All airtime purchases, oldest first."""
        return [airtime_of(item, self._control) for item in self._control.read_inbox("airtime")]

    @property
    def contacts(self) -> list[dict[str, Any]]:
        """All rows of the contact list, oldest first: cells by the name of their column, without empty cells."""
        names = self._control.call("GET", "table")["names"]
        rows = self._control.read_inbox("contacts")
        return [{names[id_]: cell for id_, cell in row["columns"].items() if cell is not None} for row in rows]

    def sms_to(self, recipient: str, *, channel: str | None = None, region: str | None = None) -> Sms:
        """Return the one SMS to a number.

        :param recipient: the number in any usual form
        :param channel: ``sms`` or ``whatsapp``; ``None`` for both
        :param region: the country of a national number; ``None`` for that of the fixture
        :raises NotSentError: when there is none or more than one; the error lists what was sent
        """
        __tracebackhide__ = True
        messages = [message for message in self.sms if channel in (None, message.channel)]
        return self._only("SMS", recipient, self._digits(recipient, region), messages)

    def email_to(self, recipient: str) -> Email:
        """Return the one email to an address. Capital and small letters are the same.

        :param recipient: the address
        :raises NotSentError: when there is none or more than one; the error lists what was sent
        """
        __tracebackhide__ = True
        return self._only("email", recipient, recipient.strip(), self.emails)

    def otp_to(self, recipient: str, *, region: str | None = None) -> Otp:
        """Return the one passcode of a number.

        :param recipient: the number in any usual form
        :param region: the country of a national number; ``None`` for that of the fixture
        :raises NotSentError: when there is none or more than one; the error lists what was sent
        """
        __tracebackhide__ = True
        return self._only("passcode", recipient, self._digits(recipient, region), self.otps)

    def airtime_to(self, recipient: str, *, region: str | None = None) -> Airtime:
        """Return the one airtime purchase for a number.

        :param recipient: the number in any usual form
        :param region: the country of a national number; ``None`` for that of the fixture
        :raises NotSentError: when there is none or more than one; the error lists what was sent
        """
        __tracebackhide__ = True
        return self._only("airtime purchase", recipient, self._digits(recipient, region), self.airtime)

    def contact(self, **cells: Any) -> dict[str, Any]:
        """Return the one row of the contact list with these cells, such as ``contact(Email="ada@example.com")``.

        :param cells: values by the name of their column
        :raises NotSentError: when there is none or more than one; the error lists the rows
        """
        __tracebackhide__ = True
        rows = self.contacts
        found = [row for row in rows if all(row.get(name) == value for name, value in cells.items())]
        if len(found) == 1:
            return found[0]
        wanted = ", ".join(f"{name}={value!r}" for name, value in cells.items())
        raise NotSentError(
            f"{len(found) or 'No'} rows of the contact list have {wanted}. All {len(rows)} rows:"
            + _listed(str(row) for row in rows)
        )

    # -- how the service behaves ---------------------------------------------------------------------------------------

    def fault(self, kind: str, operation: str = "*", *, times: int | None = None, **options: Any) -> None:
        """Have requests fail.

        :param kind: the kind of fault, such as ``rate_limit``, ``error_500``, ``latency`` or ``cut_after``
        :param operation: the operation, such as ``send_sms``; ``*`` for all
        :param times: how often; ``None`` until ``clear_faults`` or the end of the test
        :param options: parameters of the kind, and ``after``, ``rate`` and ``seed``
        :raises SandboxError: when there is no such kind, operation or parameter
        """
        limit = {} if times is None else {"times": times}
        self._control.call("POST", "faults", {"kind": kind, "operation": operation, **limit, **options})

    def clear_faults(self) -> None:
        """End all faults."""
        self._control.call("DELETE", "faults")

    def set_outcomes(
        self,
        *,
        sms: Mapping[str, str] | None = None,
        email: Mapping[str, str] | None = None,
        airtime: Mapping[str, str] | None = None,
        otp: Mapping[str, str] | None = None,
    ) -> None:
        """Decide, before the DAG runs, what becomes of messages and passcodes. Without it they are delivered.

        :param sms: by number: ``delivered``, ``undelivered``, or ``clicked`` if the message is trackable
        :param email: by address: ``delivered``, ``bounced``, ``opened`` or ``clicked``
        :param airtime: by number: ``success``, ``failed`` or ``error``
        :param otp: by number, what the customer does: ``verified`` (types the code), ``failed`` (types wrong codes),
            ``expired`` (types nothing), or ``revoked``. Without it, a passcode stays SENT until it expires
        :raises SandboxError: when there is no such outcome
        """
        numbers = {"sms": sms, "airtime": airtime, "otp": otp}
        outcomes = {
            kind: {self._digits(number): outcome for number, outcome in (given or {}).items()}
            for kind, given in numbers.items()
        }
        self.seed(outcomes={**outcomes, "email": dict(email or {})})

    def set_lookup(
        self,
        phone: str,
        *,
        dnd: bool | None = None,
        operator: str | None = None,
        country: str | None = None,
        ported: bool | None = None,
    ) -> None:
        """Decide what a phone lookup returns. What is ``None`` follows from the number.

        :param phone: the number in any usual form
        :param dnd: whether it is on the do-not-disturb list
        :param operator: the carrier
        :param country: the country
        :param ported: whether it was ported
        """
        fields = {"dnd": dnd, "operator": operator, "country": country, "ported": ported}
        known = {name: value for name, value in fields.items() if value is not None}
        self.seed(lookups=[{"phone": self._digits(phone), **known}])

    def reject(self, *recipients: str) -> None:
        """Have the service reject requests to these numbers or addresses.

        :param recipients: numbers in any usual form, or email addresses
        """
        self.seed(refused_recipients=[one if "@" in one else self._digits(one) for one in recipients])

    def set_balance(self, balance: float) -> None:
        """Set the balance of the account.

        :param balance: the amount, at least 0
        """
        self._control.call("PUT", "balance", {"balance": balance})

    def hold_reports(self) -> None:
        """Hold back the delivery reports of later messages, so that the test sends them: ``sms_to(...).deliver()``."""
        self.set(report_delay_seconds=_HELD_SECONDS)

    def wait_for_reports(self) -> None:
        """Return when the receiver has stored every delivery report that is due.

        :raises SandboxError: when it refused one, or does not answer
        """
        wait_for_reports(self._control)

    def set(self, **settings: Any) -> None:
        """Change settings of the sandbox, such as ``otp_max_attempts=1``.

        :raises SandboxError: when there is no such setting or value
        """
        self._control.call("PUT", "settings", settings)

    def seed(self, **data: Any) -> None:
        """Add templates, contact columns and rows, lookups, outcomes or refused recipients.

        :param data: the body of the control API's ``POST seed``
        :raises SandboxError: when the sandbox refuses it
        """
        self._control.call("POST", "seed", data)

    def control(self, method: str, path: str, body: Any = None) -> Any:
        """Make a call of the control API and return the JSON of its response.

        :param method: such as ``POST``
        :param path: the path after ``/_control/``
        :param body: the JSON body
        :raises SandboxError: when the sandbox refuses the call
        """
        return self._control.call(method, path, body)

    def counters(self) -> dict[str, Any]:
        """Return what the sandbox received, accepted and rejected since the last reset."""
        return dict(self._control.call("GET", "counters"))

    def reset(self) -> None:
        """Delete all messages, faults, settings and data, and return the clock to the real time."""
        self._control.call("POST", "reset")

    def _digits(self, number: str, region: str | None = None) -> str:
        return digits_of(number, region or self.region)

    def _only(self, noun: str, given: str, recipient: str, items: Sequence[Item]) -> Item:
        """Return the one item to a recipient."""
        __tracebackhide__ = True
        found = [item for item in items if item.recipient.casefold() == recipient.casefold()]
        if len(found) == 1:
            return found[0]
        name = recipient if given == recipient else f"{recipient} ({given!r})"
        operation = _OPERATIONS[noun]
        counts = self.counters()
        requests, rejected = (counts[group].get(operation, 0) for group in ("requests", "rejected"))
        shown = found or items
        accepted = f"{len(shown)} {noun}{'s' if noun != 'SMS' and len(shown) != 1 else ''}"
        if found:
            summary = f"{accepted} to {name}, not one:"
        elif items:
            summary = f"No {noun} to {name}. The sandbox accepted {accepted}:"
        else:
            summary = f"No {noun} to {name}. The sandbox accepted none."
        requests_of = f"Requests of {operation}: {requests} received, {rejected} rejected."
        advice = f"\nIf that is right, look through the list sandbox.{_LISTS[noun]}." if found else ""
        raise NotSentError(f"{summary}{_listed(_line(item) for item in shown)}\n{requests_of}{advice}")


def _line(item: Sms | Email | Otp | Airtime) -> str:
    """Return an item in one line; of a passcode without its code."""
    if isinstance(item, Otp):
        return f"{item.recipient}  {item.status}"
    if isinstance(item, Airtime):
        return f"{item.recipient}  {item.amount:g} {item.network} {item.status}"
    text = item.text if len(item.text) <= _MAX_TEXT else f"{item.text[:_MAX_TEXT]}..."
    subject = f"{item.subject!r} " if isinstance(item, Email) else ""
    return f"{item.recipient}  {subject}{text!r}"


def _listed(lines: Iterable[str]) -> str:
    """Return lines below one another, at most ``_MAX_SHOWN``."""
    all_lines = [f"\n  {line}" for line in lines]
    more = len(all_lines) - _MAX_SHOWN
    return "".join(all_lines[:_MAX_SHOWN]) + (f"\n  and {more} more" if more > 0 else "")
