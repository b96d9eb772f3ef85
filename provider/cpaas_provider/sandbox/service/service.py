"""The way of one request: route, key, faults, checks, handler, answer."""

from __future__ import annotations

import hmac
from typing import Any

from cpaas_provider.sandbox.core.context import Sandbox
from cpaas_provider.sandbox.core.errors import FieldError, ServiceError, invalid
from cpaas_provider.sandbox.service.exchange import Answer, Request, check_content_type, read_json, read_query
from cpaas_provider.sandbox.service.operations import Operation
from cpaas_provider.sandbox.service.schema import Check, Schema, compile_schema


class Service:
    """The fourteen operations over a sandbox's state; knows no socket."""

    def __init__(self, sandbox: Sandbox) -> None:
        self.sandbox = sandbox
        self._checks: dict[str, Check] = {}
        self._checked_version = -1

    # -- the key (INTERFACE.md section 5) -------------------------------------------------------------------------

    def authorize(self, authorization: str | None) -> None:
        """Refuse a request whose Authorization header does not carry the key in the scheme set."""
        if authorization is None:
            raise self._unauthorized("The Authorization header is required", "missing")
        scheme, _, credentials = authorization.partition(" ")
        given = {
            "bearer": [credentials.strip()] if scheme.lower() == "bearer" else [],
            "raw": [authorization.strip()],
        }
        given["either"] = given["bearer"] + given["raw"]
        key = self.sandbox.options.api_key.encode()
        accepted = [hmac.compare_digest(one.encode(), key) for one in given[self.sandbox.settings["auth_scheme"]]]
        if not any(accepted):
            raise self._unauthorized("The API key is not valid", "invalid_key")

    def _unauthorized(self, message: str, code: str) -> ServiceError:
        challenge = {"WWW-Authenticate": "Bearer"}
        return ServiceError(401, "Unauthorized", [FieldError("Authorization", message, code)], challenge)

    # -- what a request may say -----------------------------------------------------------------------------------

    def body_schema(self, operation: Operation) -> Schema | None:
        """Return what an operation's body may be at present."""
        if operation.body is None:
            return None
        schema = operation.body(self.sandbox)
        if self.sandbox.settings["unknown_fields"] == "reject":
            schema = schema | {"additionalProperties": False}
        return schema

    def _check(self, operation: Operation) -> Check | None:
        """Return the compiled check; made anew when templates, columns or settings changed."""
        if self._checked_version != self.sandbox.version:
            self._checks.clear()
            self._checked_version = self.sandbox.version
        if operation.name not in self._checks:
            schema = self.body_schema(operation) or operation.query
            if schema is None:
                return None
            self._checks[operation.name] = compile_schema(schema)
        return self._checks[operation.name]

    def read(self, operation: Operation, ids: tuple[str, ...], query: bytes, content_type: str, raw: bytes) -> Request:
        """Return the checked request; every offending field is named at once."""
        check = self._check(operation)
        values: Any = {}
        if operation.body is not None:
            # Nothing at all is a body without fields: the answer names those that are required.
            if raw or content_type:
                check_content_type(content_type)
                values = read_json(raw)
        elif operation.query is not None:
            values = read_query(query)
        errors: list[FieldError] = []
        if check is not None:
            check(values, "" if isinstance(values, dict) else "body", errors)
        if errors:
            raise invalid(errors)
        parts = {"body": values} if operation.body is not None else {"query": values}
        return Request(operation.method, operation.path, ids, **parts)

    # -- the answer -----------------------------------------------------------------------------------------------

    def accept(self, operation: Operation, request: Request) -> Answer:
        """Do what is asked; raise `ServiceError` where it is refused."""
        result = operation.handler(self.sandbox, request)
        if operation.deletes:
            bodies = {"message": {"status": 200, "type": "success", "message": operation.deletes}, "record": result}
            result = bodies.get(self.sandbox.settings["delete_body"])
            return Answer(204 if result is None else 200, result)
        if self.sandbox.settings["envelope"]:
            result = {"status": 200, "type": "success", "message": operation.summary, "data": result}
        return Answer(200, result)

    def refuse(self, error: ServiceError) -> Answer:
        """Return a refusal as it goes on the wire."""
        if error.status == 402 and self.sandbox.settings["insufficient_balance"] == "under_200":
            return Answer(200, error.body(200))
        return Answer(error.status, error.body(), error.headers)
