"""Checks of the provider's database."""

from __future__ import annotations

import os
from datetime import UTC, datetime
from pathlib import Path

from airflow.utils.session import create_session
from sqlalchemy import URL, func, select
from sqlalchemy.exc import SQLAlchemyError

from cpaas_provider.cli.doctor.report import Findings, clock, failed, ok, skipped, warning
from cpaas_provider.cli.messages.campaign_database import recorded_databases
from cpaas_provider.database import REVISIONS
from cpaas_provider.database.database import Database, open_database, stored_revision
from cpaas_provider.database.errors import DatabaseError
from cpaas_provider.database.recipients.hash_keys import weak_secret_reason
from cpaas_provider.database.schema.base import REPORT_DIALECTS
from cpaas_provider.database.url import resolve_url

CHECK = "database"
_CLOCK = "clock of the database"
_SHARED = "database of campaigns"
_HASHES = "recipient secret"
_SET_SAME = "Set the same secrets on all machines. List an old secret behind a new one."
_SET_RANDOM = (
    "Set a long random text on all machines, in front of earlier secrets. New hashes are keyed with the first."
)
_MIGRATE = "Run `airflow cpaas db migrate`. The provider also does it on first use."
_CORRECT = "Correct [cpaas] database (AIRFLOW__CPAAS__DATABASE), or see that the database can be reached."


class DatabaseChecks:
    """The checks of the provider's database. They create and change nothing."""

    database: Database | None = None
    """The database, once a check has found that it can be used."""

    def check(self) -> Findings:
        """Check that the database can be reached and written, and that its tables are up to date."""
        try:
            url, revision = stored_revision()
        except DatabaseError as error:
            yield failed(CHECK, str(error), _CORRECT)
            return
        if revision is None:
            if reason := _why_not_created(resolve_url()):
                yield failed(CHECK, f"{url} cannot be created: {reason}.", _CORRECT)
            else:
                yield warning(CHECK, f"{url} has no tables yet.", _MIGRATE)
            return
        if revision != REVISIONS[-1]:
            found = f"The tables of {url} have version {revision}, and this provider has {REVISIONS[-1]}."
            yield failed(CHECK, found, _MIGRATE)
            return
        try:
            self.database = open_database()
            self.database.check()
        except DatabaseError as error:
            yield failed(CHECK, str(error), _CORRECT)
            return
        yield ok(CHECK, f"{url} is writable, table version {revision}")
        if self.database.engine.dialect.name not in REPORT_DIALECTS:
            yield warning(CHECK, "Delivery reports cannot be stored in this database.", "Use PostgreSQL or SQLite.")

    def check_recipient_secret(self) -> Findings:
        """Check that the secret that keys the hashes of recipients is set, and is that of the hashes in the database.

        A finding shows no secret.
        """
        try:
            if self.database is None:
                reason = weak_secret_reason(None)
            else:
                with self.database.connect() as connection:
                    reason = weak_secret_reason(connection)
        except DatabaseError as error:
            yield failed(_HASHES, str(error), _SET_SAME)
            return
        if reason is not None:
            yield warning(_HASHES, reason, _SET_RANDOM)
        elif self.database is None:
            yield skipped(_HASHES, "[cpaas] recipient_secret is set, and there is no usable database to compare with.")
        else:
            yield ok(_HASHES, "set, and that of the hashes in the database")

    def check_clock(self) -> Findings:
        """Compare the clock of a database server with ours."""
        if self.database is None:
            yield skipped(_CLOCK, "There is no usable database.")
        elif self.database.engine.dialect.name == "sqlite":
            yield skipped(_CLOCK, "A SQLite file has the clock of this machine.")
        else:
            with self.database.connect() as connection:
                moment = connection.execute(select(func.now())).scalar_one()
            yield clock(_CLOCK, moment, datetime.now(UTC), "Let a time service (NTP) set both clocks.")

    def check_shared(self) -> Findings:
        """Check that the tasks that sent campaigns with a key used the same database."""
        if self.database is None:
            return
        try:
            with create_session(scoped=False) as session:
                used = recorded_databases(self.database, session)
        except SQLAlchemyError as error:
            yield skipped(_SHARED, f"Airflow's database cannot be read ({type(error).__name__}).")
            return
        if used.others:
            yield failed(
                _SHARED,
                f"Tasks stored campaigns or contact maps in another database: {', '.join(used.others)}.",
                "Set [cpaas] database to the same database on all machines.",
            )
        elif used.this:
            yield ok(_SHARED, "the same that tasks used")

    def close(self) -> None:
        """Close the database."""
        if self.database is not None:
            self.database.close()


def _why_not_created(url: URL) -> str | None:
    """Return why the file of a SQLite database cannot be created; ``None`` if no reason is found."""
    if url.get_backend_name() != "sqlite":
        return None
    path = Path(url.database or "")
    folder = next((parent for parent in path.absolute().parents if parent.exists()), Path("/"))
    if not folder.is_dir():
        return f"{folder} is no folder"
    if path.exists() or os.access(folder, os.W_OK | os.X_OK):
        return None
    return f"{folder} is not writable"
