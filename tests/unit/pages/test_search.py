from __future__ import annotations

from typing import Any

import pytest
from fastapi.testclient import TestClient

from cpaas_provider.database.database import Database
from cpaas_provider.delivery.tracking.sent_requests import SentRequest
from tests.unit.delivery.report_builders import ADA, OBI, begun, noted, report, save_reports, to
from tests.unit.pages.recorded import campaign


@pytest.fixture(autouse=True)
def sent(database: Database) -> None:
    campaign(database, "spring")
    begun(database, "spring")
    noted(database, SentRequest("pack", 2, "m-1"))
    told = report(ADA, "failed", token=to(ADA, OBI), description=f"No route to {ADA}")
    save_reports(database, told, report("ada@example.com", "delivered", token=to(ADA, OBI)))


def found(client: TestClient, asked: str, **headers: str) -> str:
    answer = client.post("/search", data={"q": asked}, headers=headers or None)
    assert answer.status_code == 200
    return str(answer.text)


@pytest.mark.parametrize("asked", ["spring", "pack", "m-1", " spring "])
def test_by_reference_of_campaign_or_request_or_by_message_id(reader: TestClient, asked: str) -> None:
    page = found(reader, asked)
    assert "By reference" in page
    assert 'href="/cpaas/campaigns/spring"' in page


@pytest.mark.parametrize("asked", [ADA, f"+{ADA}", f"00{ADA}", "+234 803 000 0001"])
def test_by_recipient_shows_the_number_masked(reader: TestClient, asked: str) -> None:
    page = found(reader, asked)
    assert "By recipient" in page
    assert "23480****001" in page
    assert "No route to ***" in page
    assert ADA not in page
    assert asked not in page


def test_by_address_shows_it_masked(reader: TestClient) -> None:
    page = found(reader, "Ada@Example.com")
    assert "By recipient" in page
    assert "ada@" not in page.lower()


@pytest.mark.parametrize("asked", ["", ADA[:-1], "234803", "%", "nothing", "ada@", "'; DROP TABLE x; --"])
def test_nothing_is_found_by_a_part(reader: TestClient, asked: str) -> None:
    page = found(reader, asked)
    assert "By re" not in page.replace("By reference, message id", "")


def test_what_may_not_be_read_is_not_found(anonymous: TestClient) -> None:
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
def test_a_form_that_cannot_be_used_is_refused(reader: TestClient, sent_form: dict[str, Any]) -> None:
    assert reader.post("/search", **sent_form).status_code == 422


def test_without_a_question_there_is_a_form(reader: TestClient) -> None:
    page = reader.get("/search?q=spring").text
    assert '<form method="post"' in page
    assert "spring" not in page
