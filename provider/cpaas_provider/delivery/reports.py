"""What a delivery report says, read leniently: their format is not published."""

from __future__ import annotations

import functools
import re
from collections.abc import Callable, Iterator
from datetime import UTC, datetime
from email.utils import parseaddr
from enum import IntEnum
from typing import Any, NamedTuple

from cpaas_provider.api.redact import redact, service_word
from cpaas_provider.api.responses.values import is_refunded
from cpaas_provider.api.text import blank_unprintable

MAX_ID = 100
MAX_REASON = 300
MAX_RECIPIENT = 254


class DeliveryStatus(IntEnum):
    """What is known of a recipient, by rank: the greater wins, whatever arrives when."""

    IN_FLIGHT = 0
    UNDELIVERED = 10
    DELIVERED = 20
    BOUNCED = 30
    OPENED = 40
    CLICKED = 50

    @functools.cached_property
    def final(self) -> bool:
        """Whether something became of it."""
        return self is not DeliveryStatus.IN_FLIGHT

    @functools.cached_property
    def reached(self) -> bool:
        """Whether the message reached the recipient. It counts as delivered, everywhere."""
        return self in (DeliveryStatus.DELIVERED, DeliveryStatus.OPENED, DeliveryStatus.CLICKED)

    @functools.cached_property
    def failed(self) -> bool:
        """Whether the message will not reach the recipient. It counts as undelivered, everywhere."""
        return self.final and not self.reached

    @functools.cached_property
    def word(self) -> str:
        """The name, as files, sources, pages and commands write it."""
        return self.name.lower()

    @classmethod
    def of_word(cls, word: Any) -> DeliveryStatus | None:
        """Return the status with this name, ``None`` if there is none."""
        return next((status for status in cls if status.word == word), None)


STATUS_WORDS: dict[str, DeliveryStatus] = {
    **dict.fromkeys(
        ("pending", "queued", "scheduled", "accepted", "submitted", "processing", "sent"), DeliveryStatus.IN_FLIGHT
    ),
    **dict.fromkeys(("undelivered", "failed", "rejected", "expired", "error", "duplicate"), DeliveryStatus.UNDELIVERED),
    **dict.fromkeys(("delivered", "success"), DeliveryStatus.DELIVERED),
    "bounced": DeliveryStatus.BOUNCED,
    "opened": DeliveryStatus.OPENED,
    "clicked": DeliveryStatus.CLICKED,
}
"""Which of the service's words means what."""

_OF_PURCHASES = frozenset({"pending", "sent", "success"})
"""The words for a purchase that was bought or is in flight. What was refunded is neither."""

_KINDS = {"sms": "sms", "text": "sms", "email": "email", "airtime": "airtime"}
_ENVELOPE = ("success", "error")
"""What a service wraps resources in says one of these of itself, whatever became of the message inside."""

_IDS = ("message_id", "transaction_id", "id")  # where there are several, the bare one is the event's
_REFERENCES = ("external_ref", "client_ref")
_RECIPIENTS = ("recipient", "to", "msisdn")
_REASONS = ("description", "reason", "error", "status_desc")
_UNREAD = "unread"
"""Stands for what is no text where the cause is named."""
_TIMES = ("updated_datetime", "created_datetime", "timestamp")
_CHANNELS = ("channel", "kind", "type")

_NUMBER = re.compile(r"\+?[0-9][0-9 ().-]*")
_NO_DIGIT = re.compile(r"[^0-9]")
_HAS_NAME = re.compile(r"[\s<>()\"]")
_MAILTO = re.compile(r"^(?:rfc822;\s*)?(?:mailto:)?", re.IGNORECASE)
_LONGEST_NUMBER = 20
_MILLISECONDS_FROM = 1e11

Fields = tuple[dict[str, Any], ...]


# A tuple takes a third of the time to make that a frozen dataclass does, and there is one for each report.
class Report(NamedTuple):
    """One report, as far as it can be read.

    :param delivery_status: ``None`` where shape or status are unknown
    :param status: the service's word, lower case, redacted, up to 50 characters
    :param recipient: digits of a number without ``+``, or an address in lower case; empty where not told
    :param message_id: the service's id, up to 100 characters
    :param reference: what the sender called it, up to 100 characters
    :param reason: why, in the service's words, up to 300 characters
    :param kind: ``sms``, ``email`` or ``airtime``, where told
    :param reported_at: the time the report gives itself, where told; one without a zone is UTC
    :param causes: of a failure, every text that may name its cause, cut after ``MAX_REASON`` and one more characters
    """

    delivery_status: DeliveryStatus | None
    status: str = ""
    recipient: str = ""
    message_id: str | None = None
    reference: str | None = None
    reason: str | None = None
    kind: str | None = None
    reported_at: datetime | None = None
    causes: tuple[str, ...] = ()


def read_report(body: Any, region: str | None = None) -> Report:
    """Return what a report states, in any JSON. Fields that cannot be read stay empty.

    :param region: the two-letter region of national numbers, ``default_region`` of the connection
    """
    fields = _fields(body)
    family, _, happened = (_first(fields, ("event",), _word) or "").rpartition(".")
    status = _first(_with_status(fields), ("status",), _status)
    status_word = happened if happened in STATUS_WORDS else status or happened
    delivery_status = STATUS_WORDS.get(status_word)
    if status_word in _OF_PURCHASES and is_refunded(body):
        # It contradicts itself, and proves nothing.
        delivery_status = None
    read_recipient = functools.partial(normalise_recipient, region=region) if region else normalise_recipient
    # By position, which takes half as long as by name.
    return Report(
        delivery_status,
        status_word if delivery_status is not None else service_word(status_word, ()),
        _first(fields, _RECIPIENTS, read_recipient) or "",
        _first(fields, _IDS, _identifier),
        _first(fields, _REFERENCES, _identifier),
        _first(fields, _REASONS, _reason) or _first(fields, ("status",), _description),
        _KINDS.get(family) or _first(fields, _CHANNELS, _kind),
        _first(fields, _TIMES, _moment),
        tuple(_causes(fields)) if delivery_status is not None and delivery_status.failed else (),
    )


def normalise_recipient(value: Any, region: str | None = None) -> str | None:
    """Return how a recipient is filed: a number's digits alone, an address in lower case, or ``None``.

    As the reader of recipients reads it, so that a report finds the recipient that was sent to. What that does not
    take, such as a national number of no known region, is filed as it is written.

    :param region: the two-letter region of national numbers
    """
    if isinstance(value, list) and len(value) == 1:
        value = value[0]
    text = _text(value)
    if text and "@" in text:
        return _filed_address(text)
    if text and (number := read_number(text, region)):
        return number
    if not text or not _NUMBER.fullmatch(text):
        return None
    # 00 is how a phone dials +; no number begins with 0 in its international form.
    digits = _NO_DIGIT.sub("", text).removeprefix("00")
    return digits if 0 < len(digits) <= _LONGEST_NUMBER else None


def read_number(text: str, region: str | None = None) -> str | None:
    """Return the international digits of a number, as a report or a row has it; ``None`` if it is national or none.

    Reports have international digits without a plus. So digits that are valid as such are no national number.

    :param region: the two-letter region of national numbers
    """
    digits = text.removeprefix("+")
    if len(digits) <= _LONGEST_NUMBER and is_international(digits):
        return digits
    for read, prefix in _number_readers(region):
        try:
            # A plain text, because database drivers do not take other kinds.
            return str(read(f"{prefix}{text}" if text.isdecimal() else text))
        except ValueError:
            continue
    return None


# A number is asked for when its report is read, and again when its row is written.
@functools.lru_cache(maxsize=10_000)
def is_international(digits: str) -> bool:
    """Return whether digits are certainly a valid international number."""
    is_plain, parse_plain = _plain_reader()
    number = f"+{digits}"
    return is_plain(number) is not None and parse_plain(number, None) is not None


# An import takes too long for each report.
@functools.cache
def _plain_reader() -> tuple[Callable[[str], Any], Callable[[str, str | None], str | None]]:
    from cpaas_provider.api.recipients.msisdn import PLAIN, parse_plain

    return PLAIN.fullmatch, parse_plain


@functools.cache
def _number_readers(region: str | None) -> tuple[tuple[Callable[[str], str], str], ...]:
    """Return what reads a number, one after the other, each with what it needs before plain digits."""
    from cpaas_provider.api.recipients.msisdn import INTERNATIONAL, NumberReader

    national = ((NumberReader(region, "possible").read, ""),) if region else ()
    return (INTERNATIONAL.read, "+"), *national, (NumberReader(None, "possible").read, "")


def _filed_address(text: str) -> str | None:
    address = _MAILTO.sub("", text)
    if _HAS_NAME.search(address):
        address = parseaddr(address)[1] or address
        address = _MAILTO.sub("", address)
    # Most reports write an address in ASCII, which is read as it is.
    if not address.isascii():
        address = _read_address(address)
    # Measured as it is stored: a few letters are longer in lower case.
    address = address.lower()
    return address if len(address) <= MAX_RECIPIENT else None


def _read_address(text: str) -> str:
    from cpaas_provider.api.recipients.email_address import InvalidEmailAddressError, normalise_email

    try:
        return normalise_email(text)
    except InvalidEmailAddressError:
        return text


def _fields(body: Any) -> Fields:
    """Return the places a field may be in; the inner one knows more of the message, the outer of the envelope."""
    if not isinstance(body, dict):
        return ()
    inner = body.get("data")
    return (inner, body) if isinstance(inner, dict) else (body,)


def _with_status(fields: Fields) -> Fields:
    """Return the places whose status is the message's: an envelope's own tells only that there is something in it."""
    outer = fields[-1] if fields else {}
    around = isinstance(outer.get("data"), (dict, list)) and _first((outer,), _RECIPIENTS, normalise_recipient) is None
    return fields[:-1] if around and _status(outer.get("status")) in _ENVELOPE else fields


def _first(fields: Fields, names: tuple[str, ...], read: Any) -> Any:
    for part in fields:
        for name in names:
            if name in part and (value := part[name]) is not None and (read_value := read(value)) is not None:
                return read_value
    return None


def _causes(fields: Fields) -> Iterator[str]:
    """Yield the texts of a failure that may name its cause: only one is its reason, and others may contradict it."""
    for part in fields:
        for value in map(part.get, _REASONS):
            if isinstance(value, (dict, list)) and value:
                yield _UNREAD
            elif isinstance(value, str) and (text := _text(value)):
                yield text[: MAX_REASON + 1]
    for part in _with_status(fields):
        status = part.get("status")
        for value in (status.get("text"), status.get("description")) if isinstance(status, dict) else (status,):
            if isinstance(value, str) and (text := _text(value)):
                yield text[: MAX_REASON + 1]


def _text(value: Any) -> str | None:
    """Text that any database takes: no halves of characters, no NUL."""
    if not isinstance(value, str):
        if not isinstance(value, int) or isinstance(value, bool) or value.bit_length() >= 256:
            # A longer number is no recipient's number or id, and takes long to write down.
            return None
        value = str(value)
    return (value if value.isprintable() else blank_unprintable(value)).strip() or None


def _word(value: Any) -> str | None:
    return text.lower() if isinstance(value, str) and (text := _text(value)) else None


def _status(value: Any) -> str | None:
    if isinstance(value, dict):
        return _word(value.get("text")) or _word(value.get("description"))
    return _word(value)


def _kind(value: Any) -> str | None:
    return _KINDS.get(_word(value) or "")


def _description(value: Any) -> str | None:
    return _reason(value.get("description")) if isinstance(value, dict) else None


def _identifier(value: Any) -> str | None:
    # Cut short it would be another's.
    text = _text(value)
    return text if text and len(text) <= MAX_ID else None


def _reason(value: Any) -> str | None:
    if not isinstance(value, str):
        return None
    text = _text(value)
    # Redacted before it is cut, because a part of a number or of an address cannot be recognised.
    return text if text is None or len(text) <= MAX_REASON else redact(text, (), longest=MAX_REASON)


def _moment(value: Any) -> datetime | None:
    try:
        if isinstance(value, str):
            moment = datetime.fromisoformat(value)
            if moment.tzinfo is UTC:
                return moment
            return moment.astimezone(UTC) if moment.tzinfo else moment.replace(tzinfo=UTC)
        if isinstance(value, (int, float)) and not isinstance(value, bool):
            return datetime.fromtimestamp(value / 1000 if value >= _MILLISECONDS_FROM else value, UTC)
    except (ValueError, OverflowError, OSError):
        pass
    return None
