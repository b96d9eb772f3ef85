"""The texts of notifications, and alerts as they are stored."""

from __future__ import annotations

import dataclasses
from datetime import UTC, datetime

import pytest

from cpaas_provider.api.text import measure_sms
from cpaas_provider.database.alerts import OTHERS
from cpaas_provider.notifications._runtime.message import Alert, email_texts, group_name, seal, sms_text, unseal

LINK = "https://airflow.example.com/dags/orders/runs/now"
SINCE = datetime(2026, 3, 1, 12, 30, tzinfo=UTC)
ALERT = Alert("sms", ["2348035550001"], "Ops", None, "orders.load failed (ValueError, try 3)", LINK)
FAILED = {"orders.load failed": 480, "orders.check failed": 15, "a failed": 3, "b failed": 1, OTHERS: 1}


def test_one_alert_is_its_headline_and_link() -> None:
    assert sms_text(ALERT, 1, {}, SINCE) == f"Airflow: orders.load failed (ValueError, try 3) {LINK}"


def test_many_alerts_are_their_number_and_most_frequent_subjects() -> None:
    assert sms_text(ALERT, 500, FAILED, SINCE) == (
        "Airflow: 500 alerts since 12:30 UTC: orders.load failed (480), orders.check failed (15), a failed (3), "
        f"others (2) {LINK}"
    )


def test_own_text_is_followed_by_the_number_of_others() -> None:
    own = dataclasses.replace(ALERT, content="Look at the orders!", link=None)
    assert sms_text(own, 1, {}, SINCE) == "Look at the orders!"
    assert sms_text(own, 500, FAILED, SINCE) == "Look at the orders! (and 499 more since 12:30 UTC)"


@pytest.mark.parametrize("pages", [1, 2, 3])
def test_long_text_is_cut_and_number_and_link_are_whole(pages: int) -> None:
    own = dataclasses.replace(ALERT, content="Word \U0001f600 " * 90, max_pages=pages)
    text = sms_text(own, 500, FAILED, SINCE)
    assert measure_sms(text).pages <= pages
    ending = " (and 499 more since 12:30 UTC)"
    # One page of UCS-2 has no room for text, number and link: the link is left out.
    assert text.endswith(f"...{ending}" if pages == 1 else f"...{ending} {LINK}")


def test_email_lists_all_subjects() -> None:
    subject, content = email_texts(dataclasses.replace(ALERT, channel="email"), 500, FAILED, SINCE)
    assert subject.startswith("Airflow: 500 alerts since 12:30 UTC: orders.load failed (480), orders.check")
    assert content.splitlines() == [
        "500 alerts since 12:30 UTC:",
        "- orders.load failed: 480",
        "- orders.check failed: 15",
        "- a failed: 3",
        "- b failed: 1",
        "- others: 1",
        "",
        LINK,
    ]


def test_subject_of_an_email_is_one_line() -> None:
    own = dataclasses.replace(ALERT, subject="Orders\nBcc: somebody@example.com", content="Look!")
    assert email_texts(own, 2, {"a": 2}, SINCE)[0] == "Orders Bcc: somebody@example.com (and 1 more)"


def test_stored_alert_shows_nothing_and_is_opened_by_any_secret_of_its_connection() -> None:
    stored = seal(ALERT, ["new", "api key"])
    assert "555" not in stored
    assert unseal(stored, ["newest", "new", "api key"]) == ALERT
    assert unseal(stored, ["api key"]) is None


def test_name_of_a_group_depends_on_the_secret() -> None:
    assert group_name("a", "2348035550001") == group_name("a", "2348035550001")
    assert len({group_name("a", "x"), group_name("b", "x"), group_name("a", "y")}) == 3
