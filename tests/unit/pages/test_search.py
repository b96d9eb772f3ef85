from __future__ import annotations

from datetime import datetime, timedelta
from typing import Any

import pytest
from fastapi.testclient import TestClient
from sqlalchemy import Connection, insert, select

from cpaas_provider.database.database import Database
from cpaas_provider.database.schema.activity import task_progress
from cpaas_provider.database.schema.delivery import deliveries
from cpaas_provider.delivery.tracking.sent_requests import SentRequest
from tests.unit.delivery.report_builders import (
    ADA,
    OBI,
    UMA,
    WHEN,
    report,
    save_reports,
    save_requests,
    start_send,
    token_for,
)
from tests.unit.pages.recorded import campaign


@pytest.fixture(autouse=True)
def sent(database: Database) -> None:
    campaign(database, "spring")
    start_send(database, "spring")
    save_requests(database, SentRequest("pack", 2, "m-1"))
    told = report(ADA, "failed", token=token_for(ADA, OBI), description=f"No route to {ADA}")
    save_reports(database, told, report("ada@example.com", "delivered", token=token_for(ADA, OBI)))


def found(client: TestClient, asked: str, **headers: str) -> str:
    answer = client.post("/search", data={"q": asked}, headers=headers or None)
    assert answer.status_code == 200
    return str(answer.text)


@pytest.mark.parametrize("asked", ["spring", "pack", "m-1", " spring "])
def test_search_by_campaign_request_or_message_id_finds_the_campaign(reader: TestClient, asked: str) -> None:
    page = found(reader, asked)
    assert "By reference" in page
    assert 'href="/cpaas/campaigns/spring"' in page


@pytest.mark.parametrize("asked", [ADA, f"+{ADA}", f"00{ADA}", "+234 803 000 0001"])
def test_search_by_recipient_shows_the_number_masked(reader: TestClient, asked: str) -> None:
    page = found(reader, asked)
    assert "By recipient" in page
    assert "23480****001" in page
    assert "No route to ***" in page
    assert ADA not in page
    assert asked not in page


def test_search_by_email_address_shows_it_masked(reader: TestClient) -> None:
    page = found(reader, "Ada@Example.com")
    assert "By recipient" in page
    assert "ada@" not in page.lower()


@pytest.mark.parametrize("asked", ["", ADA[:-1], "234803", "%", "nothing", "ada@", "'; DROP TABLE x; --"])
def test_search_by_a_part_finds_nothing(reader: TestClient, asked: str) -> None:
    page = found(reader, asked)
    assert "By re" not in page.replace("By reference, message id", "")


def test_search_finds_nothing_of_other_dags(anonymous: TestClient) -> None:
    assert anonymous.post("/search", data={"q": ADA}).status_code == 401
    for asked in ("spring", "pack", "m-1", ADA, "ada@example.com"):
        assert "Nothing found in the DAGs that you may read" in found(anonymous, asked, **{"x-dags": "other"})


@pytest.mark.parametrize(
    "sent_form",
    [
        {"data": {"q": "a\x00b"}},
        {"data": {"q": "x" * 255}},
        {"data": {"q": "\u202e"}},
        {"content": b"q=" + b"x" * 5000},
        {"content": b"q=\xff"},
        {"content": b"&".join(b"q%d=1" % number for number in range(9))},
    ],
)
def test_invalid_form_is_refused(reader: TestClient, sent_form: dict[str, Any]) -> None:
    assert reader.post("/search", **sent_form).status_code == 422


def test_without_a_question_there_is_a_form(reader: TestClient) -> None:
    page = reader.get("/search?q=spring").text
    assert '<form method="post"' in page
    assert "spring" not in page


def many(database: Database, dag_id: str, conn_id: str, number: int, at: datetime) -> None:
    """Have a recipient reported in many campaigns of a DAG."""
    names = [f"{dag_id}-{one:03}" for one in range(number)]
    campaign(database, names[0], dag_id=dag_id)
    with database.connect() as connection:
        first = connection.execute(select(task_progress).where(task_progress.c.reference == names[0])).one()
    reported = {"recipient": UMA, "delivery_status": 0, "status": "sent", "reported_at": at, "updated_at": at}
    flags = {"delivered": False, "failed": False, "clicked": False}
    rows = [{"campaign": name, "conn_id": conn_id, "reference": "", **reported, **flags} for name in names]
    progress = [{**first._mapping, "reference": name} for name in names[1:]]

    def write(connection: Connection) -> None:
        if progress:
            connection.execute(insert(task_progress), progress)
        connection.execute(insert(deliveries), rows)

    database.write(write)


def test_deliveries_of_other_dags_take_no_place_of_ones_own_and_the_newest_are_shown(
    anonymous: TestClient, database: Database
) -> None:
    many(database, "a_theirs", "shop", 600, WHEN + timedelta(hours=2))
    many(database, "b_mine", "shop", 600, WHEN)
    many(database, "z_mine", "shop", 1, WHEN + timedelta(hours=1))
    page = found(anonymous, UMA, **{"x-dags": "b_mine z_mine"})
    assert "theirs" not in page
    assert page.count("/cpaas/campaigns/b_mine-") == 49
    assert page.index("/cpaas/campaigns/z_mine-000") < page.index("/cpaas/campaigns/b_mine-")
