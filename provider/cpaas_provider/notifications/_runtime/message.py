"""One alert with its recipients, how it is stored until it is sent, and the text it becomes."""

from __future__ import annotations

import base64
import hmac
import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field, fields
from datetime import UTC, datetime
from hashlib import sha256

from cpaas_provider.api.text import shorten, shorten_sms
from cpaas_provider.database.alerts import OTHERS

MAX_EMAIL_CHARACTERS = 4000
MAX_SUBJECT_CHARACTERS = 150
_SHOWN_IN_SMS = 3
_CONTROL = re.compile(r"[\x00-\x1f\x7f-\x9f]")
_LEAST = 20
"""Characters of a text that a link must leave room for."""


@dataclass(frozen=True)
class Alert:
    """An alert as its caller made it.

    :param channel: ``sms`` or ``email``
    :param content: the author's text, rendered; ``None`` for the default
    :param headline: what happened, with details
    """

    channel: str
    recipients: Sequence[str] = field(repr=False)
    sender_id: str
    content: str | None = field(repr=False)
    headline: str
    link: str | None
    max_pages: int = 2
    subject: str | None = field(default=None, repr=False)
    from_name: str | None = None


def seal(alert: Alert, secrets: Sequence[str]) -> str:
    """Return an alert as it is stored: encrypted with the newest secret of its connection."""
    from cryptography.fernet import Fernet

    return Fernet(_fernet_key(secrets[0])).encrypt(json.dumps(asdict(alert)).encode()).decode()


def unseal(stored: str, secrets: Sequence[str]) -> Alert | None:
    """Return a stored alert; ``None`` where none of the secrets of its connection opens it, or it is of no known form.

    What a newer version of the provider stored beside is left out.
    """
    from cryptography.fernet import Fernet, InvalidToken, MultiFernet

    try:
        plain = MultiFernet([Fernet(_fernet_key(one)) for one in secrets]).decrypt(stored.encode())
        found = json.loads(plain)
        return Alert(**{one.name: found[one.name] for one in fields(Alert) if one.name in found})
    except (InvalidToken, ValueError, TypeError):
        return None


def group_name(secret: str, *parts: object) -> str:
    """Return the name of a group of alerts, which does not show the recipients."""
    return hmac.new(secret.encode(), json.dumps(["alerts", *parts]).encode(), sha256).hexdigest()[:40]


def _fernet_key(secret: str) -> bytes:
    return base64.urlsafe_b64encode(hmac.digest(secret.encode(), b"stored alerts", sha256))


def sms_text(alert: Alert, count: int, subjects: Mapping[str, int], first_at: datetime) -> str:
    """Return the text of an SMS about some alerts: short, with their number and the link whole."""
    if alert.content is not None:
        more = f" (and {count - 1} more since {_time(first_at)})" if count > 1 else ""
        if text := _fitted(alert.content, more, alert):
            return text
    return _fitted(f"Airflow: {_summary(alert, count, subjects, first_at, _SHOWN_IN_SMS)}", "", alert)


def _fitted(text: str, more: str, alert: Alert) -> str:
    """Return a text with its ending; nothing where not even its beginning fits, as that of a very long link."""
    endings = [f"{more} {alert.link}", more] if alert.link else [more]
    for ending in endings:
        shortened = shorten_sms(text, alert.max_pages, ending)
        if len(shortened) - len(ending) >= min(len(text), _LEAST):
            return shortened
    return "" if shortened == ending.lstrip() else shortened


def email_texts(alert: Alert, count: int, subjects: Mapping[str, int], first_at: datetime) -> tuple[str, str]:
    """Return the subject and the text of an email about some alerts: their number and the link are whole."""
    summary = _summary(alert, count, subjects, first_at, _SHOWN_IN_SMS)
    title = f"Airflow: {summary}"
    if alert.subject is not None:
        more = f" (and {count - 1} more)" if count > 1 else ""
        title = _begun(one_line(alert.subject), MAX_SUBJECT_CHARACTERS, more) or title
    listing = f"{summary}." if count == 1 else f"{count} alerts since {_time(first_at)}:\n{_listed(subjects)}"
    link = f"\n\n{alert.link}" if alert.link else ""
    content = ""
    if alert.content is not None:
        more = "" if count == 1 else f"\n\n{shorten(listing, MAX_EMAIL_CHARACTERS // 2)}"
        content = _begun(alert.content, MAX_EMAIL_CHARACTERS, more + link)
    return shorten(one_line(title), MAX_SUBJECT_CHARACTERS), content or shorten(listing, MAX_EMAIL_CHARACTERS, link)


def _begun(text: str, most: int, ending: str) -> str:
    """Return a text with its ending within a number of characters; nothing where not even its beginning fits."""
    shortened = shorten(text, most, ending)
    return "" if shortened == ending.lstrip() else shortened


def one_line(text: str) -> str:
    """Return a text for a header of an email, which a line break would end."""
    return " ".join(_CONTROL.sub(" ", text).split())


def _summary(alert: Alert, count: int, subjects: Mapping[str, int], first_at: datetime, shown: int) -> str:
    if count == 1:
        return alert.headline
    named = sorted(((one, number) for one, number in subjects.items() if one != OTHERS), key=lambda pair: -pair[1])
    parts = [f"{subject} ({number})" for subject, number in named[:shown]]
    if rest := count - sum(number for _, number in named[:shown]):
        parts.append(f"others ({rest})")
    return f"{count} alerts since {_time(first_at)}: {', '.join(parts)}"


def _listed(subjects: Mapping[str, int]) -> str:
    ordered = sorted(subjects.items(), key=lambda pair: (pair[0] == OTHERS, -pair[1]))
    return "\n".join(f"- {subject or 'others'}: {number}" for subject, number in ordered)


def _time(moment: datetime) -> str:
    return f"{moment.astimezone(UTC):%H:%M} UTC"
