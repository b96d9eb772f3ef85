"""The operators whose requests are made at most once, each with its recipient and what the service received."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from airflow.sdk import BaseOperator

from cpaas_provider.operators.airtime import BuyAirtimeOperator
from cpaas_provider.operators.contacts import CreateContactRowOperator, UpsertContactRowOperator
from cpaas_provider.operators.email import SendEmailOperator
from cpaas_provider.operators.otp import RequestOtpOperator
from cpaas_provider.operators.sms import SendSmsOperator
from tests.airflow.harness.task_runner import TaskRunner, address, digits, fault, phone
from tests.airflow.harness.tries import Run, new_dag

RECIPIENT = "adaeze"
"""The recipient of a case that needs only one."""

# Faults that leave the outcome unknown; with `cut_before` the request was not carried out.
LOST = ("cut_after", "cut_before", "error_500_after", "stall_body", "broken_json", "missing_field")


@dataclass(frozen=True)
class Kind:
    """One kind of operator that sends, buys or creates at most once.

    :param field: what is required in its answer
    :param identity: what of its result names it
    """

    name: str
    operator: type[BaseOperator]
    operation: str
    box: str
    arguments: Callable[[], dict[str, Any]]
    recipient: str
    field: str = "id"
    identity: str = "id"
    has_reference: bool = True

    def run(
        self,
        task_runner: TaskRunner,
        /,
        dag: dict[str, Any] | None = None,
        run: dict[str, Any] | None = None,
        **given: Any,
    ) -> Run:
        """Return a run of one task that does it."""
        with new_dag(**(dag or {})) as made:
            self.operator(task_id="send", **{**self.arguments(), **given})
        return Run(task_runner, made, **(run or {}))

    def mapped(self, task_runner: TaskRunner, given: list[dict[str, Any]], **common: Any) -> Run:
        """Return a run of one task that is mapped over arguments."""
        usual = {name: value for name, value in self.arguments().items() if name not in given[0]}
        with new_dag() as made:
            self.operator.partial(task_id="send", **{**usual, **common}).expand_kwargs(given)
        return Run(task_runner, made)

    def inbox_items(self, task_runner: TaskRunner) -> list[dict[str, Any]]:
        """Return what the service has of it, oldest first; of airtime what was really bought."""
        found = task_runner.inbox_items(self.box, self.recipient)
        return [one for one in found if one.get("status") != "duplicate"]

    def requests(self, task_runner: TaskRunner) -> int:
        """Return the number of requests the service received, whatever its responses."""
        return int(task_runner.sandbox.counters()["requests"].get(self.operation, 0))

    def lose(self, task_runner: TaskRunner, how: str, **params: Any) -> None:
        """Have the response lost, and the probe of a passcode fail."""
        figures = {"missing_field": {"field": self.field}, "stall_body": {"seconds": 5}}.get(how, {})
        task_runner.sandbox.control(*fault(self.operation, how, **figures, **params))
        task_runner.sandbox.control(*fault("find_otps", "unauthorized"))


SMS = Kind(
    "sms", SendSmsOperator, "send_sms", "sms",
    lambda: {"recipients": phone(RECIPIENT), "content": "Your parcel is here"}, digits(RECIPIENT),
)  # fmt: skip
EMAIL = Kind(
    "email", SendEmailOperator, "send_email", "email",
    lambda: {"recipients": address(RECIPIENT), "content": "Your parcel is here", "subject": "Parcel"},
    address(RECIPIENT),
)  # fmt: skip
AIRTIME = Kind(
    "airtime", BuyAirtimeOperator, "buy_airtime", "airtime",
    lambda: {"network": "MTN", "amount": 100, "recipient": phone(RECIPIENT)}, digits(RECIPIENT),
)  # fmt: skip
OTP = Kind(
    "otp", RequestOtpOperator, "request_otp", "otp",
    lambda: {"recipient": phone(RECIPIENT)}, digits(RECIPIENT), field="created_datetime", has_reference=False,
)  # fmt: skip
ROW = Kind(
    "row", CreateContactRowOperator, "create_contact_row", "contacts",
    lambda: {"columns": {"Name": RECIPIENT}}, RECIPIENT, field="row", identity="row_id", has_reference=False,
)  # fmt: skip
UPSERT = Kind(
    "upsert", UpsertContactRowOperator, "create_contact_row", "contacts",
    lambda: {"columns": {"Name": RECIPIENT}}, RECIPIENT, field="row", identity="row_id", has_reference=False,
)  # fmt: skip
KINDS = {kind.name: kind for kind in (SMS, EMAIL, AIRTIME, OTP, ROW, UPSERT)}
SOME = {kind.name: kind for kind in (SMS, OTP, ROW)}
"""A message, a send with a probe, and one without a recipient: enough where all kinds share the code."""
SENDS = {kind.name: kind for kind in (SMS, EMAIL, AIRTIME, OTP)}


class FailsAfterSend:
    """Something after the send that fails the task in its first tries: ``post_execute`` of an operator.

    :param tries: the numbers of the tries that fail
    """

    def __init__(self, *tries: int) -> None:
        self._tries = tries
        self.results: list[Any] = []

    def __call__(self, context: Any, result: Any = None) -> None:
        self.results.append(result)
        if context["ti"].try_number in self._tries:
            raise RuntimeError("the lines are down after the send")
