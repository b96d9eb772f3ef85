"""Delivery reports to the ``callback`` of a request (INTERFACE.md section 6), sent off the request's path.

Only loopback hosts are called unless the sandbox was started to allow others: it must never reach a stranger
by accident.
"""

from __future__ import annotations

import asyncio
import ipaddress
import json
from collections.abc import Iterable
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

import httpx

from cpaas_provider.sandbox.clock import timestamp
from cpaas_provider.sandbox.database import Row

if TYPE_CHECKING:
    from cpaas_provider.sandbox.state import Sandbox

_BOOK = """
INSERT INTO callbacks (kind, message_id, recipient, external_ref, url, body, due, state)
VALUES (?, ?, ?, ?, ?, ?, ?, 'pending')"""
_CONCURRENT = 8
_ROUND = 200
_PAUSE_SECONDS = 0.2


def is_loopback(url: str) -> bool:
    """Tell whether a URL's host is this machine itself, by name or address; no name is resolved."""
    try:
        host = urlsplit(url).hostname or ""
        return host == "localhost" or ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False


class Callbacks:
    """The queue of delivery reports, in the database, and the task that empties it."""

    def __init__(self, sandbox: Sandbox, allow_remote: bool = False) -> None:
        self._sandbox = sandbox
        self._allow_remote = allow_remote
        self._client: httpx.AsyncClient | None = None
        self._places = asyncio.Semaphore(_CONCURRENT)

    def book(
        self, kind: str, message_id: str, url: str, reference: str | None, reports: Iterable[tuple[str, str]]
    ) -> None:
        """Store one report for each (recipient, status), due after the set delay."""
        now = self._sandbox.clock.now()
        due = now + self._sandbox.settings["callback_delay_seconds"]
        rows = []
        for recipient, status in reports:
            body: dict[str, Any] = {"id": message_id, "channel": kind, "recipient": recipient, "status": status}
            if reference is not None:
                body["external_ref"] = reference
            body["created_datetime"] = timestamp(due)
            rows.append((kind, message_id, recipient, reference, url, json.dumps(body, ensure_ascii=False), due))
        self._sandbox.database.many(_BOOK, rows)
        self._sandbox.wake_at(due)

    def due(self) -> list[Row]:
        """Return the next reports whose time has come."""
        sql = "SELECT * FROM callbacks WHERE state = 'pending' AND due <= ? ORDER BY due, seq LIMIT ?"
        return self._sandbox.database.rows(sql, [self._sandbox.clock.now(), _ROUND])

    async def deliver_due(self) -> bool:
        """Send a round of reports; tell whether there were any."""
        rows = self.due()
        if not rows:
            return False
        if self._client is None:
            # Off the loop: making a client reads the whole CA bundle.
            self._client = await asyncio.to_thread(httpx.AsyncClient, trust_env=False, follow_redirects=False)
        client = self._client
        await asyncio.gather(*(self._deliver(client, row) for row in rows))
        return True

    async def _deliver(self, client: httpx.AsyncClient, row: Row) -> None:
        if not (self._allow_remote or is_loopback(row["url"])):
            self._settle(row, "failed", 0, "not called: the host is not this machine")
            return
        attempts, result = self._sandbox.settings["callback_attempts"], ""
        for attempt in range(1, attempts + 1):
            async with self._places:
                acknowledged, result = await self._post(client, row)
            if acknowledged:
                self._settle(row, "delivered", attempt, result)
                return
            if attempt < attempts:
                await asyncio.sleep(_PAUSE_SECONDS * attempt)
        self._settle(row, "failed", attempts, result)

    async def _post(self, client: httpx.AsyncClient, row: Row) -> tuple[bool, str]:
        """Make one attempt; bounded in time as a whole, following no redirect and no proxy."""
        headers = {"content-type": "application/json"}
        limit = self._sandbox.settings["callback_timeout_seconds"]
        try:
            async with asyncio.timeout(limit):
                # the answer's body is nobody's business: only its status is read
                async with client.stream("POST", row["url"], content=row["body"].encode(), headers=headers) as answer:
                    status = answer.status_code
        except TimeoutError:
            return False, f"no answer within {limit:g} s"
        except (httpx.HTTPError, httpx.InvalidURL, ValueError) as error:
            return False, type(error).__name__
        return 200 <= status < 300, f"HTTP {status}"

    def _settle(self, row: Row, state: str, attempts: int, result: str) -> None:
        sandbox = self._sandbox
        values = [state, attempts, result, sandbox.clock.now(), row["seq"]]
        sql = "UPDATE callbacks SET state = ?, attempts = ?, result = ?, updated = ? WHERE seq = ?"
        with sandbox.database.transaction():
            # a reset in the meantime has taken the report away
            if sandbox.database.execute(sql, values):
                sandbox.counters.add(f"callbacks.{state}")

    async def close(self) -> None:
        """Let the connections go."""
        if self._client is not None:
            await self._client.aclose()
