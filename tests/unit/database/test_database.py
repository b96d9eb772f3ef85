"""The database: where it is, who may read it, and that it is the same for all who open it at once."""

from __future__ import annotations

import contextlib
import errno
import os
import sqlite3
import stat
import threading
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path
from types import SimpleNamespace

import pytest
import sqlalchemy

from cpaas_provider.database._engine import sqlite_file
from cpaas_provider.database._engine.transactions import HAS_LOG
from cpaas_provider.database.database import Database, open_database, set_up_sqlite
from cpaas_provider.database.errors import DatabaseError
from cpaas_provider.database.schema.campaigns import campaigns
from tests.unit.database.table_versions import is_newest


def _mode(path: Path) -> int:
    return stat.S_IMODE(path.stat().st_mode)


def test_new_files_are_private_to_the_owner(sqlite_url: str) -> None:
    with open_database(sqlite_url) as database:
        path = Path(str(database.engine.url.database))
        assert _mode(path.parent) == 0o700
        # What SQLite puts beside it holds the same.
        assert {_mode(one) for one in path.parent.iterdir()} == {0o600}


def test_existing_permissions_are_unchanged(tmp_path: Path) -> None:
    tmp_path.chmod(0o770)
    path = tmp_path / "store.db"
    path.touch()
    path.chmod(0o660)
    open_database(f"sqlite:///{path}").close()
    assert (_mode(tmp_path), _mode(path)) == (0o770, 0o660)


class TestSqliteDiskSync:
    """What was written is on the disk before that is said."""

    @pytest.fixture
    def synced(self, monkeypatch: pytest.MonkeyPatch) -> list[int]:
        """The inodes of the files that are brought to the disk."""
        found: list[int] = []

        def sync(file: int) -> None:
            os.fsync(file)
            found.append(os.fstat(file).st_ino)

        monkeypatch.setattr(sqlite_file, "_sync", sync)
        return found

    def test_log_is_synced_after_each_commit(self, sqlite_url: str, synced: list[int]) -> None:
        with open_database(sqlite_url) as database:
            with database.connect() as connection:
                said = [
                    connection.exec_driver_sql(f"PRAGMA {name}").scalar()
                    for name in ("journal_mode", "synchronous", "busy_timeout")
                ]
            # Without a sync of its own at each commit; those that keep the file whole are SQLite's.
            assert said == ["wal", 1, 30_000]
            log = Path(f"{sqlite_url.removeprefix('sqlite:///')}-wal").stat().st_ino
            synced.clear()
            for number in range(3):
                database.write(partial(add, campaign=f"c{number}"))
                assert synced == [log] * (number + 1)

    def test_second_transaction_is_written_while_the_first_is_synced(
        self, sqlite_url: str, synced: list[int], monkeypatch: pytest.MonkeyPatch
    ) -> None:
        with open_database(sqlite_url) as database:
            synced.clear()
            plain, rest = sqlite_file._sync, ["two"]

            def sync(file: int) -> None:
                if rest:
                    database.write(partial(add, campaign=rest.pop()))
                plain(file)

            monkeypatch.setattr(sqlite_file, "_sync", sync)
            database.write(partial(add, campaign="one"))
            assert names(database) == {"one", "two"}
            assert len(synced) == 2

    def test_failed_sync_fails_the_transaction(self, sqlite_url: str, monkeypatch: pytest.MonkeyPatch) -> None:
        def fail(file: int) -> None:
            raise OSError(errno.EIO, os.strerror(errno.EIO))

        with open_database(sqlite_url) as database:
            monkeypatch.setattr(sqlite_file, "_sync", fail)
            with pytest.raises(DatabaseError, match="could not be synced to disk"):
                database.write(partial(add, campaign="one"))
            monkeypatch.undo()
            database.write(partial(add, campaign="two"))

    def test_log_may_disappear_with_the_last_connection_and_return(self, sqlite_url: str, synced: list[int]) -> None:
        with open_database(sqlite_url) as database:
            database.write(partial(add, campaign="one"))
            database.engine.dispose()
            log = Path(f"{sqlite_url.removeprefix('sqlite:///')}-wal")
            assert not log.exists()
            # Its inode is taken, so that the next log has another.
            log.with_name("taken").touch()
            database.write(partial(add, campaign="two"))
            assert synced[-1] == log.stat().st_ino

    def test_removed_log_fails_the_transaction(self, sqlite_url: str) -> None:
        with open_database(sqlite_url) as database:
            database.write(partial(add, campaign="one"))
            log = Path(f"{sqlite_url.removeprefix('sqlite:///')}-wal")
            log.rename(log.with_name("taken"))
            log.touch()
            with pytest.raises(DatabaseError, match="moved or replaced"):
                database.write(partial(add, campaign="two"))

    def test_sqlite_without_a_log_syncs_at_each_commit(self) -> None:
        # In memory there is no log, as there is none where a file system can share no memory.
        with contextlib.closing(sqlite3.connect(":memory:")) as connection:
            record = SimpleNamespace(info={})
            set_up_sqlite(4000, connection, record)
            assert connection.execute("PRAGMA synchronous").fetchone() == (2,)
        assert record.info == {HAS_LOG: False}


def add(connection: sqlalchemy.Connection, campaign: str) -> None:
    connection.execute(sqlalchemy.insert(campaigns).values(campaign=campaign, fencing_token=1))


def names(database: Database) -> set[str]:
    with database.connect() as connection:
        return set(connection.execute(sqlalchemy.select(campaigns.c.campaign)).scalars())


def test_second_opening_changes_nothing(url: str) -> None:
    for _ in range(2):
        with open_database(url) as database:
            assert is_newest(database)


def test_failed_transaction_stores_nothing(database: Database) -> None:
    def work(connection: sqlalchemy.Connection) -> None:
        connection.execute(sqlalchemy.insert(campaigns).values(campaign="one", fencing_token=1))
        raise LookupError

    with pytest.raises(LookupError):
        database.write(work)
    with database.connect() as connection:
        assert not connection.execute(sqlalchemy.select(campaigns)).all()


def test_conflicting_transaction_is_retried(database: Database) -> None:
    """Two find a row missing and write it; the slower one finds it then."""
    both = threading.Barrier(2)
    terms = campaigns.c.fencing_token

    def work(connection: sqlalchemy.Connection) -> None:
        found = connection.execute(sqlalchemy.select(terms)).scalar_one_or_none()
        if found is not None:
            connection.execute(sqlalchemy.update(campaigns).values(fencing_token=found + 1))
            return
        if database.engine.dialect.name != "sqlite":  # which lets in one after the other
            both.wait(30)
        connection.execute(sqlalchemy.insert(campaigns).values(campaign="one", fencing_token=1))

    with ThreadPoolExecutor(2) as pool:
        list(pool.map(lambda _: database.write(work), range(2)))
    with database.connect() as connection:
        assert connection.execute(sqlalchemy.select(terms)).scalars().all() == [2]


def test_threads_that_create_it_at_once_find_one_database(url: str) -> None:
    with ThreadPoolExecutor(8) as pool:
        opened = list(pool.map(lambda _: open_database(url), range(8)))
    assert is_newest(opened[0])
    for database in opened:
        database.close()


def test_only_transactions_with_a_time_limit_keep_page_copies_in_memory(sqlite_url: str) -> None:
    def temp_store(connection: sqlalchemy.Connection) -> int:
        return int(connection.exec_driver_sql("PRAGMA temp_store").scalar_one())

    with open_database(sqlite_url, write_timeout=5) as limited, open_database(sqlite_url) as unlimited:
        with limited.connect() as reading:
            # The connection that created the tables: what it sorted for their indexes was in files.
            assert temp_store(reading) == 0
        assert (limited.write(temp_store), unlimited.write(temp_store)) == (2, 0)


def test_file_that_is_no_database_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "store.db"
    path.write_text("customers\n" * 1000)
    with pytest.raises(DatabaseError, match="file is not a database") as refused:
        open_database(f"sqlite:///{path}")
    assert "SELECT" not in str(refused.value)
    assert path.read_text() == "customers\n" * 1000


def test_path_that_cannot_be_created_is_refused(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(DatabaseError, match="cannot be created"):
        open_database(f"sqlite:///{tmp_path}/file/store.db")
    with pytest.raises(DatabaseError, match="could not be used"):
        open_database(f"sqlite:///{tmp_path}")


def test_unreachable_server_is_named_without_the_password() -> None:
    pytest.importorskip("psycopg2", reason="psycopg2 is not installed")
    with pytest.raises(DatabaseError, match=r"postgres\+?.*127\.0\.0\.1:1/.*refused") as refused:
        open_database("postgresql+psycopg2://ada:hunter2%40home@127.0.0.1:1/test?sslpassword=hunter3")
    assert "hunter" not in str(refused.value)
    assert refused.value.__cause__ is None
    assert refused.value.__suppress_context__


def test_redacted_url_shows_no_password(postgres_url: str) -> None:
    with open_database(postgres_url.replace("postgres@", "postgres:hunter2@")) as database:
        assert database.redacted_url == "postgresql+psycopg2://postgres@127.0.0.1:5432/test"


def test_missing_package_is_named() -> None:
    with pytest.raises(DatabaseError, match="needs the Python package 'oracledb'"):
        open_database("oracle+oracledb://ada:hunter2@127.0.0.1/test")
