"""One try of an operator that reads, or whose request a retry may make again."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from cpaas_provider.operators._runtime import task_log
from cpaas_provider.operators._runtime.runner import Attempt

if TYPE_CHECKING:
    from cpaas_provider.api.client import CpaasClient
    from cpaas_provider.hooks.connection import CpaasConnection
    from cpaas_provider.operators._runtime.runtime import TaskRuntime


@dataclass(frozen=True)
class ReadAttempt(Attempt):
    """One try that makes one request.

    :param request: makes it
    """

    runtime: TaskRuntime
    request: Callable[[CpaasClient, CpaasConnection], Any]
    task_type: str
    begin_line: str

    def run(self) -> Any:
        """Make the request and return its result."""
        client = self.runtime.client
        self.runtime.log.info("%s", self.begin_line)
        result = self.request(client, self.runtime.connection)
        self.runtime.log.info("%s", task_log.done(self.task_type, result))
        return result
