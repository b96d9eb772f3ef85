"""The alert of one call of a notifier, its stored form, and the text of a notification."""

from __future__ import annotations

import base64
import hmac
import json
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from hashlib import sha256

from msgspec import Struct
from msgspec.structs import asdict

from cpaas_provider._common.records import PrivateRecord
from cpaas_provider.api.text import one_line, shorten
from cpaas_provider.api.text.sms import SmsWriter, shorten_sms
from cpaas_provider.notifications._runtime.alerts import OTHERS

MAX_EMAIL_CHARACTERS = 4000
MAX_SUBJECT_CHARACTERS = 150
_SHOWN = 3
"""The number of subjects that a summary names."""
_MIN_TEXT_CHARACTERS = 20
"""If a link leaves less room for the text of an SMS, the link is left out."""


class Alert(PrivateRecord, frozen=True):
    """One alert: the rendered arguments of the notifier, and the event.

    :param channel: ``sms`` or ``email``
    :param content: the author's text, rendered; ``None`` for the default
    :param headline: the subject of the event, with details
    :param max_pages: the most pages of an SMS
    :param encoding: ``gsm7`` to replace the typography of an SMS
    """

    channel: str
    recipients: Sequence[str]
    sender_id: str
    content: str | None
    headline: str
    link: str | None
    max_pages: int = 2
    subject: str | None = None
    from_name: str | None = None
    encoding: str | None = None


class Batch(Struct, frozen=True):
    """The alerts that a notification reports.

    :param count: the number of alerts
    :param subjects: the number of alerts by subject
    :param first_at: the time of the first alert
    :param reference: the reference of the request
    """

    count: int
    subjects: Mapping[str, int]
    first_at: datetime
    reference: str


def seal(alert: Alert, secrets: Sequence[str]) -> str:
    """Return the stored form of an alert, encrypted with the newest secret of its connection."""
    from cryptography.fernet import Fernet

    return Fernet(_fernet_key(secrets[0])).encrypt(json.dumps(asdict(alert)).encode()).decode()


def unseal(stored: str, secrets: Sequence[str]) -> Alert | None:
    """Return a stored alert; ``None`` if none of the secrets of its connection decrypts it, or its form is unknown.

    Fields that a newer version of the provider added are ignored.
    """
    from cryptography.fernet import Fernet, InvalidToken, MultiFernet

    try:
        plain = MultiFernet([Fernet(_fernet_key(secret)) for secret in secrets]).decrypt(stored.encode())
        values = json.loads(plain)
        return Alert(**{name: values[name] for name in Alert.__struct_fields__ if name in values})
    except (InvalidToken, ValueError, TypeError):
        return None


def group_name(secret: str, *parts: object) -> str:
    """Return the name of a group of alerts: a keyed hash, so that it does not show the recipients."""
    return hmac.new(secret.encode(), json.dumps(["alerts", *parts]).encode(), sha256).hexdigest()[:40]


def _fernet_key(secret: str) -> bytes:
    return base64.urlsafe_b64encode(hmac.digest(secret.encode(), b"stored alerts", sha256))


def sms_text(alert: Alert, alerts: Batch) -> str:
    """Return the text of an SMS about some alerts. A long text is cut before their number and the link."""
    if alert.content is not None:
        more = f" (and {alerts.count - 1} more since {_time(alerts.first_at)})" if alerts.count > 1 else ""
        if text := _shortened_sms(alert.content, more, alert):
            return text
    return _shortened_sms(f"Airflow: {_summary(alert, alerts)}", "", alert)


def _shortened_sms(text: str, more: str, alert: Alert) -> str:
    """Return a text with its number of alerts and its link, or an empty one if its first word is too long."""
    endings = [f"{more} {alert.link}", more] if alert.link else [more]
    text = SmsWriter(text, encoding=alert.encoding).content or ""
    for ending in endings:
        shortened = shorten_sms(text, alert.max_pages, ending)
        if len(shortened) - len(ending) >= min(len(text), _MIN_TEXT_CHARACTERS):
            return shortened
    return "" if shortened == ending.lstrip() else shortened


def email_texts(alert: Alert, alerts: Batch) -> tuple[str, str]:
    """Return the subject and the text of an email about some alerts. Their number and the link are never cut."""
    count, summary = alerts.count, _summary(alert, alerts)
    title = f"Airflow: {summary}"
    if alert.subject is not None:
        more = f" (and {count - 1} more)" if count > 1 else ""
        title = _shortened(one_line(alert.subject), MAX_SUBJECT_CHARACTERS, more) or title
    listed = "\n".join(f"- {subject or 'others'}: {number}" for subject, number in _ordered(alerts))
    listing = f"{summary}." if count == 1 else f"{count} alerts since {_time(alerts.first_at)}:\n{listed}"
    link = f"\n\n{alert.link}" if alert.link else ""
    content = ""
    if alert.content is not None:
        more = "" if count == 1 else f"\n\n{shorten(listing, MAX_EMAIL_CHARACTERS // 2)}"
        content = _shortened(alert.content, MAX_EMAIL_CHARACTERS, more + link)
    return shorten(one_line(title), MAX_SUBJECT_CHARACTERS), content or shorten(listing, MAX_EMAIL_CHARACTERS, link)


def _shortened(text: str, most: int, ending: str) -> str:
    """Return a text of limited length with its ending, or an empty one if its first word is too long."""
    shortened = shorten(text, most, ending)
    return "" if shortened == ending.lstrip() else shortened


def _summary(alert: Alert, alerts: Batch) -> str:
    if alerts.count == 1:
        return alert.headline
    shown = [(subject, number) for subject, number in _ordered(alerts) if subject != OTHERS][:_SHOWN]
    parts = [f"{subject} ({number})" for subject, number in shown]
    if others := alerts.count - sum(number for _, number in shown):
        parts.append(f"others ({others})")
    return f"{alerts.count} alerts since {_time(alerts.first_at)}: {', '.join(parts)}"


def _ordered(alerts: Batch) -> list[tuple[str, int]]:
    return sorted(alerts.subjects.items(), key=lambda pair: (pair[0] == OTHERS, -pair[1]))


def _time(moment: datetime) -> str:
    return f"{moment.astimezone(UTC):%H:%M} UTC"
