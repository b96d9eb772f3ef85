"""Several processes that begin to use a store at once, round after round."""

from __future__ import annotations

from cpaas_provider.store.database import open_store
from tests.unit.store.versions import all_of_them, remove, versions
from tests.unit.store.working import Worker


def test_processes_that_create_it_at_once_find_one_database(url: str, crowd: list[Worker]) -> None:
    for _ in range(8):
        for worker in crowd:
            worker.tell("open", url)
        assert [worker.hear() for worker in crowd] == ["opened"] * len(crowd)
        with open_store(url) as database:
            assert versions(database) == all_of_them()
            remove(database)
