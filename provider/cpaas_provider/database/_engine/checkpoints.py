"""Checkpoints of SQLite that run beside the writer: its write-ahead log is copied into the database file."""

from __future__ import annotations

import contextlib
import sqlite3
import threading
from pathlib import Path

PAUSE = 0.3
"""Seconds between two checkpoints. A page that changed several times meanwhile is copied once."""


class BackgroundCheckpoints:
    """Runs a checkpoint after writes, in a thread of its own.

    Without it, a commit that makes the log too long has to copy all of it, and every other writer waits. A commit still
    does so, but seldom: SQLite can start its log again only when all of it is copied, and other commits add to it while
    a checkpoint runs.

    :param path: the database file
    """

    def __init__(self, path: Path) -> None:
        self._path = path
        self._written = threading.Event()
        self._stopping = threading.Event()
        self._starting = threading.Lock()
        self._thread: threading.Thread | None = None

    def request(self) -> None:
        """Have a checkpoint run soon. Returns at once."""
        # The first write starts the thread: it would not survive a fork before that.
        if self._thread is None:
            with self._starting:
                if self._thread is None:
                    # A daemon: a checkpoint can be interrupted at any time.
                    thread = threading.Thread(target=self._work, name="cpaas-checkpoints", daemon=True)
                    thread.start()
                    self._thread = thread
        self._written.set()

    def stop(self) -> None:
        """End the thread after the current checkpoint."""
        self._stopping.set()
        self._written.set()
        if self._thread is not None:
            self._thread.join()

    def _work(self) -> None:
        while self._written.wait():
            # Before the check: otherwise a stop between the two would be cleared, and waited for without end.
            self._written.clear()
            if self._stopping.is_set():
                return
            self._checkpoint()
            self._stopping.wait(PAUSE)

    def _checkpoint(self) -> None:
        """Copy as much of the log as other connections let."""
        # Not a connection of the pool: the writer would get this one next, with nothing in its cache. A failure loses
        # nothing, because the next checkpoint or commit copies it. No file is created in place of one that was moved.
        uri = f"{self._path.absolute().as_uri()}?mode=rw"
        with (
            contextlib.suppress(sqlite3.Error),
            contextlib.closing(sqlite3.connect(uri, uri=True, isolation_level=None)) as connection,
        ):
            connection.execute("PRAGMA synchronous = NORMAL")
            connection.execute("PRAGMA wal_checkpoint(PASSIVE)")
