"""What a campaign says, and how its channel names recipients and measures texts."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from datetime import date, datetime
from json.encoder import encode_basestring
from typing import TYPE_CHECKING, Any, Protocol

from cpaas_provider.api import operations
from cpaas_provider.api.recipients.email_address import mask_email, normalise_email
from cpaas_provider.api.recipients.msisdn import mask_msisdn, normalise_msisdn
from cpaas_provider.api.text import MessageTemplate, SmsEstimator, SmsLength
from cpaas_provider.sending.spec import RequestResult

if TYPE_CHECKING:
    from cpaas_provider.api.core import Call
    from cpaas_provider.api.models.messages import Message
    from cpaas_provider.sending.campaign.recipients import Recipient

_HALF = re.compile("[\ud800-\udfff]")


@dataclass(frozen=True)
class Channel:
    """How one kind of message names those it reaches.

    :param operation: the client's method
    :param noun: what its recipients are known by
    :param normalise: returns an address as the journal knows it, given a default region, or raises ValueError
    :param wire: returns a normalised address as the client reads it in one way only
    :param mask: returns it in a form that shows which it is and cannot be used
    :param build_call: returns the request, from the fields of the contract
    """

    operation: str
    noun: str
    normalise: Callable[[Any, str | None], str]
    wire: Callable[[str], str]
    mask: Callable[[str], str]
    build_call: Callable[..., Call[Any]]


SMS = Channel("send_sms", "phone number", normalise_msisdn, "+{}".format, mask_msisdn, operations.send_sms)
EMAIL = Channel(
    "send_email", "email address", lambda value, _: normalise_email(value), str, mask_email, operations.send_email
)


@dataclass(frozen=True)
class Content:
    """The content of a campaign: what all recipients get, and what each gets alone.

    :param body: the fields of the request that are the same for all
    :param texts: the texts in which placeholders may stand
    :param columns: which column of the source fills which placeholder, in the order of the placeholders
    :param defaults: what stands for a placeholder where a row has no value
    :param placeholder_format: how the service writes the placeholder called ``name``
    :param measured: whether pages can be told from the first text
    """

    channel: Channel
    body: Mapping[str, Any] = field(repr=False)
    texts: Sequence[str] = field(repr=False)
    columns: Mapping[str, str]
    defaults: Mapping[str, str] = field(default_factory=dict, repr=False)
    placeholder_format: str = "{name}"
    measured: bool = False

    def words(self, values: Sequence[Any]) -> list[str]:
        """Return what fills the placeholders for one recipient, in their order.

        :param values: the cells of ``columns``
        :raises ValueError: naming a placeholder that has no value and no default
        """
        words = []
        for name, value in zip(self.columns, values, strict=True):
            word = value.strip() if type(value) is str else written(value)
            if not word and not (word := self.defaults.get(name, "")):
                raise ValueError(f"has no value for the placeholder {name}")
            if not word.isascii() and _HALF.search(word):
                raise ValueError(f"holds half a character for the placeholder {name}")
            words.append(word)
        return words

    def substitutions(self, words: Iterable[str]) -> list[dict[str, str]]:
        """Return each recipient's values of the placeholders from what the plan keeps."""
        return [dict(zip(self.columns, theirs, strict=True)) for theirs in json.loads(f"[{','.join(words)}]")]

    def build_call(self, batch: Sequence[Recipient], reference: str, delivery: CampaignDelivery) -> Call[Any]:
        """Return the request to a batch.

        :param reference: the request's name in the journal
        """
        wire = self.channel.wire
        recipients = [wire(one.address) for one in batch]
        personalisation = None
        if self.columns:
            substitutions = self.substitutions([one.words or "[]" for one in batch])
            personalisation = [
                {"to": to, "substitutions": own} for to, own in zip(recipients, substitutions, strict=True)
            ]
        return self.channel.build_call(
            recipients,
            **self.body,
            personalisation=personalisation,
            external_ref=delivery.external_ref or reference,
            callback=delivery.callback_url(reference, len(recipients)),
        )

    def read_result(self, message: Message) -> RequestResult:
        """Return what a response says."""
        estimate = message.meta.estimate if message.meta else None
        charge, balance = (estimate.charge, estimate.available_balance) if estimate else (None, None)
        if (rejection := message.rejection) is None:
            return RequestResult(message.id, charge, balance)
        rejected = frozenset(one.removeprefix("+").lower() for one in message.rejected_recipients)
        return RequestResult(message.id, charge, balance, rejected=rejected, rejection=rejection)

    def length_estimator(self) -> Callable[[Sequence[str]], SmsLength] | None:
        """Return what tells the pages of a text by the words in it; ``None`` where that cannot be told."""
        if not self.measured:
            return None
        text = MessageTemplate(self.texts[0], tuple(self.columns), self.placeholder_format)
        return SmsEstimator(text, tuple(self.columns)).measure

    def rendered(self, words: str | None) -> list[str]:
        """Return the texts as one recipient reads them."""
        if words is None:
            return list(self.texts)
        (filled,) = self.substitutions([words])
        return [MessageTemplate(text, tuple(filled), self.placeholder_format).render(filled) for text in self.texts]


class CampaignDelivery(Protocol):
    """What a campaign needs of delivery tracking."""

    external_ref: str | None
    """The author's own reference for all requests."""

    def callback_url(self, reference: str, recipients: int) -> str | None:
        """Return where the service sends the delivery reports of a request."""

    def recording(self) -> AbstractContextManager[None]:
        """Record accepted requests within."""

    def record(self, reference: str, recipients: Sequence[str], message_id: str | None) -> None:
        """Have a request recorded that the service accepted."""


def written(value: Any) -> str:
    """Return a cell as text; blank where there is nothing."""
    if value is None:
        return ""
    if isinstance(value, datetime):
        return value.isoformat(sep=" ", timespec="minutes")
    if isinstance(value, date):
        return value.isoformat()
    if isinstance(value, float) and value.is_integer() and abs(value) < 1e15:
        # Databases and spreadsheets make 5.0 of a 5.
        return str(int(value))
    return str(value).strip()


def joined(words: Iterable[str]) -> str:
    """Return words as the plan keeps them."""
    # As json.dumps does, which first makes an encoder for each list.
    return f"[{','.join(map(encode_basestring, words))}]"
