"""Nobody gets a campaign twice, and nobody is forgotten, whatever is killed and however the source is changed."""

from __future__ import annotations

import os
import random
from collections import Counter

import pytest

from tests.system.killing.strikes import API_SERVER, SUPERVISOR, TASK, Strike
from tests.system.killing_campaigns.__main__ import MINUTE, plans
from tests.system.killing_campaigns.campaigns import Campaign
from tests.system.killing_campaigns.evidence import GIVEN_UP, RETRIES, Part, ReceivedReport, Story
from tests.system.killing_campaigns.logbook import Logbook
from tests.system.killing_campaigns.oracle import violations
from tests.system.killing_campaigns.recipients import Crowd, Row, Version
from tests.system.killing_campaigns.rounds import Killing, Plan

SEED = 7
MOST_FOUL_ROUNDS = 3
LONG_RUN_WITHIN = 40 * MINUTE


@pytest.fixture
def postgres():
    psycopg2 = pytest.importorskip("psycopg2", reason="psycopg2-binary is not installed")
    try:
        psycopg2.connect(host="127.0.0.1", user="postgres", dbname="test", connect_timeout=3).close()
    except psycopg2.OperationalError:
        pytest.skip("no PostgreSQL on 127.0.0.1:5432 lets the user postgres into the database test without a password")


@pytest.fixture
def killing(postgres, tmp_path, request):
    with Killing(tmp_path, request.param) as running:
        yield running
    assert running.airflow.remaining() == []


@pytest.mark.timeout(20 * MINUTE)
@pytest.mark.parametrize("killing", [SEED], indirect=True)
def test_sample_of_kills_breaks_no_promise(killing):
    killing.round(Plan(whole=1, mapped=0, kills=5, outages=0, foul=False, each=1, size=3_000, broken=("forgetful",)))
    # Where the machine is busy, few kills find a process that sends.
    for _ in range(MOST_FOUL_ROUNDS):
        killing.round(Plan(whole=1, mapped=1, kills=6, outages=1, foul=True, each=1, size=3_000))
        if killing.outcome.died >= 3:
            break
    print(killing.outcome)
    assert not killing.outcome.violations(), "\n\n".join(killing.outcome.violations())
    assert killing.outcome.died >= 3
    # Where the journal is forgotten, the same deaths do harm, and it is seen.
    assert any("more than once" in wrong for wrong in killing.outcome.seen("forgetful"))


@pytest.mark.skipif(not os.environ.get("TORTURE"), reason="long: make torture")
@pytest.mark.timeout(LONG_RUN_WITHIN + 15 * MINUTE)
# Named, because every process that collects the tests must find the same names.
@pytest.mark.parametrize("killing", [random.randrange(2**31)], indirect=True, ids=["seed of its own"])
def test_200_kills(killing, capsys):
    outcome = killing.until(200, plans(size=10_000, kills=80), LONG_RUN_WITHIN)
    with capsys.disabled():
        print(f"\nseed {killing.seed}\n{outcome}")
    assert not outcome.violations(), "\n\n".join(outcome.violations())
    died = Counter(strike.victim for strike in outcome.strikes)
    assert died[TASK] >= 60
    assert died[SUPERVISOR] >= 30
    assert died[API_SERVER] >= 4
    assert any("more than once" in wrong for wrong in outcome.seen("forgetful"))
    assert any("nothing arrived" in wrong for wrong in outcome.seen("credulous"))


ADA, BO, CY, DEE = (f"234803000000{number}" for number in range(4))
COUNTED = {"sent": "sent", "rejected": "rejected", "unknown_recipients": "unknown", "not_sent": "not_sent"}


def line(row, who, outcome="sent", message="m", reference="ref"):
    message_id = message if outcome == "sent" else None
    return {"row": row, "recipient": who, "outcome": outcome, "reference": reference, "message_id": message_id}


SENT = (line(1, ADA), line(2, BO))


def story(
    on_unknown="fail",
    state="success",
    lines=SENT,
    tries=2,
    reached=(ADA, BO),
    text="Hello",
    strikes=(),
    log="",
    **report,
):
    crowd = Crowd(0, email=False, chance=random.Random(0))
    crowd.names = {who: {"Ada"} for who in (ADA, BO, CY, DEE)}
    campaign = Campaign("list", False, None, crowd, "sms", on_unknown, False, "pace_50", None, 0.2)
    earlier, present = ([Row(who, who, "Ada") for who in people] for people in ((CY, DEE, ADA, BO), (ADA, BO)))
    campaign.versions = [Version(earlier, 0.0, 10.0), Version(present, 10.0)]
    outcomes = Counter(one["outcome"] for one in lines or ())
    counted = {name: outcomes[outcome] for name, outcome in COUNTED.items()}
    told = {**counted, "recipients": sum(counted.values()), "invalid_rows": 0, "duplicates": 0, **report}
    written = None if lines is None else list(lines)
    part = Part(campaign, -1, state, tries, 20.0, told, written, Logbook(), list(strikes), log)
    inbox: dict[str, list[ReceivedReport]] = {}
    for who in reached:
        inbox.setdefault(who, []).append(ReceivedReport("m", text))
    return Story(campaign, [part], inbox)


UNRESOLVED = (line(1, ADA), line(2, BO, "unknown"))
GONE = line(None, None)
UNREACHABLE = "\n".join(GIVEN_UP)
LAST = (Strike(TASK, 0.0, ("list", -1), RETRIES + 1),)


@pytest.mark.parametrize(
    "kept",
    [
        story(),
        story("resend", reached=(ADA, BO, BO)),
        story("skip", lines=UNRESOLVED),
        story("skip", lines=UNRESOLVED, reached=(ADA,)),
        story("fail", "failed", lines=UNRESOLVED),
        story(lines=(*SENT, GONE), reached=(ADA, BO, CY)),
        story("skip", lines=(*SENT, line(None, None, "unknown"))),
        story(state="failed", lines=(line(1, ADA), line(2, BO, "not_sent")), reached=(ADA,), tries=RETRIES + 1),
        story(state="failed", lines=(), tries=RETRIES + 1, strikes=LAST),
        story(state="failed", lines=None, log=UNREACHABLE),
        story("resend", "failed", lines=(*SENT, line(None, None, "unknown"))),
    ],
)
def test_oracle_accepts_a_run_as_promised(kept):
    assert violations(kept) == []


@pytest.mark.parametrize(
    ("broken", "said"),
    [
        (story(state="running"), "ended as running"),
        (story(state="failed", lines=None), "no outcome file"),
        (story(lines=None, log=UNREACHABLE), "no outcome file"),
        (story(state="failed", lines=None, log=GIVEN_UP[0]), "no outcome file"),
        (story(reached=(ADA, BO, BO)), "more than once"),
        (story("skip", reached=(ADA, BO, BO)), "more than once"),
        (story(reached=(ADA,)), "nothing arrived"),
        (story(text="Hello {name}"), "read ['Hello {name}']"),
        (story(reached=(ADA, BO, "2348099999999")), "never were in the source"),
        (story(lines=SENT[:1]), "of no state of the source"),
        (story(lines=(line(1, CY), line(2, DEE), line(3, ADA), line(4, BO))), "of no state of the source"),
        (story(lines=UNRESOLVED), "only `skip` allows"),
        (story("skip", lines=(line(1, ADA), line(2, BO, "unknown")), tries=1, state="success", sent=2), "report says"),
        (story(lines=(line(1, ADA), line(2, BO, "rejected")), state="failed"), "said not to be reached"),
        (story(lines=(line(1, ADA), line(2, BO, "rejected")), state="failed", reached=(ADA,)), "refuses not"),
        (story(lines=(line(1, ADA), line(2, BO, "rejected")), reached=(ADA,)), "succeeded with 1 failures"),
        (story(lines=(line(1, ADA), line(2, BO, message="other"))), "another message"),
        (story(reached=(ADA, BO, CY)), "1 who are no longer in the source were reached"),
        (story(lines=(*SENT, GONE)), "0 who are no longer in the source were reached"),
        (story(lines=(*SENT, line(None, None, "rejected")), state="failed"), "no longer in the source say"),
        (story(lines=(line(1, ADA), line(2, BO, "not_sent")), state="failed", reached=(ADA,)), "not reached"),
        (story("fail", "failed"), "nothing in its report says why"),
        (story("skip", lines=(line(1, ADA), line(2, BO, "unknown")), tries=1), "1 requests are unknown after 0 deaths"),
    ],
)
def test_oracle_names_the_broken_promise(broken, said):
    assert any(said in wrong for wrong in violations(broken)), violations(broken)


def test_recipient_of_an_unknown_request_in_the_source_is_sent_to_again():
    broken = story("resend", "failed", lines=UNRESOLVED)
    broken.campaign.crowd.renames = False
    assert violations(broken) == [f"1 were not sent to again: ['{BO}']."]
