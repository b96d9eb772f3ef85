"""Nobody gets anything twice, and nobody is forgotten, whatever is killed while Airflow sends."""

from __future__ import annotations

import os
import random
from collections import Counter

import pytest

from tests.system.killing.__main__ import MINUTE, plans
from tests.system.killing.cases import Case
from tests.system.killing.evidence import Story
from tests.system.killing.journal import Journal
from tests.system.killing.oracle import RETRIES, violations
from tests.system.killing.rounds import Killing, Plan
from tests.system.killing.strikes import API_SERVER, SUPERVISOR, TASK

SEED = 7
LONG_RUN_WITHIN = 30 * MINUTE


@pytest.fixture
def killing(tmp_path, request):
    with Killing(tmp_path, request.param) as running:
        yield running
    assert running.airflow.remaining() == []


@pytest.mark.timeout(20 * MINUTE)
@pytest.mark.parametrize("killing", [SEED], indirect=True)
def test_sample_of_kills_breaks_no_promise(killing):
    killing.round(Plan(cases=14, kills=6, outages=0, foul=False, plain=2))
    killing.round(Plan(cases=10, kills=4, outages=1, foul=True))
    print(killing.outcome)
    assert not killing.outcome.violations(), "\n\n".join(killing.outcome.violations())
    assert killing.outcome.died >= 6
    # Without a journal the same deaths do harm, and it is seen.
    assert killing.outcome.twice_without_journal() >= 1


@pytest.mark.skipif(not os.environ.get("TORTURE"), reason="long: make torture")
@pytest.mark.timeout(LONG_RUN_WITHIN + 15 * MINUTE)
# Named, because every process that collects the tests must find the same names.
@pytest.mark.parametrize("killing", [random.randrange(2**31)], indirect=True, ids=["seed of its own"])
def test_240_kills(killing, capsys):
    outcome = killing.until(240, plans(cases=42, kills=60), LONG_RUN_WITHIN)
    with capsys.disabled():
        print(f"\nseed {killing.seed}\n{outcome}")
    assert not outcome.violations(), "\n\n".join(outcome.violations())
    died = Counter(strike.victim for strike in outcome.strikes)
    assert died[TASK] >= 60
    assert died[SUPERVISOR] >= 40
    assert died[API_SERVER] >= 5
    assert outcome.twice_without_journal() >= 1


def story(on_unknown="fail", state="success", arrivals=(1, 1), entry="accepted", tries=2, unknown=0, log="", id_="0"):
    case = Case("sms", on_unknown, [f"234803000000{n}" for n in range(len(arrivals))], 0)
    return Story(
        case=case,
        state=state,
        tries=tries,
        result={"id": id_, "unknown_recipients": unknown, "unknown_references": ["ref"] if unknown else []},
        report=None,
        journal=Journal({"ref": {"state": entry}} if entry else {}),
        arrivals={one: list(map(str, range(times))) for one, times in zip(case.recipients, arrivals, strict=True)},
        strikes=[],
        outages=[],
        log=log,
        by_evidence=False,
    )


@pytest.mark.parametrize(
    "kept",
    [
        story(),
        story("resend", arrivals=(2, 2)),
        story("skip", arrivals=(0, 0), entry="unknown", unknown=2),
        story("skip", arrivals=(1, 1), entry="pending", unknown=2),
        story(state="failed", arrivals=(0, 0), entry="unknown", log="ref"),
        story(state="failed", arrivals=(1, 1), entry="pending", tries=RETRIES + 1),
        story(state="failed", arrivals=(0, 0), entry=None, tries=RETRIES + 1),
        story(state="failed", arrivals=(0, 0), entry="not_sent", tries=RETRIES + 1),
    ],
)
def test_oracle_accepts_a_run_as_promised(kept):
    assert violations(kept) == []


@pytest.mark.parametrize(
    ("broken", "said"),
    [
        (story(state="running"), "ended as running"),
        (story(arrivals=(1, 2)), "more than once"),
        (story("skip", arrivals=(2, 2), entry="unknown", unknown=2), "more than once"),
        (story(state="failed", arrivals=(2, 2), entry="unknown", log="ref"), "more than once"),
        (story(arrivals=(1, 0)), "nothing arrived"),
        (story("resend", arrivals=(0, 1)), "nothing arrived"),
        (story(arrivals=(0, 0), entry="unknown", unknown=2), "only `skip` allows"),
        (story("skip", arrivals=(0, 0), entry="accepted", unknown=2), "no open entry"),
        (story("skip", arrivals=(0, 0), entry="unknown", unknown=1), "made one request for 2"),
        (story("skip", arrivals=(0, 0), entry="unknown", unknown=0), "nobody as unknown"),
        (story(state="failed", arrivals=(0, 0), entry="accepted"), "says accepted"),
        (story(state="failed", arrivals=(1, 1), entry="not_sent"), "['not_sent'] for it"),
        (story(state="failed", arrivals=(1, 1), entry=None), "no entry for it"),
        (story(entry=None), "no entry for it"),
        (story(id_="other"), "not what arrived"),
        (story(state="failed", arrivals=(0, 0), entry="unknown", log="no word"), "without naming"),
    ],
)
def test_oracle_names_the_broken_promise(broken, said):
    assert any(said in wrong for wrong in violations(broken))
