from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest
from sqlalchemy import event, update

from cpaas_provider.database.database import Database
from cpaas_provider.database.schema.delivery import deliveries
from cpaas_provider.delivery.tracking.counts import DeliveryCounts, counts_changed_since, read_counts, read_recipients
from tests.unit.delivery.report_builders import ADA, OBI, UMA, counts, report, save_reports, start_send, token_for


@pytest.fixture
def filled(database: Database) -> Database:
    """Two campaigns and a request of its own."""
    save_reports(
        database,
        report(ADA, "delivered", token=token_for(ADA, OBI, UMA)),
        report(OBI, "bounced", token=token_for(ADA, OBI, UMA)),
        report(UMA, "sent", token=token_for(ADA, OBI, UMA)),
        report(ADA, "clicked", token=token_for(campaign="summer")),
        report(ADA, "failed", token=token_for(ADA, campaign="one", reference="one")),
    )
    return database


def test_campaign_is_counted_by_the_statuses_of_its_recipients(filled: Database) -> None:
    assert counts(filled, "spring") == (1, 1, 1)
    assert counts(filled, "summer") == (1, 0, 0)
    assert counts(filled, "one") == (0, 1, 0)
    assert counts(filled, "unheard of") == (0, 0, 0)


@pytest.mark.parametrize("is_first", [True, False])
def test_report_on_another_connection_than_the_send_does_not_count(database: Database, is_first: bool) -> None:
    theirs = report(OBI, "bounced", token=token_for(ADA, OBI), conn_id="bank")
    if is_first:
        save_reports(database, theirs)
    start_send(database)
    save_reports(database, report(ADA, "delivered", token=token_for(ADA, OBI)))
    save_reports(database, theirs)
    assert counts(database) == (1, 0, 0)
    with database.connect() as connection:
        changed = counts_changed_since(connection, datetime.now(UTC), ["spring"])
        assert (changed["spring"].delivered, changed["spring"].undelivered) == (1, 0)
        assert [row["recipient"] for row in read_recipients(connection, ["spring"])] == [ADA]


def test_thousands_of_campaigns_are_counted_in_few_queries(filled: Database) -> None:
    asked = []
    event.listen(filled.engine, "before_cursor_execute", lambda *given: asked.append(given[2]))
    with filled.connect() as connection:
        found = read_counts(connection, ["spring", *(f"none{number}" for number in range(5000)), "one"])
    assert set(found) == {"spring", "one"}
    assert len([query for query in asked if query.startswith("SELECT")]) == 11


def test_changed_campaigns_are_found_by_one_query(filled: Database) -> None:
    long_ago = datetime.now(UTC) - timedelta(hours=1)
    with filled.engine.begin() as connection:
        connection.execute(update(deliveries).values(updated_at=long_ago))
    save_reports(filled, report(UMA, "delivered", token=token_for(ADA, OBI, UMA)))
    asked = []
    event.listen(filled.engine, "before_cursor_execute", lambda *given: asked.append(given[2]))
    with filled.connect() as connection:
        found = counts_changed_since(connection, datetime.now(UTC), {"spring", "one"})
        assert counts_changed_since(connection, datetime.now(UTC), {"one"}) == {}
    assert {name: one.final for name, one in found.items()} == {"spring": 3}
    asked.pop()
    assert len([query for query in asked if query.startswith("SELECT")]) == 1


def test_duplicate_or_weaker_report_changes_no_counts(filled: Database) -> None:
    one = report(ADA, "delivered", token=token_for(campaign="autumn"))
    save_reports(filled, one)
    with filled.connect() as connection:
        before = read_counts(connection, ["autumn"])
    save_reports(filled, one, report(ADA, "sent", token=token_for(campaign="autumn")))
    with filled.connect() as connection:
        assert read_counts(connection, ["autumn"]) == before


def test_recipients_are_read_with_their_outcomes(filled: Database) -> None:
    with filled.connect() as connection:
        found = list(read_recipients(connection, ["spring", "one"]))
    assert [(one["campaign"], one["recipient"], one["outcome"]) for one in found] == [
        ("spring", ADA, "delivered"),
        ("spring", OBI, "bounced"),
        ("spring", UMA, "in_flight"),
        ("one", ADA, "undelivered"),
    ]


def test_delivery_counts_are_added() -> None:
    first, second = datetime(2026, 1, 1, tzinfo=UTC), datetime(2026, 1, 2, tzinfo=UTC)
    assert DeliveryCounts(1, 2, 3, first) + DeliveryCounts(1, 0, 0, second) == DeliveryCounts(2, 2, 3, second)
    assert DeliveryCounts() + DeliveryCounts(1) == DeliveryCounts(1)
    assert DeliveryCounts(2, 3, 1).final == 5
