"""The register of campaigns with a key: which there are, and in how many partitions each is sent."""

from __future__ import annotations

import json
import secrets
from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, datetime
from hashlib import sha256
from typing import Any

from sqlalchemy import Connection, Row, insert, select, update

from cpaas_provider.database.database import Database
from cpaas_provider.database.errors import CampaignLockedError, OtherServiceError, PartitionsChangedError
from cpaas_provider.database.leases import LeasedState
from cpaas_provider.database.schema import campaign_values, campaigns, keyed_campaigns


@dataclass(frozen=True)
class CampaignKey:
    """What makes a campaign the same in every run: the connection and the author's key.

    :param base_url: where the connection leads now; it must be where it led when the campaign began
    """

    conn_id: str
    key: str
    base_url: str

    @property
    def name(self) -> str:
        """Return its name in the database, which does not show the key and depends on no secret."""
        return sha256(json.dumps(["campaign", self.conn_id, self.key]).encode()).hexdigest()[:40]


@dataclass(frozen=True)
class OpenCampaign:
    """A partition of a campaign, which is ours.

    :param secret: what the hashes of its journal are keyed with
    """

    state: LeasedState
    secret: str


def open_campaign(
    database: Database,
    key: CampaignKey,
    partition: tuple[int, int],
    owner: str,
    *,
    clock: Callable[[], datetime] = lambda: datetime.now(UTC),
) -> OpenCampaign:
    """Register a campaign, or find it, and make one of its partitions ours: all in one transaction.

    Of two that come with different numbers of partitions at the same time one registers its number, and the other is
    refused. As long as no partition has stored anything and none has an owner, the number may change.

    :param partition: which one, from 0, and of how many
    :param owner: who works on it, in words for those who are kept waiting
    :raises PartitionsChangedError: when the campaign was begun in another number of partitions
    :raises OtherServiceError: when it was begun with another base URL
    :raises CampaignLockedError: when this partition has another owner
    :raises DatabaseError: when the database cannot be used
    """
    part, count = partition
    state = LeasedState(database, f"{key.name}/{part}", owner, clock=clock)

    def work(connection: Connection) -> str:
        found = _register(connection, key, count, clock())
        if found.base_url != key.base_url:
            raise OtherServiceError(
                f"This campaign was started when the connection {key.conn_id!r} had another base URL."
            )
        if found.partitions != count:
            _change_partitions(connection, key, found.partitions, count, clock())
        state.acquire_within(connection)
        return str(found.secret)

    return OpenCampaign(state, database.write(work))


def partition_count(database: Database, name: str) -> int | None:
    """Return in how many partitions the campaign of a name is sent; ``None`` where there is none.

    :raises DatabaseError: when the database cannot be read
    """
    with database.connect() as connection:
        query = select(keyed_campaigns.c.partitions).where(keyed_campaigns.c.name == name)
        return connection.execute(query).scalar_one_or_none()


def _register(connection: Connection, key: CampaignKey, count: int, now: datetime) -> Row[Any]:
    """Return the campaign's row, which no other process can read to change it until the transaction ends."""
    query = select(keyed_campaigns).where(keyed_campaigns.c.name == key.name).with_for_update()
    found = connection.execute(query).one_or_none()
    if found is not None:
        return found
    facts = {"conn_id": key.conn_id, "base_url": key.base_url, "secret": secrets.token_hex(16)}
    connection.execute(insert(keyed_campaigns).values(name=key.name, partitions=count, created_at=now, **facts))
    return connection.execute(query).one()


def _change_partitions(connection: Connection, key: CampaignKey, before: int, count: int, now: datetime) -> None:
    """Have a campaign that has not begun go by another number of partitions.

    :raises PartitionsChangedError: when it has begun
    """
    parts = campaigns.c.campaign.startswith(f"{key.name}/", autoescape=True)
    values = campaign_values.c.campaign.startswith(f"{key.name}/", autoescape=True)
    if connection.execute(select(campaign_values.c.key).where(values).limit(1)).first() is not None:
        raise PartitionsChangedError(
            f"This campaign was started in {_partitions(before)} and cannot continue in {_partitions(count)}. Each "
            "partition knows only its own recipients, so some would get the message twice."
        )
    owner = connection.execute(
        select(campaigns.c.owner).where(parts, campaigns.c.lease_expires_at > now).limit(1)
    ).scalar()
    if owner is not None:
        raise CampaignLockedError(
            f"Another task is starting this campaign in {_partitions(before)}: {owner}. This task would use "
            f"{_partitions(count)}. Use the same number in both, or try again when that task has ended."
        )
    # Who had one before, and comes back from the dead, must not write to it.
    connection.execute(
        update(campaigns)
        .where(parts)
        .values(fencing_token=campaigns.c.fencing_token + 1, owner=None, lease_expires_at=None)
    )
    change = update(keyed_campaigns).where(keyed_campaigns.c.name == key.name)
    connection.execute(change.values(partitions=count))


def _partitions(count: int) -> str:
    return f"{count} partition{'' if count == 1 else 's'}"
