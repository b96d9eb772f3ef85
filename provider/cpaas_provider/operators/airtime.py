"""Buying airtime (INTERFACE.md 4.1; deprecated by the service)."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any, ClassVar

from airflow.sdk.exceptions import AirflowFailException

from cpaas_provider.operators import _summaries as summaries
from cpaas_provider.operators.base import CpaasOperator

if TYPE_CHECKING:
    from airflow.sdk import Context

    from cpaas_provider.api.client import CpaasClient
    from cpaas_provider.hooks.connection import CpaasConnection

_FAILED = {
    "duplicate": "the same amount went to this recipient a short while ago, so the service did not buy it again",
    "failed": "the purchase failed at the network",
    "error": "the purchase failed at the service",
}


class BuyAirtimeOperator(CpaasOperator):
    """Top up a phone. The service calls this operation deprecated and may remove it; the task's log says so.

    Returns ``{"id", "status", "network", "amount", "charge", "balance", "refunded", "created_datetime"}``: the
    purchase's id, its status (usually ``pending``), what was charged and the balance in the account's currency, and
    an ISO 8601 time. The number is not repeated in it.

    A purchase is money: only where nothing can have reached the service, or where it asked for fewer requests, do the
    task's retries try again. Fails at once when the request is rejected, when no readable answer came (it may have
    been bought), when the status is ``duplicate``, ``failed`` or ``error``, and when the service has removed the
    operation. Skips when ``allowed_recipients`` of the connection does not list the recipient.

    :param network: Airtel, MTN, Glo, 9mobile or NTEL (templated)
    :param amount: at least 50, in the account's currency (templated)
    :param recipient: the phone number, in any usual form (templated)
    :param callback: URL that receives delivery reports (templated)
    :param external_ref: your own reference (templated)
    :param cpaas_conn_id: the connection to use (templated)
    """

    template_fields = ("network", "amount", "recipient", "callback", "external_ref", "cpaas_conn_id")
    private_fields: ClassVar[Mapping[str, Callable[[Any], Any]]] = {
        "recipient": summaries.recipient,
        "callback": summaries.url,
    }

    def __init__(
        self,
        *,
        network: str,
        amount: float | str,
        recipient: str,
        callback: str | None = None,
        external_ref: str | None = None,
        **kwargs: Any,
    ) -> None:
        super().__init__(**kwargs)
        self.network = network
        self.amount = amount
        self.recipient = recipient
        self.callback = callback
        self.external_ref = external_ref

    def execute(self, context: Context) -> Any:
        """Buy the airtime, having said once in this try that the operation is deprecated."""
        self.log.warning("Buying airtime is deprecated by the service and may be removed.")
        return super().execute(context)

    def request(self, client: CpaasClient, connection: CpaasConnection) -> dict[str, Any]:
        """Buy the airtime."""
        recipient = self.private("recipient")
        self.skip_unless_allowed(client, recipient)
        purchase = client.buy_airtime(
            self.network,
            self.amount,
            recipient,
            callback=self.private("callback"),
            external_ref=self.external_ref,
        )
        if reason := _FAILED.get((purchase.status or "").lower()):
            raise AirflowFailException(f"Airtime was not bought: {reason}. Purchase {purchase.id}.")
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
