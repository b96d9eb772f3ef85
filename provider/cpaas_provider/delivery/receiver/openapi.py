"""The two endpoints in OpenAPI, to set up the service's side."""

from __future__ import annotations

from typing import Any

from cpaas_provider.delivery.receiver.http.responses import BODY_TIMEOUT, MAX_BODY

_REFUSALS = {
    404: "Unknown connection, unknown or expired URL, or closed endpoint. The response does not say which.",
    405: "The method is not POST.",
    408: f"The body did not arrive within {BODY_TIMEOUT:g} s.",
    413: f"The body is larger than {MAX_BODY} bytes.",
    415: "The content type is not JSON, or the body has a content encoding.",
    422: "The body is not JSON in UTF-8.",
    503: "Too many reports at once, or the database or the connection cannot be read. Send the report again later.",
}
_CONNECTION = ("conn_id", "Id of the Airflow connection of type cpaas.", ".+")
_TOKEN = ("token", "Callback token: created for each request that is sent.", "[^/]+")


def endpoint_paths(prefix: str) -> dict[str, Any]:
    """Return the paths of both endpoints.

    :param prefix: the path before theirs
    """
    callback = _operation(
        "take_callback",
        "A delivery report to the callback URL of one request",
        "The report is committed before the response. A duplicate changes nothing. For a handshake, the response "
        "names the database that reports go to.",
        (_CONNECTION, _TOKEN),
        _REFUSALS | {429: "The callback URL has reached the report limit of its request."},
        {"oneOf": [_object("status", const="stored"), _object("database")]},
    )
    webhook = _operation(
        "take_webhook",
        "A delivery report to the account's webhook",
        "The signature is Base64 of HMAC-SHA512 over the body, with the connection's webhook_secret as the key. The "
        "connection's signature_header names its header. While either is unset, this endpoint is closed.",
        (_CONNECTION,),
        _REFUSALS | {401: "The signature is missing or wrong."},
        _object("status", const="stored"),
    )
    return {
        prefix + "/callback/{conn_id}/{token}": {"post": callback},
        prefix + "/webhook/{conn_id}": {"post": webhook},
    }


def _operation(
    name: str,
    summary: str,
    description: str,
    parameters: tuple[tuple[str, str, str], ...],
    refusals: dict[int, str],
    success: dict[str, Any],
) -> dict[str, Any]:
    answers = {status: _answer(text, _object("detail")) for status, text in sorted(refusals.items())}
    for status, header in ((401, "WWW-Authenticate"), (405, "Allow"), (503, "Retry-After")):
        if status in answers:
            answers[status]["headers"] = {header: {"schema": {"type": "string"}}}
    return {
        "operationId": name,
        "summary": summary,
        "description": description,
        "parameters": [
            {
                "name": parameter,
                "in": "path",
                "required": True,
                "description": means,
                "schema": {"type": "string", "pattern": f"^{pattern}$"},
            }
            for parameter, means, pattern in parameters
        ],
        "requestBody": {"required": True, "content": {"application/json": {"schema": {}}}},
        "responses": {"200": _answer("Stored durably.", success)} | {str(key): value for key, value in answers.items()},
    }


def _answer(description: str, schema: dict[str, Any]) -> dict[str, Any]:
    return {"description": description, "content": {"application/json": {"schema": schema}}}


def _object(name: str, **more: str) -> dict[str, Any]:
    return {
        "type": "object",
        "properties": {name: {"type": "string", **more}},
        "required": [name],
        "additionalProperties": False,
    }
