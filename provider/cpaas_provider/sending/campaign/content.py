"""What a campaign says, and how its channel names people and measures texts."""

from __future__ import annotations

import json
import re
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import date, datetime
from typing import Any

from cpaas_provider.api.recipients.email_address import mask_email, normalise_email
from cpaas_provider.api.recipients.msisdn import mask_msisdn, normalise_msisdn
from cpaas_provider.api.text import MessageTemplate, SmsLength, measure_sms

_HALF = re.compile("[\ud800-\udfff]")
_encode = json.JSONEncoder(ensure_ascii=False, separators=(",", ":")).encode


@dataclass(frozen=True)
class Channel:
    """How one kind of message names those it reaches.

    :param operation: the client's method
    :param noun: what its recipients are known by
    :param normalise: returns an address as the journal knows it, given a default region, or raises ValueError
    :param wire: returns a normalised address as the client reads it in one way only
    :param mask: returns it for people to recognise and nobody to use
    """

    operation: str
    noun: str
    normalise: Callable[[Any, str | None], str]
    wire: Callable[[str], str]
    mask: Callable[[str], str]


SMS = Channel("send_sms", "phone number", normalise_msisdn, "+{}".format, mask_msisdn)
EMAIL = Channel("send_email", "email address", lambda value, _: normalise_email(value), str, mask_email)


@dataclass(frozen=True)
class Content:
    """What is said to everybody, and what to each alone.

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
            word = written(value) or self.defaults.get(name, "")
            if not word:
                raise ValueError(f"has no value for the placeholder {name}")
            if not word.isascii() and _HALF.search(word):
                raise ValueError(f"holds half a character for the placeholder {name}")
            words.append(word)
        return words

    def substitutions(self, words: Iterable[str]) -> list[dict[str, str]]:
        """Return each recipient's values of the placeholders from what the plan keeps."""
        return [dict(zip(self.columns, theirs, strict=True)) for theirs in json.loads(f"[{','.join(words)}]")]

    def length_estimator(self) -> Callable[[Sequence[str]], SmsLength] | None:
        """Return what tells the pages of a text by the words in it; ``None`` where that cannot be told."""
        if not self.measured:
            return None
        text = MessageTemplate(self.texts[0], tuple(self.columns), self.placeholder_format)
        if not text.names:
            same = measure_sms(self.texts[0])
            return lambda words: same
        return lambda words: measure_sms(text.render(dict(zip(self.columns, words, strict=True))))

    def rendered(self, words: str | None) -> list[str]:
        """Return the texts as one recipient reads them."""
        if words is None:
            return list(self.texts)
        (filled,) = self.substitutions([words])
        return [MessageTemplate(text, tuple(filled), self.placeholder_format).render(filled) for text in self.texts]


Send = Callable[[Sequence[str], "list[dict[str, Any]] | None", str], Awaitable[Any]]
"""Makes one request to recipients, with what it says to each alone, under a reference."""


def written(value: Any) -> str:
    """Return a cell as text for a person; blank where there is nothing."""
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
    return _encode(list(words))
