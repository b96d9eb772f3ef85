"""One SMS or email as a request that is made once: its checks, its body and its result."""

from __future__ import annotations

import logging
from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, ClassVar, NamedTuple, Self

from cpaas_provider.api.amounts import counted, total
from cpaas_provider.api.recipients.invalid import InvalidRecipientError
from cpaas_provider.api.recipients.reader import RecipientReader, recipient_key
from cpaas_provider.api.text import has_control_character, has_invisible_or_emoji, named_in, placeholders_in, substitute
from cpaas_provider.api.text.sms import (
    SmsWriter,
    count_other_characters,
    describe_savings,
    gsm7_savings,
    is_gsm7,
    measure_sms,
    strip_byte_order_marks,
)
from cpaas_provider.api.values import no_value_reason, readable_text
from cpaas_provider.sending.errors import (
    InvalidRequestError,
    MissingValuesError,
    NoRecipientsError,
    NoSenderError,
    TooManyRecipientsError,
)
from cpaas_provider.sending.requests import channels
from cpaas_provider.sending.requests.request import SendSettings, SingleRequest, SuppressionScope
from cpaas_provider.sending.spec import RequestResult, SendSpec, channel_of

if TYPE_CHECKING:
    from cpaas_provider.api.core import Call
    from cpaas_provider.api.models.messages import Message
    from cpaas_provider.sending.requests.channels import Channel
    from cpaas_provider.sending.spec import Client, OutcomeProbe, SendOutcome


log = logging.getLogger(__name__)


class MessageKind(NamedTuple):
    """How SMS and email differ.

    :param channel: how its recipients and requests are written
    :param sender_option: the setting of the connection that has the default sender
    :param text_fields: the fields that may have placeholders
    :param estimate_fields: the fields of the estimate that go into the result beside charge and balance
    """

    channel: Channel
    sender_option: str
    no_sender: str
    text_fields: tuple[str, ...]
    estimate_fields: tuple[str, ...] = ()


SMS = MessageKind(
    channels.SMS,
    "sender_id",
    "No sender ID is set. Nothing was sent. Set sender_id on the task or on the connection.",
    ("content",),
    ("encoding", "pages"),
)
EMAIL = MessageKind(
    channels.EMAIL,
    "email_sender_id",
    "No sender address is set. Nothing was sent. Set sender_id on the task or email_sender_id on the connection.",
    ("content", "subject"),
)
_STRIPPED_FIELDS = frozenset({"sender_id", "reply_to"})
"""Fields whose blanks at both ends are removed before they are sent."""

MESSAGE_KINDS = {kind.channel.endpoint.operation: kind for kind in (SMS, EMAIL)}


def sender_of(kind: MessageKind, sender_id: str | None, connection: SendSettings) -> str:
    """Return the sender of a message.

    :raises NoSenderError: when there is none
    """
    # An empty sender of the author is refused as any other text without a value.
    if sender_id is not None:
        return sender_id
    sender: str | None = getattr(connection, kind.sender_option)
    if not sender:
        raise NoSenderError(kind.no_sender, kind.sender_option)
    return sender


def check_header_fields(kind: MessageKind, fields: Mapping[str, Any]) -> None:
    """Check that no sender, name, subject or address for replies has what a phone or a header cannot show.

    :raises InvalidRequestError: when one has
    """
    for name in ("sender_id", "from_name", "subject", "reply_to"):
        value = fields.get(name)
        if not isinstance(value, str):
            continue
        value = value.strip() if name in _STRIPPED_FIELDS else value
        if has_control_character(value):
            raise InvalidRequestError(
                f"{name} must not contain line breaks or other control characters. Nothing was sent. Remove them."
            )
        if kind is SMS and has_invisible_or_emoji(value):
            raise InvalidRequestError(
                f"{name} must not contain zero-width characters or emoji. Nothing was sent. Remove them."
            )


class MessageSpec(SendSpec, frozen=True, kw_only=True):
    """One message, checked and complete.

    :param entries: the entries of the personalisation by recipient; ``None`` where all get the same
    """

    kind: MessageKind
    entries: Mapping[str, Any] | None = None
    external_ref: str | None = None
    placeholder_format: str = "{name}"
    encoding: str | None = None
    gsm7_saved_pages: int = 0
    """The pages of all recipients that ``encoding="gsm7"`` saves."""

    async def prepared(self, client: Client) -> Self:
        """Log the size of the message."""
        log.info("%s", self._estimate())
        return self

    def build_call(self, recipients: Sequence[str], reference: str, callback_url: str | None) -> Call[Any]:
        """Return the request to some of the recipients."""
        personalisation = None
        if (entries := self.entries) is not None:
            personalisation = [entries[recipient] for recipient in recipients if recipient in entries]
        return self.kind.channel.build_call(
            [self.kind.channel.as_read(recipient) for recipient in recipients],
            personalisation=personalisation,
            external_ref=reference if self.external_ref is None else self.external_ref,
            callback=callback_url,
            **self.body,
        )

    def read_result(self, response: Message, *, repeated: bool) -> RequestResult:
        """Return the message's id, its cost, and the recipients it does not go to."""
        estimate = response.meta.estimate if response.meta else None
        created = response.created_datetime
        details = {
            "id": response.id,
            "charge": estimate.charge if estimate else None,
            "balance": estimate.available_balance if estimate else None,
            **{name: getattr(estimate, name, None) for name in self.kind.estimate_fields},
            "created_datetime": created.isoformat() if created else None,
        }
        return RequestResult(
            response.id,
            details=details,
            rejected=frozenset(map(recipient_key, response.rejected_recipients)),
            rejection=response.rejection,
        )

    def _estimate(self) -> str:
        """Return the size of the message, as far as it is known. The provider cannot read the text of a template."""
        recipients = len(self.recipients)
        text = self.body.get("content")
        if self.kind is EMAIL:
            return f"Sending an email, recipients: {recipients}."
        if not text or not isinstance(text, str):
            return f"Sending a template, pages counted by the service, recipients: {recipients}."
        entries = (self.entries or {}).values()
        texts = {text} if len(entries) < recipients else set()
        for entry in entries:
            texts.add(substitute(text, entry["substitutions"], self.placeholder_format))
        lengths = [measure_sms(text) for text in texts]
        remaining = [count_other_characters(text) for text in texts if not is_gsm7(text)]
        fewest, most = min(length.pages for length in lengths), max(length.pages for length in lengths)
        encodings = " and ".join(sorted({length.encoding for length in lengths}))
        pages = most if fewest == most else f"{fewest} to {most}"
        saves = "" if not self.gsm7_saved_pages else f" {describe_savings(self.encoding, self.gsm7_saved_pages)}"
        if self.encoding and remaining:
            saves += (
                f" encoding='gsm7' leaves {counted(len(remaining), 'text')} in UCS-2, with up to "
                f"{counted(max(remaining), 'character')} that have no form in GSM-7."
            )
        return f"Sending {encodings} SMS, estimated pages: {pages} each, recipients: {recipients}.{saves}"


class MessageRequest(SingleRequest, frozen=True):
    """One message to the allowed recipients.

    :param body: the other fields of the request, as the client's method takes them
    """

    is_message: ClassVar[bool] = True

    kind: MessageKind
    recipients: Any
    sender_id: str | None
    body: Mapping[str, Any]
    personalisation: Any = None
    external_ref: str | None = None
    encoding: str | None = None

    @property
    def operation(self) -> str:
        """The name of the operation."""
        return self.kind.channel.endpoint.operation

    @property
    def suppression_scope(self) -> SuppressionScope:
        """All entries of the channel."""
        return SuppressionScope(channel_of(self.operation, self.body))

    def build_spec(self, connection: SendSettings, probes: Sequence[OutcomeProbe] = ()) -> MessageSpec:
        """Return the one message to all allowed recipients."""
        self._check_texts()
        reader = connection.settings.recipient_reader(self.kind.channel.recipients)
        # If an address comes in several spellings, the first is used, as in a campaign.
        found = reader.read_list(self.recipients)
        if found.invalid:
            raise InvalidRequestError(f"{found.describe_invalid()}. Nothing was sent.")
        recipients = [*found.allowed, *found.not_allowed]
        if not recipients:
            raise InvalidRequestError("recipients is empty or not a list. Nothing was sent.")
        if len(recipients) > connection.recipients_per_request:
            raise TooManyRecipientsError(
                f"{len(recipients)} recipients are too many for one request: recipients_per_request is "
                f"{connection.recipients_per_request}. Nothing was sent. Send a list of this size as a campaign, with "
                "SmsCampaignOperator or EmailCampaignOperator.",
                len(recipients),
                connection.recipients_per_request,
            )
        if not found.allowed:
            raise NoRecipientsError(
                f"None of {counted(len(recipients), 'recipient')} is on allowed_recipients of the connection. "
                "Nothing was sent.",
                len(recipients),
            )
        entries = self._entries_by_recipient(recipients, reader)
        if entries is not None:
            entries = {recipient: entries[recipient] for recipient in found.allowed if recipient in entries}
        self._check_placeholders(list((entries or {}).values()), len(found.allowed), connection.placeholder_format)
        # Before anything is recorded, so that the texts of each try have the same hash.
        body, entries, saved = self._written(entries, len(found.allowed), connection.placeholder_format)
        return MessageSpec(
            operation=self.operation,
            recipients=tuple(found.allowed),
            body={"sender_id": sender_of(self.kind, self.sender_id, connection), **body},
            personal=entries and {recipient: entry["substitutions"] for recipient, entry in entries.items()},
            probes=probes,
            not_allowed=len(found.not_allowed),
            kind=self.kind,
            entries=entries,
            external_ref=self.external_ref,
            placeholder_format=connection.placeholder_format,
            encoding=self.encoding,
            gsm7_saved_pages=saved,
        )

    def result(self, outcome: SendOutcome) -> dict[str, Any]:
        """Return ids, counts and cost."""
        messages = [entry.result or {} for entry in outcome.accepted]
        latest = messages[-1] if messages else {}
        names = ("balance", *self.kind.estimate_fields, "created_datetime")
        return {
            "id": latest.get("id"),
            "recipients": outcome.sent,
            "charge": total(message.get("charge") for message in messages),
            **{name: latest.get(name) for name in names},
            "skipped_not_allowed": outcome.not_allowed,
            "skipped_suppressed": outcome.suppressed,
            "skipped_frequency_cap": outcome.capped,
            "references": [entry.reference for entry in outcome.accepted],
        }

    def _check_texts(self) -> None:
        """Refuse text without a value, and what native rendering made of a text, such as a number of digits."""
        texts = {**self.body, "sender_id": self.sender_id, "external_ref": self.external_ref}
        for name, value in texts.items():
            if name in self.kind.text_fields and not isinstance(value, (str, type(None))):
                raise InvalidRequestError(f"{name} must be text. Nothing was sent.")
            if value is not None and (reason := no_value_reason(value)):
                raise InvalidRequestError(f"{name} {reason}. Nothing was sent. Leave it out, or give a text.")
        check_header_fields(self.kind, texts)

    def _written(
        self, entries: dict[str, Any] | None, recipients: int, placeholder_format: str
    ) -> tuple[Mapping[str, Any], dict[str, Any] | None, int]:
        """Return the fields and the entries of the personalisation as they are sent.

        :return: also the pages of all recipients that ``encoding="gsm7"`` saves
        """
        if channel_of(self.operation, self.body) != "sms":
            return without_byte_order_marks(self.body, self.kind.text_fields), entries, 0
        content = self.body.get("content")
        substitutions = [entry["substitutions"] for entry in (entries or {}).values()]
        names = tuple(dict.fromkeys(name for values in substitutions for name in values))
        writer = SmsWriter(content, names, placeholder_format, self.encoding)
        written = entries and {
            recipient: {**entry, "substitutions": writer.substitutions(entry["substitutions"])}
            for recipient, entry in entries.items()
        }
        saved_pages = 0
        if content and (entries or not is_gsm7(content)):
            saved = gsm7_savings(content, names, placeholder_format)
            own = [[values.get(name, "") for name in names] for values in substitutions]
            # The text has no placeholders where a recipient has no entry.
            saved_pages = sum(map(saved, own)) + (recipients - len(own)) * saved([""] * len(names))
        return {**self.body, "content": writer.content}, written, saved_pages

    def _entries_by_recipient(self, recipients: Iterable[str], reader: RecipientReader) -> dict[str, Any] | None:
        """Return the entries of the personalisation by the recipient they name, which must be one of ``recipients``."""
        personalisation = self.personalisation
        if personalisation is None:
            return None
        # A template without native rendering makes a text of a list.
        is_list = isinstance(personalisation, Iterable) and not isinstance(personalisation, (str, bytes))
        entries = list(personalisation) if is_list else [personalisation]
        if not all(isinstance(entry, Mapping) and isinstance(entry.get("substitutions"), Mapping) for entry in entries):
            raise InvalidRequestError(
                "personalisation must be a list of entries with `to` and `substitutions`, the latter a mapping. "
                "Nothing was sent."
            )
        spelt = {recipient_key(recipient): recipient for recipient in recipients}
        named = {recipient_key(_entry_recipient(entry, reader)): entry for entry in entries}
        if len(named) < len(entries):
            raise InvalidRequestError("personalisation names a recipient twice. Nothing was sent.")
        if not named.keys() <= spelt.keys():
            raise InvalidRequestError("personalisation names a recipient that is not in recipients. Nothing was sent.")
        return {spelt[key]: _readable_entry(entry, spelt[key]) for key, entry in named.items()}

    def _check_placeholders(self, entries: Sequence[Any], recipients: int, placeholder_format: str) -> None:
        """Refuse to send ``Dear {name}``: a recipient without a value would read the placeholder."""
        texts = [text for name in self.kind.text_fields if isinstance(text := self.body.get(name), str)]
        values = [entry["substitutions"] for entry in entries]
        with_values = {name for own in values for name in own}
        used = {name for text in texts for name in placeholders_in(text, placeholder_format)}
        used |= {name for text in texts for name in named_in(text, with_values, placeholder_format)}
        complete = sum(1 for own in values if all(own.get(name) for name in used))
        if used and complete < recipients:
            raise MissingValuesError(
                f"personalisation has no value of a placeholder ({', '.join(sorted(used))}) for "
                f"{recipients - complete} of {counted(recipients, 'recipient')}. They would read the placeholder. "
                "Nothing was sent. Give each recipient an entry in personalisation with every value. Marks that "
                "recipients are to read as they are can be given as their own value.",
                sorted(used),
            )
        if broken := sorted(
            name
            for name in named_in(self.body.get("subject") or "", with_values, placeholder_format)
            if any(has_control_character(own.get(name) or "") for own in values)
        ):
            raise InvalidRequestError(
                f"personalisation has a line break or another control character in a value of the subject "
                f"({', '.join(broken)}). Nothing was sent. Remove it, as a subject is one line."
            )
        if missing := sorted({name for own in values for name, value in own.items() if value is None}):
            raise InvalidRequestError(
                f"personalisation has no value that is text of a placeholder ({', '.join(missing)}). Nothing was sent."
            )


def without_byte_order_marks(fields: Mapping[str, Any], names: Iterable[str]) -> dict[str, Any]:
    """Return fields, of which those named are texts, without byte order marks."""
    texts = {name: strip_byte_order_marks(text) for name in names if isinstance(text := fields.get(name), str)}
    return {**fields, **texts}


def _entry_recipient(entry: Mapping[str, Any], reader: RecipientReader) -> str:
    try:
        return reader.read(entry["to"])
    except (KeyError, InvalidRecipientError):
        raise InvalidRequestError("A personalisation entry has no valid recipient in `to`. Nothing was sent.") from None


def _readable_entry(entry: Mapping[str, Any], recipient: str) -> dict[str, Any]:
    """Return an entry of the personalisation with its values as recipients read them."""
    values = {str(name): readable_text(value) for name, value in entry["substitutions"].items()}
    return {**entry, "to": recipient, "substitutions": values}
