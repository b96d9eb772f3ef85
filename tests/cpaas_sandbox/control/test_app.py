"""The control API: inbox, clock, money, settings, reset; and clear words where it is asked for nonsense."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from typing import Any

import httpx
import pytest

from cpaas_sandbox.service.operations import NAMES
from tests.cpaas_sandbox.conftest import ADA, BAYO, Harness, Raw

FOURTEEN = """send_sms send_email request_otp verify_otp get_otp find_otps revoke_otp buy_airtime get_contact_table
get_contact_row create_contact_row update_contact_row delete_contact_row lookup_phone"""


def test_all_fourteen_operations_are_named() -> None:
    assert sorted(NAMES) == sorted(FOURTEEN.split())


def test_health_has_status_and_version(sandbox: Harness) -> None:
    health = sandbox.control("GET", "health")
    assert health["status"] == "ok"
    assert health["version"]


def test_counters_of_a_fresh_sandbox_are_zero(sandbox: Harness) -> None:
    assert sandbox.counters() == {
        "requests": {},
        "accepted": {},
        "rejected": {},
        "faults": {},
        "sms": {"requests": 0, "recipients": 0},
        "email": {"requests": 0, "recipients": 0},
        "airtime": {"purchases": 0, "duplicates": 0, "success": 0, "failed": 0, "error": 0, "refunded": 0},
        "otp": {"requested": 0, "verified": 0, "wrong_attempts": 0, "failed": 0, "revoked": 0},
        "contacts": {"rows": 0, "created": 0, "updated": 0, "deleted": 0},
        "reports": {"booked": 0, "pending": 0, "due": 0, "sent": 0, "acknowledged": 0, "refused": 0, "given_up": 0},
        "lookups": 0,
        "charged": 0.0,
        "balance": 100_000_000.0,
    }


def test_every_operation_is_counted_under_its_name(sandbox: Harness) -> None:
    sandbox.sms()
    sandbox.ok("POST", "/email/send", {"recipients": "a@example.com", "sender_id": "b@example.com", "content": "x"})
    token = sandbox.ok("POST", "/otp/request_token", {"recipient": ADA, "token": "1234"})["id"]
    sandbox.ok("POST", "/otp/verify", {"id": token, "token": "1234"})
    sandbox.ok("GET", f"/otp/{token}")
    sandbox.ok("GET", "/otp/get-by-recipient", params={"recipient": ADA})
    sandbox.ok("DELETE", f"/otp/{token}")
    sandbox.ok("POST", "/airtime/buy", {"network": "MTN", "amount": 50, "recipient": ADA})
    sandbox.ok("GET", "/lists/contact")
    row = sandbox.ok("POST", "/lists/contact/rows", {"columns": {}})["row"]["id"]
    sandbox.ok("GET", f"/lists/contact/row/{row}")
    sandbox.ok("PATCH", f"/lists/contact/rows/{row}", {"columns": {}})
    sandbox.ok("DELETE", f"/lists/contact/rows/{row}")
    sandbox.ok("GET", "/lookup/phone", {"phone": ADA})
    counters = sandbox.counters()
    assert counters["requests"] == counters["accepted"] == dict.fromkeys(NAMES, 1)
    assert counters["charged"] == 4.0 + 0.5 + 4.0 + 50 + 2.0


def test_inbox_is_paged_and_searched(sandbox: Harness) -> None:
    for n in range(5):
        sandbox.sms(recipients=f"{ADA},{BAYO}", content=f"text {n}", external_ref=f"ref-{n}")
    page = sandbox.control("GET", "inbox/sms", params={"limit": 3, "offset": 2})
    assert (page["total"], page["limit"], page["offset"]) == (10, 3, 2)
    assert [(one["text"], one["recipient"]) for one in page["items"]] == [
        ("text 3", BAYO),
        ("text 3", ADA),
        ("text 2", BAYO),
    ]
    assert {one["recipient"] for one in sandbox.inbox("sms", recipient=ADA)} == {ADA}
    assert [one["text"] for one in sandbox.inbox("sms", external_ref="ref-2", recipient=ADA)] == ["text 2"]
    assert sandbox.control("GET", "inbox/sms", params={"search": "0000002"})["total"] == 5
    assert sandbox.control("GET", "inbox/sms", params={"search": "%"})["total"] == 0


def test_contacts_are_found_by_a_cell(sandbox: Harness) -> None:
    column = next(one["id"] for one in sandbox.ok("GET", "/lists/contact")["columns"] if one["type"] == "PHONE NUMBER")
    for phone in (ADA, BAYO):
        sandbox.ok("POST", "/lists/contact/rows", {"columns": {column: phone}})
    assert [one["columns"][column] for one in sandbox.inbox("contacts", recipient=ADA)] == [ADA]
    assert len(sandbox.inbox("contacts", search="0000002")) == 1


@pytest.mark.parametrize(
    "query",
    ["inbox/pigeons", "inbox/sms?limit=0", "inbox/sms?limit=100000", "inbox/sms?offset=-1", "inbox/otp?external_ref=x"],
)
def test_invalid_inbox_query_is_refused(sandbox: Harness, query: str) -> None:
    answer = sandbox.call("GET", f"/_control/{query}")
    assert answer.status_code == 400
    assert answer.json()["message"]


def test_clock_can_be_set_frozen_advanced_and_reset(sandbox: Harness) -> None:
    moment = "2031-05-06T07:08:09+00:00"
    assert sandbox.control("PUT", "clock", {"now": moment, "frozen": True})["now"].startswith("2031-05-06T07:08:09.")
    assert sandbox.ok("POST", "/otp/request_token", {"recipient": ADA})["created_datetime"].startswith(
        "2031-05-06T07:08:09"
    )
    sandbox.control("POST", "clock/advance", {"seconds": 51})
    clock = sandbox.control("GET", "clock")
    assert clock["now"].startswith("2031-05-06T07:09:00.")
    assert clock["frozen"] is True
    assert sandbox.control("PUT", "clock", {"frozen": False})["now"].startswith("2031-05-06T07:09:00")
    clock = sandbox.control("PUT", "clock", {"real": True})
    assert (clock["frozen"], clock["offset_seconds"]) == (False, 0.0)


@pytest.mark.parametrize(
    ("method", "path", "body"),
    [
        ("PUT", "clock", {"now": "2031-05-06T07:08:09"}),
        ("PUT", "clock", {"now": "tomorrow"}),
        ("PUT", "clock", {"now": "9999-01-01T00:00:00+00:00"}),
        ("PUT", "clock", {"later": True}),
        ("POST", "clock/advance", {"seconds": 1e12}),
        ("POST", "clock/advance", {"seconds": -9e8 * 9}),
        ("POST", "clock/advance", {}),
        ("PUT", "balance", {"balance": -1}),
        ("PUT", "balance", {"balance": 1e300}),
        ("PUT", "balance", {"balance": "much"}),
        ("PUT", "prices", {"sms": -0.5}),
        ("PUT", "settings", {"auth_scheme": "none"}),
        ("PUT", "settings", {"otp_max_attempts": 0}),
        ("PUT", "settings", {"otp_max_attempts": 2.5}),
        ("PUT", "settings", {"envelope": "yes"}),
        ("PUT", "settings", {"placeholder_format": "name"}),
        ("PUT", "settings", {"placeholder_format": "{name"}),
        ("PUT", "settings", {"colour": "red"}),
        ("POST", "reset", {"everything": True}),
        ("PUT", "scene", {"faults": [], "balance": -1}),
        ("PUT", "scene", {"faults": [], "balance": 5, "settings": {"envelope": True, "colour": "red"}}),
        ("PUT", "scene", {"faults": [{"kind": "none"}], "balance": 5, "settings": {"envelope": True}}),
        ("PUT", "scene", {"faults": [{"kind": "latency"}, {"kind": "latency", "ms": -1}], "balance": 5}),
        ("PUT", "scene", {"faults": [{"kind": "latency"}] * 201, "balance": 5}),
        ("PUT", "scene", {"faults": {}, "settings": {"envelope": True}}),
        ("PUT", "scene", {"balance": 5, "prices": {"sms": 1}}),
    ],
)
def test_conditions_that_make_no_sense(sandbox: Harness, method: str, path: str, body: Any) -> None:
    def conditions() -> list[Any]:
        return [*(sandbox.control("GET", one) for one in ("settings", "prices", "faults")), sandbox.counters()]

    sandbox.fault("send_sms", "error_500")
    before = conditions()
    answer = sandbox.call(method, f"/_control/{path}", body)
    assert answer.status_code == 400, answer.text
    assert answer.json()["message"]
    assert conditions() == before


def test_scene_replaces_faults_and_sets_balance_and_settings_in_one_call(sandbox: Harness) -> None:
    sandbox.fault("*", "unauthorized")
    sandbox.settings(otp_max_attempts=3)
    faults = [{"operation": "send_sms", "kind": "rate_limit", "times": 1, "retry_after": 7}, {"kind": "extra_fields"}]
    seen = sandbox.control("PUT", "scene", {"faults": faults, "balance": 10, "settings": {"envelope": True}})
    assert seen["faults"] == sandbox.control("GET", "faults")["faults"]
    assert [one["kind"] for one in seen["faults"]] == ["rate_limit", "extra_fields"]
    assert (seen["faults"][0]["times"], seen["faults"][0]["params"]["retry_after"]) == (1, 7)
    assert (seen["balance"], sandbox.counters()["balance"]) == (10.0, 10.0)
    assert seen["settings"] == sandbox.control("GET", "settings")
    assert (seen["settings"]["envelope"], seen["settings"]["otp_max_attempts"]) == (True, 3)
    assert [sandbox.sms().status_code for _ in range(2)] == [429, 200]
    assert sandbox.counters()["balance"] == 6.0


def test_scene_with_a_refused_setting_changes_nothing(sandbox: Harness) -> None:
    sandbox.fault("*", "latency")
    before = [sandbox.control("GET", name) for name in ("faults", "settings")]
    balance = sandbox.counters()["balance"]
    scene = {"faults": [], "balance": balance + 1, "settings": {"envelope": True, "auth_scheme": "none"}}
    assert sandbox.call("PUT", "/_control/scene", scene).status_code == 400
    assert [sandbox.control("GET", name) for name in ("faults", "settings")] == before
    assert sandbox.counters()["balance"] == balance


def test_scene_keeps_omitted_values_but_removes_faults(sandbox: Harness) -> None:
    sandbox.control("PUT", "scene", {"faults": [{"kind": "latency"}], "balance": 10, "settings": {"envelope": True}})
    seen = sandbox.control("PUT", "scene", {})
    assert (seen["faults"], seen["balance"], seen["settings"]["envelope"]) == ([], 10.0, True)
    assert sandbox.control("GET", "faults")["faults"] == []


def test_reset_returns_the_new_settings(sandbox: Harness) -> None:
    sandbox.settings(envelope=True)
    assert sandbox.control("POST", "reset", {"keep_seeding": True})["settings"]["envelope"] is True
    seen = sandbox.control("POST", "reset")["settings"]
    assert seen == sandbox.control("GET", "settings")
    assert seen["envelope"] is False


def test_invalid_json_number_is_refused(sandbox: Harness) -> None:
    headers = {"Content-Type": "application/json"}
    for body in ('{"balance": NaN}', '{"balance": Infinity}', "{", ""):
        assert sandbox.call("PUT", "/_control/balance", content=body, headers=headers).status_code == 400


def test_settings_change_together_or_not_at_all(sandbox: Harness) -> None:
    answer = sandbox.call("PUT", "/_control/settings", {"envelope": True, "auth_scheme": "none", "colour": 1})
    assert answer.status_code == 400
    assert "auth_scheme" in answer.json()["message"]
    assert "colour" in answer.json()["message"]
    assert sandbox.control("GET", "settings")["envelope"] is False
    assert set(sandbox.control("GET", "settings/meaning")) == set(sandbox.control("GET", "settings"))


def test_reset_with_and_without_the_seeds(sandbox: Harness) -> None:
    def prepared() -> None:
        sandbox.control("POST", "seed", {"templates": [{"id": "mine", "content": "x"}], "refused_recipients": [BAYO]})
        sandbox.control("PUT", "prices", {"sms": 1})
        sandbox.settings(envelope=True)
        sandbox.ok("POST", "/lists/contact/rows", {"columns": {}})
        sandbox.fault("*", "latency", ms=1)
        sandbox.control("PUT", "clock", {"frozen": True})
        sandbox.sms()

    def found() -> tuple[Any, ...]:
        templates = {one["id"] for one in sandbox.control("GET", "templates")}
        counters = sandbox.counters()
        assert (counters["sms"]["requests"], counters["charged"], counters["balance"]) == (0, 0.0, 1e8)
        assert sandbox.inbox("sms") == []
        assert sandbox.control("GET", "faults")["faults"] == []
        assert sandbox.control("GET", "clock")["frozen"] is False
        refused = sandbox.sms(recipients=BAYO).status_code == 400
        price = sandbox.control("GET", "prices")["sms"]
        return (
            "mine" in templates,
            price,
            sandbox.control("GET", "settings")["envelope"],
            counters["contacts"]["rows"],
            refused,
        )

    prepared()
    sandbox.control("POST", "reset", {"keep_seeding": True})
    assert found() == (True, 1.0, True, 1, True)
    prepared()
    sandbox.control("POST", "reset")
    assert found() == (False, 4.0, False, 0, False)


def test_oversized_control_body_is_refused(sandbox: Harness) -> None:
    raw = Raw(sandbox)
    raw.ask("PUT", "/_control/balance", b" " * (8 * 1024 * 1024 + 1))
    assert raw.rest().startswith(b"HTTP/1.1 413")


def test_counts_are_exact_under_concurrent_requests(sandbox: Harness) -> None:
    """Sixteen customers at once, with delays and faults among their requests."""
    sandbox.fault("send_sms", "latency", ms=5, rate=0.5, seed=1)
    sandbox.fault("send_sms", "error_500", times=20)
    sandbox.fault("send_sms", "broken_json", times=10)

    def customer(number: int) -> list[int]:
        with httpx.Client(base_url=sandbox.url, headers=sandbox.http.headers, trust_env=False) as http:
            body = {"recipients": f"{ADA},{BAYO}", "sender_id": "Acme", "content": f"from {number}"}
            return [http.post("/sms/send", json=body).status_code for _ in range(20)]

    with ThreadPoolExecutor(16) as pool:
        answers = [status for one in pool.map(customer, range(16)) for status in one]
    assert (answers.count(200), answers.count(500)) == (300, 20)
    counters = sandbox.counters()
    assert counters["sms"] == {"requests": 300, "recipients": 600}
    assert (counters["requests"]["send_sms"], counters["rejected"]["send_sms"]) == (320, 20)
    assert (counters["faults"]["error_500"], counters["faults"]["broken_json"]) == (20, 10)
    assert (counters["charged"], counters["balance"]) == (2400.0, 1e8 - 2400)
    assert sandbox.control("GET", "inbox/sms")["total"] == 600


def test_unknown_control_path_or_method_has_the_documented_error(sandbox: Harness) -> None:
    for method, path, status in (("GET", "nothing", 404), ("POST", "health", 405), ("GET", "", 404)):
        answer = sandbox.call(method, f"/_control/{path}")
        assert answer.status_code == status
        assert set(answer.json()) == {"status", "message", "errors"}


def test_control_api_has_an_openapi_document_of_its_own(sandbox: Harness) -> None:
    paths = sandbox.call("GET", "/_control/openapi.json").json()["paths"]
    named = {"health", "counters", "faults", "scene", "inbox/{view}"}
    assert {f"/_control/{one}" for one in named} <= set(paths)
    assert not [path for path in sandbox.call("GET", "/openapi.json").json()["paths"] if "_control" in path]
