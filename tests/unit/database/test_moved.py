"""A SQLite file that is moved, deleted or replaced while it is in use."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
import sqlalchemy

from cpaas_provider.database.database import Database, open_database
from cpaas_provider.database.errors import DatabaseError
from cpaas_provider.database.schema.campaigns import campaigns
from tests.unit.database.table_versions import NEXT, NextVersion, version


class TestMoved:
    @pytest.fixture
    def path(self, tmp_path: Path) -> Path:
        return tmp_path / "home" / "store.db"

    @pytest.fixture
    def opened(self, path: Path) -> Iterator[Database]:
        with open_database(f"sqlite:///{path}") as database:
            insert_campaign(database, "before")
            yield database

    def test_moved_file_is_neither_written_nor_read(self, opened: Database, path: Path) -> None:
        elsewhere = move(path, "elsewhere")
        for use in (lambda: insert_campaign(opened, "after"), lambda: names(opened), lambda: opened.identity):
            with pytest.raises(
                DatabaseError, match=r"was moved or deleted while it was in use\. Nothing is stored until"
            ):
                use()
        assert not path.exists()
        with open_database(f"sqlite:///{elsewhere}") as moved:
            assert names(moved) == ["before"]

    def test_file_that_replaces_it_is_opened_anew(self, opened: Database, path: Path) -> None:
        before = opened.identity
        move(path, "elsewhere")
        open_database(f"sqlite:///{path}").close()
        insert_campaign(opened, "after")
        assert names(opened) == ["after"]
        assert opened.identity != before

    def test_file_of_an_earlier_version_is_migrated(
        self, opened: Database, path: Path, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
    ) -> None:
        move(path, "elsewhere")
        open_database(f"sqlite:///{path}").close()
        NextVersion(monkeypatch, tmp_path / "scripts").migrate_by()
        assert names(opened) == []
        assert version(opened) == NEXT

    def test_log_of_the_previous_file_is_not_used_with_another(
        self, opened: Database, path: Path, tmp_path: Path
    ) -> None:
        other = tmp_path / "other.db"
        open_database(f"sqlite:///{other}").close()
        other.replace(path)
        with pytest.raises(DatabaseError, match=r"store\.db-wal beside it belongs to the previous file"):
            insert_campaign(opened, "after")
        for suffix in ("-wal", "-shm"):
            Path(f"{path}{suffix}").unlink()
        insert_campaign(opened, "after")
        assert names(opened) == ["after"]

    def test_transaction_during_a_move_fails(self, opened: Database, path: Path) -> None:
        def work(connection: sqlalchemy.Connection) -> None:
            connection.execute(sqlalchemy.insert(campaigns).values(campaign="meanwhile", fencing_token=1))
            move(path, "elsewhere")

        with pytest.raises(DatabaseError, match="It must be retried"):
            opened.write(work)

    def test_file_that_is_no_database_is_refused_until_it_is_replaced(self, opened: Database, path: Path) -> None:
        move(path, "elsewhere")
        path.write_text("customers\n" * 1000)
        for _ in range(2):
            with pytest.raises(DatabaseError, match="file is not a database"):
                insert_campaign(opened, "after")
        path.unlink()
        open_database(f"sqlite:///{path}").close()
        insert_campaign(opened, "after")


def insert_campaign(database: Database, name: str) -> None:
    insertion = sqlalchemy.insert(campaigns).values(campaign=name, fencing_token=1)
    database.write(lambda connection: connection.execute(insertion))


def names(database: Database) -> list[str]:
    with database.connect() as connection:
        return list(connection.execute(sqlalchemy.select(campaigns.c.campaign)).scalars())


def move(path: Path, folder: str) -> Path:
    """Move a database with all its files, and return where it is now."""
    there = path.parent.parent / folder
    there.mkdir(exist_ok=True)
    for one in list(path.parent.glob(f"{path.name}*")):
        one.rename(there / one.name)
    return there / path.name
