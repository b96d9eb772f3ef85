"""Cursors by value: which rows are passed over, and what has no safe order."""

from __future__ import annotations

import itertools
import logging
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import UTC, date, datetime, timedelta, timezone
from decimal import Decimal
from types import SimpleNamespace
from typing import Any
from zoneinfo import ZoneInfo

import pytest

from cpaas_provider.contacts.errors import CursorChangedError, CursorError
from cpaas_provider.contacts.mapping.rules import ColumnRule
from cpaas_provider.contacts.sync.cursor import Cursor, cursor_from_json, cursor_to_json
from cpaas_provider.database.database import Database, open_database
from cpaas_provider.sources.lists import ListSource
from tests.unit.contacts.sync import model
from tests.unit.contacts.sync.model import A, Ended, Step, World, sum_of

_names = itertools.count()
NOW = datetime.now(UTC)
AHEAD = timezone(timedelta(hours=5))


@pytest.fixture(scope="module")
def here(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Database]:
    with open_database(f"sqlite:///{tmp_path_factory.mktemp('cursor') / 'store.db'}") as opened:
        yield opened


@pytest.fixture
def world(here: Database, monkeypatch: pytest.MonkeyPatch) -> World:
    monkeypatch.setattr(World, "check_run", lambda *_: None)
    monkeypatch.setattr(World, "check_map", lambda *_: None)
    return World(here, f"cursor-{next(_names)}")


@pytest.fixture
def sync(world: World, monkeypatch: pytest.MonkeyPatch) -> Any:
    def run(*values: Any) -> Ended:
        rows = [{"key": f"k{number}", "a": str(value), "b": "1", "v": value} for number, value in enumerate(values)]
        monkeypatch.setattr(World, "source_rows", lambda *_: rows)
        (ended,) = world.run(Step((), cursor=True))
        if ended.report:
            assert sum_of(ended.report) == ended.report["rows"] + ended.report["missing"]
        return ended

    return run


@pytest.mark.parametrize("value", [7, "7", "2026-01-31", "2026-01-31T10:00:00Z", date(2026, 1, 31), NOW])
def test_new_row_with_the_value_of_the_stored_cursor_is_synced(sync: Any, value: Any) -> None:
    """As rows of one transaction have it, of which the run before saw only some."""
    assert sync(value).report["created"] == 1
    ended = sync(value, value)
    assert (ended.report["created"], ended.report["unchanged"], ended.report["before_cursor"]) == (1, 1, 0)


@pytest.mark.parametrize(
    ("first", "second"),
    [
        ("9", "10"),
        ("-2", "-1"),
        ("9.5", "10.25"),
        (9, 10),
        (Decimal("9.5"), 9.75),
        ("2026-01-31", "2026-02-01"),
        ("2026-01-31T10:00:00", "2026-01-31T10:00:00.5"),
        ("2026-01-31 23:00:00+00:00", "2026-01-31 19:30:00-05:00"),
        ("2026-01-31T10:00:00Z", "2026-01-31T10:00:01 UTC"),
        (date(2026, 1, 31), date(2026, 2, 1)),
        (datetime(2026, 1, 31, 23, tzinfo=AHEAD), datetime(2026, 1, 31, 18, 30, tzinfo=UTC)),
    ],
)
def test_larger_value_is_never_passed_over(sync: Any, first: Any, second: Any) -> None:
    assert sync(first).report["created"] == 1
    ended = sync(first, second)
    assert (ended.report["created"], ended.report["before_cursor"]) == (1, 0)
    ended = sync(first, second)
    assert (ended.report["unchanged"], ended.report["before_cursor"]) == (1, 1)


def test_dates_in_the_format_of_a_rule_are_compared_as_dates(
    world: World, sync: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    world.list.types["b"] = "DATE"
    rules = {**model.RULES, "B": ColumnRule(source="v", date_format="%d.%m.%Y")}
    monkeypatch.setattr(model, "RULES", rules)
    sync("31.01.2026")
    ended = sync("31.01.2026", "01.02.2026")
    assert (ended.report["created"], ended.report["before_cursor"]) == (1, 0)
    assert sync("31.01.2026", "01.02.2026").report["before_cursor"] == 1


@pytest.mark.parametrize(
    "text",
    [
        "31.01.2026",
        "v10",
        "1,5",
        "1e5",
        "2026-02-30",
        "01/02/2026",
        "\uff12\uff10\uff12\uff16",
        "2026-01-31T25:00:00",
        "0x10",
    ],
)
def test_other_text_is_refused_before_the_first_request(sync: Any, text: str) -> None:
    ended = sync("1", text)
    assert isinstance(ended.error, CursorError)
    assert "Row 2 of the source has text in the cursor column 'v'" in str(ended.error)
    assert text not in str(ended.error)
    assert "Nothing was sent." in str(ended.error)
    assert ended.requests == []


@pytest.mark.parametrize(
    "mixed",
    [
        ("1", "2026-01-31"),
        (date(2026, 1, 31), datetime(2026, 1, 31)),
        ("2026-01-31T10:00:00", "2026-01-31T10:00:00Z"),
    ],
)
def test_mixed_kinds_are_refused_before_the_first_request(sync: Any, mixed: tuple[Any, Any]) -> None:
    ended = sync(*mixed)
    assert isinstance(ended.error, CursorError)
    assert "have no common order" in str(ended.error)
    assert ended.requests == []


@pytest.mark.parametrize("missing", [None, "", " ", "None", "nan", "NaT"])
def test_missing_value_makes_an_invalid_row(sync: Any, missing: Any) -> None:
    ended = sync("1", missing)
    assert ended.error is None
    assert ended.report["invalid_rows"] == 1


def test_column_of_another_kind_than_the_stored_cursor_is_read_whole_by_the_next_try(sync: Any) -> None:
    sync("17")
    ended = sync("2026-01-31")
    assert isinstance(ended.error, CursorChangedError)
    assert not ended.error.permanent
    assert sync("2026-01-31").report["updated"] == 1


WRITTEN: dict[str, Callable[[datetime], Any]] = {
    "time": lambda moment: moment,
    "date": lambda moment: moment.date(),
    "text of a time": lambda moment: moment.isoformat(),
    "text of a date": lambda moment: moment.date().isoformat(),
}


@pytest.mark.parametrize("written", WRITTEN)
@pytest.mark.parametrize("ahead", [timedelta(days=2), timedelta(days=700_000)])
def test_value_in_the_future_is_synced_and_hides_no_later_row(
    sync: Any, written: str, ahead: timedelta, caplog: pytest.LogCaptureFixture
) -> None:
    now, future = WRITTEN[written](NOW), WRITTEN[written](NOW + ahead)
    with caplog.at_level(logging.WARNING):
        ended = sync(now, future)
    assert (ended.report["created"], ended.report["future_cursor"]) == (2, 1)
    assert "1 row of the source have a future value in the cursor column 'v'" in caplog.text
    # A row that is written after that run.
    again = sync(now, future, now)
    assert (again.report["created"], again.report["future_cursor"]) == (1, 1)


def test_clock_that_is_a_minute_ahead_is_not_in_the_future(sync: Any) -> None:
    assert sync(datetime.now(UTC) + timedelta(minutes=1)).report["future_cursor"] == 0


def test_stored_cursor_in_the_future_is_not_used(world: World, sync: Any) -> None:
    sync(date(2026, 1, 31))
    key_map = world.key_map
    assert key_map is not None
    lease = key_map.lease("a task")
    lease.write([], {"cursor": {**key_map.value("cursor"), "value": {"date": "2999-01-01"}}})
    lease.release()
    assert sync(date(2026, 1, 31), date(2026, 2, 1)).report["created"] == 1


@pytest.mark.parametrize("older", ["9", "31.01.2026", {"text": "31.01.2026"}])
def test_text_that_an_earlier_release_stored_leads_to_a_full_read(world: World, sync: Any, older: Any) -> None:
    sync("8")
    key_map = world.key_map
    assert key_map is not None
    lease = key_map.lease("a task")
    lease.write([], {"cursor": {**key_map.value("cursor"), "value": older}})
    lease.release()
    ended = sync("8", "10")
    assert (ended.report["created"], ended.report["before_cursor"]) == (1, 0)


@pytest.mark.parametrize(
    "value",
    [
        17,
        1.5,
        Decimal("0.1"),
        date(2026, 1, 31),
        datetime(2026, 1, 31, 5, tzinfo=AHEAD),
        "17",
        "2026-01-31",
        "2026-01-31T10:00:00+01:00",
    ],
)
def test_cursor_is_read_as_it_was_stored(value: Any) -> None:
    assert cursor_from_json(cursor_to_json(value)) == value


@pytest.mark.parametrize(
    ("stored", "date_format", "parameter"),
    [
        (None, None, None),
        (17, None, 17),
        ("17", None, None),
        (date(2026, 1, 31), None, date(2026, 1, 31)),
        ("2026-01-31", None, "2026-01-31"),
        ("2026-01-31", "%Y-%m-%d", "2026-01-31"),
        ("31.01.2026", "%d.%m.%Y", None),
        # The days come first, so the letters have another order.
        ("2026-05-04", "%Y-%d-%m", None),
        ("2026-01-31T10:00:00", None, "2026-01-31"),
        ("2026-01-31 10:00:00.5", None, "2026-01-31"),
        ("2026-01-31T10:00:00Z", None, "2026-01-30"),
        ("2026-01-31T05:00:00+14:00", None, "2026-01-29"),
        ("0001-01-01T00:00:00Z", None, None),
    ],
)
def test_query_gets_only_a_cursor_that_its_database_compares_alike(
    stored: Any, date_format: str | None, parameter: Any
) -> None:
    assert Cursor("v", stored, date_format).sql_parameter == parameter


def test_times_of_a_zone_whose_clock_goes_back_are_compared_by_their_moment() -> None:
    london = ZoneInfo("Europe/London")
    cursor = Cursor("v", datetime(2025, 10, 26, 1, 30, tzinfo=london))
    assert cursor.is_new({"v": datetime(2025, 10, 26, 1, 10, tzinfo=london, fold=1)})
    assert cursor.is_new({"v": datetime(2025, 10, 26, 1, 50, tzinfo=london)})
    assert cursor_to_json(cursor.reached) == {"datetime": "2025-10-26T01:10:00+00:00"}


def test_invalid_row_below_the_cursor_stays_counted_after_a_run_without_one(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    good = [{"key": f"k{number}", "a": "1", "b": "1", "v": number} for number in range(3)]
    monkeypatch.setattr(World, "source_rows", lambda *_: [{**good[0], "key": " "}, *good])

    def causes(**options: Any) -> Any:
        (ended,) = world.run(Step((), max_failure_ratio=1.0, **options))
        return ended.report["incomplete_because"]

    assert causes(cursor=True) == {"invalid_rows": 1}
    assert causes(cursor=True) == {"failed_before_cursor": 1}
    assert causes() == {"invalid_rows": 1}
    assert causes(cursor=True) == {"failed_before_cursor": 1}


def test_rows_below_the_cursor_are_read_once_a_column_has_another_type(sync: Any, world: World) -> None:
    sync(1, 2)
    world.list.types[A] = "NUMBER"
    ended = sync(1, 2)
    assert (ended.report["updated"], ended.report["before_cursor"]) == (2, 0)
    assert sync(1, 2).report["before_cursor"] == 1


def test_rows_below_the_cursor_get_a_column_that_the_source_has_later(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    class ListWithColumns(ListSource):
        @contextmanager
        def open(self) -> Iterator[Any]:
            with super().open() as table:
                yield SimpleNamespace(columns=tuple(next(iter(self.items))), rows=table.rows)

    def sync(*columns: str) -> Ended:
        rows = [{"key": f"k{number}", "v": number, **dict.fromkeys(columns, "1")} for number in range(3)]
        monkeypatch.setattr(World, "source_rows", lambda *_: rows)
        (ended,) = world.run(Step((), cursor=True))
        return ended

    # Without a mapping, the columns are those that source and list share.
    monkeypatch.setattr(model, "RULES", {})
    monkeypatch.setattr(model, "ListSource", ListWithColumns)
    assert sync("a").report["created"] == 3
    ended = sync("a", "b")
    assert isinstance(ended.error, CursorChangedError)
    assert "The sync fills 'B' now" in str(ended.error)
    assert ended.requests == []
    assert sync("a", "b").report["updated"] == 3
    assert sync("a", "b").report["before_cursor"] == 2
