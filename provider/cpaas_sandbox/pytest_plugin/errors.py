"""What the plugin raises. Errors about messages and DAG runs are assertion errors, so a test fails with them."""

from __future__ import annotations


class SandboxError(RuntimeError):
    """The sandbox refused a call of the test, or the plugin cannot work as it is configured."""


class NotSentError(AssertionError):
    """The sandbox did not accept exactly one such message. The error lists what it accepted."""


class DagFailedError(AssertionError):
    """The DAG run failed. The error of the first failed task is its cause."""


class DagTimeoutError(AssertionError):
    """The DAG run did not end within its time limit."""
