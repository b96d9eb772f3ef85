"""What happens on the wire, against real sockets; every test that takes ``send`` runs sync and async."""

from __future__ import annotations

import contextlib
import gzip
import json
import logging
import socket
import ssl
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest

from cpaas_provider.api import operations as ask
from cpaas_provider.api.core import Call
from cpaas_provider.api.errors import CpaasConfigurationError
from cpaas_provider.api.http.transport import AsyncTransport, SyncTransport, _find_proxy
from cpaas_provider.api.http.wire import HttpResponse, OutgoingRequest, TransportFailure
from cpaas_provider.api.settings import ClientSettings
from tests.certificates import Authority
from tests.proxies import proxy_server

from .conftest import KEY, Send
from .loopback import Loopback, Seen, answering, http, reset

pytestmark = pytest.mark.usefixtures("no_rest")

ADA = "2348031234567"


def at(url: str, **options: Any) -> ClientSettings:
    return ClientSettings(url, KEY, **{"timeout": 5, "connect_timeout": 5, **options})


def request(settings: ClientSettings, call: Call[Any] | None = None) -> OutgoingRequest:
    return (call or ask.get_contact_table()).build(settings)[0]


def exchange(send: Send, settings: ClientSettings, call: Call[Any] | None = None) -> HttpResponse | TransportFailure:
    return send(request(settings, call), settings)


@pytest.fixture
def closed_port() -> Iterator[int]:
    """A port nobody listens on, kept from everybody else."""
    with socket.socket() as bound:
        bound.bind(("127.0.0.1", 0))
        yield bound.getsockname()[1]


# The way out ----------------------------------------------------------------------------------------------------------


def test_request_on_the_wire_has_method_target_body_and_headers(send: Send) -> None:
    with Loopback(answering(201, {"id": "sms-1"})) as server:
        settings = at(f"{server.url}/v1")
        given = exchange(send, settings, ask.send_sms(ADA, "Clinic", "Ẹ káàárọ̀", is_trackable=True))
    assert given == HttpResponse(201, None, b'{"id": "sms-1"}')
    (seen,) = server.seen
    assert (seen.method, seen.target) == ("POST", "/v1/sms/send")
    body = {
        "channel": "sms",
        "recipients": ADA,
        "sender_id": "Clinic",
        "content": "Ẹ káàárọ̀",
        "is_trackable": True,
    }
    assert json.loads(seen.body) == body
    assert seen.headers["authorization"] == f"Bearer {KEY}"
    assert seen.headers["content-type"] == "application/json"
    assert seen.headers["content-length"] == str(len(seen.body))
    assert seen.headers["accept"] == "application/json"
    assert seen.headers["accept-encoding"] == "identity"
    assert seen.headers["user-agent"].startswith("airflow-provider-cpaas/")
    assert "transfer-encoding" not in seen.headers
    assert "cookie" not in seen.headers


def test_requests_with_the_same_headers_have_their_own_line_length_and_body() -> None:
    sent = [
        ("POST", "/a", b"one"),
        ("POST", "/a", b"the second"),
        ("PUT", "/a", b"the second"),
        ("PUT", "/b", b""),
        ("GET", "/b", b""),
        ("POST", "/a", b"one"),
    ]
    with Loopback(answering()) as server:
        settings, transport = at(server.url), SyncTransport(at(server.url))
        headers = request(settings).headers
        for method, target, body in sent:
            transport.send(OutgoingRequest(method, f"{server.url}{target}", headers, body))
        other = {**headers, "Authorization": "Bearer another", "Content-Length": "1"}
        transport.send(OutgoingRequest("POST", f"{server.url}/a", other, b"one"))
        transport.close()
    assert [(seen.method, seen.target, seen.body) for seen in server.seen[:-1]] == sent
    assert [seen.headers.get("content-length") for seen in server.seen[:-1]] == ["3", "10", "10", "0", None, "3"]
    assert (server.seen[-1].headers["content-length"], server.seen[-1].body) == ("3", b"one")
    assert [seen.headers["authorization"] for seen in server.seen] == [f"Bearer {KEY}"] * len(sent) + ["Bearer another"]


def test_empty_auth_scheme_sends_the_raw_key(send: Send) -> None:
    with Loopback(answering()) as server:
        exchange(send, at(server.url, auth_scheme=""))
    assert server.seen[0].headers["authorization"] == KEY


def test_lookup_is_a_get_with_a_body(send: Send) -> None:
    with Loopback(answering()) as server:
        exchange(send, at(server.url), ask.lookup_phone(ADA))
    (seen,) = server.seen
    assert (seen.method, seen.target, seen.body) == ("GET", "/lookup/phone", b'{"phone":"2348031234567"}')
    assert seen.headers["content-length"] == str(len(seen.body))


@pytest.mark.parametrize(
    ("call", "method", "target"),
    [
        (ask.get_otp("otp-1"), "GET", "/otp/otp-1"),
        (ask.find_otps(ADA), "GET", f"/otp/get-by-recipient?recipient={ADA}"),
        (ask.revoke_otp("otp-1"), "DELETE", "/otp/otp-1"),
        (ask.get_otp("../a b?c#d/ẹ%2F"), "GET", "/otp/..%2Fa%20b%3Fc%23d%2F%E1%BA%B9%252F"),
    ],
)
def test_request_without_a_body_has_no_content_headers(send: Send, call: Call[Any], method: str, target: str) -> None:
    with Loopback(answering()) as server:
        exchange(send, at(server.url), call)
    (seen,) = server.seen
    assert (seen.method, seen.target, seen.body) == (method, target, b"")
    assert "content-type" not in seen.headers


def test_response_has_status_retry_after_and_whole_body(send: Send) -> None:
    with Loopback(answering(503, b"later", Retry_After="17")) as server:
        assert exchange(send, at(server.url)) == HttpResponse(503, "17", b"later")


def test_chunked_response_is_read(send: Send) -> None:
    def chunked(connection: socket.socket, _: Seen) -> None:
        connection.sendall(b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n3\r\nabc\r\n2\r\nde\r\n0\r\n\r\n")

    with Loopback(chunked) as server:
        assert exchange(send, at(server.url)) == HttpResponse(200, None, b"abcde")


def test_unrequested_compression_is_decompressed(send: Send) -> None:
    with Loopback(answering(200, gzip.compress(b'{"id": 1}'), Content_Encoding="gzip")) as server:
        assert exchange(send, at(server.url)) == HttpResponse(200, None, b'{"id": 1}')


def test_connection_is_reused() -> None:
    with Loopback(answering()) as server:
        settings = at(server.url)
        transport = SyncTransport(settings)
        for _ in range(5):
            assert transport.send(request(settings)) == HttpResponse(200)
        transport.close()
    assert (len(server.seen), server.connections) == (5, 1)


def test_redirect_is_not_followed_and_the_key_is_not_forwarded(send: Send) -> None:
    with Loopback(answering()) as elsewhere, Loopback(answering(307, Location=f"{elsewhere.url}/steal")) as server:
        given = exchange(send, at(server.url), ask.send_sms(ADA, "Clinic", "Hello"))
    assert isinstance(given, HttpResponse)
    assert given.status == 307
    assert len(server.seen) == 1
    assert elsewhere.seen == []


# No answer ------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("host", ["127.0.0.1", "localhost"])
def test_refused_connection_is_named(send: Send, closed_port: int, host: str) -> None:
    assert exchange(send, at(f"http://{host}:{closed_port}")) is TransportFailure.REFUSED


def test_unknown_host_is_a_dns_failure(send: Send) -> None:
    assert exchange(send, at("http://cpaas.invalid", allow_http=True)) is TransportFailure.DNS


def test_host_that_accepts_no_connection_is_a_connect_timeout(send: Send) -> None:
    with socket.socket() as full:
        full.bind(("127.0.0.1", 0))
        full.listen(0)
        # A queue that is full lets further attempts wait.
        waiting = [socket.socket() for _ in range(4)]
        for one in waiting:
            one.setblocking(False)
            one.connect_ex(full.getsockname())
        url = "http://{}:{}".format(*full.getsockname())
        assert exchange(send, at(url, connect_timeout=0.2)) is TransportFailure.CONNECT_TIMEOUT
        for one in waiting:
            one.close()


def test_reset_before_any_answer(send: Send) -> None:
    with Loopback(lambda connection, _: reset(connection)) as server:
        assert exchange(send, at(server.url)) is TransportFailure.CONNECTION_LOST
    assert len(server.seen) == 1, "the transport itself repeats nothing"


def test_closed_before_any_answer(send: Send) -> None:
    with Loopback(lambda connection, _: connection.shutdown(socket.SHUT_RDWR)) as server:
        assert exchange(send, at(server.url)) is TransportFailure.CONNECTION_LOST


def test_reset_in_the_headers(send: Send) -> None:
    def half(connection: socket.socket, _: Seen) -> None:
        connection.sendall(b"HTTP/1.1 200 OK\r\nContent-Le")
        reset(connection)

    with Loopback(half) as server:
        assert exchange(send, at(server.url)) is TransportFailure.CONNECTION_LOST


def test_server_that_does_not_speak_http_is_a_lost_connection(send: Send) -> None:
    def other(connection: socket.socket, _: Seen) -> None:
        connection.sendall(b"SSH-2.0-OpenSSH_9.6\r\n\r\n")

    with Loopback(other) as server:
        assert exchange(send, at(server.url)) is TransportFailure.CONNECTION_LOST


def test_silent_server_is_a_response_timeout(send: Send) -> None:
    with Loopback(lambda connection, _: server.over.wait(5)) as server:  # type: ignore[arg-type, return-value]
        assert exchange(send, at(server.url, timeout=0.2)) is TransportFailure.RESPONSE_TIMEOUT


# Half an answer: the status holds, the body does not ------------------------------------------------------------------


def beginning(status: int = 200) -> bytes:
    return f"HTTP/1.1 {status} X\r\nContent-Length: 1000\r\n\r\nhalf".encode()


@pytest.mark.parametrize("status", [200, 400])
def test_connection_closed_in_the_body_returns_the_part_received(send: Send, status: int) -> None:
    def half(connection: socket.socket, _: Seen) -> None:
        connection.sendall(beginning(status))
        connection.shutdown(socket.SHUT_WR)

    with Loopback(half) as server:
        given = exchange(send, at(server.url))
    assert given == HttpResponse(status, None, b"half", "the connection broke")


def test_stalled_body_returns_the_part_received(send: Send) -> None:
    def stall(connection: socket.socket, _: Seen) -> None:
        connection.sendall(beginning())
        server.over.wait(5)

    with Loopback(stall) as server:
        given = exchange(send, at(server.url, timeout=0.2))
    assert given == HttpResponse(200, None, b"half", "the rest did not arrive in time")


def test_dripping_body_ends_at_the_timeout(send: Send) -> None:
    def drip(connection: socket.socket, _: Seen) -> None:
        connection.sendall(beginning())
        while not server.over.wait(0.02):
            connection.sendall(b"x")

    before = time.monotonic()
    with Loopback(drip) as server:
        given = exchange(send, at(server.url, timeout=0.3))
    assert isinstance(given, HttpResponse)
    assert given.body_error == "it took longer than timeout"
    assert time.monotonic() - before < 2


@pytest.mark.parametrize(("size", "body_error"), [(1000, None), (1001, "it is larger than max_response_bytes")])
def test_body_is_cut_above_max_response_bytes(send: Send, size: int, body_error: str | None) -> None:
    with Loopback(answering(200, b"x" * size)) as server:
        given = exchange(send, at(server.url, max_response_bytes=1000))
    assert given == HttpResponse(200, None, b"x" * 1000, body_error)


def test_endless_body_is_cut_at_max_response_bytes(send: Send) -> None:
    def endless(connection: socket.socket, _: Seen) -> None:
        connection.sendall(b"HTTP/1.1 200 OK\r\n\r\n")
        while not server.over.is_set():
            connection.sendall(b"x" * 65536)

    with Loopback(endless) as server:
        given = exchange(send, at(server.url, max_response_bytes=100_000))
    assert isinstance(given, HttpResponse)
    assert (len(given.body), given.body_error) == (100_000, "it is larger than max_response_bytes")


def test_decompressed_body_is_cut_at_max_response_bytes(send: Send) -> None:
    bomb = gzip.compress(b"\0" * 20_000_000)
    with Loopback(answering(200, bomb, Content_Encoding="gzip")) as server:
        given = exchange(send, at(server.url, max_response_bytes=1_000_000))
    assert isinstance(given, HttpResponse)
    assert (len(given.body), given.body_error) == (1_000_000, "it is larger than max_response_bytes")


def test_damaged_compression_is_a_body_error(send: Send) -> None:
    with Loopback(answering(200, b"not gzip", Content_Encoding="gzip")) as server:
        assert exchange(send, at(server.url)) == HttpResponse(200, None, b"", "its compression is damaged")


# TLS ------------------------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def authority(tmp_path_factory: pytest.TempPathFactory) -> Authority:
    return Authority(tmp_path_factory.mktemp("tls"), "loopback")


@pytest.fixture
def certificate(authority: Authority) -> Path:
    """The certificate of the authority of the server's."""
    return authority.path


@pytest.fixture
def tls(authority: Authority) -> ssl.SSLContext:
    return authority.server_context()


def test_untrusted_certificate_is_a_tls_failure(send: Send, tls: ssl.SSLContext) -> None:
    with Loopback(answering(), tls) as server:
        assert exchange(send, at(server.url)) is TransportFailure.TLS
    assert server.seen == []


def test_configured_certificate_is_trusted(send: Send, tls: ssl.SSLContext, certificate: Path) -> None:
    with Loopback(answering(), tls) as server:
        assert exchange(send, at(server.url, verify=str(certificate))) == HttpResponse(200)


def test_certificate_of_another_host_is_a_tls_failure(send: Send, tls: ssl.SSLContext, certificate: Path) -> None:
    with Loopback(answering(), tls) as server:
        url = server.url.replace("127.0.0.1", "localhost")
        assert exchange(send, at(url, verify=str(certificate))) is TransportFailure.TLS
    assert server.seen == []


def test_certificate_is_not_checked_if_verify_is_false(send: Send, tls: ssl.SSLContext) -> None:
    with Loopback(answering(), tls) as server:
        assert exchange(send, at(server.url, verify=False)) == HttpResponse(200)


async def test_large_requests_over_tls(tls: ssl.SSLContext, certificate: Path) -> None:
    with Loopback(lambda connection, seen: connection.sendall(http(200, seen.body)), tls) as server:
        settings = at(server.url, verify=str(certificate))
        transport = AsyncTransport(settings)
        for size in (1, 3_000_000, 1):
            outgoing = request(settings, ask.send_sms(ADA, "Clinic", "x" * size))
            assert await transport.send(outgoing) == HttpResponse(200, None, outgoing.body or b"")
        await transport.aclose()
    assert (len(server.seen), server.connections) == (3, 1)


def test_https_to_a_server_that_speaks_http(send: Send) -> None:
    with socket.create_server(("127.0.0.1", 0)) as listener:

        def greet() -> None:
            connection, _ = listener.accept()
            with connection:
                connection.recv(1)
                connection.sendall(http(400))

        threading.Thread(target=greet, daemon=True).start()
        url = "https://{}:{}".format(*listener.getsockname())
        assert exchange(send, at(url)) is TransportFailure.TLS


def test_unreadable_certificate_bundle_is_a_configuration_error(tmp_path: Path) -> None:
    garbage = tmp_path / "garbage.pem"
    garbage.write_text("no certificate")
    for verify in (str(garbage), str(tmp_path), str(tmp_path / "nothing.pem")):
        with pytest.raises(CpaasConfigurationError, match="verify"):
            SyncTransport(at("https://127.0.0.1", verify=verify))


# Proxies --------------------------------------------------------------------------------------------------------------


def test_proxy_gets_its_credentials(send: Send) -> None:
    with Loopback(answering(200, b"by proxy")) as proxy:
        settings = at(
            "http://cpaas.invalid/v1",
            allow_http=True,
            proxy=proxy.url.replace("//", "//ada@"),
            proxy_password="p@ss/word",
        )
        assert exchange(send, settings) == HttpResponse(200, None, b"by proxy")
    (seen,) = proxy.seen
    assert seen.target == "http://cpaas.invalid/v1/lists/contact"
    assert seen.headers["proxy-authorization"] == "Basic YWRhOnBAc3Mvd29yZA=="


def test_proxy_that_refuses_the_tunnel_is_a_proxy_failure(send: Send) -> None:
    with Loopback(answering(403)) as proxy:
        assert exchange(send, at("https://cpaas.invalid", proxy=proxy.url)) is TransportFailure.PROXY
    assert [(one.method, one.target) for one in proxy.seen] == [("CONNECT", "cpaas.invalid:443")]
    assert "authorization" not in proxy.seen[0].headers


def test_proxy_of_the_environment_is_not_used_for_this_machine(send: Send, monkeypatch: pytest.MonkeyPatch) -> None:
    with Loopback(answering()) as proxy, Loopback(answering(200, b"direct")) as server:
        for name in ("http_proxy", "HTTP_PROXY", "ALL_PROXY"):
            monkeypatch.setenv(name, proxy.url)
        for name in ("no_proxy", "NO_PROXY"):
            monkeypatch.delenv(name, raising=False)
        assert exchange(send, at(server.url)) == HttpResponse(200, None, b"direct")
        assert proxy.seen == []
        elsewhere = at("http://cpaas.invalid", allow_http=True)
        assert exchange(send, elsewhere) == HttpResponse(200), "for other machines it is"
        assert len(proxy.seen) == 1


@pytest.mark.parametrize("scheme", ["http", "https"])
def test_socks_proxy_resolves_the_name_and_checks_the_user(
    send: Send, scheme: str, tls: ssl.SSLContext, certificate: Path
) -> None:
    with (
        Loopback(answering(200, b"by proxy"), tls if scheme == "https" else None) as server,
        proxy_server(user=(b"ada", b"p@ss/word")) as proxy,
    ):
        proxy.addresses["cpaas.invalid"] = ("127.0.0.1", int(server.url.rpartition(":")[2]))
        options: dict[str, Any] = {"allow_http": True, "verify": False}
        for password, found in (("p@ss/word", HttpResponse(200, None, b"by proxy")), ("no", TransportFailure.PROXY)):
            address = f"socks5://ada@127.0.0.1:{proxy.port}"
            settings = at(f"{scheme}://cpaas.invalid", proxy=address, proxy_password=password, **options)
            assert exchange(send, settings) == found
        settings = at(f"{scheme}://cpaas.invalid", proxy=address.replace("ada@", ""), **options)
        assert exchange(send, settings) is TransportFailure.PROXY, "it asks for a user"
    assert proxy.asked == [b"cpaas.invalid"]
    assert len(server.seen) == 1


@pytest.mark.parametrize(
    "reply",
    [
        *(
            b"",
            b"\x05",
            b"\x05\xff",
            b"\x04\x00",
            b"HTTP/1.1 400 X\r\n\r\n",
            b"\x05\x00\x05\x02",
            b"\x05\x00\x05\x05\x00\x01",
        ),
        b"\x05\x00\x05\x00\x00\x01\x7f\x00\x00\x01\x00\x50" + http(200, b"before the request"),
        b"\x05\x00\x05\x00\x00\x09" + bytes(20),
    ],
)
def test_socks_proxy_that_opens_no_tunnel_is_not_sent(send: Send, reply: bytes) -> None:
    with talking(reply) as port:
        settings = at("http://cpaas.invalid", allow_http=True, proxy=f"socks5://127.0.0.1:{port}", connect_timeout=0.5)
        assert exchange(send, settings) is TransportFailure.PROXY


@pytest.mark.parametrize(
    "reply",
    [
        *(b"", b"HTTP/1.1 200", b"garbage\r\n\r\n", http(407), b"HTTP/1.1 100 X\r\n\r\n", b"HTTP/2.0 200 X\r\n\r\n"),
        *(b"HTTP/1.1 200 X\r\n\r\n" + http(200, b"before the request"), b"HTTP/1.1 200 X\r\n" + b"X: y\r\n" * 20_000),
    ],
)
def test_http_proxy_that_opens_no_tunnel_is_not_sent(send: Send, reply: bytes) -> None:
    with talking(reply) as port:
        assert exchange(send, at("https://cpaas.invalid", proxy=f"http://127.0.0.1:{port}")) is TransportFailure.PROXY


def test_certificate_that_is_not_trusted_behind_a_proxy_is_not_sent(
    send: Send, tls: ssl.SSLContext, authority: Authority, certificate: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    stranger = Authority(certificate.parent, "stranger")
    monkeypatch.setenv("SSL_CERT_FILE", str(certificate))
    for to_proxy in (None, tls):
        with Loopback(answering(), stranger.server_context()) as server, proxy_server(to_proxy) as proxy:
            failure = exchange(send, at(server.url, proxy=proxy.url, verify=str(certificate)))
        assert isinstance(failure, TransportFailure)
        assert not failure.may_have_left
        assert server.seen == []


def test_proxy_that_is_silent_is_not_sent(send: Send) -> None:
    with Loopback(lambda connection, _: server.over.wait(5)) as server:  # type: ignore[arg-type, return-value]
        settings = at("https://cpaas.invalid", proxy=server.url, connect_timeout=0.1)
        assert exchange(send, settings) is TransportFailure.CONNECT_TIMEOUT


@pytest.mark.parametrize(
    ("no_proxy", "is_used"),
    [
        *[("", True), ("*", False), ("a.example,*", False), ("example.com", False), ("EXAMPLE.com", False)],
        *[(".example.com", False), ("cpaas.example.com", False), (".cpaas.example.com", True), ("ample.com", True)],
        *[("other.example", True), ("other.example, example.com", False), ("cpaas.example.com:443", False)],
        *[("cpaas.example.com:80", True), ("https://cpaas.example.com", False), ("http://cpaas.example.com", True)],
        *[("all://cpaas.example.com", False), ("*.example.com", False), ("127.0.0.1,::1,localhost", True)],
    ],
)
def test_no_proxy_names_the_hosts_that_are_reached_directly(
    no_proxy: str, is_used: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("https_proxy", "HTTPS_PROXY", "no_proxy", "NO_PROXY", "all_proxy", "ALL_PROXY"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("all_proxy", "proxy.example:3128")
    monkeypatch.setenv("no_proxy", no_proxy)
    assert (_find_proxy(at("https://cpaas.example.com/v1")) is not None) is is_used
    own = _find_proxy(at("https://cpaas.example.com", proxy="https://ada@proxy.example", proxy_password="x"))
    assert own is not None
    assert (own.server.host, own.server.port, own.user) == ("proxy.example", 443, ("ada", "x"))


@contextlib.contextmanager
def talking(reply: bytes) -> Iterator[int]:
    """Run a proxy that says the same to every client and ends the connection, and yield its port."""
    with socket.create_server(("127.0.0.1", 0)) as listener:

        def talk() -> None:
            with contextlib.suppress(OSError):
                while True:
                    connection, _ = listener.accept()
                    with connection:
                        connection.recv(65536)
                        connection.sendall(reply)
                        connection.shutdown(socket.SHUT_WR)
                        connection.settimeout(2)
                        while connection.recv(65536):
                            pass

        threading.Thread(target=talk, daemon=True).start()
        yield listener.getsockname()[1]


@pytest.mark.parametrize("transport", [SyncTransport, AsyncTransport])
def test_invalid_proxy_of_the_environment_is_a_configuration_error(
    transport: type, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HTTPS_PROXY", "gopher://ada:pa55word@127.0.0.1")
    monkeypatch.setenv("https_proxy", "gopher://ada:pa55word@127.0.0.1")
    with pytest.raises(CpaasConfigurationError, match="environment") as caught:
        transport(at("https://cpaas.example.com"))
    assert "pa55word" not in str(caught.value)


@pytest.mark.parametrize("transport", [SyncTransport, AsyncTransport])
@pytest.mark.parametrize(
    "host", ["a" * 64 + ".example", ".example.com", "a..example", "xn--a.example", "exa\x00mple.com"]
)
def test_invalid_host_is_refused_at_once(transport: type, host: str) -> None:
    with pytest.raises(CpaasConfigurationError, match="base URL"):
        transport(at(f"https://{host}"))
    with pytest.raises(CpaasConfigurationError, match="proxy"):
        transport(at("https://cpaas.example.com", proxy=f"http://{host}"))


# Logs -----------------------------------------------------------------------------------------------------------------


def test_request_is_not_logged(send: Send, caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.DEBUG), Loopback(answering(200, b"hidden")) as server:
        settings = at(server.url)
        for call in (ask.find_otps(ADA), ask.send_sms(ADA, "Clinic", "Hello Ada"), ask.verify_otp("otp-1", "471199")):
            exchange(send, settings, call)
    assert len(server.seen) == 3
    for private in (ADA, "Hello", "471199", KEY, "hidden"):
        assert private not in caplog.text


def test_other_users_of_httpx_still_log(send: Send, caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.INFO, "httpx"), Loopback(answering()) as server:
        exchange(send, at(server.url))
        assert caplog.records == []
        httpx.get(f"{server.url}/theirs", trust_env=False)
    assert "/theirs" in caplog.text
