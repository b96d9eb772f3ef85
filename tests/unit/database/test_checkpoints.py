"""Checkpoints of SQLite that run beside the writer."""

from __future__ import annotations

import sqlite3
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import closing
from functools import partial
from pathlib import Path

import pytest
import sqlalchemy

from cpaas_provider.database import database as database_module
from cpaas_provider.database._engine import checkpoints
from cpaas_provider.database.database import Database, open_database
from cpaas_provider.database.errors import DatabaseError
from cpaas_provider.database.schema.campaigns import campaigns

SECONDS = 20.0
THREAD = "cpaas-checkpoints"
PAGE = 4096


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "cpaas.db"


@pytest.fixture
def database(path: Path) -> Iterator[Database]:
    with open_database(f"sqlite:///{path}", write_timeout=10, background_checkpoints=True) as opened:
        yield opened


def add(connection: sqlalchemy.Connection, campaign: str) -> None:
    connection.execute(sqlalchemy.insert(campaigns).values(campaign=campaign, fencing_token=1))


def is_in_file(path: Path, campaign: str) -> bool:
    """Return whether a campaign is in the database file itself, not only in the log beside it."""
    return campaign.encode() in path.read_bytes()


def wait_until(condition: Callable[[], bool]) -> None:
    deadline = time.monotonic() + SECONDS
    while not condition():
        assert time.monotonic() < deadline, "It did not happen in time."
        time.sleep(0.02)


@pytest.fixture
def checkpoint_threads() -> Callable[[], int]:
    """Count the threads that a test starts. A receiver of another test in this process may have one of its own."""
    before = set(threading.enumerate())
    return lambda: len([thread for thread in threading.enumerate() if thread.name == THREAD and thread not in before])


def test_write_reaches_the_file_without_filling_the_log(database: Database, path: Path) -> None:
    database.write(partial(add, campaign="campaign one"))
    wait_until(lambda: is_in_file(path, "campaign one"))


def test_without_the_option_a_write_stays_in_the_log(path: Path, checkpoint_threads: Callable[[], int]) -> None:
    with open_database(f"sqlite:///{path}", write_timeout=10) as database:
        database.write(partial(add, campaign="campaign one"))
        assert checkpoint_threads() == 0
        assert not is_in_file(path, "campaign one")


def test_thread_starts_with_the_first_write_and_ends_with_the_database(
    path: Path, checkpoint_threads: Callable[[], int]
) -> None:
    with open_database(f"sqlite:///{path}", background_checkpoints=True) as database:
        assert checkpoint_threads() == 0
        for number in range(3):
            database.write(partial(add, campaign=f"{number}"))
        assert checkpoint_threads() == 1
    assert checkpoint_threads() == 0


def test_writer_reuses_its_connection(database: Database, monkeypatch: pytest.MonkeyPatch) -> None:
    # A connection that had not written would have to read every page again.
    monkeypatch.setattr(checkpoints, "PAUSE", 0.001)
    used: set[int] = set()

    def write(connection: sqlalchemy.Connection, campaign: str) -> None:
        used.add(id(connection.connection.driver_connection))
        add(connection, campaign)

    for number in range(200):
        database.write(partial(write, campaign=f"{number}"))
    assert len(used) == 1


def test_log_stays_bounded_while_writes_never_stop(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(checkpoints, "PAUSE", 0.001)
    monkeypatch.setattr(database_module, "MAX_LOG_PAGES", 50)
    with open_database(f"sqlite:///{path}", background_checkpoints=True) as database:
        for number in range(300):
            database.write(partial(add, campaign=f"{number:0200}"))
        log = path.with_name(f"{path.name}-wal").stat().st_size
    # Each write changes a few pages, so 300 of them fill the log many times.
    assert log < 10 * 50 * PAGE


def test_checkpoints_go_on_after_the_file_was_away(
    database: Database, path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(checkpoints, "PAUSE", 0.001)
    database.write(partial(add, campaign="campaign one"))
    wait_until(lambda: is_in_file(path, "campaign one"))
    away = path.rename(path.with_name("away.db"))
    for number in range(20):
        with pytest.raises(DatabaseError, match="moved or deleted"):
            database.write(partial(add, campaign=f"lost {number}"))
    assert not path.exists()
    away.rename(path)
    database.write(partial(add, campaign="campaign two"))
    wait_until(lambda: is_in_file(path, "campaign two"))


def test_reader_of_an_older_state_delays_no_write(database: Database, path: Path) -> None:
    with closing(sqlite3.connect(path)) as reader:
        reader.execute("BEGIN")
        reader.execute(f"SELECT COUNT(*) FROM {campaigns.name}").fetchone()
        for number in range(5):
            database.write(partial(add, campaign=f"campaign {number}"))
        reader.execute("ROLLBACK")
    database.write(partial(add, campaign="campaign last"))
    wait_until(lambda: is_in_file(path, "campaign last"))


def test_database_server_has_no_such_thread(postgres_url: str, checkpoint_threads: Callable[[], int]) -> None:
    with open_database(postgres_url, write_timeout=10, background_checkpoints=True) as database:
        database.write(partial(add, campaign="campaign one"))
        assert checkpoint_threads() == 0


def test_deleted_data_is_wiped_while_another_process_copies_its_log(
    database: Database, path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(checkpoints, "PAUSE", 0.0)
    stopping = threading.Event()

    def write_all_the_time() -> None:
        number = 0
        while not stopping.is_set():
            number += 1
            database.write(partial(add, campaign=f"{number:0200}"))

    writer = threading.Thread(target=write_all_the_time)
    writer.start()
    try:
        with open_database(f"sqlite:///{path}") as other:
            wiped = [other.wipe(b"no such text") for _ in range(3)]
    finally:
        stopping.set()
        writer.join()
    assert all(wiped), wiped
