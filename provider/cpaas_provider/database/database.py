"""The database: opened, brought up to date, and read and written in transactions."""

from __future__ import annotations

import contextlib
import functools
import threading
import time
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any, Self, TypeVar

from sqlalchemy import URL, Connection, Engine, create_engine, event, select, update

from cpaas_provider.database import migrations
from cpaas_provider.database._engine.checkpoints import BackgroundCheckpoints
from cpaas_provider.database._engine.failures import discard_lost_sessions, translate_errors
from cpaas_provider.database._engine.leftovers import contains_match
from cpaas_provider.database._engine.sqlite_file import DatabaseFile, open_lock
from cpaas_provider.database._engine.timeouts import TimeLimit, enforce_time_limit
from cpaas_provider.database._engine.transactions import HAS_LOG, write_transaction
from cpaas_provider.database.default_file import LOCK_TIMEOUT
from cpaas_provider.database.errors import DatabaseError, ReportsNotSupportedError
from cpaas_provider.database.schema.base import REPORT_DIALECTS, identities
from cpaas_provider.database.url import redacted, resolve_url

Result = TypeVar("Result")

_ONE_MOMENT = {"sqlite": "BEGIN", "postgresql": "SET TRANSACTION ISOLATION LEVEL REPEATABLE READ"}
"""By dialect: what begins a transaction in which all queries see the same state."""

CONNECT_TIMEOUT = 10

CACHE_KIB = 16 * 1024
CHECKPOINT_PAGES = 4000
"""Length of the write-ahead log, in pages of 4 KiB, at which a commit copies it into the database file."""

MAX_LOG_PAGES = 4 * CHECKPOINT_PAGES
"""The same where a thread copies the log before that."""

CACHED_STATEMENTS = 256
"""Prepared statements that SQLite's driver caches: insertions of 1 to 64 rows into each table, and others."""

_CHECKPOINT_TIMEOUT = 5.0
"""How long to try to empty the log while other processes copy it."""

_ONLY_READS = "cpaas_only_reads"
_SEES_ONE_MOMENT = "cpaas_sees_one_moment"
_SORTS_IN_FILES = "cpaas_sorts_in_files"
_KEEPS_IN_MEMORY = "cpaas_keeps_in_memory"


class Database:
    """The provider's database, with the tables of this version.

    Several threads may use it. A forked process opens its own.

    :param write_timeout: time limit of a transaction that writes, in seconds; ``None`` for no limit but those on
        connecting and on locks. The limit of a read is ``LOCK_TIMEOUT``.
    :param background_checkpoints: copy the log of SQLite in a thread
    """

    def __init__(self, url: URL, write_timeout: float | None = None, *, background_checkpoints: bool = False) -> None:
        backend = url.get_backend_name()
        self._write_timeout = write_timeout
        self._lock_timeout = LOCK_TIMEOUT if write_timeout is None else write_timeout
        self._limit = TimeLimit() if write_timeout is not None and backend == "postgresql" else None
        self._file = DatabaseFile(Path(url.database or "")) if backend == "sqlite" else None
        self._checkpoints = BackgroundCheckpoints(self._file.path) if self._file and background_checkpoints else None
        checkpoint_pages = MAX_LOG_PAGES if self._checkpoints else CHECKPOINT_PAGES
        self.engine = _engine(url, write_timeout, self._lock_timeout, self._limit, checkpoint_pages)
        self._opening = threading.RLock()

    @property
    def redacted_url(self) -> str:
        """Its URL without the password."""
        return redacted(self.engine.url)

    def require_report_support(self) -> None:
        """Check that this database can store delivery reports.

        :raises ReportsNotSupportedError: when it cannot
        """
        if (name := self.engine.dialect.name) not in REPORT_DIALECTS:
            raise ReportsNotSupportedError(
                f"Delivery reports can be stored in SQLite and PostgreSQL, not in {name}. Set [cpaas] database to one "
                "of these."
            )

    @property
    def identity(self) -> str:
        """The id of this database, if it can store delivery reports. It is the same by whatever URL it is reached.

        :raises DatabaseError: when it cannot be read, or cannot store delivery reports
        """
        self.require_report_support()
        self.reopen_if_moved()
        return self.database_id

    @functools.cached_property
    def database_id(self) -> str:
        """The id of this database.

        :raises DatabaseError: when it cannot be read
        """
        name = select(identities.c.value).where(identities.c.name == "database")
        with self.connect() as connection:
            found: str = connection.execute(name).scalar_one()
        return found

    @contextlib.contextmanager
    def connect(self, *, one_moment: bool = False) -> Iterator[Connection]:
        """Return a connection for reads, which blocks no writer.

        :param one_moment: have all queries see the same state, so that what they count adds up
        :raises DatabaseError: when the database cannot be read
        """
        self.reopen_if_moved()
        with self._bounded(LOCK_TIMEOUT), self.engine.connect() as connection:
            yield connection.execution_options(**{_ONLY_READS: True, _SEES_ONE_MOMENT: one_moment})

    def write(self, work: Callable[[Connection], Result]) -> Result:
        """Run a function in one transaction, and return its result once it is durable.

        :param work: is called again if it conflicted with a concurrent write of another process
        :raises RejectedDataError: when the database rejected the values; nothing of it was written
        :raises DatabaseError: when the database cannot be written; nothing was written, unless the connection broke
            during the commit
        """
        self.reopen_if_moved()
        with self._bounded(self._write_timeout, writes=True):
            result = write_transaction(work, self.engine, self._file)
        if self._checkpoints is not None:
            self._checkpoints.request()
        return result

    @contextlib.contextmanager
    def _bounded(self, seconds: float | None, *, writes: bool = False) -> Iterator[None]:
        """Limit the time of a transaction on PostgreSQL, and raise our errors instead of the driver's."""
        limit = (
            contextlib.nullcontext()
            if self._limit is None or seconds is None
            else self._limit.limited(seconds, writes=writes)
        )
        with limit as running, translate_errors(self.engine.url, running, writes=writes):
            yield

    def open(self) -> None:
        """Open the database at its present place, and create missing tables.

        :raises DatabaseError: when it cannot be opened, or was written by a newer version of the provider
        """
        with self._opening, contextlib.ExitStack() as held:
            if self._file is not None:
                held.enter_context(open_lock(self._file.path, self._lock_timeout))
                self._file.track()
            try:
                with self.connect() as connection:
                    revision = migrations.read_revision(connection)
                if self._file is not None:
                    # With its write-ahead log, which is there by now.
                    self._file.track()
                if not migrations.is_newest(revision):
                    # Creating and migrating tables may take its time, and large tables are sorted for an index.
                    unlimited = self.engine.execution_options(**{_SORTS_IN_FILES: True})
                    with self._bounded(None, writes=True):
                        write_transaction(migrations.migrate, unlimited, self._file)
            except BaseException:
                if self._file is not None:
                    self._file.untrack()
                raise

    def reopen_if_moved(self) -> None:
        """Open SQLite's file again if it was moved or replaced since it was opened.

        :raises DatabaseError: when the file is missing or cannot be used
        """
        if self._file is None or self._file.is_current:
            return
        with self._opening:
            if self._file.is_current:
                return
            self.engine.dispose()
            self.__dict__.pop("database_id", None)
            self._file.check_reopenable()
            self.open()

    def wipe(self, pattern: bytes) -> bool:
        """Overwrite deleted data in SQLite's files, and return whether nothing of it is left.

        Some of it is left while another process reads an older state, or if there is no disk space to rewrite the file.
        A database server keeps deleted data until it reuses the space.

        :param pattern: a regular expression that matches the bytes of the deleted data
        """
        if self._file is None:
            return True
        try:
            emptied = self._empty_log()
            # secure_delete has overwritten it, unless a program without that setting deleted it, or it is in the free
            # space of rearranged pages.
            if contains_match(self._file.path, pattern):
                with self.connect() as connection:
                    connection.exec_driver_sql("VACUUM")
                emptied = self._empty_log()
        except (OSError, DatabaseError):
            return False
        return emptied

    def _empty_log(self) -> bool:
        """Copy the write-ahead log into the database file and empty it. Return whether that succeeded."""
        deadline = time.monotonic() + _CHECKPOINT_TIMEOUT
        while True:
            with self.connect() as connection:
                if not connection.exec_driver_sql("PRAGMA wal_checkpoint(TRUNCATE)").one()[0]:
                    return True
            # SQLite waits for other readers and writers, but not for another checkpoint.
            if time.monotonic() > deadline:
                return False
            time.sleep(0.02)

    def check(self) -> None:
        """Check that the database can be written, by a transaction that changes nothing.

        :raises DatabaseError: when it cannot
        """
        same = update(identities).values(value=identities.c.value)
        self.write(lambda connection: connection.execute(same))

    def close(self) -> None:
        """Close all connections."""
        if self._checkpoints is not None:
            self._checkpoints.stop()
        self.engine.dispose()
        if self._limit is not None:
            self._limit.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def open_database(
    url: str | None = None, *, write_timeout: float | None = None, background_checkpoints: bool = False
) -> Database:
    """Open the database, and create missing tables.

    :param url: a URL of SQLAlchemy or the id of an Airflow connection; ``None`` for what ``[cpaas] database`` in
        Airflow's configuration says, or else ``cpaas/cpaas.db`` in Airflow's home
    :param write_timeout: time limit of a transaction that writes, in seconds; creating tables is not limited
    :param background_checkpoints: copy the write-ahead log of SQLite in a thread, so that commits need not; for a
        process that writes all the time
    :raises DatabaseError: when it cannot be opened, or was written by a newer version of the provider
    """
    database = Database(resolve_url(url), write_timeout, background_checkpoints=background_checkpoints)
    try:
        database.open()
    except BaseException:
        database.close()
        raise
    return database


def stored_revision(url: str | None = None) -> tuple[str, str | None]:
    """Return the URL of the database without its password, and the version of its tables. Nothing is changed.

    :param url: as for ``open_database``
    :return: ``None`` for the version if there are no tables yet
    :raises DatabaseError: when it cannot be read, or was written by a newer version of the provider
    """
    address = resolve_url(url)
    if address.get_backend_name() == "sqlite" and not Path(address.database or "").exists():
        return redacted(address), None
    with Database(address) as database, database.connect() as connection:
        return redacted(address), migrations.read_revision(connection)


def _engine(
    url: URL, write_timeout: float | None, lock_timeout: float, limit: TimeLimit | None, checkpoint_pages: int
) -> Engine:
    options: dict[str, Any] = {"hide_parameters": True}
    if url.get_backend_name() == "sqlite":
        # SQLite takes longer to parse a statement than to run it.
        options["connect_args"] = {"timeout": lock_timeout, "cached_statements": CACHED_STATEMENTS}
    else:
        options |= {"isolation_level": "READ COMMITTED", "pool_pre_ping": limit is None}
    if url.get_backend_name() == "postgresql" and "connect_timeout" not in url.query:
        options["connect_args"] = {"connect_timeout": CONNECT_TIMEOUT}
    try:
        engine = create_engine(url, **options)
    except ModuleNotFoundError as error:
        raise DatabaseError(
            f"The database {redacted(url)} needs the Python package {error.name!r}, which is not installed on this "
            "machine. Install it here."
        ) from None
    if engine.dialect.name == "sqlite":
        event.listen(engine, "connect", partial(set_up_sqlite, checkpoint_pages))
        if write_timeout is not None:
            event.listen(engine, "begin", _keep_page_copies_in_memory)
    event.listen(engine, "begin", partial(_begin, limit))
    discard_lost_sessions(engine)
    if limit is not None:
        enforce_time_limit(engine, limit)
    return engine


def set_up_sqlite(checkpoint_pages: int, connection: Any, record: Any) -> None:
    """Prepare a new connection of SQLite's driver."""
    connection.isolation_level = None  # or the driver begins transactions of its own
    (mode,) = connection.execute("PRAGMA journal_mode = WAL").fetchone()
    # The log is synced to disk after the commit, so that the next writer need not wait for that.
    has_log = record.info[HAS_LOG] = mode.lower() == "wal"
    connection.execute(f"PRAGMA synchronous = {'NORMAL' if has_log else 'FULL'}")
    # Reports arrive in no order, and each changes other pages. So the cache is large, and the log is seldom copied
    # into the file.
    connection.execute(f"PRAGMA cache_size = -{CACHE_KIB}")
    connection.execute(f"PRAGMA wal_autocheckpoint = {checkpoint_pages}")
    # Deleted data may be a phone number. Not every build of SQLite overwrites it by default.
    connection.execute("PRAGMA secure_delete = ON")


def _keep_page_copies_in_memory(connection: Connection) -> None:
    """Save SQLite two system calls for each page that a statement of many rows changes.

    SQLite copies such a page first, in case the statement fails halfway. For transactions that are limited in time
    alone: the copies of a long one would take too much memory.
    """
    options = connection.get_execution_options()
    if not (options.get(_ONLY_READS) or options.get(_SORTS_IN_FILES) or connection.info.get(_KEEPS_IN_MEMORY)):
        connection.exec_driver_sql("PRAGMA temp_store = MEMORY")
        connection.info[_KEEPS_IN_MEMORY] = True


def _begin(limit: TimeLimit | None, connection: Connection) -> None:
    options = connection.get_execution_options()
    if options.get(_ONLY_READS):
        if options.get(_SEES_ONE_MOMENT):
            connection.exec_driver_sql(_ONE_MOMENT[connection.dialect.name])
        return
    if connection.dialect.name == "sqlite":
        # After a plain BEGIN, two readers that both turn writers fail at once instead of waiting for each other.
        connection.exec_driver_sql("BEGIN IMMEDIATE")
    elif connection.dialect.name == "postgresql":
        if (running := limit.running if limit else None) is None:
            connection.exec_driver_sql(f"SET LOCAL lock_timeout = '{LOCK_TIMEOUT}s'")
        else:
            # Shorter than our own limit: if the server ends the statement first, the session survives.
            most = int(running.seconds * 800)
            connection.exec_driver_sql(f"SET LOCAL lock_timeout = {most}; SET LOCAL statement_timeout = {most}")
