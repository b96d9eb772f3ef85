"""The pruner: deletes what is older than ``[cpaas] retention_days``, at most once a day over all API servers."""

from __future__ import annotations

import logging
from datetime import UTC, datetime, timedelta
from functools import partial

from sqlalchemy import Connection, delete, insert, select

from cpaas_provider.api.amounts import counted
from cpaas_provider.database.database import open_database
from cpaas_provider.database.default_file import may_exist
from cpaas_provider.database.recipients.locks import lock_for_writing
from cpaas_provider.database.schema.base import identities
from cpaas_provider.delivery.background_job import BackgroundJob
from cpaas_provider.delivery.tracking.retention import prune

log = logging.getLogger(__name__)

RETENTION = timedelta(days=90)
INTERVAL = timedelta(days=1)
_PAUSE = 60.0
_LOOK_EVERY = 3600.0
"""Seconds between two looks at whether the day is over."""

_STARTED = "pruned_by_itself"


class Pruner(BackgroundJob):
    """Prunes the database while an API server runs, in a thread of its own.

    :param shortest: the shortest time for which reports must be stored: as long as callback URLs take reports
    """

    def __init__(self, shortest: timedelta) -> None:
        super().__init__("cpaas-pruner", _PAUSE)
        self._shortest = shortest

    def run_once(self, now: datetime) -> int | None:
        """Delete what is too old. Return the number of rows, ``None`` if that is not due or is switched off.

        :raises DatabaseError: when the database cannot be used
        """
        retention, lookups = read_days("retention_days"), read_days("lookup_retention_days")
        if retention is None or lookups is None or not may_exist():
            return None
        database = self._database = self._database or open_database()
        if not database.write(partial(_record_start, now=now)):
            return None
        before = now - max(retention, self._shortest)
        deleted = 0
        for table, number in prune(database, before, now - lookups):
            if number:
                log.info("Retention: deleted %s of %s.", counted(number, "row"), table)
            deleted += number
            if self._stopping.is_set():
                break
        return deleted

    def _step(self) -> float:
        self.run_once(datetime.now(UTC))
        return _LOOK_EVERY

    def _on_failure(self, reason: str) -> None:
        log.warning("Old rows were not deleted: %s Their deletion is retried tomorrow.", reason)


def read_days(option: str) -> timedelta | None:
    """Return the days of an option of the configuration, ``None`` for 0: nothing is deleted by itself.

    Another value than a whole number counts as 0, because too much must never be deleted.
    """
    from airflow.sdk.configuration import conf

    value = str(conf.get("cpaas", option, fallback=str(RETENTION.days))).strip()
    if not (value.isascii() and value.isdigit() and len(value) <= len(str(timedelta.max.days))):
        log.warning("[cpaas] %s is not a whole number of days, so nothing is deleted by itself.", option)
        return None
    return timedelta(days=min(int(value), timedelta.max.days // 300)) or None


def _record_start(connection: Connection, now: datetime) -> bool:
    """Record that the database is pruned now. Return whether it was not within the last day."""
    lock_for_writing(connection, _STARTED)
    is_start = identities.c.name == _STARTED
    known = connection.execute(select(identities.c.value).where(is_start)).scalar_one_or_none()
    # A time that is a day ahead comes from a wrong clock. Nothing waits for it.
    if known is not None and abs(now - datetime.fromisoformat(known)) < INTERVAL:
        return False
    connection.execute(delete(identities).where(is_start))
    connection.execute(insert(identities).values(name=_STARTED, value=now.isoformat()))
    return True
