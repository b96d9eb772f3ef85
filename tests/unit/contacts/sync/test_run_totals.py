"""What a run changed is counted in the transactions that record it, so that a killed try loses no count."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from cpaas_provider.contacts.key_map.entries import RowState
from cpaas_provider.contacts.key_map.hashes import BUCKETS
from cpaas_provider.contacts.sync import run_totals as run_totals_module
from cpaas_provider.contacts.sync.run_totals import RunTotals
from cpaas_provider.database.database import open_database
from tests.unit.contacts.sync.model import AtWrite, Died, Ended, Fault, Step, World

ROWS = tuple((f"k{number}", "1", "1") for number in range(1, 13))


@pytest.fixture
def world(tmp_path: Path) -> Iterator[World]:
    with open_database(f"sqlite:///{tmp_path}/cpaas.db") as database:
        yield World(database, "totals")


def totals(world: World, run: str) -> RunTotals:
    """Return what is stored of a run."""
    key_map = world.key_map
    assert key_map is not None
    # A try that was killed still has the lease.
    lease: Any = SimpleNamespace(key_map=key_map, buckets=(0, BUCKETS), fencing_token=0)
    return RunTotals.read(lease, run)


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
    assert totals(world, f"run {world.runs}").created == synced
    assert totals(world, "another run").created == 0


def test_write_that_is_retried_counts_once(world: World) -> None:
    world.run(Step(ROWS, writes=(*[AtWrite.FINE] * 4, AtWrite.FAILS_AFTER, AtWrite.FAILS_BEFORE)))
    assert totals(world, f"run {world.runs}").created == len(ROWS)


def retried(world: World, step: Step) -> Ended:
    """Run another try of the last run."""
    world.runs -= 1
    (ended,) = world.run(step)
    return ended


def outcomes(ended: Ended) -> Counter[str]:
    """Return the number of lines by outcome, and see that no row has two."""
    rows = Counter(line.number or line.row_id for line in ended.lines)
    assert set(rows.values()) <= {1}, ended.lines
    return Counter(line.outcome.value for line in ended.lines)


@pytest.mark.parametrize("fault", [Fault.DIES_BEFORE, Fault.DIES_AFTER])
def test_retry_after_kills_has_one_line_for_each_row_that_the_run_changed(world: World, fault: Fault) -> None:
    world.run(Step(ROWS))
    changed = (*((key, "2", "1") for key, _, _ in ROWS[:6]), *((f"n{number}", "1", "1") for number in range(6)))
    faults = tuple(Fault.FINE for _ in range(5))
    world.run(Step(changed, on_missing="delete", faults=(*faults, fault)))
    retried(world, Step(changed, on_missing="delete", faults=(*faults, fault)))
    ended = retried(world, Step(changed, on_missing="delete"))
    lines = outcomes(ended)
    assert lines == {"created": 6, "updated": 6, "deleted": 6} or (lines["unknown"] and lines.total() == 18), lines
    assert {line.key for line in ended.lines if line.key} == {key for key, _, _ in changed}
    assert outcomes(retried(world, Step(changed, on_missing="delete"))) == lines
    (calm,) = world.run(Step(changed, on_missing="delete"))
    assert not outcomes(calm)["created"]


def test_deleted_rows_of_many_values_have_one_line_each(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(run_totals_module, "_IDS_EACH", 2)
    world.run(Step(ROWS))
    for source in (ROWS[:4], ROWS[:1]):
        world.run(Step(source, on_missing="delete", faults=(Fault.FINE, Fault.FINE, Fault.DIES_BEFORE)))
        ended = retried(world, Step(source, on_missing="delete"))
        assert outcomes(ended)["deleted"] == ended.report["run"]["deleted"]
        assert ended.report["run"]["deleted"] == (8 if len(source) == 4 else 3)


def test_row_that_a_run_created_and_then_updated_is_created(world: World) -> None:
    world.run(Step(ROWS, faults=(*[Fault.FINE] * 7, Fault.DIES_BEFORE)))
    ended = retried(world, Step(tuple((key, "2", "1") for key, _, _ in ROWS)))
    assert outcomes(ended)["updated"] == 0
    assert ended.report["updated"] > 0
