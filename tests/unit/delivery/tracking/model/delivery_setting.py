"""What all worlds of a test share: one open database, one event loop, the receiver and the pages.

Opening a database, building an application and compiling statements takes a hundred times as long as an example.
"""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import logging
import threading
import time
from collections.abc import Callable, Collection, Coroutine, Iterator, Mapping
from functools import partial
from typing import Any, NamedTuple

import pytest
from fastapi import FastAPI
from sqlalchemy import text

from cpaas_provider.cli.deliveries import show
from cpaas_provider.database.database import Database, open_database
from cpaas_provider.database.errors import DatabaseError
from cpaas_provider.database.schema.all_tables import metadata
from cpaas_provider.delivery.campaigns import Place, TaskState
from cpaas_provider.delivery.receiver import app as receiver_app
from cpaas_provider.delivery.receiver.secrets_cache import ConnectionSecrets, SecretsCache
from cpaas_provider.delivery.receiver.writer import ReceivedReport, ReportWriter, StoreResult
from cpaas_provider.delivery.tracking import counts, event_source
from cpaas_provider.pages import summaries
from cpaas_provider.sensors.delivery import DeliverySensor
from cpaas_provider.triggers import delivery
from cpaas_provider.triggers._polling import delivery_poller
from tests.unit.pages.conftest import ALL, mounted

_MOST_BLOCKED, _MOST_WAITED = 0.05, 5.0
"""Seconds that a transaction is held open for another one: on SQLite, which has one writer, and on PostgreSQL."""
_IS_BLOCKED = text("SELECT 1 FROM pg_stat_activity WHERE pg_backend_pid() = ANY(pg_blocking_pids(pid))")
_KEPT_TABLES = frozenset({"cpaas_alembic_version", "cpaas_identity", "cpaas_hash_keys"})
_MOST_SECONDS = 300
"""Seconds that anything may take on a machine with other work."""
_HOUR = 3600.0


class KilledError(DatabaseError):
    """The process was killed, as far as a transaction of it can tell."""


class RefusedError(DatabaseError):
    """The database refuses for a while."""


class MortalDatabase:
    """A database that can refuse, and whose user can be killed at a transaction, or overtaken in the middle of one.

    :param is_wiped: whether an erasure overwrites the files, which takes longer than all else
    """

    def __init__(self, database: Database, *, is_wiped: bool = True) -> None:
        self._database = database
        self._is_wiped = is_wiped
        self._writes = itertools.count(1)
        self._kill: tuple[int, str] | None = None
        self._meanwhile: Callable[[], Any] | None = None
        self.is_down = False

    def __getattr__(self, name: str) -> Any:
        return getattr(self._database, name)

    def __enter__(self) -> MortalDatabase:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Leave it open, as all views share it."""

    def wipe(self, pattern: bytes) -> bool:
        return self._database.wipe(pattern) if self._is_wiped else True

    def kill_at(self, number: int, moment: str) -> None:
        """Kill at the transaction of this number, before or after its commit."""
        self._writes, self._kill = itertools.count(1), (number, moment)

    def run_meanwhile(self, work: Callable[[], Any]) -> None:
        """Run this in the middle of the next transaction."""
        self._meanwhile = work

    def take_meanwhile(self) -> Callable[[], Any] | None:
        """Return what no transaction has run, and forget it."""
        work, self._meanwhile = self._meanwhile, None
        return work

    def calm(self) -> None:
        self._kill = self._meanwhile = None

    @contextlib.contextmanager
    def connect(self, *, one_moment: bool = False) -> Iterator[Any]:
        self._refuse()
        with self._database.connect(one_moment=one_moment) as connection:
            yield connection

    def write(self, work: Callable[[Any], Any]) -> Any:
        self._refuse()
        number = next(self._writes)
        dies = self._kill[1] if self._kill is not None and self._kill[0] == number else None
        meanwhile = self.take_meanwhile()
        threads: list[threading.Thread] = []

        def until_commit(connection: Any) -> Any:
            result = work(connection)
            if meanwhile is not None and not threads:
                threads.append(threading.Thread(target=meanwhile))
                threads[0].start()
                _await_end_or_block(connection, threads[0])
            if dies == "before":
                raise KilledError("killed before the commit")
            return result

        result = self._database.write(until_commit)
        for thread in threads:
            thread.join(30)
        if dies == "after":
            raise KilledError("killed after the commit")
        return result

    def _refuse(self) -> None:
        if self.is_down:
            raise RefusedError("The database refuses.")


def _await_end_or_block(connection: Any, thread: threading.Thread) -> None:
    """Wait until another transaction ends, or waits for this one."""
    if connection.dialect.name != "postgresql":
        thread.join(_MOST_BLOCKED)
        return
    deadline = time.monotonic() + _MOST_WAITED
    while thread.is_alive() and time.monotonic() < deadline and not connection.execute(_IS_BLOCKED).first():
        thread.join(0.005)


class Response(NamedTuple):
    """What an application answered."""

    status: int
    text: str


class LoopThread:
    """An event loop in a thread of its own, in which applications and triggers run one after the other."""

    def __init__(self) -> None:
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, daemon=True)
        self._thread.start()

    def run(self, work: Coroutine[Any, Any, Any]) -> Any:
        return asyncio.run_coroutine_threadsafe(work, self._loop).result(_MOST_SECONDS)

    def request(
        self, app: Any, method: str, path: str, headers: Mapping[str, str], body: bytes = b"", query: str = ""
    ) -> Response:
        """Have an application answer, without a client and a server, which take longer than the application."""
        return Response(*self.run(_answer(app, method, path, headers, body, query)))

    def close(self) -> None:
        self.run(_cancel_others())
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._loop.close()


async def _cancel_others() -> None:
    """End what still runs on the loop, such as a poller that waits for more triggers."""
    running = asyncio.all_tasks() - {asyncio.current_task()}
    for task in running:
        task.cancel()
    await asyncio.gather(*running, return_exceptions=True)


async def _answer(
    app: Any, method: str, path: str, headers: Mapping[str, str], body: bytes, query: str
) -> tuple[int, str]:
    given = {"host": "receiver", "content-length": str(len(body)), **headers}
    scope = {
        "type": "http",
        "asgi": {"version": "3.0"},
        "http_version": "1.1",
        "method": method,
        "scheme": "http",
        "path": path,
        "raw_path": path.encode(),
        "query_string": query.encode(),
        "root_path": "",
        "headers": [(name.lower().encode(), value.encode()) for name, value in given.items()],
        "client": ("127.0.0.1", 1),
        "server": ("receiver", 80),
        "state": {},
    }
    incoming = iter([{"type": "http.request", "body": body, "more_body": False}])
    status, parts = 0, []

    async def receive() -> Any:
        return next(incoming, {"type": "http.disconnect"})

    async def send(message: Any) -> None:
        nonlocal status
        if message["type"] == "http.response.start":
            status = message["status"]
        else:
            parts.append(message.get("body", b""))

    await app(scope, receive, send)
    return status, b"".join(parts).decode()


class Clock:
    """The clock by which the receiver forgets secrets."""

    def __init__(self) -> None:
        self.hours = 0

    def seconds(self) -> float:
        return time.monotonic() + self.hours * _HOUR


class Setting:
    """The database, the receiver and the pages, for one world after the other."""

    def __init__(self, database: Database, loop: LoopThread, clock: Clock) -> None:
        self._database = database
        self._numbers = itertools.count()
        self.loop = loop
        self.background = _Background()
        self.database = MortalDatabase(database)
        self._clock = clock
        self._secrets: Callable[[str], ConnectionSecrets | None] = lambda conn_id: None
        self._save: Callable[[Any], list[StoreResult]] = lambda incoming: []
        self._expected: tuple[str, ...] = ()
        self.writer = ReportWriter(self._save_reports)
        self.receiver: FastAPI = receiver_app.build_app(
            self._secrets_of,
            self.writer,
            guard=None,
            database_id=lambda: "one",
            emit_metric=None,
            expected=lambda: self._expected,
        )
        present: Any = _Present(self)
        self.task_states: dict[Place, TaskState] = {}
        """Airflow's states of task instances."""
        self.pages: FastAPI = mounted(present, self.read_task_states)

    def read_task_states(self, places: Collection[Place]) -> dict[Place, TaskState]:
        """Return Airflow's states, as if from its database."""
        return {place: self.task_states[place] for place in places if place in self.task_states}

    def pass_hour(self) -> None:
        """Have the receiver read all connections again."""
        self._clock.hours += 1

    def begin(
        self,
        secrets: Callable[[str], ConnectionSecrets | None],
        expected: tuple[str, ...],
        *,
        is_wiped: bool,
    ) -> tuple[MortalDatabase, int]:
        """Have an empty database for a new world, and return it with the number of the world.

        :param is_wiped: as for ``MortalDatabase``
        """
        self._secrets, self._expected = secrets, expected
        self.pass_hour()
        self._empty()
        self.task_states.clear()
        self.database = MortalDatabase(self._database, is_wiped=is_wiped)
        return self.database, next(self._numbers)

    def save_with(self, save: Callable[[Any], list[StoreResult]]) -> None:
        self._save = save

    def open(self, *_: Any, **__: Any) -> MortalDatabase:
        """Return the database of the present world, in place of ``open_database``."""
        return self.database

    def get(self, path: str, query: str = "", accept: str = "text/html") -> Response:
        """Return a page."""
        headers = {"x-dags": ALL, "x-totals": "yes", "accept": accept}
        response = self.loop.request(self.pages, "GET", f"/cpaas{path}", headers, query=query)
        self.background.run()
        return response

    def _secrets_of(self, conn_id: str) -> ConnectionSecrets | None:
        return self._secrets(conn_id)

    def _save_reports(self, incoming: Any) -> list[StoreResult]:
        reports: list[ReceivedReport] = list(incoming)
        return self._save(reports)

    def _empty(self) -> None:
        tables = [table.name for table in reversed(metadata.sorted_tables) if table.name not in _KEPT_TABLES]
        with self._database.engine.begin() as connection:
            if connection.dialect.name == "postgresql":
                connection.execute(text("; ".join(f"DELETE FROM {name}" for name in tables)))
            else:
                for name in tables:
                    connection.exec_driver_sql(f"DELETE FROM {name}")


class _Present:
    """The present database of a setting, whichever that is."""

    def __init__(self, setting: Setting) -> None:
        self._setting = setting

    def __getattr__(self, name: str) -> Any:
        return getattr(self._setting.database, name)


class _Background:
    """What the pages count in the background, after a response."""

    def __init__(self) -> None:
        self._waiting: list[Callable[[], Any]] = []

    def submit(self, work: Callable[..., Any], *arguments: Any) -> None:
        self._waiting.append(lambda: work(*arguments))

    def shutdown(self, **_: Any) -> None:
        pass

    def run(self) -> None:
        """Do it now."""
        while self._waiting:
            self._waiting.pop()()


@contextlib.contextmanager
def open_setting(monkeypatch: pytest.MonkeyPatch) -> Iterator[Setting]:
    """Have everything opened on the configured database."""
    loop = LoopThread()
    with contextlib.ExitStack() as stack:
        stack.callback(loop.close)
        database = stack.enter_context(open_database())
        clock = Clock()
        monkeypatch.setattr(receiver_app, "SecretsCache", partial(SecretsCache, clock=clock.seconds))
        setting = Setting(database, loop, clock)
        for module in (counts, event_source):
            monkeypatch.setattr(module, "open_database", setting.open)
        monkeypatch.setattr(delivery_poller, "_JOIN_WINDOW", 0.0)
        monkeypatch.setattr(delivery, "LAST_READ_SECONDS", _MOST_SECONDS)
        # Airflow's log is not that of logging, and takes longer than a look.
        monkeypatch.setattr(DeliverySensor, "log", logging.getLogger(__name__))
        monkeypatch.setattr(show, "read_task_states", setting.read_task_states)
        monkeypatch.setattr(summaries, "ThreadPoolExecutor", lambda *_: setting.background)
        stack.callback(lambda: loop.run(setting.writer.close()))
        yield setting
