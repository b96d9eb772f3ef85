"""Buying airtime (INTERFACE.md 4.1; deprecated by the service)."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any, ClassVar

from cpaas_provider.api import bounds
from cpaas_provider.operators import _summaries as summaries
from cpaas_provider.operators.sends import SendOperator

if TYPE_CHECKING:
    from airflow.sdk import Context

    from cpaas_provider.api.client import CpaasClient
    from cpaas_provider.hooks.connection import CpaasConnection
    from cpaas_provider.sending.deed import Deed, Evidence, Outcome

_FAILED = {
    "duplicate": "the same amount went to this recipient a short while ago, so the service did not buy it again",
    "failed": "the purchase failed at the network",
    "error": "the purchase failed at the service",
}


class BuyAirtimeOperator(SendOperator):
    """Top up a phone. The service calls this operation deprecated and may remove it; the task's log says so.

    Returns ``{"id", "status", "network", "amount", "charge", "balance", "refunded", "created_datetime", "references",
    "delivery_reports", "unknown_recipients", "unknown_references"}``: the purchase's id, its status (usually
    ``pending``), what was charged and the balance in the account's currency, an ISO 8601 time, our name of the request,
    the endpoint its delivery reports reach (``callback``, ``webhook``, or null where none can come), and whether nobody
    knows if it was bought (1, and no id, only with ``on_unknown="skip"``). The number is not repeated in it.

    A purchase is money, and is made once, whatever ends a try: only where nothing can have reached the service, or
    where it asked for fewer requests, do the task's retries try again. Fails at once when the request is rejected,
    when the status is ``duplicate``, ``failed`` or ``error``, when the service has removed the operation, and, unless
    ``on_unknown`` says otherwise, when nobody can find out whether it was bought; with ``resend``, the service's word
    ``duplicate`` settles that (status, id and charge are then those of the duplicate). Where the connection has a
    ``callback_url``, a delivery report settles an unknown purchase by its own status: ``success``, ``sent`` and
    ``pending`` as bought, ``failed``, ``error`` and, of a purchase that was not repeated, ``duplicate`` as failed.
    Skips when ``allowed_recipients`` of the connection does not list the recipient, and in backfills and late runs.

    :param network: Airtel, MTN, Glo, 9mobile or NTEL (templated)
    :param amount: at least 50, in the account's currency (templated)
    :param recipient: the phone number, in any usual form (templated)
    :param callback: URL that receives delivery reports (templated)
    :param external_ref: your own reference; default: ours, which errors and the journal name (templated)
    :param cpaas_conn_id: the connection to use (templated)
    """

    operation: ClassVar[str] = "buy_airtime"
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
        self._checked(bounds.if_known(bounds.network), network=network)
        self._checked(bounds.if_known(bounds.airtime_amount), amount=amount)

    def execute(self, context: Context) -> Any:
        """Buy the airtime, having said once in this try that the operation is deprecated."""
        self.log.warning("Buying airtime is deprecated by the service and may be removed.")
        return super().execute(context)

    def deed(self, client: CpaasClient, connection: CpaasConnection) -> Deed:
        """Return the one purchase."""
        from cpaas_provider.sending.deed import Deed

        recipient = self.msisdn(client, self.private("recipient"))
        self.skip_unless_allowed(client, recipient)
        return Deed(
            operation=self.operation,
            recipients=(recipient,),
            body={"network": self.network, "amount": str(self.amount)},
            perform=partial(self._buy, client),
            evidence=self.evidence(connection),
        )

    def evidence(self, connection: CpaasConnection) -> Sequence[Evidence]:
        """Return the delivery reports of the purchase, where they are received."""
        if self.tracking is None:
            return ()
        from cpaas_provider.operators._tracking import PurchaseEvidence

        return (PurchaseEvidence(self.tracking),)

    def result(self, client: CpaasClient, outcome: Outcome) -> dict[str, Any]:
        """Return the purchase's id, status and cost."""
        bought = (outcome.settled[-1].result if outcome.settled else None) or {}
        names = ("id", "status", "network", "charge", "balance", "refunded", "created_datetime")
        # An earlier try may have bought it, when the amount was another.
        return {
            **{name: bought.get(name) for name in names},
            "amount": bought.get("amount", self.amount),
            "references": [entry.reference for entry in outcome.settled],
        }

    def _buy(self, client: CpaasClient, recipients: tuple[str, ...], reference: str, again: bool) -> dict[str, Any]:
        from cpaas_provider.api.errors import CpaasRejectedError

        purchase = client.buy_airtime(
            self.network,
            self.amount,
            f"+{recipients[0]}",
            callback=self.callback_url(reference, 1),
            external_ref=self.external_ref or reference,
        )
        status = (purchase.status or "").lower()
        # That the service knows of the same purchase is what a deliberate repetition was to find out.
        if (reason := _FAILED.get(status)) and not (again and status == "duplicate"):
            raise CpaasRejectedError(
                f"Airtime was not bought: {reason}. Purchase {purchase.id}.", operation="buy_airtime"
            )
        if status == "duplicate":
            self.log.info("The service says duplicate: an earlier request bought it, and nothing was bought again.")
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
