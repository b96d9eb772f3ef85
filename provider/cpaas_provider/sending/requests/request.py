"""What a task requests once: the base of messages, passcodes, purchases and new rows."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Mapping

    from cpaas_provider.sending.spec import Outcome, SendSpec, SuppressionList
    from cpaas_provider.tasks.delivery.reports import DeliveryReports
    from cpaas_provider.tasks.runtime import TaskRuntime


class SingleRequest:
    """What is to be requested once."""

    is_message = False
    """Whether the frequency cap counts it."""

    def build_spec(self, runtime: TaskRuntime, reports: DeliveryReports) -> SendSpec:
        """Return what is to be sent, checked as far as possible before anything leaves."""
        raise NotImplementedError

    def suppressions(self, runtime: TaskRuntime) -> SuppressionList | None:
        """Return the stored suppression list, as far as it applies to this request; ``None`` if it does not."""
        return None

    def record_left_out(self, suppressed: int, capped: int) -> None:
        """Take the numbers of recipients that guards left out, for the result."""

    def result(self, outcome: Outcome, runtime: TaskRuntime) -> dict[str, Any]:
        """Return the task's result, as small JSON, from the results of all tries."""
        raise NotImplementedError

    def record_activity(self, result: Mapping[str, Any], runtime: TaskRuntime) -> None:
        """Record the result for the pages in Airflow's UI, if they do not find it by other means."""


def latest_result(outcome: Outcome) -> dict[str, Any]:
    """Return the result of the last accepted request, empty where none was accepted."""
    return (outcome.accepted[-1].result if outcome.accepted else None) or {}
