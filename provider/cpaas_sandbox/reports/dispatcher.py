"""Sends delivery reports until they are acknowledged: by default again every hour, for a day.

Each lane sends one report at a time over its own connections, so that lanes do not wait for one another. It uses
httpx's transport without the client, whose cookies, redirects and authentication are not needed and cost time.
"""

from __future__ import annotations

import asyncio
import base64
import hashlib
import hmac
from collections.abc import Iterator

import httpx

from cpaas_sandbox.core.context import Sandbox
from cpaas_sandbox.core.database import Row
from cpaas_sandbox.core.validation import is_loopback
from cpaas_sandbox.reports.schedule import repeat

ACKNOWLEDGING = (200, 201, 202)

# A round ends with its slowest lane, so rounds are short: an endpoint that times out delays other reports less.
_ROUND_PER_LANE = 25
_MAX_ANSWER_BYTES = 65_536
# Shorter than servers keep idle connections: a report on a closing connection would fail and wait an hour.
_LIMITS = httpx.Limits(max_connections=4, max_keepalive_connections=2, keepalive_expiry=2.0)

_DUE = "SELECT * FROM reports WHERE state = 'pending' AND due <= ? ORDER BY due, turn, seq LIMIT ?"
_IS_PENDING = "SELECT 1 FROM reports WHERE seq = ? AND state = 'pending'"
_NEXT = "SELECT min(due) AS due FROM reports WHERE state = 'pending'"
_RECORD_ATTEMPT = """
UPDATE reports SET state = ?, attempts = ?, result = ?, due = ?, updated = ? WHERE seq = ? AND state = 'pending'"""


def signature(raw: bytes, secret: str) -> str:
    """Return the signature of a webhook report: Base64 of the body's HMAC-SHA512."""
    return base64.b64encode(hmac.digest(secret.encode(), raw, hashlib.sha512)).decode()


def _sequences(rows: list[Row]) -> Iterator[list[Row]]:
    """Group the reports that must keep their order, in the order of the first report of each group."""
    sequences: dict[tuple[str, ...], list[Row]] = {}
    for row in rows:
        key = (row["endpoint"], row["origin"], row["message_id"], row["recipient"])
        sequences.setdefault(key, []).append(row)
    return iter(sequences.values())


class Dispatcher:
    """Sends the reports that are due."""

    def __init__(self, sandbox: Sandbox) -> None:
        self._sandbox = sandbox
        self._transports: list[httpx.AsyncHTTPTransport] = []

    async def run(self) -> None:
        """Send until the server ends."""
        database, clock = self._sandbox.database, self._sandbox.clock
        while not self._sandbox.closing.is_set():
            lanes = self._sandbox.settings.report_concurrency
            rows = database.rows(_DUE, [clock.now(), lanes * _ROUND_PER_LANE])
            if rows:
                await self._send(rows, lanes)
            else:
                self._sandbox.report_wakeup.set((database.row(_NEXT) or {}).get("due"))
                await self._sandbox.report_wakeup.sleep()

    async def _send(self, rows: list[Row], lanes: int) -> None:
        """Make one attempt for each report; the lanes share the sequences."""
        waiting = _sequences(rows)
        await self._open(lanes)
        async with asyncio.TaskGroup() as group:
            for transport in self._transports[:lanes]:
                group.create_task(self._lane(transport, waiting))

    async def _open(self, lanes: int) -> None:
        if len(self._transports) < lanes:
            # In a thread, because it reads the whole CA bundle.
            tls = await asyncio.to_thread(httpx.create_ssl_context, trust_env=False)
            while len(self._transports) < lanes:
                self._transports.append(httpx.AsyncHTTPTransport(verify=tls, trust_env=False, limits=_LIMITS))

    async def _lane(self, transport: httpx.AsyncHTTPTransport, waiting: Iterator[list[Row]]) -> None:
        for sequence in waiting:
            for row in sequence:
                if not self._sandbox.database.row(_IS_PENDING, [row["seq"]]):
                    continue  # a reset has deleted it since the round began
                obstacle = self._obstacle(row)
                if obstacle:
                    self._record_attempt(row, "given_up", obstacle, row["due"], tried=False)
                else:
                    self._record_result(row, *await self._post(transport, row))

    def _obstacle(self, row: Row) -> str | None:
        """Return why a report must not be sent, None if it may."""
        if not (self._sandbox.options.allow_remote_callbacks or is_loopback(row["url"])):
            return "not called: the host is not this machine"
        if row["endpoint"] == "webhook" and not self._sandbox.settings.webhook_secret:
            return "not called: webhook_secret is no longer set"
        return None

    async def _post(self, transport: httpx.AsyncHTTPTransport, row: Row) -> tuple[bool, str]:
        """Make one attempt within the time limit; return whether it is acknowledged, and the result in words."""
        settings, raw = self._sandbox.settings, row["body"].encode()
        headers = {"content-type": "application/json", "user-agent": "cpaas-sandbox"}
        if row["endpoint"] == "webhook":
            headers[settings.signature_header] = signature(raw, settings.webhook_secret)
        limit = settings.report_timeout_seconds
        try:
            async with asyncio.timeout(limit):
                request = httpx.Request("POST", row["url"], headers=headers, content=raw)
                answer = await transport.handle_async_request(request)
                try:
                    await _drain(answer)
                finally:
                    await answer.aclose()
        except TimeoutError:
            return False, f"no response within {limit:g} s"
        except (httpx.HTTPError, httpx.InvalidURL, ValueError) as error:
            return False, type(error).__name__
        return answer.status_code in ACKNOWLEDGING, f"HTTP {answer.status_code}"

    def _record_result(self, row: Row, acknowledged: bool, result: str) -> None:
        """Record an attempt: the report is acknowledged, to be sent again, or given up."""
        settings, now = self._sandbox.settings, self._sandbox.clock.now()
        if acknowledged:
            self._record_attempt(row, "acknowledged", result, row["due"])
            return
        interval = settings.report_interval_seconds
        # Counted from the due moment, not from the response, so that retries do not drift past the window.
        due = row["due"] + interval if row["due"] + interval > now else now + interval
        over = row["attempts"] + 1 >= settings.report_attempts or due > row["first"] + settings.report_window_seconds
        self._record_attempt(row, "given_up" if over else "pending", result, due)

    def _record_attempt(self, row: Row, state: str, result: str, due: float, tried: bool = True) -> None:
        sandbox, attempts = self._sandbox, row["attempts"] + tried
        counted = [f"reports.{state}"] if state != "pending" else []
        if tried:
            counted += ["reports.sent"] if state == "acknowledged" else ["reports.sent", "reports.refused"]
        with sandbox.database.transaction():
            # Nothing is counted if a reset has deleted the report meanwhile.
            values = [state, attempts, result, due, sandbox.clock.now(), row["seq"]]
            if sandbox.database.execute(_RECORD_ATTEMPT, values):
                sandbox.counters.add(*counted)
                if state == "acknowledged":
                    repeat(sandbox, row)

    async def close(self) -> None:
        """Close all connections."""
        for transport in self._transports:
            await transport.aclose()


async def _drain(answer: httpx.Response) -> None:
    """Read and drop the body up to a bound, so that the connection can be reused."""
    size = 0
    async for chunk in answer.aiter_raw():
        size += len(chunk)
        if size > _MAX_ANSWER_BYTES:
            return
