"""What campaigns, contact syncs and bulk lookups have in common: a source of rows, a results file, and partitions."""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Mapping
from functools import cached_property
from operator import itemgetter
from typing import TYPE_CHECKING, Any

from airflow.sdk.exceptions import AirflowFailException

from cpaas_provider.sending.partitions import Partition
from cpaas_provider.sources import as_source
from cpaas_provider.sources.files import redacted_path
from cpaas_provider.sources.results_file import (
    Columns,
    ResultsFileError,
    as_results_path,
    check_writable,
    write_outcomes,
)
from cpaas_provider.tasks.errors import PreflightError
from cpaas_provider.tasks.lineage import Lineage, WrittenFile, WrittenList
from cpaas_provider.tasks.runner import Attempt

if TYPE_CHECKING:
    from cpaas_provider.hooks.connection import CpaasConnection
    from cpaas_provider.sources.base import Source
    from cpaas_provider.tasks.airflow.progress import ProgressRecorder
    from cpaas_provider.tasks.runtime import TaskRuntime

PREVIEW_KEY = "preview"
"""The XCom with rendered messages or masked changed rows, if the author wants some."""


class BulkAttempt(Attempt):
    """One try of an operator that reads a source.

    :param partition: the part of the recipients or rows that the task has, as the author gave it
    :param results_path: where the results file goes; ``None`` for none
    """

    nothing_done = "Nothing was sent."
    metrics = ""
    """The prefix of the metrics of its progress."""

    def __init__(self, runtime: TaskRuntime, results_path: Any, partition: Mapping[str, int] | None = None) -> None:
        self._runtime = runtime
        self._partition = Partition.read(partition)
        self._results_path = results_path
        self._progress: ProgressRecorder | None = None
        self._sources: list[Source] = []
        self._written: list[WrittenList | WrittenFile] = []

    @property
    def lineage(self) -> Lineage | None:
        """What OpenLineage shows of the try, ``None`` if it ended before it read a source."""
        return Lineage(self._sources, self._written) if self._sources else None

    @cached_property
    def _connection(self) -> CpaasConnection:
        """The settings of the connection, of which each partition has its share."""
        connection = self._runtime.connection
        return connection.divided_by(self._partition.of) if self._partition.of > 1 else connection

    def _publish(self, figures: Mapping[str, float]) -> None:
        """Take the figures of the progress, for the pages and as metrics."""
        if self._progress is not None:
            self._progress.update(figures)
        self._runtime.publish(self.metrics, figures)

    def _end_progress(self, state: str, report: Mapping[str, Any]) -> None:
        """Record how the try ended, if its progress was recorded."""
        if self._progress is not None:
            self._progress.end(state, report)

    def _read_source(self, field: str, value: Any) -> Source:
        try:
            source = as_source(value)
        except ValueError as error:
            raise AirflowFailException(f"{field}: {error} {self.nothing_done}") from None
        self._sources.append(source)
        return source

    @cached_property
    def _results_file(self) -> Any:
        try:
            return as_results_path(self._results_path)
        except ValueError as error:
            raise AirflowFailException(f"{error} {self.nothing_done}") from None

    def _check_results_file(self) -> None:
        """Check that the results file can be written, if the author wants one.

        :raises PreflightError: when it cannot be written now
        """
        if self._results_path is None:
            return
        try:
            check_writable(self._results_file)
        except ResultsFileError as error:
            raise PreflightError(
                f"{error} {self.nothing_done.rstrip('.')} in this try. Correct results_path or its storage.",
                permanent=False,
            ) from None

    def _write_results(self, lines: Iterable[Mapping[str, Any]], columns: Columns) -> None:
        """Write the results file, if the author wants one.

        :raises ResultsFileError: when it cannot be written
        """
        if self._results_path is not None:
            count = itertools.count()
            write_outcomes(self._results_file, map(itemgetter(0), zip(lines, count, strict=False)), columns)
            self._written.append(WrittenFile(self._results_file, columns, next(count)))
            self._runtime.log.info("Results file written: %s.", redacted_path(self._results_file))
