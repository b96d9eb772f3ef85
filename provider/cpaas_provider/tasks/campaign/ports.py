"""What a campaign needs of delivery tracking and of the lookup cache."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import TYPE_CHECKING

from airflow.sdk import timezone

from cpaas_provider.api.recipients.msisdn import Msisdn
from cpaas_provider.sending.campaign.guards.dnd import DndFilter, OnLookupError
from cpaas_provider.sending.campaign.progress import LookUps
from cpaas_provider.sending.journal.hashing import lookup_hashers
from cpaas_provider.tasks.delivery.reports import DeliveryReports, ReportOptions

if TYPE_CHECKING:
    from cpaas_provider.hooks.connection import CpaasConnection
    from cpaas_provider.sending.campaign.recipients import RecipientTable
    from cpaas_provider.sending.spec import Client
    from cpaas_provider.tasks.campaign.spec import DndOptions
    from cpaas_provider.tasks.delivery.tracker import SentRequestRecorder
    from cpaas_provider.tasks.runtime import TaskRuntime


class CampaignReports(DeliveryReports):
    """The delivery reports of a campaign's requests.

    :param campaign: the campaign's reference
    """

    def __init__(self, options: ReportOptions, runtime: TaskRuntime, campaign: str) -> None:
        super().__init__(options, runtime)
        self.campaign = campaign
        self.external_ref = options.external_ref
        self._request_recorder: SentRequestRecorder | None = None

    @contextlib.contextmanager
    def recording(self) -> Iterator[None]:
        """Record accepted requests within, where their delivery is tracked."""
        if self.tracker is None or self.campaign is None:
            yield
            return
        from cpaas_provider.tasks.delivery.tracker import SentRequestRecorder

        with SentRequestRecorder(self.tracker, self.campaign) as self._request_recorder:
            yield

    def record(
        self, reference: str, recipients: Sequence[str], message_id: str | None, rejected: Sequence[str]
    ) -> None:
        """Have a request recorded that the service accepted, with the recipients that it rejected from it."""
        if self._request_recorder is not None:
            self._request_recorder.add(reference, recipients, message_id, rejected)


@dataclass
class DndLookups:
    """Opens the do-not-disturb filter of a campaign."""

    options: DndOptions
    connection: CpaasConnection
    runtime: TaskRuntime
    look_ups: LookUps = field(default_factory=LookUps, init=False)

    def open(self, table: RecipientTable, client: Client) -> DndFilter:
        """Return the filter."""
        from cpaas_provider.tasks.campaign.store import open_dnd_cache

        return DndFilter(
            table,
            partial(self._look_up, client),
            lookup_hashers(self.connection.hash_secrets),
            open_dnd_cache(self.runtime),
            since=timezone.utcnow() - self.options.lookup_ttl,
            on_error=OnLookupError(self.options.on_lookup_error),
            at_once=self.connection.settings.max_concurrency,
        )

    async def _look_up(self, client: Client, address: str) -> bool | None:
        from cpaas_provider.api.operations import lookup_phone

        self.look_ups.asked += 1
        try:
            return (await client.run(lookup_phone(Msisdn(address)))).dnd
        finally:
            self.look_ups.answered += 1
