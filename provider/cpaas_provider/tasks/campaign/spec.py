"""What an author asks of a campaign, as plain values: rendered arguments and options."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import timedelta
from typing import Any


@dataclass(frozen=True)
class DndOptions:
    """The do-not-disturb filter of a campaign."""

    lookup_ttl: timedelta
    on_lookup_error: str


@dataclass(frozen=True, kw_only=True)
class CampaignSpec:
    """A campaign as its operator was given it. The operator's arguments explain each.

    :param operation: the client's method
    :param source_summary: the source as Airflow shows it
    :param body: the fields of the request that are the same for all recipients, without the sender
    :param text_fields: the names of those that may have placeholders
    :param templates: the names of the limits and switches that are templates
    """

    operation: str
    source: Any = field(repr=False)
    source_summary: Any
    body: Mapping[str, Any] = field(repr=False)
    text_fields: tuple[str, ...]
    sender_id: str | None
    encoding: str | None
    external_ref: str | None
    callback: str | None = field(repr=False)
    recipient_column: str
    substitutions: Mapping[str, str] | Sequence[str] | None
    substitution_defaults: Mapping[str, str] | None = field(repr=False)
    results_path: Any
    dry_run: bool
    preview_count: int
    test_recipients: Any = field(repr=False)
    test_only: bool
    max_recipients: int | None
    max_charge: float | None
    min_balance: float | None
    price_per_page: float | None
    on_missing_charge: str
    send_window: Sequence[str] | None
    timezone: str | None
    timezone_column: str | None
    suppression_list: Any = field(repr=False)
    on_invalid_suppression: str
    use_suppression_list: bool
    frequency_cap: tuple[int, timedelta] | None
    frequency_category: str | None
    frequency_contact: str | None
    max_failure_ratio: float
    on_rejected_batch: str
    max_identical_rejections: int | None
    partition: Mapping[str, int] | None
    idempotency_key: str | None
    max_pending_requests: int | None
    spool_path: str | None
    progress_interval: float
    on_unknown: str
    unknown_timeout: timedelta
    resend_on_clear: bool
    allow_backfill: bool
    max_lateness: timedelta | None
    track_recipients: bool
    dnd: DndOptions | None
    on_limit: str
    confirmation_timeout: timedelta | None
    templates: frozenset[str] = frozenset()

    @property
    def limits(self) -> dict[str, Any]:
        """The limits that the first line of the log names."""
        return {
            "max_recipients": self.max_recipients,
            "max_charge": self.max_charge,
            "min_balance": self.min_balance,
            "price_per_page": self.price_per_page,
            "max_failure_ratio": self.max_failure_ratio,
        }
