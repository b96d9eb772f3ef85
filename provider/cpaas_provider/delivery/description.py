"""The two doors in OpenAPI, for whoever has to set up the service's side."""

from __future__ import annotations

from typing import Any

from cpaas_provider.delivery.answers import BODY_SECONDS, MAX_BODY

CALLBACK_PATH = "/callback/{conn_id}/{ticket}"
WEBHOOK_PATH = "/webhook/{conn_id}"

_REFUSALS = {
    404: "No such connection, a URL that is not ours or has expired, or a door that is closed; which is not told.",
    405: "Not a POST.",
    408: f"The body did not come within {BODY_SECONDS:g} s.",
    413: f"The body is larger than {MAX_BODY} bytes.",
    415: "Not of a JSON type, or with a content encoding.",
    422: "Not JSON in UTF-8.",
    503: "More than can be stored now, or the store or the connection cannot be reached; try again later.",
}
_SPENT = {429: "The URL has brought all the reports that its request may have."}
_UNSIGNED = {401: "The signature is missing or wrong."}
_CONNECTION = ("conn_id", "Id of the Airflow connection of type cpaas.", ".+")
_TICKET = ("ticket", "What proves the URL ours: made anew for every request that is sent.", "[^/]+")


def describe_doors(prefix: str) -> dict[str, Any]:
    """Return the paths of both doors.

    :param prefix: the path before theirs
    """
    callback = _operation(
        "take_callback",
        "A delivery report to the callback URL of one request",
        "Stored for good before the answer; a repeat changes nothing. Of a handshake's URL, which store reports go to.",
        (_CONNECTION, _TICKET),
        _REFUSALS | _SPENT,
        {"oneOf": [_object("status", const="stored"), _object("database")]},
    )
    webhook = _operation(
        "take_webhook",
        "A delivery report to the account's webhook",
        "Its signature, Base64 of HMAC-SHA512 over the body with the connection's webhook_secret, is in the header "
        "that the connection's signature_header names. While either is unset, this door is closed.",
        (_CONNECTION,),
        _UNSIGNED | _REFUSALS,
        _object("status", const="stored"),
    )
    return {prefix + CALLBACK_PATH: {"post": callback}, prefix + WEBHOOK_PATH: {"post": webhook}}


def _operation(
    name: str,
    summary: str,
    description: str,
    parameters: tuple[tuple[str, str, str], ...],
    refusals: dict[int, str],
    kept: dict[str, Any],
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
        "responses": {"200": _answer("Stored for good.", kept)} | {str(key): value for key, value in answers.items()},
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
