"""Deliveries in every order that senders, the service and people can think of: whatever shows them agrees."""

from __future__ import annotations

import contextlib
import logging
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from fastapi.testclient import TestClient
from hypothesis import HealthCheck, given, note, settings
from hypothesis import strategies as st

from cpaas_provider.database.database import Database, open_database
from cpaas_provider.delivery.tracking import events
from tests.unit.delivery.tracking.model.delivery_records import STRANGER, Outcome
from tests.unit.delivery.tracking.model.delivery_views import DeliveryViews
from tests.unit.delivery.tracking.model.delivery_world import (
    CAMPAIGNS,
    CONNECTIONS,
    RECIPIENTS,
    SPELLINGS,
    DeliveryWorld,
)
from tests.unit.pages.conftest import ALL, mounted

WORDS = ("delivered", "clicked", "opened", "bounced", "failed", "sent", "levitated")
MOMENTS = ("before", "after")


@dataclass(frozen=True)
class Step:
    """Something that happens.

    :param what: the name of a method of ``Script``
    """

    what: str
    arguments: dict[str, Any] = field(default_factory=dict)

    def __repr__(self) -> str:
        return f"{self.what}({', '.join(f'{name}={value!r}' for name, value in self.arguments.items())})"


class Script:
    """Steps on a world, and what is compared after them. A step that makes no sense then does nothing."""

    def __init__(self, world: DeliveryWorld, views: DeliveryViews) -> None:
        self.world = world
        self.views = views
        self.references: list[str] = []

    def run(self, steps: list[Step]) -> None:
        for step in steps:
            getattr(self, step.what)(**step.arguments)
        for campaign in self.world.oracle.campaigns:
            self.world.end(campaign)
        lines = [*self.views.disagreements(), *self.views.publish(), *self.views.publish()]
        assert not lines, "\n".join(lines)

    def send(self, campaign: str, recipients: tuple[str, ...]) -> None:
        self.references.append(self.world.send(campaign, *recipients))

    def record(self, number: int, outcome: Outcome, rejected: tuple[str, ...] = (), dies: str | None = None) -> None:
        if (reference := self._request(number)) and self._outcome(reference) is Outcome.PENDING:
            self.world.record(reference, outcome, rejected=rejected, dies=dies)

    def resolve(self, number: int, is_sent: bool) -> None:
        if (reference := self._request(number)) and self._outcome(reference) is Outcome.UNKNOWN:
            self.world.resolve(reference, is_sent=is_sent)

    def probe(self, number: int) -> None:
        if (reference := self._request(number)) and self._outcome(reference) is Outcome.UNKNOWN:
            request = self.world.oracle.requests[reference]
            is_reported = any(self.world.oracle.status(request, recipient) for recipient in request.recipients)
            is_free = request.statuses_at_erasure or self.world.oracle.has_strangers(request)
            assert self.world.probe(reference) == is_reported or is_free, "the probe differs from the reports"

    def report(self, number: int, word: str, named: int | str | None, by: str = "callback", **options: Any) -> None:
        if not (reference := self._request(number)):
            return
        request = self.world.oracle.requests[reference]
        if isinstance(named, int):
            named = request.recipients[named % len(request.recipients)]
        elif named == STRANGER and len(request.recipients) == 1:
            # Whether the only recipient is meant is open.
            named = None
        self.world.report(reference, word, named, by=by, **options)

    def overlap(self, number: int, word: str, by: str, is_report_first: bool) -> None:
        """Store a report and record its request at the same time."""
        if (reference := self._request(number)) and self._outcome(reference) is Outcome.PENDING:
            request = self.world.oracle.requests[reference]

            def record() -> None:
                self.world.record(reference, Outcome.ACCEPTED)

            def report() -> None:
                self.world.report(reference, word, request.recipients[0], by=by)

            self.world.overlap(*((report, record) if is_report_first else (record, report)))

    def end(self, campaign: str, dies: str | None = None) -> None:
        self.world.end(campaign, dies=dies)

    def erase(self, recipient: str, dies: tuple[int, str] | None = None) -> None:
        self.world.erase(recipient, dies=dies)

    def age(self, hours: float) -> None:
        self.world.age(timedelta(hours=hours))

    def prune(self) -> None:
        self.world.prune()

    def publish(self, dies: tuple[int, str] | None = None) -> None:
        lines = self.views.publish(dies)
        assert not lines, "\n".join(lines)

    def compare(self) -> None:
        lines = self.views.disagreements()
        assert not lines, "\n".join(lines)

    def _request(self, number: int) -> str | None:
        return self.references[number % len(self.references)] if self.references else None

    def _outcome(self, reference: str) -> Outcome:
        return self.world.oracle.requests[reference].outcome


def step(what: str, **arguments: st.SearchStrategy[Any]) -> st.SearchStrategy[Step]:
    return st.builds(Step, st.just(what), st.fixed_dictionaries(arguments))


NUMBERS = st.integers(0, 3)
WHOM = st.sampled_from([0, 0, 1, 2, None, STRANGER])
KILLED = st.sampled_from([None, None, None, *MOMENTS])
KILLED_AT = st.none() | st.tuples(st.integers(1, 4), st.sampled_from(MOMENTS))
RECIPIENT_SETS = st.lists(st.sampled_from(RECIPIENTS), min_size=1, max_size=3, unique=True).map(tuple)
SENT = step("send", campaign=st.sampled_from(list(CAMPAIGNS)), recipients=RECIPIENT_SETS)
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
STEPS = st.one_of(
    SENT,
    RECORDED,
    REPORTED,
    REPORTED,
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
    step("end", campaign=st.sampled_from(list(CAMPAIGNS)), dies=KILLED),
    step("erase", recipient=st.sampled_from(RECIPIENTS), dies=KILLED_AT),
    step("age", hours=st.sampled_from([0.05, 48, 80])),
    step("prune"),
    step("publish", dies=KILLED_AT),
    step("compare"),
)
TRACKED = st.lists(st.sampled_from(list(CAMPAIGNS)), unique=True)

Play = Callable[..., None]


@pytest.fixture
def play(url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Play]:
    """Plays a script on a database that is empty before."""
    monkeypatch.setenv("AIRFLOW__CPAAS__DATABASE", url)
    monkeypatch.setattr(events, "MIN_BATCH_INTERVAL", timedelta(0))
    logging.disable(logging.CRITICAL)
    with contextlib.ExitStack() as stack:
        stack.callback(logging.disable, logging.NOTSET)
        database: Database = stack.enter_context(open_database())
        headers = {"x-dags": ALL, "x-totals": "yes"}
        pages = stack.enter_context(TestClient(mounted(database), base_url="http://testserver", headers=headers))

        def run(*steps: Step, tracked: tuple[str, ...] = ()) -> None:
            with DeliveryWorld(database, tracked=tracked) as world:
                Script(world, DeliveryViews(world, tmp_path, pages)).run(list(steps))

        yield run


@settings(suppress_health_check=list(HealthCheck))
@given(tracked=TRACKED, begin=st.lists(SENT, min_size=1, max_size=3), steps=st.lists(STEPS, max_size=14))
def test_what_is_shown_of_deliveries_agrees_with_the_promises(
    play: Play, tracked: list[str], begin: list[Step], steps: list[Step]
) -> None:
    note(f"tracked={tuple(tracked)}")
    play(*begin, *steps, tracked=tuple(tracked))
