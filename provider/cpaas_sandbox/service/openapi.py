"""The OpenAPI document, built from the types that check requests, and from the current columns and templates."""

from __future__ import annotations

from typing import Any

from pydantic import TypeAdapter

from cpaas_sandbox.core.context import Sandbox
from cpaas_sandbox.service.operations import OPERATIONS, Operation
from cpaas_sandbox.service.requests import Schema, describe_text
from cpaas_sandbox.service.responses import DELETED, SCHEMAS, enveloped, error_response, ref
from cpaas_sandbox.service.service import Service

_RETRY_AFTER = {"schema": {"type": "string"}, "description": "Seconds, or an HTTP date"}

_REFUSALS = {
    "400": error_response("Fields that are missing or not valid, all of them named"),
    "401": error_response("No API key, or a wrong one", **{"WWW-Authenticate": {"schema": {"type": "string"}}}),
    "402": error_response("Not enough balance"),
    "404": error_response("Unknown id, or a code that does not verify"),
    "413": error_response("Body too large"),
    "415": error_response("Content-Type is not application/json"),
    "429": error_response("Too many requests", **{"Retry-After": _RETRY_AFTER}),
    "503": error_response("Unavailable for now", **{"Retry-After": _RETRY_AFTER}),
}

_INTRODUCTION = """\
SMS, email, one-time passcodes, airtime, one contact list and phone lookup, served by a local sandbox.

It sends nothing to the outside. All messages are on the inbox page at `/`. Request and response bodies are JSON.

Delivery reports are POSTed to the `callback` of a request and to the account's webhook, if set. 200, 201 and 202
acknowledge a report. After any other response it is sent again, by default every hour for a day."""

_SECURITY = {
    "bearer": {"type": "http", "scheme": "bearer"},
    "raw": {"type": "apiKey", "in": "header", "name": "Authorization"},
}


def _parameters(operation: Operation) -> list[dict[str, Any]]:
    parameters: list[dict[str, Any]] = []
    if operation.by_id:
        name = operation.path.rpartition("{")[2].rstrip("}")
        schema = {"type": "string", "minLength": 1}
        parameters.append({"name": name, "in": "path", "required": True, "schema": schema})
    if operation.query is not None:
        query = TypeAdapter(operation.query).json_schema()
        for name, schema in query["properties"].items():
            parameters.append({"name": name, "in": "query", "required": name in query["required"], "schema": schema})
    return parameters


def _links(sandbox: Sandbox, operation: Operation) -> dict[str, Any]:
    """Return the operations that a client may call next with the id of a created resource.

    A client that follows links expects 404 after a DELETE. A revoked token stays readable as REVOKED by default, so its
    DELETE is linked only if the setting ``revoked_otps`` is ``gone``.
    """
    body = "$response.body#/data" if sandbox.settings.envelope else "$response.body#"
    by_id = {"parameters": {"id": f"{body}/id"}}
    by_row_id = {"parameters": {"row_id": f"{body}/row/id"}}
    tokens: dict[str, Any] = {
        "fetch": {"operationId": "get_otp"} | by_id,
        "verify": {"operationId": "verify_otp", "requestBody": {"id": f"{body}/id", "token": "0000"}},
        "find": {"operationId": "find_otps", "parameters": {"recipient": f"{body}/recipient"}},
    }
    if sandbox.settings.revoked_otps == "gone":
        tokens["revoke"] = {"operationId": "revoke_otp"} | by_id
    rows: dict[str, Any] = {
        "fetch": {"operationId": "get_contact_row"} | by_row_id,
        "update": {"operationId": "update_contact_row"} | by_row_id,
        "delete": {"operationId": "delete_contact_row"} | by_row_id,
    }
    return {"request_otp": tokens, "create_contact_row": rows}.get(operation.name, {})


def _success(sandbox: Sandbox, operation: Operation) -> dict[str, Any]:
    envelope = sandbox.settings.envelope
    result = operation.result
    if result == "Deleted":
        if sandbox.settings.delete_body == "empty":
            return {"204": {"description": "Done"}}
        result, envelope = DELETED[operation.name] if sandbox.settings.delete_body == "record" else "Message", False
    schema = enveloped(ref(result), envelope)
    if operation.spends and sandbox.settings.insufficient_balance == "under_200":
        schema = {"anyOf": [schema, ref("Error")]}
    response = {"description": "Done", "content": {"application/json": {"schema": schema}}}
    links = _links(sandbox, operation)
    if links:
        response["links"] = links
    return {"200": response}


def _responses(sandbox: Sandbox, operation: Operation) -> dict[str, Any]:
    """Return every response of an operation, and the 429 and 503 that only faults cause."""
    has_body = operation.body is not None
    absent = {
        "400": not has_body and operation.query is None,
        "402": not operation.spends or sandbox.settings.insufficient_balance != "402",
        "404": not operation.by_id and operation.name != "verify_otp",
        "415": not has_body,
    }
    refusals = {status: response for status, response in _REFUSALS.items() if not absent.get(status)}
    return _success(sandbox, operation) | refusals


def _component(operation: Operation) -> str:
    return "".join(word.capitalize() for word in operation.name.split("_")) + "Request"


def _body(service: Service, operation: Operation) -> dict[str, Schema]:
    """Return the schemas of an operation's body under the current settings, by name."""
    schema = service.adapter(operation).json_schema(ref_template="#/components/schemas/{model}")
    parts = schema.pop("$defs", {})
    if operation.texts:
        schema = describe_text(schema, service.templates(operation))
    if service.sandbox.settings.unknown_fields == "reject":
        schema["additionalProperties"] = False
    return {**parts, _component(operation): schema}


def _described(sandbox: Sandbox, operation: Operation) -> dict[str, Any]:
    described: dict[str, Any] = {
        "operationId": operation.name,
        "summary": operation.summary,
        "description": f"contract.md {operation.section}",
        "parameters": _parameters(operation),
        "responses": _responses(sandbox, operation),
    }
    if operation.body is not None:
        content = {"application/json": {"schema": ref(_component(operation))}}
        described["requestBody"] = {"required": True, "content": content}
    if operation.deprecated:
        described["deprecated"] = True
    return described


def document(service: Service) -> dict[str, Any]:
    """Return the document for the current columns, templates and settings."""
    sandbox = service.sandbox
    paths: dict[str, dict[str, Any]] = {}
    schemas = dict(SCHEMAS)
    for operation in OPERATIONS:
        described = _described(sandbox, operation)
        paths.setdefault(operation.path, {})[operation.method.lower()] = described
        if operation.alias:
            alias = {"operationId": f"{operation.name}_alias", "description": f"The same as {operation.path}"}
            paths.setdefault(operation.alias, {})[operation.method.lower()] = described | alias
        if operation.body is not None:
            schemas |= _body(service, operation)
    scheme = _SECURITY["raw" if sandbox.settings.auth_scheme == "raw" else "bearer"]
    return {
        "openapi": "3.1.0",
        "info": {"title": "Messaging and verification service", "version": "1", "description": _INTRODUCTION},
        "security": [{"api_key": []}],
        "paths": paths,
        "components": {"securitySchemes": {"api_key": scheme}, "schemas": schemas},
    }
