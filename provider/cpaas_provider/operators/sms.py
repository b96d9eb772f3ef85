"""Sending SMS, to a few recipients and to those of a list (INTERFACE.md 4.3)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import timedelta
from typing import TYPE_CHECKING, Any, ClassVar, Literal

from airflow.sdk.exceptions import AirflowFailException

from cpaas_provider.operators import _arguments as arguments
from cpaas_provider.operators.campaigns import CampaignOperator
from cpaas_provider.operators.messages import SendMessageOperator

if TYPE_CHECKING:
    from cpaas_provider.api.client import CpaasClient
    from cpaas_provider.api.models.sms import SmsMessage
    from cpaas_provider.hooks.connection import CpaasConnection
    from cpaas_provider.sending.campaign.message import Channel


class SendSmsOperator(SendMessageOperator):
    """Send one text to one or more phones.

    Returns ``{"id", "recipients", "charge", "balance", "encoding", "pages", "created_datetime", "skipped_not_allowed",
    "references", "delivery_reports", "unknown_recipients", "unknown_references"}``: the message's id, how many
    recipients it went to, its cost and the balance in the account's currency, encoding and pages as the service counts
    them, an ISO 8601 time, how many recipients ``allowed_recipients`` of the connection left out, our names of the
    requests, the endpoint its delivery reports reach (``callback``, ``webhook``, or null where none can come), and how
    many recipients nobody knows of (only with ``on_unknown="skip"``). Numbers and text appear neither in the result nor
    in logs or rendered fields.

    Nobody gets the message twice, whatever ends a try: a later one returns what was sent and sends what was not (only
    with ``on_unknown="resend"`` may somebody get it again). Fails the task at once when a recipient is no phone
    number, when the service rejects the request, when it accepts it for some recipients only (a clear then sends to
    the others alone), and, unless ``on_unknown`` says otherwise, when nobody can find out whether it was sent. Retries,
    by the task's ``retries``, when surely nothing was sent. Skips when ``allowed_recipients`` leaves nobody, and in
    backfills and late runs.

    :param recipients: numbers in any usual form, as a list or comma-separated; repeats are dropped; at most
        ``recipients_per_request`` of the connection (templated)
    :param content: the text; required unless ``template_id`` is given (templated)
    :param sender_id: what the phone shows, at most 11 characters when alphanumeric; default: the connection's
        (templated)
    :param template_id: a template kept by the service (templated)
    :param personalisation: entries ``{"to": number, "substitutions": {name: value}}``; a recipient
        without a value for a placeholder of the text fails the task before anything is sent (templated)
    :param channel: ``sms`` or ``whatsapp``; default: ``sms``
    :param is_trackable: have links tracked; default: the service's
    :param external_ref: your own reference; default: ours, which errors and the journal name (templated)
    :param callback: URL that receives delivery reports (templated)
    :param cpaas_conn_id: the connection to use (templated)
    """

    template_fields = (
        "recipients",
        "content",
        "sender_id",
        "template_id",
        "personalisation",
        "external_ref",
        "callback",
        "cpaas_conn_id",
    )
    operation = "send_sms"
    body_fields = ("content", "template_id", "channel", "is_trackable")
    estimate_fields = ("encoding", "pages")
    template_fields_renderers: ClassVar[dict[str, str]] = {"personalisation": "json"}

    def __init__(
        self,
        *,
        recipients: str | Sequence[str],
        content: str | None = None,
        sender_id: str | None = None,
        template_id: str | None = None,
        personalisation: Sequence[Mapping[str, Any]] | None = None,
        channel: str = "sms",
        is_trackable: bool | None = None,
        external_ref: str | None = None,
        callback: str | None = None,
        **kwargs: Any,
    ) -> None:
        super().__init__(**kwargs)
        self.recipients = recipients
        self.content = content
        self.sender_id = sender_id
        self.template_id = template_id
        self.personalisation = personalisation
        self.channel = self._checked(arguments.one_of("sms", "whatsapp"), channel=channel)
        self.is_trackable = is_trackable
        self.external_ref = external_ref
        self.callback = callback
        arguments.refuse_no_text(self)

    def normalise(self, recipient: Any, client: CpaasClient) -> str:
        """Return international digits without a plus."""
        from cpaas_provider.api.numbers import normalise_msisdn

        return normalise_msisdn(recipient, client.settings.default_region)

    def sender(self, connection: CpaasConnection) -> str:
        """Return what the phone shows."""
        if sender_id := self.sender_id or connection.sender_id:
            return sender_id
        raise AirflowFailException("No sender ID: set sender_id on the task or the connection. Nothing was sent.")

    def send(
        self,
        client: CpaasClient,
        connection: CpaasConnection,
        recipients: list[str],
        personalisation: list[Any] | None,
        reference: str,
    ) -> SmsMessage:
        """Send the text."""
        return client.send_sms(
            # With a plus there is one reading only; bare digits would be read once more, perhaps as national ones.
            [f"+{recipient}" for recipient in recipients],
            self.sender(connection),
            self.private("content"),
            template_id=self.template_id,
            personalisation=personalisation,
            channel=self.channel,
            is_trackable=self.is_trackable,
            external_ref=self.external_ref or reference,
            callback=self.callback_url(reference, len(recipients)),
        )

    def announce(self, connection: CpaasConnection, recipients: int, personalisation: list[Any]) -> None:
        """Log encoding and pages as far as they can be told; a template's text is the service's secret."""
        from cpaas_provider.api.text import measure_sms, substitute

        content = self.private("content")
        if not content:
            if self.template_id:
                self.log.info("Sending a template, pages known afterwards, recipients: %d.", recipients)
            return
        texts = {content} if len(personalisation) < recipients else set()
        for entry in personalisation:
            texts.add(substitute(content, entry["substitutions"], connection.placeholder_format))
        lengths = [measure_sms(text) for text in texts]
        fewest, most = min(length.pages for length in lengths), max(length.pages for length in lengths)
        self.log.info(
            "Sending %s SMS, pages by a local estimate: %s each, recipients: %d.",
            " and ".join(sorted({length.encoding for length in lengths})),
            most if fewest == most else f"{fewest} to {most}",
            recipients,
        )


class SmsCampaignOperator(CampaignOperator):
    """Send an SMS to everybody a source names, to each once, whatever ends a try (INTERFACE.md 4.3).

    Returns the report: ``{"reference", "recipients", "sent", "rejected", "unknown_recipients", "not_sent",
    "invalid_rows", "duplicates", ..., "requests", "charge", "balance", "pages", "unknown_references",
    "delivery_reports", "results_path"}``. A task that fails leaves it in the XCom ``report``.

    Fails for good when recipients were rejected or rows bad beyond ``max_failure_ratio``, when a guard stops it, and,
    unless ``on_unknown`` says otherwise, when nobody can find out whether some were sent to; always after everybody
    else was sent to, where that is possible. Skips when there is nobody to send to, and in backfills and late runs.

    :param source: who it is for, see the campaign's arguments (templated)
    :param content: the text, with placeholders such as ``{name}``; required unless ``template_id`` is given (templated)
    :param sender_id: what the phone shows, at most 11 characters when alphanumeric; default: the connection's
        (templated)
    :param template_id: a template kept by the service; name its columns in ``substitutions`` (templated)
    :param recipient_column: the column of the phone numbers
    :param channel: ``sms`` or ``whatsapp``
    :param is_trackable: have links tracked; default: the service's
    :param external_ref: your own reference; default: ours (templated)
    :param callback: URL that receives delivery reports (templated)
    :param skip_dnd: look every number up, and leave out those that must not be disturbed; look-ups cost money
    :param lookup_ttl: for how long a look-up holds, over all campaigns of this installation
    :param on_lookup_error: about a number that cannot be looked up: ``skip``, ``send`` or ``fail``
    :param cpaas_conn_id: the connection to use (templated)
    """

    operation = "send_sms"

    def __init__(
        self,
        *,
        source: Any,
        content: str | None = None,
        sender_id: str | None = None,
        template_id: str | None = None,
        recipient_column: str = "phone",
        channel: Literal["sms", "whatsapp"] = "sms",
        is_trackable: bool | None = None,
        external_ref: str | None = None,
        callback: str | None = None,
        skip_dnd: bool = False,
        lookup_ttl: timedelta | float = timedelta(days=30),
        on_lookup_error: Literal["skip", "send", "fail"] = "skip",
        **kwargs: Any,
    ) -> None:
        super().__init__(source=source, recipient_column=recipient_column, **kwargs)
        self.content = content
        self.sender_id = sender_id
        self.template_id = template_id
        self.channel = self._checked(arguments.one_of("sms", "whatsapp"), channel=channel)
        self.is_trackable = is_trackable
        self.external_ref = external_ref
        self.callback = callback
        arguments.refuse_no_text(self)
        arguments.refuse_unstated_substitutions(self)
        self.skip_dnd = self._checked(arguments.switch, skip_dnd=skip_dnd)
        self.lookup_ttl = self._checked(arguments.span, lookup_ttl=lookup_ttl)
        self.on_lookup_error = self._checked(arguments.one_of("skip", "send", "fail"), on_lookup_error=on_lookup_error)

    @property
    def message_type(self) -> Channel:
        """Return how SMS name those they reach."""
        from cpaas_provider.sending.campaign.message import SMS

        return SMS

    def body(self, connection: CpaasConnection) -> dict[str, Any]:
        """Return what is the same for all recipients."""
        sender_id = self.sender_id or connection.sender_id
        if not sender_id:
            raise AirflowFailException("No sender ID: set sender_id on the task or the connection. Nothing was sent.")
        return {
            "sender_id": sender_id,
            "content": self.private("content"),
            "template_id": self.template_id,
            "channel": self.channel,
            "is_trackable": self.is_trackable,
        }
