"""Records how far a campaign or contact sync is, for the pages in Airflow's UI."""

from __future__ import annotations

import logging
import threading
from collections.abc import Mapping
from functools import partial
from typing import TYPE_CHECKING, Any

from cpaas_provider.database.activity import progress
from cpaas_provider.database.errors import DatabaseError

if TYPE_CHECKING:
    from cpaas_provider.tasks.runtime import TaskRuntime

log = logging.getLogger(__name__)

_STOP_TIMEOUT = 10.0

Figures = Mapping[str, Any]


class ProgressRecorder:
    """Records the progress of one try in the provider's database, in a thread of its own.

    The pages are not worth a failure: what cannot be written is logged once, and the task continues.

    :param reference: what names the work in all tries
    :param kind: of ``database.activity.progress``
    :param settings: what the author set, as the page shows it; nothing personal
    """

    def __init__(
        self, runtime: TaskRuntime, reference: str, kind: str, operation: str, settings: Mapping[str, Any]
    ) -> None:
        self._runtime = runtime
        self._task = progress.RecordedTask(
            reference,
            kind,
            operation,
            runtime.conn_id,
            *runtime.place,
            runtime.context["ti"].try_number,
            {name: value for name, value in settings.items() if value is not None},
        )
        self._failed = False
        self._wanted = threading.Event()
        self._stopping = False
        self._latest: Figures | None = None
        self._thread: threading.Thread | None = None

    def begin(self, figures: Figures) -> None:
        """Record that the work begins, or continues."""
        self._write(progress.RUNNING, figures)
        if not self._failed:
            self._thread = threading.Thread(target=self._run, name="cpaas-progress", daemon=True)
            self._thread.start()

    def update(self, figures: Figures) -> None:
        """Have the newest figures recorded soon. It does not block."""
        self._latest = figures
        self._wanted.set()

    def end(self, state: str, figures: Figures) -> None:
        """Record how the try ended, after what is being written."""
        if self._thread is not None:
            self._stopping = True
            self._wanted.set()
            self._thread.join(_STOP_TIMEOUT)
            self._thread = None
        self._write(state, figures)

    def _run(self) -> None:
        while self._wanted.wait() and not self._stopping and not self._failed:
            self._wanted.clear()
            latest, self._latest = self._latest, None
            if latest is not None:
                self._write(progress.RUNNING, latest)

    def _write(self, state: str, figures: Figures) -> None:
        if self._failed:
            return
        try:
            database = self._runtime.database
            database.require_report_support()
            database.write(partial(progress.record_progress, task=self._task, state=state, figures=figures))
        except DatabaseError as error:
            self._failed = True
            log.warning("The progress cannot be shown on the pages in Airflow's UI: %s", error)
