"""What crosses the border between deciding and doing: plain values, no library's types."""

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
    """An HTTP answer. ``flaw`` says why the body is not whole; the status holds all the same."""

    status: int
    retry_after: str | None = None
    body: bytes = field(default=b"", repr=False)
    flaw: str | None = None


class Failure(Enum):
    """Why no answer came, as words for a person; the second value tells whether bytes may have left."""

    DNS = "the host name could not be resolved", False
    REFUSED = "the connection was refused", False
    TLS = (
        "the TLS connection failed (check the certificate and the verify option; a host without a scheme means https, "
        "so a server that speaks plain http needs http:// before its host)",
        False,
    )
    CONNECT_TIMEOUT = "the host could not be reached in time", False
    CONNECT = "the host could not be reached", False
    PROXY = "the proxy did not let the connection through", False
    ANSWER_TIMEOUT = "no answer came in time", True
    CUT = "the connection broke before an answer came", True

    def __init__(self, reason: str, left: bool) -> None:
        self.reason = reason
        self.left = left


@dataclass(frozen=True, slots=True)
class Pause:
    """Seconds to let pass before going on."""

    seconds: float
