"""SMS and email as a customer meets them: records, money, rendering, templates."""

from __future__ import annotations

import re
import time
from typing import Any

import pytest

from tests.cpaas_sandbox.conftest import ADA, BAYO, Harness

MOMENT = re.compile(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{1,6}\+00:00\Z")
EMAIL: dict[str, Any] = {"recipients": "ada@example.com", "sender_id": "news@acme.example", "content": "Hello"}


def test_sms_record_has_every_field(sandbox: Harness) -> None:
    sandbox.control("PUT", "balance", {"balance": 100})
    personalisation = [{"to": ADA, "substitutions": {"name": "Ada"}}]
    request = {
        "channel": "sms",
        "recipients": f"{ADA},{BAYO}",
        "sender_id": "Acme",
        "content": "Hi {name}",
        "personalisation": personalisation,
        "external_ref": "order-1",
        "is_trackable": True,
        "callback": "http://127.0.0.1:9/reports",
    }
    record = sandbox.ok("POST", "/sms/send", request)
    assert isinstance(record.pop("id"), str)
    assert MOMENT.match(record.pop("created_datetime"))
    assert record == {
        "recipients": [ADA, BAYO],
        "sender_id": "Acme",
        "is_trackable": True,
        "content": "Hi {name}",
        "external_ref": "order-1",
        "callback": "http://127.0.0.1:9/reports",
        "personalisation": personalisation,
        "meta": {
            "method": "POST",
            "resource": "/sms/send",
            "estimate": {
                "available_balance": 92.0,
                "charge": 8.0,
                "encoding": "GSM-7",
                "message_length": 11,  # of the longer copy: a placeholder nobody filled, its braces count two
                "pages": 1,
            },
        },
    }


def test_email_record_has_every_field(sandbox: Harness) -> None:
    sandbox.control("PUT", "balance", {"balance": 10})
    more = {"from_name": "Acme", "subject": "News", "reply_to": "help@acme.example", "external_ref": "n-1"}
    record = sandbox.ok("POST", "/email/send", EMAIL | more)
    assert isinstance(record.pop("id"), str)
    assert MOMENT.match(record.pop("created_datetime"))
    assert record == {
        "recipients": ["ada@example.com"],
        "sender_id": "news@acme.example",
        "from_name": "Acme",
        "external_ref": "n-1",
        "meta": {
            "method": "POST",
            "resource": "/email/send",
            "estimate": {"available_balance": 9.5, "charge": 0.5},
        },
    }
    item = sandbox.inbox("email")[0]
    assert (item["subject"], item["text"], item["reply_to"]) == ("News", "Hello", "help@acme.example")


def test_each_recipient_gets_their_own_substitutions(sandbox: Harness) -> None:
    sandbox.sms(
        recipients=f"{ADA},{BAYO}",
        content="Dear {name}, you have {points} points and {unknown}.",
        personalisation=[{"to": ADA, "substitutions": {"name": "Ada", "points": 7}}],
    )
    assert {item["recipient"]: item["text"] for item in sandbox.inbox("sms")} == {
        ADA: "Dear Ada, you have 7 points and {unknown}.",
        BAYO: "Dear {name}, you have {points} points and {unknown}.",
    }


def test_placeholder_format_is_configurable(sandbox: Harness) -> None:
    sandbox.settings(placeholder_format="{{name}}")
    sandbox.sms(content="Hi {{ who }} {who}", personalisation=[{"to": ADA, "substitutions": {"who": "Ada"}}])
    assert sandbox.inbox("sms")[0]["text"] == "Hi Ada {who}"


def test_substitution_is_text_and_not_rendered_again(sandbox: Harness) -> None:
    words = {"a": "{b}", "b": "no", "list": [1, "x"]}
    sandbox.sms(content="{a} {list}", personalisation=[{"to": ADA, "substitutions": words}])
    assert sandbox.inbox("sms")[0]["text"] == '{b} [1, "x"]'


def test_template_is_rendered_and_must_exist_for_the_channel(sandbox: Harness) -> None:
    words = {"name": "Ada", "company": "Acme"}
    request = {"recipients": ADA, "sender_id": "Acme", "template_id": "tpl_welcome"}
    record = sandbox.ok("POST", "/sms/send", request | {"personalisation": [{"to": ADA, "substitutions": words}]})
    assert record["template_id"] == "tpl_welcome"
    assert sandbox.inbox("sms")[0]["text"] == "Hello Ada, welcome to Acme!"
    assert sandbox.refused(400, "POST", "/sms/send", request | {"template_id": "tpl_none"}) == {"template_id": "enum"}
    # a template of another channel is none of this one
    assert sandbox.refused(400, "POST", "/sms/send", request | {"template_id": "tpl_newsletter"})
    sandbox.control("POST", "seed", {"templates": [{"id": "tpl_none", "channel": "any", "content": "Here now"}]})
    sandbox.ok("POST", "/sms/send", request | {"template_id": "tpl_none"})
    assert sandbox.inbox("sms")[0]["text"] == "Here now"


def test_email_template_sets_the_subject(sandbox: Harness) -> None:
    personalisation = [{"to": "ADA@example.com", "substitutions": {"name": "Ada", "company": "Acme"}}]
    request = {name: EMAIL[name] for name in ("recipients", "sender_id")}
    request |= {"template_id": "tpl_newsletter", "personalisation": personalisation}
    sandbox.ok("POST", "/email/send", request)
    item = sandbox.inbox("email")[0]
    assert item["subject"] == "News for Ada"
    assert "Your Acme team" in item["text"]


@pytest.mark.parametrize(
    ("text", "encoding", "length", "pages"),
    [
        ("a" * 160, "GSM-7", 160, 1),
        ("a" * 161, "GSM-7", 161, 2),
        ("a" * 306, "GSM-7", 306, 2),
        ("a" * 307, "GSM-7", 307, 3),
        ("^{}\\[~]|€", "GSM-7", 18, 1),
        ("€" * 80, "GSM-7", 160, 1),
        ("€" * 81, "GSM-7", 162, 2),
        ("ç" * 70, "UCS-2", 70, 1),
        ("ç" * 71, "UCS-2", 71, 2),
        ("ç" * 134, "UCS-2", 134, 2),
        ("ç" * 135, "UCS-2", 135, 3),
        ("😀" * 35, "UCS-2", 70, 1),
        ("😀" * 36, "UCS-2", 72, 2),
        ("Ç@£é\n\r", "GSM-7", 6, 1),
    ],
)
def test_pages_and_charge_follow_the_encoding_of_the_text(
    sandbox: Harness, text: str, encoding: str, length: int, pages: int
) -> None:
    estimate = sandbox.sms(content=text).json()["meta"]["estimate"]
    found = (estimate["encoding"], estimate["message_length"], estimate["pages"], estimate["charge"])
    assert found == (encoding, length, pages, 4.0 * pages)


def test_message_is_charged_for_each_recipient(sandbox: Harness) -> None:
    words = [{"to": BAYO, "substitutions": {"name": "B" * 200}}]
    estimate = sandbox.sms(recipients=f"{ADA}, {BAYO}", content="Hi {name}", personalisation=words).json()["meta"][
        "estimate"
    ]
    assert (estimate["charge"], estimate["pages"], estimate["message_length"]) == (12.0, 2, 203)
    assert sorted(item["charge"] for item in sandbox.inbox("sms")) == [4.0, 8.0]


def test_prices_and_channels(sandbox: Harness) -> None:
    sandbox.control("PUT", "prices", {"sms": 1.5, "whatsapp": 9})
    assert sandbox.sms().json()["meta"]["estimate"]["charge"] == 1.5
    assert sandbox.sms(channel="whatsapp").json()["meta"]["estimate"]["charge"] == 9
    assert sandbox.inbox("sms")[0]["channel"] == "whatsapp"
    assert sandbox.call("PUT", "/_control/prices", {"pigeon": 1}).status_code == 400


def test_insufficient_balance_prevents_sending(sandbox: Harness) -> None:
    sandbox.control("PUT", "balance", {"balance": 7.99})
    assert sandbox.sms().status_code == 200
    request = {"recipients": ADA, "sender_id": "Acme", "content": "Hello"}
    assert sandbox.refused(402, "POST", "/sms/send", request) == {"balance": "insufficient_balance"}
    sandbox.settings(insufficient_balance="under_200")
    answer = sandbox.call("POST", "/sms/send", request)
    assert answer.status_code == 200
    assert answer.json()["errors"][0]["type"] == "insufficient_balance"
    counters = sandbox.counters()
    assert counters["sms"] == {"requests": 1, "recipients": 1}
    assert (counters["balance"], counters["charged"]) == (3.99, 4.0)


def test_missing_balance_is_a_400_where_it_is_set(sandbox: Harness) -> None:
    """contract.md 7 lists 200 and 400 for POST /sms/send, so 400 is how the contract can show it."""
    sandbox.control("PUT", "balance", {"balance": 1})
    sandbox.settings(insufficient_balance="400")
    request = {"recipients": ADA, "sender_id": "Acme", "content": "Hello"}
    assert sandbox.refused(400, "POST", "/sms/send", request) == {"balance": "insufficient_balance"}
    assert sandbox.counters()["charged"] == 0


def test_balance_is_exact_after_many_charges(sandbox: Harness) -> None:
    sandbox.control("PUT", "balance", {"balance": 1})
    sandbox.control("PUT", "prices", {"sms": 0.1})
    balances = [sandbox.sms().json()["meta"]["estimate"]["available_balance"] for _ in range(10)]
    assert balances == [0.9, 0.8, 0.7, 0.6, 0.5, 0.4, 0.3, 0.2, 0.1, 0.0]


def test_message_to_five_hundred_recipients_is_accepted(sandbox: Harness) -> None:
    numbers = [str(2348030000000 + n) for n in range(500)]
    record = sandbox.sms(recipients=",".join(numbers)).json()
    assert record["recipients"] == numbers
    assert sandbox.counters()["sms"] == {"requests": 1, "recipients": 500}
    assert sandbox.control("GET", "inbox/sms", params={"limit": 1000})["total"] == 500


def test_too_many_recipients(sandbox: Harness) -> None:
    sandbox.settings(max_recipients=2)
    request = {"recipients": f"{ADA},{BAYO},{ADA}", "sender_id": "Acme", "content": "x"}
    assert sandbox.refused(400, "POST", "/sms/send", request) == {"recipients": "too_long"}


def test_refused_recipient_is_named_as_the_settings_say(sandbox: Harness) -> None:
    sandbox.control("POST", "seed", {"refused_recipients": [BAYO]})
    request = {"recipients": f"{ADA},{BAYO}", "sender_id": "Acme", "content": "x"}
    answer = sandbox.call("POST", "/sms/send", request)
    assert answer.status_code == 400
    assert BAYO in answer.json()["errors"][0]["message"]
    sandbox.settings(name_refused_recipients=False)
    assert BAYO not in sandbox.call("POST", "/sms/send", request).text
    assert sandbox.counters()["sms"]["recipients"] == 0


def test_refused_recipient_is_left_out_as_the_settings_say(sandbox: Harness) -> None:
    sandbox.control("POST", "seed", {"refused_recipients": [BAYO]})
    sandbox.settings(refused_recipients="leave_out")
    answer = sandbox.call("POST", "/sms/send", {"recipients": f"{ADA},{BAYO}", "sender_id": "Acme", "content": "x"})
    assert answer.status_code == 200
    assert answer.json()["recipients"] == [ADA]
    assert BAYO in answer.json()["errors"][0]["message"]
    assert [one["recipient"] for one in sandbox.inbox("sms")] == [ADA]
    alone = {"recipients": BAYO, "sender_id": "Acme", "content": "x"}
    assert sandbox.refused(400, "POST", "/sms/send", alone) == {"recipients": "invalid_recipient"}


@pytest.mark.parametrize(
    ("change", "field"),
    [
        ({"recipients": "+2348030000001"}, "recipients"),
        ({"recipients": "08030000001"}, "recipients"),
        ({"recipients": f"{ADA},,{BAYO}"}, "recipients"),
        ({"recipients": [ADA]}, "recipients"),
        ({"recipients": f"{ADA}\n"}, "recipients"),
        ({"sender_id": "TwelveLetter"}, "sender_id"),
        ({"sender_id": ""}, "sender_id"),
        ({"content": ""}, "content"),
        ({"content": None}, "content"),
        ({"channel": "fax"}, "channel"),
        ({"is_trackable": "yes"}, "is_trackable"),
        ({"callback": "not a url"}, "callback"),
        ({"personalisation": [{"to": ADA}]}, "personalisation.0.substitutions"),
        ({"personalisation": {}}, "personalisation"),
    ],
)
def test_invalid_sms_is_refused(sandbox: Harness, change: dict[str, Any], field: str) -> None:
    request = {"recipients": ADA, "sender_id": "Acme", "content": "x"} | change
    assert set(sandbox.refused(400, "POST", "/sms/send", request)) == {field}


@pytest.mark.parametrize(
    ("change", "field"),
    [
        ({"recipients": "a@b"}, "recipients"),
        ({"recipients": "ada@example.com;bayo@example.com"}, "recipients"),
        ({"sender_id": "Acme"}, "sender_id"),
        ({"reply_to": "nobody"}, "reply_to"),
        ({"subject": 3}, "subject"),
    ],
)
def test_invalid_email_is_refused(sandbox: Harness, change: dict[str, Any], field: str) -> None:
    assert set(sandbox.refused(400, "POST", "/email/send", EMAIL | change)) == {field}


@pytest.mark.parametrize(
    "address",
    ["o'brien+tag@sub.example.co.uk", "a" * 64 + "@example.com", "x!#$%&*=?^`{|}~-/@example.com", "a@b.xn--p1ai"],
)
def test_addresses_of_all_kinds(sandbox: Harness, address: str) -> None:
    assert sandbox.ok("POST", "/email/send", EMAIL | {"recipients": f"{address},b@c.de"})["recipients"][0] == address


def test_long_recipient_list_is_parsed_quickly(sandbox: Harness) -> None:
    sandbox.settings(max_recipients=20_000)
    listed = ",".join(f"first.last.{n}@mail.sub.example.com" for n in range(20_000))
    started = time.monotonic()
    sandbox.ok("POST", "/email/send", EMAIL | {"recipients": listed})
    sandbox.refused(400, "POST", "/email/send", EMAIL | {"recipients": listed + "@"})
    sandbox.refused(400, "POST", "/email/send", EMAIL | {"recipients": "a." * 200_000})
    sandbox.refused(
        400, "POST", "/sms/send", {"recipients": "2348030000001," * 100_000, "sender_id": "A", "content": "x"}
    )
    assert time.monotonic() - started < 10


def test_content_or_template_is_required(sandbox: Harness) -> None:
    missing = {"content": "missing", "template_id": "missing"}
    assert sandbox.refused(400, "POST", "/sms/send", {"recipients": ADA, "sender_id": "Acme"}) == missing
    request = {name: EMAIL[name] for name in ("recipients", "sender_id")}
    assert sandbox.refused(400, "POST", "/email/send", request) == missing
