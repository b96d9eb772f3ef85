"""Groups of alerts that one notification reports together.

Each group is a row. Every caller adds its alert to the row, and one caller is the leader: it waits until no alert was
added for a while, and then sends the notification. A caller that adds an alert when the leader has little time left
becomes the leader, so the newest leader can always wait long enough. Where a background sender runs, callers only add
their alerts.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping
from datetime import UTC, datetime, timedelta
from typing import Any

from msgspec import Struct
from sqlalchemy import Connection, Row, and_, insert, or_, select, update

from cpaas_provider._common.records import PrivateRecord
from cpaas_provider.database.database import Database
from cpaas_provider.database.schema.alerts import leases, notifications

MAX_SUBJECTS = 20
"""The number of subjects whose alerts are counted separately."""

OTHERS = ""
"""The subject under which the alerts of all further subjects are counted."""

BACKGROUND_SENDER = "notifications"
"""The name of the background sender's lease."""

RETRY = timedelta(minutes=1)
"""How long the background sender waits after a notification that was not sent."""

CHECK_AGAIN = timedelta(minutes=10)
"""How long after a failed check the background sender checks again whether it can send for a group."""

UNRECORDED_AFTER = timedelta(minutes=5)
"""The age from which a request without a recorded result is considered lost: its sender died."""

AHEAD = timedelta(minutes=1)
"""A time that is further in the future comes from a wrong clock. Nothing waits for it."""


class Timing(Struct, frozen=True):
    """How long callers wait.

    :param quiet: a notification is sent once no alert was added for this long
    :param longest: it is sent no later than this after the first alert
    :param max_wait: the longest time that one caller waits; longer than ``quiet``
    :param request: the longest time that a request takes
    """

    quiet: timedelta = timedelta(seconds=8)
    longest: timedelta = timedelta(seconds=60)
    max_wait: timedelta = timedelta(seconds=10)
    request: timedelta = timedelta(seconds=8)


class PendingAlerts(PrivateRecord, frozen=True):
    """The alerts of one notification, taken out of their group by its sender.

    :param token: the sender's fencing token
    :param subjects: the number of alerts by subject
    :param message: the newest alert, encrypted
    :param sent_before: when the previous notification was sent
    :param unrecorded: the number of alerts of the previous notification, if its outcome was never recorded
    """

    name: str
    conn_id: str
    token: int
    count: int
    subjects: Mapping[str, int]
    message: str
    first_at: datetime
    last_at: datetime
    sent_before: datetime | None
    unrecorded: int = 0


class Waiting(PrivateRecord, frozen=True):
    """A group with alerts, as the background sender reads it.

    :param message: the newest alert, encrypted
    :param is_checked: whether the background sender has lately checked that it can send for this group
    """

    name: str
    conn_id: str
    message: str
    is_checked: bool


class AlertGroups:
    """The groups of alerts of one database.

    :param clock: returns the current time; the clocks of all machines should agree to within a few seconds
    """

    def __init__(
        self,
        database: Database,
        timing: Timing,
        *,
        clock: Callable[[], datetime] = lambda: datetime.now(UTC),
    ) -> None:
        self._database = database
        self._timing = timing
        self._clock = clock

    def add(self, name: str, conn_id: str, subject: str, message: str, window: timedelta) -> int | None:
        """Count an alert for the next notification.

        :param name: the group, at most 64 characters
        :param subject: the subject under which the alert is counted
        :param message: the alert itself, encrypted
        :param window: the time after a notification in which the group has no other
        :return: a fencing token if the caller becomes the leader; ``None`` if another caller or the background sender
            sends
        :raises DatabaseError: when the database cannot be used
        """

        def work(connection: Connection) -> int | None:
            now = self._clock()
            row = _locked(connection, name) or _insert(connection, name, conn_id)
            change: dict[str, Any] = {
                "conn_id": conn_id,
                "alerts": row.alerts + 1,
                "subjects": json.dumps(_sum(_subjects(row), {subject: 1})),
                "message": message,
                "first_at": row.first_at or now,
                "last_at": now,
                "window_seconds": int(window.total_seconds()),
            }
            token: int | None = None
            until = now + self._timing.max_wait
            has_leader = row.leads_until is not None and now + self._timing.quiet <= row.leads_until <= until
            if not has_leader and not self._has_sender(connection, row, now):
                token = change["fencing_token"] = row.fencing_token + 1
                change |= {"leads_until": until, "lease_expires_at": until + self._timing.request}
            _change(connection, name, **change)
            return token

        return self._database.write(work)

    def due_in(self, name: str, token: int) -> timedelta | None:
        """Return how long the leader must still wait; ``None`` if the caller is no longer the leader.

        :raises DatabaseError: when the database cannot be used
        """
        with self._database.connect() as connection:
            now = self._clock()
            row = connection.execute(select(notifications).where(notifications.c.name == name)).one_or_none()
            if row is None or row.fencing_token != token or not row.alerts:
                return None
            if not self._has_sender(connection, row, now):
                return max(timedelta(), self._due(row, now, for_leader=True) - now)
        led = update(notifications).where(notifications.c.name == name, notifications.c.fencing_token == token)
        resigned = led.values(leads_until=None, lease_expires_at=None)
        self._database.write(lambda connection: connection.execute(resigned))
        return None

    def take(self, name: str, token: int) -> PendingAlerts | None:
        """Take the alerts out of a group for the leader, who sends the notification now.

        :return: ``None`` if the caller is no longer the leader
        :raises DatabaseError: when the database cannot be used
        """

        def work(connection: Connection) -> PendingAlerts | None:
            row = _locked(connection, name)
            if row is None or row.fencing_token != token or not row.alerts:
                return None
            return self._take(connection, row, token)

        return self._database.write(work)

    def take_due(self, name: str) -> PendingAlerts | None:
        """Take the alerts out of a group for the background sender.

        :return: ``None`` if no notification is due, or a leader sends it
        :raises DatabaseError: when the database cannot be used
        """

        def work(connection: Connection) -> PendingAlerts | None:
            row, now = _locked(connection, name), self._clock()
            if row is None or not row.alerts or self._is_leased(row, now):
                return None
            if self._due(row, now, for_leader=False) > now:
                return None
            return self._take(connection, row, row.fencing_token + 1)

        return self._database.write(work)

    def finish(self, pending: PendingAlerts, *, not_sent: bool = False) -> None:
        """Record that the request of a notification ended.

        :param not_sent: the service did not get the request, so the next notification reports these alerts again
        :raises DatabaseError: when the database cannot be used
        """

        def work(connection: Connection) -> None:
            row = _locked(connection, pending.name)
            if row is None:
                return
            is_newest = row.flight_token == pending.token
            change: dict[str, Any] = {"in_flight": 0} if is_newest else {}
            if not_sent:
                change |= {
                    "alerts": row.alerts + pending.count,
                    "subjects": json.dumps(_sum(pending.subjects, _subjects(row))),
                    "message": row.message or pending.message,
                    "first_at": pending.first_at,
                    "last_at": row.last_at or pending.last_at,
                }
                if is_newest:
                    change["sent_at"] = pending.sent_before
                if row.lease_expires_at is None:
                    change["lease_expires_at"] = self._clock() + RETRY
            if change:
                _change(connection, pending.name, **change)

        self._database.write(work)

    # -- the background sender ----------------------------------------------------------------------------------------

    def waiting(self) -> list[Waiting]:
        """Return the groups that have alerts.

        :raises DatabaseError: when the database cannot be used
        """
        query = select(notifications).where(notifications.c.alerts > 0)
        with self._database.connect() as connection:
            rows, checked = connection.execute(query).all(), self._clock() - CHECK_AGAIN
        return [
            Waiting(row.name, row.conn_id, row.message, row.sender_checked_at is not None and (
                row.sender_ok or row.sender_checked_at > checked
            ))
            for row in rows
        ]  # fmt: skip

    def check(self, name: str, *, can_send: bool) -> None:
        """Record whether callers may rely on the background sender for a group.

        :raises DatabaseError: when the database cannot be used
        """
        change = {"sender_ok": can_send, "sender_checked_at": self._clock()}
        self._database.write(lambda connection: _change(connection, name, **change))

    def unrecorded(self) -> Iterator[tuple[str, int]]:
        """Yield connection and number of alerts of each request whose sender died before it recorded a result.

        Each request is yielded once, whichever process calls this.

        :raises DatabaseError: when the database cannot be used
        """
        old = and_(notifications.c.in_flight > 0, notifications.c.sent_at < self._clock() - UNRECORDED_AFTER)

        def work(connection: Connection) -> list[tuple[str, int]]:
            rows = connection.execute(select(notifications).where(old).with_for_update()).all()
            for row in rows:
                _change(connection, row.name, in_flight=0)
            return [(row.conn_id, row.in_flight) for row in rows]

        with self._database.connect() as connection:
            has_any = connection.execute(select(notifications.c.name).where(old).limit(1)).first() is not None
        yield from self._database.write(work) if has_any else ()

    def acquire_background(self, owner: str, seconds: float) -> bool:
        """Acquire or renew the lease of the background sender, and return whether this owner holds it.

        :raises DatabaseError: when the database cannot be used
        """

        def work(connection: Connection) -> bool:
            now = self._clock()
            expires_at = now + timedelta(seconds=seconds)
            lease = {"owner": owner, "expires_at": expires_at}
            is_ours = leases.c.name == BACKGROUND_SENDER
            is_free = or_(leases.c.expires_at <= now, leases.c.expires_at > expires_at + AHEAD)
            may_acquire = and_(is_ours, or_(leases.c.owner == owner, is_free))
            next_token = leases.c.fencing_token + 1
            if connection.execute(update(leases).where(may_acquire).values(fencing_token=next_token, **lease)).rowcount:
                return True
            if connection.execute(select(leases.c.name).where(is_ours)).first() is not None:
                return False
            connection.execute(insert(leases).values(name=BACKGROUND_SENDER, fencing_token=1, **lease))
            return True

        return self._database.write(work)

    def release_background(self, owner: str) -> None:
        """End the lease of the background sender, so that callers send again at once.

        :raises DatabaseError: when the database cannot be used; the lease then expires
        """
        held = update(leases).where(leases.c.name == BACKGROUND_SENDER, leases.c.owner == owner)
        self._database.write(lambda connection: connection.execute(held.values(expires_at=self._clock())))

    # -- inner --------------------------------------------------------------------------------------------------------

    def _is_leased(self, row: Row[Any], now: datetime) -> bool:
        longest = max(self._timing.max_wait + self._timing.request, RETRY) + AHEAD
        return row.lease_expires_at is not None and now < row.lease_expires_at <= now + longest

    def _due(self, row: Row[Any], now: datetime, *, for_leader: bool) -> datetime:
        """Return when the next notification is due.

        A leader cannot wait until the window closes. So its notification is due after the quiet time within it, too.
        """
        begins_at: datetime = row.first_at
        closes_at: datetime | None = None
        if row.sent_at is not None and row.sent_at <= now + AHEAD:
            closes_at = row.sent_at + timedelta(seconds=row.window_seconds)
            begins_at = max(begins_at, closes_at)
        due_at: datetime = min(row.last_at + self._timing.quiet, begins_at + self._timing.longest)
        if max(row.first_at, row.last_at) > now + AHEAD:
            # A leader measures its own wait by a monotonic clock.
            due_at = now + self._timing.quiet if for_leader else now
        return due_at if for_leader or closes_at is None else max(due_at, closes_at)

    def _has_sender(self, connection: Connection, row: Row[Any], now: datetime) -> bool:
        """Return whether the background sender runs and can send for this group."""
        alive = select(leases.c.name).where(leases.c.name == BACKGROUND_SENDER, leases.c.expires_at > now)
        return bool(row.sender_ok) and connection.execute(alive).first() is not None

    def _take(self, connection: Connection, row: Row[Any], token: int) -> PendingAlerts:
        pending = PendingAlerts(
            row.name, row.conn_id, token, row.alerts, _subjects(row), row.message, row.first_at, row.last_at,
            row.sent_at, row.in_flight,
        )  # fmt: skip
        flight = {"sent_at": self._clock(), "in_flight": row.alerts, "flight_token": token, "fencing_token": token}
        emptied = dict.fromkeys(("subjects", "message", "first_at", "last_at", "leads_until", "lease_expires_at"))
        _change(connection, row.name, alerts=0, **flight, **emptied)
        return pending


def _locked(connection: Connection, name: str) -> Row[Any] | None:
    query = select(notifications).where(notifications.c.name == name).with_for_update()
    return connection.execute(query).one_or_none()


def _insert(connection: Connection, name: str, conn_id: str) -> Row[Any]:
    unused = {"alerts": 0, "window_seconds": 0, "in_flight": 0, "flight_token": 0, "fencing_token": 0}
    connection.execute(insert(notifications).values(name=name, conn_id=conn_id, sender_ok=False, **unused))
    return connection.execute(select(notifications).where(notifications.c.name == name)).one()


def _change(connection: Connection, name: str, **values: Any) -> None:
    connection.execute(update(notifications).where(notifications.c.name == name).values(**values))


def _subjects(row: Row[Any]) -> dict[str, int]:
    subjects: dict[str, int] = json.loads(row.subjects or "{}")
    return subjects


def _sum(first: Mapping[str, int], second: Mapping[str, int]) -> dict[str, int]:
    counts = dict(first)
    for subject, count in second.items():
        name = subject if subject in counts or len(counts) < MAX_SUBJECTS else OTHERS
        counts[name] = counts.get(name, 0) + count
    return counts
