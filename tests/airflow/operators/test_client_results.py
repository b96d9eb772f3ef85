"""What a method of a hook's client returned, as the result of one task and the argument of the next."""

from __future__ import annotations

import inspect
import re
from collections.abc import Callable
from typing import Any

import pytest
from airflow.models.xcom import XComModel
from airflow.sdk import task
from airflow.sdk.module_loading import import_string
from airflow.utils.session import create_session
from sqlalchemy import select

from cpaas_provider.api import operations
from cpaas_provider.api.client import CpaasClient
from cpaas_provider.api.models.base import WireResource
from cpaas_provider.hooks.cpaas import CpaasHook
from cpaas_provider.tasks.airflow.task_listener import RESULTS
from tests.airflow.harness.campaigns import PRICE
from tests.airflow.harness.task_runner import TaskRunner, digits, phone
from tests.airflow.harness.tries import Run, new_dag

EMAIL = "ada@example.com"
TEXT = "The secret offer"
CALLS: dict[str, Callable[[CpaasClient], Any]] = {
    "send_sms": lambda client: client.send_sms([phone("ada")], content=TEXT, sender_id="Shop", external_ref="ref-1"),
    "send_email": lambda client: client.send_email([EMAIL], content=TEXT, subject=TEXT, sender_id="shop@example.com"),
    "request_otp": lambda client: client.request_otp(phone("ada"), token="246813"),
    "find_otps": lambda client: client.find_otps(phone("ada")),
    "buy_airtime": lambda client: client.buy_airtime(network="MTN", amount=100, recipient=phone("ada")),
    "lookup_phone": lambda client: client.lookup_phone(phone("ada")),
    "get_contact_table": lambda client: client.get_contact_table(),
    "create_contact_row": lambda client: client.create_contact_row(_cells(client)),
}


def _cells(client: CpaasClient) -> dict[str, str]:
    columns = {column.name: column.id for column in client.get_contact_table().columns}
    return {columns["Name"]: TEXT}


@pytest.mark.parametrize("method", CALLS)
def test_next_task_reads_the_result_and_it_has_no_number_and_no_text(task_runner: TaskRunner, method: str) -> None:
    read: list[Any] = []

    def call() -> Any:
        with CpaasHook().get_conn() as client:
            return CALLS[method](client)

    def use(result: Any) -> None:
        read.append(result)

    with new_dag() as dag:
        task(task_id="use")(use)(task(task_id="call")(call)())
    run = Run(task_runner, dag)
    if method == "find_otps":
        with CpaasHook().get_conn() as client:
            client.request_otp(phone("ada"))
    assert run.run_try("call").state == "success"
    used = run.run_try("use")
    assert used.state == "success", used.error
    with create_session() as session:
        query = select(XComModel.value).where(XComModel.run_id == run.run_id, XComModel.task_id == "call")
        stored = str(session.scalars(query).all())
    for private in (digits("ada"), phone("ada"), EMAIL, TEXT, "246813"):
        assert private not in stored
    (result,) = read
    results = result if isinstance(result, list) else [result]
    assert results
    for resource in results:
        assert isinstance(resource, WireResource)
        assert digits("ada") not in str(resource.model_dump())


def test_next_task_has_the_figures(task_runner: TaskRunner) -> None:
    results: list[Any] = []

    def call() -> Any:
        with CpaasHook().get_conn() as client:
            results.append(CALLS["send_sms"](client))
        return results[0]

    def use(result: Any) -> None:
        results.append(result)

    with new_dag() as dag:
        task(task_id="use")(use)(task(task_id="call")(call)())
    run = Run(task_runner, dag)
    for task_id in ("call", "use"):
        assert run.run_try(task_id).state == "success"
    returned, read = results
    assert read is not returned
    assert (read.id, read.created_datetime) == (returned.id, returned.created_datetime)
    assert read.meta.estimate.charge == returned.meta.estimate.charge == PRICE


def test_results_of_all_methods_are_allowed() -> None:
    functions = [
        function for name, function in inspect.getmembers(operations, inspect.isfunction) if hasattr(CpaasClient, name)
    ]
    returned = {
        word for function in functions for word in re.findall(r"\w+", inspect.signature(function).return_annotation)
    }
    assert returned - {"Call", "list", "bool", "None"} == {name.rpartition(".")[2] for name in RESULTS}
    assert all(issubclass(import_string(name), WireResource) for name in RESULTS)
