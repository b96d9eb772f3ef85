"""What a web page can make a developer's browser send changes nothing in the sandbox, and reads nothing from it.

All requests are bytes on a socket, because an HTTP library would repair or refuse many of them.
"""

from __future__ import annotations

import asyncio
import json
import socket
from collections.abc import Iterator
from contextlib import closing, contextmanager
from functools import partial
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path
from threading import Thread
from typing import Any, NamedTuple

import httpx
import pytest
from starlette.responses import PlainTextResponse
from starlette.types import Message, Receive, Scope, Send

from cpaas_sandbox.core.context import Options
from cpaas_sandbox.guard import Guard
from tests.cpaas_sandbox.conftest import ADA, KEY, Harness, running
from tests.cpaas_sandbox.page.browser import CHROMIUM, DRIVER, browsing
from tests.waiting import until

JSON = "Content-Type: application/json"
SMS = json.dumps({"recipients": ADA, "sender_id": "Acme", "content": "forged"}).encode()
VIEWS = ("sms", "email", "otp", "airtime", "contacts", "lookups", "reports")

READS = ["/", "/_page/inbox.js", "/openapi.json", "/_control/openapi.json", "/_control/inbox/otp", "/_control/health"]
"""A path of each kind of route that answers without an API key."""
CHANGES = [
    ("POST", "/_control/reset", b"{}"),
    ("POST", "/sms/send", SMS),
    ("PUT", "/_control/balance", b'{"balance":0}'),
]

OTHER_HOSTS = {
    "another name": "Host: evil.example",
    "another name with the port": "Host: evil.example:{port}",
    "a name that begins with localhost": "Host: localhost.evil.example:{port}",
    "a name that begins with the address": "Host: 127.0.0.1.evil.example:{port}",
    "a name that ends with localhost": "Host: evil.localhost:{port}",
    "a name that ends like localhost": "Host: notlocalhost",
    "a trailing dot": "Host: localhost.:{port}",
    "a trailing dot on the address": "Host: 127.0.0.1.:{port}",
    "the address as one number": "Host: 2130706433:{port}",
    "the address in hexadecimal": "Host: 0x7f000001:{port}",
    "the address in octal": "Host: 0177.0.0.1:{port}",
    "the short address": "Host: 127.1:{port}",
    "the wildcard address": "Host: 0.0.0.0:{port}",
    "the IPv6 wildcard address": "Host: [::]:{port}",
    "another address": "Host: 192.0.2.1:{port}",
    "a scoped IPv6 address": "Host: [::1%25lo]:{port}",
    "an IPv6 address without brackets": "Host: ::1",
    "an IPv4 address in brackets": "Host: [127.0.0.1]:{port}",
    "userinfo": "Host: localhost@evil.example",
    "another name as userinfo": "Host: evil.example@localhost:{port}",
    "a scheme": "Host: http://localhost:{port}",
    "a path": "Host: localhost:{port}/",
    "a list": "Host: localhost, evil.example",
    "a port that is no number": "Host: localhost:evil",
    "an empty port": "Host: localhost:",
    "two ports": "Host: localhost:{port}:80",
    "a name in UTF-8": "Host: \uff4cocalhost:{port}",
    "digits in UTF-8": "Host: 127.0.0.\u0661",
    "an empty value": "Host:",
    "no Host header": "X-Forwarded-Host: localhost:{port}",
    "two Host headers": "Host: localhost:{port}\r\nHost: evil.example",
    "another Host header first": "Host: evil.example\r\nHost: localhost:{port}",
    "the same Host header twice": "Host: localhost:{port}\r\nHost: localhost:{port}",
    "a forwarded host beside it": "Host: evil.example\r\nX-Forwarded-Host: localhost\r\nForwarded: host=localhost",
}  # fmt: skip

OWN_HOSTS = [
    *("127.0.0.1:{port}", "127.0.0.1", "127.255.0.9:1", "localhost", "LocalHost:{port}", "localhost:65535"),
    *("[::1]", "[::1]:{port}", "[0:0:0:0:0:0:0:1]"),
]

# What a POST carries -> the status that refuses it
OTHER_POSTS = {
    "no content type": ([], 415),
    "an empty content type": (["Content-Type:"], 415),
    "text": (["Content-Type: text/plain"], 415),
    "text with a parameter": (["Content-Type: text/plain; application/json"], 415),
    "text with a charset": (["Content-Type: text/plain;charset=application/json"], 415),
    "a form": (["Content-Type: application/x-www-form-urlencoded"], 415),
    "a form with files": (["Content-Type: multipart/form-data; boundary=x"], 415),
    "a longer type": (["Content-Type: application/jsonx"], 415),
    "a type of its own": (["Content-Type: application/vnd.x+json"], 415),
    "two types in one header": (["Content-Type: application/json, text/plain"], 415),
    "two content types": ([JSON, "Content-Type: text/plain"], 415),
    "two content types, JSON last": (["Content-Type: text/plain", JSON], 415),
    "a space of another kind": (["Content-Type: application/json\u00a0"], 415),
    "another method in a header": (["X-HTTP-Method-Override: PUT", "X-HTTP-Method: DELETE"], 415),
    "another method in a header of a form": (
        ["Content-Type: application/x-www-form-urlencoded", "X-Method-Override: GET"],
        415,
    ),
    "an upgrade": (["Connection: Upgrade", "Upgrade: websocket", "Sec-WebSocket-Version: 13"], 415),
    "another origin": ([JSON, "Origin: http://evil.example"], 403),
    "another origin that begins with ours": ([JSON, "Origin: http://127.0.0.1:{port}.evil.example"], 403),
    "another port of this machine": ([JSON, "Origin: http://127.0.0.1:1"], 403),
    "another name of this machine": ([JSON, "Origin: http://localhost:{port}"], 403),
    "an origin without port": ([JSON, "Origin: http://127.0.0.1"], 403),
    "an origin of another scheme": ([JSON, "Origin: file://127.0.0.1:{port}"], 403),
    "an origin without scheme": ([JSON, "Origin: 127.0.0.1:{port}"], 403),
    "no origin of a sandboxed frame": ([JSON, "Origin: null"], 403),
    "an empty origin": ([JSON, "Origin:"], 403),
    "two origins": ([JSON, "Origin: http://127.0.0.1:{port}", "Origin: http://evil.example"], 403),
    "a list of origins": ([JSON, "Origin: http://127.0.0.1:{port} http://evil.example"], 403),
}  # fmt: skip


class Response(NamedTuple):
    status: int
    headers: dict[str, str]
    body: bytes


def send(sandbox: Harness, method: str, target: str, fields: list[str], body: bytes = b"") -> Response:
    """Send one request with exactly these header fields; `{port}` in them is the sandbox's."""
    lines = [f"{method} {target} HTTP/1.1", f"Authorization: Bearer {KEY}", "Connection: close", *fields]
    lines += [f"Content-Length: {len(body)}"] if body or method != "GET" else []
    head = "\r\n".join(lines).replace("{port}", str(sandbox.address[1]))
    with closing(socket.create_connection(sandbox.address, timeout=10)) as connection:
        connection.sendall(f"{head}\r\n\r\n".encode() + body)
        raw = b"".join(iter(partial(connection.recv, 65536), b""))
    first, _, rest = raw.partition(b"\r\n")
    header_lines, _, content = rest.partition(b"\r\n\r\n")
    headers = dict(line.lower().split(": ", 1) for line in header_lines.decode("latin-1").split("\r\n"))
    return Response(int(first.split()[1]), headers, content)


def conditions(sandbox: Harness) -> list[Any]:
    """Return all that a request could have changed."""
    names = ("counters", "settings", "prices", "faults", "templates", "table", *(f"inbox/{view}" for view in VIEWS))
    return [sandbox.control("GET", name) for name in names]


def check_refused(response: Response, *statuses: int) -> None:
    """Check that a response refuses in JSON, says what to do, and shows nothing to another origin."""
    assert response.status in statuses, response
    refusal = json.loads(response.body)
    assert set(refusal) == {"status", "message", "errors"}
    assert "must" in refusal["message"]
    assert ADA.encode() not in response.body
    assert b"code" not in response.body
    assert not [name for name in response.headers if name.startswith("access-control-")]


@pytest.fixture
def full(sandbox: Harness) -> Iterator[Harness]:
    """A sandbox with a message, a passcode and a fault; at the end of the test, nothing of it may have changed."""
    sandbox.control("PUT", "clock", {"frozen": True})
    sandbox.sms()
    sandbox.ok("POST", "/otp/request_token", {"recipient": ADA})
    sandbox.fault("send_email", "error_500")
    before = conditions(sandbox)
    yield sandbox
    assert conditions(sandbox) == before


@pytest.mark.parametrize("fields", OTHER_HOSTS.values(), ids=list(OTHER_HOSTS))
def test_request_for_another_host_reads_and_changes_nothing(full: Harness, fields: str) -> None:
    for path in READS:
        check_refused(send(full, "GET", path, [fields]), 421)
    for method, path, body in CHANGES:
        check_refused(send(full, method, path, [fields, JSON], body), 421)
    check_refused(send(full, "DELETE", "/_control/faults", [fields]), 421)
    check_refused(send(full, "OPTIONS", "/_control/reset", [fields]), 421)


@pytest.mark.parametrize(
    "target", ["http://evil.example/_control/inbox/otp", "http://evil.example:{port}/", "//evil.example@x/", "evil:1"]
)
def test_request_target_of_another_host_reads_and_changes_nothing(full: Harness, target: str) -> None:
    own = "Host: 127.0.0.1:{port}"
    answers = [send(full, "GET", target, [own]), send(full, "POST", target, [own, JSON], b"{}")]
    answers.append(send(full, "POST", target.replace("inbox/otp", "reset"), [own, JSON], b"{}"))
    for answer in answers:
        assert answer.status in (400, 404, 421)
        assert ADA.encode() not in answer.body
        assert b"<html" not in answer.body


def test_absolute_request_target_of_another_host_is_refused(full: Harness) -> None:
    own = "Host: 127.0.0.1:{port}"
    for path in READS:
        check_refused(send(full, "GET", f"http://evil.example{path}", [own]), 421)
    for method, path, body in CHANGES:
        check_refused(send(full, method, f"HTTP://evil.example:80{path}", [own, JSON], body), 421)


def test_old_request_without_host_is_refused(full: Harness) -> None:
    with closing(socket.create_connection(full.address, timeout=10)) as connection:
        connection.sendall(b"GET /_control/inbox/otp HTTP/1.0\r\n\r\n")
        raw = b"".join(iter(partial(connection.recv, 65536), b""))
    assert b" 421 " in raw.partition(b"\r\n")[0]
    assert ADA.encode() not in raw


@pytest.mark.parametrize(("fields", "status"), OTHER_POSTS.values(), ids=list(OTHER_POSTS))
def test_post_that_needs_no_preflight_changes_nothing(full: Harness, fields: list[str], status: int) -> None:
    for path in ("/_control/reset", "/_control/clock/advance", "/sms/send", "/%5Fcontrol/reset", "/"):
        for body in (b"", b"{}", SMS):
            check_refused(send(full, "POST", path, ["Host: 127.0.0.1:{port}", *fields], body), status)


@pytest.mark.parametrize("method", ["PUT", "PATCH", "DELETE"])
def test_other_methods_need_json_for_a_body_and_no_other_origin(full: Harness, method: str) -> None:
    own, text = "Host: 127.0.0.1:{port}", "Content-Type: text/plain"
    for path in ("/_control/balance", "/_control/faults", "/lists/contact/rows/x", "/otp/x"):
        check_refused(send(full, method, path, [own, text], b'{"balance": 0}'), 415)
        check_refused(send(full, method, path, [own, JSON, "Origin: http://evil.example"], b'{"balance": 0}'), 403)
        check_refused(send(full, method, path, [own, "Origin: http://evil.example"]), 403)


@pytest.mark.parametrize(
    "fields",
    [
        ["Sec-Fetch-Site: cross-site", "Sec-Fetch-Mode: no-cors", "Sec-Fetch-Dest: image"],
        ["Sec-Fetch-Site: same-site", "Sec-Fetch-Mode: no-cors", "Sec-Fetch-Dest: script"],
        ["Sec-Fetch-Site: cross-site", "Sec-Fetch-Mode: navigate", "Sec-Fetch-Dest: document"],
        ["Sec-Fetch-Site: another", "Sec-Fetch-Mode: no-cors"],
        ["Sec-Fetch-Site: cross-site"],
        ["Sec-Fetch-Site: same-origin", "Sec-Fetch-Site: cross-site"],
    ],
    ids=["image", "script of another port", "link", "unknown site", "no mode", "two sites"],
)
def test_page_of_another_site_loads_nothing(full: Harness, fields: list[str]) -> None:
    own = "Host: 127.0.0.1:{port}"
    for path in ("/lists/contact", "/otp/x", "//", *READS[1:]):
        check_refused(send(full, "GET", path, [own, *fields]), 403)


@pytest.mark.parametrize("site", ["cross-site", "same-site", "same-origin", "none"])
def test_link_to_the_inbox_page_is_served(sandbox: Harness, site: str) -> None:
    fields = ["Host: 127.0.0.1:{port}", f"Sec-Fetch-Site: {site}", "Sec-Fetch-Mode: navigate"]
    assert send(sandbox, "GET", "/", fields).status == 200
    assert send(sandbox, "GET", "/?view=otp", fields).status == 200


@pytest.mark.parametrize("site", ["same-origin", "none"])
def test_own_page_and_user_load_everything(sandbox: Harness, site: str) -> None:
    for path in READS:
        fields = ["Host: 127.0.0.1:{port}", f"Sec-Fetch-Site: {site}", "Sec-Fetch-Mode: cors"]
        assert send(sandbox, "GET", path, fields).status == 200


def test_chunked_body_needs_json_too(full: Harness) -> None:
    chunked = ["Host: localhost", "Transfer-Encoding: chunked"]
    with closing(socket.create_connection(full.address, timeout=10)) as connection:
        head = "\r\n".join(["PUT /_control/balance HTTP/1.1", *chunked, "Connection: close"])
        connection.sendall(f"{head}\r\n\r\n".encode() + b'd\r\n{"balance":0}\r\n0\r\n\r\n')
        assert b" 415 " in connection.recv(65536).partition(b"\r\n")[0]


def test_preflight_of_another_origin_is_not_allowed(full: Harness) -> None:
    for path in ("/_control/reset", "/sms/send", "/otp/x", "/"):
        asked = ["Origin: http://evil.example", "Access-Control-Request-Method: POST"]
        check_refused(send(full, "OPTIONS", path, ["Host: 127.0.0.1:{port}", *asked]), 403)
        response = send(full, "OPTIONS", path, ["Host: 127.0.0.1:{port}"])
        assert not [name for name in response.headers if name.startswith("access-control-")]


@pytest.mark.parametrize("host", OWN_HOSTS)
def test_request_for_this_machine_is_served(sandbox: Harness, host: str) -> None:
    for path in READS:
        assert send(sandbox, "GET", path, [f"Host: {host}"]).status == 200
    assert send(sandbox, "POST", "/sms/send", [f"Host: {host}", JSON], SMS).status == 200
    assert send(sandbox, "POST", "/_control/reset", [f"Host: {host}", JSON]).status == 200
    assert sandbox.counters()["sms"]["requests"] == 0


@pytest.mark.parametrize("kind", ["application/json", "Application/JSON;charset", "application/json ; a=b"])
def test_json_is_taken_with_parameters_and_in_any_case(sandbox: Harness, kind: str) -> None:
    fields = ["Host: 127.0.0.1:{port}", f"Content-Type: {kind}", "Origin: http://127.0.0.1:{port}"]
    assert send(sandbox, "POST", "/sms/send", fields, SMS).status == 200


def test_requests_without_body_and_reads_with_one_are_served(sandbox: Harness) -> None:
    own = "Host: 127.0.0.1:{port}"
    row = sandbox.ok("POST", "/lists/contact/rows", {"columns": {}})["row"]
    assert send(sandbox, "DELETE", f"/lists/contact/rows/{row['id']}", [own]).status == 200
    assert send(sandbox, "DELETE", "/_control/faults", [own]).status == 200
    lookup = json.dumps({"phone": ADA}).encode()
    assert send(sandbox, "GET", "/lookup/phone", [own, JSON], lookup).status == 200
    assert send(sandbox, "GET", "/lookup/phone", [own, "Content-Type: text/plain"], lookup).status == 415


def test_headers_forbid_framing_storing_and_sniffing_of_responses(sandbox: Harness) -> None:
    for path in (*READS, "/_control/outcomes/sms.jsonl", "/_control/nothing", "/otp/get-by-recipient"):
        headers = send(sandbox, "GET", path, ["Host: localhost", "Origin: http://localhost"]).headers
        assert headers["x-content-type-options"] == "nosniff"
        assert headers["cache-control"] == "no-store"
        assert headers["x-frame-options"] == "deny"
        assert headers["cross-origin-resource-policy"] == "same-origin"
        assert not [name for name in headers if name.startswith("access-control-")]


def test_allowed_host_is_served_and_no_other() -> None:
    with running(Options(KEY, allowed_hosts=("Sandbox_1", "fd00::1"))) as url:
        sandbox = Harness(url)
        for host in ("sandbox_1", "SANDBOX_1:8025", "[fd00::1]", "[FD00:0::1]:{port}", "localhost"):
            assert send(sandbox, "GET", "/_control/health", [f"Host: {host}"]).status == 200
        for host in ("sandbox_2", "sandbox_1.evil.example", "[fd00::2]", "fd00::1"):
            check_refused(send(sandbox, "GET", "/_control/health", [f"Host: {host}"]), 421)


@pytest.mark.parametrize(
    ("address", "host", "status"),
    [
        ("192.0.2.1", "192.0.2.1:8025", 200),
        ("::ffff:192.0.2.1", "192.0.2.1", 200),
        ("2001:db8::1", "[2001:DB8:0::1]:8025", 200),
        ("192.0.2.1", "192.0.2.2", 421),
        ("192.0.2.1", "0.0.0.0", 421),
        ("192.0.2.1", "evil.example", 421),
    ],
)
def test_host_may_be_the_address_that_the_connection_came_to(address: str, host: str, status: int) -> None:
    """Without a socket, because tests listen on loopback addresses only."""

    async def app(scope: Scope, receive: Receive, send: Send) -> None:
        await PlainTextResponse("served")(scope, receive, send)

    async def serve() -> int:
        sent: list[Message] = []
        scope = {"type": "http", "method": "GET", "headers": [(b"host", host.encode())], "server": (address, 8025)}

        async def receive() -> Message:
            return {"type": "http.request"}

        async def send(message: Message) -> None:
            sent.append(message)

        await Guard(app, ())(scope, receive, send)
        return int(sent[0]["status"])

    assert asyncio.run(serve()) == status


class AttackersPage(BaseHTTPRequestHandler):
    """Serves a page that attacks the sandbox whose URL is in the query, in all ways that need no preflight."""

    def do_GET(self) -> None:
        target = self.path.partition("?")[2]
        page = f"""<!doctype html><title>waiting</title>
            <iframe name=frame></iframe><img src="{target}/lists/contact">
            <form target=frame method=post action="{target}/_control/reset"><input name=a></form>
            <form target=frame method=post enctype=text/plain action="{target}/_control/reset"><input name={{}}></form>
            <script>
            const own = "{target}";
            const go = (path, init) => fetch(own + path, init).then((r) => r.text(), () => "");
            for (const form of document.forms) form.submit();
            navigator.sendBeacon(own + "/_control/reset", "{{}}");
            Promise.all([
              go("/_control/reset", {{method: "POST", mode: "no-cors"}}),
              go("/_control/reset", {{method: "POST", mode: "no-cors", body: new Blob(["{{}}"])}}),
              go("/_control/reset", {{method: "POST", body: "{{}}", headers: {{"Content-Type": "application/json"}}}}),
              go("/_control/faults", {{method: "DELETE"}}),
              go("/_control/inbox/otp", {{mode: "no-cors"}}),
              go("/_control/inbox/otp"),
            ]).then((texts) => {{ document.title = "read:" + texts.join(""); }});
            </script>"""
        self.send_response(200)
        self.send_header("Content-Type", "text/html")
        self.end_headers()
        self.wfile.write(page.encode())

    def log_message(self, *_: object) -> None:
        """Log nothing."""


@contextmanager
def attackers_site() -> Iterator[int]:
    with HTTPServer(("127.0.0.1", 0), AttackersPage) as server:
        Thread(target=server.serve_forever, daemon=True).start()
        yield server.server_port
        server.shutdown()


@pytest.mark.skipif(CHROMIUM is None or DRIVER is None, reason="no chromium with chromedriver on this machine")
def test_browser_gives_pages_of_other_sites_and_rebound_names_nothing(full: Harness, tmp_path: Path) -> None:
    with attackers_site() as port, browsing(tmp_path, "--host-resolver-rules=MAP *.example 127.0.0.1") as browser:
        browser.open(f"http://evil.example:{port}/?{full.url}")
        until(lambda: browser.run("return document.title").startswith("read:"))
        assert browser.run("return document.title") == "read:"
        # The name of the attacker's page now has the sandbox's address.
        browser.open(f"http://evil.example:{full.address[1]}/")
        read = browser.run("return fetch('/_control/inbox/otp').then((r) => r.text())")
        assert json.loads(read)["status"] == 421
        browser.open(f"{full.url}/#otp")
        until(lambda: browser.texts("#items .who") == [ADA])
        assert browser.texts("#state") == ["live"]


def test_refused_requests_leave_the_connection_usable(sandbox: Harness) -> None:
    with httpx.Client(base_url=sandbox.url, trust_env=False) as http:
        for _ in range(3):
            assert http.post("/_control/reset", content=b"x" * 200_000).status_code == 415
            assert http.get("/_control/health").status_code == 200
