"""The conditions on rows that other queries nest: about the row of the outer query, however deep they are."""

from __future__ import annotations

import re
from collections.abc import Iterator
from importlib import import_module

import pytest
from sqlalchemy import ColumnElement, Table, exists, select
from sqlalchemy.dialects import postgresql, sqlite

from cpaas_provider.database.database import Database
from cpaas_provider.database.schema.delivery import deliveries, requests, sends
from cpaas_provider.delivery.campaigns import read_campaigns
from cpaas_provider.delivery.tracking import counts, events
from cpaas_provider.delivery.tracking.counts import IS_ACCEPTED, IS_COUNTED
from cpaas_provider.delivery.tracking.sent_requests import SentRequest
from cpaas_provider.pages.summaries import count_campaign
from tests.unit.delivery.report_builders import (
    ADA,
    OBI,
    finish_send,
    outcomes,
    report,
    save_reports,
    save_requests,
    start_send,
    token_for,
)
from tests.unit.delivery.report_builders import counts as numbers

MODULES = ("counts", "events", "event_source", "membership", "report_store", "retention", "sent_requests")

OF_SENDS = {
    *("events._UNKNOWN", "events._ALL_ARE_FINAL", "events._LAST_ERASURE", "events._IS_COMPLETE"),
    *("counts._REPORTED_WITHOUT_REQUEST", "counts._UNREPORTED_WITHOUT_REQUEST"),
}
OF_REQUESTS = {"counts._NOT_REPORTED", "counts._NOT_NAMED"}


def conditions() -> Iterator[tuple[str, Table, ColumnElement[bool]]]:
    """Yield every condition that a module of delivery tracking holds, with the table of its rows."""
    for module_name in MODULES:
        module = import_module(f"cpaas_provider.delivery.tracking.{module_name}")
        for attribute, value in vars(module).items():
            if isinstance(value, ColumnElement):
                name = f"{module_name}.{attribute}"
                table = sends if name in OF_SENDS else requests if name in OF_REQUESTS else deliveries
                yield name, table, value
    for kind, batched in events.BATCHED.items():
        yield f"events.{kind}", deliveries, batched.condition


@pytest.mark.parametrize("dialect", [sqlite.dialect(), postgresql.dialect()], ids=["sqlite", "postgresql"])
@pytest.mark.parametrize(("table", "condition"), [pytest.param(*rest, id=name) for name, *rest in conditions()])
def test_condition_is_about_the_row_of_the_outer_query_at_any_depth(
    table: Table, condition: ColumnElement[bool], dialect: object
) -> None:
    alias = requests.alias("nesting")
    for depth in range(3):
        nested = condition
        for _ in range(depth):
            nested = exists().where(alias.c.campaign == table.c.campaign, nested).correlate(table)
        text = str(select(table.c.campaign).where(nested).compile(dialect=dialect))
        # A subquery of a condition on sends may read deliveries, as its own table.
        own = len(re.findall(rf"(?:FROM|,|JOIN) {table.name}\b(?! AS|\.)", text))
        assert own == 1, text


class TestOtherCampaigns:
    """A second campaign and a second connection in the same database change nothing."""

    @pytest.fixture
    def repeated(self, database: Database) -> Database:
        """Return a campaign with reports of an attempt that was repeated under another reference."""
        start_send(database)
        save_requests(database, SentRequest("pack", 2, "m1"))
        finish_send(database, expected=2)
        save_reports(database, report(ADA, "failed", token=token_for(ADA, OBI, reference="attempt")))
        save_reports(database, report(ADA, "delivered", token=token_for(ADA, OBI)))
        return database

    @pytest.mark.parametrize("conn_id", ["shop", "bank"])
    def test_report_of_another_campaign_changes_no_recipient(self, repeated: Database, conn_id: str) -> None:
        before = outcomes(repeated), numbers(repeated)
        assert before == ({ADA: "delivered"}, (1, 0, 0))
        start_send(repeated, "summer", conn_id)
        save_requests(repeated, SentRequest("summer-pack", 2, "m2"), campaign="summer", conn_id=conn_id)
        save_reports(repeated, report(OBI, "delivered", token=token_for(ADA, OBI, campaign="summer"), conn_id=conn_id))
        assert (outcomes(repeated), numbers(repeated)) == before

    def test_all_queries_count_the_same_beside_another_campaign(self, repeated: Database) -> None:
        start_send(repeated, "summer", "bank")
        save_requests(repeated, SentRequest("summer-pack", 2), campaign="summer", conn_id="bank")
        save_reports(repeated, report(OBI, "delivered", token=token_for(ADA, OBI, campaign="summer"), conn_id="bank"))
        with repeated.connect() as connection:
            rows = select(deliveries.c.recipient).where(deliveries.c.campaign == "spring", IS_COUNTED)
            assert connection.execute(rows).scalars().all() == [ADA]
            twice = select(deliveries.c.recipient).where(
                deliveries.c.campaign == "spring", exists().where(sends.c.campaign == "spring", IS_ACCEPTED)
            )
            assert connection.execute(twice).scalars().all() == [ADA]
            assert counts.count_conflicts(connection, ["spring"]) == 0
            summary = count_campaign(connection, read_campaigns(connection, ["spring"])["spring"])
        assert (summary.delivered, summary.undelivered, summary.statuses) == (1, 0, {"delivered": 1})
