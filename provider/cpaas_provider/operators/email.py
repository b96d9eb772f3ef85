"""Operators that send email, to a few recipients and to every recipient in a source (INTERFACE.md 4.2)."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, ClassVar

from airflow.sdk.exceptions import AirflowFailException

from cpaas_provider.operators import _masking as masking
from cpaas_provider.operators import _validators as validators
from cpaas_provider.operators.base_campaign import MASKED_CAMPAIGN_FIELDS, CampaignOperator
from cpaas_provider.operators.base_message import MASKED_MESSAGE_FIELDS, SendMessageOperator

if TYPE_CHECKING:
    from cpaas_provider.api.client import CpaasClient
    from cpaas_provider.api.models.email import EmailMessage
    from cpaas_provider.hooks.connection import CpaasConnection
    from cpaas_provider.sending.campaign.content import Channel


_NO_SENDER = (
    "No sender address is set. Nothing was sent. Set sender_id on the task or email_sender_id on the connection."
)


class SendEmailOperator(SendMessageOperator):
    """Send one email to one or more recipients, at most once each, across retries, crashes and clears.

    A retry sends only to recipients that are left. A recipient can get the email twice only with
    ``on_unknown="resend"``. No address and no text appears in the result, a log or a rendered field.

    The task ends without a further retry in these cases:

    * It fails when a recipient is not an email address, or when the service rejects the request.
    * It fails when the service accepts the request for some recipients only. A clear then sends to the others.
    * It fails when a request is of unknown outcome, unless ``on_unknown`` is ``skip`` or ``resend``.
    * It is skipped when ``allowed_recipients`` of the connection lists no recipient, in backfills and in stale runs.

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
    :param external_ref: a reference of your own. Default: the provider's, which errors and the journal name (templated)
    :param callback: a URL of your own that receives the delivery reports (templated)
    :param cpaas_conn_id: the connection to use (templated)
    :returns: ids, counts and costs:

        | Key | Value |
        |---|---|
        | ``id`` | Id of the email, null if none was accepted. |
        | ``recipients`` | Number of recipients the service accepted. |
        | ``charge`` | Cost, in the account's currency. |
        | ``balance`` | Balance after the request, in the account's currency. |
        | ``created_datetime`` | ISO 8601 time at which the service made the email. |
        | ``skipped_not_allowed`` | Number of recipients that ``allowed_recipients`` left out. |
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
    body_fields = ("content", "subject", "template_id", "from_name", "reply_to")
    text_fields = ("content", "subject")
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
        **kwargs: Any,
    ) -> None:
        super().__init__(**kwargs)
        self.recipients = recipients
        self.content = content
        self.subject = subject
        self.sender_id = sender_id
        self.from_name = from_name
        self.reply_to = reply_to
        self.template_id = template_id
        self.personalisation = personalisation
        self.external_ref = external_ref
        self.callback = callback
        validators.refuse_no_text(self)

    def normalise(self, recipient: Any, client: CpaasClient) -> str:
        """Return the address without surrounding blanks, its domain in lower case."""
        from cpaas_provider.api.recipients.email_address import normalise_email

        return normalise_email(recipient)

    def sender(self, connection: CpaasConnection) -> str:
        """Return the sender's address."""
        if sender_id := self.sender_id or connection.email_sender_id:
            return sender_id
        raise AirflowFailException(_NO_SENDER)

    def log_estimate(self, connection: CpaasConnection, recipients: int, personalisation: list[Any]) -> None:
        """Log the number of recipients before the email is sent."""
        self.log.info("Sending an email, recipients: %d.", recipients)

    def send(
        self,
        client: CpaasClient,
        connection: CpaasConnection,
        recipients: list[str],
        personalisation: list[Any] | None,
        reference: str,
    ) -> EmailMessage:
        """Send the email."""
        return client.send_email(
            recipients,
            self.sender(connection),
            self.rendered("content"),
            template_id=self.template_id,
            subject=self.rendered("subject"),
            from_name=self.from_name,
            reply_to=self.rendered("reply_to"),
            personalisation=personalisation,
            external_ref=self.external_ref or reference,
            callback=self.callback_url(reference, len(recipients)),
        )


class EmailCampaignOperator(CampaignOperator):
    """Send an email to every recipient in a source, at most once each, across retries, crashes and clears.

    It fails and is skipped in the same cases as ``SmsCampaignOperator`` (INTERFACE.md 4.2).

    :param source: the recipients, see the arguments of both campaigns (templated)
    :param content: the body, with placeholders such as ``{name}``, required unless ``template_id`` is given (templated)
    :param sender_id: the sender's address. Default: the connection's ``email_sender_id`` (templated)
    :param template_id: a template that the service stores. It needs ``substitutions`` (templated)
    :param recipient_column: the column of the addresses
    :param subject: the subject line, which may have placeholders, too (templated)
    :param from_name: the sender's name (templated)
    :param reply_to: the address that replies go to (templated)
    :param external_ref: a reference of your own. Default: the provider's (templated)
    :param callback: a URL of your own that receives the delivery reports (templated)
    :param cpaas_conn_id: the connection to use (templated)
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

    def __init__(
        self,
        *,
        source: Any,
        content: str | None = None,
        sender_id: str | None = None,
        template_id: str | None = None,
        recipient_column: str = "email",
        subject: str | None = None,
        from_name: str | None = None,
        reply_to: str | None = None,
        external_ref: str | None = None,
        callback: str | None = None,
        **kwargs: Any,
    ) -> None:
        super().__init__(source=source, recipient_column=recipient_column, **kwargs)
        self.content = content
        self.sender_id = sender_id
        self.template_id = template_id
        self.subject = subject
        self.from_name = from_name
        self.reply_to = reply_to
        self.external_ref = external_ref
        self.callback = callback
        validators.refuse_no_text(self)
        validators.refuse_unstated_substitutions(self)

    @property
    def message_type(self) -> Channel:
        """Return the channel of emails."""
        from cpaas_provider.sending.campaign.content import EMAIL

        return EMAIL

    def body(self, connection: CpaasConnection) -> dict[str, Any]:
        """Return the part of the request that is the same for all recipients."""
        sender_id = self.sender_id or connection.email_sender_id
        if not sender_id:
            raise AirflowFailException(_NO_SENDER)
        return {
            "sender_id": sender_id,
            "content": self.rendered("content"),
            "template_id": self.template_id,
            "subject": self.rendered("subject"),
            "from_name": self.from_name,
            "reply_to": self.rendered("reply_to"),
        }
