"""One try of an operator that reads, or whose request a retry may make again."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from cpaas_provider.operators._runtime import task_log
from cpaas_provider.operators._runtime.runner import Attempt

if TYPE_CHECKING:
    from cpaas_provider.api.client import CpaasClient
    from cpaas_provider.hooks.connection import CpaasConnection
    from cpaas_provider.operators._runtime.runtime import TaskRuntime


class ReadAttempt(Attempt):
    """One try that makes one request.

    :param request: makes it
    """

    def __init__(
        self,
        runtime: TaskRuntime,
        request: Callable[[CpaasClient, CpaasConnection], Any],
        task_type: str,
        begin_line: str,
    ) -> None:
        self._runtime = runtime
        self._request = request
        self._task_type = task_type
        self._begin_line = begin_line

    def run(self) -> Any:
        """Make the request and return its result."""
        client = self._runtime.client
        self._runtime.log.info("%s", self._begin_line)
        result = self._request(client, self._runtime.connection)
        self._runtime.log.info("%s", task_log.done(self._task_type, result))
        return result
