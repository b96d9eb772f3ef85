"""Many rows in few statements."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta, timezone
from typing import Any

import pytest
from sqlalchemy import event, select
from sqlalchemy.dialects import postgresql, sqlite

from cpaas_provider.database.bulk import MAX_ROWS, insert_many, insert_missing
from cpaas_provider.database.database import Database, open_database
from cpaas_provider.database.errors import RejectedDataError
from cpaas_provider.database.schema.delivery import reports

WHEN = datetime(2026, 5, 1, 12, 30, 15, 123456, tzinfo=UTC)


def row(number: int, **others: Any) -> dict[str, Any]:
    return {
        "digest": number.to_bytes(32, "big"),
        "received_at": WHEN + timedelta(seconds=number % 7),
        "conn_id": "shop's",
        "source": "callback",
        "campaign": None if number % 3 else "50 % off (VALUES)",
        "recipient": f"{number}",
        "body": f'{{"said": "Grüße {number}, %s and %(name)s?"}}',
        "received_count": 1,
        **others,
    }


def adding_up(database: Database) -> Any:
    insert = {"sqlite": sqlite.insert, "postgresql": postgresql.insert}[database.engine.dialect.name](reports)
    return insert.on_conflict_do_update(
        index_elements=[reports.c.digest],
        set_={"received_count": reports.c.received_count + insert.excluded.received_count},
    ).returning(reports.c.recipient, reports.c.received_count)


def stored(database: Database) -> list[dict[str, Any]]:
    with database.connect() as connection:
        return [dict(one) for one in connection.execute(select(reports).order_by(reports.c.digest)).mappings()]


@contextmanager
def statements(database: Database) -> Iterator[list[str]]:
    seen: list[str] = []

    def see(connection: Any, cursor: Any, statement: str, *_: Any) -> None:
        if statement.startswith("INSERT"):
            seen.append(statement)

    event.listen(database.engine, "before_cursor_execute", see)
    yield seen
    event.remove(database.engine, "before_cursor_execute", see)


@pytest.mark.parametrize("count", [1, 2, 7, 64, 255, 500, 1201])
def test_every_row_is_stored_as_sqlalchemy_would_store_it(database: Database, count: int) -> None:
    rows = [row(number) for number in range(count)]
    told = database.write(lambda connection: insert_many(connection, adding_up(database), rows))
    assert sorted(told) == sorted((f"{number}", 1) for number in range(count))
    assert stored(database) == rows


@pytest.mark.parametrize(
    "body", ["", "{}", "NULL", '{"a", b}', "back\\slash\\", 'it\'s "quoted"', "a\nb\r\n", "€" * 5000]
)
def test_every_text_is_stored_as_it_is(database: Database, body: str) -> None:
    rows = [row(1, body=body), row(2), row(3, body=body)]
    database.write(lambda connection: insert_many(connection, adding_up(database), rows))
    assert [one["body"] for one in stored(database)] == [body, row(2)["body"], body]


@pytest.mark.parametrize("microsecond", [0, 1, 120_000, 999_999])
@pytest.mark.parametrize("zone", [UTC, timezone(timedelta(hours=-5, minutes=-30))])
def test_every_moment_is_stored_to_the_microsecond(database: Database, microsecond: int, zone: timezone) -> None:
    at = datetime(2026, 5, 1, 23, 30, tzinfo=zone).replace(microsecond=microsecond)
    database.write(lambda connection: insert_many(connection, adding_up(database), [row(1, received_at=at)]))
    assert [one["received_at"] for one in stored(database)] == [at]
    with database.connect() as reading:
        # As text, it is compared with others: each has the same length.
        text = reading.exec_driver_sql("SELECT CAST(received_at AS TEXT) FROM cpaas_reports").scalar_one()
    assert database.engine.dialect.name != "sqlite" or text == at.astimezone(UTC).strftime("%Y-%m-%d %H:%M:%S.%f")


def test_existing_row_is_updated_on_conflict(database: Database) -> None:
    insertion = adding_up(database)
    database.write(lambda connection: insert_many(connection, insertion, [row(1), row(2, received_count=5)]))
    told = database.write(lambda connection: insert_many(connection, insertion, [row(2, received_count=2), row(3)]))
    assert sorted(told) == [("2", 7), ("3", 1)]
    assert [one["received_count"] for one in stored(database)] == [1, 7, 1]


def test_few_statements_carry_many_rows(database: Database) -> None:
    rows = [row(number) for number in range(300)]
    with statements(database) as seen:
        database.write(lambda connection: insert_many(connection, adding_up(database), rows))
    # SQLite: four times 64 rows, and 44.
    assert len(seen) == (5 if database.engine.dialect.name == "sqlite" else 1)


@pytest.mark.parametrize("there", [set(), {0}, {5, 17, 100}, {MAX_ROWS - 1, MAX_ROWS}, set(range(150))])
def test_existing_rows_are_distinguished_from_new_ones_on_sqlite(sqlite_url: str, there: set[int]) -> None:
    ignoring = sqlite.insert(reports).on_conflict_do_nothing(index_elements=[reports.c.digest])
    before, rows = [row(number) for number in sorted(there)], [row(number, received_count=7) for number in range(150)]
    # More lie before and after them.
    others = [row(1000), row(2000)]
    with open_database(sqlite_url) as database:
        database.write(lambda connection: insert_many(connection, ignoring, [others[0], *before, others[1]]))
        told = database.write(lambda connection: insert_missing(connection, ignoring, rows, reports.c.digest))
        assert told == {one["digest"] for one in before}
        assert stored(database) == [*(rows[n] if n not in there else row(n) for n in range(150)), *others]


def test_text_with_half_a_character_is_rejected_with_all_that_came_with_it(database: Database) -> None:
    assert_rejected(database, "half: \ud800")


def test_text_with_nul_is_rejected_by_postgres_with_all_that_came_with_it(postgres_url: str) -> None:
    with open_database(postgres_url) as database:
        assert_rejected(database, "a\0b")


def assert_rejected(database: Database, body: str) -> None:
    with pytest.raises(RejectedDataError):
        database.write(lambda connection: insert_many(connection, adding_up(database), [row(1), row(2, body=body)]))
    assert stored(database) == []


def test_no_rows_return_an_empty_list(database: Database) -> None:
    assert database.write(lambda connection: insert_many(connection, adding_up(database), [])) == []


def test_insertion_with_a_value_of_its_own_is_refused(database: Database) -> None:
    insert = {"sqlite": sqlite.insert, "postgresql": postgresql.insert}[database.engine.dialect.name](reports)
    fixed = insert.on_conflict_do_update(index_elements=[reports.c.digest], set_={"conn_id": "of its own"})
    with pytest.raises(TypeError, match="no values but those of its rows"):
        database.write(lambda connection: insert_many(connection, fixed, [row(1)]))
    assert stored(database) == []
