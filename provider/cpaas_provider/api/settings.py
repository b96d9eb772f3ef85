"""The settings of a client: checked once, then fixed."""

from __future__ import annotations

import functools
import ipaddress
import re
from collections.abc import Iterable
from typing import TypedDict
from urllib.parse import quote, unquote, urlsplit, urlunsplit

from msgspec.structs import force_setattr

from cpaas_provider._common.records import PrivateRecord
from cpaas_provider.api.bounds import NUMBER_CHECKS
from cpaas_provider.api.errors import CpaasConfigurationError
from cpaas_provider.api.recipients.msisdn import SUPPORTED_REGIONS, NumberCheck, NumberReader
from cpaas_provider.api.recipients.reader import AllowedRecipients, RecipientKind, RecipientReader

INSUFFICIENT_BALANCE_WORDS = ("insufficient balance", "insufficient funds", "insufficient credit")

_HEADER_SAFE = re.compile(r"[\x21-\x7e]+")
_REVOKE_PATH = re.compile(r"/[^\s{}?#]*\{id\}[^\s{}?#]*")
_LARGEST = 1e6
_DEFAULT_PORTS = {"http": 80, "https": 443}
_PROXY_SCHEMES = frozenset({"http", "https", "socks5"})


class ClientOptions(TypedDict, total=False):
    """The options of a client apart from base URL and key; ``ClientSettings`` documents each."""

    auth_scheme: str
    default_region: str | None
    number_check: NumberCheck
    requests_per_second: float
    max_concurrency: int
    connect_timeout: float
    timeout: float
    max_retries: int
    max_retry_after: float
    keepalive_expiry: float
    max_response_bytes: int
    verify: bool | str
    client_cert: str | None
    client_key: str | None
    client_key_password: str | None
    proxy: str | None
    proxy_password: str | None
    allow_http: bool
    otp_revoke_path: str
    allowed_recipients: str | Iterable[str] | None
    insufficient_balance_words: Iterable[str]


class ClientSettings(PrivateRecord, frozen=True, dict=True):
    """The address of the service, the API key, and the limits of a client.

    :param base_url: absolute URL all paths are relative to; https, or http to a loopback address
    :param api_key: the account's key; a leading ``Bearer`` is not doubled
    :param auth_scheme: the word before the key in ``Authorization``; with empty text the raw key is sent
    :param default_region: two-letter region of national phone numbers, e.g. ``NG``; ``None`` accepts international
        numbers only
    :param number_check: ``valid`` accepts phone numbers that their country's numbering plan has; ``possible`` also
        accepts others of the right length, for plans that are newer than the phonenumbers library
    :param requests_per_second: requests started per second at most, evenly spaced
    :param max_concurrency: requests in flight at most
    :param connect_timeout: seconds to reach the service
    :param timeout: seconds without data after which the client stops waiting for a response, and the longest time for
        its body
    :param max_retries: attempts beyond the first inside one call, where a retry is safe
    :param max_retry_after: the longest ``Retry-After``, in seconds, that a call waits; a longer one is an error with
        ``retry_after`` set
    :param keepalive_expiry: seconds an idle connection stays open for the next read; a request that changes something
        has a connection of its own
    :param max_response_bytes: the largest response that is read
    :param verify: ``True``, ``False`` (no TLS verification: for tests only), or the path of a CA bundle
    :param client_cert: path of a PEM file with the certificate that the client shows to a service that asks for one,
        followed by those of its issuers
    :param client_key: path of a PEM file with the private key of ``client_cert``; by default ``client_cert`` holds it
    :param client_key_password: the password of an encrypted private key
    :param proxy: URL of an HTTP or SOCKS 5 proxy, with its user name if it needs one; a password in it is refused
    :param proxy_password: the proxy's password
    :param allow_http: permit plain http to hosts other than this machine
    :param otp_revoke_path: path of the revoke operation, which the contract does not show; holds ``{id}``
    :param allowed_recipients: numbers, addresses and ``@domains``; a request to any other recipient is refused before
        it leaves. ``None`` allows every recipient, an empty list none
    :param insufficient_balance_words: a rejection whose message contains one of these, in any case, means that the
        account cannot pay; the contract shows no status for it but 400
    :raises CpaasConfigurationError: when a value cannot work; the message names the option, never a secret
    """

    base_url: str
    api_key: str
    auth_scheme: str = "Bearer"
    default_region: str | None = None
    number_check: NumberCheck = "valid"
    requests_per_second: float = 10.0
    max_concurrency: int = 8
    connect_timeout: float = 5.0
    timeout: float = 30.0
    max_retries: int = 4
    max_retry_after: float = 60.0
    keepalive_expiry: float = 2.0
    max_response_bytes: int = 16 * 1024 * 1024
    verify: bool | str = True
    client_cert: str | None = None
    client_key: str | None = None
    client_key_password: str | None = None
    proxy: str | None = None
    proxy_password: str | None = None
    allow_http: bool = False
    otp_revoke_path: str = "/otp/{id}"
    allowed_recipients: str | Iterable[str] | None = None
    insufficient_balance_words: Iterable[str] = INSUFFICIENT_BALANCE_WORDS

    def __post_init__(self) -> None:
        force_setattr(self, "base_url", _checked_base_url(self.base_url, self.allow_http))
        force_setattr(self, "api_key", _checked_key(self.api_key, self.auth_scheme))
        for option in ("requests_per_second", "connect_timeout", "timeout"):
            _check_number(option, getattr(self, option), above_zero=True)
        for option in ("max_retry_after", "keepalive_expiry"):
            _check_number(option, getattr(self, option), above_zero=False)
        for option in ("max_concurrency", "max_response_bytes"):
            _check_whole(option, getattr(self, option), least=1)
        _check_whole("max_retries", self.max_retries, least=0)
        if not _REVOKE_PATH.fullmatch(self.otp_revoke_path):
            raise CpaasConfigurationError(
                "otp_revoke_path must be a path such as /otp/{id}, with {id} once and no blank, query or other brace."
            )
        if self.default_region is not None and self.default_region.upper() not in SUPPORTED_REGIONS:
            raise CpaasConfigurationError(
                f"default_region must be a two-letter ISO 3166 region such as NG; it is {self.default_region!r}."
            )
        if self.number_check not in NUMBER_CHECKS:
            raise CpaasConfigurationError(
                f"number_check must be {' or '.join(NUMBER_CHECKS)}; it is {self.number_check!r}."
            )
        # Parsed now, so that an invalid entry is an error of the settings.
        _ = self.allowed
        force_setattr(self, "insufficient_balance_words", _checked_words(self.insufficient_balance_words))
        if self.client_cert is None and (self.client_key is not None or self.client_key_password is not None):
            raise CpaasConfigurationError("client_key and client_key_password need client_cert: set it as well.")
        for option in ("client_key_password", "proxy", "proxy_password"):
            if not isinstance(getattr(self, option), str | None):
                raise CpaasConfigurationError(f"{option} must be a text. In JSON, put it in quotation marks.")
        if self.proxy is not None:
            _check_proxy(self.proxy)

    @functools.cached_property
    def allowed(self) -> AllowedRecipients | None:
        """The parsed ``allowed_recipients``, or ``None`` if every recipient is allowed."""
        if self.allowed_recipients is None:
            return None
        return AllowedRecipients(self.allowed_recipients, RecipientReader("any", self.numbers).read)

    @functools.cached_property
    def numbers(self) -> NumberReader:
        """What reads phone numbers by ``default_region`` and ``number_check``."""
        return NumberReader(self.default_region, self.number_check)

    def recipient_reader(self, kind: RecipientKind, region: str | None = None) -> RecipientReader:
        """Return what reads recipients of this client.

        :param region: the region of national numbers. Default: ``default_region``
        """
        numbers = self.numbers if region is None else NumberReader(region, self.number_check)
        return RecipientReader(kind, numbers, self.allowed)

    @property
    def authorization(self) -> str:
        """The value of the ``Authorization`` header (contract.md: the scheme is never doubled)."""
        return f"{self.auth_scheme} {self.api_key}" if self.auth_scheme else self.api_key

    @property
    def origin(self) -> str:
        """Scheme, host and port: the part of the address that an error may show."""
        parts = urlsplit(self.base_url)
        return f"{parts.scheme}://{parts.netloc}"

    @property
    def is_local(self) -> bool:
        """Whether the service runs on this machine, so that no proxy is used."""
        return _is_loopback(urlsplit(self.base_url).hostname or "")

    @property
    def proxy_url(self) -> str | None:
        """The proxy with its password filled in."""
        if self.proxy is None or self.proxy_password is None:
            return self.proxy
        parts = urlsplit(self.proxy)
        user, host = parts.username or "", parts.netloc.rpartition("@")[2]
        return urlunsplit(parts._replace(netloc=f"{user}:{quote(self.proxy_password, safe='')}@{host}"))


def _checked_base_url(base_url: str, allow_http: bool) -> str:
    if not isinstance(base_url, str) or not base_url.strip():
        raise CpaasConfigurationError("The base URL is empty. Give the service's address, such as https://host/path.")
    try:
        parts = urlsplit(base_url.strip())
        host = parts.hostname
        _ = parts.port
    except ValueError:
        raise CpaasConfigurationError("The base URL cannot be read as a URL such as https://host/path.") from None
    if parts.scheme not in {"http", "https"} or not host:
        raise CpaasConfigurationError("The base URL must be absolute, such as https://host/path.")
    if parts.username is not None or parts.query or parts.fragment:
        raise CpaasConfigurationError("The base URL must not contain a user, password, query or fragment.")
    if parts.scheme == "http" and not (allow_http or _is_loopback(host)):
        raise CpaasConfigurationError(
            "The base URL is plain http, which exposes the API key on the way. Use https, or set allow_http."
        )
    return canonical_base_url(base_url)


def canonical_base_url(base_url: str) -> str:
    """Return a base URL as the client uses it: without blanks around it and slashes at its end, its host in lower case.

    Two base URLs lead to the same service if this is the same. A default port is left out.

    :raises ValueError: when it cannot be read as a URL
    """
    parts = urlsplit(base_url.strip())
    is_default = parts.port == _DEFAULT_PORTS.get(parts.scheme)
    authority = parts.netloc.rpartition(":")[0] if is_default and parts.port is not None else parts.netloc
    authority = authority.rstrip(":").lower()
    if not authority.isascii():
        authority = _ascii_authority(authority)
    return urlunsplit((parts.scheme, authority, parts.path.rstrip("/"), "", ""))


def _ascii_authority(authority: str) -> str:
    """Return an authority with its host as the client asks the resolver for it, in punycode."""
    import idna

    host, colon, port = authority.partition(":")
    try:
        return idna.encode(host).decode("ascii") + colon + port
    except idna.IDNAError:
        # The transport refuses it, and names the connection.
        return authority


def _is_loopback(host: str) -> bool:
    if host == "localhost" or host.endswith(".localhost"):
        return True
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False


def _check_proxy(proxy: str) -> None:
    # Not by the parsed URL: its user ends before a "/" that a password may contain. It is sent decoded.
    if ":" in unquote(proxy.rpartition("@")[0].partition("://")[2]):
        raise CpaasConfigurationError(
            "proxy must not contain a password, because Airflow shows this field. Remove it from the URL and set "
            "proxy_password, which Airflow masks."
        )
    try:
        parts = urlsplit(proxy)
        is_usable = parts.scheme in _PROXY_SCHEMES and bool(parts.hostname) and parts.port != 0
        # The parser drops some of these characters.
        is_usable = is_usable and proxy.isprintable() and " " not in proxy
    except ValueError:
        is_usable = False
    if not is_usable:
        raise CpaasConfigurationError("proxy must be a URL such as http://proxy.example.com:3128.")


def _checked_key(api_key: str, auth_scheme: str) -> str:
    if not isinstance(api_key, str) or not api_key.strip():
        raise CpaasConfigurationError("The API key is empty. It is the password of the connection.")
    key = api_key.strip()
    if auth_scheme and (key + " ").lower().startswith(auth_scheme.lower() + " "):
        key = key[len(auth_scheme) :].strip()
    if not _HEADER_SAFE.fullmatch(key.replace(" ", "")) or (auth_scheme and not _HEADER_SAFE.fullmatch(auth_scheme)):
        raise CpaasConfigurationError("The API key or auth_scheme contains characters that a header cannot carry.")
    return key


def _check_number(option: str, value: float, *, above_zero: bool) -> None:
    in_bounds = isinstance(value, (int, float)) and not isinstance(value, bool) and 0 <= value <= _LARGEST
    if not in_bounds or (above_zero and value == 0):
        least = "above" if above_zero else "at least"
        raise CpaasConfigurationError(f"{option} must be a number {least} 0 and at most {_LARGEST:g}; it is {value!r}.")


def _check_whole(option: str, value: int, *, least: int) -> None:
    if not isinstance(value, int) or isinstance(value, bool) or value < least:
        raise CpaasConfigurationError(f"{option} must be a whole number of at least {least}; it is {value!r}.")


def _checked_words(words: Iterable[str]) -> tuple[str, ...]:
    if not isinstance(words, (list, tuple)) or not all(isinstance(word, str) and word.strip() for word in words):
        raise CpaasConfigurationError("insufficient_balance_words must be a list of words or phrases.")
    return tuple(words)
