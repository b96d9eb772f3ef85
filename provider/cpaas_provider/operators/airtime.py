"""The operator that buys airtime (contract.md 4.1; deprecated by the service)."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any, ClassVar

from cpaas_provider.api import bounds
from cpaas_provider.operators import _masking as masking
from cpaas_provider.operators.base import SendOperator

if TYPE_CHECKING:
    from airflow.sdk import Context

    from cpaas_provider.sending.requests.phone import AirtimeRequest


class BuyAirtimeOperator(SendOperator):
    """Buy airtime for a phone, at most once, across retries, crashes and clears.

    The service has deprecated this operation and may remove it. The task log warns of that. A retry buys only if the
    service cannot have received the request, or if it asked for fewer requests.

    The task ends without a further retry in these cases:

    * It fails when the service rejects the request, or has removed the operation.
    * It fails when the status is ``duplicate``, ``failed`` or ``error``.
    * It fails when the request is of unknown outcome, unless ``on_unknown`` is ``skip`` or ``resend``.
    * It is skipped when ``allowed_recipients`` of the connection does not list the recipient, in backfills and in stale
      runs.

    A purchase of unknown outcome can be resolved in two ways:

    * ``on_unknown="resend"`` buys again. If the service responds ``duplicate``, the first request bought the airtime.
      Status, id and charge are then those of the duplicate.
    * With ``callback_url`` on the connection, a delivery report resolves it. ``success``, ``sent`` and ``pending`` mean
      bought. ``failed`` and ``error`` mean not bought. So does ``duplicate`` if the request was made only once.

    :param network: Airtel, MTN, Glo, 9mobile or NTEL (templated)
    :param amount: at least 50, in the account's currency (templated)
    :param recipient: the phone number, in any usual form (templated)
    :returns: the purchase, without the number:

        | Key | Value |
        |---|---|
        | ``id`` | Id of the purchase. |
        | ``status`` | Status of the purchase, usually ``pending``. |
        | ``network`` | Network of the phone. Null if what an earlier try bought is not known. |
        | ``amount`` | Amount bought, in the account's currency. Null if what an earlier try bought is not known. |
        | ``charge`` | Cost, in the account's currency. |
        | ``balance`` | Balance after the purchase, in the account's currency. |
        | ``refunded`` | Whether the charge was refunded, as the service reports it. |
        | ``created_datetime`` | ISO 8601 time at which the service made the purchase. |
        | ``references`` | The provider's reference of the accepted request. |
        | ``delivery_reports`` | Their endpoint: ``callback``, ``webhook``, or null if none can arrive. |
        | ``unknown_recipients`` | 1 if the outcome is unknown (only with ``on_unknown="skip"``). ``id`` is then null. |
        | ``unknown_references`` | Reference of the request of unknown outcome. |
    """

    operation: ClassVar[str] = "buy_airtime"
    template_fields = ("network", "amount", "recipient", "callback", "external_ref", "cpaas_conn_id")
    masked_fields: ClassVar[Mapping[str, Callable[[Any], Any]]] = {
        "recipient": masking.recipient,
        "callback": masking.url,
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
        self._set_arguments(
            locals(), network=bounds.if_known(bounds.network), amount=bounds.if_known(bounds.airtime_amount)
        )

    def execute(self, context: Context) -> Any:
        """Buy the airtime. Each try logs once that the operation is deprecated."""
        self.log.warning("The service has deprecated airtime purchases and may remove them.")
        return super().execute(context)

    def build_request(self) -> AirtimeRequest:
        """Return the one purchase."""
        from cpaas_provider.sending.requests.phone import AirtimeRequest

        return AirtimeRequest(self.rendered("recipient"), self.network, self.amount, self.external_ref)
