"""Starts DAGs on delivery: finds delivery events in the provider's database, and publishes them to Airflow.

The publisher runs in a thread of the API server that mounts the receiver, which has access to both databases. Each
delivery event is stored before it is published, and recorded as published afterwards. In between, a second publisher
finds the asset event in Airflow's database. So no event is lost or published twice, whichever process ends when.
"""

from __future__ import annotations

import logging
from datetime import UTC, datetime, timedelta
from functools import partial

from cpaas_provider.assets.subscriptions import (
    ScheduledDag,
    Subscription,
    payloads_for,
    publish,
    scheduled_dags,
    start_missed_runs,
    subscriptions,
)
from cpaas_provider.database.database import Database
from cpaas_provider.delivery.background_job import BackgroundJob
from cpaas_provider.delivery.tracking.counts import open_report_database
from cpaas_provider.delivery.tracking.events import detect_events, mark_published, unpublished

log = logging.getLogger(__name__)

PAUSE = 5.0
"""Seconds between two scans of the database."""

IDLE_PAUSE = 30.0
"""Seconds while no DAG is scheduled on one of our assets."""

FULL_SCAN_INTERVAL = timedelta(minutes=10)
"""How often all campaigns are scanned, instead of those with changes only."""


class EventPublisher(BackgroundJob):
    """The publisher: detects and publishes delivery events periodically, in a thread of its own."""

    def __init__(self) -> None:
        super().__init__("cpaas-publisher", PAUSE)
        self._scanned_at: datetime | None = None
        self._full_scan_at: datetime | None = None
        self._dags: set[ScheduledDag] = set()

    def run_once(self) -> int | None:
        """Detect delivery events since the last scan, and publish them.

        :return: the number of asset events published; ``None`` if no DAG is scheduled on any
        :raises DatabaseError: when the database cannot be used
        """
        wanted = subscriptions()
        if not wanted:
            return None
        database = self._database = self._database or open_report_database()
        started = datetime.now(UTC)
        detect_events(database, _since(wanted), self._changes_since(started))
        self._scanned_at = started
        published = self._publish(database, wanted)
        self._start_missed_runs(check_all=self._full_scan_at == started)
        return published

    def _publish(self, database: Database, wanted: list[Subscription]) -> int:
        published = 0
        while not self._stopping.is_set():
            with database.connect() as connection:
                events = unpublished(connection)
            if not events:
                break
            for subscription in wanted:
                count = publish(subscription, payloads_for(subscription.asset, events), self._stopping.is_set)
                if count is None:
                    return published
                published += count
            database.write(partial(mark_published, published=events))
        return published

    def _start_missed_runs(self, *, check_all: bool) -> None:
        """Start the runs that DAGs missed while they were paused.

        :param check_all: check all DAGs, as one may have been paused between two scans
        """
        current = scheduled_dags()
        for dag in current if check_all else current - self._dags:
            if missed := start_missed_runs(dag, self._stopping.is_set):
                log.info(
                    "Started runs of DAG %s for %s asset events that were published while it was paused.",
                    dag.dag_id,
                    missed,
                )
        self._dags = current

    def _changes_since(self, now: datetime) -> datetime | None:
        """Return the time of the last scan, ``None`` when a scan of all campaigns is due."""
        if self._full_scan_at is None or now - self._full_scan_at > FULL_SCAN_INTERVAL:
            self._full_scan_at = now
            return None
        return self._scanned_at

    def _step(self) -> float:
        try:
            published = self.run_once()
        except Exception:
            # The next scan looks at all campaigns, because this one may have missed changes.
            self._full_scan_at = None
            raise
        if published:
            log.info("Published %s asset events for delivery events.", published)
        return IDLE_PAUSE if published is None else PAUSE

    def _on_failure(self, reason: str) -> None:
        log.warning(
            "Delivery events were not published: %s No DAG was started. No event is lost. Publishing is retried.",
            reason,
        )


def _since(wanted: list[Subscription]) -> dict[str, datetime]:
    since: dict[str, datetime] = {}
    for subscription in wanted:
        kind = subscription.asset.kind
        since[kind] = min(subscription.since, since.get(kind, subscription.since))
    return since
