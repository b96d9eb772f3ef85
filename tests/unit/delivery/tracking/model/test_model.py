"""Deliveries in every order that senders, the service and people can think of: whatever shows them agrees."""

from __future__ import annotations

from typing import Any

from hypothesis import HealthCheck, given, note, settings
from hypothesis import strategies as st

from tests.unit.delivery.tracking.model.conftest import RunScript
from tests.unit.delivery.tracking.model.delivery_records import STRANGER, Outcome
from tests.unit.delivery.tracking.model.delivery_script import Step
from tests.unit.delivery.tracking.model.delivery_views import LOOKS
from tests.unit.delivery.tracking.model.delivery_world import (
    ADDRESSES,
    CAMPAIGNS,
    CONNECTIONS,
    RECIPIENTS,
    SINGLES,
    SPELLINGS,
)

WORDS = ("delivered", "clicked", "opened", "bounced", "failed", "sent", "levitated")
MOMENTS = ("before", "after")


def step(what: str, **arguments: st.SearchStrategy[Any]) -> st.SearchStrategy[Step]:
    return st.builds(Step, st.just(what), st.fixed_dictionaries(arguments))


NUMBERS = st.integers(0, 3)
WHOM = st.sampled_from([0, 0, 1, 2, None, STRANGER])
KILLED = st.sampled_from([None, None, None, *MOMENTS])
KILLED_AT = st.none() | st.tuples(st.integers(1, 4), st.sampled_from(MOMENTS))
RECIPIENT_SETS = st.lists(st.sampled_from(RECIPIENTS), min_size=1, max_size=3, unique=True).map(tuple)
SENT = st.one_of(
    step("send", campaign=st.sampled_from(["spring", "spring", *CAMPAIGNS]), recipients=RECIPIENT_SETS),
    step("send", campaign=st.just("spring"), recipients=RECIPIENT_SETS),
    step("send_single", kind=st.sampled_from(list(SINGLES)), recipients=RECIPIENT_SETS),
)
RECORDED = step(
    "record",
    number=NUMBERS,
    outcome=st.sampled_from([Outcome.ACCEPTED] * 3 + [Outcome.UNKNOWN, Outcome.REJECTED]),
    rejected=st.lists(st.sampled_from(RECIPIENTS), max_size=1).map(tuple),
    dies=KILLED,
)
REPORTED = step(
    "report",
    number=NUMBERS,
    word=st.sampled_from(WORDS),
    named=WHOM,
    spelling=st.sampled_from(list(SPELLINGS)),
    by=st.sampled_from(["callback", "callback", "reference", "message_id"]),
    times=st.sampled_from([1, 1, 2]),
    is_permanent=st.sampled_from([False, False, True]),
    minutes_ago=st.sampled_from([0, 0, 5, 90]),
    dies=KILLED,
)
FOREIGN = step(
    "report",
    number=NUMBERS,
    word=st.sampled_from(WORDS),
    named=WHOM,
    by=st.sampled_from(["reference", "message_id"]),
    conn_id=st.sampled_from(CONNECTIONS),
)
OFTEN = (SENT, RECORDED, RECORDED, REPORTED, REPORTED, REPORTED)
SELDOM = (
    FOREIGN,
    step(
        "overlap",
        number=NUMBERS,
        word=st.sampled_from(WORDS),
        by=st.sampled_from(["callback", "reference", "message_id"]),
        is_report_first=st.booleans(),
    ),
    step("resolve", number=NUMBERS, is_sent=st.booleans()),
    step("probe", number=NUMBERS),
    step("end", campaign=st.sampled_from(["spring", *CAMPAIGNS]), dies=KILLED),
    step("erase", recipient=st.sampled_from([*RECIPIENTS, *ADDRESSES.values()]), dies=KILLED_AT),
    step("age", hours=st.sampled_from([0.05, 48, 71, 73, 100])),
    step("prune"),
    step("edit_key", conn_id=st.sampled_from(CONNECTIONS), is_kept=st.booleans()),
    step("edit_webhook_key", conn_id=st.sampled_from(CONNECTIONS)),
    step("fall"),
    step("rise"),
    step("publish", dies=KILLED_AT),
    step("compare"),
)
STEPS = st.one_of(*OFTEN, *OFTEN, *SELDOM)
TRACKED = st.lists(st.sampled_from([*CAMPAIGNS, *SINGLES]), unique=True)


@settings(suppress_health_check=list(HealthCheck))
@given(
    tracked=TRACKED,
    looks=st.sampled_from(LOOKS),
    begin=st.lists(SENT, min_size=1, max_size=3),
    steps=st.lists(STEPS, max_size=14),
)
def test_all_views_show_deliveries_as_promised(
    run_script: RunScript, tracked: list[str], looks: str, begin: list[Step], steps: list[Step]
) -> None:
    note(f"{begin + steps}, tracked={tuple(tracked)}")
    run_script(*begin, *steps, tracked=tuple(tracked), looks=(looks,))
