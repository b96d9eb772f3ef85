"""Requests, responses and failures as plain values, without types of the HTTP library."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import Enum


@dataclass(frozen=True, slots=True)
class OutgoingRequest:
    """A complete request.

    :param headers: never changed afterwards, because the transport keeps what it has written of them
    """

    method: str
    url: str = field(repr=False)
    headers: Mapping[str, str] = field(repr=False)
    body: bytes | None = field(default=None, repr=False)


@dataclass(frozen=True, slots=True)
class HttpResponse:
    """An HTTP response.

    :param body_error: why the body is incomplete, ``None`` if it is complete; the status is valid in both cases
    :param date: the header ``Date``, as the server sent it
    """

    status: int
    retry_after: str | None = None
    body: bytes = field(default=b"", repr=False)
    body_error: str | None = None
    date: str | None = None


class TransportFailure(Enum):
    """Why no response arrived: the reason for an error message, and whether bytes of the request may have left."""

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
    RESPONSE_TIMEOUT = "no response arrived in time", True
    CONNECTION_LOST = "the connection broke before a response arrived", True

    def __init__(self, reason: str, may_have_left: bool) -> None:
        self.reason = reason
        self.may_have_left = may_have_left


@dataclass(frozen=True, slots=True)
class Delay:
    """A wait, in seconds, before the next step."""

    seconds: float
