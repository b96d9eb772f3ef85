"""What a campaign needs of Airflow, of delivery tracking and of the lookup cache, as the engine takes it."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Sequence
from functools import partial
from typing import TYPE_CHECKING

from cpaas_provider.links.delivery import page_url, push_link
from cpaas_provider.operators._runtime.campaign.partition_count import check_partition_count
from cpaas_provider.sending.campaign.guards.dnd import DndFilter, OnLookupError
from cpaas_provider.sending.campaign.progress import LookUps
from cpaas_provider.sending.hashing import lookup_hashers

if TYPE_CHECKING:
    from cpaas_provider.hooks.connection import CpaasConnection
    from cpaas_provider.operators._runtime.campaign.spec import CampaignSpec, DndOptions
    from cpaas_provider.operators._runtime.delivery.reports import DeliveryReports
    from cpaas_provider.operators._runtime.delivery.tracker import SentRequestRecorder
    from cpaas_provider.operators._runtime.runtime import TaskRuntime
    from cpaas_provider.sending.campaign.recipients import RecipientTable
    from cpaas_provider.sending.partitions import Partition
    from cpaas_provider.sending.spec import Client


def has_siblings(spec: CampaignSpec, partition: Partition) -> bool:
    """Return whether other task instances send the rest of the campaign, and only they know their number."""
    return partition.of > 1 and spec.idempotency_key is None and not spec.resend_on_clear


class CampaignPorts:
    """What the engine needs of the try of a campaign.

    :param reference: the campaign's
    :param started_in_time: whether the campaign began in time before the task was deferred, so that it is not late now
    """

    def __init__(
        self,
        spec: CampaignSpec,
        partition: Partition,
        runtime: TaskRuntime,
        reports: DeliveryReports,
        reference: str,
        *,
        started_in_time: bool,
    ) -> None:
        self.stop = runtime.stop
        self.cli_address = runtime.cli_address
        self._spec = spec
        self._partition = partition
        self._runtime = runtime
        self._reports = reports
        self._reference = reference
        self._started_in_time = started_in_time
        self._tracked = False

    def check_may_send(self) -> None:
        """Raise where the run does not send, or where delivery reports would be lost."""
        spec, runtime, tracker = self._spec, self._runtime, self._reports.tracker
        if not self._started_in_time:
            runtime.check_run_may_send(allow_backfill=spec.allow_backfill, max_lateness=spec.max_lateness)
        if has_siblings(spec, self._partition):
            # One that begins its try leaves its number anew, and may not have come to that before.
            check_partition_count(runtime.context, self._partition)
        if tracker is not None and not self._tracked:
            self._reports.begin()
            tracker.record_begin(self._reference)
            runtime.delivery_link = page_url([self._reference])
            push_link(runtime.context, runtime.delivery_link)
            self._tracked = True


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
