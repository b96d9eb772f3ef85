"""The recipients that a staging connection may send to."""

from __future__ import annotations

from collections.abc import Iterable

from cpaas_provider.api.errors import CpaasConfigurationError
from cpaas_provider.api.recipients.email_address import InvalidEmailAddressError, normalise_email
from cpaas_provider.api.recipients.msisdn import InvalidMsisdnError, normalise_msisdn


class AllowedRecipients:
    """A list of numbers, addresses and ``@domains``. A request to any other recipient is refused.

    :param entries: the list, as comma-separated text or as an iterable
    :param default_region: region of national numbers among the entries
    :raises CpaasConfigurationError: when an entry is none of the three; the message gives its place, from 1
    """

    def __init__(self, entries: str | Iterable[str], default_region: str | None = None) -> None:
        parts = entries.split(",") if isinstance(entries, str) else list(entries)
        self._domains: set[str] = set()
        self._recipients: set[str] = set()
        for place, entry in enumerate(parts, start=1):
            text = str(entry).strip()
            if text.startswith("@") and "." in text:
                self._domains.add(text[1:].lower())
            elif text:
                self._recipients.add(_normalised(text, place, default_region))

    def allows(self, recipient: str) -> bool:
        """Tell whether a normalised number, with or without its plus, or an address is on the list."""
        if "@" not in recipient:
            return recipient.removeprefix("+") in self._recipients
        # +ada@example.com is another mailbox than ada@example.com.
        return recipient in self._recipients or recipient.rpartition("@")[2].lower() in self._domains


def _normalised(text: str, place: int, default_region: str | None) -> str:
    try:
        return normalise_email(text) if "@" in text else normalise_msisdn(text, default_region)
    except (InvalidEmailAddressError, InvalidMsisdnError) as error:
        raise CpaasConfigurationError(f"allowed_recipients: entry {place} {error}.") from None
