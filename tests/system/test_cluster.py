"""On a cluster whose workers share no file, a worker is killed and nothing is sent twice, and nothing lost."""

from __future__ import annotations

import dataclasses
import os
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest

from cpaas_provider.api.client import CpaasClient
from tests.system.cluster.moments import TEN, Moment
from tests.system.cluster.oracle import Evidence, violations
from tests.system.cluster.pod_cluster import PodCluster
from tests.system.cluster.rounds import Rounds, Size, rounds
from tests.system.cluster.servers import REDIS, MissingServerError, Servers, own_servers
from tests.system.killing_contacts.oracle import cells_of
from tests.system.killing_contacts.sources import Contact
from tests.system.standalone import wait_for

MINUTE = 60.0
WHOLE = Size(recipients=100_000, contacts=20_000)
SAMPLE = Size(recipients=3_000, contacts=500)
LONG = pytest.mark.skipif(not os.environ.get("TORTURE"), reason="long: make torture")


@pytest.fixture
def servers(request: pytest.FixtureRequest) -> Iterator[Servers]:
    """Databases of the test's own; with a parameter ``None``, without Redis."""
    with ExitStack() as stack:
        try:
            servers = stack.enter_context(own_servers(redis=getattr(request, "param", REDIS)))
        except MissingServerError as error:
            pytest.skip(f"{error}: the cluster is not tested")
        yield servers


def see(holding: Rounds, moments: tuple[Moment, ...]) -> None:
    for moment in moments:
        held = holding.round(moment)
        print(held)
        assert not held.violations(), "\n".join(held.violations())


@pytest.mark.timeout(25 * MINUTE)
@pytest.mark.parametrize("journal", ["task_state", pytest.param("database", marks=LONG)])
def test_worker_killed_in_the_middle_sends_nothing_twice_and_loses_nothing(
    servers: Servers, tmp_path: Path, capsys: pytest.CaptureFixture[str], journal: str
) -> None:
    with capsys.disabled(), rounds(servers, tmp_path, SAMPLE, print, journal=journal) as holding:
        held = holding.round(Moment(0.35, False))
        print(held)
        assert not held.violations(), "\n".join(held.violations())
        # The check notices what another program does at the service.
        seen, row_id = held.seen, next(iter(held.seen.listed or ()))
        with CpaasClient(holding.sandbox.url, holding.sandbox.api_key) as client:
            client.send_sms([seen.arrived[0][0]], "Example", "Hello again")
            client.delete_contact_row(row_id)
        found = violations(holding.evidence(held.run_id, seen.state, seen.people))
        assert any("1 recipients got more than one message" in wrong for wrong in found), found
        assert any("1 contacts are not in the list" in wrong for wrong in found), found


@LONG
@pytest.mark.timeout(240 * MINUTE)
def test_100_000_recipients_and_20_000_contacts_with_a_worker_killed_at_ten_moments(
    servers: Servers, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with capsys.disabled(), rounds(servers, tmp_path, WHOLE, print) as holding:
        see(holding, TEN)


@pytest.mark.skipif(
    not os.environ.get("TORTURE"),
    reason="make torture: a killed worker's tries go on in a new home above, and test_suppressions.py has no database",
)
@pytest.mark.parametrize("servers", [None], indirect=True)
@pytest.mark.timeout(25 * MINUTE)
def test_tries_in_new_homes_continue_what_killed_ones_began_and_need_one_database(
    servers: Servers, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with capsys.disabled(), rounds(servers, tmp_path, Size(1_000, 200), print, PodCluster) as holding:
        see(holding, (Moment(0.35, True),))
        cluster, before = holding.cluster, holding.sandbox.counters()["requests"]
        run_id = cluster.trigger("bare")
        assert wait_for("the bare run to end", lambda: holding.ended(run_id, "bare"), 180.0) == "failed"
        after = holding.sandbox.counters()["requests"]
        assert {name: after[name] for name in after if name != "get_contact_table"} == {
            name: before[name] for name in before if name != "get_contact_table"
        }
        for task in ("send", "sync"):
            pods = [home for home in cluster.homes() if home.name.startswith(f"pod-bare-{task}")]
            said = "".join(file.read_text() for home in pods for file in home.rglob("attempt=*.log"))
            assert "Nothing was sent" in said
            assert "[cpaas] database" in said


ADA, BO, CY = (f"234803000000{number}" for number in range(3))
ROW = Contact("1", "Ada", "234", "gold", 1)
SOUND = Evidence(
    state="success",
    tasks={"send[0]": "success"},
    people=(ADA, BO, CY),
    arrived=((ADA, "delivered"), (BO, "undelivered")),
    reports=({"sent": 2, "unknown_recipients": 1, "recipients": 3},),
    lines=(
        {"recipient": ADA, "outcome": "sent"},
        {"recipient": BO, "outcome": "sent"},
        {"recipient": CY, "outcome": "unknown"},
    ),
    awaited={"delivered": 1, "undelivered": 1, "in_flight": 0, "unreported": 0},
    stored=((ADA, "delivered"), (BO, "undelivered"), (CY, "unreported")),
    contacts=(ROW,),
    listed={"a": cells_of(ROW)},
)


def test_oracle_accepts_what_is_sound() -> None:
    assert violations(SOUND) == []


@pytest.mark.parametrize(
    ("broken", "seen"),
    [
        ({"state": "failed"}, "ended as failed"),
        ({"tasks": {"send[0]": "failed"}}, "1 tasks did not succeed: send[0]"),
        ({"arrived": (*SOUND.arrived, SOUND.arrived[0])}, "1 recipients got more than one message"),
        ({"arrived": SOUND.arrived[:1]}, "1 recipients got no message and are not named"),
        ({"arrived": SOUND.arrived[:1]}, "1 are said to be sent to, and got no message"),
        ({"people": (ADA, BO)}, "1 are in a results file and not in the source"),
        ({"people": (ADA, CY)}, "1 got a message and are not in the source"),
        ({"lines": SOUND.lines[:2]}, "1 recipients are in no results file"),
        ({"lines": (*SOUND.lines, SOUND.lines[0])}, "1 recipients are in the results files more than once"),
        (
            {"lines": ({"recipient": ADA, "outcome": "not_sent"}, *SOUND.lines[1:])},
            "1 got a message and are said not to be reached",
        ),
        ({"reports": ({"sent": 3, "unknown_recipients": 0, "recipients": 3},)}, "The reports of the partitions add up"),
        ({"awaited": {**SOUND.awaited, "unreported": 1}}, "The sensor returned"),
        ({"stored": SOUND.stored[1:]}, "1 recipients with a message are not in the database"),
        ({"stored": (*SOUND.stored, SOUND.stored[0])}, "1 recipients are in the database more than once"),
        ({"stored": ((ADA, "undelivered"), SOUND.stored[1])}, "1 recipients have another outcome in the database"),
        ({"listed": {}}, "not in the list"),
        ({"listed": {"a": cells_of(ROW), "b": cells_of(ROW)}}, "in the list more than once"),
    ],
)
def test_oracle_reports_what_is_not(broken: dict[str, object], seen: str) -> None:
    found = violations(dataclasses.replace(SOUND, **broken))
    assert any(seen in wrong for wrong in found), found
