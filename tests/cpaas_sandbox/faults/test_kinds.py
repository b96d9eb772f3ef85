"""Every fault, as a customer meets it; and whether the request was accepted behind it."""

from __future__ import annotations

import contextlib
import json
import random
import time
from datetime import UTC, datetime, timedelta
from email.utils import parsedate_to_datetime
from typing import Any, get_args

import httpx
import pytest

from cpaas_sandbox.core.context import Options
from cpaas_sandbox.faults.kinds import KINDS, OddForm, Stage
from cpaas_sandbox.faults.odd_answers import DeadId, NoteForm, PurchaseForm, RefusalForm
from cpaas_sandbox.faults.rules import MAX_RULES, Rule
from tests.cpaas_sandbox.conftest import ADA, KEY, Harness, Raw, running
from tests.system.killing.weather import FAULTS, SENDS, misleading
from tests.waiting import until

SMS = json.dumps({"recipients": ADA, "sender_id": "Acme", "content": "Hello"}).encode()


def accepted(sandbox: Harness) -> int:
    """How many were stored, charged and counted, all three the same."""
    counters = sandbox.counters()
    n = counters["sms"]["requests"]
    assert counters["accepted"].get("send_sms", 0) == n == len(sandbox.inbox("sms"))
    assert counters["charged"] == 4.0 * n
    return int(n)


@pytest.mark.parametrize(
    ("kind", "status"),
    [
        ({"kind": "error_500"}, 500),
        ({"kind": "bad_gateway"}, 502),
        ({"kind": "bad_gateway", "status": 504}, 504),
        ({"kind": "rate_limit"}, 429),
        ({"kind": "unavailable"}, 503),
        ({"kind": "unauthorized"}, 401),
        ({"kind": "redirect", "status": 302}, 302),
        ({"kind": "error_under_200"}, 200),
        ({"kind": "reject"}, 400),
        ({"kind": "reject", "status": 422, "message": "Sender ID not approved"}, 422),
    ],
)
def test_before_acceptance_nothing_is_accepted(sandbox: Harness, kind: dict[str, Any], status: int) -> None:
    sandbox.fault("send_sms", times=1, **kind)
    assert sandbox.sms().status_code == status
    assert accepted(sandbox) == 0
    counters = sandbox.counters()
    assert counters["rejected"] == counters["requests"] == {"send_sms": 1}
    assert counters["faults"] == {kind["kind"]: 1}
    assert sandbox.sms().status_code == 200
    assert accepted(sandbox) == 1


# The least that each fault waits: money does not depend on it.
AT_ONCE: dict[str, dict[str, float]] = {
    "latency": {"ms": 0},
    "slow_drip": {"seconds": 0},
    "stall_body": {"seconds": 0},
}
ADDRESS = "ada@example.com"
BILLED: dict[str, tuple[str, str, dict[str, Any], float]] = {
    "send_sms": ("POST", "/sms/send", json.loads(SMS), 4.0),
    "send_email": (
        "POST",
        "/email/send",
        {"recipients": ADDRESS, "sender_id": "shop@example.com", "subject": "Hi", "content": "Hello"},
        0.5,
    ),
    "request_otp": ("POST", "/otp/request_token", {"recipient": ADA}, 4.0),
    "lookup_phone": ("GET", "/lookup/phone", {"phone": ADA}, 2.0),
    "buy_airtime": ("POST", "/airtime/buy", {"network": "MTN", "amount": 100, "recipient": ADA}, 100.0),
}
"""Method, path, body and price of each operation that costs money."""


def charge_of(sandbox: Harness, operation: str) -> float:
    """Make a request, whether a response arrives or not, and return what it cost by the balance of the account."""
    method, path, body, _ = BILLED[operation]
    before = sandbox.counters()["balance"]
    # On a connection of its own: a second response to a request is for no other one.
    with (
        httpx.Client(base_url=sandbox.url, headers=sandbox.http.headers, trust_env=False) as client,
        contextlib.suppress(httpx.TransportError),
    ):
        client.request(method, path, json=body)
    counters = sandbox.counters()
    assert counters["requests"] == {operation: 1}
    assert before - counters["balance"] == counters["charged"]
    return float(counters["charged"])


@pytest.mark.parametrize("kind", KINDS)
def test_request_is_charged_unless_its_fault_comes_before_acceptance(sandbox: Harness, kind: str) -> None:
    sandbox.fault("send_sms", kind, times=1, **AT_ONCE.get(kind, {}))
    count = 0 if KINDS[kind].stage is Stage.BEFORE else 1
    assert charge_of(sandbox, "send_sms") == count * BILLED["send_sms"][3]
    assert accepted(sandbox) == count
    assert sandbox.counters()["faults"] == {kind: 1}


@pytest.mark.parametrize("operation", BILLED)
@pytest.mark.parametrize(
    ("kind", "count"), [("error_500", 0), ("cut_before", 0), ("error_500_after", 1), ("cut_after", 1)]
)
def test_operation_is_charged_if_its_response_is_lost_and_not_if_it_fails(
    sandbox: Harness, operation: str, kind: str, count: int
) -> None:
    sandbox.fault(operation, kind, times=1)
    assert charge_of(sandbox, operation) == count * BILLED[operation][3]
    assert sandbox.counters()["accepted"] == ({operation: 1} if count else {})


@pytest.mark.parametrize("operation", sorted({*BILLED} - {"lookup_phone"}))
def test_request_to_a_recipient_that_is_rejected_is_not_charged(sandbox: Harness, operation: str) -> None:
    sandbox.control("POST", "seed", {"refused_recipients": [ADA, ADDRESS]})
    assert charge_of(sandbox, operation) == 0
    assert sandbox.counters()["rejected"] == {operation: 1}


def test_rate_limit_has_retry_after_in_seconds_or_as_a_date(sandbox: Harness) -> None:
    sandbox.fault("send_sms", "rate_limit", times=1, retry_after=7)
    assert sandbox.sms().headers["retry-after"] == "7"
    sandbox.fault("send_sms", "rate_limit", times=1, retry_after=90, format="http-date")
    at = parsedate_to_datetime(sandbox.sms().headers["retry-after"])
    assert timedelta(seconds=80) < at - datetime.now(UTC) < timedelta(seconds=95)
    sandbox.fault("send_sms", "unavailable", times=1)
    assert "retry-after" not in sandbox.sms().headers
    sandbox.fault("send_sms", "unavailable", times=1, retry_after=3)
    assert sandbox.sms().headers["retry-after"] == "3"


def test_error_under_200_carries_the_documented_body(sandbox: Harness) -> None:
    sandbox.fault("send_sms", "error_under_200", times=1)
    body = sandbox.sms().json()
    assert body["status"] == 200
    assert body["errors"][0]["type"] == "missing"


@pytest.mark.parametrize("envelope", [False, True])
@pytest.mark.parametrize("form", get_args(OddForm))
def test_odd_answer_comes_after_acceptance(sandbox: Harness, form: str, envelope: bool) -> None:
    sandbox.settings(envelope=envelope)
    sandbox.fault("send_sms", "odd_answer", times=1, form=form, body_status=429)
    answer = sandbox.sms()
    body = answer.json()
    assert accepted(sandbox) == 1
    assert answer.status_code == (302 if form == "redirect" else 200)
    record = body if form == "empty_errors" else body.get("data", {})
    assert ("id" in record) is (form in {"empty_errors", "queued", "status_beside"})
    assert body.get("status") == {"status_beside": 429, "status_alone": 429, "queued": 200, "redirect": 302}.get(form)


@pytest.mark.parametrize("stage", ["before", "after"])
@pytest.mark.parametrize("form", get_args(RefusalForm))
def test_odd_refusal_hides_whether_the_request_was_accepted(sandbox: Harness, form: str, stage: str) -> None:
    sandbox.fault("send_sms", f"odd_refusal_{stage}", times=1, form=form)
    answer = sandbox.sms()
    assert accepted(sandbox) == (stage == "after")
    assert answer.status_code in (200, 400, 460, 499)
    assert "id" not in answer.json() or answer.status_code == 400


@pytest.mark.parametrize("stage", ["before", "after"])
@pytest.mark.parametrize("id_", get_args(DeadId))
def test_dead_id_hides_whether_the_request_was_accepted(sandbox: Harness, id_: str, stage: str) -> None:
    sandbox.fault("send_sms", f"dead_id_{stage}", times=1, id=id_)
    answer = sandbox.sms()
    assert (accepted(sandbox), answer.status_code) == (stage == "after", 200)
    assert "id" in answer.json()


@pytest.mark.parametrize("envelope", [False, True])
@pytest.mark.parametrize("form", get_args(NoteForm))
def test_note_is_returned_beside_the_record(sandbox: Harness, form: str, envelope: bool) -> None:
    sandbox.settings(envelope=envelope)
    sandbox.fault("send_sms", "note_beside_id", times=1, form=form)
    body = sandbox.sms().json()
    record = body["data"] if envelope else body
    assert (accepted(sandbox), bool(record["id"]), len(record["errors"])) == (1, True, 1)


def test_weather_of_the_kill_runs_has_room_for_the_misleading_faults() -> None:
    rules = [Rule(**fault) for fault in (*FAULTS, *misleading(random.Random(7), 0.1))]
    latencies = 3
    assert len(SENDS) * (len(rules) + latencies) < MAX_RULES


@pytest.mark.parametrize("form", get_args(PurchaseForm))
def test_odd_status_of_a_purchase_that_was_made(sandbox: Harness, form: str) -> None:
    sandbox.fault("buy_airtime", "odd_purchase_status", times=1, form=form)
    body = sandbox.ok("POST", "/airtime/buy", {"network": "MTN", "amount": 100, "recipient": ADA})
    assert sandbox.counters()["accepted"] == {"buy_airtime": 1}
    assert (body["status"], "data" in body) != ("pending", False) or body["meta"]["charge"]["refunded"]


def test_empty_errors_fault_keeps_errors_that_name_a_recipient(sandbox: Harness) -> None:
    sandbox.settings(refused_recipients="leave_out")
    sandbox.control("POST", "seed", {"refused_recipients": ["2348030001111"]})
    sandbox.fault("send_sms", "odd_answer", times=1, form="empty_errors")
    body = sandbox.sms(recipients="2348030001111,2348030002222").json()
    assert (bool(body["id"]), [error["type"] for error in body["errors"]]) == (True, ["invalid_recipient"])


def test_rejection_has_the_configured_message(sandbox: Harness) -> None:
    sandbox.fault("send_sms", "reject", after=1, message="Sender ID not approved")
    assert sandbox.sms().status_code == 200
    assert sandbox.sms().json() == {"status": 400, "message": "Sender ID not approved", "errors": []}


@pytest.mark.parametrize(("balance", "left"), [("keep", {"available_balance"}), ("drop", set())])
@pytest.mark.parametrize("envelope", [False, True])
def test_response_without_charge_keeps_the_other_fields(
    sandbox: Harness, balance: str, left: set[str], *, envelope: bool
) -> None:
    sandbox.control("PUT", "settings", {"envelope": envelope})
    whole = sandbox.sms().json()
    sandbox.fault("send_sms", "no_charge", times=1, balance=balance)
    spoilt = sandbox.sms().json()
    whole, spoilt = (one["data"] if envelope else one for one in (whole, spoilt))
    gone = {"charge", "available_balance"} - left
    assert set(spoilt) == set(whole)
    assert set(spoilt["meta"]["estimate"]) == set(whole["meta"]["estimate"]) - gone
    assert accepted(sandbox) == 2


def test_redirect_names_the_place(sandbox: Harness) -> None:
    sandbox.fault("send_sms", "redirect", times=1, location="http://127.0.0.1:9/x")
    assert sandbox.sms().headers["location"] == "http://127.0.0.1:9/x"


@pytest.mark.parametrize(("kind", "count"), [("cut_before", 0), ("cut_after", 1)])
@pytest.mark.parametrize("how", ["reset", "close"])
def test_cut_drops_the_socket_without_a_byte(sandbox: Harness, kind: str, count: int, how: str) -> None:
    sandbox.fault("send_sms", kind, times=1, how=how)
    raw = Raw(sandbox)
    raw.ask("POST", "/sms/send", SMS)
    if how == "reset":
        with pytest.raises(ConnectionResetError):
            raw.rest()
    else:
        assert raw.rest() == b""
    assert accepted(sandbox) == count
    assert sandbox.counters()["faults"] == {kind: 1}


@pytest.mark.parametrize(("loop", "http"), [("asyncio", "h11"), ("asyncio", "httptools")])
def test_cut_under_other_loops_and_parsers(loop: str, http: str) -> None:
    """What uvicorn picks depends on what is installed beside it."""
    with running(Options(KEY), loop=loop, http=http) as url:
        sandbox = Harness(url)
        for how in ("reset", "close"):
            sandbox.fault("send_sms", "cut_after", times=1, how=how)
            raw = Raw(sandbox)
            raw.ask("POST", "/sms/send", SMS)
            with pytest.raises(ConnectionResetError) if how == "reset" else contextlib.nullcontext():
                assert raw.rest() == b""
        assert accepted(sandbox) == 2


def test_cut_also_ends_a_connection_that_was_used_before(sandbox: Harness) -> None:
    assert sandbox.sms().status_code == 200
    sandbox.fault("send_sms", "cut_after", times=1)
    with pytest.raises(httpx.TransportError):
        sandbox.sms()
    assert accepted(sandbox) == 2


def test_stalled_body_is_silent_and_ends_with_the_client(sandbox: Harness) -> None:
    sandbox.fault("send_sms", "stall_body", times=1, seconds=300)
    raw = Raw(sandbox, timeout=1.0)
    raw.ask("POST", "/sms/send", SMS)
    got = raw.socket.recv(65536)
    while b"\r\n\r\n{" not in got:
        got += raw.socket.recv(65536)
    head, _, part = got.partition(b"\r\n\r\n")
    length = next(
        int(line.split(b":")[1]) for line in head.split(b"\r\n") if line.lower().startswith(b"content-length")
    )
    assert head.startswith(b"HTTP/1.1 200")
    assert 0 < len(part) < length
    with pytest.raises(TimeoutError):
        raw.socket.recv(1)
    assert accepted(sandbox) == 1
    raw.socket.close()


def test_stalled_body_is_bounded(sandbox: Harness) -> None:
    sandbox.fault("send_sms", "stall_body", times=1, seconds=0.1)
    raw = Raw(sandbox)
    raw.ask("POST", "/sms/send", SMS)
    with pytest.raises(ConnectionResetError):
        raw.rest()


def test_slow_drip_arrives_whole(sandbox: Harness) -> None:
    sandbox.fault("send_sms", "slow_drip", times=1, seconds=0.3)
    started = time.monotonic()
    assert sandbox.sms().json()["id"]
    assert time.monotonic() - started > 0.2


def test_latency_is_served_late_and_joins_other_faults(sandbox: Harness) -> None:
    sandbox.fault("*", "latency", times=1, ms=150)
    sandbox.fault("send_sms", "error_500", times=1)
    started = time.monotonic()
    assert sandbox.sms().status_code == 500
    assert time.monotonic() - started >= 0.14
    assert sandbox.counters()["faults"] == {"latency": 1, "error_500": 1}


def test_request_delayed_beyond_a_reset_is_dropped_and_counted_nowhere(sandbox: Harness) -> None:
    sandbox.fault("send_sms", "latency", ms=120_000)
    raw = Raw(sandbox, timeout=5)
    raw.ask("POST", "/sms/send", SMS)
    until(lambda: sandbox.counters()["faults"].get("latency"))
    sandbox.control("POST", "reset")
    with pytest.raises(ConnectionResetError):
        raw.rest()
    assert (sandbox.counters()["requests"], sandbox.inbox("sms")) == ({}, [])
    assert sandbox.sms().status_code == 200


@pytest.mark.parametrize("kind", ["broken_json", "missing_field", "unknown_enum", "extra_fields"])
def test_odd_answers_were_accepted(sandbox: Harness, kind: str) -> None:
    sandbox.fault("send_sms", kind, times=1)
    answer = sandbox.sms()
    assert answer.status_code == 200
    assert accepted(sandbox) == 1
    if kind == "broken_json":
        with pytest.raises(json.JSONDecodeError):
            answer.json()
    else:
        body = answer.json()
        assert ("id" in body) is (kind != "missing_field")
        assert (body["meta"]["estimate"]["encoding"] == "quantum") is (kind == "unknown_enum")
        assert ("x_new" in body) is (kind == "extra_fields")


@pytest.mark.parametrize(("kind", "status"), [("error_500_after", 500), ("bad_gateway_after", 504)])
def test_failure_after_acceptance_accepts_the_request(sandbox: Harness, kind: str, status: int) -> None:
    sandbox.fault("send_sms", kind, times=1)
    assert sandbox.sms().status_code == status
    assert accepted(sandbox) == 1


@pytest.mark.parametrize(
    ("method", "path", "body", "operation", "gone"),
    [
        ("GET", "/lookup/phone", {"phone": ADA}, "lookup_phone", "msisdn"),
        ("POST", "/lists/contact/rows", {"columns": {}}, "create_contact_row", "row"),
        ("GET", "/lists/contact", None, "get_contact_table", "id"),
    ],
)
def test_missing_field_fault_removes_a_required_field(
    sandbox: Harness, method: str, path: str, body: Any, operation: str, gone: str
) -> None:
    for envelope in (False, True):
        sandbox.settings(envelope=envelope)
        whole = sandbox.ok(method, path, body)
        sandbox.fault(operation, "missing_field", times=1)
        answer = sandbox.ok(method, path, body)
        whole, answer = (whole["data"], answer["data"]) if envelope else (whole, answer)
        assert gone in whole
        assert gone not in answer


def test_unknown_values_in_airtime_and_otp(sandbox: Harness) -> None:
    sandbox.fault("*", "unknown_enum", value="lunar")
    bought = sandbox.ok("POST", "/airtime/buy", {"network": "MTN", "amount": 50, "recipient": ADA})
    assert (bought["status"], bought["network"]) == ("lunar", "lunar")
    token = sandbox.ok("POST", "/otp/request_token", {"recipient": ADA})
    assert (token["status"], token["status_desc"]) == (99, "lunar")


def test_faults_reach_every_record_of_a_list(sandbox: Harness) -> None:
    for _ in range(2):
        sandbox.ok("POST", "/otp/request_token", {"recipient": ADA})
    sandbox.fault("find_otps", "extra_fields", times=1)
    tokens = sandbox.ok("GET", "/otp/get-by-recipient", params={"recipient": ADA})
    assert [one["x_new"] for one in tokens] == [True, True]


def test_unknown_values_inside_a_list(sandbox: Harness) -> None:
    sandbox.fault("get_contact_table", "unknown_enum", times=1)
    assert {column["type"] for column in sandbox.ok("GET", "/lists/contact")["columns"]} == {"quantum"}


def test_answer_without_charge_is_whole_where_there_was_none(sandbox: Harness) -> None:
    table = sandbox.ok("GET", "/lists/contact")
    sandbox.fault("get_contact_table", "no_charge", times=1)
    assert sandbox.ok("GET", "/lists/contact") == table


@pytest.mark.parametrize(("kind", "status"), [("missing_field", 200), ("extra_fields", 204)])
def test_faults_of_an_answer_without_a_body(sandbox: Harness, kind: str, status: int) -> None:
    sandbox.settings(delete_body="empty")
    row = sandbox.ok("POST", "/lists/contact/rows", {"columns": {}})["row"]["id"]
    sandbox.fault("delete_contact_row", kind, times=1)
    answer = sandbox.call("DELETE", f"/lists/contact/rows/{row}")
    assert (answer.status_code, answer.content) == (status, b"")


def test_times_after_rate_and_operation(sandbox: Harness) -> None:
    sandbox.fault("send_sms", "error_500", times=2, after=1)
    assert [sandbox.sms().status_code for _ in range(5)] == [200, 500, 500, 200, 200]
    sandbox.fault("get_contact_table", "error_500")
    assert sandbox.sms().status_code == 200
    sandbox.control("DELETE", "faults")
    draws = []
    for _ in range(2):
        rule = sandbox.fault("send_sms", "error_500", rate=0.5, seed=7)
        draws.append([sandbox.sms().status_code for _ in range(40)])
        sandbox.control("DELETE", f"faults/{rule['id']}")
    assert draws[0] == draws[1]
    assert 8 <= draws[0].count(500) <= 32


def test_refused_request_does_not_use_up_a_fault_after_acceptance(sandbox: Harness) -> None:
    sandbox.fault("send_sms", "broken_json", times=1)
    assert sandbox.sms(recipients="nobody").status_code == 400
    assert sandbox.counters()["faults"] == {}
    with pytest.raises(json.JSONDecodeError):
        sandbox.sms().json()


def test_request_with_a_wrong_key_triggers_no_fault(sandbox: Harness) -> None:
    sandbox.fault("*", "error_500", times=1)
    assert sandbox.call("GET", "/lists/contact", headers={"Authorization": "Bearer no"}).status_code == 401
    assert sandbox.call("GET", "/lists/contact").status_code == 500


def test_faults_can_be_listed_and_taken_away(sandbox: Harness) -> None:
    one = sandbox.fault("send_sms", "error_500", times=1)
    sandbox.fault("*", "latency", ms=1)
    listed = sandbox.control("GET", "faults")
    assert [rule["kind"] for rule in listed["faults"]] == ["error_500", "latency"]
    assert set(listed["kinds"]) == set(KINDS)
    assert sandbox.control("DELETE", f"faults/{one['id']}") == {"removed": 1}
    assert sandbox.call("DELETE", f"/_control/faults/{one['id']}").status_code == 404
    assert sandbox.control("DELETE", "faults") == {"removed": 1}


@pytest.mark.parametrize(
    "wrong",
    [
        {"kind": "nonsense"},
        {"kind": "error_500", "operation": "send_pigeon"},
        {"kind": "error_500", "times": 0},
        {"kind": "error_500", "rate": 1.5},
        {"kind": "latency", "ms": 10**9},
        {"kind": "latency", "ms": "long"},
        {"kind": "latency", "parsecs": 3},
        {"kind": "redirect", "location": "http://x/\r\nEvil: 1"},
        {"kind": "bad_gateway", "status": 200},
        {},
    ],
)
def test_invalid_fault_is_refused(sandbox: Harness, wrong: dict[str, Any]) -> None:
    answer = sandbox.call("POST", "/_control/faults", wrong)
    assert answer.status_code == 400
    assert answer.json()["message"]
    assert sandbox.control("GET", "faults")["faults"] == []


def test_rules_are_bounded_and_spent_ones_make_room(sandbox: Harness) -> None:
    sandbox.fault("send_sms", "error_500", times=1)
    for _ in range(199):
        sandbox.fault("send_email", "error_500")
    assert sandbox.call("POST", "/_control/faults", {"kind": "error_500"}).status_code == 400
    sandbox.sms()
    until(lambda: sandbox.call("POST", "/_control/faults", {"kind": "error_500"}).status_code == 201)
