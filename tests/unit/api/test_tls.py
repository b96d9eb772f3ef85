"""TLS with a server that asks for a client certificate, and what each alert means, over both ways to the service."""

from __future__ import annotations

import asyncio
import contextlib
import ssl
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from cpaas_provider.api import operations as ask
from cpaas_provider.api.client import CpaasClient
from cpaas_provider.api.core import Call
from cpaas_provider.api.errors import CpaasConfigurationError, CpaasError, CpaasNotSentError, CpaasUnknownOutcomeError
from cpaas_provider.api.http import connections
from cpaas_provider.api.http.connections import Connection
from cpaas_provider.api.http.routes import connect
from cpaas_provider.api.http.transport import AsyncTransport
from cpaas_provider.api.http.wire import HttpResponse, TransportFailure
from cpaas_provider.api.settings import ClientSettings
from tests.certificates import Authority
from tests.proxies import proxy_server
from tests.tls_server import Conversation, Script, TlsServer

from .conftest import KEY, Send
from .loopback import Loopback, answering, http

pytestmark = pytest.mark.usefixtures("no_rest")

ADA = "2348031234567"
SEND = ask.send_sms(ADA, "Clinic", "Hello")
READ = ask.get_contact_table()
"""Reads share a connection."""
NOT_SENT, UNKNOWN = False, True

INTERNAL_ERROR, ACCESS_DENIED = 80, 49
REFUSALS = {
    42: "bad_certificate",
    43: "unsupported_certificate",
    44: "certificate_revoked",
    45: "certificate_expired",
    46: "certificate_unknown",
    48: "unknown_ca",
    116: "certificate_required",
}
OTHER_ALERTS = {
    10: "unexpected_message",
    20: "bad_record_mac",
    40: "handshake_failure",
    47: "illegal_parameter",
    49: "access_denied",
    50: "decode_error",
    51: "decrypt_error",
    80: "internal_error",
}


@pytest.fixture(scope="module")
def authority(tmp_path_factory: pytest.TempPathFactory) -> Authority:
    return Authority(tmp_path_factory.mktemp("tls"), "service")


@pytest.fixture(scope="module")
def stranger(tmp_path_factory: pytest.TempPathFactory) -> Authority:
    """An authority that the server does not know."""
    return Authority(tmp_path_factory.mktemp("tls"), "stranger")


@pytest.fixture(params=["direct", "by proxy"])
def proxy(request: pytest.FixtureRequest) -> Iterator[str | None]:
    with proxy_server() if request.param == "by proxy" else contextlib.nullcontext() as running:
        yield running and running.url


def at(url: str, authority: Authority, **options: Any) -> ClientSettings:
    return ClientSettings(url, KEY, verify=str(authority.path), **{"timeout": 5, "connect_timeout": 5, **options})


async def exchange(settings: ClientSettings, *calls: Call[Any]) -> list[HttpResponse | TransportFailure]:
    transport = AsyncTransport(settings)
    try:
        return [await transport.send(call.build(settings)[0]) for call in calls or (SEND,)]
    finally:
        await transport.aclose()


def read_then_alert(number: int) -> Script:
    def script(conversation: Conversation) -> None:
        conversation.read_request()
        conversation.send_alert(number)

    return script


def alert_at_once(number: int) -> Script:
    return lambda conversation: conversation.send_alert(number)


def answer_then_alert(number: int, response: bytes) -> Script:
    def script(conversation: Conversation) -> None:
        conversation.read_request()
        conversation.send(response)
        conversation.send_alert(number)

    return script


def answer_once_then_alert(number: int) -> Script:
    def script(conversation: Conversation) -> None:
        conversation.read_request()
        conversation.send(b"HTTP/1.1 201 Created\r\nContent-Length: 2\r\n\r\n{}")
        conversation.read_request()
        conversation.send_alert(number)

    return script


def read_then_close(conversation: Conversation) -> None:
    conversation.read_request()
    conversation.send_close_notify()


def read_then_break_record(conversation: Conversation) -> None:
    conversation.read_request()
    conversation.break_record()


# A server that refuses the client's certificate -----------------------------------------------------------------------


@pytest.mark.parametrize("tickets", [0, 2])
@pytest.mark.parametrize("tls12", [False, True], ids=["TLS 1.3", "TLS 1.2"])
@pytest.mark.parametrize(
    ("mode", "client", "alerts"),
    [
        (ssl.CERT_REQUIRED, "none", ("certificate_required", "handshake_failure")),
        (ssl.CERT_REQUIRED, "stranger", ("unknown_ca",) * 2),
        (ssl.CERT_REQUIRED, "expired", ("certificate_expired",) * 2),
        (ssl.CERT_OPTIONAL, "stranger", ("unknown_ca",) * 2),
        (ssl.CERT_OPTIONAL, "expired", ("certificate_expired",) * 2),
    ],
)
async def test_server_that_refuses_the_client_certificate_read_nothing(
    authority: Authority, stranger: Authority, tmp_path: Path, proxy: str | None,
    tls12: bool, tickets: int, mode: ssl.VerifyMode, client: str, alerts: tuple[str, str],
) -> None:  # fmt: skip
    options: dict[str, Any] = {"proxy": proxy}
    if client != "none":
        issuer = stranger if client == "stranger" else authority
        cert, key = issuer.issue("client", expired=client == "expired")
        options |= {"client_cert": str(cert), "client_key": str(key)}
    context = authority.server_context(clients=authority.path, mode=mode, tls12=tls12)
    context.num_tickets = tickets
    with TlsServer(context, tmp_path) as server:
        (failure,) = await exchange(at(server.url, authority, **options))
    assert isinstance(failure, TransportFailure)
    assert failure.may_have_left is NOT_SENT
    assert f"alert {alerts[tls12]};" in failure.reason
    assert "client_cert" in failure.reason
    assert (server.connections, server.bytes_read, server.peers) == (1, 0, [])


@pytest.mark.parametrize("number", REFUSALS)
async def test_alert_about_the_certificate_as_the_first_thing_is_not_sent(
    authority: Authority, tmp_path: Path, proxy: str | None, number: int
) -> None:
    context = authority.server_context()
    context.num_tickets = 0
    with TlsServer(context, tmp_path, alert_at_once(number)) as server:
        (failure,) = await exchange(at(server.url, authority, proxy=proxy))
    assert isinstance(failure, TransportFailure)
    assert failure.may_have_left is NOT_SENT
    assert f"alert {REFUSALS[number]};" in failure.reason
    assert server.bytes_read == 0


# The same verdict on both ways: script, TLS 1.2, session tickets, requests, alert. All have let the request be read.
READ_REQUEST: dict[str, tuple[Script, bool, int, int, str | None]] = {
    **{f"read, then {name}": (read_then_alert(number), False, 2, 1, name) for number, name in REFUSALS.items()},
    **{
        f"read, then {name}, no tickets": (read_then_alert(number), False, 0, 1, name)
        for number, name in OTHER_ALERTS.items()
    },
    "TLS 1.2 renegotiated": (read_then_alert(42), True, 0, 1, "bad_certificate"),
    "TLS 1.2 other alert": (read_then_alert(INTERNAL_ERROR), True, 0, 1, "internal_error"),
    "part of a head, then alert": (answer_then_alert(42, b"HTTP/1.1 2"), False, 0, 1, "bad_certificate"),
    "interim response, then alert": (
        answer_then_alert(42, b"HTTP/1.1 102 Processing\r\n\r\n"), False, 0, 1, "bad_certificate",
    ),
    "alert on a used connection": (answer_once_then_alert(116), False, 0, 2, "certificate_required"),
    "close_notify": (read_then_close, False, 2, 1, "close_notify"),
    "TLS 1.2 close_notify": (read_then_close, True, 0, 1, "close_notify"),
    "alert of OpenSSL": (read_then_break_record, False, 0, 1, "bad_record_mac"),
    "TLS 1.2 alert of OpenSSL": (read_then_break_record, True, 0, 1, "bad_record_mac"),
    "connection closed": (lambda conversation: conversation.read_request(), False, 2, 1, None),
}  # fmt: skip


@pytest.mark.parametrize("case", READ_REQUEST)
async def test_alert_of_a_server_that_read_the_request_is_unknown_and_named(
    authority: Authority, tmp_path: Path, proxy: str | None, case: str
) -> None:
    script, tls12, tickets, requests, alert = READ_REQUEST[case]
    context = authority.server_context(tls12=tls12)
    context.num_tickets = tickets
    with TlsServer(context, tmp_path, script) as server:
        calls = [SEND if requests == 1 else READ] * requests
        *_, failure = await exchange(at(server.url, authority, proxy=proxy), *calls)
    assert isinstance(failure, TransportFailure)
    assert failure.may_have_left is UNKNOWN
    ended = f"the server ended the TLS connection before a response arrived (alert {alert})"
    assert failure.reason == (ended if alert else TransportFailure.CONNECTION_LOST.reason)
    assert (server.connections, server.bytes_read > 0) == (1, True)


@pytest.mark.parametrize("number", [INTERNAL_ERROR, ACCESS_DENIED])
async def test_other_alert_is_unknown_although_this_server_read_nothing(
    authority: Authority, tmp_path: Path, number: int
) -> None:
    def alert_unread(conversation: Conversation) -> None:
        conversation.wait_for_bytes()
        conversation.send_alert(number)

    with TlsServer(authority.server_context(), tmp_path, alert_unread) as server:
        (failure,) = await exchange(at(server.url, authority))
    assert isinstance(failure, TransportFailure)
    assert failure.may_have_left is UNKNOWN


async def test_connection_that_ends_by_an_alert_before_the_request_left_is_not_sent(
    authority: Authority, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def connect_and_lose(*target: Any) -> Connection:
        connection: Connection = await connect(*target)
        while connection.is_open():  # noqa: ASYNC110 - nothing else tells that it has ended
            await asyncio.sleep(0.001)
        return connection

    monkeypatch.setattr(connections, "connect", connect_and_lose)
    with TlsServer(authority.server_context(), tmp_path, alert_at_once(INTERNAL_ERROR)) as server:
        (failure,) = await exchange(at(server.url, authority))
    assert isinstance(failure, TransportFailure)
    assert failure.may_have_left is NOT_SENT
    assert "alert internal_error" in failure.reason
    assert server.bytes_read == 0


# What the caller gets -------------------------------------------------------------------------------------------------


CALLS: dict[str, Callable[[CpaasClient], object]] = {
    "send": lambda client: client.send_sms(ADA, "Clinic", "Hello"),
    "purchase": lambda client: client.buy_airtime("MTN", 60, f"+{ADA}"),
    "passcode": lambda client: client.request_otp(f"+{ADA}"),
    "creation": lambda client: client.create_contact_row({"Name": "Ada"}),
    "billed read": lambda client: client.lookup_phone(f"+{ADA}"),
    "read": lambda client: client.get_contact_table(),
}


def error_of(settings: ClientSettings, call: str) -> CpaasError:
    with (
        CpaasClient(settings.base_url, KEY, verify=settings.verify, proxy=settings.proxy, max_retries=0) as client,
        pytest.raises(CpaasError) as caught,
    ):
        CALLS[call](client)
    return caught.value


@pytest.mark.parametrize(
    ("call", "tls12"),
    # Such a purchase is unknown: see below.
    [(call, tls12) for call in CALLS for tls12 in (False, True) if tls12 or call != "purchase"],
)
def test_request_is_not_sent_if_the_server_refused_the_handshake(
    authority: Authority, tmp_path: Path, proxy: str | None, call: str, tls12: bool
) -> None:
    with TlsServer(authority.server_context(clients=authority.path, tls12=tls12), tmp_path) as server:
        error = error_of(at(server.url, authority, proxy=proxy), call)
    assert type(error) is CpaasNotSentError
    assert (error.retryable, error.maybe_sent) == (True, False)
    assert f"alert {'handshake_failure' if tls12 else 'certificate_required'}; " in str(error)
    assert "client_cert and client_key of the connection" in str(error)
    assert "Nothing was sent" in str(error)
    assert server.bytes_read == 0


@pytest.mark.parametrize("was_read", [False, True], ids=["refused", "read, then alert"])
def test_purchase_that_left_before_the_client_certificate_was_refused_is_unknown_and_named(
    authority: Authority, tmp_path: Path, proxy: str | None, was_read: bool
) -> None:
    context = authority.server_context() if was_read else authority.server_context(clients=authority.path)
    context.num_tickets = 0
    with TlsServer(context, tmp_path, read_then_alert(116)) as server:
        error = error_of(at(server.url, authority, proxy=proxy), "purchase")
    assert type(error) is CpaasUnknownOutcomeError
    assert (error.retryable, error.maybe_sent) == (False, True)
    assert "because of the client certificate (alert certificate_required; check client_cert and client_k" in str(error)
    assert "A server that follows the TLS standard has not read it." in str(error)
    assert (server.bytes_read > 0) is was_read


@pytest.mark.parametrize("call", ["send", "purchase", "passcode", "creation"])
def test_request_that_changes_something_is_unknown_after_any_other_alert(
    authority: Authority, tmp_path: Path, proxy: str | None, call: str
) -> None:
    with TlsServer(authority.server_context(), tmp_path, read_then_alert(INTERNAL_ERROR)) as server:
        error = error_of(at(server.url, authority, proxy=proxy), call)
    assert type(error) is CpaasUnknownOutcomeError
    assert (error.retryable, error.maybe_sent) == (False, True)
    assert "the server ended the TLS connection before a response arrived (alert internal_error)" in str(error)
    assert server.bytes_read > 0


# A client certificate -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("tls12", [False, True], ids=["TLS 1.3", "TLS 1.2"])
@pytest.mark.parametrize(
    ("clients", "has_certificate", "peer"),
    [
        (ssl.CERT_REQUIRED, True, "client"),
        (ssl.CERT_OPTIONAL, True, "client"),
        (ssl.CERT_OPTIONAL, False, None),
        (None, True, None),
    ],
    ids=["required", "optional", "optional, none", "not asked for"],
)
async def test_client_certificate_is_shown_to_a_server_that_asks(
    authority: Authority, tmp_path: Path, proxy: str | None,
    tls12: bool, clients: ssl.VerifyMode | None, has_certificate: bool, peer: str | None,
) -> None:  # fmt: skip
    cert, key = authority.issue("client")
    options = {"client_cert": str(cert), "client_key": str(key)} if has_certificate else {}
    context = authority.server_context(tls12=tls12)
    if clients is not None:
        context = authority.server_context(clients=authority.path, mode=clients, tls12=tls12)
    with TlsServer(context, tmp_path) as server:
        replies = await exchange(at(server.url, authority, proxy=proxy, **options), READ, READ)
    assert replies == [HttpResponse(201, None, b'{"id": "sms-1"}')] * 2
    assert server.peers == [peer]


def test_client_certificate_of_blocking_and_asynchronous_clients(
    send: Send, authority: Authority, tmp_path: Path
) -> None:
    cert, key = authority.issue("client")
    with TlsServer(authority.server_context(clients=authority.path), tmp_path) as server:
        settings = at(server.url, authority, client_cert=str(cert), client_key=str(key))
        assert isinstance(send(SEND.build(settings)[0], settings), HttpResponse)
    assert server.peers == ["client"]


def test_private_key_may_be_in_the_file_of_the_certificate(send: Send, authority: Authority, tmp_path: Path) -> None:
    cert, key = authority.issue("client")
    both = tmp_path / "both.pem"
    both.write_bytes(key.read_bytes() + cert.read_bytes())
    with TlsServer(authority.server_context(clients=authority.path), tmp_path) as server:
        settings = at(server.url, authority, client_cert=str(both))
        assert isinstance(send(SEND.build(settings)[0], settings), HttpResponse)
    assert server.peers == ["client"]


def test_encrypted_private_key_is_read_with_its_password(send: Send, authority: Authority, tmp_path: Path) -> None:
    cert, key = authority.issue("client", password="pa55word")
    with TlsServer(authority.server_context(clients=authority.path), tmp_path) as server:
        options = {"client_cert": str(cert), "client_key": str(key), "client_key_password": "pa55word"}
        settings = at(server.url, authority, **options)
        assert isinstance(send(SEND.build(settings)[0], settings), HttpResponse)
    assert server.peers == ["client"]
    assert "pa55word" not in repr(settings)


async def test_client_certificate_is_loaded_once_and_serves_every_connection(
    authority: Authority, tmp_path: Path, proxy: str | None
) -> None:
    cert, key = authority.issue("client")
    with TlsServer(authority.server_context(clients=authority.path), tmp_path) as server:
        settings = at(server.url, authority, client_cert=str(cert), client_key=str(key), proxy=proxy)
        transport = AsyncTransport(settings)
        cert.unlink()
        key.unlink()
        request = SEND.build(settings)[0]
        replies = await asyncio.gather(*(transport.send(request) for _ in range(3)))
        await transport.aclose()
    assert replies == [HttpResponse(201, None, b'{"id": "sms-1"}')] * 3
    assert server.peers == ["client"] * 3


async def test_renewed_client_certificate_is_used_by_the_next_client(authority: Authority, tmp_path: Path) -> None:
    cert, key = authority.issue("client")
    with TlsServer(authority.server_context(clients=authority.path), tmp_path) as server:
        settings = at(server.url, authority, client_cert=str(cert), client_key=str(key))
        await exchange(settings)
        renewed_cert, renewed_key = authority.issue("renewed")
        renewed_cert.replace(cert)
        renewed_key.replace(key)
        await exchange(settings)
    assert server.peers == ["client", "renewed"]


def test_proxy_does_not_get_the_client_certificate(send: Send, authority: Authority, tmp_path: Path) -> None:
    def refuse(conversation: Conversation) -> None:
        conversation.read_request()
        conversation.send(http(403))

    context = authority.server_context(clients=authority.path, mode=ssl.CERT_OPTIONAL)
    cert, key = authority.issue("client")
    with TlsServer(context, tmp_path, refuse) as proxy, pytest.MonkeyPatch.context() as patch:
        patch.setenv("SSL_CERT_FILE", str(authority.path))
        settings = at("https://cpaas.invalid", authority, proxy=proxy.url, client_cert=str(cert), client_key=str(key))
        assert send(SEND.build(settings)[0], settings) is TransportFailure.PROXY
    assert proxy.peers == [None]


def test_alert_of_a_proxy_that_asks_for_a_certificate_is_no_foreign_error(
    send: Send, authority: Authority, tmp_path: Path
) -> None:
    context = authority.server_context(clients=authority.path)
    with TlsServer(context, tmp_path) as proxy, pytest.MonkeyPatch.context() as patch:
        patch.setenv("SSL_CERT_FILE", str(authority.path))
        settings = at("https://cpaas.invalid", authority, proxy=proxy.url)
        failure = send(SEND.build(settings)[0], settings)
    assert isinstance(failure, TransportFailure)
    assert "alert certificate_required" in failure.reason


# Files that cannot be used --------------------------------------------------------------------------------------------


@pytest.fixture
def files(authority: Authority, stranger: Authority, tmp_path: Path) -> dict[str, str | None]:
    cert, key = authority.issue("client")
    _, encrypted = authority.issue("encrypted", password="pa55word")
    _, other = stranger.issue("other")
    garbage = tmp_path / "garbage.pem"
    garbage.write_text("secret content")
    return {
        "cert": str(cert),
        "key": str(key),
        "encrypted cert": str(encrypted.with_suffix(".pem")),
        "encrypted": str(encrypted),
        "other": str(other),
        "garbage": str(garbage),
        "folder": str(tmp_path),
        "missing": str(tmp_path / "missing.pem"),
        "content": key.read_text(),
        "nothing": None,
    }


@pytest.mark.parametrize(
    ("cert", "key", "password", "message"),
    [
        ("missing", "key", None, r"client_cert names a file that cannot be read \(FileNotFoundError\)"),
        ("cert", "missing", None, r"client_key names a file that cannot be read \(FileNotFoundError\)"),
        ("folder", "key", None, r"client_cert names a file that cannot be read \(IsADirectoryError\)"),
        ("cert", "content", None, r"client_key names a file that cannot be read"),
        ("content", "nothing", None, r"client_cert names a file that cannot be read"),
        ("garbage", "key", None, "client_cert must be a PEM file"),
        ("cert", "garbage", None, "The file in client_key must hold the private key in PEM form"),
        ("key", "cert", None, "client_cert must be a PEM file"),
        ("cert", "nothing", None, "The file in client_cert must hold the private key in PEM form"),
        ("cert", "other", None, "The private key in client_key does not belong to the first certificate in client_"),
        ("encrypted cert", "encrypted", None, "The private key in client_key is encrypted. Set client_key_password."),
        ("encrypted cert", "encrypted", "wrong", "in client_key cannot be decrypted with client_key_password"),
        ("encrypted cert", "encrypted", "w" * 2000, "in client_key cannot be decrypted with client_key_password"),
        ("nothing", "key", None, "need client_cert"),
        ("nothing", "nothing", "pa55word", "need client_cert"),
    ],
)
@pytest.mark.parametrize("proxy", [None, "http://127.0.0.1:9"], ids=["direct", "by proxy"])
def test_unusable_client_certificate_is_a_configuration_error_without_content(
    files: dict[str, str | None], proxy: str | None, cert: str, key: str, password: str | None, message: str
) -> None:
    with pytest.raises(CpaasConfigurationError, match=message) as caught:
        CpaasClient(
            "https://127.0.0.1", KEY, proxy=proxy,
            client_cert=files[cert], client_key=files[key], client_key_password=password,
        )  # fmt: skip
    for private in ("PRIVATE KEY", "secret content", "pa55word", "wrong", str(files["folder"])):
        assert private not in str(caught.value)
    assert caught.value.__cause__ is None


def test_unreadable_private_key_is_a_configuration_error(
    files: dict[str, str | None], monkeypatch: pytest.MonkeyPatch
) -> None:
    open_file = Path.open

    def refuse(path: Path, *args: Any, **options: Any) -> Any:
        if str(path) == files["key"]:
            raise PermissionError(13, "Permission denied", str(path))
        return open_file(path, *args, **options)

    # The user root may read every file.
    monkeypatch.setattr(Path, "open", refuse)
    with pytest.raises(CpaasConfigurationError, match=r"client_key names a file .* \(PermissionError\)"):
        CpaasClient("https://127.0.0.1", KEY, client_cert=files["cert"], client_key=files["key"])


def test_plain_http_needs_no_certificate_files(send: Send) -> None:
    with Loopback(answering(201, {"id": "sms-1"})) as server:
        settings = ClientSettings(server.url, KEY, client_cert="/no/such/file.pem", timeout=5)
        assert isinstance(send(SEND.build(settings)[0], settings), HttpResponse)
