"""A receiver whose database failed takes reports again by itself, and has stored all that it acknowledged, once."""

from __future__ import annotations

import os
import random

import pytest

from tests.system.attacking.faults import failing, faults_of_postgresql, faults_of_sqlite, own_role, small_disk
from tests.system.attacking.places import receiving
from tests.system.test_delivered import postgres as postgres  # as a fixture
from tests.tcp_proxy import leading_through, proxy_before

MINUTE = 60.0
TORTURE = bool(os.environ.get("TORTURE"))
ROUNDS, SECONDS, SEED = (6, (1.0, 12.0), random.randrange(10**9)) if TORTURE else (1, (1.0, 2.0), 7)
WORKERS = [1, 4] if TORTURE else [1]


def see(outcome, where, capsys):
    with capsys.disabled():
        print(f"\n{where}, seed {SEED}: {outcome}")
    assert not outcome.violations(), "\n".join(outcome.violations())


@pytest.mark.timeout(20 * MINUTE)
@pytest.mark.parametrize("workers", WORKERS)
def test_sqlite_whose_disk_was_full_or_that_was_locked(tmp_path, capsys, workers):
    with (
        small_disk(tmp_path / "disk") as own_disk,
        receiving(tmp_path, None, workers=workers, store_at=tmp_path / "disk") as place,
    ):
        faults = faults_of_sqlite(place, tmp_path / "disk" / "store.db", own_disk=own_disk)
        outcome = failing(place, faults, SECONDS, ROUNDS, SEED)
    see(outcome, f"sqlite, {workers} workers", capsys)


@pytest.mark.timeout(30 * MINUTE)
@pytest.mark.parametrize("workers", WORKERS)
def test_postgresql_that_failed_over_hung_or_was_read_only(tmp_path, capsys, postgres, workers):
    with (
        own_role(postgres) as role,
        proxy_before(postgres) as proxy,
        receiving(
            tmp_path, postgres, workers=workers, through=lambda store: leading_through(proxy, store, role)
        ) as place,
    ):
        outcome = failing(place, faults_of_postgresql(place.store, role, proxy), SECONDS, ROUNDS, SEED)
    see(outcome, f"postgresql, {workers} workers", capsys)
