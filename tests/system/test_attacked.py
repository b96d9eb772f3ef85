"""A receiver under attack loses nothing of what honest senders report, and refuses next to none of it."""

from __future__ import annotations

import os

import pytest

from tests.system.attacking.places import receiving
from tests.system.attacking.run import attacked
from tests.system.test_delivered import postgres as postgres  # as a fixture

MINUTE = 60.0
TORTURE = bool(os.environ.get("TORTURE"))
SECONDS = 300.0 if TORTURE else 10.0
PLACES = [(kind, mounted) for kind in ("sqlite", "postgresql") for mounted in (False, True)]
SAMPLE = [("sqlite", True)]


@pytest.mark.timeout(20 * MINUTE)
@pytest.mark.parametrize(("kind", "mounted"), PLACES if TORTURE else SAMPLE)
def test_honest_reports_are_stored_whatever_others_do(request, tmp_path, capsys, kind, mounted):
    where = request.getfixturevalue("postgres") if kind == "postgresql" else None
    with receiving(tmp_path, where, mounted=mounted) as place:
        seen = attacked(place, SECONDS)
    with capsys.disabled():
        print(f"\n{kind}, {'mounted' if mounted else 'by itself'}: {seen}")
    assert not seen.violations(mounted=mounted), "\n".join(seen.violations(mounted=mounted))
