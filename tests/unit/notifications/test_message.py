"""The texts of notifications, and alerts as they are stored."""

from __future__ import annotations

from datetime import UTC, datetime

import msgspec.structs
import pytest

from cpaas_provider.api.text.sms import measure_sms
from cpaas_provider.notifications._runtime.alerts import OTHERS
from cpaas_provider.notifications._runtime.message import Alert, Batch, email_texts, group_name, seal, sms_text, unseal

LINK = "https://airflow.example.com/dags/orders/runs/now"
SINCE = datetime(2026, 3, 1, 12, 30, tzinfo=UTC)
ALERT = Alert("sms", ["2348035550001"], "Ops", None, "orders.load failed (ValueError, try 3)", LINK)
FAILED = {"orders.load failed": 480, "orders.check failed": 15, "a failed": 3, "b failed": 1, OTHERS: 1}


def batch(count: int, subjects: dict[str, int]) -> Batch:
    return Batch(count, subjects, SINCE, "cpaas-1")


def test_one_alert_is_its_headline_and_link() -> None:
    assert sms_text(ALERT, batch(1, {})) == f"Airflow: orders.load failed (ValueError, try 3) {LINK}"


def test_many_alerts_are_their_number_and_most_frequent_subjects() -> None:
    assert sms_text(ALERT, batch(500, FAILED)) == (
        "Airflow: 500 alerts since 12:30 UTC: orders.load failed (480), orders.check failed (15), a failed (3), "
        f"others (2) {LINK}"
    )


def test_own_text_is_followed_by_the_number_of_others() -> None:
    own = msgspec.structs.replace(ALERT, content="Look at the orders!", link=None)
    assert sms_text(own, batch(1, {})) == "Look at the orders!"
    assert sms_text(own, batch(500, FAILED)) == "Look at the orders! (and 499 more since 12:30 UTC)"


@pytest.mark.parametrize("pages", [1, 2, 3])
def test_long_text_is_cut_and_number_and_link_are_whole(pages: int) -> None:
    own = msgspec.structs.replace(ALERT, content="Word \U0001f600 " * 90, max_pages=pages)
    text = sms_text(own, batch(500, FAILED))
    assert measure_sms(text).pages <= pages
    ending = " (and 499 more since 12:30 UTC)"
    # One page of UCS-2 has no room for text, number and link: the link is left out.
    assert text.endswith(f"...{ending}" if pages == 1 else f"...{ending} {LINK}")


def test_email_lists_all_subjects() -> None:
    subject, content = email_texts(msgspec.structs.replace(ALERT, channel="email"), batch(500, FAILED))
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
    own = msgspec.structs.replace(ALERT, subject="Orders\nBcc: somebody@example.com", content="Look!")
    assert email_texts(own, batch(2, {"a": 2}))[0] == "Orders Bcc: somebody@example.com (and 1 more)"


def test_stored_alert_is_encrypted_and_opened_by_any_listed_secret() -> None:
    stored = seal(ALERT, ["new", "api key"])
    assert "555" not in stored
    assert unseal(stored, ["newest", "new", "api key"]) == ALERT
    assert unseal(stored, ["api key"]) is None


def test_name_of_a_group_depends_on_the_secret() -> None:
    assert group_name("a", "2348035550001") == group_name("a", "2348035550001")
    assert len({group_name("a", "x"), group_name("b", "x"), group_name("a", "y")}) == 3


@pytest.mark.parametrize("count", [1, 500])
@pytest.mark.parametrize("link", [LINK, None, "https://airflow.example.com/" + "y" * 400])
@pytest.mark.parametrize(
    "content",
    ["https://airflow.example.com/" + "x" * 5000, "e" + "\u0301" * 5000, "😀\u200d" * 5000],
    ids=["link", "accents", "joined"],
)
def test_text_of_one_piece_that_is_too_long_is_replaced_by_the_default(
    content: str, link: str | None, count: int
) -> None:
    own = msgspec.structs.replace(ALERT, content=content, link=link)
    text = sms_text(own, batch(count, FAILED))
    assert text.startswith("Airflow: orders.load failed" if count == 1 else "Airflow: 500 alerts since 12:30 UTC: ")
    assert measure_sms(text).pages <= 2
    title, body = email_texts(msgspec.structs.replace(own, channel="email", subject=content), batch(count, FAILED))
    assert title.startswith("Airflow: orders.load failed" if count == 1 else "Airflow: 500 alerts since 12:30 UTC: ")
    assert body.startswith("orders.load failed" if count == 1 else "500 alerts since 12:30 UTC:\n- orders.load failed")
    assert len(body) <= 4000


def test_number_of_others_is_whole_in_an_email_with_long_texts() -> None:
    own = msgspec.structs.replace(
        ALERT, channel="email", subject="Broken orders " * 20, content="Call the shop. " * 500
    )
    subjects = {f"{'d' * 250}.task_{number} failed": 20 for number in range(20)} | {OTHERS: 100}
    subject, content = email_texts(own, batch(500, subjects))
    assert subject.endswith("... (and 499 more)")
    assert content.startswith("Call the shop. ")
    assert "\n\n500 alerts since 12:30 UTC:\n- " in content
    assert content.endswith(f"...\n\n{LINK}")
    assert (len(subject), len(content)) <= (150, 4000)
