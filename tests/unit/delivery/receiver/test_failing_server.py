"""The receiver while its PostgreSQL hangs, is away or only reads: 503 in time, health says so, it recovers alone."""

from __future__ import annotations

import logging
from collections.abc import Iterator

import pytest
from sqlalchemy import text

from cpaas_provider.database.database import Database
from cpaas_provider.delivery.receiver import app, endpoints
from cpaas_provider.delivery.receiver.http import responses
from cpaas_provider.delivery.receiver.log_throttle import ThrottledLogger
from tests.tcp_proxy import Mode, Proxy
from tests.unit.delivery.running_receiver import REPORT, Served, serving
from tests.unit.failing_server import behind as behind  # as fixtures
from tests.unit.failing_server import proxy as proxy
from tests.waiting import until

WELL, UNWELL = (200, {"status": "ok"}), (503, {"status": "database unavailable"})


@pytest.fixture(autouse=True)
def fresh_health_and_log(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(app, "HEALTH_SECONDS", 0.0)
    monkeypatch.setattr(endpoints, "throttled_log", ThrottledLogger(logging.getLogger(endpoints.__name__)))


@pytest.fixture
def served(behind: Database) -> Iterator[Served]:
    with serving(behind) as running:
        assert running.post().status_code == 200
        yield running


@pytest.mark.parametrize("mode", [Mode.HANG, Mode.DROP])
def test_503_while_server_fails_and_200_after_it(served: Served, proxy: Proxy, mode: Mode) -> None:
    assert served.health() == WELL
    proxy.turn(mode)
    refused = served.post(body={**REPORT, "id": "m-2"})
    assert (refused.status_code, refused.headers["retry-after"]) == (503, "10")
    assert served.health() == UNWELL
    proxy.turn(Mode.PASS)
    until(lambda: served.health() == WELL)
    until(lambda: served.post(body={**REPORT, "id": "m-2"}).status_code == 200)
    assert len(served.bodies()) == 2


def test_half_closed_session_loses_no_report(served: Served, proxy: Proxy) -> None:
    proxy.turn(Mode.HALF_CLOSE)
    assert served.post(body={**REPORT, "id": "m-2"}).status_code == 200


def test_session_left_on_read_only_server_loses_no_report(served: Served) -> None:
    with served.database.engine.connect() as pooled:
        pooled.execute(text("SET SESSION CHARACTERISTICS AS TRANSACTION READ ONLY"))
        pooled.commit()
    assert served.post(body={**REPORT, "id": "m-2"}).status_code == 200
    assert served.health() == WELL


def test_503_within_the_timeout_if_the_database_does_not_respond(
    served: Served, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(responses, "RESPONSE_TIMEOUT", 0.2)
    served.gate.open.clear()
    assert served.post(body={**REPORT, "id": "m-2"}).status_code == 503
    assert served.in_hand() == 1
    served.gate.open.set()
    until(lambda: not served.in_hand())
    assert served.post(body={**REPORT, "id": "m-2"}).status_code == 200
