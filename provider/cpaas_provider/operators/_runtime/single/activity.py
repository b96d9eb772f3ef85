"""Records a passcode or a purchase for the pages in Airflow's UI."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from datetime import UTC, datetime
from functools import partial
from typing import TYPE_CHECKING, Any

from cpaas_provider.hooks.activity import record
from cpaas_provider.operators._runtime.single.phone import AirtimeRequest, OtpRequest

if TYPE_CHECKING:
    from sqlalchemy import Connection

    from cpaas_provider.operators._runtime.runtime import TaskRuntime


def record_result(request: object, result: Mapping[str, Any], runtime: TaskRuntime) -> None:
    """Record the result of a send, if the pages show its kind by itself."""
    work: Callable[[Connection], None] | None = None
    if isinstance(request, OtpRequest):
        work = _passcode(result, runtime)
    elif isinstance(request, AirtimeRequest):
        work = _purchase(result, runtime)
    if work is not None:
        record(work)


def _passcode(result: Mapping[str, Any], runtime: TaskRuntime) -> Callable[[Connection], None] | None:
    from cpaas_provider.database.activity.passcodes import record_passcode

    if not result.get("id"):
        return None
    instance: Any = runtime.context["ti"]
    return partial(
        record_passcode,
        conn_id=runtime.conn_id,
        otp_id=str(result["id"]),
        dag_id=instance.dag_id,
        requested_at=_moment(result.get("created_datetime")) or datetime.now(UTC),
        expires_at=_moment(result.get("expires_at")),
    )


def _purchase(result: Mapping[str, Any], runtime: TaskRuntime) -> Callable[[Connection], None] | None:
    from cpaas_provider.database.activity.airtime import AirtimePurchaseRow, record_purchase

    if not result.get("references"):
        return None
    instance: Any = runtime.context["ti"]
    purchase = AirtimePurchaseRow(
        conn_id=runtime.conn_id,
        reference=result["references"][0],
        dag_id=instance.dag_id,
        run_id=instance.run_id,
        task_id=instance.task_id,
        map_index=-1 if instance.map_index is None else instance.map_index,
        network=str(result.get("network") or "")[:40],
        amount=float(result["amount"]),
        charge=result.get("charge"),
        status=str(result.get("status") or "")[:50],
        bought_at=_moment(result.get("created_datetime")) or datetime.now(UTC),
    )
    return partial(record_purchase, purchase=purchase)


def _moment(text: Any) -> datetime | None:
    try:
        found = datetime.fromisoformat(text)
    except (TypeError, ValueError):
        return None
    return found if found.tzinfo else found.replace(tzinfo=UTC)
