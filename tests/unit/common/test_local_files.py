"""Files on this machine: who may read them, and what is left of temporary ones after a kill."""

from __future__ import annotations

import os
import stat
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from cpaas_provider._common.local_files import create_file, create_text_file, create_whole_file, make_folders
from tests.unit.common.rows_on_disk import KINDS, PHONE

ROOT = Path(__file__).parents[3]


def mode(path: Path) -> int:
    return stat.S_IMODE(path.stat().st_mode)


@pytest.fixture(params=[0, 0o077, 0o277, 0o777], ids="umask {:03o}".format)
def umask(request: pytest.FixtureRequest) -> Iterator[None]:
    earlier = os.umask(request.param)
    yield
    os.umask(earlier)


@pytest.mark.usefixtures("umask")
class TestModes:
    @pytest.mark.parametrize(("file_mode", "folder_mode"), [(0o600, 0o700), (0o640, 0o750), (0o664, 0o775)])
    def test_umask_changes_neither_files_nor_folders(self, tmp_path: Path, file_mode: int, folder_mode: int) -> None:
        folder = tmp_path / "new" / "folder"
        make_folders(folder, file_mode)
        with create_file(folder / "file", file_mode):
            assert mode(folder / "file") == file_mode
        assert (mode(folder), mode(folder.parent)) == (folder_mode, folder_mode)
        with create_text_file(folder / "export"):
            pass
        assert mode(folder / "export") == 0o600

    def test_existing_folder_keeps_its_mode(self, tmp_path: Path) -> None:
        tmp_path.chmod(0o755)
        make_folders(tmp_path)
        assert mode(tmp_path) == 0o755

    def test_folder_keeps_the_bit_by_which_files_inherit_its_group(self, tmp_path: Path) -> None:
        tmp_path.chmod(0o2770)
        make_folders(tmp_path / "new", 0o640)
        assert mode(tmp_path / "new") == 0o2750


def test_symbolic_link_in_the_way_is_not_followed(tmp_path: Path) -> None:
    (tmp_path / "link").symlink_to(tmp_path / "elsewhere")
    with pytest.raises(FileExistsError):
        create_file(tmp_path / "link")
    assert not (tmp_path / "elsewhere").exists()


class TestWholeFile:
    def test_file_has_no_name_before_it_is_complete(self, tmp_path: Path) -> None:
        with create_whole_file(tmp_path / "file", 0o640) as file:
            file.write(b"rows")
            assert list(tmp_path.iterdir()) == []
        assert ((tmp_path / "file").read_bytes(), mode(tmp_path / "file")) == (b"rows", 0o640)

    def test_nothing_is_left_of_an_incomplete_file(self, tmp_path: Path) -> None:
        def stopped() -> None:
            with create_whole_file(tmp_path / "file") as file:
                file.write(b"rows")
                raise KeyboardInterrupt

        with pytest.raises(KeyboardInterrupt):
            stopped()
        assert list(tmp_path.iterdir()) == []

    @pytest.mark.parametrize("is_link", [False, True])
    def test_existing_file_or_link_at_the_path_is_left_alone(self, tmp_path: Path, is_link: bool) -> None:
        if is_link:
            (tmp_path / "file").symlink_to(tmp_path / "elsewhere")
        else:
            (tmp_path / "file").write_text("of another try")
        with pytest.raises(FileExistsError), create_whole_file(tmp_path / "file"):
            pytest.fail("the file should not have been begun")
        assert not (tmp_path / "elsewhere").exists()
        assert is_link or (tmp_path / "file").read_text() == "of another try"


def test_text_file_is_complete_private_and_has_no_name_before(tmp_path: Path) -> None:
    with create_text_file(tmp_path / "file") as file:
        file.write("Adé\r\n")
        assert list(tmp_path.iterdir()) == []
    assert ((tmp_path / "file").read_bytes(), mode(tmp_path / "file")) == ("Adé\r\n".encode(), 0o600)


@pytest.mark.parametrize("has_unnamed_files", [True, False])
def test_incomplete_text_file_is_removed(
    tmp_path: Path, has_unnamed_files: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    if not has_unnamed_files:
        monkeypatch.delattr("os.O_TMPFILE")

    def stopped() -> None:
        with create_text_file(tmp_path / "file") as file:
            file.write(PHONE)
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        stopped()
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("kind", KINDS)
def test_kill_leaves_no_file_with_a_recipient(tmp_path: Path, kind: str) -> None:
    command = [sys.executable, "-m", "tests.unit.common.rows_on_disk", kind, str(tmp_path / "new" / "folder")]
    with subprocess.Popen(
        command, cwd=ROOT, env={**os.environ, "TMPDIR": str(tmp_path)}, stdin=subprocess.PIPE, stdout=subprocess.PIPE
    ) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == b"stored\n"
        opened = [file for file in Path(f"/proc/{process.pid}/fd").iterdir() if _is_unlinked(file, tmp_path)]
        # The rows are on the disk, in a file without a name.
        assert any(PHONE.encode() in file.read_bytes() for file in opened)
        process.kill()
    assert [file for file in tmp_path.rglob("*") if file.is_file()] == []


def _is_unlinked(descriptor: Path, folder: Path) -> bool:
    name = str(descriptor.readlink())
    return name.startswith(str(folder)) and name.endswith(" (deleted)")
