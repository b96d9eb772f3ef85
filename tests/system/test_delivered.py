"""It is known of everybody what became of the message, whenever the API server is killed while reports come in."""

from __future__ import annotations

import dataclasses
import os
import random
from collections import Counter

import pytest
import sqlalchemy

from tests.system.delivering.killer import REPORTING, Kill
from tests.system.delivering.oracle import Evidence, violations
from tests.system.delivering.run import Plan, deliver
from tests.system.delivering.service import Fate, Progress, Said

MINUTE = 60.0
POSTGRES = "postgresql://postgres@127.0.0.1:5432/test"


@pytest.fixture
def postgres():
    pytest.importorskip("psycopg2", reason="psycopg2-binary is not installed")
    engine = sqlalchemy.create_engine(POSTGRES, connect_args={"connect_timeout": 3})
    try:
        engine.connect().close()
    except sqlalchemy.exc.OperationalError:
        pytest.skip("no PostgreSQL on 127.0.0.1:5432 lets the user postgres into the database test without a password")
    finally:
        engine.dispose()
    return POSTGRES


def see(plan, home, capsys):
    with capsys.disabled():
        outcome = deliver(plan, home, print)
        print(outcome)
    assert not outcome.violations(), "\n".join(outcome.violations())
    assert len(outcome.seen.kills) == plan.kills
    assert len(outcome.seen.rows) == plan.recipients


@pytest.mark.timeout(20 * MINUTE)
def test_kill_loses_no_report(tmp_path, capsys):
    see(Plan(recipients=400, kills=1, seed=7), tmp_path, capsys)


@pytest.mark.skipif(not os.environ.get("TORTURE"), reason="long: make torture")
@pytest.mark.timeout(60 * MINUTE)
def test_ten_thousand_recipients_and_ten_kills(tmp_path, capsys):
    see(Plan(recipients=10_000, kills=10, seed=random.randrange(10**9)), tmp_path, capsys)


@pytest.mark.skipif(not os.environ.get("TORTURE"), reason="long: make torture")
@pytest.mark.timeout(60 * MINUTE)
def test_ten_thousand_recipients_and_ten_kills_from_the_sending_on_with_postgresql(postgres, tmp_path, capsys):
    plan = Plan(recipients=10_000, kills=10, seed=random.randrange(10**9), during_sending=3, store=postgres)
    see(plan, tmp_path, capsys)


ADA, BO, CY = (f"234803000000{number}" for number in range(3))
FATES = (
    Fate(ADA, "delivered", ("delivered", "sent")),
    Fate(BO, "undelivered", ("undelivered",)),
    Fate(CY, "clicked", ("clicked", "delivered")),
)
# Said twice each; one was kept and not acknowledged, and so said and kept once more.
SAID = (*(Said(one, True, 1) for one in "aabbcc"), Said("c", True, 2))
STORED = Counter(a=2, b=2, c=4)
PROGRESS = Progress(booked=7, pending=0, due=0, sent=8, acknowledged=7, refused=1, given_up=0)
KNOWN = {"delivered": 2, "undelivered": 1, "in_flight": 0}


def known(**changed):
    outcomes = {ADA: "delivered", BO: "undelivered", CY: "clicked"} | changed
    return [{"recipient": who.strip("_"), "outcome": outcome} for who, outcome in outcomes.items()]


def of(who, outcome):
    return known(**{f"_{who}": outcome})


KEPT = Evidence(
    state="success",
    people=(ADA, BO, CY),
    progress=PROGRESS,
    statuses=FATES,
    said=SAID,
    report={"expected": 3, "unreported": 0, "conflicts": 0, **KNOWN},
    lines=known(**{CY: "delivered"}),
    rows=known(),
    counted=KNOWN,
    stored=STORED,
    kills=(Kill(REPORTING, PROGRESS, (), 5.0),),
)


def but(**changed):
    return dataclasses.replace(KEPT, **changed)


def test_oracle_accepts_complete_evidence():
    assert violations(KEPT) == []
    assert violations(but(lines=known())) == []


@pytest.mark.parametrize(
    ("broken", "said"),
    [
        (but(state="failed"), "ended as failed"),
        (but(statuses=(*FATES, FATES[0])), "1 sent to more than once"),
        (but(people=(ADA, BO, CY, "2348039999999")), "1 not sent to"),
        (but(people=(ADA, BO)), "1 sent to and never in the source"),
        (but(progress=PROGRESS._replace(pending=1)), "1 reports left"),
        (but(progress=PROGRESS._replace(given_up=1)), "gave 1 up"),
        (but(report={**KEPT.report, "delivered": 1, "undelivered": 2}), "The sensor counts"),
        (but(report={}), "The sensor counts"),
        (but(report={**KEPT.report, "unreported": 1}), "The sensor returned"),
        (but(counted={**KNOWN, "in_flight": 1}), "The store counts"),
        (but(lines=known()[1:]), "1 not in the outcome file"),
        (but(rows=known()[1:]), "1 not in the store"),
        (but(lines=of("2348039999999", "delivered")), "1 in the outcome file and never sent to"),
        (but(rows=of(BO, "undelivered")), "1 in the store more than once"),
        (but(lines=known(**{ADA: "undelivered"})), "1 otherwise in the outcome file"),
        (but(lines=known(**{ADA: "clicked"})), "1 otherwise in the outcome file"),
        (but(lines=known(**{CY: "in_flight"})), "1 otherwise in the outcome file"),
        (but(rows=known(**{CY: "delivered"})), "1 otherwise in the store"),
        (but(stored=STORED - Counter("a")), "1 acknowledged more often than kept: a"),
        (but(stored=STORED - Counter("bb")), "1 acknowledged more often than kept: b"),
        (but(stored=STORED + Counter("c")), "1 kept more often than sent: c"),
        (but(stored=STORED + Counter("d")), "1 kept more often than sent: d"),
        (but(said=SAID[1:]), "The service shows 6 reports"),
        (but(progress=PROGRESS._replace(refused=0)), "No kill kept any report out"),
        (but(kills=(Kill(REPORTING, PROGRESS, (f"{ADA} sent",), 5.0),)), "1 acknowledged and lost by kill 1"),
    ],
)
def test_oracle_names_what_is_missing_or_wrong(broken, said):
    assert any(said in wrong for wrong in violations(broken)), violations(broken)
