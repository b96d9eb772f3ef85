"""Several processes that use a store at once, or are killed meanwhile, round after round."""

from __future__ import annotations

from datetime import UTC, datetime

import pytest

from cpaas_provider.database.database import open_database
from cpaas_provider.database.errors import CampaignLockedError
from cpaas_provider.database.leases import LEASE, LeasedState
from cpaas_provider.database.schema.base import metadata
from cpaas_provider.database.schema.campaigns import campaign_values, campaigns
from tests.unit.database.table_versions import is_newest, remove
from tests.unit.database.workers import Worker


def test_processes_that_create_it_at_once_find_one_database(url: str, crowd: list[Worker]) -> None:
    for _ in range(8):
        for worker in crowd:
            worker.send_command("open", url)
        assert [worker.read_reply() for worker in crowd] == ["opened"] * len(crowd)
        with open_database(url) as database:
            assert is_newest(database)
            remove(database)


@pytest.mark.parametrize("left_behind", [False, True])
def test_one_of_many_processes_acquires_the_lease(url: str, crowd: list[Worker], left_behind: bool) -> None:
    for _ in range(5):
        with open_database(url) as database:
            metadata.drop_all(database.engine, [campaign_values, campaigns])
            metadata.create_all(database.engine)
            if left_behind:
                LeasedState(database, "campaign", "somebody dead").acquire(now=datetime(2026, 3, 1, 12, tzinfo=UTC))
        for number, worker in enumerate(crowd):
            worker.send_command("take", url, f"worker {number}")
        assert sorted(worker.read_reply() for worker in crowd) == ["mine", *["taken"] * (len(crowd) - 1)]


def test_killed_holder_leaves_its_values_and_its_lease(url: str) -> None:
    last = 0
    for _ in range(3):
        with Worker() as worker:
            worker.send_command("count", url, "the same try")
            # Somewhere within its writes.
            said = [worker.read_reply() for _ in range(20)] + worker.kill()
        assert int(said[0]) == last + 1
        with open_database(url) as database:
            state = LeasedState(database, "campaign", "next")
            last = state.get("number")
            # What was under way may have arrived; what was acknowledged has.
            assert last - int(said[-1]) in (0, 1)
            with pytest.raises(CampaignLockedError, match="the same try"):
                state.acquire()
    with open_database(url) as database:
        state = LeasedState(database, "campaign", "next")
        state.acquire(now=datetime.now(UTC) + LEASE)
        assert state.get("number") == last


def test_processes_with_two_numbers_of_partitions_register_only_one(url: str, crowd: list[Worker]) -> None:
    with open_database(url):
        for number, worker in enumerate(crowd):
            worker.send_command("register", url, f"{number} of {8 if number % 2 else 6}")
        said = {worker.read_reply() for worker in crowd}
    assert len(said - {"refused"}) == 1, said
