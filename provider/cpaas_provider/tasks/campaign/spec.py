"""What an author asks of a campaign, as plain values: rendered arguments and options."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import timedelta
from typing import Any

from msgspec import Struct

from cpaas_provider.sending.campaign.campaign import AuthorOptions


class DndOptions(Struct, frozen=True):
    """The do-not-disturb filter of a campaign."""

    lookup_ttl: timedelta
    on_lookup_error: str


@dataclass(frozen=True, kw_only=True)
class CampaignSpec(AuthorOptions):
    """A campaign as its operator was given it. The operator's arguments explain each.

    :param operation: the client's method
    :param source_summary: the source as Airflow shows it
    :param body: the fields of the request that are the same for all recipients, without the sender
    :param text_fields: the names of those that may have placeholders
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
    send_window: Sequence[str] | None
    timezone: str | None
    timezone_column: str | None
    suppression_list: Any = field(repr=False)
    use_suppression_list: bool
    frequency_cap: tuple[int, timedelta] | None
    frequency_category: str | None
    frequency_contact: str | None
    on_rejected_batch: str
    partition: Mapping[str, int] | None
    idempotency_key: str | None
    max_pending_requests: int | None
    spool_path: str | None
    on_unknown: str
    unknown_timeout: timedelta
    resend_on_clear: bool
    allow_backfill: bool
    max_lateness: timedelta | None
    track_recipients: bool
    dnd: DndOptions | None
    on_limit: str
    confirmation_timeout: timedelta | None
