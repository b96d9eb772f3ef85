"""The file of a SQLite database: private to its owner, and opened by one process at a time."""

from __future__ import annotations

import contextlib
import errno
import fcntl
import os
import stat
import time
from collections.abc import Iterator
from pathlib import Path

from cpaas_provider._common.local_files import PRIVATE, create_file, make_folders, set_mode
from cpaas_provider.database.errors import DatabaseError

Identity = tuple[int, int]
"""Device and inode of a file."""

_LOCK_PAUSE = 0.02
"""Seconds between two attempts to get the lock."""


@contextlib.contextmanager
def open_lock(path: Path, timeout: float) -> Iterator[None]:
    """Create the file if it is missing, and let no other process open it during the block.

    SQLite's switch to WAL mode does not wait for other processes. An existing file or folder keeps its permissions. The
    lock is on a file of its own, because all who may read a file or folder can lock it. It ends with the process.

    :param timeout: seconds to wait for another process
    :raises DatabaseError: when the file cannot be created, or the lock cannot be had
    """
    lock_path = Path(f"{path}.lock")
    try:
        make_folders(path.parent)
    except OSError as error:
        raise _unusable(path, error) from None
    try:
        lock = _open_lock_file(lock_path, path)
    except OSError as error:
        raise _unusable_lock(lock_path, error) from None
    _open_locks.add(lock)
    try:
        _wait_for_lock(lock, lock_path, timeout)
        _create(path)
        yield
    finally:
        # In a process that was forked meanwhile, the descriptor is closed.
        if lock in _open_locks:
            _open_locks.discard(lock)
            # Some file systems have no locks.
            with contextlib.suppress(OSError):
                fcntl.flock(lock, fcntl.LOCK_UN)
            os.close(lock)


_open_locks: set[int] = set()
"""The descriptors of lock files of this process."""


def _close_inherited_locks() -> None:
    """Close the locks of the parent: a forked process would keep them after a kill of the parent."""
    while _open_locks:
        with contextlib.suppress(OSError):
            os.close(_open_locks.pop())


os.register_at_fork(after_in_child=_close_inherited_locks)


def _open_lock_file(lock_path: Path, path: Path) -> int:
    # Another user may have put another kind of file there.
    flags = os.O_RDWR | os.O_NOFOLLOW | os.O_NONBLOCK
    try:
        lock = os.open(lock_path, flags | os.O_CREAT | os.O_EXCL, PRIVATE)
    except FileExistsError:
        return os.open(lock_path, flags)
    set_mode(lock, PRIVATE)
    # Users who may write to an existing database file can lock that as well.
    with contextlib.suppress(OSError):
        database = path.stat()
        os.fchown(lock, database.st_uid if os.geteuid() == 0 else -1, database.st_gid)
        os.fchmod(lock, PRIVATE | (database.st_mode & 0o022) * 3)
    return lock


def _wait_for_lock(lock: int, lock_path: Path, timeout: float) -> None:
    if not stat.S_ISREG(os.fstat(lock).st_mode):
        raise _planted(lock_path, "not a regular file")
    deadline = time.monotonic() + timeout
    while True:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            if time.monotonic() > deadline:
                raise DatabaseError(
                    f"The database was not opened: another process has locked {lock_path} for {timeout:g} s. It may be "
                    "migrating the tables after an upgrade. Try again when it is done. If nothing is being migrated, "
                    f"find the process with `fuser -v {lock_path}`, and end it. Do not delete the file."
                ) from None
            time.sleep(_LOCK_PAUSE)
        except OSError as error:
            raise _unusable_lock(lock_path, error) from None
        else:
            return


def _unusable_lock(lock_path: Path, error: OSError) -> DatabaseError:
    if error.errno == errno.ELOOP:
        return _planted(lock_path, "a symbolic link")
    return DatabaseError(
        f"The database was not opened, because {lock_path} cannot be created or locked ({error.strerror}). Let the "
        "user that runs tasks write to this file and to its folder, or set [cpaas] database to another."
    )


def _planted(lock_path: Path, kind: str) -> DatabaseError:
    return DatabaseError(
        f"The database was not opened, because {lock_path} is {kind}. Find out who created it, and remove it."
    )


class DatabaseFile:
    """The identity of the open file, which distinguishes it from another file at the same path.

    SQLite goes on with a file that was moved, deleted or replaced. No other process reads what it writes then.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self._log_path = path.with_name(f"{path.name}-wal")
        self._known = False
        self._file: Identity | None = None
        self._log: Identity | None = None

    @property
    def is_current(self) -> bool:
        """Whether the open file is still the one at its path, as far as that is known."""
        return not self._known or (self._file is not None and _identity(self.path) == self._file)

    def track(self) -> None:
        """Record the file at the path as the open one."""
        self._known = True
        self._file, self._log = _identity(self.path), self.log

    def untrack(self) -> None:
        """Record that no file is open."""
        self._file = None

    def check_reopenable(self) -> None:
        """Check that the file at the path can be opened instead.

        :raises DatabaseError: when there is none, or the write-ahead log of the previous file lies beside it
        """
        if _identity(self.path) is None:
            raise DatabaseError(
                f"The database file {self.path} was moved or deleted while it was in use. Nothing is stored until the "
                "file is back. It is then opened again."
            )
        if self._log is not None and self.log == self._log:
            raise DatabaseError(
                f"The database file {self.path} was replaced while it was in use. {self._log_path.name} beside it "
                "belongs to the previous file. Nothing is stored until you move it, and the file ending in -shm, to "
                "where the previous file is."
            )

    @property
    def log(self) -> Identity | None:
        """The identity of the write-ahead log beside the file."""
        return _identity(self._log_path)

    def sync_log(self, written: Identity | None) -> None:
        """Sync committed data to disk.

        :param written: the log that it was written to
        :raises DatabaseError: when that failed, or that log is no longer beside the file
        """
        try:
            # SQLite has no lock on this file that closing it could drop.
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
        """Check that the last write went to the file at the path.

        :raises DatabaseError: when it may not have
        """
        if not self.is_current:
            raise self._moved_error()

    def _moved_error(self) -> DatabaseError:
        return DatabaseError(
            f"The database file {self.path} was moved or replaced during a write. The last write may be in the moved "
            "file only. It must be retried."
        )


# As SQLite itself does if the system has it: the time of the change need not be on disk.
_sync = getattr(os, "fdatasync", os.fsync)


def _identity(path: Path) -> Identity | None:
    try:
        found = os.stat(path)  # noqa: PTH116 - half the time of Path.stat, for each transaction
    except OSError:
        return None
    return found.st_dev, found.st_ino


def _create(path: Path) -> None:
    try:
        # Only if it is missing: opening and closing it would drop the locks that SQLite has for this process.
        create_file(path).close()
    except FileExistsError:
        pass
    except OSError as error:
        raise _unusable(path, error) from None


def _unusable(path: Path, error: OSError) -> DatabaseError:
    return DatabaseError(
        f"The database cannot be created at {path} ({error.strerror}). Let the user that runs tasks write there, or "
        "set [cpaas] database to another."
    )
