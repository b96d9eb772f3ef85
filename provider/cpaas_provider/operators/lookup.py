"""The operator for phone lookups (INTERFACE.md 4.14)."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, ClassVar

from cpaas_provider.operators import _masking as masking
from cpaas_provider.operators.base import CpaasOperator, select_fields

if TYPE_CHECKING:
    from cpaas_provider.api.client import CpaasClient
    from cpaas_provider.hooks.connection import CpaasConnection

_FIELDS = ("msisdn", "operator", "country", "ported", "dnd")


class PhoneLookupOperator(CpaasOperator):
    """Look up the operator, country, porting and do-not-disturb mark of a phone number. The service charges for it.

    The task fails without a retry if the value is not a phone number. It fails without a retry, too, if the response
    cannot be read, because the service may have charged for it.

    :param phone: the phone number, in any usual form (templated)
    :param return_fields: the fields to return. Default: all five
    :param cpaas_conn_id: the connection to use (templated)
    :returns: the record, with null for what the service does not know:

        | Key | Value |
        |---|---|
        | ``msisdn`` | The phone number. ``return_fields=["operator", "dnd"]`` leaves it out of the XCom. |
        | ``operator`` | Name of the network operator. |
        | ``country`` | Country of the number. |
        | ``ported`` | Whether the number was ported to another operator. |
        | ``dnd`` | Whether the number is marked as do-not-disturb. |
    """

    template_fields = ("phone", "cpaas_conn_id")
    masked_fields: ClassVar[Mapping[str, Callable[[Any], Any]]] = {"phone": masking.recipient}

    def __init__(self, *, phone: str, return_fields: Sequence[str] | None = None, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.phone = phone
        self.return_fields = return_fields

    def request(self, client: CpaasClient, connection: CpaasConnection) -> dict[str, Any]:
        """Look the number up."""
        # A name that is wrong is told before anything is charged.
        select_fields(dict.fromkeys(_FIELDS), self.return_fields)
        found = client.lookup_phone(self.rendered("phone"))
        return select_fields({field: getattr(found, field) for field in _FIELDS}, self.return_fields)
