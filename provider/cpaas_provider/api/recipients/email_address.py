"""Email addresses as the service wants them (contract.md 4.2): with their domain in ASCII and lower case."""

from __future__ import annotations

import functools
import re

from cpaas_provider.api.bounds import missing_value_reason
from cpaas_provider.api.recipients.invalid import InvalidRecipientError
from cpaas_provider.api.text import strip_invisible
from cpaas_provider.api.values import is_blank, plain

_VISIBLE_HEAD = 1
_LONGEST, _LONGEST_LOCAL, _LONGEST_DOMAIN = 254, 64, 253
_LONGEST_TEXT = 1_000
_WORD = r"[A-Za-z0-9!#$%&'*+/=?^_`{|}~-]+"
_LABEL = r"[A-Za-z0-9](?:[A-Za-z0-9-]{0,61}[A-Za-z0-9])?"
_PLAIN = re.compile(rf"({_WORD}(?:\.{_WORD})*)@((?:{_LABEL}\.)+([A-Za-z]{{2,63}}))")


class InvalidEmailAddressError(InvalidRecipientError):
    """The value is not an email address. The message gives the reason, never the value."""


class EmailAddress(str):
    """An email address that was read. It is never read again."""

    __slots__ = ()


def normalise_email(value: object) -> EmailAddress:
    """Return an email address without surrounding blanks, its domain in ASCII and lower case.

    The part before the domain stays in its own script and case.

    :raises InvalidEmailAddressError: when the value is not an address; whether mail arrives there is not checked
    """
    if type(value) is EmailAddress:
        return value
    value = plain(value)
    if is_blank(value):
        raise InvalidEmailAddressError("is empty")
    if not isinstance(value, str):
        raise InvalidEmailAddressError("must be text")
    address = strip_invisible(value.strip())
    if reason := missing_value_reason(address):
        raise InvalidEmailAddressError(reason)
    return EmailAddress(_plain(address) or _validated(address))


def _plain(address: str) -> str | None:
    """Normalise an address of which the library would change only the domain's capitals; ``None`` for any other.

    The library takes tens of microseconds for an address, and a list of a million addresses is read twice.
    """
    match = _PLAIN.fullmatch(address) if len(address) <= _LONGEST else None
    if match is None:
        return None
    local, domain, top = match.groups()
    if len(local) > _LONGEST_LOCAL or len(domain) > _LONGEST_DOMAIN or "--" in domain or top.lower() in _special_tops():
        return None
    # Left to the library, which writes some names, such as Postmaster, in lower case.
    return None if local.isalpha() and not local.islower() else f"{local}@{domain.lower()}"


@functools.cache
def _special_tops() -> frozenset[str]:
    from email_validator import SPECIAL_USE_DOMAIN_NAMES

    return frozenset(name.rpartition(".")[2] for name in SPECIAL_USE_DOMAIN_NAMES)


def _validated(address: str) -> str:
    # The library takes milliseconds to refuse a far longer text.
    if len(address) <= _LONGEST_TEXT:
        from email_validator import EmailNotValidError, validate_email

        try:
            valid = validate_email(address, check_deliverability=False, test_environment=True)
        except EmailNotValidError:
            # The library's message quotes the address.
            pass
        else:
            local, domain = valid.local_part, valid.ascii_domain
            if domain and len(local.encode()) <= _LONGEST_LOCAL and len(local) + len(domain) < _LONGEST:
                return f"{local}@{domain}"
    raise InvalidEmailAddressError("is not an email address")


def mask_email(address: str) -> str:
    """Return an address masked for logs, such as ``a****@example.com``."""
    local, _, domain = address.rpartition("@")
    head = local[:_VISIBLE_HEAD] if len(local) > _VISIBLE_HEAD else ""
    return f"{head}****@{domain}" if local else "****"
