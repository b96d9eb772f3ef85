"""The control API of the program: what tests of the same process read and change as attributes."""

from __future__ import annotations

import json
from dataclasses import asdict
from typing import TYPE_CHECKING, Any
from urllib.parse import unquote

from tests.row_service.answers import Answer, error, to_json
from tests.row_service.faults import FAULTS, DrawnFaults, ScriptedFaults
from tests.row_service.table import Column

if TYPE_CHECKING:
    from tests.row_service.server import RowService


class Control:
    """Requests under `/_control/`; the service holds its lock meanwhile.

    `GET health rows log switches`; `PUT switches columns faults values`; `PATCH rows/ID`, `DELETE rows/ID` as
    another client; `DELETE rows`, `DELETE log` for all.
    """

    def __init__(self, service: RowService) -> None:
        self._service = service

    def answer(self, method: str, path: str, body: bytes) -> Answer:
        service, table = self._service, self._service.table
        name, _, row_id = path.removeprefix("/_control/").partition("/")
        row_id = unquote(row_id)
        try:
            value: dict[str, Any] = json.loads(body) if body else {}
            match method, name, row_id:
                case "GET", "health", "":
                    return to_json(200, {"status": "ok", "requests": service.requests})
                case "GET", "rows", "":
                    rows = {row.id: row.columns for row in table.rows.values()}
                    return to_json(200, {"rows": rows})
                case "GET", "log", "":
                    return to_json(200, {"changes": [asdict(change) for change in table.log]})
                case "GET", "switches", "":
                    return to_json(200, asdict(service.switches))
                case "PUT", "switches", "":
                    service.switch(**value)
                case "PUT", "columns", "":
                    table.columns = {item["id"]: Column(**item) for item in value["columns"]}
                case "PUT", "faults", "":
                    service.faults = (
                        ScriptedFaults(value["script"])
                        if "script" in value
                        else DrawnFaults(value["seed"], share=value["share"], kinds=value.get("kinds", FAULTS))
                    )
                case "PUT", "values", "":
                    service.refused_values = list(value.get("refused", ()))
                    service.broken_values = list(value.get("broken", ()))
                case "PATCH", "rows", _ if row_id in table.rows:
                    table.update(row_id, value["columns"], value["columns"], by="other")
                case "DELETE", "rows", _ if row_id in table.rows:
                    table.delete(row_id, by="other")
                case "DELETE", "rows", "":
                    table.rows.clear()
                case "DELETE", "log", "":
                    table.log.clear()
                case _:
                    return error(404, "No such path")
        except (ValueError, KeyError, TypeError) as problem:
            return error(400, f"{type(problem).__name__}: {problem}")
        return Answer(204)
