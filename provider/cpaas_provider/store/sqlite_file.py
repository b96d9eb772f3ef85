"""The file of a SQLite database: created for its owner alone, and opened by one process after the other."""

from __future__ import annotations

import contextlib
import fcntl
import os
from collections.abc import Iterator
from pathlib import Path

from cpaas_provider.store.errors import StoreError


@contextlib.contextmanager
def opening(path: Path) -> Iterator[None]:
    """Have the file there and nobody else opening it meanwhile: SQLite's turn to WAL does not wait for others.

    A file or folder that is there already keeps its permissions.

    :raises StoreError: when it cannot be created
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


def _create(path: Path) -> None:
    try:
        # Only where it is not there: closing a file of one's own process drops the locks SQLite has on it.
        os.close(os.open(path, os.O_RDWR | os.O_CREAT | os.O_EXCL, 0o600))
    except FileExistsError:
        pass
    except OSError as error:
        raise _unusable(path, error) from None


def _unusable(path: Path, error: OSError) -> StoreError:
    return StoreError(
        f"The store cannot be created at {path} ({error.strerror}). Let the user that runs tasks write there, or name "
        "another database by [cpaas] store."
    )
