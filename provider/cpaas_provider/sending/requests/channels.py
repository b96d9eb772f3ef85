"""The two kinds of message, as single sends and campaigns see them."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, NamedTuple

from cpaas_provider.api import operations
from cpaas_provider.api.endpoints import SEND_EMAIL, SEND_SMS, Endpoint
from cpaas_provider.api.recipients.email_address import EmailAddress, mask_email
from cpaas_provider.api.recipients.msisdn import Msisdn, mask_msisdn
from cpaas_provider.api.recipients.reader import RecipientKind

if TYPE_CHECKING:
    from cpaas_provider.api.core import Call


class Channel(NamedTuple):
    """How a kind of message writes its recipients.

    :param endpoint: the endpoint of its messages
    :param recipients: the kind of its recipients
    :param as_read: returns the text of a recipient that was read and stored, so that no call reads it again
    :param mask: returns a recipient in a form that identifies it to the author and cannot be used
    :param build_call: returns the request, from the fields of the service's interface
    """

    endpoint: Endpoint[Any]
    recipients: RecipientKind
    as_read: Callable[[str], str]
    mask: Callable[[str], str]
    build_call: Callable[..., Call[Any]]


SMS = Channel(SEND_SMS, "phone", Msisdn, mask_msisdn, operations.send_sms)
EMAIL = Channel(SEND_EMAIL, "email", EmailAddress, mask_email, operations.send_email)
