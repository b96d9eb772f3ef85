"""Summaries that Airflow stores and shows in place of personal data and secrets."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

HIDDEN = "***"
_SHOWN_RECIPIENTS = 3


def recipients(value: Any) -> str:
    """``3 recipients: 23480****789, ...``, for phone numbers and email addresses."""
    from cpaas_provider.api.recipients.reader import split_list

    if value is None or isinstance(value, (bytes, Mapping)):
        return HIDDEN
    entries = split_list(value)
    shown = ", ".join(recipient(entry) for entry in entries[:_SHOWN_RECIPIENTS])
    more = ", ..." if len(entries) > _SHOWN_RECIPIENTS else ""
    return f"{len(entries)} recipient{'' if len(entries) == 1 else 's'}: {shown}{more}"


def recipient(value: Any) -> str:
    """``23480****789`` or ``a****@example.com``."""
    from cpaas_provider.api.recipients.email_address import mask_email
    from cpaas_provider.api.recipients.msisdn import mask_msisdn

    text = str(value).strip()
    return mask_email(text) if "@" in text else mask_msisdn(text)


def text(value: Any) -> str:
    """``<140 characters>``."""
    return f"<{len(str(value))} characters>"


def entries(value: Any) -> str:
    """``<3 entries>``."""
    return f"<{len(value)} entries>" if hasattr(value, "__len__") and not isinstance(value, str) else HIDDEN


def source(value: Any) -> str:
    """Return the kind and location of a source, or the number of rows of a list."""
    from cpaas_provider.sources import as_source

    try:
        return str(as_source(value))
    except ValueError:
        return HIDDEN


def cells(value: Any) -> Any:
    """Return the column names, with every cell hidden."""
    return dict.fromkeys(map(str, value), HIDDEN) if isinstance(value, Mapping) else HIDDEN


def url(value: Any) -> str:
    """Return scheme and host. The path of a callback URL may be a credential."""
    from urllib.parse import urlsplit

    parts = urlsplit(str(value))
    return f"{parts.scheme}://{parts.hostname}/{HIDDEN}" if parts.hostname else HIDDEN


def secret(value: Any) -> str:
    """Hide everything, the length included."""
    return HIDDEN


MASKED_MESSAGE_FIELDS: Mapping[str, Callable[[Any], Any]] = {
    "recipients": recipients,
    "content": text,
    "personalisation": entries,
    "callback": url,
}
"""The masked fields of one SMS or email."""
