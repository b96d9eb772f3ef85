"""Requests, responses and failures as plain values, without types of the HTTP library."""

from __future__ import annotations

from collections.abc import Mapping
from typing import ClassVar, NamedTuple

from msgspec import Struct

from cpaas_provider._common.records import PrivateRecord


class OutgoingRequest(PrivateRecord, frozen=True):
    """A complete request.

    :param headers: never changed afterwards, because the transport keeps what it has written of them
    """

    method: str
    url: str
    headers: Mapping[str, str]
    body: bytes | None = None


class HttpResponse(PrivateRecord, frozen=True):
    """An HTTP response.

    :param body_error: why the body is incomplete, ``None`` if it is complete; the status is valid in both cases
    :param date: the header ``Date``, as the server sent it
    """

    status: int
    retry_after: str | None = None
    body: bytes = b""
    body_error: str | None = None
    date: str | None = None


class TransportFailure(Struct, frozen=True):
    """Why no response arrived.

    :param reason: for an error message
    :param may_have_left: whether the server may have read bytes of the request
    :param unread_by_standard: whether bytes have left that only a server which breaks the standard can have read
    """

    reason: str
    may_have_left: bool
    unread_by_standard: bool = False

    DNS: ClassVar[TransportFailure]
    REFUSED: ClassVar[TransportFailure]
    TLS: ClassVar[TransportFailure]
    CONNECT_TIMEOUT: ClassVar[TransportFailure]
    CONNECT: ClassVar[TransportFailure]
    PROXY: ClassVar[TransportFailure]
    RESPONSE_TIMEOUT: ClassVar[TransportFailure]
    CONNECTION_LOST: ClassVar[TransportFailure]


TransportFailure.DNS = TransportFailure("the host name could not be resolved", False)
TransportFailure.REFUSED = TransportFailure("the connection was refused", False)
TransportFailure.TLS = TransportFailure(
    "the TLS connection failed (check the certificate and the verify option; a host without a scheme means https, "
    "so put http:// before the host of a plain http server)",
    False,
)
TransportFailure.CONNECT_TIMEOUT = TransportFailure("the host could not be reached in time", False)
TransportFailure.CONNECT = TransportFailure("the host could not be reached", False)
TransportFailure.PROXY = TransportFailure("the proxy refused the connection", False)
TransportFailure.RESPONSE_TIMEOUT = TransportFailure("no response arrived in time", True)
TransportFailure.CONNECTION_LOST = TransportFailure("the connection broke before a response arrived", True)


class Delay(NamedTuple):
    """A wait, in seconds, before the next attempt.

    :param may_be_charged: whether the service may charge for the last attempt, although its response was lost
    """

    seconds: float
    may_be_charged: bool = False
