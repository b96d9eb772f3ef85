"""What a rendered template may be for each limit and switch, and that an error does not show what else it was."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import timedelta
from typing import Any

import pytest

from cpaas_provider.operators import (
    BulkPhoneLookupOperator,
    EmailCampaignOperator,
    SmsCampaignOperator,
    SyncContactsOperator,
)
from cpaas_provider.tasks import validators

OPERATORS = (BulkPhoneLookupOperator, EmailCampaignOperator, SmsCampaignOperator, SyncContactsOperator)
OPTIONS = sorted({name: None for operator in OPERATORS for name in operator.typed_fields})
LIFTED = {
    "frequency_cap",
    "max_changes",
    "max_charge",
    "max_deletes",
    "max_duration",
    "max_identical_rejections",
    "max_lateness",
    "max_lookups",
    "max_new",
    "max_recipients",
    "min_balance",
}
"""The limits that a template lifts with the word ``unlimited``."""
RENDERED: list[tuple[str, Any, Any]] = [
    ("max_recipients", "500", 500),
    ("max_recipients", 500, 500),
    ("max_charge", "19.99", 19.99),
    ("max_charge", " 20 ", 20.0),
    ("max_deletes", "0.1", 0.1),
    ("max_deletes", "10", 10),
    ("dry_run", "True", True),
    ("dry_run", "false", False),
    ("dry_run", True, True),
    ("max_failure_ratio", "0", 0.0),
    ("max_lateness", "3600", timedelta(hours=1)),
    ("max_lateness", timedelta(hours=1), timedelta(hours=1)),
    ("max_duration", "90.5", timedelta(seconds=90.5)),
    ("send_window", "['09:00', '20:00']", ["09:00", "20:00"]),
    ("send_window", '["09:00", "20:00"]', ["09:00", "20:00"]),
    ("send_window", ("09:00", "20:00"), ["09:00", "20:00"]),
    ("send_window", "always", "always"),
    ("frequency_cap", ("3", timedelta(days=7)), (3, timedelta(days=7))),
    ("frequency_cap", "[3, 604800]", (3, timedelta(days=7))),
    *((name, "unlimited", None) for name in sorted(LIFTED)),
]
SECRETS = [
    "sk_live_4242",
    "+2348031234567",
    2348031234567,
    "2348031234567.5",
    ["ada@example.org", "4242"],
    {"k": "4242"},
]


def read(name: str, value: Any) -> Any:
    return validators.rendered(validators.OPTION_CHECKS[name])(name, value)


def errors() -> Iterator[tuple[str, Any, str]]:
    for name in OPTIONS:
        for value in SECRETS:
            try:
                read(name, value)
            except ValueError as error:
                yield name, value, str(error)


@pytest.mark.parametrize(("name", "value", "expected"), RENDERED)
def test_rendered_value_becomes_one_of_the_type_of_the_option(name: str, value: Any, expected: Any) -> None:
    found = read(name, value)
    assert (found, type(found)) == (expected, type(expected))


@pytest.mark.parametrize("name", OPTIONS)
@pytest.mark.parametrize("empty", ["", "  ", None, "None", "null", "nan", "NaN", "[]", "()"])
def test_empty_rendering_is_refused_by_every_option_and_lifts_no_limit(name: str, empty: str | None) -> None:
    with pytest.raises(ValueError, match=name):
        read(name, empty)


@pytest.mark.parametrize("empty", ["", "None", None])
def test_empty_rendering_of_an_amount_names_the_param_as_its_cause(empty: str | None) -> None:
    with pytest.raises(ValueError, match=r"price_per_page .*The template gave no value: check the param\."):
        read("price_per_page", empty)


@pytest.mark.parametrize("name", ["max_changes", "max_deletes", "max_new"])
@pytest.mark.parametrize("value", [1.0, "1.0", "1e0", " 1.00 "])
def test_limit_of_1_0_in_a_template_is_refused_because_it_may_stand_for_one_row(name: str, value: Any) -> None:
    with pytest.raises(ValueError, match=f'{name} is 1.0, .* Write 1 for one row, or "unlimited" for all rows'):
        read(name, value)
    assert (read(name, 1), read(name, "1"), read(name, "0.99")) == (1, 1, 0.99)


def test_only_limits_are_lifted_by_unlimited() -> None:
    for name in set(OPTIONS) - LIFTED - {"timezone"}:
        with pytest.raises(ValueError, match=name):
            read(name, "unlimited")


@pytest.mark.parametrize("value", ["1e400", "Infinity", "-Infinity", "1" * 5000, "[" * 5000, "0x10", "1_000", "1,000"])
def test_odd_number_is_refused(value: str) -> None:
    for name in set(OPTIONS) - {"send_window", "timezone"}:
        with pytest.raises(ValueError, match=name):
            read(name, value)


def test_error_names_the_option_and_does_not_show_what_may_be_secret() -> None:
    seen = list(errors())
    assert len(seen) > 5 * len(OPTIONS)
    for name, value, message in seen:
        assert message.startswith(name), message
        for part in ("4242", "803123", "ada@"):
            assert part not in message, (name, value)


def test_error_shows_a_value_that_cannot_be_secret() -> None:
    for value, shown in ((-1, "-1"), ("-1", "-1"), (True, "True"), ("None", "'None'"), ("", "''")):
        with pytest.raises(ValueError, match=f"or 'unlimited'; it is {shown}"):
            read("max_recipients", value)
    with pytest.raises(ValueError, match="it is a text of 12 characters"):
        read("max_recipients", "sk_live_4242")
