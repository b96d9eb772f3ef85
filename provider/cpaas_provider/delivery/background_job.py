"""Background jobs: work on the provider's database that a server repeats in a thread while it is running."""

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
"""The longest pause after failures in a row, in seconds."""

STOP_TIMEOUT = 5.0
"""Seconds that ``stop`` waits for the current step."""


class BackgroundJob(ABC):
    """A job with its thread and its database.

    :param name: the name of the thread
    :param pause: seconds to wait after a failure; each further failure doubles them, up to ``MAX_PAUSE``
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
        """End the thread after the current step, and close the database.

        If the step does not end within ``STOP_TIMEOUT``, the database stays open.
        """
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
        """Log the first of several failures in a row.

        :param reason: a sentence that contains no value of the database
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
                    # Messages of other errors may contain values.
                    self._on_failure(str(error) if isinstance(error, DatabaseError) else f"{type(error).__name__}.")
                log.debug("Failed attempt %s of %s.", self._failures, self._thread.name, exc_info=error)


def run_while_serving(app: FastAPI, make: Callable[[], BackgroundJob]) -> FastAPI:
    """Run a job while an application is served, and return the application.

    :param make: creates the job; called in the process that serves the application
    """
    app_lifespan = app.router.lifespan_context

    @contextlib.asynccontextmanager
    async def lifespan(served: Any) -> AsyncIterator[Any]:
        async with app_lifespan(served) as state:
            job = make()
            job.start()
            try:
                yield state
            finally:
                await asyncio.to_thread(job.stop)

    app.router.lifespan_context = lifespan
    return app
