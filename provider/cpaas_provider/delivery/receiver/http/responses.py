"""The responses of the endpoints, ready to be sent."""

from __future__ import annotations

import json
from collections.abc import Awaitable, Callable, Mapping

from starlette.datastructures import MutableHeaders
from starlette.responses import Response
from starlette.types import Message, Send

MAX_BODY = 256 * 1024
BODY_TIMEOUT = 10.0
RETRY_AFTER = 10
RESPONSE_TIMEOUT = 8.0
"""How long a sender waits for a response after its body, whatever the database does."""

PRIVATE_HEADERS = {"cache-control": "no-store", "x-content-type-options": "nosniff"}
"""The headers of every response under our prefix, unless it sets its own: no copy is stored, and no type is guessed."""

_RETRY = {"retry-after": str(RETRY_AFTER)}


class RefusalError(Exception):
    """The report is refused with this response."""

    def __init__(self, response: Response) -> None:
        super().__init__(response.status_code)
        self.response = response


def json_response(status: int, content: Mapping[str, str], headers: Mapping[str, str] | None = None) -> Response:
    """Return a response with a small JSON body."""
    return Response(json.dumps(content), status, {**PRIVATE_HEADERS, **(headers or {})}, "application/json")


def with_private_headers(send: Send) -> Send:
    """Return a function that sends responses with those of ``PRIVATE_HEADERS`` that they do not set themselves."""

    async def send_message(message: Message) -> None:
        if message["type"] == "http.response.start":
            headers = MutableHeaders(scope=message)
            for name, value in PRIVATE_HEADERS.items():
                headers.setdefault(name, value)
        await send(message)

    return send_message


async def send_response(
    response: Response, send: Send, *, take_rest: Callable[[], Awaitable[None]] | None = None
) -> None:
    """Send a response.

    :param take_rest: reads the rest of a request that was not read whole. The connection is closed afterwards. Closing
        it with unread data resets it, and the sender may lose the response
    """
    headers = [*response.raw_headers, (b"connection", b"close")] if take_rest else list(response.raw_headers)
    await send({"type": "http.response.start", "status": response.status_code, "headers": headers})
    if take_rest:
        await send({"type": "http.response.body", "body": response.body, "more_body": True})
        await take_rest()
        await send({"type": "http.response.body", "body": b""})
    else:
        await send({"type": "http.response.body", "body": response.body})


def _refusal(status: int, detail: str, headers: Mapping[str, str] | None = None) -> Response:
    return json_response(status, {"detail": detail}, headers)


STORED = json_response(200, {"status": "stored"})
CLIENT_DISCONNECTED = _refusal(400, "The connection closed before the whole body arrived.")
BAD_SIGNATURE = _refusal(401, "The signature is missing or wrong.", {"www-authenticate": "Signature"})
# The same for an unknown connection, an invalid token and a closed endpoint, so that it does not disclose which.
NOT_FOUND = _refusal(404, "Not found.")
METHOD_NOT_ALLOWED = _refusal(405, "Send delivery reports with POST.", {"allow": "POST"})
REQUEST_TIMEOUT = _refusal(408, f"The body did not arrive within {BODY_TIMEOUT:g} s.")
TOO_LARGE = _refusal(413, f"The body is larger than {MAX_BODY} bytes.")
UNSUPPORTED_MEDIA_TYPE = _refusal(415, "Send delivery reports as application/json, without a content encoding.")
INVALID_JSON = _refusal(422, "The body is not JSON in UTF-8.")
TOO_MANY = _refusal(429, "This callback URL has reached the report limit of its request.")
INTERNAL_ERROR = _refusal(500, "Internal Server Error")
OVERLOADED = _refusal(503, "Too many reports at once. Nothing was stored. Send the report again later.", _RETRY)
DATABASE_UNAVAILABLE = _refusal(503, "The report could not be stored now. Send it again later.", _RETRY)
SECRETS_UNAVAILABLE = _refusal(503, "The report could not be verified now. Send it again later.", _RETRY)
