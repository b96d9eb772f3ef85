"""The recipients that a staging connection may send to."""

from __future__ import annotations

from collections.abc import Callable, Iterable

from cpaas_provider.api.errors import CpaasConfigurationError
from cpaas_provider.api.recipients.invalid import InvalidRecipientError


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
                    self._recipients.add(read(text))
                except InvalidRecipientError as error:
                    raise CpaasConfigurationError(f"allowed_recipients: entry {place} {error}.") from None

    def allows(self, recipient: str) -> bool:
        """Tell whether a normalised number, with or without its plus, or an address is on the list."""
        if "@" not in recipient:
            return recipient.removeprefix("+") in self._recipients
        # +ada@example.com is another mailbox than ada@example.com.
        return recipient in self._recipients or recipient.rpartition("@")[2].lower() in self._domains
