"""The calls of the control API for outcomes by recipient, and for reports on demand."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Annotated, Any

from fastapi import FastAPI, Query
from fastapi.responses import StreamingResponse
from pydantic import BaseModel, Field
from pydantic_core import to_json
from starlette.exceptions import HTTPException

from cpaas_sandbox.core.context import Sandbox
from cpaas_sandbox.core.database import Row
from cpaas_sandbox.core.validation import one_of
from cpaas_sandbox.reports import schedule
from cpaas_sandbox.reports.outcomes import OUTCOMES

Kind = Annotated[str, one_of(OUTCOMES)]
Limit = Annotated[int, Query(ge=1, le=1000)]
After = Annotated[int, Query(ge=0, le=2**63 - 1)]

_PAGE = 1000
_OF_MESSAGES = """
SELECT d.seq, d.message_id, m.external_ref, d.recipient, d.outcome, d.reason
FROM deliveries d JOIN messages m ON m.id = d.message_id WHERE d.kind = ?"""
_OF_AIRTIME = """
SELECT a.seq, a.id AS message_id, a.external_ref, a.recipient, a.status AS outcome, a.reason
FROM airtime a WHERE ? = 'airtime'"""
_ACKNOWLEDGED = """
SELECT group_concat(DISTINCT status) FROM reports
WHERE message_id = o.message_id AND recipient = o.recipient AND state = 'acknowledged'"""


class ReportNow(BaseModel, extra="forbid", strict=True):
    """A status to report now, such as `clicked`; either id or external_ref names the message."""

    recipient: Annotated[str, Field(min_length=1, max_length=320)]
    status: Annotated[str, Field(min_length=1, max_length=50)]
    reason: Annotated[str, Field(min_length=1, max_length=300)] | None = None
    message_id: str | None = None
    external_ref: str | None = None


class _Selection:
    """The query for the recipients of one kind, filtered by recipient and external_ref."""

    def __init__(self, sandbox: Sandbox, kind: str, recipient: str | None, external_ref: str | None) -> None:
        filters = {"recipient": recipient, "external_ref": external_ref}
        filters = {column: value for column, value in filters.items() if value is not None}
        self._database = sandbox.database
        self._sql = _OF_AIRTIME if kind == "airtime" else _OF_MESSAGES
        self._sql += "".join(f" AND {column} = ?" for column in filters)
        self._values = [kind, *filters.values()]

    def counts(self) -> dict[str, int]:
        sql = f"SELECT outcome, count(*) AS n FROM ({self._sql}) GROUP BY outcome"  # noqa: S608 - text of ours
        return {row["outcome"]: row["n"] for row in self._database.rows(sql, self._values)}

    def page(self, after: int, limit: int) -> list[Row]:
        """Return the recipients after a ``seq``, in the order in which they were accepted."""
        page = f"SELECT * FROM ({self._sql}) WHERE seq > ? ORDER BY seq LIMIT ?"  # noqa: S608 - text of ours
        sql = f"SELECT o.*, ({_ACKNOWLEDGED}) AS acknowledged FROM ({page}) o ORDER BY o.seq"  # noqa: S608 - text of ours
        rows = self._database.rows(sql, [*self._values, after, limit])
        return [row | {"acknowledged": sorted(filter(None, (row["acknowledged"] or "").split(",")))} for row in rows]


def add_reporting(app: FastAPI, sandbox: Sandbox) -> None:
    """Add outcomes by recipient, and reports on demand."""

    @app.get("/_control/outcomes/{kind}.jsonl")
    async def stream_outcomes(
        kind: Kind, recipient: str | None = None, external_ref: str | None = None
    ) -> StreamingResponse:
        selection = _Selection(sandbox, kind, recipient, external_ref)
        return StreamingResponse(_lines(selection), media_type="application/jsonl")

    @app.get("/_control/outcomes/{kind}")
    async def get_outcomes(
        kind: Kind,
        recipient: str | None = None,
        external_ref: str | None = None,
        after: After = 0,
        limit: Limit = 50,
    ) -> dict[str, Any]:
        selection = _Selection(sandbox, kind, recipient, external_ref)
        counts, items = selection.counts(), selection.page(after, limit)
        next_ = items[-1]["seq"] if len(items) == limit else None
        return {"total": sum(counts.values()), "counts": counts, "limit": limit, "next": next_, "items": items}

    @app.post("/_control/reports", status_code=201)
    async def report_now(report: ReportNow) -> dict[str, Any]:
        try:
            return {"booked": schedule.report_now(sandbox, **report.model_dump())}
        except LookupError as error:
            raise HTTPException(404, str(error)) from error


async def _lines(selection: _Selection) -> AsyncIterator[bytes]:
    """Yield a line for each recipient, page by page, so that other requests are served in between."""
    after = 0
    while page := selection.page(after, _PAGE):
        yield b"".join(to_json(row) + b"\n" for row in page)
        after = page[-1]["seq"]
