"""The receiver over real HTTP: on a port of its own in a thread, with the inbox in a database of its own."""

from __future__ import annotations

import asyncio
import contextlib
import json
import socket
import threading
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

import httpx
import uvicorn
from sqlalchemy import select

from cpaas_provider.database.database import Database
from cpaas_provider.database.schema.delivery import reports
from cpaas_provider.delivery.callbacks.signatures import sign
from cpaas_provider.delivery.callbacks.tokens import CallbackToken, callback_url
from cpaas_provider.delivery.receiver.app import build_app
from cpaas_provider.delivery.receiver.secrets_cache import ConnectionSecrets
from cpaas_provider.delivery.receiver.writer import MAX_PENDING, ReceivedReport, ReportWriter, StoreResult
from cpaas_provider.delivery.tracking.report_store import ReportStore
from tests.ports import listening
from tests.waiting import until

PATIENCE = 30.0
SHOP = ConnectionSecrets(("of-callbacks", "of-callbacks-before"), "of-webhooks", "X-Signature")
TOKEN = CallbackToken("spring", "spring-1", 100)
JSON = {"content-type": "application/json"}
REPORT = {"id": "m-1", "recipient": "+2348030000001", "status": "delivered"}


class Gate:
    """Stands before the inbox, and lets transactions through only while it is open; or fails them."""

    def __init__(self, report_store: ReportStore) -> None:
        self._keep = report_store.save
        self.open = threading.Event()
        self.open.set()
        self.error: Exception | None = None
        self.begun = 0

    def save(self, incoming: Sequence[ReceivedReport]) -> list[StoreResult]:
        self.begun += 1
        if not self.open.wait(PATIENCE):
            raise TimeoutError
        if self.error:
            raise self.error
        return self._keep(incoming)


@dataclass
class Served:
    """A running receiver, and what is behind it."""

    port: int
    database: Database
    gate: Gate
    connections: dict[str, ConnectionSecrets]
    observed: list[tuple[str, int | float]] = field(default_factory=list)
    store_error: Exception | None = None
    max_pending: int = MAX_PENDING

    def __post_init__(self) -> None:
        self.writer = ReportWriter(self.gate.save, max_pending=self.max_pending)

    def in_hand(self) -> int:
        """Return how many reports wait to be stored."""
        return self.writer._pending.total()

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    def counted(self) -> Counter[str]:
        """Return how often each measurement was taken."""
        return Counter(name for name, _ in self.observed)

    def callback(self, token: CallbackToken = TOKEN, conn_id: str = "shop", secret: str = "of-callbacks") -> str:
        return callback_url(self.url, conn_id, secret, token)

    def post(self, url: str | None = None, body: Any = REPORT, **options: Any) -> httpx.Response:
        """Send a report; bytes go as they are."""
        content = body if isinstance(body, bytes) else json.dumps(body).encode()
        headers = {**JSON, **options.pop("headers", {})}
        # A client of its own: what one request does to its connection is nobody else's business.
        return httpx.post(
            url or self.callback(),
            content=content,
            headers=headers,
            timeout=PATIENCE,
            trust_env=False,
            verify=False,
            **options,
        )

    def url_of(self, source: str, conn_id: str = "shop") -> str:
        return self.callback(conn_id=conn_id) if source == "callback" else f"{self.url}/webhook/{conn_id}"

    def post_signed(self, body: Any = REPORT, secret: str = "of-webhooks", conn_id: str = "shop") -> httpx.Response:
        content = body if isinstance(body, bytes) else json.dumps(body).encode()
        return self.post(f"{self.url}/webhook/{conn_id}", content, headers={"x-signature": sign(content, secret)})

    def stored(self) -> list[Any]:
        """Return the raw reports in the store."""
        with self.database.connect() as connection:
            return list(connection.execute(select(reports)))

    def health(self) -> tuple[int, Any]:
        answer = httpx.get(f"{self.url}/health", timeout=PATIENCE, trust_env=False, verify=False)
        return answer.status_code, answer.json()

    def bodies(self) -> list[str]:
        return [row.body for row in self.stored()]

    def listens(self) -> bool:
        try:
            self.connect().close()
        except OSError:
            return False
        return True

    def connect(self) -> socket.socket:
        return socket.create_connection(("127.0.0.1", self.port), timeout=PATIENCE)


@contextlib.contextmanager
def serving(
    database: Database,
    *,
    described: bool = False,
    max_pending: int = MAX_PENDING,
    read: Callable[[str], ConnectionSecrets | None] | None = None,
    expected: Callable[[], Iterable[str]] = tuple,
) -> Iterator[Served]:
    """Run a receiver.

    :param max_pending: how many reports of a connection may wait to be stored
    :param read: looks up a connection, in place of those of ``Served``
    :param expected: names connections there are
    """
    gate = Gate(ReportStore(database))
    with listening() as (listener, _):
        served = Served(
            listener.getsockname()[1], database, gate, {"shop": SHOP, "team/shop": SHOP}, max_pending=max_pending
        )

        def database_id() -> str:
            if served.store_error:
                raise served.store_error
            return "the-store"

        app = build_app(
            read or served.connections.get,
            served.writer,
            expected=expected,
            guard=None,
            database_id=database_id,
            check_database=database.check,
            emit_metric=lambda name, value: served.observed.append((name, value)),
            described=described,
        )
        with running(app, listener):
            yield served


@contextlib.contextmanager
def running(app: Any, listener: socket.socket) -> Iterator[None]:
    """Serve an application in a thread, at a socket of ``listening``."""
    server = uvicorn.Server(uvicorn.Config(app, log_level="warning", access_log=False, loop="asyncio"))
    thread = threading.Thread(target=server.run, kwargs={"sockets": [listener]}, daemon=True)
    thread.start()
    try:
        until(lambda: server.started or not thread.is_alive())
        assert server.started
        yield
    finally:
        server.should_exit = True
        thread.join(PATIENCE)
        assert not thread.is_alive()


async def together(served: Served, numbers: Sequence[int]) -> list[int]:
    """Send different reports at the same time, and return their statuses."""
    limits = httpx.Limits(max_connections=len(numbers))
    async with httpx.AsyncClient(limits=limits, timeout=PATIENCE, trust_env=False, verify=False) as client:
        url = served.callback()
        posts = [client.post(url, json={**REPORT, "id": f"m-{number}"}) for number in numbers]
        return [answer.status_code for answer in await asyncio.gather(*posts)]
