"""Email addresses as the service wants them (INTERFACE.md 4.2)."""

from __future__ import annotations

_VISIBLE_HEAD = 1


class InvalidEmailAddressError(ValueError):
    """A value that is no email address. The message gives the reason, never the value."""


def normalise_email(value: object) -> str:
    """Return an email address with surrounding blanks gone and its domain in lower case.

    :raises InvalidEmailAddressError: when the value is no address; whether mail arrives there is not tried
    """
    from email_validator import EmailNotValidError, validate_email

    if not isinstance(value, str):
        raise InvalidEmailAddressError("must be text")
    if not value.strip():
        raise InvalidEmailAddressError("is empty")
    try:
        return validate_email(value.strip(), check_deliverability=False, test_environment=True).normalized
    except EmailNotValidError:
        # The library's words quote the address.
        raise InvalidEmailAddressError("is not an email address") from None


def mask_email(address: str) -> str:
    """Return an address for people to recognise and nobody to write to: ``a****@example.com``."""
    local, _, domain = address.rpartition("@")
    head = local[:_VISIBLE_HEAD] if len(local) > _VISIBLE_HEAD else ""
    return f"{head}****@{domain}" if local else "****"
