"""The report of a campaign, as small JSON, and what the pages show of it while the campaign is sent."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from decimal import ROUND_DOWN, ROUND_UP, Decimal
from typing import TYPE_CHECKING, Any

from cpaas_provider.api.amounts import divide, format_amount, to_decimal
from cpaas_provider.database.activity.progress import CAMPAIGN
from cpaas_provider.sending.campaign.campaign import RecipientLimitError
from cpaas_provider.sending.campaign.guards.budget import BudgetReachedError
from cpaas_provider.sending.campaign.recipients import LEFT_OUT, RecipientStatus
from cpaas_provider.sources.files import redacted_path
from cpaas_provider.tasks.airflow.confirmation import Question
from cpaas_provider.tasks.airflow.progress import ProgressRecorder

if TYPE_CHECKING:
    from cpaas_provider.sending.campaign.campaign import Campaign
    from cpaas_provider.sending.campaign.loader import LoadStats
    from cpaas_provider.sending.partitions import Partition
    from cpaas_provider.tasks.campaign.spec import CampaignSpec
    from cpaas_provider.tasks.runtime import TaskRuntime

_NAMED = 100
"""References of unknown requests in the report. The results file has all of them."""

_GROWING = {"sent": "sent", "rejected": "rejected", "unknown": "unknown_recipients", "requests": "requests"}
"""The figures of the progress that add to the report: name in the progress, name in the report."""


def build_report(
    campaign: Campaign, found: LoadStats, spec: CampaignSpec, delivery_reports: str | None
) -> dict[str, Any]:
    """Return counts, cost and references of a campaign in all its tries.

    :param delivery_reports: the endpoint that receives its delivery reports. A report on the account's webhook does
        not name the campaign
    """
    counts = campaign.plan.counts()
    charge, balance, requests = campaign.index.money()
    lengths = campaign.plan.lengths()
    pages, encodings = Counter[str](), Counter[str]()
    for encoding, number, texts in lengths:
        pages[str(number)] += texts
        encodings[encoding] += texts
    # What is paid for: recipients of emails, pages of SMS. The pages of a template are not known.
    units: int | None = campaign.recipients()
    if campaign.message.channel.endpoint.operation != "send_email":
        units = sum(number * texts for _, number, texts in lengths) if lengths else None
    references = [request.reference for request in campaign.index.unresolved()]
    first_day = campaign.index.first_day()
    price = spec.price_per_page
    saved = campaign.plan.saved_pages() if spec.dry_run else None
    return {
        "reference": campaign.reference,
        "recipients": campaign.recipients(),
        "sent": counts[RecipientStatus.SENT],
        "rejected": counts[RecipientStatus.REJECTED],
        "unknown_recipients": counts[RecipientStatus.UNKNOWN],
        "not_sent": counts[RecipientStatus.NOT_SENT],
        "invalid_rows": counts[RecipientStatus.INVALID_ROW],
        "duplicates": counts[RecipientStatus.DUPLICATE],
        "lookup_failed": counts[RecipientStatus.LOOKUP_FAILED],
        **{status.word: counts[status] for status in LEFT_OUT},
        "invalid_suppression_rows": found.invalid_suppression_rows,
        "in_other_partitions": found.other_partitions,
        "missing_words": found.missing_words.counts,
        "requests": requests,
        "charge": charge,
        "balance": balance,
        "pages": dict(pages),
        "encodings": dict(encodings),
        "estimated_charge": None if price is None or units is None else float(to_decimal(price) * units),
        "gsm7_saved_pages": saved,
        "gsm7_saved_charge": None if price is None or saved is None else float(to_decimal(price) * saved),
        "first_request_on": None if first_day is None else first_day.isoformat(),
        "unknown_references": references[:_NAMED],
        "delivery_reports": delivery_reports,
        "results_path": None if spec.results_path is None else redacted_path(spec.results_path),
        "dry_run": spec.dry_run,
    }


_CENT = Decimal("0.01")


def build_question(
    error: RecipientLimitError | BudgetReachedError, campaign: Campaign, report: Mapping[str, Any]
) -> Question | None:
    """Return what a user is asked to confirm when a limit stopped a campaign; ``None`` if that cannot be confirmed.

    :param report: the report of all tries so far
    """
    figures = {
        "Recipients": f"{report['recipients'] + report['in_other_partitions']:,}",
        "Sent": f"{report['sent']:,}",
        "Not sent": f"{report['not_sent']:,}",
        "Unknown": f"{report['unknown_recipients']:,}",
        "Invalid rows": f"{report['invalid_rows']:,}",
        "Charge so far": format_amount(report["charge"]),
    }
    if isinstance(error, RecipientLimitError):
        estimate = {"Estimated charge of all": format_amount(report["estimated_charge"])}
        return Question(str(error), {**figures, **estimate}, {"max_recipients": error.recipients})
    reached = error.reached
    units = campaign.plan.units(RecipientStatus.NOT_SENT)
    if reached is None or not units:
        return None
    unit_price = reached.unit_price or _price_of(campaign.plan.units(RecipientStatus.SENT), report["charge"])
    # Rounded to the side on which the last recipient is not left out.
    rounding = ROUND_UP if reached.name == "max_charge" else ROUND_DOWN
    needed = reached.needed(units, unit_price).quantize(_CENT, rounding)
    if not unit_price or needed < 0:
        return None
    figures |= {
        "Estimated charge of the rest": format_amount(units * unit_price),
        "Balance": format_amount(report["balance"]),
        f"`{reached.name}` now": format_amount(reached.allowed),
    }
    return Question(str(error), figures, {reached.name: str(needed)})


def _price_of(units: int, charge: float | None) -> Decimal:
    """Return the price of a unit by what earlier tries paid; 0 if that is not known."""
    return divide(charge, units) if units and charge else Decimal()


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
        "partition": partition.label,
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
