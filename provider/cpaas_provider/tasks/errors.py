"""What ends a try before its first request. The runner turns it into an exception of Airflow."""

from __future__ import annotations


class PreflightError(Exception):
    """The try ends before a request was sent.

    :param permanent: whether a retry would not help
    """

    def __init__(self, message: str, *, permanent: bool) -> None:
        super().__init__(message)
        self.permanent = permanent
