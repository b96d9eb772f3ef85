"""Campaigns against the sandbox: recipients, runs of one task, and the messages the service accepted."""

from __future__ import annotations

from collections import Counter
from collections.abc import Awaitable, Callable, Iterable
from pathlib import Path
from typing import Any

import pytest
from airflow.models.task_state_store import TaskStateStoreModel
from pyarrow import parquet

from cpaas_provider.api.client import AsyncCpaasClient
from cpaas_provider.api.core import RunnableCall
from cpaas_provider.operators.email import EmailCampaignOperator
from cpaas_provider.operators.sms import SmsCampaignOperator
from tests.airflow.harness.task_runner import TaskRunner
from tests.airflow.harness.tries import Run, new_dag
from tests.reading import results_in, with_service_numbers

TEXT = "Hello {name}, your order waits"
PRICE = 4.0
"""What the sandbox charges for a page."""


def digits(count: int, first: int = 0) -> list[str]:
    """Return numbers as they go over the wire."""
    return [f"23480312{number:05d}" for number in range(first, first + count)]


def rows(count: int, first: int = 0, **cells: Any) -> list[dict[str, Any]]:
    """Return as many people, each with a number and a name of their own."""
    people = enumerate(digits(count, first), first)
    return [{"phone": f"+{phone}", "name": f"Person {number}", **cells} for number, phone in people]


def sms(
    task_runner: TaskRunner,
    source: Any,
    /,
    dag: dict[str, Any] | None = None,
    run: dict[str, Any] | None = None,
    **given: Any,
) -> Run:
    """Return a run of one SMS campaign."""
    with new_dag(**(dag or {})) as made:
        SmsCampaignOperator(task_id="campaign", source=source, **{"content": TEXT, **given})
    return Run(task_runner, made, **(run or {}))


def email(task_runner: TaskRunner, source: Any, /, **given: Any) -> Run:
    """Return a run of one email campaign."""
    with new_dag() as made:
        EmailCampaignOperator(task_id="campaign", source=source, **{"content": TEXT, **given})
    return Run(task_runner, made)


def limit_batches(task_runner: TaskRunner, recipients: int = 1, **extras: Any) -> None:
    """Have requests of the default connection name few people, one request after the other."""
    task_runner.connect("cpaas_default", **{"recipients_per_request": recipients, "max_concurrency": 1, **extras})


def count_messages(task_runner: TaskRunner, box: str = "sms") -> Counter[str]:
    """Return how many messages each recipient got."""
    return Counter(item["recipient"] for item in task_runner.sandbox.inbox(box, limit=1000)["items"])


def last_texts(task_runner: TaskRunner, box: str = "sms") -> dict[str, str]:
    """Return what each recipient read last."""
    return {item["recipient"]: item["text"] for item in reversed(task_runner.sandbox.inbox(box, limit=1000)["items"])}


def requests(task_runner: TaskRunner, operation: str = "send_sms") -> int:
    """Return how often the service was asked for it, whatever it answered."""
    return int(task_runner.sandbox.counters()["requests"].get(operation, 0))


def all_requests(task_runner: TaskRunner) -> int:
    """Return how often the service was asked for anything."""
    return int(sum(task_runner.sandbox.counters()["requests"].values()))


def reject_recipients(task_runner: TaskRunner, recipients: Iterable[str], *, named: bool = True) -> None:
    """Have the service refuse packs with these people in them."""
    task_runner.sandbox.control("POST", "seed", {"refused_recipients": list(recipients)})
    task_runner.sandbox.control("PUT", "settings", {"name_refused_recipients": named})


def clear_faults(task_runner: TaskRunner) -> None:
    """Take faults and refusals away; what arrived stays."""
    task_runner.sandbox.control("DELETE", "faults")


def read_results(path: Path) -> list[dict[str, Any]]:
    """Return an outcome file, with numbers as the service has them."""
    if path.suffix == ".parquet":
        return list(map(with_service_numbers, parquet.read_table(path).to_pylist()))
    return results_in(path)


def outcomes(path: Path) -> dict[str, str]:
    """Return what became of each recipient, as the outcome file has it."""
    return {line["recipient"]: line["outcome"] for line in read_results(path)}


def counts(report: dict[str, Any]) -> dict[str, int]:
    """Return the counts of a report that are not nought."""
    names = (
        "sent",
        "rejected",
        "unknown_recipients",
        "not_sent",
        "invalid_rows",
        "duplicates",
        "not_allowed",
        "suppressed",
    )
    return {name: report[name] for name in (*names, "dnd", "lookup_failed") if report[name]}


def stored_state_text(run: Run) -> str:
    """Return all the task's state as it is stored."""
    rows_: list[TaskStateStoreModel] = run.state_rows()
    return "\n".join(str(row.value) for row in rows_)


def record_state_calls(patch: pytest.MonkeyPatch) -> list[tuple[str, str]]:
    """Return what tasks read and write of their state from now on: the name of each call and its key."""
    from airflow.sdk.execution_time.context import TaskStateStoreAccessor

    asked: list[tuple[str, str]] = []
    for name in ("get", "set"):
        plain = getattr(TaskStateStoreAccessor, name)

        def noted(
            store: Any, key: str, *args: Any, _plain: Callable[..., Any] = plain, _name: str = name, **kwargs: Any
        ) -> Any:
            asked.append((_name, key))
            return _plain(store, key, *args, **kwargs)

        patch.setattr(TaskStateStoreAccessor, name, noted)
    return asked


def around_requests(
    patch: pytest.MonkeyPatch, around: Callable[[Callable[[], Awaitable[Any]]], Awaitable[Any]]
) -> None:
    """Have something happen around each request of a campaign.

    :param around: gets what makes the request, and returns its response
    """
    usual = AsyncCpaasClient.run

    async def run(client: AsyncCpaasClient, call: RunnableCall[Any]) -> Any:
        if call.endpoint.operation not in {"send_sms", "send_email"}:
            return await usual(client, call)
        return await around(lambda: usual(client, call))

    patch.setattr(AsyncCpaasClient, "run", run)
