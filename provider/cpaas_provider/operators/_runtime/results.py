"""The results file of a task: whether it can be written, before anything is sent."""

from __future__ import annotations

from typing import Any

from airflow.sdk import ObjectStoragePath
from airflow.sdk.exceptions import AirflowFailException

from cpaas_provider.operators._runtime.errors import PreflightError
from cpaas_provider.sources.results_file import SUFFIXES, ResultsFileError, check_writable


def check_results_path(path: Any) -> None:
    """Check that a results file can be written, where the author asked for one.

    :raises PreflightError: when it cannot be written now
    """
    if path is None:
        return
    if not str(path).endswith(SUFFIXES):
        raise AirflowFailException(f"results_path must end in one of {', '.join(SUFFIXES)}. Nothing was sent.")
    try:
        check_writable(storage_path(path))
    except ResultsFileError as error:
        raise PreflightError(
            f"{error} Nothing was sent in this try. Correct results_path or its storage.", permanent=False
        ) from None


def storage_path(path: Any) -> ObjectStoragePath:
    """Return a path as Airflow's object storage takes it."""
    return path if isinstance(path, ObjectStoragePath) else ObjectStoragePath(str(path))
