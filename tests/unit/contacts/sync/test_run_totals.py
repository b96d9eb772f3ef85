"""What a run changed is counted in the transactions that record it, so that a killed try loses no count."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from cpaas_provider.contacts.key_map.entries import RowState
from cpaas_provider.contacts.sync.run_totals import RunTotals
from cpaas_provider.database.database import open_database
from tests.unit.contacts.sync.model import AtWrite, Died, Fault, Step, World

ROWS = tuple((f"k{number}", "1", "1") for number in range(1, 13))
ALL = (0, 65_536)


@pytest.fixture
def world(tmp_path: Path) -> Iterator[World]:
    with open_database(f"sqlite:///{tmp_path}/cpaas.db") as database:
        yield World(database, "totals")


@pytest.mark.parametrize(
    "step",
    [
        Step(ROWS, faults=(*[Fault.FINE] * 7, Fault.DIES_BEFORE)),
        Step(ROWS, faults=(*[Fault.FINE] * 7, Fault.DIES_AFTER)),
        Step(ROWS, writes=(*[AtWrite.FINE] * 6, AtWrite.DIES_AFTER)),
        Step(ROWS, writes=(*[AtWrite.FINE] * 6, AtWrite.DIES_BEFORE)),
    ],
    ids=["before a request", "after a request", "after a write", "before a write"],
)
def test_killed_try_has_counted_what_the_map_records(world: World, step: Step) -> None:
    (ended,) = world.run(step)
    assert isinstance(ended.error, Died)
    key_map = world.key_map
    assert key_map is not None
    synced = key_map.counts()[RowState.SYNCED]
    assert 0 < synced < len(ROWS)
    assert RunTotals.read(key_map, ALL, f"run {world.runs}").created == synced
    assert RunTotals.read(key_map, ALL, "another run").created == 0


def test_write_that_is_retried_counts_once(world: World) -> None:
    world.run(Step(ROWS, writes=(*[AtWrite.FINE] * 4, AtWrite.FAILS_AFTER, AtWrite.FAILS_BEFORE)))
    key_map = world.key_map
    assert key_map is not None
    assert RunTotals.read(key_map, ALL, f"run {world.runs}").created == len(ROWS)
