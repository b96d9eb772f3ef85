"""What is true of all classes of operators, sensors and notifiers: how deep they are stacked, and what a flag is."""

from __future__ import annotations

import inspect
from typing import Any

import pytest

from cpaas_provider import notifications, operators, sensors
from cpaas_provider._common.rendering import TEXT_FIELDS

MAX_CLASSES = 3
OBJECT_FIELDS = {
    *("amount", "columns", "expires_in", "key", "length", "on_missing", "personalisation", "phone", "recipient"),
    *("recipients", "results_path", "send_result", "source", "suppression_list", "test_recipients"),
    *(
        "max_changes",
        "max_new",
        "new_map",
        "max_deletes",
        "max_failure_ratio",
        "resync",
        "retry_rejected",
        "without_sending",
    ),
    *("allow_backfill", "frequency_cap", "lookup_ttl", "max_charge", "max_duration", "max_identical_rejections"),
    *("max_lateness", "max_lookups", "max_recipients", "min_balance", "preview_count", "price_per_page"),
    *("on_limit", "send_window", "skip_dnd", "test_only", "use_suppression_list"),
}
"""Templated fields that native rendering may make a list, a mapping or a number."""
PUBLIC = [name for name in operators.__all__ if name.endswith("Operator")]


@pytest.mark.parametrize("name", PUBLIC)
def test_operator_has_at_most_three_provider_classes(name: str) -> None:
    ours = [kind for kind in getattr(operators, name).__mro__ if kind.__module__.startswith("cpaas_provider")]
    assert len(ours) <= MAX_CLASSES


def test_native_rendering_knows_for_each_templated_field_whether_it_is_text() -> None:
    classes = [getattr(package, name) for package in (notifications, operators, sensors) for name in package.__all__]
    fields = {field for kind in classes for field in getattr(kind, "template_fields", ())}
    assert fields == TEXT_FIELDS | OBJECT_FIELDS
    assert not TEXT_FIELDS & OBJECT_FIELDS


CLASSES = {name: getattr(package, name) for package in (notifications, operators, sensors) for name in package.__all__}
CLASSES = {name: kind for name, kind in CLASSES.items() if isinstance(kind, type)}
ARGUMENTS: dict[str, Any] = {
    "amount": 60,
    "columns": {"Name": "Ada"},
    "content": "Hello",
    "key": "customer",
    "network": "MTN",
    "otp_id": "otp-1",
    "phone": "+2348031234567",
    "recipient": "+2348031234567",
    "recipients": "+2348031234567",
    "results_path": "/results.jsonl",
    "row_id": "row-1",
    "send_result": "cpaas-1",
    "source": [],
    "subject": "Hello",
    "test_recipients": ["+2348031234567"],
    "token": "4711",
}
NEEDED = {"content", "test_recipients"}
"""Arguments with a default, without which some option cannot be used."""
RENAMED = {"dry_run": "without_sending"}
"""Attributes that are named otherwise than their arguments."""


def parameters(kind: type) -> dict[str, inspect.Parameter]:
    """Return the arguments of a class, with those of its bases that are ours."""
    ours = [base for base in reversed(kind.__mro__) if base.__module__.startswith("cpaas_provider")]
    return {
        name: parameter
        for base in ours
        if "__init__" in vars(base)
        for name, parameter in inspect.signature(base.__init__).parameters.items()  # type: ignore[misc]  # of a class
    }


def flags() -> list[tuple[str, str]]:
    return [
        (name, option)
        for name, kind in CLASSES.items()
        for option, parameter in parameters(kind).items()
        if "bool" in str(parameter.annotation)
    ]


def instance(name: str, **options: Any) -> Any:
    kind = CLASSES[name]
    accepted = parameters(kind)
    needed = {option for option, parameter in accepted.items() if parameter.default is parameter.empty} | NEEDED
    given = {option: value for option, value in ARGUMENTS.items() if option in accepted and option in needed}
    named = {} if name in notifications.__all__ else {"task_id": "task"}
    return kind(**named, **given, **options)


def test_classes_have_flags() -> None:
    assert {name for name, _ in flags()} >= {"OtpStatusSensor", "DeliverySensor", "SendSmsOperator", "SmsNotifier"}


@pytest.mark.parametrize(("name", "option"), flags())
@pytest.mark.parametrize(
    ("text", "value"), [("False", False), ("false", False), (" TRUE ", True), (True, True), (False, False)]
)
def test_flag_given_as_text_is_read(name: str, option: str, text: Any, value: bool) -> None:
    made = instance(name, **{option: text})
    attribute = RENAMED.get(option, option)
    assert getattr(made, attribute) is value


@pytest.mark.parametrize(("name", "option"), flags())
@pytest.mark.parametrize("value", ["no", "", "1", 1, 0, [], "None"])
def test_anything_else_is_an_error_that_names_the_flag(name: str, option: str, value: Any) -> None:
    with pytest.raises(ValueError, match=f"{option} must be True or False; it is "):
        instance(name, **{option: value})
