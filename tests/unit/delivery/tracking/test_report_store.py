from __future__ import annotations

import random
from concurrent.futures import ThreadPoolExecutor
from hashlib import sha256

import pytest
from sqlalchemy import func, select

from cpaas_provider.database.database import Database, open_database
from cpaas_provider.database.errors import DatabaseError
from cpaas_provider.database.schema.delivery import report_counts, reports
from cpaas_provider.delivery.receiver.writer import StoreResult
from cpaas_provider.delivery.reports import STATUS_WORDS, DeliveryStatus
from cpaas_provider.delivery.tracking.counts import read_recipients
from cpaas_provider.delivery.tracking.report_store import ReportStore
from cpaas_provider.delivery.tracking.sent_requests import SentRequest
from tests.unit.delivery.report_builders import (
    ADA,
    OBI,
    UMA,
    counts,
    finish_send,
    outcomes,
    received_report,
    report,
    save_reports,
    save_requests,
    start_send,
    token_for,
)

PACK = token_for(ADA, OBI)


class TestStoring:
    def test_report_is_stored_and_counted(self, database: Database) -> None:
        assert save_reports(database, report(ADA, "delivered", token=PACK)) == [StoreResult.NEW]
        assert counts(database) == (1, 0, 0)

    def test_duplicate_report_raises_only_its_count(self, database: Database) -> None:
        one = report(ADA, "delivered", token=PACK)
        assert save_reports(database, one) == [StoreResult.NEW]
        assert save_reports(database, one, one) == [StoreResult.REPEATED, StoreResult.REPEATED]
        assert counts(database) == (1, 0, 0)
        with database.connect() as connection:
            assert connection.execute(select(reports.c.received_count)).scalars().all() == [3]

    @pytest.mark.parametrize("named", [{"message_id": "m-1"}, {"external_ref": "cpaas-" + "a" * 24}])
    def test_webhook_duplicate_after_its_request_is_recorded_is_counted_once(
        self, database: Database, named: dict[str, str]
    ) -> None:
        one = report(ADA, "delivered", **named)
        assert save_reports(database, one) == [StoreResult.NEW]
        start_send(database)
        save_requests(database, SentRequest(named.get("external_ref", "pack"), 1, "m-1"))
        assert save_reports(database, one) == [StoreResult.REPEATED]
        assert counts(database) == (1, 0, 0)
        with database.connect() as connection:
            assert connection.execute(select(func.sum(report_counts.c.reports))).scalar_one() == 1

    def test_first_of_identical_reports_in_one_batch_is_new(self, database: Database) -> None:
        one = report(ADA, "delivered", token=PACK)
        assert save_reports(database, one, one) == [StoreResult.NEW, StoreResult.REPEATED]

    @pytest.mark.parametrize("body", [{"hello": "world"}, [], "text", 7, None, {"status": "odd", "to": ADA}])
    def test_unreadable_report_is_stored_once_and_not_counted(self, database: Database, body: object) -> None:
        assert save_reports(database, received_report(body, token=PACK)) == [StoreResult.UNREADABLE]
        assert save_reports(database, received_report(body, token=PACK)) == [StoreResult.REPEATED]
        assert counts(database) == (0, 0, 0)
        with database.connect() as connection:
            assert connection.execute(select(func.count()).select_from(reports)).scalar() == 1

    def test_empty_batch_has_no_results(self, database: Database) -> None:
        assert save_reports(database) == []

    def test_same_report_on_two_connections_is_new_on_each(self, database: Database) -> None:
        body = {"status": "delivered", "to": ADA}
        first, second = (received_report(body, token=PACK, conn_id=name) for name in ("shop", "bank"))
        assert save_reports(database, first, second) == [StoreResult.NEW, StoreResult.NEW]

    def test_unsupported_database_is_refused(self, database: Database, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(database.engine.dialect, "name", "mysql")
        with pytest.raises(DatabaseError, match="SQLite and PostgreSQL"):
            ReportStore(database)


class TestRecipientStatus:
    @pytest.mark.parametrize("first", STATUS_WORDS)
    def test_status_with_the_highest_rank_counts_in_any_order(self, sqlite_url: str, first: str) -> None:
        with open_database(sqlite_url) as database:
            for second in STATUS_WORDS:
                save_reports(database, report(ADA, first, token=token_for(campaign=second)))
                save_reports(database, report(ADA, second, token=token_for(campaign=second)))
                strongest = max(STATUS_WORDS[first], STATUS_WORDS[second])
                assert outcomes(database, second) == {ADA: strongest.name.lower()}

    def test_status_is_the_same_for_reports_stored_together_or_one_by_one(self, database: Database) -> None:
        order = random.Random(7)
        for number in range(20):
            words = order.choices(list(STATUS_WORDS), k=4)
            together, apart = token_for(ADA, OBI, campaign=f"t{number}"), token_for(ADA, OBI, campaign=f"a{number}")
            save_reports(database, *(report(ADA, word, token=together) for word in words))
            for word in words:
                save_reports(database, report(ADA, word, token=apart))
            assert outcomes(database, f"t{number}") == outcomes(database, f"a{number}")

    def test_recipient_with_a_delivery_and_a_failure_is_a_conflict(self, database: Database) -> None:
        save_reports(database, report(ADA, "delivered", token=PACK), report(OBI, "delivered", token=PACK))
        save_reports(database, report(ADA, "failed", token=PACK))
        with database.connect() as connection:
            assert {one["recipient"]: one["conflict"] for one in read_recipients(connection, ["spring"])} == {
                ADA: True,
                OBI: False,
            }

    def test_reason_is_that_of_the_strongest_report(self, database: Database) -> None:
        save_reports(database, report(ADA, "failed", token=PACK, reason="absent"))
        save_reports(database, report(ADA, "sent", token=PACK, reason="on its way"))
        save_reports(database, report(ADA, "rejected", token=PACK, reason="too late"))
        with database.connect() as connection:
            (one,) = read_recipients(connection, ["spring"])
        assert (one["status"], one["reason"], one["outcome"]) == (
            "failed",
            "absent",
            DeliveryStatus.UNDELIVERED.name.lower(),
        )

    def test_recipient_of_two_requests_has_a_status_for_each(self, database: Database) -> None:
        save_reports(database, report(ADA, "failed", token=token_for(ADA, OBI, reference="first")))
        save_reports(database, report(ADA, "delivered", token=token_for(ADA, UMA, reference="second")))
        assert counts(database) == (1, 1, 0)

    def test_status_is_that_of_the_recorded_request(self, database: Database) -> None:
        save_reports(database, report(ADA, "failed", token=token_for(ADA, OBI, reference="first")))
        save_reports(database, report(ADA, "delivered", token=token_for(ADA, UMA, reference="second")))
        start_send(database)
        save_requests(database, SentRequest("second", 2))
        finish_send(database, expected=2)
        assert counts(database) == (1, 0, 0)
        assert outcomes(database) == {ADA: "delivered"}

    def test_report_without_a_name_counts_for_the_only_recipient(self, database: Database) -> None:
        alone = token_for(ADA, reference="alone")
        save_reports(database, report(None, "sent", token=alone), report(None, "delivered", token=alone))
        assert counts(database) == (1, 0, 0)
        assert outcomes(database) == {"": "delivered"}

    def test_report_without_a_name_is_unreadable_for_several_recipients(self, database: Database) -> None:
        assert save_reports(database, report(None, "delivered", token=PACK)) == [StoreResult.UNREADABLE]
        assert counts(database) == (0, 0, 0)


def test_concurrent_stores_count_each_recipient_once(url: str) -> None:
    """Two processes that are told the same, in different order."""
    phones = [f"23480300{number:05d}" for number in range(200)]
    words = ("sent", "delivered", "failed")
    mix = random.Random(3)
    everybody = token_for(*phones)
    told = [report(phone, word, token=everybody) for phone in phones for word in words] * 2

    def work(seed: int) -> list[StoreResult]:
        mine = told[:]
        random.Random(seed).shuffle(mine)
        with open_database(url) as database:
            report_store = ReportStore(database)
            return [one for start in range(0, len(mine), 150) for one in report_store.save(mine[start : start + 150])]

    with open_database(url), ThreadPoolExecutor(4) as pool:
        found = list(pool.map(work, [mix.random() * 1000 for _ in range(4)]))
    assert sum(one is StoreResult.NEW for part in found for one in part) == len(phones) * len(words)
    with open_database(url) as database:
        assert counts(database) == (len(phones), 0, 0)


@pytest.mark.parametrize("length", [10, 2047, 5000])
def test_digest_is_the_hash_of_all_parts_however_long_the_body_is(database: Database, length: int) -> None:
    one = received_report({"status": "odd", "reason": "x" * length})
    assert save_reports(database, one) == [StoreResult.UNREADABLE]
    parts = [part.encode() for part in (one.conn_id, one.source, "", one.body)]
    expected = sha256(b"".join(len(part).to_bytes(4, "big") + part for part in parts)).digest()
    with database.connect() as connection:
        assert connection.execute(select(reports.c.digest)).scalar_one() == expected
