"""Operators that send SMS, to a few recipients and to every recipient in a source (contract.md 4.3)."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from datetime import timedelta
from typing import TYPE_CHECKING, Any, ClassVar, Literal

from cpaas_provider.operators._masking import MASKED_MESSAGE_FIELDS
from cpaas_provider.operators.base import SendOperator
from cpaas_provider.operators.base_campaign import TYPED_CAMPAIGN_FIELDS, CampaignOperator
from cpaas_provider.tasks import validators

if TYPE_CHECKING:
    from cpaas_provider.sending.requests.message import MessageRequest
    from cpaas_provider.tasks.campaign.spec import DndOptions

BODY_FIELDS = ("content", "template_id", "channel", "is_trackable")
"""Fields of an SMS besides sender and recipients. An unknown request can only be sent again with the same values."""


class SendSmsOperator(SendOperator):
    """Send one SMS to one or more recipients, at most once each, across retries, crashes and clears.

    A retry sends only to recipients that are left. A recipient can get the message twice only with
    ``on_unknown="resend"`` or ``resend_on_clear``, or if you resolve a sent request as not sent. No phone number and no
    text appears in the result, a log or a rendered field.

    The task ends without a further retry in these cases:

    * It fails when a recipient is not a phone number, or when the service rejects the request.
    * It fails when the service accepts the request for some recipients only. A clear then sends to the others.
    * It fails when a request is of unknown outcome, unless ``on_unknown`` is ``skip`` or ``resend``.
    * It is skipped when ``allowed_recipients`` of the connection lists no recipient, in backfills and in stale
      runs.
    * It is skipped when the suppression list or ``frequency_cap`` leaves out all recipients.

    A request that was not sent is retried as the task's ``retries`` allow.

    :param recipients: phone numbers in any usual form, as a list or comma-separated. Duplicates are dropped. At most
        ``recipients_per_request`` of the connection (templated)
    :param content: the text, required unless ``template_id`` is given (templated)
    :param sender_id: the sender that the phone shows, at most 11 characters if alphanumeric. Default: the
        connection's (templated)
    :param template_id: a template that the service stores (templated)
    :param personalisation: entries ``{"to": number, "substitutions": {name: value}}``. If a recipient has no value for
        a placeholder of the text, the task fails and nothing is sent (templated)
    :param channel: ``sms`` or ``whatsapp``. Default: ``sms``
    :param is_trackable: whether the service tracks links. Default: the service's
    :param encoding: ``gsm7`` replaces typographic quotes, dashes, spaces and the like, if the whole text is GSM-7 then.
        Default: the text stays as it is written
    :returns: ids, counts and costs:

        | Key | Value |
        |---|---|
        | ``id`` | Id of the message, null if none was accepted. |
        | ``recipients`` | Number of recipients the service accepted. |
        | ``charge`` | Cost, in the account's currency. |
        | ``balance`` | Balance after the request, in the account's currency. |
        | ``encoding`` | Encoding of the text, as the service counts. |
        | ``pages`` | Billable pages (SMS segments) of the text, as the service counts. |
        | ``created_datetime`` | ISO 8601 time at which the service made the message. |
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
        "sender_id",
        "template_id",
        "personalisation",
        "external_ref",
        "callback",
        "cpaas_conn_id",
    )
    operation = "send_sms"
    masked_fields: ClassVar[Mapping[str, Callable[[Any], Any]]] = MASKED_MESSAGE_FIELDS
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
        encoding: Literal["gsm7"] | None = None,
        external_ref: str | None = None,
        callback: str | None = None,
        frequency_cap: tuple[int, timedelta | float] | None = None,
        frequency_category: str | None = None,
        **kwargs: Any,
    ) -> None:
        super().__init__(**kwargs)
        self._set_arguments(locals(), encoding=validators.sms_encoding(channel))
        validators.require_text(self)

    def build_request(self) -> MessageRequest:
        """Return the one SMS."""
        from cpaas_provider.sending.requests.message import SMS, MessageRequest

        return MessageRequest(
            SMS,
            self.rendered("recipients"),
            self.sender_id,
            {name: self.rendered(name) for name in BODY_FIELDS},
            self.rendered("personalisation"),
            self.external_ref,
            self.encoding,
        )


class SmsCampaignOperator(CampaignOperator):
    """Send an SMS to every recipient in a source, at most once each, across retries, crashes and clears.

    The task ends without a further retry in the cases below. It first sends to all other recipients, where that is
    possible (contract.md 4.3).

    * It fails when a guard such as ``max_charge`` ends the campaign.
    * It fails when more recipients are rejected or rows invalid than ``max_failure_ratio`` allows. After too many
      failed lookups it is retried, and looks these numbers up again.
    * It fails when a request is of unknown outcome, unless ``on_unknown`` is ``skip`` or ``resend``.
    * It is skipped when the campaign has no recipients, in backfills and in stale runs.

    A task that fails pushes the same report as the XCom ``report``.

    :param source: the recipients, see the arguments of both campaigns (templated)
    :param content: the text, with placeholders such as ``{name}``, required unless ``template_id`` is given (templated)
    :param sender_id: the sender that the phone shows, at most 11 characters if alphanumeric. Default: the
        connection's (templated)
    :param recipient_column: the column of the phone numbers
    :param channel: ``sms`` or ``whatsapp``
    :param is_trackable: whether the service tracks links. Default: the service's
    :param encoding: ``gsm7`` replaces typographic quotes, dashes, spaces and the like in the text and in the values of
        a recipient, if they are GSM-7 then. Default: they stay as they are written
    :param skip_dnd: look every number up, and skip numbers marked as do-not-disturb. Lookups cost money (templated)
    :param lookup_ttl: how long a lookup is used again, by all campaigns of this installation, as a timedelta or in
        seconds (templated)
    :param on_lookup_error: what to do about a number whose lookup fails: ``skip`` does not send to it and counts it as
        a failure, ``send`` sends, ``fail`` ends the campaign
    :returns: the report over all tries:

        | Key | Value |
        |---|---|
        | ``reference`` | Reference of the campaign. |
        | ``recipients`` | Number of recipients of the campaign. |
        | ``sent`` | Number of recipients the service accepted. |
        | ``rejected`` | Number of recipients the service rejected. |
        | ``unknown_recipients`` | Number of recipients of unknown outcome. |
        | ``not_sent`` | Number of recipients that no accepted request had yet. |
        | ``invalid_rows`` | Number of rows that cannot be used. |
        | ``duplicates`` | Number of rows with a recipient that another row has. |
        | ``not_allowed`` | Number of rows that ``allowed_recipients`` of the connection left out. |
        | ``suppressed`` | Number of rows that ``suppression_list`` or the stored suppression list left out. |
        | ``dnd`` | Number of rows left out as do-not-disturb. |
        | ``lookup_failed`` | Number of recipients not sent to because the lookup failed. |
        | ``frequency_capped`` | Number of rows left out by ``frequency_cap``. |
        | ``invalid_suppression_rows`` | Number of rows of the suppression list that cannot be used. |
        | ``in_other_partitions`` | Number of rows that belong to other partitions. |
        | ``missing_words`` | Rows with a word for a missing value by placeholder, like ``{"name": {"nan": 12}}``. |
        | ``requests`` | Number of accepted requests. |
        | ``charge`` | Cost, in the account's currency. |
        | ``balance`` | Balance after the last request, in the account's currency. |
        | ``pages`` | Number of texts by their billable pages (SMS segments). |
        | ``encodings`` | Number of texts by their encoding. |
        | ``estimated_charge`` | Estimated cost by ``price_per_page``, null without it. |
        | ``gsm7_saved_pages`` | Number of pages that ``encoding="gsm7"`` saves, null if not in a dry run. |
        | ``gsm7_saved_charge`` | What they cost by ``price_per_page``, null without it. |
        | ``first_request_on`` | Day, in UTC, of the first request, null without one. |
        | ``unknown_references`` | References of requests of unknown outcome, at most 100. |
        | ``delivery_reports`` | ``callback`` if the connection's callback endpoint receives them, otherwise null. |
        | ``results_path`` | Path of the results file, null without one. |
        | ``dry_run`` | Whether this was a dry run, which sends nothing. |
    """

    template_fields = (*CampaignOperator.template_fields, "skip_dnd", "lookup_ttl")
    typed_fields: ClassVar[Mapping[str, validators.Check]] = {
        **TYPED_CAMPAIGN_FIELDS,
        "skip_dnd": validators.OPTION_CHECKS["skip_dnd"],
        "lookup_ttl": validators.OPTION_CHECKS["lookup_ttl"],
    }
    operation = "send_sms"
    body_fields = BODY_FIELDS

    def __init__(
        self,
        *,
        source: Any,
        recipient_column: str = "phone",
        channel: Literal["sms", "whatsapp"] = "sms",
        is_trackable: bool | None = None,
        encoding: Literal["gsm7"] | None = None,
        skip_dnd: bool | str = False,
        lookup_ttl: timedelta | float | str = timedelta(days=30),
        on_lookup_error: Literal["skip", "send", "fail"] = "skip",
        **kwargs: Any,
    ) -> None:
        super().__init__(source=source, recipient_column=recipient_column, **kwargs)
        self._set_arguments(locals(), encoding=validators.sms_encoding(channel))

    def dnd_options(self) -> DndOptions | None:
        """Return the options of the do-not-disturb filter."""
        from cpaas_provider.tasks.campaign.spec import DndOptions

        if self.skip_dnd is False:
            return None
        options = DndOptions(self.option("lookup_ttl"), self.on_lookup_error)
        return options if self.option("skip_dnd") else None
