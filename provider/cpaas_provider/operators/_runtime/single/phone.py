"""Requests to one phone that are made once: a passcode, and a purchase of airtime."""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import partial
from typing import TYPE_CHECKING, Any

from airflow.sdk.exceptions import AirflowFailException

from cpaas_provider.api.errors import CpaasRejectedError
from cpaas_provider.api.recipients.msisdn import InvalidMsisdnError, normalise_msisdn
from cpaas_provider.operators._runtime.errors import NotAllowedError
from cpaas_provider.sending.probes import OtpRecordProbe
from cpaas_provider.sending.spec import SendSpec

if TYPE_CHECKING:
    from cpaas_provider.api.models.otp import OtpToken
    from cpaas_provider.hooks.connection import CpaasConnection
    from cpaas_provider.operators._runtime.delivery.reports import DeliveryReports
    from cpaas_provider.operators._runtime.runtime import TaskRuntime
    from cpaas_provider.sending.spec import Outcome

DEFAULT_EXPIRES_IN = 15
NO_CODE = frozenset({"", "None", "null"})
"""What a template renders where there is no code."""

_NOT_BOUGHT = {
    "duplicate": "the service bought the same amount for this recipient a short while ago and did not buy it again",
    "failed": "the purchase failed at the network",
    "error": "the purchase failed at the service",
}


def otp_record(token: OtpToken) -> dict[str, Any]:
    """Return the fields of a record that an XCom may hold: neither code nor number."""
    return {
        "id": token.id,
        "status": token.status,
        "status_desc": token.status_desc,
        "outcome": token.outcome().value,
        "created_datetime": token.created_datetime.isoformat(),
    }


def latest_result(outcome: Outcome) -> dict[str, Any]:
    """Return the result of the last accepted request, empty where none was accepted."""
    return (outcome.settled[-1].result if outcome.settled else None) or {}


@dataclass(frozen=True)
class OtpRequest:
    """One request for a passcode.

    :param token: a code of the author's own
    """

    recipient: Any = field(repr=False)
    length: Any = None
    expires_in: Any = None
    token: Any = field(default=None, repr=False)
    channel: str | None = None

    def build_spec(self, runtime: TaskRuntime, reports: DeliveryReports) -> SendSpec:
        """Return the one request for a passcode."""
        if self.token is not None and str(self.token).strip() in NO_CODE:
            raise AirflowFailException(
                "token is empty after rendering. Nothing was sent. Leave it out, or give a code."
            )
        recipient = _allowed_msisdn(self.recipient, runtime.connection)
        return SendSpec(
            operation="request_otp",
            recipients=(recipient,),
            body={"length": self.length, "expires_in": self.expires_in, "token": self.token, "channel": self.channel},
            send=partial(self._send, runtime),
            probes=(OtpRecordProbe(recipient, self._result), *reports.probes()),
        )

    def result(self, outcome: Outcome, runtime: TaskRuntime) -> dict[str, Any]:
        """Return the passcode's id, status and times."""
        requested = latest_result(outcome)
        names = ("id", "status", "status_desc", "outcome", "created_datetime", "expires_at")
        return {name: requested.get(name) for name in names}

    def _send(self, runtime: TaskRuntime, recipients: tuple[str, ...], reference: str, again: bool) -> dict[str, Any]:
        record = runtime.client.request_otp(
            f"+{recipients[0]}",
            length=self.length,
            expires_in=self.expires_in,
            token=self.token,
            channel=self.channel,
        )
        return self._result(record)

    def _result(self, record: OtpToken) -> dict[str, Any]:
        # The request took it, so it is a whole number however it is written ("15.0"): nothing may fail from here on.
        expires_at = record.expires_at(int(float(self.expires_in or DEFAULT_EXPIRES_IN)))
        return {**otp_record(record), "expires_at": expires_at.isoformat()}


@dataclass(frozen=True)
class AirtimeRequest:
    """One purchase of airtime."""

    recipient: Any = field(repr=False)
    network: str
    amount: Any
    external_ref: str | None = None

    def build_spec(self, runtime: TaskRuntime, reports: DeliveryReports) -> SendSpec:
        """Return the one purchase."""
        return SendSpec(
            operation="buy_airtime",
            recipients=(_allowed_msisdn(self.recipient, runtime.connection),),
            body={"network": self.network, "amount": str(self.amount)},
            send=partial(self._send, runtime, reports),
            probes=reports.purchase_probes(),
        )

    def result(self, outcome: Outcome, runtime: TaskRuntime) -> dict[str, Any]:
        """Return the purchase's id, status and cost."""
        bought = latest_result(outcome)
        names = ("id", "status", "network", "charge", "balance", "refunded", "created_datetime")
        # An earlier try may have bought it, when the amount was another.
        return {
            **{name: bought.get(name) for name in names},
            "amount": bought.get("amount", self.amount),
            "references": [entry.reference for entry in outcome.settled],
        }

    def _send(
        self,
        runtime: TaskRuntime,
        reports: DeliveryReports,
        recipients: tuple[str, ...],
        reference: str,
        again: bool,
    ) -> dict[str, Any]:
        purchase = runtime.client.buy_airtime(
            self.network,
            self.amount,
            f"+{recipients[0]}",
            callback=reports.callback_url(reference, 1),
            external_ref=self.external_ref or reference,
        )
        status = (purchase.status or "").lower()
        # A deliberate repeat asks exactly this: does the service know the same purchase?
        if (reason := _NOT_BOUGHT.get(status)) and not (again and status == "duplicate"):
            raise CpaasRejectedError(
                f"Airtime was not bought: {reason}. Purchase {purchase.id}.", operation="buy_airtime"
            )
        if status == "duplicate":
            runtime.log.info("The service reports a duplicate: an earlier request bought it. Nothing was bought again.")
        charge = purchase.meta.charge if purchase.meta else None
        return {
            "id": purchase.id,
            "status": purchase.status,
            "network": purchase.network,
            "amount": self.amount,
            "charge": charge.amount if charge else None,
            "balance": charge.available_balance if charge else None,
            "refunded": charge.refunded if charge else None,
            "created_datetime": purchase.created_datetime.isoformat() if purchase.created_datetime else None,
        }


def _allowed_msisdn(recipient: Any, connection: CpaasConnection) -> str:
    """Return a phone number as international digits. Fail if it is none, skip if the connection does not allow it."""
    settings = connection.settings
    try:
        number = normalise_msisdn(recipient, settings.default_region)
    except InvalidMsisdnError as error:
        raise AirflowFailException(f"The recipient {error}. Nothing was sent. Correct the recipient.") from None
    if settings.allowed is not None and not settings.allowed.allows(number):
        raise NotAllowedError("The recipient is not on allowed_recipients of the connection. Nothing was sent.")
    return number
