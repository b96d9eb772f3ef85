"""The content of a campaign, and how its channel writes recipients and measures texts."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from functools import cached_property
from json.encoder import encode_basestring
from typing import TYPE_CHECKING, Any, Protocol

import msgspec
from pydantic_core import from_json

from cpaas_provider._common.records import PrivateRecord
from cpaas_provider.api.amounts import counted
from cpaas_provider.api.recipients.reader import recipient_key
from cpaas_provider.api.text import MessageTemplate, has_control_character, named_in
from cpaas_provider.api.text.sms import SmsEstimator, SmsLength, SmsWriter
from cpaas_provider.api.values import missing_word, plain_texts, readable_text
from cpaas_provider.sending.campaign.message_series import MessageSeries, SeriesMessage
from cpaas_provider.sending.requests.channels import Channel
from cpaas_provider.sending.spec import RequestResult

if TYPE_CHECKING:
    from cpaas_provider.api.models.messages import Message
    from cpaas_provider.sending.campaign.recipients import Recipient

_SURROGATE = re.compile("[\ud800-\udfff]")


@dataclass
class MissingWords:
    """Counts words such as ``nan`` that cells of placeholders consist of.

    :param counts: the number of rows, by placeholder and word
    :param are_values: whether the words are values, because the source itself defines which are not
    """

    counts: dict[str, dict[str, int]] = field(default_factory=dict)
    are_values: bool = False

    def read(self, name: str, word: str) -> str | None:
        """Count a word, and return it if it is a value."""
        words = self.counts.setdefault(name, {})
        words[word] = words.get(word, 0) + 1
        return word if self.are_values else None

    def describe(self) -> list[str]:
        """Return a sentence for each word and placeholder."""
        effect = "a value, and sent" if self.are_values else "a missing value"
        return [
            f"{counted(count, 'row')} {'has' if count == 1 else 'have'} the word {word!r} in {{{name}}}. It is read as "
            f"{effect}. To change this, list the words that are missing in missing_values of a CsvSource."
            for name, words in self.counts.items()
            for word, count in words.items()
        ]


class Content(PrivateRecord, frozen=True, dict=True):
    """The content of a campaign: what is the same for all recipients, and what differs for each.

    :param body: the fields of the request that are the same for all
    :param texts: the texts that may have placeholders
    :param columns: the column of the source for each placeholder, in the order of the placeholders
    :param defaults: the value of a placeholder where a row has none
    :param placeholder_format: how the service writes the placeholder called ``name``
    :param measured: whether the first text decides the number of pages
    :param writer: writes the values of SMS as they are sent; ``None`` for other channels
    :param saved_pages: returns, of what ``values`` returns, the pages that ``encoding="gsm7"`` saves; ``None``
        if that is not to be counted
    """

    channel: Channel
    body: Mapping[str, Any]
    texts: Sequence[str]
    columns: Mapping[str, str]
    defaults: Mapping[str, str] = msgspec.field(default_factory=dict)
    placeholder_format: str = "{name}"
    measured: bool = False
    writer: SmsWriter | None = None
    saved_pages: Callable[[list[str]], int] | None = None

    @cached_property
    def _header_names(self) -> frozenset[str]:
        """The placeholders of the subject, which must stay one line."""
        return named_in(self.body.get("subject") or "", self.columns, self.placeholder_format)

    def values(self, cells: Sequence[Any], words: MissingWords | None = None) -> list[str]:
        """Return the values of the placeholders for one recipient as they are written, in their order.

        :param cells: the cells of ``columns``
        :param words: counts the words for a missing value
        :raises ValueError: naming a placeholder that has no value and no default, or one that its text cannot have
        """
        header_names = self._header_names
        if not header_names and (texts := plain_texts(cells)) is not None:
            return texts
        values = []
        for name, cell in zip(self.columns, cells, strict=True):
            value = readable_text(cell)
            if value is None and words is not None and (word := missing_word(cell)) is not None:
                value = words.read(name, word)
            value = value or self.defaults.get(name)
            if value is None:
                raise ValueError(f"has no value for the placeholder {name}")
            if not value.isascii() and _SURROGATE.search(value):
                raise ValueError(f"holds half a character for the placeholder {name}")
            if header_names and name in header_names and has_control_character(value):
                raise ValueError(
                    f"has a line break or another control character for the placeholder {name} of the subject"
                )
            values.append(value)
        return values

    def substitutions(self, stored: Iterable[str]) -> list[dict[str, str]]:
        """Return the placeholders of each recipient with their values.

        :param stored: ``Recipient.placeholder_values`` of each recipient
        """
        # One JSON text of all recipients, to parse it in one call, and by pydantic's parser, which takes a fifth.
        rows = from_json(f"[{','.join(stored)}]", cache_strings="none")
        return [dict(zip(self.columns, values, strict=True)) for values in rows]

    def series(self) -> MessageSeries:
        """Return the series of the requests of one try."""
        return MessageSeries(self.channel.endpoint, self.body, self.channel.as_read)

    def build_message(
        self, series: MessageSeries, batch: Sequence[Recipient], reference: str, delivery: CampaignDelivery
    ) -> SeriesMessage:
        """Return the request to a batch.

        :param series: what ``series`` returned, the same for all requests
        :param reference: the request's reference
        """
        return SeriesMessage(
            series,
            [recipient.address for recipient in batch],
            self.substitutions([recipient.placeholder_values or "[]" for recipient in batch]) if self.columns else None,
            delivery.external_ref or reference,
            delivery.callback_url(reference, len(batch)),
        )

    def read_result(self, message: Message) -> RequestResult:
        """Return the result that a response states."""
        estimate = message.meta.estimate if message.meta else None
        charge, balance = (estimate.charge, estimate.available_balance) if estimate else (None, None)
        if (rejection := message.rejection) is None:
            return RequestResult(message.id, charge, balance)
        rejected = frozenset(map(recipient_key, message.rejected_recipients))
        return RequestResult(message.id, charge, balance, rejected=rejected, rejection=rejection)

    def length_estimator(self) -> Callable[[Sequence[str]], SmsLength] | None:
        """Return a function from the values of the placeholders to the length of the text; ``None`` if not measured."""
        if not self.measured:
            return None
        text = MessageTemplate(self.texts[0], tuple(self.columns), self.placeholder_format)
        return SmsEstimator(text).measure

    def rendered(self, placeholder_values: str | None) -> list[str]:
        """Return the texts as one recipient reads them.

        :param placeholder_values: as in ``Recipient``
        """
        if placeholder_values is None:
            return list(self.texts)
        (values,) = self.substitutions([placeholder_values])
        return [MessageTemplate(text, tuple(values), self.placeholder_format).render(values) for text in self.texts]


class CampaignDelivery(Protocol):
    """What a campaign needs of delivery tracking."""

    external_ref: str | None
    """The author's own reference, for all requests; ``None`` to send the reference of each request."""

    def callback_url(self, reference: str, recipients: int) -> str | None:
        """Return the URL for the delivery reports of a request; ``None`` for no delivery reports."""

    def recording(self) -> AbstractContextManager[None]:
        """Return a context in which ``record`` may be called. When it ends, all requests are recorded."""

    def record(
        self, reference: str, recipients: Sequence[str], message_id: str | None, rejected: Sequence[str]
    ) -> None:
        """Record an accepted request, without waiting until it is stored.

        :param recipients: those that the service accepted
        :param rejected: those that it rejected from the request
        """


def placeholder_values_as_json(values: Iterable[str]) -> str:
    """Return the values of the placeholders as ``Recipient.placeholder_values`` has them."""
    # The same text as json.dumps(ensure_ascii=False), which would make an encoder for each row.
    return f"[{','.join(map(encode_basestring, values))}]"
