"""Alerts that one notification reports together: counted by every caller, sent by one, whichever process ends when.

Each group of alerts is a row. Callers add to it, and one of them leads: it waits until no alert came for a while, and
sends. A caller that comes when the leader has little time left leads in its place, so the newest leader can always wait
long enough. Where a background sender runs, callers add their alert and leave the rest to it.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from typing import Any

from sqlalchemy import Connection, Row, and_, insert, or_, select, update

from cpaas_provider.database.database import Database
from cpaas_provider.database.schema import leases, notifications

MAX_SUBJECTS = 20
"""Alerts about more than so many different things are counted together."""

OTHERS = ""
"""What alerts about any further thing are counted under."""

BACKGROUND_SENDER = "notifications"
"""The lease of the background sender."""

RETRY = timedelta(minutes=1)
"""After a notification that was not sent, until the background sender tries again."""

CHECK_AGAIN = timedelta(minutes=10)
"""After the background sender could not send for a group, until callers rely on it again."""

UNRECORDED_AFTER = timedelta(minutes=5)
"""After which a request whose result was not recorded had a sender that died."""

AHEAD = timedelta(minutes=1)
"""A moment further ahead is from a clock that was wrong then, or is now. Nothing waits for it."""


@dataclass(frozen=True)
class Timing:
    """How long callers wait.

    :param quiet: a notification is sent once no alert came for so long
    :param longest: or once the first alert is so old
    :param max_wait: the longest that one caller waits; above ``quiet``
    :param request: the longest that a request takes
    """

    quiet: timedelta = timedelta(seconds=8)
    longest: timedelta = timedelta(seconds=60)
    max_wait: timedelta = timedelta(seconds=10)
    request: timedelta = timedelta(seconds=8)


@dataclass(frozen=True)
class PendingAlerts:
    """The alerts of a notification that its sender has to itself.

    :param subjects: how many of them are about what
    :param message: the newest of them, encrypted
    :param unrecorded: alerts of the notification before, whose outcome was never recorded
    """

    name: str
    conn_id: str
    token: int
    count: int
    subjects: Mapping[str, int]
    message: str = field(repr=False)
    first_at: datetime
    last_at: datetime
    sent_before: datetime | None
    unrecorded: int = 0


@dataclass(frozen=True)
class Waiting:
    """What a group with alerts is to the background sender.

    :param is_checked: whether it has tried of late to read the message
    """

    name: str
    conn_id: str
    message: str = field(repr=False)
    is_checked: bool


class AlertGroups:
    """The groups of alerts of one database.

    :param clock: what time it is; the clocks of all machines should agree to within some seconds
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

        :param name: of the group, at most 64 characters
        :param subject: what it is about
        :param message: the alert itself, encrypted
        :param window: after a notification, in which there is no other
        :return: a fencing token where the caller has to lead; ``None`` where another caller does, or the background
            sender
        :raises DatabaseError: when the database cannot be used
        """

        def work(connection: Connection) -> int | None:
            now = self._clock()
            row = _locked(connection, name) or _inserted(connection, name, conn_id)
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
            longest = now + self._timing.max_wait
            has_leader = row.leads_until is not None and now + self._timing.quiet <= row.leads_until <= longest
            if not has_leader and not self._has_sender(connection, row, now):
                token = change["fencing_token"] = row.fencing_token + 1
                change |= self._lease(now)
            _change(connection, name, **change)
            return token

        return self._database.write(work)

    def due_in(self, name: str, token: int) -> timedelta | None:
        """Return how long a leader has to wait yet; ``None`` where it leads no more.

        :raises DatabaseError: when the database cannot be used
        """
        with self._database.connect() as connection:
            now = self._clock()
            row = connection.execute(select(notifications).where(notifications.c.name == name)).one_or_none()
            if row is None or row.fencing_token != token or not row.alerts:
                return None
            if not self._has_sender(connection, row, now):
                return max(timedelta(), self._due(row, now, for_leader=True) - now)
        self._database.write(lambda connection: _resign(connection, name, token))
        return None

    def take(self, name: str, token: int) -> PendingAlerts | None:
        """Have the alerts of a group for the notification that its leader sends now; ``None`` where it leads no more.

        :raises DatabaseError: when the database cannot be used
        """

        def work(connection: Connection) -> PendingAlerts | None:
            row = _locked(connection, name)
            if row is None or row.fencing_token != token or not row.alerts:
                return None
            return self._take(connection, row, token)

        return self._database.write(work)

    def take_due(self, name: str) -> PendingAlerts | None:
        """Have the alerts of a group whose notification is due and has no leader; for the background sender.

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
        """Record that a request ended.

        :param not_sent: nothing was sent, so the next notification reports these alerts, too
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
        """Yield connection and number of alerts of requests whose sender died before it recorded a result, each once.

        :raises DatabaseError: when the database cannot be used
        """
        old = and_(notifications.c.in_flight > 0, notifications.c.sent_at < self._clock() - UNRECORDED_AFTER)

        def work(connection: Connection) -> list[tuple[str, int]]:
            rows = connection.execute(select(notifications).where(old).with_for_update()).all()
            for row in rows:
                _change(connection, row.name, in_flight=0)
            return [(row.conn_id, row.in_flight) for row in rows]

        with self._database.connect() as connection:
            is_any = connection.execute(select(notifications.c.name).where(old).limit(1)).first()
        yield from self._database.write(work) if is_any else ()

    def acquire_background(self, owner: str, seconds: float) -> bool:
        """Acquire or renew the lease of the background sender; tell whether it is this owner's.

        :raises DatabaseError: when the database cannot be used
        """

        def work(connection: Connection) -> bool:
            now = self._clock()
            expires_at = now + timedelta(seconds=seconds)
            lease = {"owner": owner, "expires_at": expires_at}
            free = or_(leases.c.expires_at <= now, leases.c.expires_at > expires_at + AHEAD)
            mine = and_(leases.c.name == BACKGROUND_SENDER, or_(leases.c.owner == owner, free))
            raised = leases.c.fencing_token + 1
            if connection.execute(update(leases).where(mine).values(fencing_token=raised, **lease)).rowcount:
                return True
            there = select(leases.c.name).where(leases.c.name == BACKGROUND_SENDER)
            if connection.execute(there).first() is not None:
                return False
            connection.execute(insert(leases).values(name=BACKGROUND_SENDER, fencing_token=1, **lease))
            return True

        return self._database.write(work)

    def release_background(self, owner: str) -> None:
        """Let callers see at once that the background sender has stopped.

        :raises DatabaseError: when the database cannot be used; the lease then ends by itself
        """
        mine = update(leases).where(leases.c.name == BACKGROUND_SENDER, leases.c.owner == owner)
        self._database.write(lambda connection: connection.execute(mine.values(expires_at=self._clock())))

    # -- inner --------------------------------------------------------------------------------------------------------

    def _lease(self, now: datetime) -> dict[str, datetime]:
        until = now + self._timing.max_wait
        return {"leads_until": until, "lease_expires_at": until + self._timing.request}

    def _is_leased(self, row: Row[Any], now: datetime) -> bool:
        longest = max(self._timing.max_wait + self._timing.request, RETRY) + AHEAD
        return row.lease_expires_at is not None and now < row.lease_expires_at <= now + longest

    def _due(self, row: Row[Any], now: datetime, *, for_leader: bool) -> datetime:
        """Return when the next notification is due.

        A leader cannot wait until the window closes. Within it, too, its notification is due after the quiet time.
        """
        begins: datetime = row.first_at
        closes: datetime | None = None
        if row.sent_at is not None and row.sent_at <= now + AHEAD:
            closes = row.sent_at + timedelta(seconds=row.window_seconds)
            begins = max(begins, closes)
        due: datetime = min(row.last_at + self._timing.quiet, begins + self._timing.longest)
        if max(row.first_at, row.last_at) > now + AHEAD:
            # How long a leader has waited is known by its own clock.
            due = now + self._timing.quiet if for_leader else now
        return due if for_leader or closes is None else max(due, closes)

    def _has_sender(self, connection: Connection, row: Row[Any], now: datetime) -> bool:
        """Tell whether the background sender runs, and can send for a group."""
        alive = select(leases.c.name).where(leases.c.name == BACKGROUND_SENDER, leases.c.expires_at > now)
        return bool(row.sender_ok) and connection.execute(alive).first() is not None

    def _take(self, connection: Connection, row: Row[Any], token: int) -> PendingAlerts:
        pending = PendingAlerts(
            row.name, row.conn_id, token, row.alerts, _subjects(row), row.message, row.first_at, row.last_at,
            row.sent_at, row.in_flight,
        )  # fmt: skip
        _change(
            connection,
            row.name,
            alerts=0,
            subjects=None,
            message=None,
            first_at=None,
            last_at=None,
            sent_at=self._clock(),
            in_flight=row.alerts,
            flight_token=token,
            fencing_token=token,
            leads_until=None,
            lease_expires_at=None,
        )
        return pending


def _locked(connection: Connection, name: str) -> Row[Any] | None:
    query = select(notifications).where(notifications.c.name == name).with_for_update()
    return connection.execute(query).one_or_none()


def _inserted(connection: Connection, name: str, conn_id: str) -> Row[Any]:
    unused = {"alerts": 0, "window_seconds": 0, "in_flight": 0, "flight_token": 0, "fencing_token": 0}
    connection.execute(insert(notifications).values(name=name, conn_id=conn_id, sender_ok=False, **unused))
    return connection.execute(select(notifications).where(notifications.c.name == name)).one()


def _change(connection: Connection, name: str, **values: Any) -> None:
    connection.execute(update(notifications).where(notifications.c.name == name).values(**values))


def _resign(connection: Connection, name: str, token: int) -> None:
    mine = update(notifications).where(notifications.c.name == name, notifications.c.fencing_token == token)
    connection.execute(mine.values(leads_until=None, lease_expires_at=None))


def _subjects(row: Row[Any]) -> dict[str, int]:
    found: dict[str, int] = json.loads(row.subjects or "{}")
    return found


def _sum(first: Mapping[str, int], second: Mapping[str, int]) -> dict[str, int]:
    found = dict(first)
    for subject, count in second.items():
        known = subject if subject in found or len(found) < MAX_SUBJECTS else OTHERS
        found[known] = found.get(known, 0) + count
    return found
