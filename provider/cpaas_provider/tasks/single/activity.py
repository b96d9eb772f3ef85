"""Records passcodes and purchases of tasks for the pages in Airflow's UI, which find messages by other means."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from datetime import UTC, datetime
from functools import partial
from typing import TYPE_CHECKING, Any

from cpaas_provider.hooks.activity import record
from cpaas_provider.sending.journal.model import State

if TYPE_CHECKING:
    from sqlalchemy import Connection

    from cpaas_provider.sending.spec import SendOutcome
    from cpaas_provider.tasks.runtime import TaskRuntime


def _record_passcode(result: Mapping[str, Any], outcome: SendOutcome, runtime: TaskRuntime) -> None:
    from cpaas_provider.database.activity.single_requests import record_passcode

    if result["id"]:
        record(
            partial(
                record_passcode,
                conn_id=runtime.conn_id,
                otp_id=str(result["id"]),
                dag_id=runtime.place.dag_id,
                requested_at=_moment(result["created_datetime"]) or datetime.now(UTC),
                expires_at=_moment(result["expires_at"]),
                earlier=outcome.earlier,
            )
        )


def _record_purchase(result: Mapping[str, Any], outcome: SendOutcome, runtime: TaskRuntime) -> None:
    from cpaas_provider.api.models.airtime import PurchaseOutcome, purchase_outcome
    from cpaas_provider.database.activity.single_requests import AirtimePurchaseRow, record_purchase
    from cpaas_provider.delivery.tracking.sent_requests import record_repeated_purchase

    bought = outcome.latest
    if bought is None or bought.state is not State.ACCEPTED:
        return
    purchase = AirtimePurchaseRow(
        runtime.conn_id,
        bought.reference,
        *runtime.place,
        network=str(result["network"] or "")[:40],
        amount=None if result["amount"] is None else float(result["amount"]),
        charge=result["charge"],
        status=str(result["status"] or "")[:50],
        bought_at=_moment(result["created_datetime"]) or datetime.now(UTC),
    )

    def work(connection: Connection) -> None:
        record_purchase(connection, purchase, earlier=outcome.earlier)
        # The task succeeded, so an earlier request bought it.
        if purchase_outcome(purchase.status) is PurchaseOutcome.DUPLICATE:
            record_repeated_purchase(connection, purchase.conn_id, purchase.reference)

    record(work)


RECORDERS: dict[str, Callable[[Mapping[str, Any], SendOutcome, TaskRuntime], None]] = {
    "request_otp": _record_passcode,
    "buy_airtime": _record_purchase,
}
"""What records the result of a task, by operation."""


def _moment(text: Any) -> datetime | None:
    try:
        found = datetime.fromisoformat(text)
    except (TypeError, ValueError):
        return None
    return found if found.tzinfo else found.replace(tzinfo=UTC)
