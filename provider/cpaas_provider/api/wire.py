"""Requests, responses and failures as plain values, without types of the HTTP library."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import Enum


@dataclass(frozen=True, slots=True)
class OutgoingRequest:
    """A request ready to leave."""

    method: str
    url: str = field(repr=False)
    headers: Mapping[str, str] = field(repr=False)
    body: bytes | None = field(default=None, repr=False)


@dataclass(frozen=True, slots=True)
class Answer:
    """An HTTP response. ``flaw`` is the reason why the body is incomplete; the status is valid all the same."""

    status: int
    retry_after: str | None = None
    body: bytes = field(default=b"", repr=False)
    flaw: str | None = None


class Failure(Enum):
    """Why no response arrived, for an error message; the second value is whether bytes may have left."""

    DNS = "the host name could not be resolved", False
    REFUSED = "the connection was refused", False
    TLS = (
        "the TLS connection failed (check the certificate and the verify option; a host without a scheme means https, "
        "so put http:// before the host of a plain http server)",
        False,
    )
    CONNECT_TIMEOUT = "the host could not be reached in time", False
    CONNECT = "the host could not be reached", False
    PROXY = "the proxy refused the connection", False
    ANSWER_TIMEOUT = "no response arrived in time", True
    CUT = "the connection broke before a response arrived", True

    def __init__(self, reason: str, left: bool) -> None:
        self.reason = reason
        self.left = left


@dataclass(frozen=True, slots=True)
class Pause:
    """Seconds to let pass before going on."""

    seconds: float
