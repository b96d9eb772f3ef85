"""Which recipient of a request a report is about: each recipient is one row, however reports write it."""

from __future__ import annotations

import functools
import logging
import secrets
from collections.abc import Collection, Iterable, Iterator
from dataclasses import dataclass, field

from sqlalchemy import Connection

from cpaas_provider.database.recipients.hash_keys import (
    HASH_BYTES,
    HashSecretMissingError,
    RecipientHasher,
    read_hasher,
    writing_hasher,
)
from cpaas_provider.delivery.reports import is_international, read_number
from cpaas_provider.delivery.tracking.recipient_status import Request

log = logging.getLogger(__name__)

UNNAMED_PREFIX = "#"
"""Prefix of the placeholder for a recipient that no report names, or whose name was erased."""

ERASED_PREFIX = f"{UNNAMED_PREFIX}erased-"

UNTRACKED_PREFIX = "~"
"""Prefix of the message id that takes the place of the campaign while the request of a message is not recorded."""

_HASH_DIGITS = 2 * HASH_BYTES
_SAME_TAIL = 6
"""Digits at the end of a number that all its written forms share."""


def unnamed_recipient(reference: str) -> str:
    """Return the placeholder for the only recipient of a request while no report names it."""
    return f"{UNNAMED_PREFIX}{reference}"


def is_unnamed(recipient: str, reference: str) -> bool:
    """Return whether this is the placeholder for a recipient that no report named."""
    return recipient in ("", unnamed_recipient(reference))


@dataclass
class RequestRecipients:
    """The recipients of one request, by the names of their rows.

    :param size: the number of its recipients
    :param names: the names that stand for a recipient each
    :param is_closed: whether ``names`` are all recipients of the request
    :param rejected: the keyed hashes of the recipients that the service rejected from the request
    :param message_id: its id, by which a recipient may have been reported and erased before the request was recorded
    """

    request: Request
    size: int
    names: dict[str, None] = field(default_factory=dict)
    is_closed: bool = False
    rejected: frozenset[str] = frozenset()
    message_id: str | None = None
    hasher: RecipientHasher | None = None
    renamed: dict[str, str] = field(default_factory=dict)
    """Names that turned out to be another name's recipient."""

    @property
    def needs_look(self) -> bool:
        """Whether every new name must be compared with the others, not only counted."""
        return self.is_closed or bool(self.rejected) or any(map(_is_unclear, self.names))

    def name_of(self, reported: str) -> str | None:
        """Return the name of the row that a report is about; ``None`` if it is about no recipient of the request.

        :param reported: the name in the report, empty if it names none
        """
        reference = self.request[2]
        if is_unnamed(reported, reference):
            return self._only_name(unnamed_recipient(reference))
        if reported in self.names:
            return reported
        if (known := self._known_as(reported)) is not None:
            return known
        if self.rejected and not self.rejected.isdisjoint(self._hashes(reported)):
            return None
        if self.is_closed:
            # The default region of the connection may have been changed after the request.
            names = [name for name in self.names if _differ_in_country(name, reported)]
            return names[0] if len(names) == 1 else None
        if len(self.names) >= self.size:
            return None
        self.names[reported] = None
        return reported

    def begin(self, known: Collection[str] | None) -> None:
        """Forget the names of reports, which have to be looked at again.

        :param known: all recipients, if they are recorded. An erased one keeps its row without a name
        """
        erased = dict.fromkeys(name for name in self.names if name.startswith(ERASED_PREFIX))
        self.names, self.is_closed = erased if known is not None else {}, known is not None
        for name in known or ():
            if self._known_as(name) is None:
                self.names[name] = None

    def unite(self) -> None:
        """Give the row without a name to the only recipient, if another row names it."""
        unnamed = unnamed_recipient(self.request[2])
        for name in [name for name in self.names if is_unnamed(name, self.request[2])]:
            named = min((known for known in self.names if not is_unnamed(known, self.request[2])), default=unnamed)
            if name != named:
                self._rename(name, named)

    def final(self, name: str | None) -> str | None:
        """Return the name under which a recipient is known in the end."""
        while name is not None and name in self.renamed:
            name = self.renamed[name]
        return name

    def _only_name(self, unnamed: str) -> str | None:
        """Return the name of the only recipient."""
        if self.size != 1:
            return None
        if not self.names:
            self.names[unnamed] = None
        return unnamed if unnamed in self.names else min(self.names)

    def _known_as(self, reported: str) -> str | None:
        """Return the name under which the recipient of a report is known already."""
        if (unnamed := unnamed_recipient(self.request[2])) in self.names and self.size == 1:
            return self._rename(unnamed, reported)
        tail = reported[-_SAME_TAIL:]
        for name in self.names:
            if name.endswith(tail) and is_same_number(name, reported):
                # The international form identifies a recipient in other requests, too.
                return self._rename(name, reported) if is_national(name) and not self.is_closed else name
        if erased := {name[-_HASH_DIGITS:]: name for name in self.names if name.startswith(ERASED_PREFIX)}:
            return next((erased[value] for value in self._hashes(reported) if value in erased), None)
        return None

    def _rename(self, name: str, final: str) -> str:
        del self.names[name]
        self.names[final] = None
        self.renamed[name] = final
        return final

    def _hashes(self, reported: str) -> Iterator[str]:
        """Yield all hashes of a recipient. A national number is read in the countries of the other recipients."""
        if self.hasher is None:
            return
        readings = {reported}
        if is_national(reported):
            readings |= {
                number for region in set(map(_region_of, self.names)) if (number := read_number(reported, region))
            }
        names = [_hashed_name(self.request)]
        if self.message_id:
            names.append(f"{UNTRACKED_PREFIX}{self.message_id}")
        for name in names:
            for reading in readings:
                for value in self.hasher.hashes(_in_request(self.request[1], name, reading)):
                    yield value.hex()


def hash_in_request(connection: Connection, request: Request, recipient: str) -> str:
    """Return the keyed hash that stands for a recipient in a request. It is another one in each request.

    Without the secret of the database's hashes it is random. Then no later report of the recipient is recognised.

    :param connection: in a transaction that writes
    """
    try:
        return writing_hasher(connection).hash(_in_request(request[1], _hashed_name(request), recipient)).hex()
    except HashSecretMissingError as error:
        log.warning("%s. A later report of this recipient is not recognised.", str(error).rstrip("."))
        return secrets.token_hex(HASH_BYTES)


def erased_name(connection: Connection, request: Request, recipient: str) -> str:
    """Return the name of the row of an erased recipient: its hash, and the region of a number.

    By the region a later report is recognised that lacks the country code.
    """
    region = _region_of(recipient)
    return f"{ERASED_PREFIX}{f'{region}-' if region else ''}{hash_in_request(connection, request, recipient)}"


def hashes_in(text: str | None) -> frozenset[str]:
    """Return the hashes that are stored in one text, one after the other."""
    text = text or ""
    return frozenset(text[start : start + _HASH_DIGITS] for start in range(0, len(text), _HASH_DIGITS))


def hasher_for(connection: Connection, requests: Iterable[RequestRecipients]) -> RecipientHasher | None:
    """Return what computes the hashes of recipients, if one of these requests has any."""
    if not any(
        recipients.rejected or any(name.startswith(ERASED_PREFIX) for name in recipients.names)
        for recipients in requests
    ):
        return None
    try:
        return read_hasher(connection)
    except HashSecretMissingError as error:
        log.warning("%s. Reports of erased and rejected recipients are not recognised.", str(error).rstrip("."))
        return None


def is_national(name: str) -> bool:
    """Return whether a name is a number that lacks its country code."""
    return not is_international(name) and _is_national(name)


# Asked before and after the rows are written.
@functools.lru_cache(maxsize=10_000)
def _is_national(name: str) -> bool:
    return "@" not in name and not name.startswith(UNNAMED_PREFIX) and read_number(name) != name


def is_same_number(name: str, reported: str) -> bool:
    """Return whether one of two numbers is the other in the form in which it is dialled in its country."""
    if "@" in name or "@" in reported or name.startswith(UNNAMED_PREFIX) or reported.startswith(UNNAMED_PREFIX):
        return False
    return read_number(name, _region_of(reported)) == reported or read_number(reported, _region_of(name)) == name


def _differ_in_country(name: str, reported: str) -> bool:
    """Return whether two numbers differ in nothing but their country codes."""
    import phonenumbers

    if name[-_SAME_TAIL:] != reported[-_SAME_TAIL:] or not (name.isdecimal() and reported.isdecimal()):
        return False
    try:
        numbers = [phonenumbers.parse(f"+{digits}") for digits in (name, reported)]
    except phonenumbers.NumberParseException:
        return False
    return len({(number.national_number, number.italian_leading_zero) for number in numbers}) == 1


def _is_unclear(name: str) -> bool:
    return name.startswith(UNNAMED_PREFIX) or is_national(name)


def _hashed_name(request: Request) -> str:
    """Return the name of a request that its hashes contain. What is reported by message id has no reference yet."""
    campaign, _, reference = request
    return campaign if campaign.startswith(UNTRACKED_PREFIX) else reference


def _in_request(conn_id: str, name: str, recipient: str) -> str:
    return "\0".join((conn_id, name, recipient))


@functools.lru_cache(maxsize=10_000)
def _region_of(name: str) -> str | None:
    """Return the region of an international number, or of an erased one."""
    import phonenumbers

    if name.startswith(ERASED_PREFIX):
        return name.removeprefix(ERASED_PREFIX)[: -_HASH_DIGITS - 1] or None
    if not name.isdecimal():
        return None
    try:
        return phonenumbers.region_code_for_number(phonenumbers.parse(f"+{name}"))
    except phonenumbers.NumberParseException:
        return None
