"""Which operation a method and path name."""

from __future__ import annotations

from urllib.parse import unquote

from cpaas_provider.sandbox.core.errors import FieldError, ServiceError
from cpaas_provider.sandbox.service.operations import OPERATIONS, Operation

Methods = dict[str, Operation]


def _tables() -> tuple[dict[str, Methods], dict[str, Methods]]:
    exact: dict[str, Methods] = {}
    by_id: dict[str, Methods] = {}
    for operation in OPERATIONS:
        for path in filter(None, (operation.path, operation.alias)):
            table, key = (by_id, path.rpartition("/")[0]) if operation.by_id else (exact, path)
            table.setdefault(key, {})[operation.method] = operation
    return exact, by_id


_EXACT, _BY_ID = _tables()


def route(method: str, raw_path: str) -> tuple[Operation, tuple[str, ...]]:
    """Return the operation and the ids in its path; 404 and 405 come in the documented shape."""
    methods = _EXACT.get(raw_path)
    ids: tuple[str, ...] = ()
    if methods is None:
        parent, _, last = raw_path.rpartition("/")
        methods = _BY_ID.get(parent) if last else None
        ids = (unquote(last),)
    if methods is None:
        message = "There is no such path"
        raise ServiceError(404, message, [FieldError("path", message, "not_found")])
    operation = methods.get(method)
    if operation is None:
        message = f"Method {method} is not allowed here"
        allowed = ", ".join(sorted(methods))
        raise ServiceError(405, message, [FieldError("method", message, "method_not_allowed")], {"Allow": allowed})
    return operation, ids
