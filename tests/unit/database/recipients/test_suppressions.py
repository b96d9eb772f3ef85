"""The stored suppression list: who is on it, found by keyed hashes alone."""

from __future__ import annotations

import shutil
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
import sqlalchemy

from cpaas_provider.database.database import Database, open_database
from cpaas_provider.database.default_file import suppresses_any
from cpaas_provider.database.recipients.hash_keys import HashSecretMissingError
from cpaas_provider.database.recipients.suppressions import (
    HARD_BOUNCE,
    INVALID_NUMBER,
    OPT_OUT,
    REASONS,
    Listed,
    OtherHashKeyError,
    SuppressionTable,
)
from cpaas_provider.database.schema.base import alembic_version
from cpaas_provider.database.schema.recipients import hash_keys, suppressions

ADA, BEN, CY = "2348031000001", "2348031000002", "cy@example.com"
SECRET = "AIRFLOW__CPAAS__RECIPIENT_SECRET"


def opted_out(*recipients: str, **where: str) -> list[Listed]:
    return [Listed(one, OPT_OUT, "test", **where) for one in recipients]


@pytest.fixture
def table(database: Database) -> SuppressionTable:
    return SuppressionTable(database)


def statements(database: Database) -> list[str]:
    """Return the list that takes what the database is asked from now on."""
    asked: list[str] = []
    sqlalchemy.event.listen(
        database.engine, "before_cursor_execute", lambda _c, _cursor, statement, *_: asked.append(statement)
    )
    return asked


class TestFinding:
    def test_added_recipients_are_found_with_their_reason(self, table: SuppressionTable) -> None:
        assert table.add([*opted_out(ADA), Listed(CY, HARD_BOUNCE, "test")]) == 2
        assert table.find([ADA, BEN], "shop", "sms") == {ADA: OPT_OUT}
        assert table.find([CY], "shop", "email") == {CY: HARD_BOUNCE}

    def test_capitals_of_an_address_do_not_matter(self, table: SuppressionTable) -> None:
        table.add(opted_out("Cy@Example.com"))
        assert table.find([CY], "shop", "email") == {CY: OPT_OUT}

    def test_strongest_reason_is_named(self, table: SuppressionTable) -> None:
        table.add([Listed(ADA, INVALID_NUMBER, "test"), *opted_out(ADA)])
        assert table.find([ADA], "shop", "sms") == {ADA: OPT_OUT}
        assert table.find([ADA], "shop", "sms", [INVALID_NUMBER]) == {ADA: INVALID_NUMBER}

    def test_entry_holds_for_its_channel_and_connection_only(self, table: SuppressionTable) -> None:
        table.add(opted_out(ADA, channel="whatsapp", conn_id="shop"))
        assert table.find([ADA], "shop", "whatsapp") == {ADA: OPT_OUT}
        assert table.find([ADA], "shop", "sms") == {}
        assert table.find([ADA], "bank", "whatsapp") == {}

    def test_second_entry_of_the_same_reason_is_not_counted(self, table: SuppressionTable) -> None:
        assert table.add(opted_out(ADA, BEN, ADA)) == 2
        assert table.add(opted_out(ADA)) == 0

    def test_many_recipients_are_found(self, table: SuppressionTable) -> None:
        everybody = [f"23480310{number:05d}" for number in range(2000)]
        assert table.add(opted_out(*everybody[::2])) == 1000
        assert table.find(everybody, "shop", "sms").keys() == set(everybody[::2])
        assert len(list(table.entries())) == 1000
        assert table.counts() == {OPT_OUT: 1000}

    def test_empty_list_costs_one_query(self, database: Database, table: SuppressionTable) -> None:
        asked = statements(database)
        assert table.find([f"23480310{number:05d}" for number in range(2000)], "shop", "sms") == {}
        assert len([one for one in asked if one.startswith("SELECT")]) == 1
        assert not [one for one in asked if not one.startswith(("SELECT", "PRAGMA"))]


class TestHashes:
    def test_database_holds_no_recipient(self, database: Database, table: SuppressionTable) -> None:
        table.add(opted_out(ADA, CY))
        with database.connect() as connection:
            stored = repr(connection.execute(sqlalchemy.select(suppressions)).all())
        assert ADA not in stored
        assert CY not in stored

    def test_entries_from_before_the_first_secret_are_found(
        self, table: SuppressionTable, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        table.add(opted_out(ADA))
        monkeypatch.setenv(SECRET, "new")
        assert table.add(opted_out(ADA, BEN)) == 1
        assert table.find([ADA, BEN], "shop", "sms") == {ADA: OPT_OUT, BEN: OPT_OUT}

    def test_new_secret_listed_before_the_old_one_finds_entries_of_both(
        self, table: SuppressionTable, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setenv(SECRET, "old")
        table.add(opted_out(ADA))
        monkeypatch.setenv(SECRET, "new, old")
        table.add(opted_out(BEN))
        assert table.find([ADA, BEN], "shop", "sms") == {ADA: OPT_OUT, BEN: OPT_OUT}
        assert len({one.key_id for one in table.entries()}) == 2
        assert table.remove([ADA]) == 1

    @pytest.mark.parametrize("secret", ["", "other"])
    def test_missing_secret_raises_instead_of_finding_nothing(
        self, table: SuppressionTable, monkeypatch: pytest.MonkeyPatch, secret: str
    ) -> None:
        monkeypatch.setenv(SECRET, "old")
        table.add(opted_out(ADA))
        monkeypatch.setenv(SECRET, secret)
        with pytest.raises(HashSecretMissingError, match=r"\[cpaas\] recipient_secret"):
            table.find([ADA], "shop", "sms")
        with pytest.raises(HashSecretMissingError):
            table.add(opted_out(BEN))

    def test_processes_that_begin_at_once_make_one_key(self, url: str) -> None:
        databases = [open_database(url) for _ in range(4)]
        with ThreadPoolExecutor(4) as pool:
            added = list(pool.map(lambda one: SuppressionTable(one).add(opted_out(ADA)), databases))
        with databases[0].connect() as connection:
            keys = connection.execute(sqlalchemy.select(hash_keys.c.key_id)).all()
        for one in databases:
            one.close()
        assert sum(added) == 1
        assert len(keys) == 1


class TestChanging:
    def test_removed_entries_are_not_found(self, table: SuppressionTable) -> None:
        table.add([*opted_out(ADA), Listed(ADA, INVALID_NUMBER, "test"), *opted_out(BEN)])
        assert table.remove([ADA], {"reason": INVALID_NUMBER}) == 1
        assert table.find([ADA], "shop", "sms") == {ADA: OPT_OUT}
        assert table.remove([ADA]) == 1
        assert table.find([ADA, BEN], "shop", "sms") == {BEN: OPT_OUT}
        assert table.remove([ADA]) == 0

    def test_erasure_keeps_opt_out_and_complaint(self, table: SuppressionTable) -> None:
        table.add([Listed(ADA, reason, "test") for reason in REASONS])
        assert table.erase([ADA]) == (2, 2)
        assert {one.reason for one in table.entries()} == {OPT_OUT, "complaint"}
        assert table.erase([BEN]) == (0, 0)

    def test_export_is_restored(self, table: SuppressionTable) -> None:
        table.add(opted_out(ADA, BEN))
        exported = list(table.entries())
        table.remove([ADA])
        assert table.restore(exported) == 1
        assert table.find([ADA], "shop", "sms") == {ADA: OPT_OUT}

    def test_export_of_another_database_is_refused(self, table: SuppressionTable) -> None:
        table.add(opted_out(ADA))
        foreign = [one._replace(key_id="0" * 16) for one in table.entries()]
        with pytest.raises(OtherHashKeyError, match="key that this database does not have"):
            table.restore(foreign)


def test_import_of_the_suppression_list_defines_few_tables() -> None:
    program = (
        "import cpaas_provider.database.recipients.suppressions;"
        "from cpaas_provider.database.schema.base import metadata; print(len(metadata.tables))"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert int(done.stdout) == 5


class TestWithoutSqlalchemy:
    """A send first asks whether there is any entry, and loads SQLAlchemy only where there is one."""

    @pytest.fixture(autouse=True)
    def configured_url(self, url: str, database: Database, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setenv("AIRFLOW__CPAAS__DATABASE", url)

    @pytest.mark.parametrize("reasons", [None, (INVALID_NUMBER,), (OPT_OUT, HARD_BOUNCE)])
    @pytest.mark.parametrize("channel", ["sms", "email"])
    @pytest.mark.parametrize("conn_id", ["shop", "bank"])
    def test_entry_is_found_where_the_list_has_one(
        self, database: Database, conn_id: str, channel: str, reasons: tuple[str, ...] | None
    ) -> None:
        table = SuppressionTable(database)
        is_file = database.engine.dialect.name == "sqlite"
        entries = [
            *opted_out(ADA, channel="email", conn_id="bank"),
            Listed(BEN, INVALID_NUMBER, "test", "sms"),
            *opted_out(CY),
        ]
        for entry in [None, *entries]:
            table.add([entry] if entry else [])
            expected = table.holds_any(conn_id, channel, reasons) if is_file else None
            assert suppresses_any(conn_id, channel, reasons) is expected

    def test_tables_of_another_version_are_left_to_sqlalchemy(self, database: Database) -> None:
        database.write(lambda connection: connection.execute(alembic_version.update().values(version_num="v9999")))
        assert suppresses_any("shop", "sms", None) is None

    def test_missing_file_is_left_to_sqlalchemy_and_not_created(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setenv("AIRFLOW__CPAAS__DATABASE", f"sqlite:///{tmp_path}/missing.db")
        assert suppresses_any("shop", "sms", None) is None
        assert not list(tmp_path.glob("missing*"))

    def test_file_that_is_no_database_is_left_to_sqlalchemy(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        (tmp_path / "text.db").write_text("no database")
        monkeypatch.setenv("AIRFLOW__CPAAS__DATABASE", f"sqlite:///{tmp_path}/text.db")
        assert suppresses_any("shop", "sms", None) is None

    @pytest.mark.parametrize("text", ["sqlite:///", "sqlite://", "cpaas_db", "{file}", "sqlite:///{file}?timeout=3"])
    def test_other_urls_are_left_to_sqlalchemy(
        self, database: Database, monkeypatch: pytest.MonkeyPatch, text: str
    ) -> None:
        monkeypatch.setenv("AIRFLOW__CPAAS__DATABASE", text.format(file=database.engine.url.database))
        assert suppresses_any("shop", "sms", None) is None

    def test_encoded_address_is_left_to_sqlalchemy(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        address = f"sqlite:///{tmp_path}/a%20list.db"
        with open_database(address) as used, open_database(f"sqlite:///{tmp_path}/empty.db"):
            SuppressionTable(used).add(opted_out(ADA))
        monkeypatch.setenv("AIRFLOW__CPAAS__DATABASE", address)
        # Newer versions of SQLAlchemy decode the address. An older one may have left this file.
        if not (encoded := tmp_path / "a%20list.db").exists():
            shutil.copy(tmp_path / "empty.db", encoded)
        assert suppresses_any("shop", "sms", None) is None

    def test_symbolic_link_is_left_to_sqlalchemy(
        self, database: Database, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        link = tmp_path / "link.db"
        link.symlink_to(database.engine.url.database or "")
        monkeypatch.setenv("AIRFLOW__CPAAS__DATABASE", f"sqlite:///{link}")
        assert suppresses_any("shop", "sms", None) is None


def test_empty_list_is_read_without_sqlalchemy(database: Database, url: str) -> None:
    # Airflow's configuration may load SQLAlchemy itself.
    code = (
        "import sys; from cpaas_provider.database import default_file; "
        f"default_file.configured = lambda: {url!r}; "
        "print(default_file.suppresses_any('shop', 'sms', None), 'sqlalchemy' in sys.modules)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    is_file = database.engine.dialect.name == "sqlite"
    assert done.stdout.split() == [str(False if is_file else None), "False"]
