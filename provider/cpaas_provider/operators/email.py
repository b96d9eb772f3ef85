"""Operators that send email, to a few recipients and to every recipient in a source (contract.md 4.2)."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from datetime import timedelta
from typing import TYPE_CHECKING, Any, ClassVar

from cpaas_provider.operators import _masking as masking
from cpaas_provider.operators._masking import MASKED_MESSAGE_FIELDS
from cpaas_provider.operators.base import SendOperator
from cpaas_provider.operators.base_campaign import MASKED_CAMPAIGN_FIELDS, CampaignOperator
from cpaas_provider.tasks import validators

if TYPE_CHECKING:
    from cpaas_provider.sending.requests.message import MessageRequest

BODY_FIELDS = ("content", "subject", "template_id", "from_name", "reply_to")
"""Fields of an email besides sender and recipients. An unknown request can only be sent again with the same values."""


class SendEmailOperator(SendOperator):
    """Send one email to one or more recipients, at most once each, across retries, crashes and clears.

    A retry sends only to recipients that are left. A recipient can get the email twice only with
    ``on_unknown="resend"`` or ``resend_on_clear``, or if you resolve a sent request as not sent. No address and no text
    appears in the result, a log or a rendered field.

    The task ends without a further retry in these cases:

    * It fails when a recipient is not an email address, or when the service rejects the request.
    * It fails when the service accepts the request for some recipients only. A clear then sends to the others.
    * It fails when a request is of unknown outcome, unless ``on_unknown`` is ``skip`` or ``resend``.
    * It is skipped when ``allowed_recipients`` of the connection lists no recipient, in backfills and in stale
      runs.
    * It is skipped when the suppression list or ``frequency_cap`` leaves out all recipients.

    A request that was not sent is retried as the task's ``retries`` allow.

    :param recipients: email addresses, as a list or comma-separated. Duplicates are dropped. At most
        ``recipients_per_request`` of the connection (templated)
    :param content: the body, required unless ``template_id`` is given (templated)
    :param subject: the subject line (templated)
    :param sender_id: the sender's address. Default: the connection's ``email_sender_id`` (templated)
    :param from_name: the sender's name (templated)
    :param reply_to: the address that replies go to (templated)
    :param template_id: a template that the service stores (templated)
    :param personalisation: entries ``{"to": address, "substitutions": {name: value}}``. If a recipient has no value for
        a placeholder of the text, the task fails and nothing is sent (templated)
    :returns: ids, counts and costs:

        | Key | Value |
        |---|---|
        | ``id`` | Id of the email, null if none was accepted. |
        | ``recipients`` | Number of recipients the service accepted. |
        | ``charge`` | Cost, in the account's currency. |
        | ``balance`` | Balance after the request, in the account's currency. |
        | ``created_datetime`` | ISO 8601 time at which the service made the email. |
        | ``skipped_not_allowed`` | Number of recipients that ``allowed_recipients`` left out. |
        | ``skipped_suppressed`` | Number of recipients that the stored suppression list left out. |
        | ``skipped_frequency_cap`` | Number of recipients that ``frequency_cap`` left out. |
        | ``references`` | The provider's references of the accepted requests. |
        | ``delivery_reports`` | Their endpoint: ``callback``, ``webhook``, or null if none can arrive. |
        | ``unknown_recipients`` | Number of recipients of unknown outcome, above 0 only with ``on_unknown="skip"``. |
        | ``unknown_references`` | References of the requests of unknown outcome. |
    """

    template_fields = (
        "recipients",
        "content",
        "subject",
        "sender_id",
        "from_name",
        "reply_to",
        "template_id",
        "personalisation",
        "external_ref",
        "callback",
        "cpaas_conn_id",
    )
    operation = "send_email"
    template_fields_renderers: ClassVar[dict[str, str]] = {"personalisation": "json"}
    masked_fields: ClassVar[Mapping[str, Callable[[Any], Any]]] = {
        **MASKED_MESSAGE_FIELDS,
        "subject": masking.text,
        "reply_to": masking.recipient,
    }

    def __init__(
        self,
        *,
        recipients: str | Sequence[str],
        content: str | None = None,
        subject: str | None = None,
        sender_id: str | None = None,
        from_name: str | None = None,
        reply_to: str | None = None,
        template_id: str | None = None,
        personalisation: Sequence[Mapping[str, Any]] | None = None,
        external_ref: str | None = None,
        callback: str | None = None,
        frequency_cap: tuple[int, timedelta | float] | None = None,
        frequency_category: str | None = None,
        **kwargs: Any,
    ) -> None:
        super().__init__(**kwargs)
        self._set_arguments(locals())
        validators.require_text(self)

    def build_request(self) -> MessageRequest:
        """Return the one email."""
        from cpaas_provider.sending.requests.message import EMAIL, MessageRequest

        return MessageRequest(
            EMAIL,
            self.rendered("recipients"),
            self.sender_id,
            {name: self.rendered(name) for name in BODY_FIELDS},
            self.rendered("personalisation"),
            self.external_ref,
        )


class EmailCampaignOperator(CampaignOperator):
    """Send an email to every recipient in a source, at most once each, across retries, crashes and clears.

    It fails and is skipped in the same cases as ``SmsCampaignOperator`` (contract.md 4.2).

    :param source: the recipients, see the arguments of both campaigns (templated)
    :param content: the body, with placeholders such as ``{name}``, required unless ``template_id`` is given (templated)
    :param sender_id: the sender's address. Default: the connection's ``email_sender_id`` (templated)
    :param recipient_column: the column of the addresses
    :param subject: the subject line, which may have placeholders, too (templated)
    :param from_name: the sender's name (templated)
    :param reply_to: the address that replies go to (templated)
    :returns: the report over all tries, with the same keys as that of ``SmsCampaignOperator``. ``pages`` and
        ``encodings`` are empty, because an email has neither.
    """

    operation = "send_email"
    template_fields = (*CampaignOperator.template_fields, "subject", "from_name", "reply_to")
    masked_fields: ClassVar[Mapping[str, Callable[[Any], Any]]] = {
        **MASKED_CAMPAIGN_FIELDS,
        "subject": masking.text,
        "reply_to": masking.recipient,
    }
    text_fields: ClassVar[tuple[str, ...]] = ("subject", "content")
    body_fields = BODY_FIELDS

    def __init__(
        self,
        *,
        source: Any,
        recipient_column: str = "email",
        subject: str | None = None,
        from_name: str | None = None,
        reply_to: str | None = None,
        **kwargs: Any,
    ) -> None:
        super().__init__(source=source, recipient_column=recipient_column, **kwargs)
        self._set_arguments(locals())
