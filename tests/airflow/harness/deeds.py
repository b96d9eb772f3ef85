"""The five things that must happen once, told alike: who does them, whom they reach, and where they arrive."""

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
from tests.airflow.harness.stage import Stage, address, digits, fault, phone
from tests.airflow.harness.tries import Run, new_dag

THERE = "somebody"
"""The one recipient of a scene that needs no more."""

# Answers that do not say what became of a request; `cut_before` is the one where nothing did.
LOST = ("cut_after", "cut_before", "error_500_after", "stall_body", "broken_json", "missing_field")


@dataclass(frozen=True)
class Kind:
    """One kind of deed.

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
        self, stage: Stage, /, dag: dict[str, Any] | None = None, run: dict[str, Any] | None = None, **given: Any
    ) -> Run:
        """Return a run of one task that does it."""
        with new_dag(**(dag or {})) as made:
            self.operator(task_id="deed", **{**self.arguments(), **given})
        return Run(stage, made, **(run or {}))

    def mapped(self, stage: Stage, given: list[dict[str, Any]], **common: Any) -> Run:
        """Return a run of one task that is mapped over arguments."""
        usual = {name: value for name, value in self.arguments().items() if name not in given[0]}
        with new_dag() as made:
            self.operator.partial(task_id="deed", **{**usual, **common}).expand_kwargs(given)
        return Run(stage, made)

    def arrived(self, stage: Stage) -> list[dict[str, Any]]:
        """Return what the service has of it, oldest first; of airtime what was really bought."""
        found = stage.arrived(self.box, self.recipient)
        return [one for one in found if one.get("status") != "duplicate"]

    def requests(self, stage: Stage) -> int:
        """Return how often the service was asked for it, whatever it answered."""
        return int(stage.sandbox.counters()["requests"].get(self.operation, 0))

    def lose(self, stage: Stage, how: str, **params: Any) -> None:
        """Have the answer lost; no evidence of a passcode can be read either."""
        figures = {"missing_field": {"field": self.field}, "stall_body": {"seconds": 5}}.get(how, {})
        stage.sandbox.control(*fault(self.operation, how, **figures, **params))
        stage.sandbox.control(*fault("find_otps", "unauthorized"))


SMS = Kind(
    "sms", SendSmsOperator, "send_sms", "sms",
    lambda: {"recipients": phone(THERE), "content": "Your parcel is here"}, digits(THERE),
)  # fmt: skip
EMAIL = Kind(
    "email", SendEmailOperator, "send_email", "email",
    lambda: {"recipients": address(THERE), "content": "Your parcel is here", "subject": "Parcel"}, address(THERE),
)  # fmt: skip
AIRTIME = Kind(
    "airtime", BuyAirtimeOperator, "buy_airtime", "airtime",
    lambda: {"network": "MTN", "amount": 100, "recipient": phone(THERE)}, digits(THERE),
)  # fmt: skip
OTP = Kind(
    "otp", RequestOtpOperator, "request_otp", "otp",
    lambda: {"recipient": phone(THERE)}, digits(THERE), field="created_datetime", has_reference=False,
)  # fmt: skip
ROW = Kind(
    "row", CreateContactRowOperator, "create_contact_row", "contacts",
    lambda: {"columns": {"Name": THERE}}, THERE, field="row", identity="row_id", has_reference=False,
)  # fmt: skip
UPSERT = Kind(
    "upsert", UpsertContactRowOperator, "create_contact_row", "contacts",
    lambda: {"columns": {"Name": THERE}}, THERE, field="row", identity="row_id", has_reference=False,
)  # fmt: skip
KINDS = {kind.name: kind for kind in (SMS, EMAIL, AIRTIME, OTP, ROW, UPSERT)}
SOME = {kind.name: kind for kind in (SMS, OTP, ROW)}
"""Enough where all go the same way: a message, what there is evidence of, and what reaches nobody."""
SENDS = {kind.name: kind for kind in (SMS, EMAIL, AIRTIME, OTP)}


class FailsAfterwards:
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
