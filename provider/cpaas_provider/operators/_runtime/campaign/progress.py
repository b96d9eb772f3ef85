"""What the pages show of a campaign while it is sent and afterwards."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from cpaas_provider.database.activity.progress import CAMPAIGN
from cpaas_provider.operators._runtime.bulk import partition_name
from cpaas_provider.operators._runtime.state.progress import ProgressRecorder

if TYPE_CHECKING:
    from cpaas_provider.operators._runtime.campaign.spec import CampaignSpec
    from cpaas_provider.operators._runtime.runtime import TaskRuntime
    from cpaas_provider.sending.partitions import Partition

_GROWING = {"sent": "sent", "rejected": "rejected", "unknown": "unknown_recipients", "requests": "requests"}
"""The figures of the progress that add to the report: name in the progress, name in the report."""


class CampaignProgress(ProgressRecorder):
    """Records the figures of one try of a campaign: its report, updated by its progress.

    :param begun: the report when the try began
    """

    def __init__(
        self,
        spec: CampaignSpec,
        partition: Partition,
        runtime: TaskRuntime,
        reference: str,
        begun: Mapping[str, Any],
    ) -> None:
        super().__init__(runtime, reference, CAMPAIGN, spec.operation, _settings(spec, partition))
        self._begun = begun
        self._report = dict(begun)
        self.begin(begun)

    def update(self, figures: Mapping[str, Any]) -> None:
        """Have the progress recorded soon."""
        for name, of_report in _GROWING.items():
            # The progress counts unknown requests that are sent again from zero.
            reached = self._begun[of_report] + int(figures.get(name, 0))
            self._report[of_report] = max(self._report[of_report], reached)
        self._report["not_sent"] = max(0, min(self._report["not_sent"], self._begun["not_sent"] - int(figures["done"])))
        for name in ("charge", "balance", "recipients_per_second"):
            self._report[name] = figures.get(name, self._report.get(name))
        super().update(dict(self._report))

    def end(self, state: str, figures: Mapping[str, Any]) -> None:
        """Record the report at the end of the try."""
        super().end(state, {**figures, "recipients_per_second": self._report.get("recipients_per_second")})


def _settings(spec: CampaignSpec, partition: Partition) -> dict[str, Any]:
    """Return what limits the campaign."""
    return {
        **spec.limits,
        "partition": partition_name(partition),
        "send_window": None if spec.send_window is None else " to ".join(map(str, spec.send_window)),
        "timezone": spec.timezone or spec.timezone_column,
        "skip_dnd": True if spec.dnd is not None else None,
        "suppression_list": True if spec.suppression_list is not None else None,
        "test_only": spec.test_only or None,
        "on_unknown": spec.on_unknown,
        "on_rejected_batch": spec.on_rejected_batch,
        "max_identical_rejections": spec.max_identical_rejections,
        "max_lateness": None if spec.max_lateness is None else str(spec.max_lateness),
        "allow_backfill": spec.allow_backfill or None,
    }
