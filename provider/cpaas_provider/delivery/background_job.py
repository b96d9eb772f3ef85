"""Work on the provider's database that a server repeats in a thread of its own for as long as it serves."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import threading
from abc import ABC, abstractmethod
from collections.abc import AsyncIterator, Callable
from typing import TYPE_CHECKING, Any

from cpaas_provider.api.backoff import backoff
from cpaas_provider.database.database import Database
from cpaas_provider.database.errors import DatabaseError

if TYPE_CHECKING:
    from fastapi import FastAPI

log = logging.getLogger(__name__)

MAX_PAUSE = 60.0
"""Seconds after failures in a row, at most."""

STOP_TIMEOUT = 5.0


class BackgroundJob(ABC):
    """The job, its thread and its database.

    :param name: of the thread
    :param pause: seconds after a failure; each further one doubles them, up to ``MAX_PAUSE``
    """

    def __init__(self, name: str, pause: float) -> None:
        self._pause = pause
        self._failures = 0
        self._stopping = threading.Event()
        self._thread = threading.Thread(target=self._repeat, name=name, daemon=True)
        self._database: Database | None = None

    def start(self) -> None:
        """Start the thread."""
        self._thread.start()

    def stop(self) -> None:
        """End after the current step, for which it waits some seconds, and close the database."""
        self._stopping.set()
        if self._thread.is_alive():
            self._thread.join(STOP_TIMEOUT)
        if self._database and not self._thread.is_alive():
            self._leave(self._database)
            self._database.close()

    @abstractmethod
    def _step(self) -> float:
        """Do what is due.

        :return: seconds until the next step
        """

    @abstractmethod
    def _on_failure(self, reason: str) -> None:
        """Log that a step failed, after one that did not.

        :param reason: a sentence that holds no value of the database
        """

    def _leave(self, database: Database) -> None:  # noqa: B027 - most jobs leave nothing behind
        """Clean up in the database before it is closed."""

    def _repeat(self) -> None:
        pause = 0.0
        while not self._stopping.wait(pause):
            try:
                pause = self._step()
                self._failures = 0
            except Exception as error:
                self._failures += 1
                pause = backoff(self._failures + 1, self._pause, MAX_PAUSE, jitter=0)
                if self._failures == 1:
                    # Messages of other errors may show values.
                    self._on_failure(str(error) if isinstance(error, DatabaseError) else f"{type(error).__name__}.")
                log.debug("Failed attempt %s of %s.", self._failures, self._thread.name, exc_info=error)


def run_while_serving(app: FastAPI, make: Callable[[], BackgroundJob]) -> FastAPI:
    """Run a job for as long as an application is served, and return the application.

    :param make: makes the job, in the process that serves
    """
    inner = app.router.lifespan_context

    @contextlib.asynccontextmanager
    async def both(served: Any) -> AsyncIterator[Any]:
        async with inner(served) as state:
            job = make()
            job.start()
            try:
                yield state
            finally:
                await asyncio.to_thread(job.stop)

    app.router.lifespan_context = both
    return app
