"""Reads the head of a response. A head that can be read in two ways is refused, so both ways to the service agree."""

from __future__ import annotations

import re
from collections.abc import Iterable

_LINE = rb"[\t\x20-\x7e\x80-\xff]*"
_HEAD = re.compile(
    rb"HTTP/1\.([01]) ([1-9][0-9]{2})(?: " + _LINE + rb")?\r\n"
    rb"((?:[!#$%&'*+\-.^_`|~0-9A-Za-z]+:" + _LINE + rb"\r\n)*)\r\n"
)
"""RFC 9112, sections 4 and 5, without what it only tolerates: bare line feeds, folded lines, blanks before a colon."""
_LENGTH = re.compile(rb"[0-9]{1,18}")
_SWITCHING_PROTOCOLS = 101

Headers = list[tuple[bytes, bytes]]
"""Names in lower case, and values without the blanks around them."""


class MalformedHeadError(ValueError):
    """The bytes are no head of a response, or do not determine where its body ends."""


def read_head(received: bytes) -> tuple[int, Headers, int]:
    """Return the status and the headers of the head that bytes begin with, and its length.

    :raises MalformedHeadError: when it has no such head, or when other readers could take another end of the body
    """
    match = _HEAD.match(received)
    if match is None:
        raise MalformedHeadError("malformed head")
    headers = []
    for line in match[3].split(b"\r\n")[:-1]:
        name, _, value = line.partition(b":")
        headers.append((name.lower(), value.strip(b" \t")))
    status = int(match[2])
    _check_framing(status, headers, is_http_1_0=match[1] == b"0")
    return status, headers, match.end()


def value_of(headers: Iterable[tuple[bytes, bytes]], name: bytes) -> str | None:
    """Return the value of a header that may appear once; ``None`` if it is absent, or if it appears more often."""
    values = _values(headers, name)
    return values[0].decode("latin-1") if len(values) == 1 else None


def joined(headers: Iterable[tuple[bytes, bytes]], name: bytes) -> str:
    """Return the value of a header that is a list, over all its lines."""
    return b", ".join(_values(headers, name)).decode("latin-1")


def _values(headers: Iterable[tuple[bytes, bytes]], name: bytes) -> list[bytes]:
    return [value for key, value in headers if key == name]


def _check_framing(status: int, headers: Headers, *, is_http_1_0: bool) -> None:
    """Refuse a body whose end is not certain, as RFC 9112, section 6.3 asks for, and a switch of protocols."""
    lengths, codings = _values(headers, b"content-length"), _values(headers, b"transfer-encoding")
    # An interim response has no body. Two equal lengths are the mark of two responses that were mixed up.
    most = 0 if status < 200 else 1
    if status == _SWITCHING_PROTOCOLS or len(lengths) + len(codings) > most:
        raise MalformedHeadError("the end of the body is uncertain")
    if not all(map(_LENGTH.fullmatch, lengths)):
        raise MalformedHeadError("no readable Content-Length")
    if codings and (is_http_1_0 or codings[0].lower() != b"chunked"):
        raise MalformedHeadError("no readable Transfer-Encoding")
