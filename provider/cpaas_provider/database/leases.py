"""A campaign that happens once: what is kept for it, and who may write that now."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from datetime import UTC, datetime, timedelta
from typing import Any

from sqlalchemy import Connection, delete, insert, select, update

from cpaas_provider.database.database import Database
from cpaas_provider.database.errors import CampaignChangedError, CampaignLockedError, LeaseLostError
from cpaas_provider.database.schema import campaign_values, campaigns

LEASE = timedelta(minutes=5)
"""How long a campaign stays its owner's after the last it wrote."""

_WRITES_IN_MEMORY = 32
"""After how many writes SQLite gives back the memory of its cache. A journal is written once and not read again in the
same try, so its pages would only fill the cache."""


class LeasedState:
    """What is kept for one campaign, written by one owner at a time.

    ``acquire`` makes it ours for the length of a lease, which every ``set`` and ``renew`` prolongs. No other owner can
    acquire it meanwhile. An owner that was slower than its lease and lost it can no longer write. Acquiring it again,
    also as the same owner in another process, ends the earlier lease. Reading needs no lease.

    :param campaign: its key, at most 200 characters that say nothing
    :param owner: who works on it, in words for those who are kept waiting
    :param clock: what time it is; the clocks of all workers should agree to within the lease
    """

    def __init__(
        self,
        database: Database,
        campaign: str,
        owner: str,
        *,
        clock: Callable[[], datetime] = lambda: datetime.now(UTC),
    ) -> None:
        self._database = database
        self._campaign = campaign
        self._owner = owner
        self._clock = clock
        self._fencing_token: int | None = None
        self._writes = 0
        self._row = campaigns.c.campaign == campaign

    def acquire(self, *, now: datetime | None = None) -> None:
        """Make the campaign ours.

        :raises CampaignLockedError: when it is another's
        :raises DatabaseError: when the database cannot be used
        """
        self._database.write(lambda connection: self.acquire_within(connection, now=now))

    def acquire_within(self, connection: Connection, *, now: datetime | None = None) -> None:
        """Make the campaign ours as part of a transaction; should that not come to its end, it is not ours.

        :raises CampaignLockedError: when it is another's
        """
        self._fencing_token = self._acquire(connection, now or self._clock())

    def get(self, key: str) -> Any | None:
        """Return what is stored, or ``None``.

        :raises DatabaseError: when the database cannot be read
        """
        with self._database.connect() as connection:
            return self._stored(connection, key)

    def locked_by(self) -> str | None:
        """Return the owner of the campaign's lease, in words; ``None`` when there is none.

        :raises DatabaseError: when the database cannot be read
        """
        with self._database.connect() as connection:
            query = select(campaigns.c.owner).where(self._row, campaigns.c.lease_expires_at > self._clock())
            return connection.execute(query).scalar_one_or_none()

    def set(self, key: str, value: Any) -> None:
        """Store JSON for good, before returning, and renew the lease.

        :raises LeaseLostError: when the campaign is not ours; nothing was stored
        :raises DatabaseError: when the database cannot be written
        """
        text = json.dumps(value, separators=(",", ":"), allow_nan=False)

        def work(connection: Connection) -> None:
            self._assert_held(connection)
            self._store(connection, key, text)
            self._writes += 1
            if self._writes % _WRITES_IN_MEMORY == 0 and connection.dialect.name == "sqlite":
                connection.exec_driver_sql("PRAGMA shrink_memory")

        self._database.write(work)

    def set_if_unlocked(self, values: Mapping[str, Any], seen: Mapping[str, Any]) -> None:
        """Store JSON in one transaction in which the campaign has no owner, and leave it without one.

        Who worked on it before, and whose lease ended without his knowledge, can no longer write.

        :param seen: what was read under the keys that tell whether anything has changed
        :raises CampaignLockedError: when the campaign has an owner; nothing was stored
        :raises CampaignChangedError: when something else stands under one of those keys; nothing was stored
        :raises DatabaseError: when the database cannot be used
        """
        texts = {key: json.dumps(value, separators=(",", ":"), allow_nan=False) for key, value in values.items()}

        def work(connection: Connection) -> None:
            self._acquire(connection, self._clock())
            if any(self._stored(connection, key) != value for key, value in seen.items()):
                raise CampaignChangedError("The journal of this campaign is no longer as it was read.")
            for key, text in texts.items():
                self._store(connection, key, text)
            connection.execute(update(campaigns).where(self._row).values(owner=None, lease_expires_at=None))

        self._database.write(work)

    def delete(self, key: str) -> None:
        """Remove what is stored under a key; does nothing where nothing is.

        :raises LeaseLostError: when the campaign is not ours
        :raises DatabaseError: when the database cannot be written
        """

        def work(connection: Connection) -> None:
            self._assert_held(connection)
            connection.execute(delete(campaign_values).where(*self._row_of(key)))

        self._database.write(work)

    def renew(self) -> None:
        """Keep the campaign for another lease from now.

        :raises LeaseLostError: when it is not ours
        :raises DatabaseError: when the database cannot be written
        """
        self._database.write(self._assert_held)

    def release(self) -> None:
        """Let others take the campaign at once. Does nothing when it is not ours.

        :raises DatabaseError: when the database cannot be written; the lease then ends by itself
        """
        token, self._fencing_token = self._fencing_token, None
        ours = update(campaigns).where(self._row, campaigns.c.fencing_token == token)
        if token is not None:
            self._database.write(lambda connection: connection.execute(ours.values(owner=None, lease_expires_at=None)))

    def _stored(self, connection: Connection, key: str) -> Any | None:
        found = connection.execute(select(campaign_values.c.value).where(*self._row_of(key))).scalar_one_or_none()
        return None if found is None else json.loads(found)

    def _store(self, connection: Connection, key: str, text: str) -> None:
        if not connection.execute(update(campaign_values).where(*self._row_of(key)).values(value=text)).rowcount:
            connection.execute(insert(campaign_values).values(campaign=self._campaign, key=key, value=text))

    def _row_of(self, key: str) -> tuple[Any, Any]:
        return campaign_values.c.campaign == self._campaign, campaign_values.c.key == key

    def _acquire(self, connection: Connection, now: datetime) -> int:
        """Record that it is ours. Return the fencing token, which is higher with each acquisition."""
        found = connection.execute(
            select(campaigns.c.owner, campaigns.c.lease_expires_at, campaigns.c.fencing_token)
            .where(self._row)
            .with_for_update()
        ).one_or_none()
        lease = {"owner": self._owner, "lease_expires_at": now + LEASE}
        if found is None:
            connection.execute(insert(campaigns).values(campaign=self._campaign, fencing_token=1, **lease))
            return 1
        if found.owner not in (None, self._owner) and found.lease_expires_at > now:
            raise CampaignLockedError(
                f"Another task is working on this campaign: {found.owner}. Nothing was done here. Try again when that "
                f"task ends. If it is dead, its lease ends at {found.lease_expires_at:%Y-%m-%d %H:%M:%S} UTC."
            )
        token: int = found.fencing_token + 1
        connection.execute(update(campaigns).where(self._row).values(fencing_token=token, **lease))
        return token

    def _assert_held(self, connection: Connection) -> None:
        """Renew the lease, which fails unless it is still ours, and keeps it so until the transaction ends."""
        ours = (self._row, campaigns.c.fencing_token == self._fencing_token, campaigns.c.owner == self._owner)
        renewed = update(campaigns).where(*ours).values(lease_expires_at=self._clock() + LEASE)
        if self._fencing_token is None or connection.execute(renewed).rowcount != 1:
            owner = connection.execute(select(campaigns.c.owner).where(self._row)).scalar_one_or_none()
            raise LeaseLostError(
                f"{self._owner} does not hold the lease on this campaign. It is held by {owner or 'no task'}. Nothing "
                "was stored."
            )
