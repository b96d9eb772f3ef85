"""The report of a campaign, as small JSON."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING, Any

from cpaas_provider.api.amounts import to_decimal
from cpaas_provider.sending.campaign.recipients import LEFT_OUT, RecipientStatus
from cpaas_provider.sources.files import redacted_path

if TYPE_CHECKING:
    from cpaas_provider.operators._runtime.campaign.spec import CampaignSpec
    from cpaas_provider.sending.campaign.campaign import Campaign
    from cpaas_provider.sending.campaign.loader import LoadStats

_NAMED = 100
"""References of unknown requests in the report. The results file has all of them."""


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
    if campaign.message.channel.operation != "send_email":
        units = sum(number * texts for _, number, texts in lengths) if lengths else None
    references = [request.reference for request in campaign.unresolved.requests()]
    price = spec.price_per_page
    return {
        "reference": campaign.reference,
        "recipients": campaign.recipients(),
        "sent": counts[RecipientStatus.SENT],
        "rejected": counts[RecipientStatus.REJECTED],
        "unknown_recipients": counts[RecipientStatus.UNKNOWN],
        "not_sent": counts[RecipientStatus.NOT_SENT],
        "invalid_rows": counts[RecipientStatus.INVALID_ROW],
        "duplicates": counts[RecipientStatus.DUPLICATE],
        **{status.word: counts[status] for status in LEFT_OUT},
        "invalid_suppression_rows": found.invalid_suppression_rows,
        "in_other_partitions": found.other_partitions,
        "requests": requests,
        "charge": charge,
        "balance": balance,
        "pages": dict(pages),
        "encodings": dict(encodings),
        "estimated_charge": None if price is None or units is None else float(to_decimal(price) * units),
        "unknown_references": references[:_NAMED],
        "delivery_reports": delivery_reports,
        "results_path": None if spec.results_path is None else redacted_path(spec.results_path),
        "dry_run": spec.dry_run,
    }
