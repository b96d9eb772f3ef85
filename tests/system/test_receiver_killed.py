"""What a receiver acknowledged is stored, whenever it or one of its workers is killed, and it goes on by itself."""

from __future__ import annotations

import os
import random

import pytest

from tests.system.attacking.kills import killed
from tests.system.attacking.places import receiving
from tests.system.test_delivered import postgres as postgres  # as a fixture

MINUTE = 60.0
KILLS, SEED = (15, random.randrange(10**9)) if os.environ.get("TORTURE") else (3, 7)
PLACES = [("sqlite", 1), ("sqlite", 4), ("postgresql", 1), ("postgresql", 4)]


@pytest.mark.timeout(20 * MINUTE)
@pytest.mark.parametrize(("kind", "workers"), PLACES if os.environ.get("TORTURE") else PLACES[1:3])
def test_nothing_acknowledged_is_lost_by_a_kill(request, tmp_path, capsys, kind, workers):
    where = request.getfixturevalue("postgres") if kind == "postgresql" else None
    with receiving(tmp_path, where, workers=workers) as place:
        outcome = killed(place, KILLS, SEED)
    with capsys.disabled():
        print(f"\n{kind}, {workers} workers, seed {SEED}: {outcome}")
    assert not outcome.violations(), "\n".join(outcome.violations())
    assert sum(outcome.kills.values()) == KILLS
