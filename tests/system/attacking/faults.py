"""Databases of a receiver that fail for some seconds, in one way after the other, while reports come in."""

from __future__ import annotations

import asyncio
import contextlib
import ctypes
import random
import secrets
import sqlite3
import threading
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path

import psutil
import sqlalchemy

from cpaas_provider.database.schema.delivery import reports
from tests.system.attacking.places import Place
from tests.system.attacking.sender import Acknowledged, Sender, sending
from tests.tcp_proxy import Mode, Proxy

TIMEOUT = 20.0
"""A receiver answers sooner than that, whatever its database does."""

BACK_SECONDS = 5.0
"""How long after the end of a fault the first report has to be acknowledged."""

OF_BUSY_MACHINES = ("408", "ConnectTimeout", "ReadError")
MOST_OF_BUSY_MACHINES = 0.01
"""What reports are answered, too, where neither sender nor receiver gets on; of so many at most."""

FELT_SECONDS = 1.0
TERMINATE_SECONDS = 0.05
QUIET = 1.0
_DISK_BYTES = 64 * 1024 * 1024
_PIECES = (1024 * 1024, 4096)


@dataclass(frozen=True)
class Fault:
    """Something that happens to a database.

    :param happening: begins it, and ends it
    :param stops: no report can be taken for as long as it lasts
    """

    happening: Callable[[], AbstractContextManager[object]]
    stops: bool = True


@dataclass
class Outcome(Acknowledged):
    """What came of it.

    :param back: seconds from just before each fault was ended until the first report was acknowledged
    :param fresh: likewise, until one was that had not been sent before: it stands in line behind all that waited
    """

    answers: Counter[str] = field(default_factory=Counter)
    back: dict[str, list[float]] = field(default_factory=dict)
    fresh: dict[str, list[float]] = field(default_factory=dict)

    def violations(self) -> list[str]:
        """Return what must not be, in words."""
        expected = {"200", "503"}
        if sum(self.answers[one] for one in OF_BUSY_MACHINES) <= MOST_OF_BUSY_MACHINES * self.answers.total():
            expected.update(OF_BUSY_MACHINES)
        odd = {answer: times for answer, times in self.answers.items() if answer not in expected}
        late = {fault: max(took) for fault, took in self.back.items() if max(took) > BACK_SECONDS}
        found = [(odd, f"reports were answered {odd}"), (late, f"after these faults it took too long: {late}")]
        return super().violations() + [words for is_so, words in found if is_so]

    def __str__(self) -> str:
        back = "; ".join(
            f"{fault} ({len(took)}): {sorted(took)[len(took) // 2]:.2f} s, at most {max(took):.2f} s, "
            f"new ones at most {max(self.fresh[fault]):.2f} s"
            for fault, took in self.back.items()
        )
        return f"{super().__str__()}; answers {dict(self.answers)}; back after {back}"


def failing(place: Place, faults: Mapping[str, Fault], seconds: tuple[float, float], rounds: int, seed: int) -> Outcome:
    """Let each of the faults happen in each round, and return what was seen.

    :param seconds: how long they last at least and at most, once no report is acknowledged any more
    """
    outcome, sender, chance = Outcome(), Sender(place, TIMEOUT), random.Random(seed)

    async def run() -> None:
        async with sending(sender):
            await sender.until_one_sent_from_now_on_is_acknowledged("the start")
            for _ in range(rounds):
                for name in chance.sample(sorted(faults), len(faults)):
                    first, fresh = await _fail(sender, name, faults[name], chance.uniform(*seconds))
                    outcome.back.setdefault(name, []).append(first)
                    outcome.fresh.setdefault(name, []).append(fresh)
                    await asyncio.sleep(QUIET)

    asyncio.run(run())
    sender.count(outcome)
    outcome.answers = sender.answers
    return outcome


async def _fail(sender: Sender, name: str, fault: Fault, seconds: float) -> tuple[float, float]:
    """Let a fault happen; return how long it took after its end until any report was acknowledged, and a new one."""
    happening = fault.happening()
    await asyncio.to_thread(happening.__enter__)
    try:
        if fault.stops:
            # Else it was none.
            await sender.until_none_is_acknowledged(FELT_SECONDS, name)
        await asyncio.sleep(seconds)
    finally:
        first = asyncio.create_task(sender.until_one_is_acknowledged(name))
        fresh = asyncio.create_task(sender.until_one_sent_from_now_on_is_acknowledged(name))
        # They note the time before anything is ended.
        await asyncio.sleep(0)
        await asyncio.to_thread(happening.__exit__, None, None, None)
    return await first, await fresh


@contextlib.contextmanager
def small_disk(at: Path) -> Iterator[bool]:
    """Have a file system of some MiB there, where this process may make one; tell whether it is."""
    at.mkdir()
    libc = ctypes.CDLL(None, use_errno=True)
    size = f"size={_DISK_BYTES}".encode()
    if libc.mount(b"tmpfs", str(at).encode(), b"tmpfs", 0, size) != 0:
        yield False
        return
    try:
        yield True
    finally:
        libc.umount2(str(at).encode(), 2)  # as soon as nobody uses it any more


def faults_of_sqlite(place: Place, file: Path, *, own_disk: bool) -> dict[str, Fault]:
    """Return what can happen to a file of SQLite.

    :param own_disk: it has a file system of its own, which may be filled
    """
    full = partial(_full_disk, file) if own_disk else partial(_no_byte_more, place)
    return {
        "full disk" if own_disk else "limit on files": Fault(full),
        "lock on the file": Fault(partial(_locked_file, file)),
    }


@contextlib.contextmanager
def _full_disk(file: Path) -> Iterator[None]:
    filler = file.with_name("filler")
    # Or there would be room left in the write-ahead log.
    with contextlib.closing(sqlite3.connect(file, timeout=10)) as connection:
        connection.execute("PRAGMA wal_checkpoint(TRUNCATE)")
    try:
        with filler.open("wb", buffering=0) as filling:
            for size in _PIECES:
                with contextlib.suppress(OSError):
                    while filling.write(b"\0" * size) == size:
                        pass
        yield
    finally:
        filler.unlink()


@contextlib.contextmanager
def _no_byte_more(place: Place) -> Iterator[None]:
    """Let the receiver's processes write to no file any more, which their operating system answers much like that."""
    processes = place.started.processes()
    before = {process: process.rlimit(psutil.RLIMIT_FSIZE) for process in processes}
    try:
        for process, (_, hard) in before.items():
            process.rlimit(psutil.RLIMIT_FSIZE, (0, hard))
        yield
    finally:
        for process, limits in before.items():
            process.rlimit(psutil.RLIMIT_FSIZE, limits)


@contextlib.contextmanager
def _locked_file(file: Path) -> Iterator[None]:
    with contextlib.closing(sqlite3.connect(file, timeout=30, isolation_level=None, check_same_thread=False)) as other:
        other.execute("BEGIN IMMEDIATE")
        yield
        other.execute("ROLLBACK")


@contextlib.contextmanager
def own_role(url: str) -> Iterator[str]:
    """Give a user of PostgreSQL whose sessions can be made to fail without anybody else noticing."""
    name = f"cpaas_failing_{secrets.token_hex(6)}"
    _execute(url, f"CREATE ROLE {name} LOGIN SUPERUSER")
    try:
        yield name
    finally:
        _execute(url, f"DROP OWNED BY {name} CASCADE", f"DROP ROLE {name}")


def faults_of_postgresql(store: str, role: str, proxy: Proxy) -> dict[str, Fault]:
    """Return what can happen to a PostgreSQL that a receiver reaches through a proxy as a user of its own."""
    return {
        "read-only": Fault(partial(_read_only, store, role)),
        "hanging": Fault(partial(_turned, proxy, Mode.HANG)),
        "away": Fault(partial(_turned, proxy, Mode.DROP)),
        "terminated sessions": Fault(partial(_terminated, store, role), stops=False),
        "no sessions": Fault(partial(_no_session, store, role)),
        "lock on a table": Fault(partial(_locked_table, store)),
    }


@contextlib.contextmanager
def _read_only(store: str, role: str) -> Iterator[None]:
    """A fail-over to a server that only reads, and which then becomes one that writes."""
    _execute(store, f"ALTER ROLE {role} SET default_transaction_read_only = on", _terminate(role))
    yield
    # The sessions there are stay as they are: to be rid of them is left to the receiver.
    _execute(store, f"ALTER ROLE {role} RESET default_transaction_read_only")


@contextlib.contextmanager
def _turned(proxy: Proxy, mode: Mode) -> Iterator[None]:
    proxy.turn(mode)
    yield
    proxy.turn(Mode.PASS)


@contextlib.contextmanager
def _terminated(store: str, role: str) -> Iterator[None]:
    """End all sessions again and again, and take new ones."""
    over, ended = threading.Event(), 0
    engine = sqlalchemy.create_engine(store, isolation_level="AUTOCOMMIT")

    def end_all() -> None:
        nonlocal ended
        with engine.connect() as connection:
            while not over.wait(TERMINATE_SECONDS):
                ended += len(connection.execute(sqlalchemy.text(_terminate(role))).all())

    with ThreadPoolExecutor(1) as thread:
        ending = thread.submit(end_all)
        try:
            yield
        finally:
            over.set()
            ending.result()
            engine.dispose()
    if not ended:
        raise RuntimeError("There was no session to be terminated.")


@contextlib.contextmanager
def _no_session(store: str, role: str) -> Iterator[None]:
    """End all sessions, and take no new ones for a while."""
    _execute(store, f"ALTER ROLE {role} CONNECTION LIMIT 0", f"ALTER ROLE {role} NOSUPERUSER", _terminate(role))
    yield
    _execute(store, f"ALTER ROLE {role} CONNECTION LIMIT -1", f"ALTER ROLE {role} SUPERUSER")


@contextlib.contextmanager
def _locked_table(store: str) -> Iterator[None]:
    engine = sqlalchemy.create_engine(store)
    try:
        with engine.begin() as connection:
            connection.execute(sqlalchemy.text(f"LOCK TABLE {reports.name}"))
            yield
    finally:
        engine.dispose()


def _terminate(role: str) -> str:
    return f"SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE usename = '{role}'"


def _execute(url: str, *statements: str) -> None:
    # One by one: what begins later sees what was done before.
    engine = sqlalchemy.create_engine(url, isolation_level="AUTOCOMMIT")
    try:
        with engine.connect() as connection:
            for statement in statements:
                connection.execute(sqlalchemy.text(statement))
    finally:
        engine.dispose()
