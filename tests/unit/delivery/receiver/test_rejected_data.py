"""A report whose data the database rejects: it alone is stored as raw text, and those that came with it as they are."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Iterator

import pytest
from sqlalchemy import text

from cpaas_provider.database.database import Database, open_database
from cpaas_provider.database.errors import DatabaseError, RejectedDataError
from cpaas_provider.delivery.receiver.writer import ReceivedReport, ReportWriter, StoreResult
from cpaas_provider.delivery.reports import MAX_RECIPIENT, normalise_recipient, read_report
from cpaas_provider.delivery.tracking.report_store import ReportStore
from tests.unit.delivery.report_builders import ADA, OBI, WHEN, counts, outcomes, report, token_for
from tests.unit.delivery.running_receiver import SHOP, TOKEN, Served, serving, together
from tests.waiting import until

PACK = token_for(ADA, OBI)
# In lower case it is a character longer for each of its own.
GROWING = "\u0130" * 200 + "@example.com"


@pytest.fixture
def strict(database: Database) -> Database:
    """A database with a rule of its own, which the receiver knows nothing of."""
    if database.engine.dialect.name == "sqlite":
        rule = (
            "CREATE TRIGGER rule BEFORE INSERT ON cpaas_deliveries WHEN new.reason = 'forbidden' "
            "BEGIN SELECT RAISE(ABORT, 'rule'); END"
        )
    else:
        rule = "ALTER TABLE cpaas_deliveries ADD CONSTRAINT rule CHECK (reason <> 'forbidden')"
    database.write(lambda connection: connection.execute(text(rule)))
    return database


@pytest.fixture
def served(strict: Database) -> Iterator[Served]:
    with serving(strict) as running:
        yield running
        running.gate.open.set()


def test_length_of_a_recipient_is_limited_in_its_stored_form() -> None:
    assert normalise_recipient(GROWING) is None
    longest = "\u0130" * 121 + "@example.com"
    assert len(normalise_recipient(longest) or "") == MAX_RECIPIENT
    assert normalise_recipient("\u0130" + longest) is None


def test_report_of_recipient_that_grows_in_lower_case_is_stored_raw(database: Database) -> None:
    growing = report(GROWING, "delivered", token=PACK)
    found = ReportStore(database).save([report(ADA, "delivered", token=PACK), growing])
    assert found == [StoreResult.NEW, StoreResult.UNREADABLE]
    assert counts(database) == (1, 0, 0)


async def test_rejected_report_does_not_affect_others_of_its_group_commit(strict: Database) -> None:
    others = [f"23480311{number:05d}" for number in range(20)]
    pack = token_for(OBI, *others)
    guilty = report(OBI, "failed", token=pack, reason="forbidden")
    honest = [report(one, "delivered", token=pack) for one in others]
    writer = ReportWriter(ReportStore(strict).save)
    try:
        given = [*honest[:13], guilty, *honest[13:]]
        found = await asyncio.gather(*(writer.submit(one) for one in given))
        assert found == [*[StoreResult.NEW] * 13, StoreResult.UNREADABLE, *[StoreResult.NEW] * 7]
        assert await writer.submit(guilty) is StoreResult.REPEATED
    finally:
        await writer.close()
    assert counts(strict) == (20, 0, 0)
    assert outcomes(strict).keys() == {one.report.recipient for one in honest}
    with strict.connect() as connection:
        rows = connection.execute(text("SELECT body, received_count FROM cpaas_reports"))
        stored = {row.body: row.received_count for row in rows}
    assert len(stored) == 21
    assert stored[guilty.body] == 2


async def test_200_to_the_sender_of_a_rejected_report_and_to_all_others(served: Served) -> None:
    served.gate.open.clear()
    url = served.callback(TOKEN)
    before = asyncio.create_task(asyncio.to_thread(served.post, url))
    await asyncio.to_thread(until, lambda: served.in_hand() == 1)
    body = {"id": "m-guilty", "recipient": OBI, "status": "failed", "reason": "forbidden"}
    guilty = asyncio.create_task(asyncio.to_thread(served.post, url, body))
    crowd = asyncio.create_task(together(served, range(2, 12)))
    await asyncio.to_thread(until, lambda: served.in_hand() == 12)
    served.gate.open.set()
    assert await crowd == [200] * 10
    assert [(await one).status_code for one in (before, guilty)] == [200, 200]
    assert served.counted()["unreadable"] == 1
    assert json.dumps(body) in served.bodies()


class TestReportAndRawTextRejected:
    """A database that takes neither the report nor its raw text."""

    @pytest.fixture
    def no_text(self, database: Database) -> Database:
        bad = "'%forbidden%'"
        if database.engine.dialect.name == "sqlite":
            rule = (
                f"CREATE TRIGGER no_text BEFORE INSERT ON cpaas_reports WHEN new.body LIKE {bad} "
                "BEGIN SELECT RAISE(ABORT, 'rule'); END"
            )
        else:
            rule = f"ALTER TABLE cpaas_reports ADD CONSTRAINT no_text CHECK (body NOT LIKE {bad})"
        database.write(lambda connection: connection.exec_driver_sql(rule.replace("%", "%%")))
        return database

    async def test_report_whose_raw_text_is_rejected_fails_alone(self, no_text: Database) -> None:
        writer = ReportWriter(ReportStore(no_text).save)
        try:
            given = [report(ADA, "sent", token=PACK), report(OBI, "failed", token=PACK, reason="forbidden")]
            found = await asyncio.gather(*(writer.submit(one) for one in given), return_exceptions=True)
        finally:
            await writer.close()
        assert found[0] is StoreResult.NEW
        assert isinstance(found[1], RejectedDataError)
        assert "forbidden" not in str(found[1])

    def test_503_to_the_sender_if_the_raw_text_is_rejected_and_no_data_is_logged(
        self, no_text: Database, caplog: pytest.LogCaptureFixture
    ) -> None:
        with serving(no_text) as served:
            served.connections["bank"] = SHOP
            body = {"id": "m-7", "recipient": OBI, "status": "failed", "reason": "forbidden"}
            assert served.post(body=body).status_code == 503
            assert served.post().status_code == 200
        assert OBI not in caplog.text


def test_characters_that_the_database_cannot_encode_are_stored_escaped(postgres_url: str) -> None:
    """As in a PostgreSQL of another encoding; the rule here stands for it."""
    with open_database(postgres_url) as database:
        rule = "ALTER TABLE cpaas_reports ADD CONSTRAINT narrow CHECK (octet_length(body) = length(body))"
        database.write(lambda connection: connection.execute(text(rule)))
        body = '{"recipient": "2348030000001", "status": "delivered", "reason": "\u00e9\U0001f600"}'
        found = ReportStore(database).save(
            [ReceivedReport("shop", "callback", PACK, read_report(json.loads(body)), body, WHEN)]
        )
        assert found == [StoreResult.UNREADABLE]
        with database.connect() as connection:
            (stored,) = connection.execute(text("SELECT body FROM cpaas_reports")).scalars()
        assert json.loads(stored) == json.loads(body)


def test_value_the_driver_cannot_send_is_rejected_data(database: Database) -> None:
    with pytest.raises(RejectedDataError) as rejected:
        database.write(lambda connection: connection.execute(text("SELECT :it"), {"it": "half\ud800"}))
    assert "half" not in str(rejected.value)


def test_nul_is_rejected_data_on_postgresql(postgres_url: str) -> None:
    with open_database(postgres_url) as database, pytest.raises(RejectedDataError):
        database.write(lambda connection: connection.execute(text("SELECT :it"), {"it": "nul\x00"}))


def test_missing_table_is_not_rejected_data(sqlite_url: str) -> None:
    with open_database(sqlite_url) as database:
        database.write(lambda connection: connection.execute(text("DROP TABLE cpaas_reports")))
        with pytest.raises(DatabaseError) as failed:
            ReportStore(database).save([report(ADA, "sent", token=PACK)])
    assert not isinstance(failed.value, RejectedDataError)
