"""What a campaign needs of delivery tracking and of the lookup cache."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Sequence
from functools import partial
from typing import TYPE_CHECKING

from cpaas_provider.sending.campaign.guards.dnd import DndFilter, OnLookupError
from cpaas_provider.sending.campaign.progress import LookUps
from cpaas_provider.sending.hashing import lookup_hashers

if TYPE_CHECKING:
    from cpaas_provider.hooks.connection import CpaasConnection
    from cpaas_provider.operators._runtime.campaign.spec import DndOptions
    from cpaas_provider.operators._runtime.delivery.reports import DeliveryReports
    from cpaas_provider.operators._runtime.delivery.tracker import SentRequestRecorder
    from cpaas_provider.operators._runtime.runtime import TaskRuntime
    from cpaas_provider.sending.campaign.recipients import RecipientTable
    from cpaas_provider.sending.spec import Client


class CampaignReports:
    """The delivery reports of a campaign's requests.

    :param reference: the campaign's
    :param external_ref: the author's own reference for all requests
    """

    def __init__(self, reports: DeliveryReports, reference: str, external_ref: str | None) -> None:
        self.external_ref = external_ref
        self._reports = reports
        self._reference = reference
        self._recorder: SentRequestRecorder | None = None

    @contextlib.contextmanager
    def recording(self) -> Iterator[None]:
        """Record accepted requests within, where their delivery is tracked."""
        if self._reports.tracker is None:
            yield
            return
        from cpaas_provider.operators._runtime.delivery.tracker import SentRequestRecorder

        with SentRequestRecorder(self._reports.tracker, self._reference) as self._recorder:
            yield

    def callback_url(self, reference: str, recipients: int) -> str | None:
        """Return where the service sends the delivery reports of a request."""
        return self._reports.callback_url(reference, recipients, self._reference)

    def record(self, reference: str, recipients: Sequence[str], message_id: str | None) -> None:
        """Have a request recorded that the service accepted."""
        if self._recorder is not None:
            self._recorder.add(reference, recipients, message_id)


class DndLookups:
    """Opens the do-not-disturb filter of a campaign."""

    def __init__(self, options: DndOptions, connection: CpaasConnection, runtime: TaskRuntime) -> None:
        self.look_ups = LookUps()
        self._options = options
        self._connection = connection
        self._runtime = runtime

    def open(self, table: RecipientTable, client: Client) -> DndFilter:
        """Return the filter."""
        from cpaas_provider.operators._runtime.campaign.store import open_lookup_cache

        hashers = lookup_hashers(self._connection.hash_secrets)
        return DndFilter(
            table,
            partial(self._look_up, client),
            lambda address: [hash_of(address) for hash_of in hashers],
            open_lookup_cache(self._runtime),
            ttl=self._options.lookup_ttl,
            on_error=OnLookupError(self._options.on_lookup_error),
            at_once=self._connection.settings.max_concurrency,
        )

    async def _look_up(self, client: Client, address: str) -> bool | None:
        from cpaas_provider.api.operations import lookup_phone

        self.look_ups.asked += 1
        try:
            return (await client.run(lookup_phone(f"+{address}"))).dnd
        finally:
            self.look_ups.answered += 1
