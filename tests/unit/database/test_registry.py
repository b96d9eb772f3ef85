"""The register of campaigns with a key: one row for connection and key, one number of partitions."""

from __future__ import annotations

import threading
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime, timedelta

import pytest
import sqlalchemy

from cpaas_provider.database.database import Database, open_database
from cpaas_provider.database.errors import (
    CampaignLockedError,
    LeaseLostError,
    OtherServiceError,
    PartitionsChangedError,
)
from cpaas_provider.database.leases import LEASE
from cpaas_provider.database.registry import CampaignKey, OpenCampaign, open_campaign
from cpaas_provider.database.schema.campaigns import keyed_campaigns

URL = "https://service.example.com"
KEY = CampaignKey("cpaas_default", "sms", "spring", URL)
AT = datetime(2026, 3, 1, 12, tzinfo=UTC)


def opened(
    database: Database, key: CampaignKey = KEY, partition: tuple[int, int] = (0, 1), **given: object
) -> OpenCampaign:
    return open_campaign(database, key, partition, str(given.pop("owner", "one")), **given)  # type: ignore[arg-type]


def test_same_key_and_connection_have_the_same_secret_and_state(database: Database) -> None:
    first = opened(database)
    first.state.set("journal", 1)
    first.state.release()
    again = opened(database, owner="another")
    assert (again.secret, again.state.get("journal")) == (first.secret, 1)


@pytest.mark.parametrize(
    "other",
    [
        CampaignKey("second", "sms", "spring", URL),
        CampaignKey("cpaas_default", "whatsapp", "spring", URL),
        CampaignKey("cpaas_default", "sms", "summer", URL),
    ],
)
def test_other_connection_channel_or_key_is_another_campaign(database: Database, other: CampaignKey) -> None:
    first, second = opened(database), opened(database, other)
    first.state.set("journal", 1)
    second.state.set("journal", 2)
    assert (first.state.get("journal"), second.state.get("journal")) == (1, 2)
    assert first.secret != second.secret


def test_parts_of_names_do_not_run_into_each_other() -> None:
    assert CampaignKey("a", "sms", "b c", URL).name != CampaignKey("a b", "sms", "c", URL).name


def test_other_base_url_is_refused_without_taking_the_lease(database: Database) -> None:
    opened(database).state.release()
    with pytest.raises(OtherServiceError):
        opened(database, CampaignKey("cpaas_default", "sms", "spring", "https://other.example.com"))
    opened(database, owner="another")


def test_two_databases_have_different_secrets(sqlite_url: str) -> None:
    with open_database(sqlite_url) as one, open_database(sqlite_url.replace("store.db", "other.db")) as two:
        assert opened(one).secret != opened(two).secret
        assert one.database_id != two.database_id


def test_database_does_not_hold_the_key(database: Database) -> None:
    opened(database, CampaignKey("cpaas_default", "sms", "spring for everybody", URL))
    with database.connect() as connection:
        rows = connection.execute(sqlalchemy.select(keyed_campaigns)).all()
    assert "everybody" not in str(rows)


class TestPartitions:
    def test_other_number_of_partitions_is_refused_naming_both(self, database: Database) -> None:
        first = opened(database, partition=(0, 4))
        first.state.set("journal", 1)
        first.state.release()
        with pytest.raises(PartitionsChangedError, match="started in 4 partitions and cannot continue in 8 partitions"):
            opened(database, partition=(5, 8))

    def test_other_number_of_partitions_is_refused_while_a_task_starts(self, database: Database) -> None:
        opened(database, partition=(0, 4))
        with pytest.raises(CampaignLockedError, match="is starting this campaign in 4 partitions"):
            opened(database, partition=(5, 8), owner="another")

    def test_number_of_partitions_may_change_before_anything_is_stored(self, database: Database) -> None:
        opened(database, partition=(0, 4)).state.release()
        opened(database, partition=(5, 8)).state.set("journal", 1)

    def test_expired_owner_with_the_old_number_of_partitions_stores_nothing(self, database: Database) -> None:
        dead = opened(database, partition=(3, 4), clock=lambda: AT)
        later = AT + LEASE + timedelta(seconds=1)
        opened(database, partition=(0, 8), owner="another", clock=lambda: later)
        with pytest.raises(LeaseLostError):
            dead.state.set("journal", 1)

    def test_concurrent_threads_with_two_numbers_register_only_one(self, url: str) -> None:
        for turn in range(10):
            together = threading.Barrier(4)
            key = CampaignKey("cpaas_default", "sms", f"spring {turn}", URL)

            def attempt(
                part: int, count: int, key: CampaignKey = key, together: threading.Barrier = together
            ) -> int | None:
                with open_database(url) as database:
                    together.wait(30)
                    try:
                        mine = opened(database, key, (part, count), owner=f"{part} of {count}")
                        mine.state.set("journal", 1)
                    except (CampaignLockedError, PartitionsChangedError):
                        return None
                    return count

            with open_database(url), ThreadPoolExecutor(4) as pool:
                waiting = [pool.submit(attempt, part, count) for count in (4, 8) for part in (2, 3)]
                counts = {count for one in waiting if (count := one.result()) is not None}
            assert len(counts) == 1
