"""The service's rules for a request between routing and answer: the key, the checks, the handler."""

from __future__ import annotations

import hmac
from typing import Any

from pydantic import TypeAdapter, ValidationError

from cpaas_provider.sandbox.core.context import Sandbox
from cpaas_provider.sandbox.core.errors import FieldError, ServiceError, invalid
from cpaas_provider.sandbox.core.validation import field_errors
from cpaas_provider.sandbox.service.http import Answer, Request, check_content_type, read_json, read_query
from cpaas_provider.sandbox.service.operations import Operation
from cpaas_provider.sandbox.service.requests import row_body, text_errors


class Service:
    """The fourteen operations over a sandbox's state; knows no socket."""

    def __init__(self, sandbox: Sandbox) -> None:
        self.sandbox = sandbox
        self._adapters: dict[str, TypeAdapter[Any]] = {}
        self._adapted_version = -1

    # -- the key (INTERFACE.md section 5) -------------------------------------------------------------------------

    def authorize(self, authorization: str | None) -> None:
        """Refuse a request whose Authorization header does not carry the key in the scheme set."""
        if authorization is None:
            raise _unauthorized("The Authorization header is required", "missing")
        scheme, _, credentials = authorization.partition(" ")
        allowed, key = self.sandbox.settings.auth_scheme, self.sandbox.options.api_key.encode()
        given = [credentials.strip()] if scheme.lower() == "bearer" and allowed != "raw" else []
        given += [authorization.strip()] if allowed != "bearer" else []
        accepted = [hmac.compare_digest(one.encode(), key) for one in given]
        if not any(accepted):
            raise _unauthorized("The API key is not valid", "invalid_key")

    # -- what a request may say -----------------------------------------------------------------------------------

    def adapter(self, operation: Operation) -> TypeAdapter[Any] | None:
        """Return what checks and describes an operation's body or query at present."""
        if self._adapted_version != self.sandbox.version:
            self._adapters.clear()
            self._adapted_version = self.sandbox.version
        if operation.name not in self._adapters:
            kind = operation.body or operation.query
            if kind is row_body:
                kind = row_body(self.sandbox.table.columns.values(), self.sandbox.settings.number_cells)
            if kind is None:
                return None
            self._adapters[operation.name] = TypeAdapter(kind)
        return self._adapters[operation.name]

    def templates(self, operation: Operation) -> list[str]:
        """Return the ids of the templates that a message of this operation may name."""
        channels = (operation.texts, "any")
        return [id_ for id_, template in self.sandbox.templates.items() if template["channel"] in channels]

    def read(self, operation: Operation, ids: tuple[str, ...], query: bytes, content_type: str, raw: bytes) -> Request:
        """Return the checked request; every offending field is named at once."""
        values: Any = {}
        if operation.body is None:
            values = read_query(query) if operation.query else {}
        elif raw or content_type:
            # Nothing at all is a body without fields: the answer names those that are required.
            check_content_type(content_type)
            values = read_json(raw)
        adapter, errors = self.adapter(operation), list[FieldError]()
        if adapter is not None:
            given = values
            try:
                values = adapter.validate_python(given, strict=True)
            except ValidationError as error:
                errors = field_errors(error.errors(include_url=False, include_context=False, include_input=False))
            if operation.body is not None and isinstance(given, dict):
                errors += self._more_errors(operation, given)
        if errors:
            raise invalid(errors)
        parts = {"body": values} if operation.body is not None else {"query": values}
        return Request(operation.method, operation.path, ids, **parts)

    def _more_errors(self, operation: Operation, body: dict[str, Any]) -> list[FieldError]:
        """Return what the types do not say: texts and templates, and fields that are unknown."""
        errors = text_errors(body, self.templates(operation)) if operation.texts else []
        if self.sandbox.settings.unknown_fields == "reject":
            known = {"columns"} if operation.body is row_body else operation.body.__annotations__
            errors += [FieldError(one, "is not known here", "extra_forbidden") for one in body if one not in known]
        return errors

    # -- the answer -----------------------------------------------------------------------------------------------

    def accept(self, operation: Operation, request: Request) -> Answer:
        """Do what is asked; raise `ServiceError` where it is refused."""
        result = operation.handler(self.sandbox, request)
        if operation.deletes:
            bodies = {"message": {"status": 200, "type": "success", "message": operation.deletes}, "record": result}
            result = bodies.get(self.sandbox.settings.delete_body)
            return Answer(204 if result is None else 200, result)
        if self.sandbox.settings.envelope:
            result = {"status": 200, "type": "success", "message": operation.summary, "data": result}
        return Answer(200, result)

    def refuse(self, error: ServiceError) -> Answer:
        """Return a refusal as it goes on the wire."""
        status = error.status
        if status == 402:
            status = {"402": 402, "400": 400, "under_200": 200}[self.sandbox.settings.insufficient_balance]
        return Answer(status, error.body(status), error.headers)


def _unauthorized(message: str, code: str) -> ServiceError:
    challenge = {"WWW-Authenticate": "Bearer"}
    return ServiceError(401, "Unauthorized", [FieldError("Authorization", message, code)], challenge)
