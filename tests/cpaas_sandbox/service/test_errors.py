"""Keys, paths, methods and bodies that are wrong: always the documented shape, never another."""

from __future__ import annotations

import socket
from contextlib import closing
from typing import Any

import httpx
import pytest

from cpaas_sandbox.service.operations import OPERATIONS
from tests.cpaas_sandbox.conftest import ADA, KEY, Harness, Raw


def _path(path: str) -> str:
    return path.replace("{id}", "x").replace("{row_id}", "x")


def _is_refused(sandbox: Harness, operation: Any, header: str | None) -> None:
    headers = [(b"content-type", b"application/json")]
    headers += [] if header is None else [(b"authorization", header.encode("latin-1"))]
    answer = httpx.request(operation.method, sandbox.url + _path(operation.path), headers=headers, trust_env=False)
    assert answer.status_code == 401
    assert answer.headers["www-authenticate"] == "Bearer"
    shown = answer.json()
    assert [one["field"] for one in shown["errors"]] == ["Authorization"]
    assert shown["errors"][0]["type"] == ("missing" if header is None else "invalid_key")
    assert sandbox.counters()["rejected"] == {operation.name: 1}


@pytest.mark.parametrize("operation", OPERATIONS, ids=lambda one: one.name)
def test_every_operation_asks_for_the_key(sandbox: Harness, operation: Any) -> None:
    _is_refused(sandbox, operation, None)


@pytest.mark.parametrize("header", ["", "Bearer", "Bearer wrong", KEY, f"Basic {KEY}", "Bearer clé"])
def test_wrong_api_key_is_refused(sandbox: Harness, header: str) -> None:
    _is_refused(sandbox, OPERATIONS[0], header)


def test_auth_scheme_setting_decides_between_raw_key_and_bearer(sandbox: Harness) -> None:
    raw, bearer = {"Authorization": KEY}, {"Authorization": f"Bearer {KEY}"}

    def tried() -> list[int]:
        return [sandbox.call("GET", "/lists/contact", headers=one).status_code for one in (raw, bearer)]

    assert tried() == [401, 200]
    sandbox.settings(auth_scheme="raw")
    assert tried() == [200, 401]
    sandbox.settings(auth_scheme="either")
    assert tried() == [200, 200]


def test_auth_scheme_is_case_insensitive(sandbox: Harness) -> None:
    assert sandbox.call("GET", "/lists/contact", headers={"Authorization": f"bearer {KEY}"}).status_code == 200


@pytest.mark.parametrize("path", ["/nothing", "/sms", "/sms/send/", "/otp/", "/lists/contact/rows/a/b", "//", "/otp"])
def test_unknown_path_is_not_found(sandbox: Harness, path: str) -> None:
    assert sandbox.refused(404, "POST", sandbox.url + path) == {"path": "not_found"}


@pytest.mark.parametrize(
    ("method", "path", "allowed"),
    [
        ("GET", "/sms/send", "POST"),
        ("PUT", "/lists/contact/rows/x", "DELETE, GET, PATCH"),
        ("DELETE", "/otp/get-by-recipient", "GET"),
        ("POST", "/otp/x", "DELETE, GET"),
        ("OPTIONS", "/lookup/phone", "GET"),
        ("DELETE", "/lists/contact/row/x", "GET"),
    ],
)
def test_methods_not_allowed(sandbox: Harness, method: str, path: str, allowed: str) -> None:
    assert sandbox.refused(405, method, path) == {"method": "method_not_allowed"}
    assert sandbox.call(method, path).headers["allow"] == allowed


@pytest.mark.parametrize(
    "body",
    [
        b" ",
        b"{",
        b"not json",
        b'{"a": NaN}',
        b'{"a": 1e999}',
        b'{"a": Infinity}',
        b"\xff\xfe{}",
        b'{"recipients": "\\ud800"}',
        b"[" * 100_000,
        b'{"a": ' + b"9" * 5000 + b"}",
    ],
    ids=lambda body: repr(body[:20]),
)
def test_bodies_that_are_not_json(sandbox: Harness, body: bytes) -> None:
    headers = {"Content-Type": "application/json"}
    assert sandbox.refused(400, "POST", "/sms/send", content=body, headers=headers) == {"body": "json_invalid"}


@pytest.mark.parametrize("method", ["GET", "POST", "PATCH"])
def test_error_of_a_missing_body_names_the_required_fields(sandbox: Harness, method: str) -> None:
    path, fields = {
        "GET": ("/lookup/phone", {"phone"}),
        "POST": ("/otp/verify", {"id", "token"}),
        "PATCH": ("/lists/contact/rows/x", {"columns"}),
    }[method]
    assert sandbox.refused(400, method, path) == dict.fromkeys(fields, "missing")


@pytest.mark.parametrize("body", [b"[]", b'"text"', b"3", b"null", b"true"])
def test_bodies_that_are_no_object(sandbox: Harness, body: bytes) -> None:
    headers = {"Content-Type": "application/json"}
    for path in ("/sms/send", "/otp/verify", "/lists/contact/rows"):
        assert sandbox.refused(400, "POST", path, content=body, headers=headers) == {"body": "object_type"}


@pytest.mark.parametrize("kind", ["text/plain", "application/x-www-form-urlencoded", "application/jsonp", ""])
def test_bodies_that_do_not_call_themselves_json(sandbox: Harness, kind: str) -> None:
    headers = {"Content-Type": kind}
    assert sandbox.refused(415, "POST", "/sms/send", content=b"{}", headers=headers) == {"Content-Type": "content_type"}


def test_json_with_a_charset_is_json(sandbox: Harness) -> None:
    body = f'{{"recipients": "{ADA}", "sender_id": "Acme", "content": "x"}}'
    headers = {"Content-Type": "Application/JSON; charset=utf-8"}
    assert sandbox.call("POST", "/sms/send", content=body, headers=headers).status_code == 200


def test_several_fields_at_once(sandbox: Harness) -> None:
    found = sandbox.refused(400, "POST", "/airtime/buy", {"amount": 49.99, "network": "Vodafone", "callback": 1})
    assert found == {
        "recipient": "missing",
        "amount": "greater_than_equal",
        "network": "enum",
        "callback": "string_type",
    }


def test_oversized_body_is_refused(sandbox: Harness) -> None:
    raw = Raw(sandbox)
    raw.ask("POST", "/sms/send", b" " * (8 * 1024 * 1024 + 1))
    assert raw.rest().startswith(b"HTTP/1.1 413")


def test_client_that_disconnects_within_its_body_is_not_counted(sandbox: Harness) -> None:
    with closing(socket.create_connection(sandbox.address, timeout=10)) as connection:
        head = f"POST /sms/send HTTP/1.1\r\nHost: localhost\r\nAuthorization: Bearer {KEY}\r\nContent-Length: 100\r\n"
        head += "Content-Type: application/json\r\n\r\n"
        connection.sendall(head.encode() + b"{")
    assert sandbox.sms().status_code == 200
    assert sandbox.counters()["requests"] == {"send_sms": 1}


def test_unknown_fields_are_ignored_or_refused(sandbox: Harness) -> None:
    assert sandbox.sms(colour="red").status_code == 200
    sandbox.settings(unknown_fields="reject")
    request = {"recipients": ADA, "sender_id": "Acme", "content": "x", "colour": "red"}
    assert sandbox.refused(400, "POST", "/sms/send", request) == {"colour": "extra_forbidden"}


def test_envelope_wraps_results_but_not_errors(sandbox: Harness) -> None:
    sandbox.settings(envelope=True)
    wrapped = sandbox.ok("GET", "/lists/contact")
    assert set(wrapped) == {"status", "type", "message", "data"}
    assert (wrapped["status"], wrapped["type"]) == (200, "success")
    assert len(wrapped["data"]["columns"]) == 8
    assert sandbox.refused(404, "GET", "/otp/unknown") == {"id": "not_found"}


def test_percent_encoded_id_is_one_segment(sandbox: Harness) -> None:
    assert sandbox.refused(404, "GET", "/lists/contact/row/a%2Fb%20c") == {"row_id": "not_found"}
    assert sandbox.refused(404, "GET", "/lists/contact/row/%FF%00") == {"row_id": "not_found"}
