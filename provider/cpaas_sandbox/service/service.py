"""The steps of a routed request: check the API key, check the fields, call the handler, wrap the result."""

from __future__ import annotations

import hmac
from typing import Any

from pydantic import TypeAdapter, ValidationError

from cpaas_sandbox.core.context import Sandbox
from cpaas_sandbox.core.errors import FieldError, ServiceError, invalid
from cpaas_sandbox.core.validation import field_errors
from cpaas_sandbox.service.http import Answer, Request, read_json, read_query
from cpaas_sandbox.service.operations import Operation
from cpaas_sandbox.service.requests import row_body, text_errors


class Service:
    """The fourteen operations on a sandbox's state, without a connection."""

    def __init__(self, sandbox: Sandbox) -> None:
        self.sandbox = sandbox
        self._adapters: dict[str, TypeAdapter[Any]] = {}
        self._adapted_version = -1

    def authorize(self, authorization: str | None) -> None:
        """Raise the 401 unless the Authorization header (section 5) has the API key in the form of ``auth_scheme``."""
        if authorization is None:
            raise _unauthorized("The Authorization header is required", "missing")
        scheme, _, credentials = authorization.partition(" ")
        allowed, key = self.sandbox.settings.auth_scheme, self.sandbox.options.api_key.encode()
        candidates = [credentials.strip()] if scheme.lower() == "bearer" and allowed != "raw" else []
        candidates += [authorization.strip()] if allowed != "bearer" else []
        if not any(hmac.compare_digest(candidate.encode(), key) for candidate in candidates):
            raise _unauthorized("The API key is not valid", "invalid_key")

    def adapter(self, operation: Operation) -> TypeAdapter[Any]:
        """Return the type of an operation's body or query under the current columns and settings."""
        if self._adapted_version != self.sandbox.version:
            self._adapters.clear()
            self._adapted_version = self.sandbox.version
        if operation.name not in self._adapters:
            kind = operation.body or operation.query or dict[str, str]
            if kind is row_body:
                kind = row_body(self.sandbox.table.columns.values(), self.sandbox.settings.number_cells)
            self._adapters[operation.name] = TypeAdapter(kind)
        return self._adapters[operation.name]

    def templates(self, operation: Operation) -> list[str]:
        """Return the ids of the templates that a request of this operation may name."""
        channels = (operation.texts, "any")
        return [id_ for id_, template in self.sandbox.templates.items() if template["channel"] in channels]

    def read(self, operation: Operation, id_: str, query: bytes, raw: bytes) -> Request:
        """Return the checked request; raise the 400 that names every offending field."""
        values: Any = read_query(query) if operation.query else {}
        # A request without body is read as {}, so that the response names the required fields.
        if operation.body is not None and raw:
            values = read_json(raw)
        checked, errors = values, list[FieldError]()
        try:
            checked = self.adapter(operation).validate_python(values, strict=True)
        except ValidationError as error:
            errors = field_errors(error.errors(include_url=False, include_context=False, include_input=False), "body")
        if operation.body is not None and isinstance(values, dict):
            errors += self._more_errors(operation, values)
        if errors:
            raise invalid(errors)
        return Request(operation.method, operation.path, id_, checked)

    def _more_errors(self, operation: Operation, body: dict[str, Any]) -> list[FieldError]:
        """Return the errors that the types cannot express: text or template missing, unknown fields."""
        errors = text_errors(body, self.templates(operation)) if operation.texts else []
        if self.sandbox.settings.unknown_fields == "reject":
            known = {"columns"} if operation.body is row_body else operation.body.__annotations__
            errors += [FieldError(name, "is not known here", "extra_forbidden") for name in body if name not in known]
        return errors

    def accept(self, operation: Operation, request: Request) -> Answer:
        """Call the handler and wrap its result; raise `ServiceError` if the handler rejects the request."""
        result = operation.handler(self.sandbox, request)
        if operation.deletes:
            bodies = {"message": {"status": 200, "type": "success", "message": operation.deletes}, "record": result}
            result = bodies.get(self.sandbox.settings.delete_body)
            return Answer(204 if result is None else 200, result)
        if self.sandbox.settings.envelope:
            result = {"status": 200, "type": "success", "message": operation.summary, "data": result}
        return Answer(200, result)

    def refuse(self, error: ServiceError) -> Answer:
        """Return the response of an error."""
        status = error.status
        if status == 402:
            status = {"402": 402, "400": 400, "under_200": 200}[self.sandbox.settings.insufficient_balance]
        # Under 200 only the body can show that it is an error.
        return Answer(status, error.body(402 if status == 200 else status), error.headers)


def _unauthorized(message: str, code: str) -> ServiceError:
    error = FieldError("Authorization", message, code)
    return ServiceError(401, "Unauthorized", [error], {"WWW-Authenticate": "Bearer"})
