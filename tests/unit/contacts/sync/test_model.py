"""Syncs in every order that sources, crashes and the service can bring about, against a model of the list."""

from __future__ import annotations

import itertools
import logging
from collections.abc import Iterator

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from cpaas_provider.contacts.sync import dispatcher as dispatcher_module
from cpaas_provider.database.database import Database, open_database
from tests.unit.contacts.sync.model import AtWrite, Fault, Step, World

_names = itertools.count()
# An example is several runs with a database.
few = settings(max_examples=settings().max_examples // 4, suppress_health_check=list(HealthCheck))

VALUES = st.sampled_from(["1", "2", None])
KEYS = st.sampled_from(["k1", "k2", "k3", "k4", "k5", "k6"])
ROWS = st.lists(st.tuples(KEYS, VALUES, VALUES), max_size=7, unique_by=lambda row: row[0]).map(tuple)
ODD_ROWS = st.lists(st.tuples(st.one_of(KEYS, KEYS, st.none()), VALUES, VALUES), max_size=8).map(tuple)
FAULTS = st.lists(st.sampled_from([Fault.FINE, Fault.FINE, *Fault]), max_size=8).map(tuple)
WRITES = st.lists(st.sampled_from([*[AtWrite.FINE] * 8, *AtWrite]), max_size=10).map(tuple)


def steps(**given: st.SearchStrategy[object]) -> st.SearchStrategy[Step]:
    """Return runs of every kind, but for what is given."""
    return st.builds(
        Step,
        **{
            "rows": st.one_of(ROWS, ROWS, ODD_ROWS),
            "faults": FAULTS,
            "writes": WRITES,
            "partitions": st.sampled_from([1, 1, 1, 2, 3, 4]),
            "mode": st.sampled_from(["upsert"] * 6 + ["insert", "update"]),
            "on_missing": st.sampled_from(["keep", "delete", "clear"]),
            "on_deleted_row": st.sampled_from(["create", "create", "report"]),
            "on_unknown": st.sampled_from(["skip", "fail"]),
            "on_duplicate_key": st.sampled_from(["first", "none"]),
            "retry_rejected": st.booleans(),
            "resync": st.sampled_from([False] * 6 + [True]),
            "breaks_at": st.sampled_from([None] * 8 + [0, 2]),
            "vanishes": st.sampled_from([None] * 6 + [0, 3]),
            "max_duration": st.sampled_from([None] * 6 + [2.0, 4.0]),
            **given,
        },
    )


@pytest.fixture(autouse=True)
def hurried(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setattr(dispatcher_module, "_BUSY_SECONDS", 0.0)
    monkeypatch.setattr(dispatcher_module, "_WRITE_PAUSES", (0.0,) * len(dispatcher_module._WRITE_PAUSES))
    logging.disable(logging.CRITICAL)
    yield
    logging.disable(logging.NOTSET)


@pytest.fixture(scope="module")
def quick_database(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Database]:
    with open_database(f"sqlite:///{tmp_path_factory.mktemp('model') / 'model.db'}") as opened:
        yield opened


def world(database: Database) -> World:
    return World(database, f"model-{next(_names)}")


def play(here: World, script: list[Step]) -> None:
    """Run a script, then the last source again without faults until nothing is left."""
    for step in script:
        here.run(step)
    last = script[-1]
    calm = Step(
        rows=last.rows,
        retry_rejected=True,
        on_missing=last.on_missing if last.rows else "keep",
        on_duplicate_key=last.on_duplicate_key,
    )
    for _ in range(2):
        ended = here.run(calm)
        assert all(end.complete for end in ended), [end.error for end in ended]
    assert not ended[0].requests, "a list in step costs requests"


@few
@given(script=st.lists(steps(), min_size=1, max_size=5))
def test_list_equals_source_after_every_complete_run(quick_database: Database, script: list[Step]) -> None:
    play(world(quick_database), script)


@few
@given(script=st.lists(steps(cursor=st.just(True), on_missing=st.just("keep"), partitions=st.just(1)), max_size=4))
def test_cursor_passes_over_no_row_that_was_not_dealt_with(quick_database: Database, script: list[Step]) -> None:
    here = world(quick_database)
    for step in script:
        here.run(step)
    if script:
        (ended,) = here.run(Step(rows=script[-1].rows, cursor=True, retry_rejected=True))
        assert ended.complete, ended.error


@few
@given(script=st.lists(steps(on_unknown=st.sampled_from(["skip", "create"])), min_size=1, max_size=4))
def test_unknown_creations_are_repeated_only_on_request(quick_database: Database, script: list[Step]) -> None:
    here = world(quick_database)
    for step in script:
        here.run(step)
