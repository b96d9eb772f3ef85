"""Tables of earlier versions are migrated with all they hold, once, by however many processes at once."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
import sqlalchemy
from alembic.autogenerate import compare_metadata
from alembic.config import Config
from alembic.migration import MigrationContext
from alembic.script import ScriptDirectory

from cpaas_provider.database import migrations
from cpaas_provider.database.database import Database, open_database
from cpaas_provider.database.errors import DatabaseError
from cpaas_provider.database.migrations import REVISIONS
from cpaas_provider.database.schema import delivery
from cpaas_provider.database.schema.all_tables import metadata
from cpaas_provider.database.schema.base import alembic_version
from cpaas_provider.database.schema.campaigns import campaign_values, campaigns
from cpaas_provider.database.schema.lookups import lookups
from tests.unit.database.table_versions import BEFORE_ALEMBIC, create, is_newest, remove, version
from tests.unit.database.workers import Worker

THEN = datetime(2026, 1, 1)
NEXT = f"{int(REVISIONS[-1]) + 1:04}"


@pytest.fixture
def newer(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    """A further migration, which a test writes."""
    scripts = tmp_path / "scripts"
    (scripts / "versions").mkdir(parents=True)
    ours = Path(migrations.__file__).parent
    (scripts / "env.py").write_text((ours / "env.py").read_text())
    for one in (ours / "versions").glob("v*.py"):
        (scripts / "versions" / one.name).write_text(one.read_text())
    monkeypatch.setattr(migrations, "__file__", str(scripts / "__init__.py"))
    monkeypatch.setattr(migrations, "REVISIONS", (*REVISIONS, NEXT))
    return scripts / "versions" / f"v{NEXT}_further.py"


def further(*statements: str) -> str:
    calls = "".join(f"\n    op.execute({one!r})" for one in statements) or "\n    pass"
    return f"from alembic import op\nrevision = '{NEXT}'\ndown_revision = '{REVISIONS[-1]}'\ndef upgrade():{calls}\n"


def differences(database: Database) -> list[object]:
    """Return how its tables differ from those of our code, as far as Alembic can tell."""
    with database.engine.connect() as connection:
        context = MigrationContext.configure(
            connection,
            opts={
                "version_table": alembic_version.name,
                "include_name": lambda name, kind, _: kind != "table" or name in metadata.tables,
            },
        )
        found: list[object] = compare_metadata(context, metadata)
    return found


def where(index: Mapping[str, Any]) -> list[str]:
    """Return the condition of a partial index; SQLite quotes the names of columns that were renamed."""
    options = index.get("dialect_options", {})
    return [str(value).replace('"', "") for name, value in sorted(options.items()) if name.endswith("_where")]


def shape(database: Database) -> dict[str, object]:
    """Return the columns, keys and indexes of all tables."""
    found = sqlalchemy.inspect(database.engine)
    return {
        name: (
            {one["name"]: (str(one["type"]), one["nullable"]) for one in found.get_columns(name)},
            found.get_pk_constraint(name)["constrained_columns"],
            {one["name"]: (one["column_names"], one["unique"], where(one)) for one in found.get_indexes(name)},
        )
        for name in metadata.tables
        if name != alembic_version.name
    }


def test_the_list_of_versions_is_that_of_the_migrations() -> None:
    config = Config()
    config.set_main_option("script_location", str(Path(migrations.__file__).parent))
    scripts = ScriptDirectory.from_config(config)
    assert tuple(one.revision for one in reversed(list(scripts.walk_revisions()))) == REVISIONS


@pytest.mark.parametrize("revision", BEFORE_ALEMBIC)
def test_every_earlier_version_comes_to_have_the_tables_of_a_new_database(url: str, revision: str) -> None:
    with open_database(url) as database:
        assert is_newest(database)
        assert not differences(database)
        expected = shape(database)
    create(url, revision)
    with open_database(url) as database:
        assert is_newest(database)
        assert not differences(database)
        assert shape(database) == expected
        assert len(database.identity) == 32


def test_a_version_that_alembic_recorded_is_migrated(url: str) -> None:
    create(url, "0006", by_alembic=True)
    with open_database(url) as database:
        assert is_newest(database)


def test_opening_the_newest_version_does_not_load_alembic(sqlite_url: str) -> None:
    code = (
        "import sys; from cpaas_provider.database.database import open_database; "
        f"open_database({sqlite_url!r}).close(); print('alembic' in sys.modules)"
    )
    for _ in range(2):
        done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
        assert done.stdout.splitlines()[-1] == "False"


def test_program_before_alembic_sees_a_newer_version(url: str) -> None:
    create(url, "0006")
    with open_database(url) as database, database.connect() as connection:
        assert connection.exec_driver_sql("SELECT max(version) FROM cpaas_schema").scalar() == 7


def test_migrations_run_in_order_and_once(url: str, newer: Path) -> None:
    newer.write_text(further("CREATE TABLE cpaas_further (a INTEGER)"))
    create(url, "0005", by_alembic=True)
    for _ in range(2):
        with open_database(url) as database:
            assert version(database) == NEXT
            assert sqlalchemy.inspect(database.engine).has_table("cpaas_further")


def test_a_migration_that_fails_leaves_the_tables_as_they_were(url: str, newer: Path) -> None:
    create(url, "0006")
    newer.write_text(further("CREATE TABLE half (a INTEGER)", "CREATE TABLE half (a INTEGER)"))
    with pytest.raises(DatabaseError, match="half"):
        open_database(url)
    engine = sqlalchemy.create_engine(url)
    there = sqlalchemy.inspect(engine)
    assert not there.has_table("half")
    assert not there.has_table(alembic_version.name)
    assert {"until", "term"} <= {column["name"] for column in there.get_columns("cpaas_campaigns")}
    engine.dispose()
    newer.write_text(further())
    with open_database(url) as database:
        assert version(database) == NEXT


def test_a_newer_version_is_refused_and_left(url: str, newer: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    newer.write_text(further())
    open_database(url).close()
    monkeypatch.setattr(migrations, "REVISIONS", REVISIONS)
    with pytest.raises(
        DatabaseError, match=rf"newer .* \(table version {NEXT}, supported here up to {REVISIONS[-1]}\)"
    ):
        open_database(url)


@pytest.mark.parametrize("revision", [None, "0008"])
def test_postgresql_compresses_bodies_with_lz4_where_it_can(postgres_url: str, revision: str | None) -> None:
    if revision is not None:
        create(postgres_url, revision, by_alembic=True)
    with open_database(postgres_url) as database, database.connect() as connection:
        can = connection.exec_driver_sql(
            "SELECT 'lz4' = ANY(enumvals) FROM pg_settings WHERE name = 'default_toast_compression'"
        ).scalar()
        if not can:
            pytest.skip("this PostgreSQL has no LZ4")
        column = "attrelid = 'cpaas_reports'::regclass AND attname = 'body'"
        by = connection.exec_driver_sql(f"SELECT attcompression FROM pg_attribute WHERE {column}").scalar()
        assert by == "l"


def test_threads_that_migrate_at_once_migrate_once(url: str) -> None:
    create(url, "0003")
    with ThreadPoolExecutor(4) as pool:
        opened = list(pool.map(lambda _: open_database(url), range(4)))
    assert is_newest(opened[0])
    assert not differences(opened[0])
    for database in opened:
        database.close()


def test_processes_that_migrate_at_once_migrate_once(url: str, crowd: list[Worker]) -> None:
    for revision in ("0001", "0006"):
        create(url, revision)
        for worker in crowd:
            worker.tell("open", url)
        assert [worker.hear() for worker in crowd] == ["opened"] * len(crowd)
        with open_database(url) as database:
            assert is_newest(database)
            assert not differences(database)
            remove(database)


def test_what_was_sent_and_reported_before_keeps_its_place(url: str) -> None:
    create(url, "0003")
    engine = sqlalchemy.create_engine(url)
    tables = sqlalchemy.MetaData()
    tables.reflect(engine, only=["cpaas_sends", "cpaas_requests", "cpaas_deliveries", "cpaas_events", "cpaas_reports"])
    sends, requests, deliveries, events, reports = (
        tables.tables[f"cpaas_{name}"] for name in ("sends", "requests", "deliveries", "events", "reports")
    )
    send = {"campaign": "spring", "operation": "send_sms", "conn_id": "shop", "dag_id": "d", "run_id": "r"}
    request = {"recipients": 1, "message_id": "m1", "noted": THEN}
    report = {"campaign": "spring", "conn_id": "shop", "state": 10, "status": "failed", "failed_in": 7}
    flags = {"delivered": False, "failed": True, "clicked": False, "reported": THEN, "touched": THEN}
    event = {"kind": "messages_failed", "campaign": "spring", "conn_id": "shop", "facts": "{}", "made": THEN}
    raw = {"conn_id": "shop", "door": "callback", "recipient": "1", "body": "{}", "received": THEN}
    with engine.begin() as connection:
        identity = connection.exec_driver_sql("SELECT value FROM cpaas_identity").scalar()
        connection.execute(sends.insert(), {**send, "task_id": "t", "map_index": -1, "began": THEN, "ended": THEN})
        for reference, campaign in (("pack", "spring"), ("stray", "autumn")):
            connection.execute(requests.insert(), {**request, "reference": reference, "campaign": campaign})
        for recipient, reference in (("1", "pack"), ("2", None)):
            connection.execute(deliveries.insert(), {**report, **flags, "recipient": recipient, "reference": reference})
        for batch, told in ((7, THEN), (8, None)):
            connection.execute(events.insert(), {**event, "batch": batch, "told": told})
        connection.execute(reports.insert(), {**raw, "digest": b"d" * 32, "times": 3})
    engine.dispose()
    then = THEN.replace(tzinfo=UTC)
    with open_database(url) as database, database.connect() as connection:
        assert database.identity == identity
        found = {row.reference: row for row in connection.execute(sqlalchemy.select(delivery.requests))}
        assert {name: (row.conn_id, row.message_id) for name, row in found.items()} == {
            "pack": ("shop", "m1"),
            "stray": ("", "m1"),
        }
        rows = connection.execute(sqlalchemy.select(delivery.deliveries)).all()
        assert {(row.recipient, row.reference, row.failed_batch) for row in rows} == {("1", "pack", 7), ("2", "", 7)}
        assert {(row.delivery_status, row.updated_at, row.reported_at) for row in rows} == {(10, then, then)}
        (one,) = connection.execute(sqlalchemy.select(delivery.sends)).all()
        assert (one.conn_id, one.unknown, one.started_at, one.ended_at, one.finished_at) == (
            "shop", None, then, then, None,
        )  # fmt: skip
        kept = connection.execute(sqlalchemy.select(delivery.events).order_by(delivery.events.c.id)).all()
        assert [(row.id, row.batch, row.published_at) for row in kept] == [(1, 7, then), (2, 8, None)]
        (stored,) = connection.execute(sqlalchemy.select(delivery.reports)).all()
        assert (stored.digest, stored.source, stored.received_at, stored.received_count) == (
            b"d" * 32, "callback", then, 3,
        )  # fmt: skip


def test_campaigns_and_lookups_of_the_first_version_are_kept(url: str) -> None:
    create(url, "0001")
    engine = sqlalchemy.create_engine(url)
    with engine.begin() as connection:
        connection.exec_driver_sql("INSERT INTO cpaas_campaigns VALUES ('spring', 'a task', '2026-01-01 00:00:00', 4)")
        connection.exec_driver_sql("INSERT INTO cpaas_campaign_values VALUES ('spring', 'key', '1')")
        connection.execute(
            sqlalchemy.text("INSERT INTO cpaas_lookups VALUES (:hash, :dnd, '2026-01-01 00:00:00')"),
            {"hash": b"h", "dnd": True},
        )
    engine.dispose()
    with open_database(url) as database, database.connect() as connection:
        (campaign,) = connection.execute(sqlalchemy.select(campaigns)).all()
        assert (campaign.owner, campaign.fencing_token) == ("a task", 4)
        assert campaign.lease_expires_at == THEN.replace(tzinfo=UTC)
        assert connection.execute(sqlalchemy.select(campaign_values.c.value)).scalar() == "1"
        assert connection.execute(sqlalchemy.select(lookups.c.looked_up_at)).scalar() == THEN.replace(tzinfo=UTC)
