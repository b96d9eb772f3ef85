"""Campaigns by day and by network, and the time axis of charts."""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from fastapi.testclient import TestClient
from sqlalchemy import event

from cpaas_provider.database.database import Database
from cpaas_provider.delivery.tracking.sent_requests import SentRequest
from cpaas_provider.pages import over_time
from cpaas_provider.pages.html import charts
from cpaas_provider.pages.summaries import refresh_summary
from tests.unit.delivery.report_builders import (
    ADA,
    OBI,
    finish_send,
    report,
    save_reports,
    save_requests,
    start_send,
    token_for,
)
from tests.unit.pages.recorded import campaign

PERIOD = {"first": "2026-05-01", "last": "2026-05-31"}
AS_JSON = {"accept": "application/json"}
DAY = timedelta(days=1)
BEGAN = datetime(2026, 5, 1, 12, 7, tzinfo=UTC)


def answer(client: TestClient, **wanted: str) -> dict[str, Any]:
    found: dict[str, Any] = client.get("/over-time", params=wanted or PERIOD, headers=AS_JSON).json()
    return found


@contextmanager
def statements_of(database: Database) -> Iterator[list[str]]:
    """Collect the statements that a database runs."""
    statements: list[str] = []

    def listen(_: Any, __: Any, statement: str, *___: Any) -> None:
        statements.append(statement)

    event.listen(database.engine, "before_cursor_execute", listen)
    try:
        yield statements
    finally:
        event.remove(database.engine, "before_cursor_execute", listen)


def test_cost_and_delivery_are_summed_up_by_day(database: Database, reader: TestClient) -> None:
    for reference, minutes in (("spring", 0), ("summer", 60), ("autumn", 24 * 60)):
        campaign(database, reference, recipients=2, sent=2, rejected=0, not_sent=0, minutes=minutes)
        start_send(database, reference)
        save_requests(database, SentRequest(f"{reference}-request", 2), campaign=reference)
        finish_send(database, reference, expected=2)
    token = token_for(ADA, OBI, campaign="spring", reference="spring-request")
    save_reports(database, report(ADA, "delivered", token=token), report(OBI, "failed", token=token))
    found = answer(reader)
    newest, oldest = found["days"]
    assert (newest["day"], newest["campaigns"], newest["open"], newest["cost"]) == ("2026-05-02", 1, 2, 12.5)
    assert oldest == {
        "day": "2026-05-01",
        "campaigns": 2,
        "recipients": 4,
        "delivered": 1,
        "undelivered": 1,
        "open": 2,
        "accepted": 0,
        "unknown": 0,
        "cost": 25.0,
        "delivery_rate": 0.25,
    }
    page = reader.get("/over-time", params=PERIOD).text
    assert 'href="/cpaas/campaigns?first=2026-05-01&amp;last=2026-05-01">2026-05-01</a>' in page
    assert 'data-name="Delivery rate">25.0 %</td>' in page
    assert 'data-name="Cost">25</td>' in page


def test_recipients_are_summed_up_by_network(database: Database, reader: TestClient) -> None:
    campaign(database, "spring", recipients=2, sent=2, rejected=0, not_sent=0)
    start_send(database, "spring")
    save_requests(database, SentRequest("pack", 2))
    save_reports(
        database, report(ADA, "delivered", token=token_for(ADA, OBI)), report(OBI, "failed", token=token_for(ADA, OBI))
    )
    finish_send(database, expected=2)
    refresh_summary(database, "spring")
    found = answer(reader)
    assert found["campaigns_being_counted"] == 0
    [network] = found["networks"]
    assert {**network, "name": ""} == {
        "name": "",
        "delivered": 1,
        "undelivered": 1,
        "in_flight": 0,
        "delivery_rate": 0.5,
    }
    assert network["name"] in reader.get("/over-time", params=PERIOD).text


def test_queries_do_not_grow_with_the_campaigns(database: Database, reader: TestClient) -> None:
    def queries() -> int:
        with statements_of(database) as statements:
            answer(reader)
        return len(statements)

    campaign(database, "c000", delivery_reports=None)
    first = queries()
    for number in range(1, 60):
        campaign(database, f"c{number:03}", delivery_reports=None, minutes=number)
    assert queries() == first <= 11


def test_more_campaigns_than_are_summed_up_are_said(
    database: Database, reader: TestClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(over_time, "MOST", 2)
    for number in range(3):
        campaign(database, f"c{number}", minutes=number)
    found = answer(reader)
    assert (found["is_complete"], found["days"][0]["campaigns"]) == (False, 2)
    assert "Only the newest 2 campaigns" in reader.get("/over-time", params=PERIOD).text


def test_campaigns_of_other_dags_and_of_other_days_are_in_no_sum(
    database: Database, reader: TestClient, anonymous: TestClient
) -> None:
    campaign(database, "theirs", dag_id="theirs")
    assert answer(reader)["days"] != []
    assert anonymous.get("/over-time", params=PERIOD, headers={"x-dags": "mine", **AS_JSON}).json()["days"] == []
    # Without a filter, the last days.
    assert reader.get("/over-time", headers=AS_JSON).json()["days"] == []
    assert "No campaign began in this period." in reader.get("/over-time").text


def axis(chart: str) -> tuple[list[str], str]:
    """Return the times below a chart, and what it says of its bars."""
    times = re.findall(r'<text class="tick" text-anchor="\w+" x="[0-9.]+%" y="\d+">([^<]+)<', chart)
    bars = re.search(r"each bar ([^\"]+)", chart)
    assert bars is not None
    return times, bars[1]


class TestTimeAxis:
    def test_axis_of_a_campaign_of_three_minutes_spans_three_minutes(self) -> None:
        buckets = {BEGAN + timedelta(minutes=minute): {"delivered": 5} for minute in range(3)}
        chart = str(charts.over_time(buckets, ["delivered"], "Reports", since=BEGAN + timedelta(seconds=20)))
        assert axis(chart) == (["12:07", "12:08", "12:09"], "1 min")
        assert re.findall(r'<rect class="k-delivered" x="([0-9.]+)%', chart) == ["2.67", "36.00", "69.33"]

    def test_axis_of_a_campaign_of_three_days_spans_three_days(self) -> None:
        buckets = {BEGAN: {"delivered": 5}, BEGAN + 3 * DAY - timedelta(minutes=1): {"delivered": 1}}
        chart = str(charts.over_time(buckets, ["delivered"], "Reports"))
        assert axis(chart) == (["05-02", "05-03", "05-04"], "2 h")
        first, last = map(float, re.findall(r'<rect class="k-delivered" x="([0-9.]+)%', chart))
        assert first < 1
        assert 97 < last < 100

    def test_begins_when_the_campaign_began(self) -> None:
        buckets = {BEGAN + timedelta(minutes=9): {"delivered": 5}}
        chart = str(charts.over_time(buckets, ["delivered"], "Reports", since=BEGAN))
        assert float(re.findall(r'<rect class="k-delivered" x="([0-9.]+)%', chart)[0]) > 90

    @pytest.mark.parametrize("minutes", [1, 2, 7, 59, 61, 600, 1440, 1441, 4321, 50_000, 500_000])
    def test_has_few_times_and_ends_with_its_last_bar(self, minutes: int) -> None:
        buckets = {BEGAN: {"delivered": 5}, BEGAN + timedelta(minutes=minutes - 1): {"delivered": 1}}
        chart = str(charts.over_time(buckets, ["delivered"], "Reports"))
        assert 1 <= len(axis(chart)[0]) <= 5
        bars = re.findall(r'<rect class="k-delivered" x="([0-9.]+)%" y="[0-9.]+" width="([0-9.]+)%"', chart)
        assert all(float(x) + float(width) <= 100.01 for x, width in bars)

    def test_chart_of_many_days_has_a_bar_a_day(self) -> None:
        midnight = datetime(2026, 5, 1, tzinfo=UTC)
        chart = str(charts.over_time({midnight: {"a": 1}, midnight + DAY: {"a": 2}}, ["a"], "Days", each=DAY))
        assert axis(chart) == (["05-01", "05-02"], "1 d")
