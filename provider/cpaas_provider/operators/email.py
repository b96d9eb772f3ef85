"""Sending email, to a few recipients and to those of a list (INTERFACE.md 4.2)."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, ClassVar

from airflow.sdk.exceptions import AirflowFailException

from cpaas_provider.operators import _arguments as arguments
from cpaas_provider.operators import _summaries as summaries
from cpaas_provider.operators.campaigns import PRIVATE_CAMPAIGN_FIELDS, CampaignOperator
from cpaas_provider.operators.messages import PRIVATE_MESSAGE_FIELDS, SendMessageOperator

if TYPE_CHECKING:
    from cpaas_provider.api.client import CpaasClient
    from cpaas_provider.api.models.email import EmailMessage
    from cpaas_provider.hooks.connection import CpaasConnection
    from cpaas_provider.sending.campaign.message import Channel


class SendEmailOperator(SendMessageOperator):
    """Send one email to one or more addresses.

    Returns ``{"id", "recipients", "charge", "balance", "created_datetime", "skipped_not_allowed", "references",
    "delivery_reports", "unknown_recipients", "unknown_references"}``: the message's id, how many recipients it went to,
    its cost and the balance in the account's currency, an ISO 8601 time, how many recipients ``allowed_recipients`` of
    the connection left out, our names of the requests, the endpoint its delivery reports reach (``callback``,
    ``webhook``, or null where none can come), and how many recipients nobody knows of (only with
    ``on_unknown="skip"``). Addresses and text appear neither in the result nor in logs or rendered fields.

    Nobody gets the email twice, whatever ends a try: a later one returns what was sent and sends what was not (only
    with ``on_unknown="resend"`` may somebody get it again). Fails the task at once when a recipient is no address,
    when the service rejects the request, when it accepts it for some recipients only (a clear then sends to
    the others alone), and, unless ``on_unknown`` says otherwise, when nobody can find out whether it was sent. Retries,
    by the task's ``retries``, when surely nothing was sent. Skips when ``allowed_recipients`` leaves nobody, and in
    backfills and late runs.

    :param recipients: addresses, as a list or comma-separated; repeats are dropped; at most
        ``recipients_per_request`` of the connection (templated)
    :param content: the body; required unless ``template_id`` is given (templated)
    :param subject: the subject line (templated)
    :param sender_id: the sender's address; default: the connection's ``email_sender_id`` (templated)
    :param from_name: the sender's name (templated)
    :param reply_to: the address replies go to (templated)
    :param template_id: a template kept by the service (templated)
    :param personalisation: entries ``{"to": address, "substitutions": {name: value}}``; a recipient
        without a value for a placeholder of the text fails the task before anything is sent (templated)
    :param external_ref: your own reference; default: ours, which errors and the journal name (templated)
    :param callback: URL that receives delivery reports (templated)
    :param cpaas_conn_id: the connection to use (templated)
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
    private_fields: ClassVar[Mapping[str, Callable[[Any], Any]]] = {
        **PRIVATE_MESSAGE_FIELDS,
        "subject": summaries.text,
        "reply_to": summaries.recipient,
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
        arguments.refuse_no_text(self)

    def normalise(self, recipient: Any, client: CpaasClient) -> str:
        """Return the address without surrounding blanks, its domain in lower case."""
        from cpaas_provider.api.addresses import normalise_email

        return normalise_email(recipient)

    def sender(self, connection: CpaasConnection) -> str:
        """Return the sender's address."""
        if sender_id := self.sender_id or connection.email_sender_id:
            return sender_id
        raise AirflowFailException(
            "No sender address: set sender_id on the task or email_sender_id on the connection. Nothing was sent."
        )

    def announce(self, connection: CpaasConnection, recipients: int, personalisation: list[Any]) -> None:
        """Log that an email is about to be sent."""
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
            self.private("content"),
            template_id=self.template_id,
            subject=self.private("subject"),
            from_name=self.from_name,
            reply_to=self.private("reply_to"),
            personalisation=personalisation,
            external_ref=self.external_ref or reference,
            callback=self.callback_url(reference, len(recipients)),
        )


class EmailCampaignOperator(CampaignOperator):
    """Send an email to everybody a source names, to each once, whatever ends a try (INTERFACE.md 4.2).

    Returns, fails and skips as ``SmsCampaignOperator`` does; of an email there are no pages.

    :param source: who it is for, see the campaign's arguments (templated)
    :param content: the body, with placeholders such as ``{name}``; required unless ``template_id`` is given (templated)
    :param sender_id: the sender's address; default: the connection's ``email_sender_id`` (templated)
    :param template_id: a template kept by the service; name its columns in ``substitutions`` (templated)
    :param recipient_column: the column of the addresses
    :param subject: the subject line, with placeholders, too (templated)
    :param from_name: the sender's name (templated)
    :param reply_to: the address replies go to (templated)
    :param external_ref: your own reference; default: ours (templated)
    :param callback: URL that receives delivery reports (templated)
    :param cpaas_conn_id: the connection to use (templated)
    """

    operation = "send_email"
    template_fields = (*CampaignOperator.template_fields, "subject", "from_name", "reply_to")
    private_fields: ClassVar[Mapping[str, Callable[[Any], Any]]] = {
        **PRIVATE_CAMPAIGN_FIELDS,
        "subject": summaries.text,
        "reply_to": summaries.recipient,
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
        arguments.refuse_no_text(self)
        arguments.refuse_unstated_substitutions(self)

    @property
    def message_type(self) -> Channel:
        """Return how emails name those they reach."""
        from cpaas_provider.sending.campaign.message import EMAIL

        return EMAIL

    def body(self, connection: CpaasConnection) -> dict[str, Any]:
        """Return what is the same for all recipients."""
        sender_id = self.sender_id or connection.email_sender_id
        if not sender_id:
            raise AirflowFailException(
                "No sender address: set sender_id on the task or email_sender_id on the connection. Nothing was sent."
            )
        return {
            "sender_id": sender_id,
            "content": self.private("content"),
            "template_id": self.template_id,
            "subject": self.private("subject"),
            "from_name": self.from_name,
            "reply_to": self.private("reply_to"),
        }
