from __future__ import annotations

from collections.abc import Iterator

import pytest
from fastapi import FastAPI
from fastapi.testclient import TestClient

from cpaas_provider.database.database import Database
from cpaas_provider.database.errors import DatabaseError
from cpaas_provider.delivery.campaigns import read_campaigns
from cpaas_provider.delivery.tracking.sent_requests import (
    SentRequest,
    TrackedSend,
    record_requests,
    record_send_finished,
    record_send_started,
)
from cpaas_provider.pages.app import add_pages
from cpaas_provider.pages.details import MOST
from cpaas_provider.pages.summaries import count_campaign
from tests.unit.delivery.report_builders import ADA, OBI, report, save_reports, token_for
from tests.unit.pages.conftest import viewer

JSON = {"accept": "application/json"}


def begun(database: Database, dag_id: str = "spring_dag") -> None:
    send = TrackedSend("spring", "send_sms", "shop", dag_id, "run", "send", 3)
    database.write(lambda connection: record_send_started(connection, send))
    save_reports(
        database, report(ADA, "delivered", token=token_for(ADA, OBI)), report(OBI, "sent", token=token_for(ADA, OBI))
    )


def test_deliveries_are_counted_for_each_campaign(database: Database, reader: TestClient) -> None:
    begun(database)
    told = reader.get("/deliveries", params={"campaign": ["spring", "unheard-of", "spring"]}, headers=JSON).json()
    known = {"campaign": "spring", "task": "spring_dag.send [3] (run)", "task_state": None, "state": "sending"}
    figures = {
        **dict.fromkeys(("recipients", "accepted"), 2),
        **dict.fromkeys(("rejected", "unknown", "not_sent", "undelivered", "unreported"), 0),
        **dict.fromkeys(("delivered", "in_flight", "open"), 1),
    }
    assert told[0] == {**known, **figures, "is_most": False, "will_change": True}
    missing = {"campaign": "unheard-of", "task": None, "state": "not found in this database"}
    assert told[1] == {**dict.fromkeys(told[0]), **missing}
    assert len(told) == 2


def test_recipients_without_a_report_are_unreported_once_the_task_has_ended(
    database: Database, reader: TestClient
) -> None:
    begun(database)
    database.write(lambda connection: record_requests(connection, "spring", "shop", [SentRequest("pack", 2)]))
    database.write(lambda connection: record_send_finished(connection, "spring", 5))
    (line,) = reader.get("/deliveries?campaign=spring", headers=JSON).json()
    assert (line["accepted"], line["in_flight"], line["unreported"], line["state"]) == (5, 1, 3, "waiting for reports")
    save_reports(database, report(OBI, "failed", token=token_for(ADA, OBI)))
    database.write(lambda connection: record_send_finished(connection, "spring", 2, 3))
    (line,) = reader.get("/deliveries?campaign=spring", headers=JSON).json()
    assert (line["in_flight"], line["unreported"], line["unknown"]) == (0, 0, 3)
    assert line["state"] == "waiting for reports"
    database.write(lambda connection: record_send_finished(connection, "spring", 2))
    (line,) = reader.get("/deliveries?campaign=spring", headers=JSON).json()
    assert (line["in_flight"], line["unreported"], line["state"]) == (0, 0, "all reported")


def test_reasons_add_up_however_many_there_are(database: Database) -> None:
    """A service may write the number into each, so that each is another one."""
    begun(database)
    numbers = [f"23480300{number:05}" for number in range(300)]
    token = token_for(*numbers, reference="large")
    texts = {number: f"Subscriber {number} is unreachable" for number in numbers}
    save_reports(database, *(report(number, "failed", token=token, description=texts[number]) for number in numbers))
    with database.connect() as connection:
        summary = count_campaign(connection, read_campaigns(connection, ["spring"])["spring"])
    assert summary.undelivered == 300
    assert sum(count for _, count in summary.reasons) == 300


def test_single_reference_shows_the_page_of_the_campaign(database: Database, reader: TestClient) -> None:
    begun(database)
    page = reader.get("/deliveries?campaign=spring").text
    assert page == reader.get("/campaigns/spring").text
    assert ADA not in page


def test_several_are_a_list(database: Database, reader: TestClient) -> None:
    begun(database)
    page = reader.get("/deliveries?campaign=spring&campaign=unheard-of").text
    assert 'data-name="Delivered">1</td>' in page
    assert "1 of the references is not in this database" in page


def test_campaign_of_another_dag_looks_like_an_unknown_one(database: Database, anonymous: TestClient) -> None:
    begun(database)
    asked = {"campaign": ["spring", "unheard-of"]}
    mine, theirs = ({**JSON, "x-dags": dag_id} for dag_id in ("spring_dag", "other_dag"))
    assert anonymous.get("/deliveries", params=asked, headers=mine).json()[0]["delivered"] == 1
    hidden, missing = anonymous.get("/deliveries", params=asked, headers=theirs).json()
    assert {**hidden, "campaign": ""} == {**missing, "campaign": ""}


@pytest.mark.parametrize(
    "asked", [[], ["x"] * (MOST + 1), ["x" * 200], [""], ["\x00"], ["a\x00b"], ["spring", "\x1b"], ["\u202e"]]
)
def test_invalid_query_is_refused(reader: TestClient, asked: list[str]) -> None:
    assert reader.get("/deliveries", params={"campaign": asked}, headers=JSON).status_code == 422


def test_browser_without_a_query_gets_a_page_with_instructions(reader: TestClient) -> None:
    shown = reader.get("/deliveries")
    assert (shown.status_code, shown.headers["content-type"].partition(";")[0]) == (200, "text/html")
    assert "the link Delivery of a task that sends" in shown.text
    assert "data-refresh" not in shown.text


@pytest.mark.parametrize("asked", [["x"] * (MOST + 1), ["x" * 200], [""]])
def test_browser_with_an_invalid_query_gets_a_page(reader: TestClient, asked: list[str]) -> None:
    shown = reader.get("/deliveries", params={"campaign": asked})
    assert (shown.status_code, shown.headers["content-type"].partition(";")[0]) == (422, "text/html")


@pytest.fixture
def without_database() -> Iterator[TestClient]:
    def closed() -> Database:
        raise DatabaseError("The store is away.")

    with TestClient(add_pages(FastAPI(), viewer, closed), headers={"x-dags": "*"}) as client:
        yield client


def test_unreadable_database_is_explained_with_503(without_database: TestClient) -> None:
    told = without_database.get("/deliveries?campaign=spring", headers=JSON)
    assert (told.status_code, told.json()) == (503, {"detail": "The store is away."})
    for path in ("/campaigns", "/campaigns/spring", "/deliveries?campaign=spring"):
        shown = without_database.get(path)
        assert (shown.status_code, "The store is away." in shown.text) == (503, True)
        assert shown.headers["content-type"].startswith("text/html")


def test_large_numbers_are_readable(database: Database, reader: TestClient) -> None:
    begun(database)
    database.write(lambda connection: record_send_finished(connection, "spring", 1_000_000))
    assert "1,000,000" in reader.get("/campaigns/spring").text


def test_domains_show_no_address_and_no_number(database: Database, reader: TestClient) -> None:
    begun(database)
    odd = ['"ada@home"@example.com', "ada@2348030000009", "<script>@example.com", "obi@example.com"]
    save_reports(database, *(report(one, "delivered", token=token_for(*odd, reference="odd")) for one in odd))
    page = reader.get("/deliveries?campaign=spring").text
    for secret in ("2348030000009", "home&#34;@example.com", "<script>@"):
        assert secret not in page
    assert '<td data-name="Name">example.com</td>' in page
