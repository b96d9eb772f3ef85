"""Syncs against the row service: whatever it answers, the list equals the source or the report names what differs."""

from __future__ import annotations

import itertools
import logging
from collections.abc import Callable, Iterator

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from cpaas_provider.contacts.sync import dispatcher as dispatcher_module
from cpaas_provider.database.database import Database, open_database
from tests.row_service import FAULTS, READINGS, DrawnFaults, RowService, Switches
from tests.unit.contacts.sync.model import AtWrite
from tests.unit.contacts.sync.row_world import BROKEN, REFUSED, RowWorld, Version

_names = itertools.count()
# An example is several runs over HTTP, with a database.
few = settings(max_examples=settings().max_examples // 4, suppress_health_check=list(HealthCheck))

Rows = tuple[tuple[str | None, ...], ...]
KEYS = [f"k{number}" for number in range(1, 7)]
_NAMES = ["Ann", "Bob", None]
_CELLS = (
    st.sampled_from(_NAMES),
    st.sampled_from(["1", "2.5", None]),
    st.sampled_from(["2026-01-31", "2025-12-01", None]),
    st.sampled_from(["+2348031234567", "2348031234568", None]),
    st.sampled_from(["red,blue", "blue", None]),
)
_REFUSED = (st.sampled_from([*_NAMES, REFUSED]), *_CELLS[1:])
_BROKEN = (st.sampled_from([*_NAMES, BROKEN]), *_CELLS[1:])
_INVALID = (
    st.sampled_from([*_NAMES, *_NAMES, REFUSED]),
    st.sampled_from(["1", "2.5", None, "x"]),
    st.sampled_from(["2026-01-31", "2025-12-01", None, "31.02.2026"]),
    st.sampled_from(["+2348031234567", None, "abc"]),
    _CELLS[4],
)


def _rows(*cells: st.SearchStrategy[str | None]) -> st.SearchStrategy[Rows]:
    row = st.tuples(st.sampled_from(KEYS), *cells)
    return st.lists(row, max_size=6, unique_by=lambda row: row[0]).map(tuple)


def _odd_keys(*cells: st.SearchStrategy[str | None]) -> st.SearchStrategy[Rows]:
    return st.lists(st.tuples(st.sampled_from([*KEYS, None]), *cells), max_size=6).map(tuple)


_KINDS: tuple[tuple[Callable[..., st.SearchStrategy[Rows]], tuple[st.SearchStrategy[str | None], ...]], ...] = (
    *((_rows, cells) for cells in (_CELLS, _CELLS, _CELLS, _REFUSED, _REFUSED, _BROKEN, _INVALID)),
    (_odd_keys, _CELLS),
    (_odd_keys, _INVALID),
)


_ORDERS = ((0, 1), (0, 1, 0), (0, 0, 1), (0, 1, 1, 0))
"""Which version of the source each run has: forward, and back to what the list once had."""


@st.composite
def sources(draw: st.DrawFn) -> list[Rows]:
    """Return two versions of a source: the second has some rows of the first, some with another cell, and new ones."""
    rows, cells = draw(st.sampled_from(_KINDS))
    first = draw(rows(*cells))
    second = []
    for row in first:
        change = draw(st.integers(-2, len(cells)))
        if change > 0:
            second.append((*row[:change], draw(cells[change - 1]), *row[change + 1 :]))
        elif change < 0:
            second.append(row)
    taken = {row[0] for row in second}
    return [first, (*second, *(row for row in draw(rows(*cells)) if row[0] not in taken))]


#: Without the readings that concern other operations, or leave nothing to sync with.
PAIRS = [
    (name, reading)
    for name, readings in READINGS.items()
    if name not in ("table_read", "auth_status", "auth_body", "unknown_column")
    for reading in readings
]
SWITCHES = st.lists(st.sampled_from(PAIRS), max_size=6).map(lambda pairs: Switches(**dict(pairs)))
DRAWN_FAULTS = st.builds(
    DrawnFaults,
    st.integers(0, 999),
    share=st.sampled_from([0.1, 0.3, 0.6, 1.0]),
    kinds=st.lists(st.sampled_from(FAULTS), min_size=1, max_size=4),
    methods=st.sampled_from([("GET", "POST", "PATCH", "DELETE"), ("POST", "PATCH", "DELETE"), ("PATCH", "DELETE")]),
    at_most=st.sampled_from([1, 2, 4]),
)


def scripts(**fixed: st.SearchStrategy[object]) -> st.SearchStrategy[list[Version]]:
    """Return runs of every kind over two versions of a source, apart from what is fixed."""
    return st.tuples(sources(), st.sampled_from(_ORDERS)).flatmap(
        lambda drawn: st.tuples(*(_versions(rows=st.just(drawn[0][number]), **fixed) for number in drawn[1])).map(list)
    )


def _versions(**fixed: st.SearchStrategy[object]) -> st.SearchStrategy[Version]:
    return st.builds(
        Version,
        **{
            "faults": st.one_of(st.none(), DRAWN_FAULTS),
            "dies": st.one_of(st.none(), st.none(), st.tuples(st.integers(1, 8), st.sampled_from(["before", "after"]))),
            "writes": st.lists(st.sampled_from([*[AtWrite.FINE] * 10, *AtWrite]), max_size=6).map(tuple),
            "partitions": st.sampled_from([1, 1, 1, 2, 3]),
            "mode": st.sampled_from(["upsert"] * 6 + ["insert", "update"]),
            "on_missing": st.sampled_from(["keep", "delete", "clear"]),
            "on_deleted_row": st.sampled_from(["create", "create", "report"]),
            "on_unknown": st.sampled_from(["skip", "fail"]),
            "on_duplicate_key": st.sampled_from(["first", "none"]),
            "retry_rejected": st.booleans(),
            "resync": st.sampled_from([False] * 5 + [True]),
            "upsert": st.sampled_from([None] * 4 + [0, 2]),
            "vanishes": st.sampled_from([None] * 3 + [0, 3]),
            "retyped": st.sampled_from([False] * 6 + [True]),
            **fixed,
        },
    )


CALM = {
    "faults": st.none(),
    "dies": st.none(),
    "writes": st.just(()),
    "upsert": st.none(),
    "mode": st.just("upsert"),
}


@pytest.fixture(autouse=True)
def hurried(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setattr(dispatcher_module, "_BUSY_SECONDS", 0.0)
    monkeypatch.setattr(dispatcher_module, "_WRITE_PAUSES", (0.0,) * len(dispatcher_module._WRITE_PAUSES))
    logging.disable(logging.CRITICAL)
    yield
    logging.disable(logging.NOTSET)


@pytest.fixture(scope="module")
def service() -> Iterator[RowService]:
    with RowService(slow_seconds=0.001) as running:
        yield running


@pytest.fixture(scope="module")
def database(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Database]:
    with open_database(f"sqlite:///{tmp_path_factory.mktemp('rows') / 'rows.db'}") as opened:
        yield opened


def world(service: RowService, database: Database, switches: Switches, max_concurrency: int = 1) -> RowWorld:
    row_updates = "whole" if switches.patch_omitted == "clear" else "partial"
    name = f"rows-{next(_names)}"
    return RowWorld(service, database, name, switches, row_updates=row_updates, max_concurrency=max_concurrency)


@few
@given(switches=SWITCHES, script=scripts(**CALM))
def test_list_equals_source_with_each_reading(
    service: RowService, database: Database, switches: Switches, script: list[Version]
) -> None:
    world(service, database, switches).play(script)


@few
@given(switches=SWITCHES, script=scripts(), concurrency=st.sampled_from([1, 1, 2]))
def test_list_equals_source_over_faults_and_kills(
    service: RowService, database: Database, switches: Switches, script: list[Version], concurrency: int
) -> None:
    world(service, database, switches, concurrency).play(script)
