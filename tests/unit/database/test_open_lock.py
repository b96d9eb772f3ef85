"""The lock under which a SQLite file is opened: a file of its own, with a time limit, that nobody else can take."""

from __future__ import annotations

import errno
import fcntl
import os
import stat
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from cpaas_provider.database.database import open_database, stored_revision
from cpaas_provider.database.default_file import default_file, may_exist
from cpaas_provider.database.errors import DatabaseError
from tests.airflow.harness.examples import bounded

ROOT = Path(__file__).parents[3]
HOLDER = """
import sys
from pathlib import Path
from cpaas_provider.database._engine.sqlite_file import open_lock
with open_lock(Path(sys.argv[1]), 5):
    print("held", flush=True)
    sys.stdin.read()
"""


FORKED = """
import os, sys
from pathlib import Path
from cpaas_provider.database._engine.sqlite_file import open_lock
with open_lock(Path(sys.argv[1]), 5):
    if os.fork():
        print("held", flush=True)
    sys.stdin.read()
"""


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "home" / "store.db"


@pytest.fixture
def lock_path(path: Path) -> Path:
    path.parent.mkdir()
    return path.with_name("store.db.lock")


def open_and_close(path: Path, timeout: float = 5) -> None:
    open_database(f"sqlite:///{path}", write_timeout=timeout).close()


def mode(path: Path) -> int:
    return stat.S_IMODE(path.stat().st_mode)


@contextmanager
def locked(path: Path) -> Iterator[None]:
    """Lock a file or folder that the process may only read."""
    descriptor = os.open(path, os.O_RDONLY)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX)
        yield
    finally:
        os.close(descriptor)


def test_lock_on_the_folder_by_another_user_blocks_no_task(path: Path, lock_path: Path) -> None:
    with locked(path.parent), bounded(5):
        open_and_close(path)


def test_lock_that_is_not_released_ends_with_an_error_that_names_it(path: Path, lock_path: Path) -> None:
    lock_path.touch(0o600)
    with (
        locked(lock_path),
        bounded(5),
        pytest.raises(DatabaseError, match=rf"another process has locked {lock_path} for 0\.1 s.*fuser -v {lock_path}"),
    ):
        open_and_close(path, timeout=0.1)
    assert not path.exists()
    open_and_close(path)


def test_lock_file_of_a_killed_process_blocks_no_other(path: Path, lock_path: Path) -> None:
    with subprocess.Popen(
        [sys.executable, "-c", HOLDER, str(path)], cwd=ROOT, stdin=subprocess.PIPE, stdout=subprocess.PIPE
    ) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == b"held\n"
        with pytest.raises(DatabaseError, match="another process has locked"):
            open_and_close(path, timeout=0.1)
        process.kill()
    assert lock_path.exists()
    open_and_close(path, timeout=0.1)


@pytest.mark.parametrize("is_killed", [True, False])
def test_forked_process_neither_holds_nor_releases_the_lock_of_its_parent(
    path: Path, lock_path: Path, is_killed: bool
) -> None:
    with subprocess.Popen(
        [sys.executable, "-c", FORKED, str(path)], cwd=ROOT, stdin=subprocess.PIPE, stdout=subprocess.PIPE
    ) as process:
        assert process.stdout is not None
        assert process.stdin is not None
        assert process.stdout.readline() == b"held\n"
        with pytest.raises(DatabaseError, match="another process has locked"):
            open_and_close(path, timeout=0.1)
        if is_killed:
            process.kill()
            process.wait()
            # The forked process waits for the end of its input.
            open_and_close(path, timeout=0.1)
        process.stdin.close()
        # Both processes have ended.
        assert process.stdout.read() == b""
    assert process.returncode == (-9 if is_killed else 0)


@pytest.mark.parametrize("umask", [0, 0o077, 0o277, 0o777])
def test_process_that_ends_normally_leaves_the_lock_file_private(path: Path, umask: int) -> None:
    earlier = os.umask(umask)
    try:
        open_and_close(path)
    finally:
        os.umask(earlier)
    assert mode(path.parent) == 0o700
    assert {file.name: mode(file) for file in path.parent.iterdir()} == {"store.db": 0o600, "store.db.lock": 0o600}


def test_write_ahead_log_and_shared_memory_are_private(path: Path) -> None:
    with open_database(f"sqlite:///{path}") as database:
        database.check()
        modes = {file.name.removeprefix("store.db"): mode(file) for file in path.parent.iterdir()}
    assert modes == dict.fromkeys(("", "-wal", "-shm", ".lock"), 0o600)


@pytest.mark.parametrize(("database_mode", "lock_mode"), [(0o660, 0o660), (0o640, 0o600), (0o644, 0o600)])
def test_group_that_may_write_to_the_database_may_lock_it(
    path: Path, lock_path: Path, database_mode: int, lock_mode: int
) -> None:
    path.touch()
    path.chmod(database_mode)
    open_and_close(path)
    assert mode(lock_path) == lock_mode


@pytest.mark.skipif(os.geteuid() != 0, reason="only root gives a file to another user")
def test_lock_file_that_root_creates_belongs_to_the_owner_of_the_database(path: Path, lock_path: Path) -> None:
    path.touch(0o600)
    os.chown(path, 12_345, 12_345)
    open_and_close(path)
    assert (lock_path.stat().st_uid, lock_path.stat().st_gid) == (12_345, 12_345)


@pytest.mark.parametrize(
    ("plant", "kind"),
    [
        (lambda lock_path: lock_path.symlink_to(lock_path.with_name("elsewhere")), "is a symbolic link"),
        (os.mkfifo, "is not a regular file"),
        (Path.mkdir, r"cannot be created or locked \(Is a directory\)"),
    ],
    ids=["link", "pipe", "folder"],
)
def test_planted_lock_file_is_refused(path: Path, lock_path: Path, plant: Callable[[Path], None], kind: str) -> None:
    plant(lock_path)
    with bounded(5), pytest.raises(DatabaseError, match=f"{lock_path} {kind}"):
        open_and_close(path)
    assert [file.name for file in path.parent.iterdir()] == [lock_path.name]


@pytest.fixture
def link(path: Path, tmp_path: Path) -> Path:
    """A symbolic link, in another folder, to the path of the database."""
    link = tmp_path / "elsewhere" / "link.db"
    link.parent.mkdir()
    link.symlink_to(path)
    return link


def test_database_by_a_link_to_its_file_is_the_same_and_has_the_same_lock(path: Path, link: Path) -> None:
    open_and_close(path)
    with open_database(f"sqlite:///{link}") as database:
        database.check()
        with open_database(f"sqlite:///{path}") as direct:
            assert database.identity == direct.identity
        assert [file.name for file in link.parent.iterdir()] == ["link.db"]
    for held, opened in ((path, link), (link, path)):
        with (
            locked(held.resolve().with_name("store.db.lock")),
            pytest.raises(DatabaseError, match=f"another process has locked {path}.lock"),
        ):
            open_and_close(opened, timeout=0.1)


def test_database_in_a_linked_folder_is_the_same(path: Path, tmp_path: Path) -> None:
    open_and_close(path)
    folder = tmp_path / "linked"
    folder.symlink_to(path.parent)
    with open_database(f"sqlite:///{path}") as direct, open_database(f"sqlite:///{folder}/store.db") as linked:
        assert linked.identity == direct.identity


@pytest.mark.parametrize(
    ("is_loop", "reason"), [(False, "No such file or directory"), (True, ".*loop.*|Too many levels.*")]
)
def test_link_that_leads_to_no_file_is_named_and_creates_none(
    path: Path, link: Path, is_loop: bool, reason: str
) -> None:
    if is_loop:
        path.parent.mkdir()
        path.symlink_to(link)
    for use in (open_database, stored_revision):
        with pytest.raises(DatabaseError, match=rf"{link} is a symbolic link that leads to no file \(({reason})\)\."):
            use(f"sqlite:///{link}")
    assert [file.name for file in link.parent.iterdir()] == ["link.db"]
    assert path.is_symlink() is is_loop


def test_default_database_behind_a_link_to_a_missing_file_may_exist(
    path: Path, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("AIRFLOW_HOME", str(tmp_path))
    assert not may_exist()
    default_file().parent.mkdir()
    default_file().symlink_to(path)
    assert may_exist()


def test_default_database_of_which_a_user_may_see_nothing_may_exist(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(path: Path) -> None:
        raise PermissionError(errno.EACCES, "Permission denied", str(path))

    monkeypatch.setattr(os, "lstat", refuse)
    assert may_exist()


def test_folder_that_cannot_be_written_is_named() -> None:
    # Not even root may create a file there.
    with pytest.raises(DatabaseError, match=r"/sys/store\.db\.lock cannot be created or locked \(.*\)\. Let the user"):
        open_and_close(Path("/sys/store.db"))
