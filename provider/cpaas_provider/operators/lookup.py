"""Looking a phone number up (INTERFACE.md 4.14)."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, ClassVar

from cpaas_provider.operators import _summaries as summaries
from cpaas_provider.operators.base import CpaasOperator, narrow

if TYPE_CHECKING:
    from cpaas_provider.api.client import CpaasClient
    from cpaas_provider.hooks.connection import CpaasConnection

_FIELDS = ("msisdn", "operator", "country", "ported", "dnd")


class PhoneLookupOperator(CpaasOperator):
    """Look a phone number up: operator, country, porting and do-not-disturb. Charged by the service.

    Returns ``{"msisdn", "operator", "country", "ported", "dnd"}``, what the service does not know being null. The
    number is part of this record, so it stands in the XCom; ``return_fields=["operator", "dnd"]`` leaves it out.

    Fails at once when the value is no phone number, and when an answer came that cannot be read (it may have been
    charged).

    :param phone: the phone number, in any usual form (templated)
    :param return_fields: the fields to return; default: all five
    :param cpaas_conn_id: the connection to use (templated)
    """

    template_fields = ("phone", "cpaas_conn_id")
    private_fields: ClassVar[Mapping[str, Callable[[Any], Any]]] = {"phone": summaries.recipient}

    def __init__(self, *, phone: str, return_fields: Sequence[str] | None = None, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.phone = phone
        self.return_fields = return_fields

    def request(self, client: CpaasClient, connection: CpaasConnection) -> dict[str, Any]:
        """Look the number up."""
        # A name that is wrong is told before anything is charged.
        narrow(dict.fromkeys(_FIELDS), self.return_fields)
        found = client.lookup_phone(self.private("phone"))
        return narrow({field: getattr(found, field) for field in _FIELDS}, self.return_fields)
