"""A PostgreSQL that hangs, goes away, comes back or has become read-only: each transaction ends, the next works."""

from __future__ import annotations

import secrets
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor

import pytest
import sqlalchemy
from sqlalchemy import make_url

from cpaas_provider.database.database import Database, open_database
from cpaas_provider.database.errors import DatabaseError
from tests.tcp_proxy import Mode, Proxy
from tests.unit.failing_server import LIMIT
from tests.unit.failing_server import behind as behind  # as fixtures
from tests.unit.failing_server import proxy as proxy

PATIENCE = 20.0


def check_in_time(database: Database) -> None:
    with ThreadPoolExecutor(1) as thread:
        thread.submit(database.check).result(PATIENCE)


class TestHanging:
    def test_write_on_pooled_session_fails_with_a_timeout_error(self, behind: Database, proxy: Proxy) -> None:
        proxy.turn(Mode.HANG)
        with pytest.raises(DatabaseError, match="did not respond within"):
            check_in_time(behind)
        proxy.turn(Mode.PASS)
        check_in_time(behind)

    def test_write_within_a_transaction_fails_with_a_timeout_error(self, behind: Database, proxy: Proxy) -> None:
        def work(connection: sqlalchemy.Connection) -> None:
            proxy.turn(Mode.HANG)
            connection.execute(sqlalchemy.text("SELECT 1"))

        with pytest.raises(DatabaseError, match="did not respond within"), ThreadPoolExecutor(1) as thread:
            thread.submit(behind.write, work).result(PATIENCE)
        proxy.turn(Mode.PASS)
        check_in_time(behind)

    def test_slow_work_within_the_limit_succeeds(self, behind: Database) -> None:
        query = sqlalchemy.text("SELECT pg_sleep(0.05)")
        behind.write(lambda connection: connection.execute(query))
        behind.check()


def test_server_ends_a_long_statement_first_and_session_stays(behind: Database, proxy: Proxy) -> None:
    with pytest.raises(DatabaseError, match="statement timeout"):
        behind.write(lambda connection: connection.execute(sqlalchemy.text("SELECT pg_sleep(20)")))
    before = proxy.taken
    behind.check()
    assert proxy.taken == before


def test_lock_held_by_another_session_ends_the_transaction(behind: Database, postgres_url: str) -> None:
    with open_database(postgres_url) as other, other.engine.begin() as holding:
        holding.execute(sqlalchemy.text("LOCK TABLE cpaas_identity"))
        with pytest.raises(DatabaseError, match="timeout"):
            check_in_time(behind)
    behind.check()


def test_write_on_half_closed_connection_goes_over_a_new_one(behind: Database, proxy: Proxy) -> None:
    proxy.turn(Mode.HALF_CLOSE)
    check_in_time(behind)


def test_server_that_is_away_fails_and_works_when_it_is_back(behind: Database, proxy: Proxy) -> None:
    proxy.turn(Mode.DROP)
    with pytest.raises(DatabaseError, match="could not be used"):
        check_in_time(behind)
    proxy.turn(Mode.PASS)
    check_in_time(behind)


def test_terminated_session_fails_no_later_transaction(behind: Database, postgres_url: str) -> None:
    ours = sqlalchemy.text("SELECT pg_backend_pid()")
    pid = behind.write(lambda connection: connection.execute(ours).scalar_one())
    with open_database(postgres_url) as other:
        other.write(lambda connection: connection.execute(sqlalchemy.text(f"SELECT pg_terminate_backend({pid})")))
    check_in_time(behind)


class TestReadOnly:
    """After a fail-over sessions may be on a server that only reads."""

    @pytest.fixture
    def role(self, postgres_url: str) -> Iterator[str]:
        """A user of the test's own, whose sessions can be made read-only without anybody else noticing."""
        name = f"cpaas_test_{secrets.token_hex(6)}"
        engine = sqlalchemy.create_engine(postgres_url)
        with engine.begin() as connection:
            connection.execute(sqlalchemy.text(f"CREATE ROLE {name} LOGIN SUPERUSER"))
        yield name
        with engine.begin() as connection:
            connection.execute(sqlalchemy.text(f"DROP OWNED BY {name} CASCADE"))
            connection.execute(sqlalchemy.text(f"DROP ROLE {name}"))
        engine.dispose()

    @pytest.mark.parametrize("write_timeout", [None, LIMIT])
    def test_session_on_read_only_server_is_dropped(
        self, postgres_url: str, role: str, write_timeout: float | None
    ) -> None:
        def tell_server(statement: str) -> None:
            with open_database(postgres_url) as other:
                other.write(lambda connection: connection.execute(sqlalchemy.text(statement)))

        url = make_url(postgres_url).set(username=role).render_as_string(hide_password=False)
        with open_database(url, write_timeout=write_timeout) as database:
            database.check()
            tell_server(f"ALTER ROLE {role} SET default_transaction_read_only = on")
            tell_server(f"SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE usename = '{role}'")
            with pytest.raises(DatabaseError, match="read-only"):
                database.check()
            tell_server(f"ALTER ROLE {role} RESET default_transaction_read_only")
            database.check()

    def test_write_goes_over_at_once_to_a_server_that_writes(self, postgres_url: str) -> None:
        with open_database(postgres_url) as database:
            with database.engine.connect() as pooled:
                pooled.execute(sqlalchemy.text("SET SESSION CHARACTERISTICS AS TRANSACTION READ ONLY"))
                pooled.commit()
            database.check()


def test_sqlite_that_is_locked_ends_within_the_limit(sqlite_url: str) -> None:
    with open_database(sqlite_url) as other, open_database(sqlite_url, write_timeout=LIMIT) as database:
        with other.engine.begin() as holding:
            holding.execute(sqlalchemy.text("UPDATE cpaas_identity SET value = value"))
            with pytest.raises(DatabaseError, match="locked"):
                check_in_time(database)
        database.check()
