"""What ends at the receiver: the life of a callback URL, its quota, and the file that reports go to."""

from __future__ import annotations

import asyncio
import json
import logging
from collections import Counter
from collections.abc import Iterator, Sequence
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import httpx
import pytest
from msgspec.structs import replace
from sqlalchemy import select, update

from cpaas_provider.database.database import Database, open_database
from cpaas_provider.database.schema.delivery import deliveries, reports
from cpaas_provider.delivery.callbacks.tokens import CallbackToken
from cpaas_provider.delivery.receiver import endpoints, quotas
from cpaas_provider.delivery.receiver.log_throttle import ThrottledLogger
from cpaas_provider.delivery.receiver.writer import StoreResult
from cpaas_provider.delivery.tracking.report_store import ReportStore
from cpaas_provider.delivery.tracking.retention import prune
from tests.unit.delivery.report_builders import ADA, OBI, report
from tests.unit.delivery.running_receiver import JSON, REPORT, SHOP, Served, serving


@pytest.fixture(scope="module")
def sqlite(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Database]:
    with open_database(f"sqlite:///{tmp_path_factory.mktemp('bounds') / 'store.db'}") as opened:
        yield opened


@pytest.fixture(scope="module")
def module_receiver(sqlite: Database) -> Iterator[Served]:
    with serving(sqlite) as served:
        yield served


@pytest.fixture
def served(module_receiver: Served, monkeypatch: pytest.MonkeyPatch) -> Served:
    """The receiver, with nothing complained of yet."""
    monkeypatch.setattr(endpoints, "throttled_log", ThrottledLogger(logging.getLogger(endpoints.__name__)))
    module_receiver.observed.clear()
    return module_receiver


async def post_together(url: str, bodies: Sequence[Any]) -> list[int]:
    async with httpx.AsyncClient(timeout=30, trust_env=False, limits=httpx.Limits(max_connections=20)) as client:
        answers = await asyncio.gather(*(client.post(url, json=body) for body in bodies))
    return [answer.status_code for answer in answers]


class TestMovedDatabase:
    def test_503_while_the_database_file_is_missing_and_200_with_its_replacement(self, tmp_path: Path) -> None:
        path = tmp_path / "home" / "store.db"
        with open_database(f"sqlite:///{path}") as database, serving(database) as served:
            assert served.post(body={**REPORT, "note": "before"}).status_code == 200
            elsewhere = path.parent.rename(tmp_path / "elsewhere") / path.name
            path.parent.mkdir()
            answer = served.post(body={**REPORT, "note": "away"})
            assert (answer.status_code, answer.headers["retry-after"]) == (503, "10")
            with open_database(f"sqlite:///{path}") as restored:
                assert served.post(body={**REPORT, "note": "after"}).status_code == 200
                assert stored_notes(restored) == ["after"]
        with open_database(f"sqlite:///{elsewhere}") as moved:
            assert stored_notes(moved) == ["before"]


def stored_notes(database: Database) -> list[str]:
    with database.connect() as connection:
        return [json.loads(body)["note"] for body in connection.execute(select(reports.c.body)).scalars()]


class TestExpiredCallbackUrl:
    def old(self, days: float, reference: str = "spring-old") -> CallbackToken:
        return CallbackToken("spring", reference, 1, datetime.now(UTC) - timedelta(days=days))

    def test_404_if_the_callback_url_is_older_than_its_lifetime(
        self, served: Served, caplog: pytest.LogCaptureFixture
    ) -> None:
        assert served.post(served.callback(self.old(89)), {**REPORT, "note": "young"}).status_code == 200
        before = len(served.stored())
        answer = served.post(served.callback(self.old(91)), {**REPORT, "note": "old"})
        assert (answer.status_code, answer.json()) == (404, {"detail": "Not found."})
        assert len(served.stored()) == before
        assert served.counted()["expired"] == 1
        assert "the callback URL has expired" in caplog.text

    def test_404_to_a_handshake_with_an_expired_token(self, served: Served) -> None:
        then = datetime.now(UTC) - timedelta(days=91)
        assert served.post(served.callback(CallbackToken("handshake", "handshake", 1, then))).status_code == 404

    def test_404_after_the_callback_lifetime_of_the_connection(self, served: Served) -> None:
        served.connections["brief"] = replace(SHOP, callback_lifetime=timedelta(days=1))
        assert served.post(served.callback(self.old(0.9), "brief")).status_code == 200
        assert served.post(served.callback(self.old(1.1), "brief")).status_code == 404

    def test_replay_of_a_pruned_report_is_refused_and_not_stored(
        self, tmp_path: Path, caplog: pytest.LogCaptureFixture
    ) -> None:
        failed = {**REPORT, "status": "failed"}
        with open_database(f"sqlite:///{tmp_path / 'store.db'}") as database, serving(database) as served:
            old, young = served.callback(self.old(10)), served.callback(self.old(2, "spring-young"))
            assert [served.post(url, failed).status_code for url in (old, young)] == [200, 200]
            with database.engine.begin() as connection:
                for column in (reports.c.received_at, deliveries.c.updated_at):
                    connection.execute(
                        update(column.table).values({column.name: datetime.now(UTC) - timedelta(days=8)})
                    )
            horizon = datetime.now(UTC) - timedelta(days=7)
            assert dict(prune(database, horizon, horizon))["cpaas_reports"] == 2
            assert served.post(old, failed).status_code == 404
            assert served.bodies() == []
            with database.connect() as connection:
                assert connection.execute(select(deliveries)).all() == []
            assert served.counted()["expired"] == 1
            # What is younger than what was pruned cannot have been.
            assert served.post(young, failed).status_code == 200


class TestReportQuota:
    def test_429_beyond_the_report_limit_of_a_request(
        self, served: Served, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(quotas, "BASE_REPORTS", 20)
        url = served.callback(CallbackToken("spring", "spring-small", 1))
        said = asyncio.run(post_together(url, [{**REPORT, "note": f"small {number}"} for number in range(70)]))
        assert Counter(said) == {200: 40, 429: 30}
        # Known ones are known all the same, and others have room of their own.
        (known, *_) = [body for body in served.bodies() if "small" in body]
        assert served.post(url, known.encode()).status_code == 200
        assert served.post(served.callback(CallbackToken("spring", "spring-else", 1))).status_code == 200
        assert sum("small" in body for body in served.bodies()) == 40
        assert served.counted()["too_many"] == served.counted()["refused.429"] == 30
        assert caplog.text.count("a callback URL exceeded the report limit of its request") == 1

    def test_429_beyond_the_byte_limit_of_a_request(self, served: Served) -> None:
        url = served.callback(CallbackToken("spring", "spring-large", 1))
        with httpx.Client(trust_env=False, timeout=30) as client:
            bodies = [{"note": f"large {number}", "more": "ä" * 100_000} for number in range(12)]
            said = [client.post(url, content=json.dumps(one, ensure_ascii=False), headers=JSON) for one in bodies]
        assert [answer.status_code for answer in said] == [200] * 5 + [429] * 7
        assert sum(len(body.encode()) for body in served.bodies() if "large" in body) < 1.1 * 1024 * 1024

    def test_report_limit_holds_across_report_stores(self, database: Database) -> None:
        token = CallbackToken("spring", "spring-both", 1)
        stores = [ReportStore(database) for _ in range(3)]
        kept = [report_store.save([report(ADA, "sent", token=token)])[0] for _ in range(60) for report_store in stores]
        assert kept.count(StoreResult.NEW) == 120
        assert set(ReportStore(database).save([report(ADA, "sent", token=token) for _ in range(40)])) == {
            StoreResult.TOO_MANY
        }

    def test_report_limit_holds_within_one_group_commit(self, database: Database) -> None:
        token = CallbackToken("spring", "spring-batch", 1)
        mine = [report(ADA, "sent", token=token) for _ in range(200)]
        others = [report(OBI, "sent", token=CallbackToken("spring", "spring-other", 1)) for _ in range(5)]
        assert (
            ReportStore(database).save([*mine, *others])
            == [StoreResult.NEW] * 120 + [StoreResult.TOO_MANY] * 80 + [StoreResult.NEW] * 5
        )

    def test_account_webhook_has_no_report_limit(self, database: Database) -> None:
        kept = ReportStore(database).save([report(ADA, "sent", message_id="m-1") for _ in range(300)])
        assert set(kept) == {StoreResult.NEW}
