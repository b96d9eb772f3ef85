"""URL and EMAIL cells."""

from __future__ import annotations

import re
import string
from typing import Any
from urllib.parse import quote, urlsplit

from cpaas_provider.api.recipients.email_address import normalise_email
from cpaas_provider.api.text import trim_invisible
from cpaas_provider.contacts.mapping.parsing.values import checked_text

_WRONG = "must be a URL such as https://example.com/page"
_PRINTABLE = string.ascii_letters + string.digits + string.punctuation
_LABEL = "[A-Za-z0-9_](?:[A-Za-z0-9_-]{0,61}[A-Za-z0-9_])?"
_HOST = re.compile(rf"{_LABEL}(?:\.{_LABEL})*\.?|\[[0-9A-Fa-f:.]+\]")
_LONGEST_HOST = 253
_LONGEST_PLAIN = 2_000
# Most URLs match this, and are sent unchanged.
_PLAIN = re.compile(rf"https?://(?=[^/?#]{{1,{_LONGEST_HOST}}}(?:[/?#]|$)){_LABEL}(?:\.{_LABEL})*(?:[/?#][!-~]*)?")


def parse_url(value: Any) -> str:
    """Return an absolute http or https URL in the ASCII form of RFC 3986, without blanks around it.

    A host in another script becomes punycode: by IDNA 2008, and by the older IDNA 2003 where that knows no such
    character, as with emoji. Elsewhere characters beyond ASCII are percent-encoded as UTF-8. All else stays as it is
    written, but for capitals in ``HTTPS://``. A user name or password is refused: it would be stored in a contact list.
    """
    if type(value) is str and len(value) <= _LONGEST_PLAIN and _PLAIN.fullmatch(value):
        return value
    text = trim_invisible(value) if type(value) is str else ""
    if any(character.isspace() for character in text):
        raise ValueError(_WRONG)
    checked_text(text, one_line=True)
    try:
        parts = urlsplit(text)
        scheme, netloc, port = parts.scheme, parts.netloc, parts.port
    except ValueError:
        raise ValueError(_WRONG) from None
    if "@" in netloc:
        raise ValueError("must be a URL without user name and password")
    if scheme not in ("http", "https") or port == 0 or not text[len(scheme) :].startswith("://"):
        raise ValueError(_WRONG)
    rest = text[len(scheme) + len("://") + len(netloc) :]
    written = netloc.partition("]")[0] + "]" if netloc.startswith("[") else netloc.partition(":")[0]
    host = _ascii_host(written)
    if len(host) > _LONGEST_HOST or not _HOST.fullmatch(host):
        raise ValueError(_WRONG)
    return checked_text(f"{scheme}://{host}{'' if port is None else f':{port}'}{quote(rest, safe=_PRINTABLE)}")


def parse_email(value: Any) -> str:
    """Return an email address with its domain in ASCII and lower case; the part before it stays in its own script."""
    return checked_text(normalise_email(value), one_line=True)


def _ascii_host(host: str) -> str:
    # The caller refuses a longer host, and the time to convert it grows with the square of its length.
    if host.isascii() or len(host) > _LONGEST_HOST:
        return host
    # Comes with email-validator and httpx.
    import idna

    try:
        return idna.encode(host, uts46=True).decode()
    except idna.IDNAError:
        pass
    try:
        return host.encode("idna").decode()
    except UnicodeError:
        raise ValueError(_WRONG) from None
