"""Starts DAGs on delivery: finds delivery events in the provider's database, and publishes them to Airflow.

The publisher runs in a thread of the API server that mounts the receiver, which has access to both databases. Each
delivery event is stored before it is published, and recorded as published afterwards. In between, a second publisher
finds the asset event in Airflow's database. So no event is lost or published twice, whichever process ends when.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import threading
from collections.abc import AsyncIterator
from datetime import UTC, datetime, timedelta
from functools import partial
from typing import Any

from fastapi import FastAPI

from cpaas_provider.assets.payloads import news_for
from cpaas_provider.assets.subscriptions import (
    Listener,
    Subscription,
    listeners,
    subscriptions,
    tell,
    tell_missed,
)
from cpaas_provider.database.database import Database, open_database
from cpaas_provider.database.errors import DatabaseError
from cpaas_provider.delivery.tracking.events import detect_events, mark_published, unpublished
from cpaas_provider.delivery.tracking.report_store import ReportStore

log = logging.getLogger(__name__)

PAUSE = 5.0
"""Seconds between two looks."""

LONGEST_PAUSE = 60.0
"""Seconds after looks that failed, one after the other."""

IDLE_PAUSE = 30.0
"""Seconds while no DAG waits for anything of ours."""

LOOK_AT_ALL = timedelta(minutes=10)
"""How often all campaigns are looked at, and not those alone of which something became known."""

STOP_WITHIN = 5.0


def telling(app: FastAPI) -> FastAPI:
    """Run the publisher for as long as an application is served, and return the application."""
    inner = app.router.lifespan_context

    @contextlib.asynccontextmanager
    async def both(served: Any) -> AsyncIterator[Any]:
        async with inner(served) as state:
            teller = Teller()
            teller.start()
            try:
                yield state
            finally:
                await asyncio.to_thread(teller.stop)

    app.router.lifespan_context = both
    return app


class Teller:
    """The publisher: looks for delivery events periodically, in a thread of its own."""

    def __init__(self) -> None:
        self._ending = threading.Event()
        self._thread = threading.Thread(target=self._run, name="cpaas-teller", daemon=True)
        self._database: Database | None = None
        self._looked: datetime | None = None
        self._looked_at_all: datetime | None = None
        self._listeners: set[Listener] = set()
        self._failures = 0

    def start(self) -> None:
        """Start the thread."""
        self._thread.start()

    def stop(self) -> None:
        """End after the current transaction, for which it waits some seconds."""
        self._ending.set()
        if self._thread.is_alive():
            self._thread.join(STOP_WITHIN)
        if self._database and not self._thread.is_alive():
            self._database.close()

    def look(self) -> int | None:
        """Find delivery events since the last look, and publish them.

        :return: the number of asset events published; ``None`` if no DAG is scheduled on any
        :raises DatabaseError: when the database cannot be used
        """
        wanted = subscriptions()
        if not wanted:
            return None
        database = self._store()
        begun = datetime.now(UTC)
        detect_events(database, _since(wanted), self._since_when(begun))
        self._looked = begun
        made = self._tell(database, wanted)
        self._tell_missed(all_of_them=self._looked_at_all == begun)
        return made

    def _tell(self, database: Database, wanted: list[Subscription]) -> int:
        made = 0
        while not self._ending.is_set():
            with database.connect() as connection:
                happenings = unpublished(connection)
            if not happenings:
                break
            for subscription in wanted:
                told = tell(subscription, news_for(subscription.name, happenings), self._goes_on)
                if told is None:
                    return made
                made += told
            database.write(partial(mark_published, told=happenings))
        return made

    def _tell_missed(self, *, all_of_them: bool) -> None:
        """Start the runs that DAGs missed while they were paused.

        :param all_of_them: check all DAGs, as one may have been paused between two looks
        """
        listening = listeners()
        for listener in listening if all_of_them else listening - self._listeners:
            if missed := tell_missed(listener, self._goes_on):
                log.info(
                    "Started runs of DAG %s for %s asset events that were published while it was paused.",
                    listener.dag_id,
                    missed,
                )
        self._listeners = listening

    def _since_when(self, now: datetime) -> datetime | None:
        """Return the time of the last look, ``None`` when it is time to look at all campaigns."""
        if self._looked_at_all is None or now - self._looked_at_all > LOOK_AT_ALL:
            self._looked_at_all = now
            return None
        return self._looked

    def _goes_on(self) -> bool:
        return not self._ending.is_set()

    def _store(self) -> Database:
        if self._database is None:
            opened = open_database()
            try:
                ReportStore(opened)  # which refuses databases that reports cannot be kept in
            except DatabaseError:
                opened.close()
                raise
            self._database = opened
        return self._database

    def _run(self) -> None:
        pause = 0.0
        while not self._ending.wait(pause):
            try:
                made = self.look()
                pause = IDLE_PAUSE if made is None else PAUSE
                self._failures = 0
                if made:
                    log.info("Published %s asset events for delivery events.", made)
            except Exception as error:  # noqa: BLE001 - whatever two databases raise, the next look may succeed
                self._looked_at_all = None
                self._failures += 1
                pause = min(LONGEST_PAUSE, PAUSE * 2 ** min(self._failures, 10))
                self._complain(error)

    def _complain(self, error: Exception) -> None:
        # Words of other errors of a database may show values.
        reason = error if isinstance(error, DatabaseError) else f"{type(error).__name__}."
        if self._failures == 1:
            log.warning(
                "Delivery events were not published: %s No DAG was started. No event is lost. Publishing is retried.",
                reason,
            )
        log.debug("Failed attempt %s to publish delivery events.", self._failures, exc_info=error)


def _since(wanted: list[Subscription]) -> dict[str, datetime]:
    since: dict[str, datetime] = {}
    for one in wanted:
        since[one.name.kind] = min(one.since, since.get(one.name.kind, one.since))
    return since
