from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest
from fastapi import FastAPI, Header, HTTPException

from cpaas_provider.database.database import Database
from cpaas_provider.database.errors import DatabaseError
from cpaas_provider.delivery.receiver.status_page import MOST, add_status_page, read_statuses, render
from cpaas_provider.delivery.tracking.sent_requests import (
    SentRequest,
    TrackedSend,
    record_requests,
    record_send_finished,
    record_send_started,
)
from tests.ports import listening
from tests.unit.delivery.report_builders import ADA, OBI, report, save_reports, to
from tests.unit.delivery.running_receiver import running

JSON = {"accept": "application/json", "x-user": "ada"}


def logged_in(x_user: str = Header("")) -> None:
    if not x_user:
        raise HTTPException(401)


@pytest.fixture
def page(database: Database) -> Iterator[str]:
    app = FastAPI()
    add_status_page(app, lambda: database, logged_in, "/cpaas")
    with listening() as (listener, url), running(app, listener):
        yield f"{url}/cpaas/deliveries"


def begun(database: Database, dag_id: str = "spring_dag") -> None:
    send = TrackedSend("spring", "send_sms", "shop", dag_id, "run", "send", 3)
    database.write(lambda connection: record_send_started(connection, send))
    save_reports(database, report(ADA, "delivered", token=to(ADA, OBI)), report(OBI, "sent", token=to(ADA, OBI)))


def test_it_counts_what_is_known_of_each_campaign(database: Database, page: str) -> None:
    begun(database)
    told = httpx.get(page, params={"campaign": ["spring", "unheard-of", "spring"]}, headers=JSON).json()
    known = {"campaign": "spring", "task": "spring_dag.send [3] (run)", "expected": None, "delivered": 1}
    assert told[0] == {**known, "undelivered": 0, "in_flight": 1, "unreported": None, "state": "sending"}
    assert told[1] == {
        "campaign": "unheard-of",
        "task": None,
        "expected": None,
        "delivered": 0,
        "undelivered": 0,
        "in_flight": 0,
        "unreported": None,
        "state": "not found in this database",
    }
    assert len(told) == 2


def test_once_the_task_has_ended_who_is_missing_is_unreported(database: Database) -> None:
    begun(database)
    database.write(lambda connection: record_requests(connection, "spring", "shop", [SentRequest("pack", 5)]))
    database.write(lambda connection: record_send_finished(connection, "spring", 5))
    (line,) = read_statuses(lambda: database, ["spring"])
    assert (line["expected"], line["in_flight"], line["unreported"], line["state"]) == (5, 1, 3, "waiting for reports")
    save_reports(database, report(OBI, "failed", token=to(ADA, OBI)))
    database.write(lambda connection: record_send_finished(connection, "spring", 2))
    (line,) = read_statuses(lambda: database, ["spring"])
    assert (line["in_flight"], line["unreported"], line["state"]) == (0, 0, "all reported")


def test_nobody_sees_it_without_a_login(page: str) -> None:
    assert httpx.get(page, params={"campaign": "spring"}).status_code == 401


def test_it_names_nobody_and_no_name_is_read_as_html(database: Database, page: str) -> None:
    begun(database, "<script>alert(1)</script>")
    shown = httpx.get(page, params={"campaign": "spring"}, headers={"x-user": "ada"})
    assert shown.headers["content-type"].startswith("text/html")
    assert "&lt;script&gt;" in shown.text
    assert "<script" not in shown.text
    assert ADA not in shown.text


@pytest.mark.parametrize(
    "asked", [[], ["x"] * (MOST + 1), ["x" * 200], [""], ["\x00"], ["a\x00b"], ["spring", "\x1b"], ["\u202e"]]
)
def test_what_is_no_question_is_refused(page: str, asked: list[str]) -> None:
    assert httpx.get(page, params={"campaign": asked}, headers=JSON).status_code == 422


def test_without_a_question_a_browser_gets_a_page_that_says_where_to_ask(page: str) -> None:
    shown = httpx.get(page, headers={"x-user": "ada", "accept": "text/html"})
    assert (shown.status_code, shown.headers["content-type"].partition(";")[0]) == (200, "text/html")
    assert "the link Delivery of a task that sends" in shown.text
    assert "refresh" not in shown.headers
    assert httpx.get(page, headers={"accept": "text/html"}).status_code == 401


@pytest.mark.parametrize("asked", [["x"] * (MOST + 1), ["x" * 200], [""]])
def test_what_is_no_question_is_a_page_for_a_browser_too(page: str, asked: list[str]) -> None:
    shown = httpx.get(page, params={"campaign": asked}, headers={"x-user": "ada", "accept": "text/html"})
    assert (shown.status_code, shown.headers["content-type"].partition(";")[0]) == (422, "text/html")


def test_on_a_phone_each_figure_stands_beside_its_name(database: Database, page: str) -> None:
    begun(database)
    shown = httpx.get(page, params={"campaign": "spring"}, headers={"x-user": "ada"}).text
    assert '<meta name="viewport" content="width=device-width,initial-scale=1">' in shown
    assert "@media (max-width: 45rem)" in shown
    assert '<td class="n" data-name="Delivered">1</td>' in shown
    assert '<td data-name="Campaign">spring</td>' in shown


def test_a_store_that_cannot_be_read_is_told_in_words(tmp_path: Path) -> None:
    def closed() -> Database:
        raise DatabaseError("The store is away.")

    app = FastAPI()
    add_status_page(app, closed, logged_in)
    with listening() as (listener, url), running(app, listener):
        told = httpx.get(f"{url}/deliveries", params={"campaign": "spring"}, headers=JSON)
        shown = httpx.get(f"{url}/deliveries", params={"campaign": "spring"}, headers={"x-user": "ada"})
    assert (told.status_code, told.json()) == (503, {"detail": "The store is away."})
    assert (shown.status_code, "The store is away." in shown.text) == (503, True)
    assert shown.headers["content-type"].startswith("text/html")


def test_large_numbers_are_readable() -> None:
    line = {
        "campaign": "a",
        "task": None,
        "expected": 1_000_000,
        "delivered": 0,
        "undelivered": 0,
        "in_flight": 0,
        "unreported": 0,
    }
    assert "1,000,000" in render([{**line, "state": "sending"}])
