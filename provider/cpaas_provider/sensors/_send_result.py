"""The result of a send operator, parsed to the deliveries to wait for."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from datetime import date
from typing import Any

from msgspec import Struct

from cpaas_provider.api.values import no_value_reason
from cpaas_provider.triggers._polling.criteria import NOTHING_ACCEPTED, DeliveryCriteria, ToResolve

MAX_CAMPAIGNS = 100_000

_REFERENCE = re.compile(r"[A-Za-z0-9_-]{1,100}")
_EXPECTED = "what a send operator returned (its .output), a list of that, or references"
_NOT_A_REFERENCE = (
    "send_result is text that is no reference. A template turns every value into text. Give the operator's .output "
    "instead, or render the DAG with render_template_as_native_obj=True."
)
_NO_REFERENCE = (
    "send_result has a result that names no request with delivery reports. Reports arrive only for messages that were "
    "sent while the connection had a callback_url. Set it to the receiver's public URL and send again. A passcode has "
    "no delivery reports: wait for it with OtpStatusSensor."
)
_NO_REPORTS = (
    "send_result is of a task whose delivery reports cannot reach this Airflow, so only a timeout would end the wait. "
    "When the task sent, its connection had no callback_url, or the task had a callback of its own. Set callback_url "
    "on the connection to the receiver's public URL, leave callback out, and send again."
)


class AwaitedSends(Struct, frozen=True):
    """What a sensor waits for.

    :param campaigns: references of campaigns, and of requests that belong to none
    :param criteria: when the wait is over
    :param first_days: those of the campaigns whose results name the day of their first request
    """

    campaigns: tuple[str, ...]
    criteria: DeliveryCriteria
    first_days: tuple[tuple[str, date], ...] = ()


def parse_send_result(
    given: Any, *, min_delivered: float | None = None, wait_for_unknown: bool = False
) -> AwaitedSends:
    """Return what the sensor waits for.

    :param given: the result of a send operator, any number of results, or references
    :param min_delivered: see ``DeliveryCriteria``
    :param wait_for_unknown: also wait for a report of each recipient of unknown outcome
    :raises ValueError: when that names nothing to wait for, with a message for a DAG author
    """
    campaigns: dict[str, None] = {}
    without_count: list[str] = []
    unknown: list[str] = []
    to_resolve: list[ToResolve] = []
    first_days: list[tuple[str, date]] = []
    expected = unknown_recipients = 0
    for entry in _iter_results(given):
        open_recipients = _unknown_recipients(entry) if wait_for_unknown else 0
        names, recipients, unresolved = _parse_one(entry, open_recipients)
        if campaigns.keys() >= set(names):
            continue
        campaigns.update(dict.fromkeys(names))
        unknown.extend(unresolved)
        if (day := _first_day(entry)) is not None:
            first_days.append((names[0], day))
        if recipients is None:
            without_count.extend(names)
            to_resolve += [ToResolve(name, 0, 0, waits_for_unknown=True) for name in names if wait_for_unknown]
        else:
            expected += recipients
            unknown_recipients += open_recipients
            if isinstance(entry, Mapping) and entry.get("reference") and _unknown_recipients(entry):
                to_resolve.append(ToResolve(names[0], recipients, open_recipients, wait_for_unknown))
        if len(campaigns) > MAX_CAMPAIGNS:
            raise ValueError(
                f"send_result names more than {MAX_CAMPAIGNS:,} requests, more than one sensor can wait for."
            )
    # Of those to resolve, the database has newer numbers.
    if not expected and not unknown_recipients and not without_count and not to_resolve:
        raise ValueError(NOTHING_ACCEPTED)
    criteria = DeliveryCriteria(
        expected, min_delivered, unknown_recipients, tuple(without_count), tuple(to_resolve), frozenset(unknown)
    )
    return AwaitedSends(tuple(campaigns), criteria, tuple(first_days))


def _iter_results(given: Any) -> Iterator[Any]:
    """Yield results or references one by one; a mapped task that was skipped has none."""
    if isinstance(given, (str, Mapping)):
        yield given
    elif isinstance(given, Iterable) and not isinstance(given, bytes):
        yield from (entry for entry in given if entry is not None)
    elif given is None:
        raise ValueError("send_result is empty: the task that sends returned nothing. It may have been skipped.")
    else:
        raise ValueError(f"send_result must be {_EXPECTED}; it is of type {type(given).__name__}.")


def _unknown_recipients(entry: Any) -> int:
    return _number(entry, "unknown_recipients", default=0) if isinstance(entry, Mapping) else 0


def _first_day(entry: Any) -> date | None:
    """Return the day of the first request of a campaign, ``None`` if the result does not name it."""
    day = entry.get("first_request_on") if isinstance(entry, Mapping) and entry.get("reference") else None
    try:
        return date.fromisoformat(day) if isinstance(day, str) else None
    except ValueError:
        return None


def _parse_one(entry: Any, open_recipients: int) -> tuple[list[str], int | None, list[str]]:
    """Return the references of one result, the number of recipients accepted, and the references of unknown outcome.

    A reference alone has neither.

    :param open_recipients: the recipients of unknown outcome to wait for
    """
    if isinstance(entry, str):
        if reason := no_value_reason(entry):
            raise ValueError(f"send_result {reason}: the template or task it came from had no value.")
        if not _REFERENCE.fullmatch(entry):
            raise ValueError(_NOT_A_REFERENCE)
        return [entry], None, []
    if not isinstance(entry, Mapping):
        raise ValueError(f"send_result must be {_EXPECTED}; it holds something of type {type(entry).__name__}.")
    if entry.get("dry_run"):
        raise ValueError(
            "send_result is of a campaign that was a dry run. Nothing was sent, so there is nothing to wait for."
        )
    campaign = entry.get("reference")
    accepted = [campaign] if campaign else _references(entry, "references")
    # Those of a campaign are part of it, and the database distinguishes them.
    unknown = [] if campaign else _references(entry, "unknown_references")
    names = [*accepted, *unknown]
    if not names and not _nothing_was_sent(entry):
        raise ValueError(_NO_REFERENCE)
    if not all(isinstance(name, str) and _REFERENCE.fullmatch(name) for name in names):
        raise ValueError("send_result has a result with a reference that this provider did not make.")
    number = _number(entry, "sent", "recipients", default=len(accepted))
    if (number or open_recipients) and entry.get("delivery_reports", "") is None:
        raise ValueError(_NO_REPORTS)
    return names, number, unknown


def _references(entry: Mapping[str, Any], name: str) -> list[Any]:
    found = entry.get(name)
    return list(found) if isinstance(found, (list, tuple)) else []


def _nothing_was_sent(entry: Mapping[str, Any]) -> bool:
    return "references" in entry and _number(entry, "recipients", default=0) == 0


def _number(entry: Mapping[str, Any], *names: str, default: int) -> int:
    for name in names:
        if (number := entry.get(name)) is None:
            continue
        if not isinstance(number, int) or isinstance(number, bool) or number < 0:
            raise ValueError(
                f"send_result has a result whose {name} is no whole number, so the number of recipients to wait for is "
                "unknown. Give the operator's .output as it is."
            )
        return number
    return default
