"""The two endpoints over real HTTP: every response, and what is in the database after it."""

from __future__ import annotations

import json
import logging
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from typing import Any

import httpx
import pytest
from msgspec.structs import replace

from cpaas_provider.database.database import Database, open_database
from cpaas_provider.database.errors import DatabaseError
from cpaas_provider.delivery.callbacks.signatures import sign
from cpaas_provider.delivery.callbacks.tokens import CallbackToken
from cpaas_provider.delivery.receiver import endpoints, secrets_cache
from cpaas_provider.delivery.receiver.http import request
from cpaas_provider.delivery.receiver.http.responses import MAX_BODY
from cpaas_provider.delivery.receiver.log_throttle import ThrottledLogger
from tests.unit.delivery.receiver.slow_senders import UNREAD, head
from tests.unit.delivery.running_receiver import REPORT, SHOP, TOKEN, Served, serving

ENDPOINTS = ["callback", "webhook"]
UNPROVED = {"callback": 404, "webhook": 401}
"""The status of the response to a report that no secret proves, by its endpoint."""


@pytest.fixture(scope="module")
def database(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Database]:
    with open_database(f"sqlite:///{tmp_path_factory.mktemp('received') / 'store.db'}") as opened:
        yield opened


@pytest.fixture(scope="module")
def module_receiver(database: Database) -> Iterator[Served]:
    with serving(database) as served:
        yield served


@pytest.fixture
def served(module_receiver: Served, monkeypatch: pytest.MonkeyPatch) -> Iterator[Served]:
    """The receiver with its connections and its store in order, and nothing complained of yet."""
    monkeypatch.setattr(endpoints, "throttled_log", ThrottledLogger(logging.getLogger(endpoints.__name__)))
    monkeypatch.setattr(secrets_cache, "throttled_log", ThrottledLogger(logging.getLogger(secrets_cache.__name__)))
    module_receiver.observed.clear()
    yield module_receiver
    module_receiver.gate.error = module_receiver.store_error = None


def send(served: Served, endpoint: str, body: Any) -> httpx.Response:
    return served.post(body=body) if endpoint == "callback" else served.post_signed(body)


@pytest.mark.parametrize("endpoint", ENDPOINTS)
class TestAcceptedReport:
    def test_report_is_stored_as_received_before_the_response(self, served: Served, endpoint: str) -> None:
        raw = json.dumps({**REPORT, "note": f"für {endpoint}"}, ensure_ascii=False, indent=3).encode()
        answer = send(served, endpoint, raw)
        assert (answer.status_code, answer.json()) == (200, {"status": "stored"})
        (row,) = [row for row in served.stored() if row.body == raw.decode()]
        assert (row.conn_id, row.source, row.recipient, row.received_count) == ("shop", endpoint, "2348030000001", 1)

    def test_duplicate_report_is_counted_and_not_stored_again(self, served: Served, endpoint: str) -> None:
        body = {**REPORT, "note": f"repeated at {endpoint}"}
        assert [send(served, endpoint, body).status_code for _ in range(3)] == [200] * 3
        assert served.bodies().count(json.dumps(body)) == 1
        assert served.counted() == {"received": 3, "repeated": 2}

    @pytest.mark.parametrize("body", [5, "text", [], {}, None, {"levitated": True}, {"status": "levitated"}])
    def test_report_of_unknown_shape_is_stored_raw(self, served: Served, endpoint: str, body: Any) -> None:
        raw = json.dumps(body).encode() + b" " * ENDPOINTS.index(endpoint)
        assert send(served, endpoint, raw).status_code == 200
        assert raw.decode() in served.bodies()
        assert served.counted() == {"received": 1, "unreadable": 1}

    @pytest.mark.parametrize(
        "raw",
        [b'{"id": NaN}', b'{"id": 1e999}', b'{"id": ' + b"9" * 5000 + b"}", b'{"id": 1, "id": 2}', b'"\\ud800\\u0000"',
         b'\xef\xbb\xbf{"id": 3}', b" [1]\n"],
    )  # fmt: skip
    def test_unusual_json_is_accepted(self, served: Served, endpoint: str, raw: bytes) -> None:
        assert send(served, endpoint, raw).status_code == 200

    def test_delay_of_a_report_with_a_time_is_measured(self, served: Served, endpoint: str) -> None:
        then = datetime.now(UTC) - timedelta(hours=1)
        assert send(served, endpoint, {**REPORT, "created_datetime": then.isoformat()}).status_code == 200
        ((name, seconds),) = [one for one in served.observed if isinstance(one[1], float)]
        assert name == "lag"
        assert seconds >= 3600

    def test_national_number_is_read_in_the_region_of_the_connection(self, served: Served, endpoint: str) -> None:
        conn_id = f"lagos-{endpoint}"
        served.connections[conn_id] = replace(SHOP, default_region="NG")
        body = {**REPORT, "recipient": "0803 123 4567"}
        if endpoint == "callback":
            served.post(served.callback(conn_id=conn_id), body)
        else:
            served.post_signed(body, conn_id=conn_id)
        assert [row.recipient for row in served.stored() if row.conn_id == conn_id] == ["2348031234567"]

    def test_delay_of_a_report_from_the_future_is_zero(self, served: Served, endpoint: str) -> None:
        then = datetime.now(UTC) + timedelta(hours=1)
        assert send(served, endpoint, {**REPORT, "created_datetime": then.isoformat()}).status_code == 200
        assert ("lag", 0.0) in served.observed

    @pytest.mark.parametrize(
        "media_type",
        ["application/json; charset=utf-8", "APPLICATION/JSON", "text/json", "application/vnd.report+json"],
    )
    def test_other_media_types_of_json_are_accepted(self, served: Served, endpoint: str, media_type: str) -> None:
        raw = json.dumps({**REPORT, "note": media_type}).encode()
        url = served.url_of(endpoint)
        headers = {"content-type": media_type, "x-signature": sign(raw, "of-webhooks")}
        assert served.post(url, raw, headers=headers).status_code == 200

    def test_largest_allowed_body_is_accepted(self, served: Served, endpoint: str) -> None:
        assert send(served, endpoint, b'"' + b"a" * (MAX_BODY - 2) + b'"').status_code == 200


@pytest.mark.parametrize("endpoint", ENDPOINTS)
class TestRefusedRequest:
    @pytest.mark.parametrize(
        "raw",
        [b"", b"delivered", b"{", b'{"id": 1}}', b"\xff\xfe", b'"\xff"', b'"\xed\xa0\x80"', b'"\x00"', b'"a\nb"',
         b"[" * 100_000, b'{"a":' * 50_000, b"[" * 1000 + b"9" * 5000, '{"id": 1}'.encode("utf-16")],
    )  # fmt: skip
    def test_422_if_the_body_is_not_json(self, served: Served, endpoint: str, raw: bytes) -> None:
        before = len(served.stored())
        answer = send(served, endpoint, raw)
        assert (answer.status_code, answer.json()) == (422, {"detail": "The body is not JSON in UTF-8."})
        assert len(served.stored()) == before
        assert served.counted() == {"refused.422": 1}

    @pytest.mark.parametrize(
        "headers",
        [{"content-type": ""}, {"content-type": "text/plain"}, {"content-type": "application/jsonp"},
         {"content-type": "application/x-www-form-urlencoded"}, {"content-encoding": "gzip"}],
    )  # fmt: skip
    def test_415_if_the_body_is_compressed_or_its_type_is_not_json(
        self, served: Served, endpoint: str, headers: dict[str, str]
    ) -> None:
        raw = json.dumps(REPORT).encode()
        url = served.url_of(endpoint)
        answer = served.post(url, raw, headers={"x-signature": sign(raw, "of-webhooks"), **headers})
        assert answer.status_code == 415

    def test_413_if_the_content_length_is_too_large(self, served: Served, endpoint: str) -> None:
        before = len(served.stored())
        assert send(served, endpoint, b" " * (MAX_BODY + 1)).status_code == 413
        assert len(served.stored()) == before

    @pytest.mark.parametrize("method", ["GET", "HEAD", "PUT", "PATCH", "DELETE", "OPTIONS", "TRACE"])
    def test_405_for_every_method_other_than_post(self, served: Served, endpoint: str, method: str) -> None:
        url = served.url_of(endpoint)
        answer = httpx.request(method, url, trust_env=False)
        assert (answer.status_code, answer.headers["allow"]) == (405, "POST")

    @pytest.mark.parametrize(
        "conn_id", ["nobody", "shop2", "SHOP", "shop%00", "a%20b", "..", "%2e%2e", "team/shop/more"]
    )
    def test_404_if_the_connection_does_not_exist(self, served: Served, endpoint: str, conn_id: str) -> None:
        url = f"{served.url}/{endpoint}/{conn_id}" + (
            f"/{served.callback().rpartition('/')[2]}" if endpoint == "callback" else ""
        )
        assert served.post(url).status_code == 404

    def test_408_if_the_body_does_not_arrive(
        self, served: Served, endpoint: str, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(request, "BODY_TIMEOUT", 0.05)
        with served.connect() as connection:
            connection.sendall(head(served, served.url_of(endpoint), 100, UNREAD[endpoint]) + b"{")
            assert connection.makefile("rb").readline().startswith(b"HTTP/1.1 408")

    def test_503_while_the_database_fails_and_200_afterwards(
        self, served: Served, endpoint: str, caplog: pytest.LogCaptureFixture
    ) -> None:
        served.gate.error = DatabaseError("The disk is full.")
        before = len(served.stored())
        for number in range(5):
            answer = send(served, endpoint, {**REPORT, "id": f"failing-{number}"})
            assert (answer.status_code, answer.headers["retry-after"]) == (503, "10")
            assert "disk" not in answer.text
        assert len(served.stored()) == before
        assert caplog.text.count("The disk is full.") == 1
        served.gate.error = None
        assert send(served, endpoint, {**REPORT, "id": f"well again at {endpoint}"}).status_code == 200

    def test_500_without_details_for_an_unexpected_error(
        self, served: Served, endpoint: str, caplog: pytest.LogCaptureFixture
    ) -> None:
        served.gate.error = KeyError("+2348030000001")
        answer = send(served, endpoint, REPORT)
        assert (answer.status_code, answer.json()) == (500, {"detail": "Internal Server Error"})
        assert "KeyError" in caplog.text
        assert "2348030000001" not in caplog.text
        assert "Traceback" not in caplog.text


class TestCallbackEndpoint:
    @pytest.mark.parametrize("secret", SHOP.callback_secrets)
    def test_each_listed_secret_verifies_a_report(self, served: Served, secret: str) -> None:
        assert served.post(served.callback(secret=secret)).status_code == 200

    @pytest.mark.parametrize("conn_id", ["team/shop", "team%2Fshop"])
    def test_connection_id_may_contain_a_slash(self, served: Served, conn_id: str) -> None:
        url = served.callback(conn_id="team/shop").replace("team%2Fshop", conn_id)
        assert served.post(url, {**REPORT, "note": conn_id}).status_code == 200
        assert "team/shop" in {row.conn_id for row in served.stored()}

    def test_404_if_the_token_is_of_another_connection(self, served: Served) -> None:
        url = served.callback(conn_id="team/shop").replace("team%2Fshop", "shop")
        answer = served.post(url)
        assert (answer.status_code, answer.json()) == (404, {"detail": "Not found."})

    @pytest.mark.parametrize(
        "change", [lambda url: url[:-1], lambda url: url + "A", lambda url: url.replace(".100.", ".99.")]
    )
    def test_404_if_the_token_was_changed(self, served: Served, change: Any) -> None:
        answer = served.post(change(served.callback()))
        assert answer.status_code == 404
        assert served.counted() == {"refused.404": 1}

    @pytest.mark.parametrize("more", ["/", "//", "/more"])
    def test_404_if_the_path_goes_on_after_the_token(self, served: Served, more: str) -> None:
        assert served.post(served.callback() + more).status_code == 404

    def test_404_with_an_invalid_token_before_the_body_is_sent(self, served: Served) -> None:
        with served.connect() as connection:
            path = served.callback(secret="wrong").removeprefix(served.url)
            connection.sendall(f"POST {path} HTTP/1.1\r\nHost: a\r\nContent-Length: 1000\r\n\r\n".encode())
            said = connection.makefile("rb").read()
        assert said.startswith(b"HTTP/1.1 404")
        assert b"connection: close" in said

    def test_new_callback_secret_is_accepted_at_once(self, served: Served) -> None:
        served.connections["rotating"] = replace(SHOP, callback_secrets=("old",))
        assert served.post(served.callback(conn_id="rotating", secret="old")).status_code == 200
        served.connections["rotating"] = replace(SHOP, callback_secrets=("new", "old"))
        assert served.post(served.callback(conn_id="rotating", secret="new")).status_code == 200
        assert served.post(served.callback(conn_id="rotating", secret="old")).status_code == 200

    def test_handshake_returns_the_database_id_and_stores_nothing(self, served: Served) -> None:
        before = len(served.stored())
        url = served.callback(CallbackToken("handshake", "handshake", 1))
        for answer in (served.post(url), served.post(url, b""), httpx.post(url, trust_env=False)):
            assert (answer.status_code, answer.json()) == (200, {"database": "the-store"})
        assert len(served.stored()) == before

    def test_503_to_a_handshake_if_the_database_cannot_be_opened(self, served: Served) -> None:
        served.store_error = DatabaseError("It is away.")
        assert served.post(served.callback(CallbackToken("handshake", "handshake", 1))).status_code == 503

    def test_404_to_a_handshake_under_a_wrong_secret(self, served: Served) -> None:
        assert (
            served.post(served.callback(CallbackToken("handshake", "handshake", 1), secret="wrong")).status_code == 404
        )


class TestWebhookEndpoint:
    @pytest.mark.parametrize(
        "headers", [{}, {"x-signature": ""}, {"x-signature": "c29tZXRoaW5n"}, {"x-signature": "\xff"}]
    )
    def test_401_if_the_signature_is_missing_or_wrong(self, served: Served, headers: dict[str, str]) -> None:
        before = len(served.stored())
        encoded = {name: value.encode("latin-1") for name, value in headers.items()}
        answer = served.post(f"{served.url}/webhook/shop", headers=encoded)
        assert (answer.status_code, answer.json()) == (401, {"detail": "The signature is missing or wrong."})
        assert len(served.stored()) == before

    def test_401_if_the_signature_is_of_another_secret_or_body(self, served: Served) -> None:
        assert served.post_signed(secret="of-callbacks").status_code == 401
        changed = served.post(f"{served.url}/webhook/shop", b"{}", headers={"x-signature": sign(b"{ }", "of-webhooks")})
        assert changed.status_code == 401

    def test_401_comes_before_errors_about_the_body(self, served: Served) -> None:
        answer = served.post(f"{served.url}/webhook/shop", b"no json", headers={"content-type": "text/plain"})
        assert answer.status_code == 401

    @pytest.mark.parametrize("closed", [{"webhook_secret": None}, {"signature_header": None}, {"webhook_secret": ""}])
    def test_404_while_a_webhook_setting_is_missing_and_200_once_both_are_set(
        self, served: Served, closed: dict[str, Any]
    ) -> None:
        conn_id = f"closed-{closed}".translate(str.maketrans("{}' :", "_____"))
        served.connections[conn_id] = replace(SHOP, **closed)
        assert (
            served.post_signed(conn_id=conn_id, secret=closed.get("webhook_secret") or "of-webhooks").status_code == 404
        )
        served.connections[conn_id + "-too"] = replace(SHOP, **closed)
        assert served.post(served.callback(conn_id=conn_id + "-too")).status_code == 200
        served.connections[conn_id + "-too"] = SHOP
        assert served.post_signed(conn_id=conn_id + "-too").status_code == 200

    def test_new_webhook_secret_and_header_are_accepted_at_once(self, served: Served) -> None:
        served.connections["resigned"] = replace(SHOP, webhook_secret="old")
        assert served.post_signed(conn_id="resigned", secret="old").status_code == 200
        served.connections["resigned"] = replace(SHOP, webhook_secret="new", signature_header="X-NEW")
        answer = served.post(f"{served.url}/webhook/resigned", b"{}", headers={"x-new": sign(b"{}", "new")})
        assert answer.status_code == 200


@pytest.mark.parametrize("endpoint", ENDPOINTS)
class TestReplacedSecret:
    """A secret that is replaced, and not listed behind the new one."""

    BEFORE = replace(SHOP, callback_secrets=("old",), webhook_secret="old")
    AFTER = replace(SHOP, callback_secrets=("new",), webhook_secret="new")

    def send(self, served: Served, endpoint: str, conn_id: str, secret: str) -> int:
        """Send a report under a secret, and return the status of the response."""
        if endpoint == "callback":
            return served.post(served.callback(conn_id=conn_id, secret=secret)).status_code
        return served.post_signed(conn_id=conn_id, secret=secret).status_code

    def test_replaced_secret_is_refused_after_a_report_under_the_new_one(self, served: Served, endpoint: str) -> None:
        conn_id = f"replaced-{endpoint}"
        served.connections[conn_id] = self.BEFORE
        assert self.send(served, endpoint, conn_id, "old") == 200
        served.connections[conn_id] = self.AFTER
        # The connection was read less than a minute ago.
        assert self.send(served, endpoint, conn_id, "old") == 200
        assert self.send(served, endpoint, conn_id, "new") == 200
        assert self.send(served, endpoint, conn_id, "old") == UNPROVED[endpoint]

    def test_replaced_secret_is_refused_once_the_connection_is_read_again(
        self, served: Served, endpoint: str, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        conn_id = f"read-again-{endpoint}"
        # In place of a minute: what proves a report comes from the cache alone.
        monkeypatch.setattr(secrets_cache, "FRESH_SECONDS", 0.0)
        served.connections[conn_id] = self.BEFORE
        assert self.send(served, endpoint, conn_id, "old") == 200
        served.connections[conn_id] = self.AFTER
        assert self.send(served, endpoint, conn_id, "old") == UNPROVED[endpoint]


class TestReceiver:
    def test_health_is_ok(self, served: Served) -> None:
        answer = httpx.get(f"{served.url}/health", trust_env=False)
        assert (answer.status_code, answer.json()) == (200, {"status": "ok"})

    @pytest.mark.parametrize(
        "path", ["/", "/docs", "/redoc", "/openapi.json", "/callback", "/callback/shop", "/webhook"]
    )
    def test_404_for_every_other_path(self, served: Served, path: str) -> None:
        assert httpx.get(served.url + path, trust_env=False).status_code == 404
        assert served.post(served.url + path).status_code == 404

    def test_accepted_and_refused_reports_are_not_logged(
        self, served: Served, caplog: pytest.LogCaptureFixture
    ) -> None:
        caplog.set_level(logging.DEBUG, "cpaas_provider")
        served.post()
        served.post_signed()
        served.post(served.callback(secret="wrong"))
        served.post_signed(secret="wrong")
        served.post(body=b"no json")
        assert [one for one in caplog.records if one.name.startswith(("cpaas_provider", "uvicorn.access"))] == []

    def test_http_connection_stays_open_for_many_reports(self, served: Served) -> None:
        with httpx.Client(trust_env=False) as client:
            for number in range(5):
                answer = client.post(served.callback(TOKEN), json={**REPORT, "id": f"kept-alive-{number}"})
                assert answer.status_code == 200
                assert "close" not in answer.headers.get("connection", "")
