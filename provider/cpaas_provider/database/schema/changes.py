"""A version of what is counted for a campaign, so that a stored summary is known to be outdated.

Triggers of the database move the version with each change of a table that is counted, whichever code changes it. Each
writer has a row of its own, so that two never wait for each other. The version is the sum of the rows.
"""

from __future__ import annotations

from collections.abc import Iterator

from sqlalchemy import BigInteger, Column, Connection, Integer, String, Table

from cpaas_provider.database.schema.activity import task_progress
from cpaas_provider.database.schema.base import CAMPAIGN_LENGTH, metadata
from cpaas_provider.database.schema.delivery import deliveries, requests, sends

# The number of changes to the rows of a campaign whose task recorded its progress. There may be millions of single
# messages, which have no progress and no stored summary.
campaign_changes = Table(
    "cpaas_campaign_changes",
    metadata,
    Column("campaign", String(CAMPAIGN_LENGTH), primary_key=True),
    # The process of PostgreSQL's server; 0 in SQLite, which has one writer at a time.
    Column("writer", Integer, primary_key=True, autoincrement=False),
    Column("changes", BigInteger, nullable=False),
    sqlite_with_rowid=False,
)

COUNTED_TABLES = (deliveries, requests, sends)
"""The tables that delivery counts are computed from. Their changes move the version."""

# A statement that inserts many rows is one change. What changed before a campaign has progress is no change, so its
# first progress is one.
_FUNCTIONS = (
    """
    CREATE OR REPLACE FUNCTION cpaas_count_changes() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN
        IF TG_OP = 'INSERT' THEN
            INSERT INTO cpaas_campaign_changes AS stored
                SELECT DISTINCT campaign, pg_backend_pid(), 1 FROM new_rows
                WHERE EXISTS (SELECT FROM cpaas_task_progress WHERE reference = campaign)
                ON CONFLICT (campaign, writer) DO UPDATE SET changes = stored.changes + 1;
        ELSIF TG_OP = 'DELETE' THEN
            INSERT INTO cpaas_campaign_changes AS stored
                SELECT DISTINCT campaign, pg_backend_pid(), 1 FROM old_rows
                WHERE EXISTS (SELECT FROM cpaas_task_progress WHERE reference = campaign)
                ON CONFLICT (campaign, writer) DO UPDATE SET changes = stored.changes + 1;
        -- An insertion with ON CONFLICT is an update, too, mostly of no row.
        ELSIF EXISTS (SELECT FROM new_rows) THEN
            INSERT INTO cpaas_campaign_changes AS stored
                SELECT campaign, pg_backend_pid(), 1
                FROM (SELECT campaign FROM old_rows UNION SELECT campaign FROM new_rows) AS changed
                WHERE EXISTS (SELECT FROM cpaas_task_progress WHERE reference = campaign)
                ON CONFLICT (campaign, writer) DO UPDATE SET changes = stored.changes + 1;
        END IF;
        RETURN NULL;
    END $$
    """,
    """
    CREATE OR REPLACE FUNCTION cpaas_begin_changes() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN
        INSERT INTO cpaas_campaign_changes AS stored SELECT reference, pg_backend_pid(), 1 FROM new_rows
            ON CONFLICT (campaign, writer) DO UPDATE SET changes = stored.changes + 1;
        RETURN NULL;
    END $$
    """,
)
_NAMED = {
    "INSERT": "NEW TABLE AS new_rows",
    "UPDATE": "OLD TABLE AS old_rows NEW TABLE AS new_rows",
    "DELETE": "OLD TABLE AS old_rows",
}

# SQLite runs a trigger for each row, so it looks up one row alone, which the first progress has inserted. A row that
# moves to another campaign changes both.
_OF_ROW = "UPDATE cpaas_campaign_changes SET changes = changes + 1 WHERE {condition} AND writer = 0;"
_ROWS = {
    "INSERT": "campaign = NEW.campaign",
    "UPDATE": "campaign IN (NEW.campaign, OLD.campaign)",
    "DELETE": "campaign = OLD.campaign",
}
_OF_PROGRESS = """
    INSERT INTO cpaas_campaign_changes VALUES (NEW.reference, 0, 1)
        ON CONFLICT (campaign, writer) DO UPDATE SET changes = changes + 1;
"""


def create_triggers(connection: Connection) -> None:
    """Create what moves the version. The tables exist."""
    statements = _of_sqlite() if connection.dialect.name == "sqlite" else _of_postgresql()
    for statement in statements:
        connection.exec_driver_sql(statement)


def _of_postgresql() -> Iterator[str]:
    yield from _FUNCTIONS
    for table in COUNTED_TABLES:
        for operation, named in _NAMED.items():
            yield (
                f"CREATE TRIGGER {table.name}_{operation.lower()}_counted AFTER {operation} ON {table.name} "
                f"REFERENCING {named} FOR EACH STATEMENT EXECUTE FUNCTION cpaas_count_changes()"
            )
    yield (
        f"CREATE TRIGGER {task_progress.name}_counted AFTER INSERT ON {task_progress.name} "
        f"REFERENCING {_NAMED['INSERT']} FOR EACH STATEMENT EXECUTE FUNCTION cpaas_begin_changes()"
    )


def _of_sqlite() -> Iterator[str]:
    for table in COUNTED_TABLES:
        for operation, condition in _ROWS.items():
            yield (
                f"CREATE TRIGGER {table.name}_{operation.lower()}_counted AFTER {operation} ON {table.name} "
                f"BEGIN {_OF_ROW.format(condition=condition)} END"
            )
    yield f"CREATE TRIGGER {task_progress.name}_counted AFTER INSERT ON {task_progress.name} BEGIN {_OF_PROGRESS} END"
