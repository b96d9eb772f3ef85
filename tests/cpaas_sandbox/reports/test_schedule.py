"""What delivery reports say, of whom, in which order and how often."""

from __future__ import annotations

import json
from collections import Counter
from typing import Any

import httpx
import pytest

from cpaas_sandbox.reports.outcomes import REASONS, seeded_uniform
from tests.cpaas_sandbox.conftest import ADA, BAYO, Harness
from tests.cpaas_sandbox.receiver import Receiver
from tests.waiting import until

HOUR = 3600
EMAIL = {"recipients": "ada@example.com", "sender_id": "n@acme.example", "content": "x"}
AIRTIME = {"network": "MTN", "amount": 60, "recipient": ADA}


def phone_list(count: int) -> str:
    return ",".join(str(2348030000000 + n) for n in range(count))


def addresses(count: int) -> str:
    return ",".join(f"person{n}@example.com" for n in range(count))


# -- what is said -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("shape", "expected"),
    [
        ("status", {"id": "ID", "channel": "sms", "recipient": BAYO, "status": "undelivered", "reason": "WHY"}),
        (
            "status_object",
            {"message_id": "ID", "channel": "sms", "to": BAYO, "status": {"text": "undelivered", "description": "WHY"}},
        ),
        ("event", {"event": "text.undelivered", "id": "ID", "recipient": BAYO, "reason": "WHY"}),
        ("event_data", {"event": "text.undelivered", "data": {"id": "ID", "recipient": BAYO, "reason": "WHY"}}),
    ],
)
def test_callback_has_the_configured_shape(
    frozen: Harness, receiver: Receiver, shape: str, expected: dict[str, Any]
) -> None:
    frozen.settings(callback_shape=shape)
    frozen.control("POST", "seed", {"outcomes": {"sms": {BAYO: "undelivered"}}})
    record = frozen.sms(recipients=BAYO, callback=receiver.url).json()
    frozen.reported()
    (body,) = receiver.bodies
    moment = (body.get("data") or body).pop("created_datetime")
    assert moment == record["created_datetime"]
    why = frozen.inbox("sms")[0]["reason"]
    assert why in REASONS["undelivered"]
    assert json.dumps(body) == json.dumps(expected).replace("ID", record["id"]).replace("WHY", why)


def test_airtime_and_references_have_names_of_their_own_in_a_status_object(
    sandbox: Harness, receiver: Receiver
) -> None:
    sandbox.settings(callback_shape="status_object", airtime_sent_seconds=0, airtime_final_seconds=0)
    purchase = sandbox.ok("POST", "/airtime/buy", AIRTIME | {"callback": receiver.url, "external_ref": "gift-1"})
    until(lambda: receiver.received)
    (body,) = receiver.bodies
    assert (body["transaction_id"], body["msisdn"], body["client_ref"]) == (purchase["id"], ADA, "gift-1")
    assert body["status"]["text"] == "success"


def test_email_is_reported_too(sandbox: Harness, receiver: Receiver) -> None:
    sandbox.ok("POST", "/email/send", EMAIL | {"callback": receiver.url})
    sandbox.reported()
    told = [(one["channel"], one["recipient"], one["status"]) for one in receiver.bodies]
    assert told == [("email", "ada@example.com", "delivered")]


@pytest.mark.parametrize(
    ("kind", "outcome", "events"),
    [
        ("sms", "delivered", ["text.delivered"]),
        ("sms", "undelivered", ["text.undelivered"]),
        ("sms", "clicked", ["text.delivered", "text.clicked"]),
        ("email", "delivered", ["email.delivered"]),
        ("email", "bounced", ["email.bounced"]),
        ("email", "opened", ["email.delivered", "email.opened"]),
        ("email", "clicked", ["email.delivered", "email.clicked"]),
        ("airtime", "success", ["airtime.success"]),
        ("airtime", "failed", ["airtime.failed"]),
        ("airtime", "error", ["airtime.error"]),
    ],
)
def test_webhook_receives_an_event_for_every_outcome(
    frozen: Harness, receiver: Receiver, kind: str, outcome: str, events: list[str]
) -> None:
    recipient = "ada@example.com" if kind == "email" else ADA
    frozen.settings(webhook_url=receiver.url, webhook_secret="whsec_of_the_tests", report_in_flight=True)
    frozen.control("POST", "seed", {"outcomes": {kind: {recipient: outcome}}})
    if kind == "sms":
        frozen.sms(is_trackable=True)
    else:
        path, body = ("/email/send", EMAIL) if kind == "email" else ("/airtime/buy", AIRTIME)
        frozen.ok("POST", path, body)
        frozen.advance(1)
        frozen.advance(1)
    frozen.reported()
    assert [one["event"] for one in receiver.bodies] == events
    assert frozen.control("GET", f"outcomes/{kind}")["counts"] == {outcome: 1}


def test_duplicate_purchase_is_reported_at_once(frozen: Harness, receiver: Receiver) -> None:
    frozen.settings(webhook_url=receiver.url, webhook_secret="whsec_of_the_tests")
    for _ in range(2):
        frozen.ok("POST", "/airtime/buy", AIRTIME | {"callback": receiver.url})
    frozen.reported()
    assert Counter(one.get("event") or one["status"] for one in receiver.bodies) == {
        "duplicate": 1,
        "airtime.duplicate": 1,
    }


def test_airtime_is_reported_when_it_is_final(frozen: Harness, receiver: Receiver) -> None:
    purchase = frozen.ok("POST", "/airtime/buy", AIRTIME | {"callback": receiver.url})
    frozen.advance(1)
    assert frozen.inbox("airtime")[0]["status"] == "sent"
    assert frozen.inbox("reports") == []
    frozen.advance(1)
    assert frozen.reported()["acknowledged"] == 1
    assert [(one["id"], one["status"]) for one in receiver.bodies] == [(purchase["id"], "success")]


def test_airtime_moves_by_itself_in_real_time(sandbox: Harness, receiver: Receiver) -> None:
    sandbox.settings(airtime_sent_seconds=0.05, airtime_final_seconds=0.1, report_in_flight=True)
    sandbox.ok("POST", "/airtime/buy", AIRTIME | {"callback": receiver.url})
    until(lambda: len(receiver.received) == 2)
    assert [one["status"] for one in receiver.bodies] == ["sent", "success"]


def test_delays_on_the_clock(frozen: Harness, receiver: Receiver) -> None:
    frozen.settings(report_delay_seconds=HOUR, report_engagement_seconds=60, report_in_flight=True)
    frozen.control("POST", "seed", {"outcomes": {"email": {"ada@example.com": "opened"}}})
    frozen.ok("POST", "/email/send", EMAIL | {"callback": receiver.url})
    assert frozen.reported()["pending"] == 2
    frozen.advance(HOUR - 1)
    assert frozen.reported()["pending"] == 2
    frozen.advance(1)
    assert frozen.reported()["pending"] == 1
    frozen.advance(60)
    assert frozen.reported()["pending"] == 0
    assert [one["status"] for one in receiver.bodies] == ["sent", "delivered", "opened"]


# -- what becomes of whom ---------------------------------------------------------------------------------------------


def test_outcome_of_a_recipient_depends_on_the_seed_only(sandbox: Harness) -> None:
    sandbox.settings(report_undelivered_rate=0.3, report_clicked_rate=0.4, report_seed=7)

    def outcomes() -> dict[str, tuple[str, str | None]]:
        sandbox.sms(recipients=phone_list(300), is_trackable=True)
        items = sandbox.inbox("sms", limit=300)
        return {one["recipient"]: (one["status"], one["reason"]) for one in items}

    first = outcomes()
    assert outcomes() == first
    found = Counter(status for status, _ in first.values())
    assert set(found) == {"delivered", "undelivered", "clicked"}
    assert 60 <= found["undelivered"] <= 120
    assert all((reason is not None) == (status == "undelivered") for status, reason in first.values())
    sandbox.settings(report_seed=8)
    assert outcomes() != first


def test_each_message_kind_has_its_own_rates(frozen: Harness) -> None:
    frozen.settings(
        report_undelivered_rate=1, report_bounced_rate=0.5, report_failed_rate=1, report_opened_rate=1, report_seed=3
    )
    frozen.sms()
    frozen.ok("POST", "/email/send", EMAIL | {"recipients": addresses(100)})
    frozen.ok("POST", "/airtime/buy", AIRTIME)
    frozen.advance(5)
    assert frozen.control("GET", "outcomes/sms")["counts"] == {"undelivered": 1}
    assert frozen.control("GET", "outcomes/airtime")["counts"] == {"failed": 1}
    email = frozen.control("GET", "outcomes/email")["counts"]
    assert set(email) == {"bounced", "opened"}
    assert 30 <= email["bounced"] <= 70


def test_clicks_are_drawn_for_trackable_messages_only(sandbox: Harness) -> None:
    sandbox.settings(report_clicked_rate=1)
    sandbox.sms(external_ref="untracked")
    sandbox.sms(external_ref="tracked", is_trackable=True)
    found = {one["external_ref"]: one["outcome"] for one in sandbox.control("GET", "outcomes/sms")["items"]}
    assert found == {"untracked": "delivered", "tracked": "clicked"}


def test_seeded_outcome_precedes_the_random_one(sandbox: Harness) -> None:
    sandbox.settings(report_undelivered_rate=1)
    sandbox.control("POST", "seed", {"outcomes": {"sms": {ADA: "delivered"}}})
    sandbox.sms(recipients=f"{ADA},{BAYO}")
    assert {one["recipient"]: one["status"] for one in sandbox.inbox("sms")} == {ADA: "delivered", BAYO: "undelivered"}


def test_draws_are_even_and_independent() -> None:
    numbers = [str(n) for n in range(5000)]
    low = [one for one in numbers if seeded_uniform(1, "a", one) < 0.2]
    assert 900 < len(low) < 1100
    assert 120 < sum(seeded_uniform(1, "b", one) < 0.2 for one in low) < 280
    assert all(0 <= seeded_uniform(1, "a", one) < 1 for one in numbers)


# -- in which order and how often -------------------------------------------------------------------------------------


def test_reports_of_a_recipient_arrive_in_order(sandbox: Harness, receiver: Receiver) -> None:
    sandbox.settings(report_in_flight=True, report_opened_rate=1, report_clicked_rate=1, report_concurrency=64)
    sandbox.ok("POST", "/email/send", EMAIL | {"recipients": addresses(100), "callback": receiver.url})
    assert sandbox.reported()["acknowledged"] == 400
    heard: dict[str, list[str]] = {}
    for one in receiver.bodies:
        heard.setdefault(one["recipient"], []).append(one["status"])
    assert len(heard) == 100
    assert {tuple(one) for one in heard.values()} == {("sent", "delivered", "opened", "clicked")}


def test_disorder_turns_reports_round_and_shuffles_recipients(frozen: Harness, receiver: Receiver) -> None:
    frozen.settings(report_in_flight=True, report_disorder=1, report_delay_seconds=60, report_concurrency=1)
    frozen.sms(recipients=phone_list(50), callback=receiver.url)
    assert frozen.reported()["sent"] == 0  # what is in flight is not said before it is over
    frozen.advance(60)
    frozen.reported()
    heard: dict[str, list[str]] = {}
    for one in receiver.bodies:
        heard.setdefault(one["recipient"], []).append(one["status"])
    assert {tuple(one) for one in heard.values()} == {("delivered", "sent")}
    assert sorted(heard) != list(heard)


def test_disorder_strikes_a_share(frozen: Harness, receiver: Receiver) -> None:
    frozen.settings(report_in_flight=True, report_disorder=0.5, report_seed=1)
    frozen.sms(recipients=phone_list(100), callback=receiver.url)
    frozen.reported()
    first: dict[str, str] = {}
    for one in receiver.bodies:
        first.setdefault(one["recipient"], one["status"])
    found = Counter(first.values())
    assert set(found) == {"sent", "delivered"}
    assert 30 <= found["delivered"] <= 70


def test_disorder_of_airtime(frozen: Harness, receiver: Receiver) -> None:
    frozen.settings(report_in_flight=True, report_disorder=1)
    frozen.ok("POST", "/airtime/buy", AIRTIME | {"callback": receiver.url})
    for _ in range(3):
        frozen.advance(1)
        frozen.reported()
    assert [one["status"] for one in receiver.bodies] == ["success", "sent"]


def test_duplicates_have_the_same_body(frozen: Harness, receiver: Receiver) -> None:
    frozen.settings(report_duplicate_rate=0.5, report_seed=5)
    frozen.sms(recipients=phone_list(200), callback=receiver.url)
    counts = frozen.reported()
    copies = Counter(one.raw for one in receiver.received)
    assert len(copies) == 200
    assert set(copies.values()) == {1, 2, 3}
    assert 60 <= sum(n > 1 for n in copies.values()) <= 140
    assert counts["acknowledged"] == len(receiver.received)
    assert {one["origin"] for one in frozen.inbox("reports", limit=1000)} == {"first", "duplicate"}


def test_acknowledged_report_may_be_sent_again(frozen: Harness, receiver: Receiver) -> None:
    frozen.settings(report_repeat_rate=1)
    frozen.sms(callback=receiver.url)
    assert frozen.reported() == {
        "booked": 2, "pending": 1, "sent": 1, "acknowledged": 1, "refused": 0, "given_up": 0,
    }  # fmt: skip
    frozen.advance(HOUR)
    frozen.reported()
    frozen.advance(2 * HOUR)
    assert frozen.reported()["acknowledged"] == 2
    first, again = receiver.received
    assert first.raw == again.raw
    assert [one["origin"] for one in frozen.inbox("reports")] == ["resent", "first"]


# -- what the control API tells of it ---------------------------------------------------------------------------------


def test_outcomes_equal_the_received_reports_and_are_paged(sandbox: Harness, receiver: Receiver) -> None:
    sandbox.settings(
        report_undelivered_rate=0.2, report_clicked_rate=0.2, report_in_flight=True, report_disorder=0.3,
        report_duplicate_rate=0.3, report_seed=11,
    )  # fmt: skip
    sandbox.sms(recipients=phone_list(200), callback=receiver.url, is_trackable=True, external_ref="c-1")
    sandbox.sms(recipients=phone_list(3), external_ref="c-2")
    sandbox.reported()
    rank = ("sent", "undelivered", "delivered", "clicked")
    heard: dict[str, int] = {}
    for one in receiver.bodies:
        heard[one["recipient"]] = max(heard.get(one["recipient"], 0), rank.index(one["status"]))
    items: list[dict[str, Any]] = []
    after, pages = 0, 0
    while after is not None:
        page = sandbox.control("GET", "outcomes/sms", params={"external_ref": "c-1", "after": after, "limit": 100})
        assert page["total"] == 200
        items, after, pages = items + page["items"], page["next"], pages + 1
    assert pages == 3  # the last is empty
    assert {one["recipient"]: one["outcome"] for one in items} == {who: rank[n] for who, n in heard.items()}
    assert page["counts"] == Counter(one["outcome"] for one in items)
    assert all({"sent", one["outcome"]} <= set(one["acknowledged"]) for one in items)
    lines = sandbox.call("GET", "/_control/outcomes/sms.jsonl", params={"external_ref": "c-1"})
    assert lines.headers["content-type"] == "application/jsonl"
    assert [json.loads(line) for line in lines.text.splitlines()] == items
    assert len(sandbox.call("GET", "/_control/outcomes/sms.jsonl").text.splitlines()) == 203
    mine = sandbox.control("GET", "outcomes/sms", params={"recipient": ADA})["items"]
    assert [one["external_ref"] for one in mine] == ["c-1", "c-2"]


@pytest.mark.parametrize("query", ["otp", "otp.jsonl", "sms?limit=1001", "sms?after=-1"])
def test_invalid_query_of_outcomes_is_refused(sandbox: Harness, query: str) -> None:
    assert sandbox.call("GET", f"/_control/outcomes/{query}").status_code == 400


def test_failure_on_demand_replaces_reports_that_are_still_to_come(frozen: Harness, receiver: Receiver) -> None:
    frozen.settings(report_delay_seconds=HOUR)
    record = frozen.sms(recipients=f"{ADA},{BAYO}", callback=receiver.url).json()
    failure = {"recipient": ADA, "status": "undelivered", "message_id": record["id"]}
    frozen.control("POST", "reports", failure)
    frozen.advance(HOUR)
    assert frozen.reported()["booked"] == 2
    assert {(body["recipient"], body["status"]) for body in receiver.bodies} == {
        (ADA, "undelivered"), (BAYO, "delivered"),
    }  # fmt: skip
    outcomes = frozen.control("GET", "outcomes/sms")["items"]
    assert {item["recipient"]: item["outcome"] for item in outcomes} == {ADA: "undelivered", BAYO: "delivered"}
    # What was delivered stays delivered: a late failure contradicts it.
    frozen.control("POST", "reports", failure | {"recipient": BAYO})
    assert frozen.reported()["booked"] == 3
    assert frozen.control("GET", "outcomes/sms")["counts"] == {"undelivered": 1, "delivered": 1}


def test_reports_are_found_by_message(sandbox: Harness, receiver: Receiver) -> None:
    record = sandbox.sms(recipients=f"{ADA},{BAYO}", callback=receiver.url).json()
    sandbox.sms(callback=receiver.url)
    found = sandbox.inbox("reports", message_id=record["id"], recipient=ADA)
    assert [(one["recipient"], one["message_id"]) for one in found] == [(ADA, record["id"])]
    assert sandbox.call("GET", "/_control/inbox/otp", params={"message_id": "x"}).status_code == 400


def test_unchanged_inbox_page_returns_304(sandbox: Harness) -> None:
    sandbox.sms()
    first = sandbox.call("GET", "/_control/inbox/sms")
    known = {"If-None-Match": first.headers["etag"]}
    again = sandbox.call("GET", "/_control/inbox/sms", headers=known)
    assert (again.status_code, again.content) == (304, b"")
    sandbox.sms()
    assert sandbox.call("GET", "/_control/inbox/sms", headers=known).json()["total"] == 2


def test_click_is_reported_on_demand(sandbox: Harness, receiver: Receiver) -> None:
    request = {"recipients": f"{ADA},{BAYO}", "is_trackable": True, "callback": receiver.url, "external_ref": "c-1"}
    record = sandbox.sms(**request).json()
    sandbox.reported()
    assert sandbox.control("POST", "reports", {"recipient": ADA, "status": "clicked", "external_ref": "c-1"}) == {
        "booked": 1
    }
    sandbox.reported()
    assert [(one["recipient"], one["status"]) for one in receiver.bodies[2:]] == [(ADA, "clicked")]
    assert sandbox.control("GET", "outcomes/sms")["counts"] == {"clicked": 1, "delivered": 1}
    # what is worse than what was said before is said all the same, and changes nothing
    late = {"recipient": ADA, "status": "undelivered", "message_id": record["id"], "reason": "Too late"}
    sandbox.control("POST", "reports", late)
    sandbox.reported()
    assert receiver.bodies[-1]["reason"] == "Too late"
    assert sandbox.control("GET", "outcomes/sms")["counts"] == {"clicked": 1, "delivered": 1}


@pytest.mark.parametrize(
    ("change", "status", "said"),
    [
        ({"recipient": BAYO}, 404, "no such message to this recipient"),
        ({"external_ref": "c-2"}, 404, "no such message"),
        ({"external_ref": None}, 400, "either message_id or external_ref"),
        ({"message_id": "m"}, 400, "either message_id or external_ref"),
        ({"status": "clicked"}, 400, "only trackable messages"),
        ({"status": "opened"}, 400, "one of sent, delivered, undelivered, clicked"),
        ({"reason": "x" * 301}, 400, "reason"),
        ({"colour": "red"}, 400, "colour"),
        ({}, 400, "give the message a callback, or set webhook_url"),
    ],
)
def test_invalid_report_on_demand_is_refused(sandbox: Harness, change: dict[str, Any], status: int, said: str) -> None:
    sandbox.sms(external_ref="c-1")
    body = {"recipient": ADA, "status": "delivered", "external_ref": "c-1"} | change
    answer: httpx.Response = sandbox.call("POST", "/_control/reports", body)
    assert answer.status_code == status
    assert said in answer.json()["message"]
    assert sandbox.counters()["reports"]["booked"] == 0


@pytest.mark.parametrize(
    "seeding",
    [
        {"outcomes": {"sms": {f"+{ADA}": "undelivered"}}},
        {"outcomes": {"airtime": {"0803 123 4567": "failed"}}},
        {"outcomes": {"otp": {"ada@example.com": "verified"}}},
        {"outcomes": {"email": {"ada": "bounced"}}},
        {"refused_recipients": [f"+{ADA}"]},
    ],
)
def test_seed_for_what_is_no_recipient_is_refused(sandbox: Harness, seeding: dict[str, Any]) -> None:
    response = sandbox.call("POST", "/_control/seed", seeding)
    assert response.status_code == 400
    assert "must be a" in response.json()["message"]


def test_seeded_click_needs_a_trackable_message(sandbox: Harness, receiver: Receiver) -> None:
    sandbox.control("POST", "seed", {"outcomes": {"sms": {ADA: "clicked"}}})
    sandbox.sms(callback=receiver.url)
    sandbox.reported()
    assert [body["status"] for body in receiver.bodies] == ["delivered"]
    sandbox.sms(callback=receiver.url, is_trackable=True)
    sandbox.reported()
    assert [body["status"] for body in receiver.bodies[1:]] == ["delivered", "clicked"]
