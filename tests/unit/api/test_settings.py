from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from rich.pretty import pretty_repr

from cpaas_provider.api.errors import CpaasConfigurationError
from cpaas_provider.api.settings import ClientOptions, ClientSettings

URL, KEY = "https://cpaas.example.com/v1", "sk_live_4eC39HqLyjWDarjt"


def made(**options: Any) -> ClientSettings:
    return ClientSettings(**{"base_url": URL, "api_key": KEY, **options})


def test_defaults_are_the_documented_ones() -> None:
    settings = made()
    assert settings.requests_per_second == 10
    assert settings.max_concurrency == 8
    assert (settings.connect_timeout, settings.timeout) == (5, 30)
    assert settings.max_retries == 4
    assert settings.max_retry_after == 60
    assert settings.keepalive_expiry == 2
    assert settings.otp_revoke_path == "/otp/{id}"
    assert settings.allow_http is False
    assert settings.verify is True
    assert settings.allowed is None


def test_clients_take_every_option_by_name() -> None:
    fields = set(ClientSettings.__struct_fields__)
    assert set(ClientOptions.__annotations__) == fields - {"base_url", "api_key"}


@pytest.mark.parametrize(
    ("given", "taken"),
    [
        ("https://cpaas.example.com", "https://cpaas.example.com"),
        (" https://cpaas.example.com/ ", "https://cpaas.example.com"),
        ("https://cpaas.example.com:8443/api/v1//", "https://cpaas.example.com:8443/api/v1"),
        ("HTTPS://cpaas.example.com", "https://cpaas.example.com"),
        ("http://localhost:8000", "http://localhost:8000"),
        ("http://127.0.0.1", "http://127.0.0.1"),
        ("http://127.9.9.9", "http://127.9.9.9"),
        ("http://[::1]:8000", "http://[::1]:8000"),
    ],
)
def test_base_url_is_normalised(given: str, taken: str) -> None:
    assert made(base_url=given).base_url == taken


@pytest.mark.parametrize(
    ("base_url", "reason"),
    [
        ("", "empty"),
        ("  ", "empty"),
        (None, "empty"),
        ("cpaas.example.com", "absolute"),
        ("//cpaas.example.com", "absolute"),
        ("ftp://cpaas.example.com", "absolute"),
        ("https://", "absolute"),
        ("https:///v1", "absolute"),
        ("https://[::1", "cannot be read"),
        ("https://cpaas.example.com:99999", "cannot be read"),
        ("https://user:pa55word@cpaas.example.com", "not contain a user, password"),
        ("https://:pa55word@cpaas.example.com", "not contain a user, password"),
        ("https://cpaas.example.com?token=pa55word", "query"),
        ("https://cpaas.example.com#pa55word", "fragment"),
        ("http://cpaas.example.com", "plain http"),
        ("http://10.0.0.1", "plain http"),
        ("http://localhost.example.com", "plain http"),
        ("http://0.0.0.0", "plain http"),
    ],
)
def test_invalid_base_url_is_refused(base_url: Any, reason: str) -> None:
    with pytest.raises(CpaasConfigurationError, match=reason) as caught:
        made(base_url=base_url)
    assert "pa55word" not in str(caught.value)


def test_allow_http_permits_plain_http() -> None:
    assert made(base_url="http://cpaas.example.com", allow_http=True).base_url == "http://cpaas.example.com"


@pytest.mark.parametrize(
    ("base_url", "local"),
    [(URL, False), ("https://127.0.0.1", True), ("http://localhost:80", True), ("http://[::1]", True)],
)
def test_loopback_address_is_local(base_url: str, local: bool) -> None:
    assert made(base_url=base_url).is_local is local


@pytest.mark.parametrize(
    ("api_key", "auth_scheme", "header"),
    [
        (KEY, "Bearer", f"Bearer {KEY}"),
        (f" {KEY}\n", "Bearer", f"Bearer {KEY}"),
        (f"Bearer {KEY}", "Bearer", f"Bearer {KEY}"),
        (f"bearer   {KEY}", "Bearer", f"Bearer {KEY}"),
        (f"Bearer{KEY}", "Bearer", f"Bearer Bearer{KEY}"),
        (KEY, "", KEY),
        (f"Bearer {KEY}", "", f"Bearer {KEY}"),
        (KEY, "Token", f"Token {KEY}"),
        (f"Token {KEY}", "Token", f"Token {KEY}"),
    ],
)
def test_auth_scheme_is_never_doubled(api_key: str, auth_scheme: str, header: str) -> None:
    assert made(api_key=api_key, auth_scheme=auth_scheme).authorization == header


@pytest.mark.parametrize(
    ("api_key", "auth_scheme"),
    [
        ("", "Bearer"),
        (" ", "Bearer"),
        (None, "Bearer"),
        ("Bearer", "Bearer"),
        ("Bearer ", "Bearer"),
        ("abc\r\nX-Evil: 1", "Bearer"),
        ("ключ-от-всего", "Bearer"),
        ("abc", "Bea rer"),
        ("abc", "Bearer\n"),
    ],
)
def test_api_key_that_fits_no_header_is_refused(api_key: Any, auth_scheme: str) -> None:
    with pytest.raises(CpaasConfigurationError, match="API key") as caught:
        made(api_key=api_key, auth_scheme=auth_scheme)
    assert not api_key or len(api_key.split()) < 2 or api_key not in str(caught.value)
    assert "ключ" not in str(caught.value)


@pytest.mark.parametrize(
    ("option", "bad"),
    [
        *((name, bad) for name in ("requests_per_second", "connect_timeout", "timeout") for bad in (0, -1)),
        *((name, -1) for name in ("max_retry_after", "keepalive_expiry")),
        *(
            (name, bad)
            for name in ("requests_per_second", "connect_timeout", "timeout", "max_retry_after", "keepalive_expiry")
            for bad in (float("nan"), float("inf"), "10", None, True)
        ),
        *((name, bad) for name in ("max_concurrency", "max_response_bytes") for bad in (0, 0.5, 2.5, 8.0, "8", True)),
        *(("max_retries", bad) for bad in (-1, 1.5, "4", False)),
    ],
)
def test_invalid_number_option_is_refused_by_name(option: str, bad: Any) -> None:
    with pytest.raises(CpaasConfigurationError, match=option):
        made(**{option: bad})


def test_retries_delay_and_keepalive_may_be_zero() -> None:
    settings = made(max_retries=0, max_retry_after=0, keepalive_expiry=0)
    assert (settings.max_retries, settings.max_retry_after, settings.keepalive_expiry) == (0, 0, 0)


@pytest.mark.parametrize("path", ["/otp/{id}", "/otp/revoke/{id}", "/otp/{id}/revoke", "/{id}"])
def test_revoke_path_is_accepted(path: str) -> None:
    assert made(otp_revoke_path=path).otp_revoke_path == path


@pytest.mark.parametrize(
    "path",
    [
        "",
        "/otp",
        "otp/{id}",
        "/otp/{id}/{id}",
        "/otp/{id}/{other}",
        "/otp/{id} x",
        "/otp?id={id}",
        "/otp/{id}#x",
        "/{id}\n",
    ],
)
def test_invalid_revoke_path_is_refused(path: str) -> None:
    with pytest.raises(CpaasConfigurationError, match="otp_revoke_path"):
        made(otp_revoke_path=path)


@pytest.mark.parametrize("region", ["NG", "ng", "US"])
def test_known_region_is_accepted(region: str) -> None:
    assert made(default_region=region).default_region == region


@pytest.mark.parametrize("region", ["", "Nigeria", "XX", "234"])
def test_unknown_region_is_refused(region: str) -> None:
    with pytest.raises(CpaasConfigurationError, match="default_region"):
        made(default_region=region)


@pytest.mark.parametrize(
    ("proxy", "password", "url"),
    [
        (None, None, None),
        (None, "pa55", None),
        ("http://proxy.example.com:3128", None, "http://proxy.example.com:3128"),
        ("http://ada@proxy.example.com:3128", "p@ss:/w", "http://ada:p%40ss%3A%2Fw@proxy.example.com:3128"),
        ("https://[::1]:3128", "pa55", "https://:pa55@[::1]:3128"),
    ],
)
def test_proxy_password_is_inserted_into_the_proxy_url(
    proxy: str | None, password: str | None, url: str | None
) -> None:
    assert made(proxy=proxy, proxy_password=password).proxy_url == url


@pytest.mark.parametrize(
    "proxy",
    [
        *("", "proxy.example.com:3128", "ftp://p", "http://", "http://[::1", "http://p:99999", "http://p:0"),
        *("http://p\n", "ht\ttp://p", " http://p", "http://a da@p", "http://p/\0", "http://\x7fp", "http://\u2028p"),
    ],
)
def test_invalid_proxy_is_refused(proxy: str) -> None:
    with pytest.raises(CpaasConfigurationError, match="proxy must be a URL"):
        made(proxy=proxy)


@pytest.mark.parametrize("password", [None, "new"])
@pytest.mark.parametrize(
    "proxy",
    [
        "http://ada:pa55word@proxy.example.com:3128",
        "http://:pa55word@proxy.example.com",
        "http://ada:@proxy.example.com",
        "socks5://ada:pa55word@[::1]:1080",
        "http://ada:pa55word/with/slashes@proxy.example.com:3128",
        "http://ada:55/word@proxy.example.com",
        "http://ada:pa55word?#@proxy.example.com",
        "http://ada:pa55@word@proxy.example.com",
        "http://ada%3Apa55word@proxy.example.com",
        "http://ada%3apa55word@proxy.example.com",
        "ftp://ada:pa55word@proxy.example.com",
    ],
)
def test_password_in_the_proxy_is_refused_and_not_shown(proxy: str, password: str | None) -> None:
    with pytest.raises(CpaasConfigurationError, match="set proxy_password, which Airflow masks") as caught:
        made(proxy=proxy, proxy_password=password)
    assert "55" not in str(caught.value)


@pytest.mark.parametrize("value", [12345, b"http://ada@proxy.example.com", True, ["pa12345"]])
@pytest.mark.parametrize("option", ["proxy", "proxy_password", "client_key_password"])
def test_option_that_is_no_text_is_named_and_not_shown(option: str, value: Any) -> None:
    options = {"proxy": "http://ada@proxy.example.com", "client_cert": "/etc/cpaas.pem", option: value}
    with pytest.raises(CpaasConfigurationError, match=f"^{option} must be a text") as caught:
        made(**options)
    assert "12345" not in str(caught.value)
    assert "ada" not in str(caught.value)


@pytest.mark.parametrize("show", [repr, pretty_repr])
def test_settings_show_no_secret(show: Callable[[Any], str]) -> None:
    shown = show(
        made(
            proxy="http://ada@proxy.example.com",
            proxy_password="pa66word",
            client_cert="-----BEGIN PRIVATE KEY-----",
            client_key="-----BEGIN PRIVATE KEY-----",
            client_key_password="pa77word",
            allowed_recipients="2348031234567",
        )
    )
    assert "ClientSettings" in shown
    for secret in (KEY, "ada", "pa66word", "PRIVATE KEY", "pa77word", "2348031234567"):
        assert secret not in shown
