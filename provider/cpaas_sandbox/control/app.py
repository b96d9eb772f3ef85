"""The control API under /_control/, without an API key: inbox, counters, faults, clock, money, settings, seeding."""

from __future__ import annotations

import time
from collections.abc import Mapping
from hashlib import blake2b
from importlib.metadata import version
from typing import Annotated, Any

from fastapi import FastAPI, Query, Request, Response
from fastapi.exceptions import RequestValidationError
from fastapi.responses import JSONResponse
from pydantic import BaseModel, Field
from pydantic_core import to_json
from starlette.exceptions import HTTPException

from cpaas_sandbox.control import inbox
from cpaas_sandbox.control.environment import Money, add_setup, add_time_and_money
from cpaas_sandbox.control.reports import add_reporting
from cpaas_sandbox.core import state
from cpaas_sandbox.core.account import to_amount
from cpaas_sandbox.core.context import Sandbox
from cpaas_sandbox.core.errors import FieldError, ServiceError
from cpaas_sandbox.core.validation import field_errors, one_line, one_of
from cpaas_sandbox.faults.kinds import KINDS
from cpaas_sandbox.faults.rules import MAX_RULES, Rule
from cpaas_sandbox.service.handlers import contacts
from cpaas_sandbox.service.operations import NAMES

View = Annotated[str, one_of(inbox.VIEWS)]


class Fault(Rule):
    """A fault to inject into one operation or all (`*`); its parameters are in `params` or beside the other fields."""

    operation: Annotated[str, one_of(("*", *NAMES))] = "*"


Rules = Annotated[list[Fault], Field(max_length=MAX_RULES)]


class Scene(BaseModel, extra="forbid"):
    """Faults that replace all current ones, a new balance, and settings to change."""

    faults: Rules = []
    balance: Money | None = None
    settings: dict[str, Any] = {}


_VERSION = version("airflow-provider-cpaas")


def _refusal(status: int, *errors: FieldError, headers: Mapping[str, str] | None = None) -> JSONResponse:
    return JSONResponse(ServiceError(status, one_line(errors), errors).body(), status, headers)


async def _invalid(request: Request, error: Exception) -> JSONResponse:
    details = error.errors() if isinstance(error, RequestValidationError) else []
    # FastAPI puts the part of the request before the field's path.
    inner = [
        item | {"loc": [part for part in item["loc"] if part not in ("body", "query", "path")]} for item in details
    ]
    return _refusal(400, *field_errors(inner))


async def _wrong_value(request: Request, error: Exception) -> JSONResponse:
    return _refusal(400, FieldError("", str(error), "value_error"))


async def _http(request: Request, error: Exception) -> JSONResponse:
    assert isinstance(error, HTTPException)  # noqa: S101 - registered for this type
    return _refusal(error.status_code, FieldError("", str(error.detail), "http"), headers=error.headers)


def control_app(sandbox: Sandbox) -> FastAPI:
    """Return the control API over a sandbox's state, with its own document at /_control/openapi.json."""
    app = FastAPI(
        title="Sandbox control",
        version=_VERSION,
        openapi_url="/_control/openapi.json",
        docs_url=None,
        redoc_url=None,
        redirect_slashes=False,
        exception_handlers={RequestValidationError: _invalid, ValueError: _wrong_value, HTTPException: _http},
    )

    for add in (_add_views, _add_faults, add_setup, add_time_and_money, add_reporting):
        add(app, sandbox)
    return app


def _with_etag(request: Request, body: dict[str, Any]) -> Response:
    """Return the body with its ETag, or 304 if the caller has it; the inbox page asks every second."""
    raw = to_json(body)
    tag = f'"{blake2b(raw, digest_size=12).hexdigest()}"'
    known = request.headers.get("if-none-match") == tag
    return Response(None if known else raw, 304 if known else 200, {"etag": tag}, "application/json")


def _add_views(app: FastAPI, sandbox: Sandbox) -> None:
    """Add the calls that change nothing."""

    @app.get("/_control/health")
    async def health() -> dict[str, Any]:
        return {
            "status": "ok",
            "version": _VERSION,
            "database": sandbox.options.database or "memory",
            "uptime_seconds": round(time.monotonic() - sandbox.started, 3),
            "clock": sandbox.clock.as_json(),
        }

    @app.get("/_control/counters")
    async def get_counters(request: Request) -> Response:
        money = {"charged": to_amount(sandbox.account.charged), "balance": to_amount(sandbox.account.balance)}
        return _with_etag(request, sandbox.counters.snapshot(sandbox.clock.now()) | money)

    @app.get("/_control/table")
    async def get_table() -> dict[str, Any]:
        table = contacts.table_json(sandbox)
        return table | {"names": {column["id"]: column["name"] for column in table["columns"]}}

    @app.get("/_control/templates")
    async def get_templates() -> list[dict[str, Any]]:
        return list(sandbox.templates.values())

    @app.get("/_control/inbox/{view}")
    async def get_inbox(
        request: Request,
        view: View,
        recipient: str | None = None,
        external_ref: str | None = None,
        message_id: str | None = None,
        search: Annotated[str | None, Query(max_length=200)] = None,
        limit: Annotated[int, Query(ge=1, le=inbox.MAX_LIMIT)] = 50,
        offset: Annotated[int, Query(ge=0, le=10**9)] = 0,
    ) -> Response:
        values = {"recipient": recipient, "external_ref": external_ref, "message_id": message_id, "search": search}
        filters = {name: value for name, value in values.items() if value is not None}
        return _with_etag(request, inbox.query(sandbox, view, filters, limit, offset))


def _add_faults(app: FastAPI, sandbox: Sandbox) -> None:
    """Add the calls that list, inject and remove faults."""

    @app.get("/_control/faults")
    async def list_faults() -> dict[str, Any]:
        return {
            "faults": [rule.as_json() for rule in sandbox.faults.rules],
            "kinds": {
                name: {"stage": kind.stage.value, "means": kind.means, "params": kind.params}
                for name, kind in KINDS.items()
            },
        }

    @app.post("/_control/faults", status_code=201)
    async def add_fault(fault: Fault) -> dict[str, Any]:
        sandbox.faults.add(fault)
        return fault.as_json()

    @app.delete("/_control/faults")
    async def clear_faults() -> dict[str, Any]:
        return {"removed": sandbox.faults.replace()}

    @app.delete("/_control/faults/{rule_id}")
    async def remove_fault(rule_id: str) -> dict[str, Any]:
        if not sandbox.faults.remove(rule_id):
            raise HTTPException(404, "there is no such fault")
        return {"removed": 1}

    @app.put("/_control/scene")
    async def put_scene(scene: Scene) -> dict[str, Any]:
        # Only the settings can still be refused here, so they come first: all is changed or nothing.
        if scene.settings:
            state.change(sandbox, scene.settings)
            state.reload(sandbox)
        if scene.balance is not None:
            sandbox.account.set_balance(scene.balance)
        sandbox.faults.replace(scene.faults)
        return {
            "faults": [rule.as_json() for rule in scene.faults],
            "balance": to_amount(sandbox.account.balance),
            "settings": sandbox.settings.as_json(),
        }
