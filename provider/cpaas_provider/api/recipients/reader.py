"""The one reader of recipients. Operators, notifiers, lists and commands only word what it finds."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, Literal, TypeAlias

import msgspec
from msgspec import Struct

from cpaas_provider.api.errors import CpaasConfigurationError
from cpaas_provider.api.recipients.email_address import EmailAddress, mask_email, normalise_email
from cpaas_provider.api.recipients.invalid import InvalidRecipientError
from cpaas_provider.api.recipients.msisdn import Msisdn, NumberReader, mask_msisdn

RecipientKind = Literal["phone", "email", "any"]
Recipient: TypeAlias = Msisdn | EmailAddress

_MOST_NAMED = 10


@dataclass
class RecipientList:
    """What a list of recipients holds.

    :param allowed: the recipients to send to, in their order, each once
    :param not_allowed: the recipients that ``allowed_recipients`` of the connection does not list, each once
    :param duplicates: the number of entries that repeat a recipient
    :param invalid: the place of each entry that is no recipient, from 1, and the reason
    """

    allowed: list[Recipient] = field(default_factory=list)
    not_allowed: list[Recipient] = field(default_factory=list)
    duplicates: int = 0
    invalid: list[tuple[int, str]] = field(default_factory=list)

    def describe_invalid(self) -> str:
        """Return the places and reasons of invalid entries in words, without the entries themselves."""
        named = "; ".join(f"recipient {place} {reason}" for place, reason in self.invalid[:_MOST_NAMED])
        unnamed = len(self.invalid) - _MOST_NAMED
        return f"{named}; and {unnamed} more" if unnamed > 0 else named


class AllowedRecipients:
    """A list of numbers, addresses and ``@domains``. A request to any other recipient is refused.

    :param entries: the list, as comma-separated text or as an iterable
    :param read: returns a recipient that an entry names, or raises ``InvalidRecipientError``
    :raises CpaasConfigurationError: when an entry is none of the three; the message gives its place, from 1
    """

    def __init__(self, entries: str | Iterable[str], read: Callable[[str], str]) -> None:
        parts = entries.split(",") if isinstance(entries, str) else list(entries)
        self._domains: set[str] = set()
        self._recipients: set[str] = set()
        for place, entry in enumerate(parts, start=1):
            text = str(entry).strip()
            if text.startswith("@") and "." in text:
                self._domains.add(text[1:].lower())
            elif text:
                try:
                    self._recipients.add(recipient_key(read(text)))
                except InvalidRecipientError as error:
                    raise CpaasConfigurationError(f"allowed_recipients: entry {place} {error}.") from None

    def allows(self, recipient: str) -> bool:
        """Tell whether a normalised number, with or without its plus, or an address is on the list."""
        if "@" not in recipient:
            return recipient.removeprefix("+") in self._recipients
        # +ada@example.com is another mailbox than ada@example.com.
        address = recipient_key(recipient)
        return address in self._recipients or address.rpartition("@")[2] in self._domains


class RecipientReader(Struct, frozen=True):
    """Reads recipients as the settings of a connection have it.

    :param kind: ``phone`` or ``email``; ``any`` reads a value with an ``@`` as an address
    :param numbers: how phone numbers are read
    :param allowed: the recipients that the connection may send to; ``None`` for all
    """

    kind: RecipientKind
    numbers: NumberReader = msgspec.field(default_factory=NumberReader)
    allowed: AllowedRecipients | None = None

    @property
    def read(self) -> Callable[[Any], Recipient]:
        """What returns one recipient, and raises ``InvalidRecipientError`` with the reason why a value is none."""
        if self.kind == "phone":
            return self.numbers.read
        return normalise_email if self.kind == "email" else self._read_any

    def _read_any(self, value: Any) -> Recipient:
        return normalise_email(value) if isinstance(value, str) and "@" in value else self.numbers.read(value)

    def read_list(self, values: Any) -> RecipientList:
        """Return what a list holds.

        :param values: see ``split_list``
        """
        read, recipients = self.read, RecipientList()
        keys = set[str]()
        for place, value in enumerate(split_list(values), start=1):
            try:
                recipient = read(value)
            except InvalidRecipientError as error:
                recipients.invalid.append((place, str(error)))
                continue
            if (key := recipient_key(recipient)) in keys:
                recipients.duplicates += 1
                continue
            keys.add(key)
            is_allowed = self.allowed is None or self.allowed.allows(recipient)
            (recipients.allowed if is_allowed else recipients.not_allowed).append(recipient)
        return recipients


def recipient_key(recipient: str) -> str:
    """Return the form in which recipients are compared: the digits of a number, an address in lower case.

    Mailboxes ignore the case of an address.
    """
    return recipient.lower() if "@" in recipient else recipient.removeprefix("+")


def mask_recipient(recipient: str) -> str:
    """Return a masked number or address. It can be recognised, and not used."""
    return mask_email(recipient) if "@" in recipient else mask_msisdn(recipient)


def split_list(values: Any) -> list[Any]:
    """Return recipients as a list: from text such as ``"a, b"``, a single value, or any iterable of values."""
    if isinstance(values, str):
        return [part for part in (part.strip() for part in values.split(",")) if part]
    if isinstance(values, Iterable) and not isinstance(values, (bytes, bytearray, Mapping)):
        return list(values)
    return [] if values is None else [values]
