"""The stored state of campaigns and of tasks, and the lease that allows one task to write it."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from datetime import UTC, datetime, timedelta
from typing import Any

from sqlalchemy import Connection, delete, insert, select, update

from cpaas_provider.database.database import Database
from cpaas_provider.database.errors import CampaignChangedError, CampaignLockedError, LeaseLostError
from cpaas_provider.database.schema.campaigns import campaign_values, campaigns

LEASE = timedelta(minutes=5)
"""How long the owner of a campaign keeps the lease after its last write."""

_WRITES_IN_MEMORY = 32
"""The number of writes after which SQLite's cache is emptied. A try writes its journal without reading it again, so
the journal's pages would only fill the cache."""


class LeasedState:
    """The stored state of one campaign, written by one owner at a time.

    ``acquire`` takes a lease, which every ``set`` and ``renew`` extends. No other owner can acquire it meanwhile. An
    owner whose lease expired and was acquired by another can no longer write. Acquiring the lease again ends the
    earlier one, even if the owner is the same, in another process. Reading needs no lease.

    :param campaign: the name of the campaign in the database, at most 200 characters that reveal nothing
    :param owner: describes the task in the errors of tasks that find the campaign locked
    :param clock: returns the current time; the clocks of all workers should differ by less than the lease
    :param is_exclusive: whether the owner keeps the lease for a time after its last write; otherwise another owner may
        acquire it at any time
    """

    def __init__(
        self,
        database: Database,
        campaign: str,
        owner: str,
        *,
        clock: Callable[[], datetime] = lambda: datetime.now(UTC),
        is_exclusive: bool = True,
    ) -> None:
        self._database = database
        self._campaign = campaign
        self._owner = owner
        self._clock = clock
        self._is_exclusive = is_exclusive
        self._fencing_token: int | None = None
        self._writes = 0
        self._row = campaigns.c.campaign == campaign

    def acquire(self, *, now: datetime | None = None) -> None:
        """Acquire the lease.

        :raises CampaignLockedError: when another owner holds it
        :raises DatabaseError: when the database cannot be used
        """
        self._database.write(lambda connection: self.acquire_within(connection, now=now))

    def acquire_within(self, connection: Connection, *, now: datetime | None = None) -> None:
        """Acquire the lease within a transaction. It is held only once the transaction is committed.

        :raises CampaignLockedError: when another owner holds it
        """
        self._fencing_token = self._acquire(connection, now or self._clock())

    def get(self, key: str) -> Any | None:
        """Return the value of a key, ``None`` if there is none.

        :raises DatabaseError: when the database cannot be read
        """
        with self._database.connect() as connection:
            return self._stored(connection, key)

    def locked_by(self) -> str | None:
        """Return the description of the owner that holds the lease; ``None`` if none does.

        :raises DatabaseError: when the database cannot be read
        """
        with self._database.connect() as connection:
            query = select(campaigns.c.owner).where(self._row, campaigns.c.lease_expires_at > self._clock())
            return connection.execute(query).scalar_one_or_none()

    def set(self, key: str, value: Any) -> None:
        """Store JSON durably, and renew the lease, as ``set_all`` does."""
        self.set_all({key: value})

    def set_all(self, values: Mapping[str, Any]) -> None:
        """Store JSON durably by key, in one transaction, and renew the lease.

        :raises LeaseLostError: when this owner does not hold the lease; nothing was stored
        :raises DatabaseError: when the database cannot be written
        """
        texts = _as_texts(values)

        def work(connection: Connection) -> None:
            self._assert_held(connection)
            for key, text in texts.items():
                self._store(connection, key, text)
            self._writes += 1
            if self._writes % _WRITES_IN_MEMORY == 0 and connection.dialect.name == "sqlite":
                connection.exec_driver_sql("PRAGMA shrink_memory")

        self._database.write(work)

    def set_if_unlocked(self, values: Mapping[str, Any], seen: Mapping[str, Any]) -> None:
        """Store JSON in one transaction, if no owner holds the lease. Afterwards no owner holds it either.

        An earlier owner whose lease expired unnoticed can no longer write.

        :param values: the JSON to store, by key
        :param seen: values that the caller read before, by key; they must be unchanged
        :raises CampaignLockedError: when an owner holds the lease; nothing was stored
        :raises CampaignChangedError: when a value in ``seen`` has changed; nothing was stored
        :raises DatabaseError: when the database cannot be used
        """
        texts = _as_texts(values)

        def work(connection: Connection) -> None:
            self._acquire(connection, self._clock())
            if any(self._stored(connection, key) != value for key, value in seen.items()):
                raise CampaignChangedError("The journal of this campaign is no longer as it was read.")
            for key, text in texts.items():
                self._store(connection, key, text)
            connection.execute(update(campaigns).where(self._row).values(owner=None, lease_expires_at=None))

        self._database.write(work)

    def delete(self, key: str) -> None:
        """Remove a key, if it is stored.

        :raises LeaseLostError: when this owner does not hold the lease
        :raises DatabaseError: when the database cannot be written
        """

        def work(connection: Connection) -> None:
            self._assert_held(connection)
            connection.execute(delete(campaign_values).where(*self._row_of(key)))

        self._database.write(work)

    def renew(self) -> None:
        """Extend the lease to its full length from now.

        :raises LeaseLostError: when this owner does not hold it
        :raises DatabaseError: when the database cannot be written
        """
        self._database.write(self._assert_held)

    def release(self) -> None:
        """Give up the lease, so that another owner can acquire it at once. Does nothing if it is not held.

        :raises DatabaseError: when the database cannot be written; the lease then expires
        """
        token, self._fencing_token = self._fencing_token, None
        if token is not None:
            held = update(campaigns).where(self._row, campaigns.c.fencing_token == token)
            self._database.write(lambda connection: connection.execute(held.values(owner=None, lease_expires_at=None)))

    def _stored(self, connection: Connection, key: str) -> Any | None:
        text = connection.execute(select(campaign_values.c.value).where(*self._row_of(key))).scalar_one_or_none()
        return None if text is None else json.loads(text)

    def _store(self, connection: Connection, key: str, text: str) -> None:
        if not connection.execute(update(campaign_values).where(*self._row_of(key)).values(value=text)).rowcount:
            connection.execute(insert(campaign_values).values(campaign=self._campaign, key=key, value=text))

    def _row_of(self, key: str) -> tuple[Any, Any]:
        return campaign_values.c.campaign == self._campaign, campaign_values.c.key == key

    def _acquire(self, connection: Connection, now: datetime) -> int:
        """Record this owner, and return the fencing token, which is higher with each acquisition."""
        row = connection.execute(select(campaigns).where(self._row).with_for_update()).one_or_none()
        lease = {"owner": self._owner, "lease_expires_at": self._expiry(now)}
        if row is None:
            connection.execute(insert(campaigns).values(campaign=self._campaign, fencing_token=1, **lease))
            return 1
        if row.owner not in (None, self._owner) and row.lease_expires_at is not None and row.lease_expires_at > now:
            raise CampaignLockedError(
                f"Another task is working on this campaign: {row.owner}. Nothing was done here. Try again when that "
                f"task ends. If it is dead, its lease ends at {row.lease_expires_at:%Y-%m-%d %H:%M:%S} UTC."
            )
        token: int = row.fencing_token + 1
        connection.execute(update(campaigns).where(self._row).values(fencing_token=token, **lease))
        return token

    def _expiry(self, now: datetime) -> datetime | None:
        return now + LEASE if self._is_exclusive else None

    def _assert_held(self, connection: Connection) -> None:
        """Renew the lease, which locks its row until the transaction ends.

        :raises LeaseLostError: when this owner does not hold the lease
        """
        held = (self._row, campaigns.c.fencing_token == self._fencing_token, campaigns.c.owner == self._owner)
        renewal = update(campaigns).where(*held).values(lease_expires_at=self._expiry(self._clock()))
        if self._fencing_token is None or connection.execute(renewal).rowcount != 1:
            owner = connection.execute(select(campaigns.c.owner).where(self._row)).scalar_one_or_none()
            raise LeaseLostError(
                f"{self._owner} does not hold the lease on this campaign. It is held by {owner or 'no task'}. Nothing "
                "was stored."
            )


def _as_texts(values: Mapping[str, Any]) -> dict[str, str]:
    return {key: json.dumps(value, separators=(",", ":"), allow_nan=False) for key, value in values.items()}
