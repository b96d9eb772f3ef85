"""Files on this machine that hold personal data: only their owner may read them, and a kill leaves no temporary one."""

from __future__ import annotations

import contextlib
import errno
import io
import os
import sqlite3
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import IO

PRIVATE = 0o600
"""The mode of a file that only its owner may read."""

_DESCRIPTORS = "/proc/self/fd"


def make_folders(folder: Path, mode: int = PRIVATE) -> None:
    """Create a folder and its missing parents. Existing ones keep their permissions.

    :param mode: of the files to come; who may read them may also list the folder
    """
    if folder.is_dir():
        return
    make_folders(folder.parent, mode)
    try:
        folder.mkdir(0o700)
    except FileExistsError:
        if not folder.is_dir():
            raise
    else:
        set_mode(folder, mode | (mode & 0o444) >> 2)


def set_mode(target: Path | int, mode: int) -> None:
    """Give a new file or folder its mode, whatever the umask is."""
    # Some file systems have no modes. A folder may have inherited the bit that files get its group.
    with contextlib.suppress(OSError):
        os.chmod(target, os.stat(target).st_mode & 0o7000 | mode)  # noqa: PTH101, PTH116 - or a descriptor


def create_file(path: Path, mode: int = PRIVATE) -> IO[bytes]:
    """Create a file, and open it for writing.

    :param mode: the umask of the process makes it neither looser nor stricter
    :raises FileExistsError: when the path exists, also as a symbolic link
    """
    descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, PRIVATE)
    set_mode(descriptor, mode)
    return os.fdopen(descriptor, "wb")


@contextlib.contextmanager
def create_whole_file(path: Path, mode: int = PRIVATE) -> Iterator[IO[bytes]]:
    """Create a file that is at its path once the block succeeded. The file system may show it there before.

    Most file systems do not. A kill leaves nothing of it there.

    :param mode: as for ``create_file``
    :raises FileExistsError: when the path exists, also as a symbolic link
    """
    if os.path.lexists(path):
        # Not only when the file gets its name: that may be after minutes.
        raise FileExistsError(errno.EEXIST, os.strerror(errno.EEXIST))
    descriptor = _open_unnamed(path.parent)
    if descriptor is None:
        file = create_file(path, mode)
        try:
            with file:
                yield file
        except BaseException:
            with contextlib.suppress(OSError):
                path.unlink()
            raise
        return
    with os.fdopen(descriptor, "wb") as file:
        set_mode(descriptor, mode)
        yield file
        file.flush()
        folder = os.open(path.parent, os.O_RDONLY | os.O_DIRECTORY)
        try:
            # Only with the descriptor of a folder does it link the file, and not the entry in /proc.
            os.link(f"{_DESCRIPTORS}/{descriptor}", path.name, dst_dir_fd=folder)
        finally:
            os.close(folder)


def _open_unnamed(folder: Path) -> int | None:
    """Return the descriptor of a new file that can get a name in a folder; ``None`` where there is no such file."""
    if Path(_DESCRIPTORS).is_dir() and hasattr(os, "O_TMPFILE"):
        # What else is wrong with the folder is said by what creates a file with a name.
        with contextlib.suppress(OSError):
            return os.open(folder, os.O_WRONLY | os.O_TMPFILE, PRIVATE)
    return None


@contextlib.contextmanager
def create_text_file(path: Path) -> Iterator[IO[str]]:
    """Create a text file that only its owner may read, as ``create_whole_file`` does."""
    with create_whole_file(path) as file:
        text = io.TextIOWrapper(file, encoding="utf-8", newline="")
        try:
            yield text
        finally:
            text.detach()


def open_unnamed_file(folder: str | None) -> IO[str]:
    """Open a temporary text file without a name: the system removes it when the process ends, even if killed.

    :param folder: created if it is missing; ``None`` for the system's folder for temporary files
    """
    _make_spool_folder(folder)
    return tempfile.TemporaryFile("w+", encoding="utf-8", dir=folder)


def open_unnamed_database(folder: str | None, cache_kib: int) -> sqlite3.Connection:
    """Open a temporary SQLite database whose file has no name, as that of ``open_unnamed_file``.

    Several threads may use it, one at a time.

    :param cache_kib: the size of its cache
    """
    _make_spool_folder(folder)
    descriptor, name = tempfile.mkstemp(prefix="cpaas-", dir=folder)
    set_mode(descriptor, PRIVATE)
    os.close(descriptor)
    try:
        database = sqlite3.connect(name, check_same_thread=False)
        # Without a journal SQLite opens no other file by this name.
        database.execute("PRAGMA journal_mode = OFF")
        database.execute("PRAGMA synchronous = OFF")
        database.execute("PRAGMA locking_mode = EXCLUSIVE")
        database.execute("PRAGMA temp_store = FILE")
        database.execute(f"PRAGMA cache_size = -{cache_kib}")
        # SQLite opens the file at the first write, which must come before the file is unlinked.
        database.execute("CREATE TABLE opened (yes)")
    finally:
        Path(name).unlink()
    return database


def _make_spool_folder(folder: str | None) -> None:
    if folder is not None:
        make_folders(Path(folder))
