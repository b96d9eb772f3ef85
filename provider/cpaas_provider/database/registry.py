"""The register of campaigns with an idempotency key, and of the number of partitions that each is sent in."""

from __future__ import annotations

import json
import secrets
from collections.abc import Callable
from datetime import UTC, datetime
from hashlib import sha256
from typing import Any

from msgspec import Struct
from sqlalchemy import Connection, Row, insert, select, update

from cpaas_provider.database.database import Database
from cpaas_provider.database.errors import CampaignLockedError, OtherServiceError, PartitionsChangedError
from cpaas_provider.database.leases import LeasedState
from cpaas_provider.database.schema.campaigns import campaign_values, campaigns, keyed_campaigns


class CampaignKey(Struct, frozen=True):
    """Identifies a campaign in every run: by the connection, the channel and the author's ``idempotency_key``.

    :param channel: ``sms``, ``whatsapp`` or ``email``; a campaign on another channel is another one
    :param key: the author's key
    :param base_url: the connection's base URL now; it must be the same as when the campaign was started
    """

    conn_id: str
    channel: str
    key: str
    base_url: str

    @property
    def name(self) -> str:
        """Return the campaign's name in the database, which does not reveal the key and depends on no secret.

        One connection may have its id in other letters: Airflow ignores their case in environment variables.
        """
        return sha256(json.dumps(["campaign", self.conn_id.lower(), self.channel, self.key]).encode()).hexdigest()[:40]


class OpenCampaign(Struct, frozen=True):
    """A partition of a campaign whose lease this process holds.

    :param secret: the key of the hashes in the campaign's journal
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
    """Register a campaign if it is new, and acquire the lease on one of its partitions, in one transaction.

    If two tasks register the same campaign with different numbers of partitions at once, one of them is refused. The
    number may change as long as no partition has stored anything and none has an owner.

    :param partition: the index of the partition, from 0, and the number of partitions
    :param owner: describes the task in the errors of tasks that find the campaign locked
    :raises PartitionsChangedError: when the campaign was started with another number of partitions
    :raises OtherServiceError: when it was started with another base URL
    :raises CampaignLockedError: when this partition has another owner
    :raises DatabaseError: when the database cannot be used
    """
    index, count = partition
    state = LeasedState(database, f"{key.name}/{index}", owner, clock=clock)

    def work(connection: Connection) -> str:
        campaign = _register(connection, key, count, clock())
        if campaign.base_url != key.base_url:
            raise OtherServiceError(
                f"This campaign was started when the connection {key.conn_id!r} had another base URL."
            )
        if campaign.partitions != count:
            _change_partitions(connection, key, campaign.partitions, count, clock())
        state.acquire_within(connection)
        return str(campaign.secret)

    return OpenCampaign(state, database.write(work))


def partition_count(database: Database, name: str) -> int | None:
    """Return the number of partitions of a campaign, ``None`` if the campaign is not registered.

    :param name: ``CampaignKey.name``
    :raises DatabaseError: when the database cannot be read
    """
    with database.connect() as connection:
        query = select(keyed_campaigns.c.partitions).where(keyed_campaigns.c.name == name)
        return connection.execute(query).scalar_one_or_none()


def _register(connection: Connection, key: CampaignKey, count: int, now: datetime) -> Row[Any]:
    """Return the campaign's row, locked until the transaction ends. Insert it if there is none."""
    query = select(keyed_campaigns).where(keyed_campaigns.c.name == key.name).with_for_update()
    row = connection.execute(query).one_or_none()
    if row is not None:
        return row
    values = {"conn_id": key.conn_id, "base_url": key.base_url, "secret": secrets.token_hex(16)}
    connection.execute(insert(keyed_campaigns).values(name=key.name, partitions=count, created_at=now, **values))
    return connection.execute(query).one()


def _change_partitions(connection: Connection, key: CampaignKey, before: int, count: int, now: datetime) -> None:
    """Change the number of partitions of a campaign that has stored nothing yet.

    :raises PartitionsChangedError: when a partition has stored something
    :raises CampaignLockedError: when a partition has an owner
    """
    partitions = campaigns.c.campaign.startswith(f"{key.name}/", autoescape=True)
    values = campaign_values.c.campaign.startswith(f"{key.name}/", autoescape=True)
    if connection.execute(select(campaign_values.c.key).where(values).limit(1)).first() is not None:
        raise PartitionsChangedError(
            f"This campaign was started in {_partitions(before)} and cannot continue in {_partitions(count)}. Each "
            "partition knows only its own recipients, so some would get the message twice."
        )
    leased = select(campaigns.c.owner).where(partitions, campaigns.c.lease_expires_at > now).limit(1)
    if (owner := connection.execute(leased).scalar()) is not None:
        raise CampaignLockedError(
            f"Another task is starting this campaign in {_partitions(before)}: {owner}. This task would use "
            f"{_partitions(count)}. Use the same number in both, or try again when that task has ended."
        )
    # An earlier owner whose process stalled must not write any more, so its fencing token becomes stale.
    freed = {"fencing_token": campaigns.c.fencing_token + 1, "owner": None, "lease_expires_at": None}
    connection.execute(update(campaigns).where(partitions).values(freed))
    connection.execute(update(keyed_campaigns).where(keyed_campaigns.c.name == key.name).values(partitions=count))


def _partitions(count: int) -> str:
    return f"{count} partition{'' if count == 1 else 's'}"
