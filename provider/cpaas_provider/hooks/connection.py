"""Reads an Airflow connection into the settings of a client, for sync and async code."""

from __future__ import annotations

import contextlib
import functools
import json
import logging
import math
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any, TypeVar, cast

import msgspec.structs

from cpaas_provider._common.records import PrivateRecord
from cpaas_provider.api.bounds import NUMBER_CHECKS, ROW_UPDATES, to_flag
from cpaas_provider.api.errors import CpaasConfigurationError
from cpaas_provider.hooks._account.options import BudgetOptions
from cpaas_provider.provider_info import CONNECTION_FIELDS

if TYPE_CHECKING:
    from airflow.sdk import Connection

    from cpaas_provider.api.client import AsyncCpaasClient, CpaasClient
    from cpaas_provider.api.rate_limit import Pace
    from cpaas_provider.api.settings import ClientOptions, ClientSettings

log = logging.getLogger(__name__)

ClientT = TypeVar("ClientT", "CpaasClient", "AsyncCpaasClient")
Convert = Callable[[Any], Any]
_SHORTEST_SECRET = 16


class CpaasConnection(PrivateRecord, frozen=True, dict=True):
    """The settings of a connection of type ``cpaas``.

    ``options`` are for ``ClientSettings``. The other extras are for operators and the receiver.
    """

    base_url: str
    api_key: str
    options: ClientOptions
    sender_id: str | None = None
    email_sender_id: str | None = None
    recipients_per_request: int = 500
    placeholder_format: str = "{name}"
    row_updates: str = "partial"
    callback_secret: tuple[str, ...] = ()
    callback_url: str | None = None
    webhook_secret: str | None = None
    signature_header: str | None = None
    share_rate_limit: bool = False
    daily_budget: float | None = None
    monthly_budget: float | None = None
    budget_timezone: str = "UTC"
    price_per_message: float | None = None
    price_per_passcode: float | None = None
    price_per_lookup: float | None = None
    conn_id: str = ""

    @property
    def budget(self) -> BudgetOptions | None:
        """The budget, ``None`` if there is none."""
        limits = {"daily_budget": self.daily_budget, "monthly_budget": self.monthly_budget}
        known = {name: limit for name, limit in limits.items() if limit is not None}
        if not known:
            return None
        names = ("price_per_message", "price_per_passcode", "price_per_lookup")
        prices = {name: price for name in names if (price := getattr(self, name)) is not None}
        return BudgetOptions(known, self.budget_timezone, prices)

    @property
    def hash_secrets(self) -> tuple[str, ...]:
        """The secrets that key stored hashes: the first one keys new hashes, each of them can read old ones."""
        return *self.callback_secret, self.api_key

    @property
    def default_region(self) -> str | None:
        """The two-letter region of national numbers, ``None`` if numbers must be international."""
        return self.options.get("default_region")

    def weak_secrets(self) -> list[tuple[str, str]]:
        """Return what is wrong with the secrets that prove delivery reports, each with what to do. Shows no secret."""
        short = f"shorter than {_SHORTEST_SECRET} characters, so reports could be forged by guessing it."
        found = []
        if self.callback_url is not None and not self.callback_secret:
            found.append(
                (
                    "callback_secret is not set, so the API key signs callback URLs.",
                    "Set it before you change the API key, or reports to earlier URLs are rejected.",
                )
            )
        if any(len(secret) < _SHORTEST_SECRET for secret in self.callback_secret):
            found.append(
                (
                    f"callback_secret has a secret that is {short}",
                    "Put a long random secret in front. Remove the short one when no more reports of its time are "
                    "expected.",
                )
            )
        if self.webhook_secret is not None and len(self.webhook_secret) < _SHORTEST_SECRET:
            found.append((f"webhook_secret is {short}", "Set a longer one at the service and on the connection."))
        return found

    def warn_of_weak_secrets(self) -> None:
        """Log what is wrong with these secrets, once in a process."""
        if found := self.weak_secrets():
            _warn_once(self.conn_id, " ".join(f"{fault} {advice}" for fault, advice in found))

    @functools.cached_property
    def settings(self) -> ClientSettings:
        """The settings of a client of this connection, with defaults filled in. They are checked once."""
        from cpaas_provider.api.settings import ClientSettings

        return ClientSettings(self.base_url, self.api_key, **self.options)

    def make_client(self, *, needs_database: bool = True) -> CpaasClient:
        """Return a client of the connection.

        :param needs_database: whether it sends nothing while the provider's database cannot be read, as that may have
            a stop of the connection
        """
        from cpaas_provider.api.client import CpaasClient

        return self._make(CpaasClient, must_read=needs_database)

    def make_async_client(self) -> AsyncCpaasClient:
        """Return a client of the connection for the event loop it is first used on."""
        from cpaas_provider.api.client import AsyncCpaasClient

        return self._make(AsyncCpaasClient, must_read=True)

    def _make(self, client_class: type[ClientT], *, must_read: bool) -> ClientT:
        """Return a client with the guard of the connection, and with its rate limiter if all tasks share one."""
        from cpaas_provider.hooks._account.guard import AccountGuard

        rate_limiter: Pace | None = None
        if self.share_rate_limit:
            from cpaas_provider.hooks._rate_limit.limiter import SharedRateLimiter
            from cpaas_provider.hooks._rate_limit.stored import StoredReservations

            reservations, name = StoredReservations(self.conn_id), f"connection {self.conn_id!r}"
            rate_limiter = SharedRateLimiter(self.settings.requests_per_second, reservations, name)
        guard = AccountGuard(self.conn_id, self.budget, must_read=must_read)
        return client_class.of_settings(self.settings, rate_limiter, guard)

    def without_retries(self) -> CpaasConnection:
        """Return the same connection for clients that make a single attempt."""
        return msgspec.structs.replace(self, options={**self.options, "max_retries": 0})

    def divided_by(self, tasks: int) -> CpaasConnection:
        """Return the same connection for one of several tasks that divide rate and concurrency equally.

        A shared rate limit is not divided, so that a task can use the part that other tasks do not use.
        """
        settings = self.settings
        shares: ClientOptions = {"max_concurrency": max(1, settings.max_concurrency // tasks)}
        if not self.share_rate_limit:
            shares["requests_per_second"] = settings.requests_per_second / tasks
        return msgspec.structs.replace(self, options={**self.options, **shares})

    def __repr__(self) -> str:
        # The client refuses a user and password in the URL. They must not be shown before that.
        return f"<CpaasConnection {self.base_url.rpartition('@')[2]}>"


# Cached for its effect: a second call with the same words logs nothing.
@functools.lru_cache(maxsize=1000)
def _warn_once(conn_id: str, words: str) -> None:
    log.warning("Connection %r: %s", conn_id, words)


def read_connection(connection: Connection, mask: Callable[[str], object] | None = None) -> CpaasConnection:
    """Read an Airflow connection (docs: reference/connection).

    An empty extra counts as not given. An unknown extra is ignored, with a warning that names it.

    :param mask: has logs mask a secret. It gets the secrets in extras first. Airflow itself masks the password
    :raises CpaasConfigurationError: when host, key or an extra cannot be used. The error shows no secret
    """
    extras = _extras(connection)
    if mask is not None:
        for value in map(extras.get, _SECRET_EXTRAS):
            for secret in value if isinstance(value, list) else str(value or "").split(","):
                if text := str(secret).strip():
                    mask(text)
    if unknown := sorted(set(extras) - set(CONNECTION_FIELDS)):
        log.warning(
            "Ignoring unknown extras on connection %r: %s.",
            connection.conn_id,
            ", ".join(map(_with_suggestion, unknown)),
        )
    read = {
        name: _convert(connection.conn_id, name, convert, extras.get(name)) for name, convert in _CONVERSIONS.items()
    }
    options = {name: value for name, value in read.items() if value is not None}
    if extras.get("auth_scheme") == "":
        options["auth_scheme"] = ""
    for_operators = {name: options.pop(name) for name in _OPERATOR_EXTRAS if name in options}
    return CpaasConnection(
        base_url=_base_url(connection),
        api_key=connection.password or "",
        options=cast("ClientOptions", options),
        conn_id=connection.conn_id or "",
        **for_operators,
    )


def _extras(connection: Connection) -> Mapping[str, Any]:
    if not connection.extra:
        return {}
    try:
        extras = json.loads(connection.extra)
    except ValueError:
        extras = None
    if not isinstance(extras, dict):
        raise CpaasConfigurationError(f"The extra of connection {connection.conn_id!r} is not a JSON object.")
    return extras


def _with_suggestion(name: str) -> str:
    # Imported only here, because few connections have an unknown extra.
    import difflib

    close = difflib.get_close_matches(name, CONNECTION_FIELDS, n=1)
    return f"{name} (did you mean {close[0]}?)" if close else name


def _base_url(connection: Connection) -> str:
    host = (connection.host or "").strip()
    if not host:
        raise CpaasConfigurationError(f"Connection {connection.conn_id!r} has no host. Set it to the base URL.")
    scheme, separator, rest = host.partition("://")
    if not separator:
        scheme, rest = connection.schema or "https", host
    # The connection form sends port 0 for an empty field.
    if connection.port:
        authority, slash, path = rest.partition("/")
        rest = f"{authority}:{connection.port}{slash}{path}"
    return f"{scheme}://{rest}"


def _convert(conn_id: str, name: str, convert: Convert, value: Any) -> Any:
    if value is None or value == "":
        return None
    try:
        return convert(value)
    except (ValueError, TypeError) as error:
        shown = f"; it is {value!r}" if name in _SHOWN_EXTRAS else ""
        raise CpaasConfigurationError(f"Connection {conn_id!r}: the extra {name} {error}{shown}.") from None


def _string(value: Any) -> str:
    if not isinstance(value, str):
        raise ValueError("must be text")
    return value.strip()


def _http_url(value: Any) -> str:
    from urllib.parse import urlsplit

    text = _string(value)
    try:
        parts = urlsplit(text)
        usable = parts.scheme in ("http", "https") and parts.hostname and not (parts.query or parts.fragment)
        _ = parts.port
    except ValueError:
        usable = False
    if not usable or not text.isascii() or not text.isprintable() or " " in text:
        raise ValueError("must be a URL that begins with https:// or http://, without a query")
    return text.rstrip("/")


def _header_name(value: Any) -> str:
    text = _string(value)
    if not text.isascii() or not text.replace("-", "").replace("_", "").isalnum():
        raise ValueError("must be the name of a header: letters, digits and hyphens")
    return text


def _number(value: Any) -> float:
    with contextlib.suppress(ValueError, TypeError):
        if not isinstance(value, bool):
            return float(value)
    raise ValueError("must be a number")


def _amount(value: Any) -> float:
    amount = _number(value)
    if not 0 <= amount < math.inf:
        raise ValueError("must be a number of at least 0")
    return amount


def _time_zone(value: Any) -> str:
    from zoneinfo import ZoneInfo

    name = _string(value)
    try:
        ZoneInfo(name)
    except (OSError, ValueError, KeyError):
        raise ValueError("must be the name of a time zone, such as Africa/Lagos") from None
    return name


def _one_of(*words: str) -> Convert:
    def convert(value: Any) -> str:
        if value not in words:
            raise ValueError(f"must be {' or '.join(words)}")
        return str(value)

    return convert


def _integer(value: Any) -> int:
    number = _number(value)
    if not number.is_integer() or number < 1:
        raise ValueError("must be a whole number of at least 1")
    return int(number)


def _boolean(value: Any) -> bool:
    read = to_flag(value)
    if read is None:
        raise ValueError("must be true or false")
    return read


def _boolean_or_path(value: Any) -> bool | str:
    read = to_flag(value)
    return str(value).strip() if read is None else read


def _list(value: Any) -> tuple[str, ...]:
    parts = value.split(",") if isinstance(value, str) else value
    if not isinstance(parts, (list, tuple)) or not all(isinstance(part, (str, int)) for part in parts):
        raise ValueError("must be a list or comma-separated text")
    return tuple(text for part in parts if (text := str(part).strip()))


# Extras whose value an error may show. Other extras may contain secrets, numbers or addresses.
_SHOWN_EXTRAS = frozenset(
    {
        "allow_http", "budget_timezone", "daily_budget", "default_region", "max_concurrency", "monthly_budget",
        "number_check", "price_per_lookup", "price_per_message", "price_per_passcode", "recipients_per_request",
        "requests_per_second", "row_updates", "share_rate_limit", "timeout",
    }
)  # fmt: skip
_SCHEMAS: dict[str, Any] = {name: field["schema"] for name, field in CONNECTION_FIELDS.items()}
_SECRET_EXTRAS = [name for name, schema in _SCHEMAS.items() if schema.get("format") == "password"]
# The other extras are options of the client.
_OPERATOR_EXTRAS = [name for name in CpaasConnection.__struct_fields__ if name in CONNECTION_FIELDS]
_BY_TYPE: dict[str, Convert] = {"string": _string, "number": _number, "integer": _integer, "boolean": _boolean}
_CONVERSIONS: dict[str, Convert] = {
    **{name: _BY_TYPE[schema["type"][0]] for name, schema in _SCHEMAS.items()},
    # Text fields in the form whose values are checked further.
    "verify": _boolean_or_path,
    "allowed_recipients": _list,
    "daily_budget": _amount,
    "monthly_budget": _amount,
    "price_per_message": _amount,
    "price_per_passcode": _amount,
    "price_per_lookup": _amount,
    "budget_timezone": _time_zone,
    "insufficient_balance_words": _list,
    "callback_secret": _list,
    "callback_url": _http_url,
    "number_check": _one_of(*NUMBER_CHECKS),
    "row_updates": _one_of(*ROW_UPDATES),
    "signature_header": _header_name,
}
