"""The list is the source, whatever is killed while it is synced: nothing twice, nothing lost but what is named."""

from __future__ import annotations

import os
import random
from pathlib import Path
from typing import Any

import pytest

from tests.system.killing_contacts.oracle import cells_of, violations
from tests.system.killing_contacts.rounds import Killing
from tests.system.killing_contacts.sources import REFUSED, Contact
from tests.unit.database.conftest import postgres_url as postgres_url

SEED = 11


@pytest.fixture(params=["sqlite", "postgres"])
def url(request: pytest.FixtureRequest) -> str | None:
    """Where the key maps are; ``None`` for a file in Airflow's home."""
    return request.getfixturevalue("postgres_url") if request.param == "postgres" else None


@pytest.mark.parametrize("url", ["postgres"], indirect=True)
def test_sample_of_kills_leaves_the_list_equal_to_the_source(url: str | None, tmp_path: Path) -> None:
    with Killing(tmp_path, SEED, url) as killing:
        killing.round("parted", size=600, kills=3, foul=True)
        killing.move_to_row_service()
        killing.round("whole", size=500, kills=2, foul=True, upserts=True)
    assert killing.airflow.remaining() == []
    assert not killing.outcome.wrongs, "\n".join(killing.outcome.wrongs)
    assert killing.outcome.died >= 2


@pytest.mark.skipif(not os.environ.get("TORTURE"), reason="long: make torture")
@pytest.mark.timeout(3_600)
@pytest.mark.parametrize("readings", [False, True])
def test_100_kills_leave_the_list_equal_to_the_source(
    url: str | None, readings: bool, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    chance = random.Random()
    with Killing(tmp_path, SEED, url, readings=readings) as killing:
        while killing.outcome.died < 50 and not killing.outcome.wrongs:
            name, foul, upserts = chance.choice(("whole", "parted")), chance.random() < 0.5, chance.random() < 0.5
            killing.round(name, size=5_000, kills=12, foul=foul, upserts=upserts)
    with capsys.disabled():
        print(f"\n{killing.outcome}")
    assert not killing.outcome.wrongs, "\n".join(killing.outcome.wrongs)


ADA, BO = Contact("1", "Ada", "234", "gold", 1), Contact("2", "Bo", "235", "basic", 2)


@pytest.mark.parametrize(
    ("listed", "unknown", "seen"),
    [
        ({"a": ADA, "b": BO}, (), None),
        ({"a": ADA}, ("Bo",), None),
        ({"a": ADA, "b": BO}, ("Bo",), None),
        ({"a": ADA}, (), "not in the list"),
        ({"a": ADA, "b": BO, "c": BO}, ("Bo",), "more than once"),
        ({"a": ADA, "b": Contact("2", "Bo", "235", "gold", 2)}, (), "other cells"),
        ({"a": ADA, "b": BO}, ("Cy",), None),
        ({"a": ADA, "b": BO, "c": Contact("3", "Cy", "236", "gold", 3)}, (), "gone from the source"),
    ],
)
def test_oracle_reports_a_list_that_differs_from_the_source(listed: Any, unknown: Any, seen: str | None) -> None:
    found = violations([ADA, BO], {row_id: cells_of(one) for row_id, one in listed.items()}, unknown)
    assert found == [] if seen is None else any(seen in wrong for wrong in found)


def test_oracle_lets_rejected_contacts_differ() -> None:
    refused = Contact("2", "Bo", "235", REFUSED, 2)
    assert violations([ADA, refused], {"a": cells_of(ADA)}, ()) == []
    assert violations([ADA, refused], {"a": cells_of(ADA), "b": cells_of(BO)}, ()) == []
    assert violations([ADA, refused], {"a": cells_of(ADA), "b": cells_of(BO), "c": cells_of(BO)}, ())
