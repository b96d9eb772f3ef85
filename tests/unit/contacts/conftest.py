"""The databases key maps lie in: a SQLite file, and PostgreSQL where there is one."""

from __future__ import annotations

# As fixtures.
from tests.unit.database.conftest import database as database
from tests.unit.database.conftest import postgres_url as postgres_url
from tests.unit.database.conftest import sqlite_url as sqlite_url
from tests.unit.database.conftest import url as url
