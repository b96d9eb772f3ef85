"""Operators that reach a recipient or buy something, and so do not send in a stale run."""

from __future__ import annotations

import dataclasses
from datetime import timedelta
from typing import TYPE_CHECKING, Any

from airflow.sdk import timezone

from cpaas_provider.operators import _validators as validators
from cpaas_provider.operators.base_idempotent import IdempotentOperator

if TYPE_CHECKING:
    from airflow.sdk import BaseOperatorLink, Context

    from cpaas_provider.api.client import CpaasClient
    from cpaas_provider.hooks.connection import CpaasConnection
    from cpaas_provider.sending.spec import SendSpec


class _LinksWhenAsked:
    """The ``operator_extra_links`` of a class, imported on first use: a DAG file does not use them."""

    def __get__(self, operator: object, owner: type) -> tuple[BaseOperatorLink, ...]:
        if getattr(owner, "operation", None) is None:
            # The service reports nothing of a passcode: its tasks would show a heading with nothing below.
            return ()
        from cpaas_provider.links.delivery import DeliveryLink

        return (DeliveryLink(),)


class SendOperator(IdempotentOperator):
    """Base of operators that reach a recipient or buy something, and so do not send in a stale run.

    :param allow_backfill: let backfills and catch-up runs send, too
    :param track_recipients: record the recipients in the database, so that ``DeliverySensor`` can name recipients
        without a delivery report. It needs ``callback_url`` on the connection
    :param max_lateness: how long after ``run_after`` any other run may still send. ``None`` sets no limit
    """

    operator_extra_links: Any = _LinksWhenAsked()

    def __init__(
        self,
        *,
        allow_backfill: bool = False,
        track_recipients: bool = False,
        max_lateness: timedelta | None = timedelta(days=1),
        **kwargs: Any,
    ) -> None:
        super().__init__(**kwargs)
        self.allow_backfill = self._checked(validators.boolean, allow_backfill=allow_backfill)
        self.track_recipients = self._checked(validators.boolean, track_recipients=track_recipients)
        self.max_lateness = self._checked(validators.duration_or_none, max_lateness=max_lateness)

    def prepare(self, context: Context, client: CpaasClient, connection: CpaasConnection) -> SendSpec:
        """Return what is to be sent, guarded against a stale run."""
        from cpaas_provider.operators._runtime.context import run_info
        from cpaas_provider.sending.run_guard import check_run_may_send

        deed = super().prepare(context, client, connection)

        def preflight() -> None:
            check_run_may_send(
                run_info(context),
                timezone.utcnow(),
                allow_backfill=self.allow_backfill,
                max_lateness=self.max_lateness,
            )
            if self.tracking is not None:
                self.tracking.begin()
            deed.preflight()

        return dataclasses.replace(deed, preflight=preflight)
