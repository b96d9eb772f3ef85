"""The file of a SQLite database: created for its owner alone, and opened by one process after the other."""

from __future__ import annotations

import contextlib
import fcntl
import os
from collections.abc import Iterator
from pathlib import Path

from cpaas_provider.database.errors import DatabaseError

Identity = tuple[int, int]
"""Device and inode of a file."""


@contextlib.contextmanager
def open_lock(path: Path) -> Iterator[None]:
    """Have the file there and no other process opening it meanwhile: SQLite's turn to WAL does not wait for others.

    A file or folder that is there already keeps its permissions.

    :raises DatabaseError: when it cannot be created
    """
    try:
        path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        folder = os.open(path.parent, os.O_RDONLY | os.O_DIRECTORY)
    except OSError as error:
        raise _unusable(path, error) from None
    try:
        fcntl.flock(folder, fcntl.LOCK_EX)
        _create(path)
        yield
    finally:
        # Closing alone would not free it where the process was forked meanwhile.
        fcntl.flock(folder, fcntl.LOCK_UN)
        os.close(folder)


class DatabaseFile:
    """The file that is open, told from another of the same name.

    SQLite goes on with a file that was moved, deleted or replaced: what is written then, no other process reads.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self._log_path = path.with_name(f"{path.name}-wal")
        self._known = False
        self._file: Identity | None = None
        self._log: Identity | None = None

    @property
    def is_current(self) -> bool:
        """Whether it is still the file of its name, as far as it is known."""
        return not self._known or (self._file is not None and _identity(self.path) == self._file)

    def track(self) -> None:
        """Take what has the name now for the file that is open."""
        self._known = True
        self._file, self._log = _identity(self.path), _identity(self._log_path)

    def untrack(self) -> None:
        """Take nothing for the file that is open."""
        self._file = None

    def check_reopenable(self) -> None:
        """See that what has the name now can be opened in its place.

        :raises DatabaseError: when nothing has, or the write-ahead log of the file that was there before lies beside it
        """
        if _identity(self.path) is None:
            raise DatabaseError(
                f"The database file {self.path} was moved or deleted while it was in use. Nothing is stored until the "
                "file is back. It is then opened again."
            )
        if self._log is not None and _identity(self._log_path) == self._log:
            raise DatabaseError(
                f"The database file {self.path} was replaced while it was in use. {self._log_path.name} beside it "
                "belongs to the previous file. Nothing is stored until you move it, and the file ending in -shm, to "
                "where the previous file is."
            )

    @property
    def log(self) -> Identity | None:
        """The write-ahead log that lies beside it now."""
        return _identity(self._log_path)

    def sync_log(self, written: Identity | None) -> None:
        """Have on the disk what was committed.

        :param written: the log it was written to
        :raises DatabaseError: when that failed, or that log does not lie beside the file any more
        """
        try:
            # Nothing of SQLite's is locked by this file, so that closing it lets go of no lock.
            log = os.open(self._log_path, os.O_RDWR)
        except OSError:
            raise self._moved_error() from None
        try:
            found = os.fstat(log)
            if (found.st_dev, found.st_ino) != written or not self.is_current:
                raise self._moved_error()
            _sync(log)
        except OSError as error:
            raise DatabaseError(
                f"The database file {self._log_path} could not be synced to disk ({error.strerror}). The last write "
                "may be lost. It must be retried."
            ) from None
        finally:
            os.close(log)

    def check_current(self) -> None:
        """See that what was just written is in the file of this name.

        :raises DatabaseError: when it may not be
        """
        if not self.is_current:
            raise self._moved_error()

    def _moved_error(self) -> DatabaseError:
        return DatabaseError(
            f"The database file {self.path} was moved or replaced during a write. The last write may be in the moved "
            "file only. It must be retried."
        )


# As SQLite itself does where the system has it: that the file was changed, and when, need not be on the disk.
_sync = getattr(os, "fdatasync", os.fsync)


def _identity(path: Path) -> Identity | None:
    try:
        found = os.stat(path)  # noqa: PTH116 - at half the time, and for each transaction
    except OSError:
        return None
    return found.st_dev, found.st_ino


def _create(path: Path) -> None:
    try:
        # Only where it is not there: closing a file of one's own process drops the locks SQLite has on it.
        os.close(os.open(path, os.O_RDWR | os.O_CREAT | os.O_EXCL, 0o600))
    except FileExistsError:
        pass
    except OSError as error:
        raise _unusable(path, error) from None


def _unusable(path: Path, error: OSError) -> DatabaseError:
    return DatabaseError(
        f"The database cannot be created at {path} ({error.strerror}). Let the user that runs tasks write there, or "
        "set [cpaas] database to another."
    )
