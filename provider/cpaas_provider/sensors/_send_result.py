"""The result of a send operator, read as the deliveries to wait for."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

MOST_CAMPAIGNS = 100_000

_REFERENCE = re.compile(r"[A-Za-z0-9_-]{1,100}")
_WHAT_IT_IS = "what a send operator returned (its .output), a list of that, or references"
_NATIVE = (
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
_NOTHING = "send_result names no accepted recipient, so there is no delivery to wait for."


@dataclass(frozen=True, slots=True)
class Sent:
    """What a sensor waits for.

    :param campaigns: references of campaigns, and of requests that belong to none
    :param expected: the number of recipients accepted, as far as the results name it
    :param untold: the campaigns without such a number: references that were given as such
    :param unknown: the campaigns that are requests of unknown outcome
    """

    campaigns: tuple[str, ...]
    expected: int
    untold: tuple[str, ...] = ()
    unknown: tuple[str, ...] = ()


def read_sent(given: Any) -> Sent:
    """Return what the sensor waits for.

    :param given: the result of a send operator, any number of results, or references
    :raises ValueError: where that names nothing to wait for, in words for a DAG author
    """
    campaigns: dict[str, None] = {}
    untold: list[str] = []
    unknown: list[str] = []
    expected = 0
    for one in _several(given):
        names, recipients, doubtful = _read_one(one)
        if campaigns.keys() >= set(names):
            continue
        campaigns.update(dict.fromkeys(names))
        unknown.extend(doubtful)
        if recipients is None:
            untold.extend(names)
        else:
            expected += recipients
        if len(campaigns) > MOST_CAMPAIGNS:
            raise ValueError(
                f"send_result names more than {MOST_CAMPAIGNS:,} requests, more than one sensor can wait for."
            )
    if not expected and not untold:
        raise ValueError(_NOTHING)
    return Sent(tuple(campaigns), expected, tuple(untold), tuple(unknown))


def _several(given: Any) -> Iterator[Any]:
    """Yield results or references one by one; of mapped tasks those that were skipped returned none."""
    if isinstance(given, (str, Mapping)):
        yield given
    elif isinstance(given, Iterable) and not isinstance(given, bytes):
        yield from (one for one in given if one is not None)
    elif given is None:
        raise ValueError("send_result is empty: the task that sends returned nothing. It may have been skipped.")
    else:
        raise ValueError(f"send_result must be {_WHAT_IT_IS}; it is of type {type(given).__name__}.")


def _read_one(one: Any) -> tuple[list[str], int | None, list[str]]:
    """Return the references of one result, the number of recipients accepted, and the references of unknown outcome.

    A reference alone has neither.
    """
    if isinstance(one, str):
        if not _REFERENCE.fullmatch(one):
            raise ValueError(_NATIVE)
        return [one], None, []
    if not isinstance(one, Mapping):
        raise ValueError(f"send_result must be {_WHAT_IT_IS}; it holds something of type {type(one).__name__}.")
    if one.get("dry_run"):
        raise ValueError(
            "send_result is of a campaign that was a dry run. Nothing was sent, so there is nothing to wait for."
        )
    campaign = one.get("reference")
    surely = [campaign] if campaign else _references(one, "references")
    # Those of a campaign are part of it, and the database distinguishes them.
    unknown = [] if campaign else _references(one, "unknown_references")
    names = [*surely, *unknown]
    if not names and not _nothing_was_sent(one):
        raise ValueError(_NO_REFERENCE)
    if not all(isinstance(name, str) and _REFERENCE.fullmatch(name) for name in names):
        raise ValueError("send_result has a result with a reference that this provider did not make.")
    number = _number(one, "sent", "recipients", default=len(surely))
    if number and one.get("delivery_reports", "") is None:
        raise ValueError(_NO_REPORTS)
    return names, number, unknown


def _references(one: Mapping[str, Any], name: str) -> list[Any]:
    found = one.get(name)
    return list(found) if isinstance(found, (list, tuple)) else []


def _nothing_was_sent(one: Mapping[str, Any]) -> bool:
    return "references" in one and _number(one, "recipients", default=0) == 0


def _number(one: Mapping[str, Any], *names: str, default: int) -> int:
    for name in names:
        number = one.get(name)
        if isinstance(number, int) and not isinstance(number, bool) and number >= 0:
            return number
    return default
