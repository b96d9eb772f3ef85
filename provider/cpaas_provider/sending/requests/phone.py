"""Requests to one phone that are made once: a passcode, and a purchase of airtime."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from cpaas_provider.api import operations
from cpaas_provider.api.errors import CpaasRejectedError, CpaasUnknownOutcomeError
from cpaas_provider.api.models.airtime import PurchaseOutcome, network_name
from cpaas_provider.api.recipients.msisdn import Msisdn
from cpaas_provider.api.values import no_value_reason
from cpaas_provider.sending.errors import InvalidRequestError, NoRecipientsError
from cpaas_provider.sending.requests.probes import OtpRecordProbe, otp_result
from cpaas_provider.sending.requests.request import SendSettings, SingleRequest, SuppressionScope, latest_result
from cpaas_provider.sending.spec import RequestResult, SendSpec

if TYPE_CHECKING:
    from cpaas_provider.api.core import Call
    from cpaas_provider.api.models.airtime import AirtimePurchase
    from cpaas_provider.api.models.otp import OtpToken
    from cpaas_provider.sending.spec import OutcomeProbe, SendOutcome

log = logging.getLogger(__name__)

INVALID_NUMBER = "invalid_number"
"""The reason of the suppression list by which no passcode is requested."""

_NOT_BOUGHT = {
    "duplicate": "the service bought the same amount for this recipient a short while ago and did not buy it again",
    "failed": "the purchase failed at the network",
    "error": "the purchase failed at the service",
}


class OtpSpec(SendSpec, frozen=True, kw_only=True):
    """One request for a passcode, checked and complete."""

    carries_reference = False
    is_known_by_recipient = True

    def build_call(self, recipients: Sequence[str], reference: str, callback_url: str | None) -> Call[Any]:
        """Return the request."""
        return operations.request_otp(Msisdn(recipients[0]), **self.body)

    def read_result(self, response: OtpToken, *, repeated: bool) -> RequestResult:
        """Return the passcode's id, status and times."""
        return RequestResult(response.id, details=otp_result(response, self.body["expires_in"]))


class OtpRequest(SingleRequest, frozen=True):
    """One request for a passcode.

    :param token: a code of the author's own
    """

    recipient: Any
    length: Any = None
    expires_in: Any = None
    token: Any = None
    channel: str | None = None

    operation = "request_otp"

    def build_spec(self, connection: SendSettings, probes: Sequence[OutcomeProbe] = ()) -> SendSpec:
        """Return the one request for a passcode."""
        if self.token is not None and (reason := no_value_reason(self.token)):
            raise InvalidRequestError(f"token {reason}. Nothing was sent. Leave it out, or give a code.")
        recipient = _allowed_msisdn(self.recipient, connection)
        return OtpSpec(
            operation=self.operation,
            recipients=(recipient,),
            body={"length": self.length, "expires_in": self.expires_in, "token": self.token, "channel": self.channel},
            probes=(OtpRecordProbe(recipient, self.expires_in), *probes),
        )

    @property
    def suppression_scope(self) -> SuppressionScope:
        """The numbers that can never be reached. An opt-out does not count: the recipient asks for a code."""
        return SuppressionScope(self.channel or "sms", (INVALID_NUMBER,))

    def result(self, outcome: SendOutcome) -> dict[str, Any]:
        """Return the passcode's id, status and times."""
        requested = latest_result(outcome)
        names = ("id", "status", "status_desc", "outcome", "created_datetime", "expires_at")
        return {name: requested.get(name) for name in names}


class AirtimeSpec(SendSpec, frozen=True, kw_only=True):
    """One purchase of airtime, checked and complete."""

    is_known_by_recipient = True

    network: str
    amount: Any
    external_ref: str | None = None

    def build_call(self, recipients: Sequence[str], reference: str, callback_url: str | None) -> Call[Any]:
        """Return the request."""
        return operations.buy_airtime(
            self.network,
            self.amount,
            Msisdn(recipients[0]),
            callback=callback_url,
            external_ref=reference if self.external_ref is None else self.external_ref,
        )

    def read_result(self, response: AirtimePurchase, *, repeated: bool) -> RequestResult:
        """Return the purchase's id, status and cost.

        :raises CpaasRejectedError: when nothing was bought
        :raises CpaasUnknownOutcomeError: when the status is not one of the contract, or the purchase was refunded
        """
        outcome, is_duplicate = response.outcome, response.outcome is PurchaseOutcome.DUPLICATE
        # A deliberate repeat asks exactly this: does the service know the same purchase?
        if outcome is PurchaseOutcome.FAILED or (is_duplicate and not repeated):
            reason = _NOT_BOUGHT[str(response.status).strip().lower()]
            raise CpaasRejectedError(
                f"Airtime was not bought: {reason}. Purchase {response.id}.", operation="buy_airtime"
            )
        if outcome is PurchaseOutcome.UNKNOWN:
            raise CpaasUnknownOutcomeError(
                f"buy_airtime: purchase {response.id} has the status {response.status!r}, or was refunded. This does "
                "not show whether it was bought. Check the service's own records before you buy again.",
                operation="buy_airtime",
            )
        if is_duplicate:
            log.info("The service reports a duplicate: an earlier request bought it. Nothing was bought again.")
        charge = response.meta.charge if response.meta else None
        details = {
            "id": response.id,
            "status": response.status,
            "network": response.network or network_name(self.network),
            "amount": self.amount,
            "charge": charge.amount if charge else None,
            "balance": charge.available_balance if charge else None,
            "refunded": charge.refunded if charge else None,
            "created_datetime": response.created_datetime.isoformat() if response.created_datetime else None,
        }
        return RequestResult(response.id, details=details)


class AirtimeRequest(SingleRequest, frozen=True):
    """One purchase of airtime."""

    recipient: Any
    network: str
    amount: Any
    external_ref: str | None = None

    operation = "buy_airtime"

    def build_spec(self, connection: SendSettings, probes: Sequence[OutcomeProbe] = ()) -> SendSpec:
        """Return the one purchase."""
        return AirtimeSpec(
            operation=self.operation,
            recipients=(_allowed_msisdn(self.recipient, connection),),
            body={"network": self.network, "amount": str(self.amount)},
            probes=probes,
            network=self.network,
            amount=self.amount,
            external_ref=self.external_ref,
        )

    def result(self, outcome: SendOutcome) -> dict[str, Any]:
        """Return the purchase's id, status and cost."""
        bought = latest_result(outcome)
        names = ("id", "status", "network", "amount", "charge", "balance", "refunded", "created_datetime")
        # An earlier try may have bought it, when network and amount were others. What a delivery report or a person
        # established names neither.
        known = {"network": network_name(self.network), "amount": self.amount} if outcome.is_of_this_content else {}
        bought = known | bought
        return {
            **{name: bought.get(name) for name in names},
            "references": [entry.reference for entry in outcome.accepted],
        }


def _allowed_msisdn(recipient: Any, connection: SendSettings) -> str:
    """Return a phone number as international digits.

    :raises InvalidRequestError: when it is none
    :raises NoRecipientsError: when the connection does not allow it
    """
    found = connection.settings.recipient_reader("phone").read_list([recipient])
    for _, reason in found.invalid:
        raise InvalidRequestError(f"The recipient {reason}. Nothing was sent. Correct the recipient.")
    for allowed in found.allowed:
        return allowed
    raise NoRecipientsError("The recipient is not on allowed_recipients of the connection. Nothing was sent.")
