"""From an Airflow connection to settings: every field, as the form and as people write them."""

from __future__ import annotations

import json
import logging
from typing import Any

import pytest
from airflow.sdk import Connection
from rich.pretty import pretty_repr

from cpaas_provider.api import CpaasClient
from cpaas_provider.api.errors import CpaasConfigurationError
from cpaas_provider.hooks.connection import CpaasConnection, read_connection
from cpaas_provider.provider_info import CONNECTION_FIELDS

KEY = "sk_test_hooks_4711"


def connection(extra: Any = None, **fields: Any) -> Connection:
    given = {"host": "https://api.example.com/v1", "password": KEY} | fields
    text = extra if isinstance(extra, str) or extra is None else json.dumps(extra)
    return Connection(conn_id="cpaas_tested", conn_type="cpaas", extra=text, **given)


def read(extra: Any = None, **fields: Any) -> CpaasConnection:
    return read_connection(connection(extra, **fields))


class TestAddress:
    @pytest.mark.parametrize(
        ("fields", "url"),
        [
            ({"host": "https://api.example.com"}, "https://api.example.com"),
            ({"host": " https://api.example.com/v1 "}, "https://api.example.com/v1"),
            ({"host": "api.example.com"}, "https://api.example.com"),
            ({"host": "api.example.com/v1"}, "https://api.example.com/v1"),
            ({"host": "api.example.com:8443/v1"}, "https://api.example.com:8443/v1"),
            ({"host": "api.example.com/v1", "port": 8443}, "https://api.example.com:8443/v1"),
            ({"host": "https://api.example.com", "port": 8443}, "https://api.example.com:8443"),
            ({"host": "https://api.example.com/v1", "port": 0}, "https://api.example.com/v1"),
            ({"host": "localhost", "schema": "http", "port": 8025}, "http://localhost:8025"),
            ({"host": "http://[::1]:8025"}, "http://[::1]:8025"),
        ],
    )
    def test_host_port_and_scheme_make_the_base_url(self, fields: dict[str, Any], url: str) -> None:
        assert read(**fields).base_url == url

    @pytest.mark.parametrize("host", [None, "", "  "])
    def test_connection_without_a_host_is_refused(self, host: str | None) -> None:
        with pytest.raises(CpaasConfigurationError, match=r"'cpaas_tested' has no host. Set it to the base URL"):
            read(host=host)

    def test_connection_from_a_uri_is_read(self) -> None:
        made = Connection.from_uri(f"cpaas://:{KEY}@localhost:8025/http?sender_id=Shop", conn_id="by_uri")
        one = read_connection(made)
        assert (one.base_url, one.api_key, one.sender_id) == ("http://localhost:8025", KEY, "Shop")


# Every extra: where it goes, its values as people write them and how they are read, and values that cannot be.
NUMBER = [("5", 5.0), (2.5, 2.5), (" 3 ", 3.0)]
WHOLE = [("5", 5), (7, 7), (8.0, 8)]
WORD = [("some", "some"), (" some ", "some")]
SWITCH = [(True, True), ("true", True), (" TRUE ", True), (False, False), ("False", False)]
EXTRAS: dict[str, tuple[list[tuple[Any, Any]], list[Any]]] = {
    "auth_scheme": ([*WORD, ("", "")], [5, ["Bearer"]]),
    "default_region": ([("NG", "NG")], [234]),
    "number_check": ([("valid", "valid"), ("possible", "possible")], [234, "strict"]),
    "requests_per_second": (NUMBER, ["fast", True, [1]]),
    "max_concurrency": (WHOLE, ["many", 0, -1, 1.5, True, "nan", "inf"]),
    "timeout": (NUMBER, ["long", {}, False]),
    "verify": ([*SWITCH, ("/etc/ca.pem", "/etc/ca.pem")], []),
    "client_cert": (WORD, [5]),
    "client_key": (WORD, [5]),
    "client_key_password": (WORD, [5]),
    "proxy": (WORD, [8080]),
    "proxy_password": (WORD, [8080]),
    "allow_http": (SWITCH, ["maybe", 2, []]),
    "daily_budget": ([*NUMBER, ("0", 0.0)], ["much", True, -1, "nan", "inf"]),
    "monthly_budget": (NUMBER, ["much", -0.5]),
    "budget_timezone": ([("Africa/Lagos", "Africa/Lagos"), (" UTC ", "UTC")], [5, "Lagos", "../UTC", "Nowhere/City"]),
    "price_per_message": (NUMBER, ["much", -1]),
    "price_per_passcode": (NUMBER, ["much", -1]),
    "price_per_lookup": (NUMBER, ["much", -1]),
    "share_rate_limit": (SWITCH, ["maybe", 2, []]),
    "otp_revoke_path": ([("/otp/{id}/revoke", "/otp/{id}/revoke")], [7]),
    "allowed_recipients": (
        [("a@b.com, +234", ("a@b.com", "+234")), (["a@b.com", 234], ("a@b.com", "234")), ([], ()), (" , ", ())],
        [5, {"a": 1}, [["nested"]]],
    ),
    "insufficient_balance_words": (
        [("no money, Empty ", ("no money", "Empty")), (["no money"], ("no money",)), ([], ())],
        [5, {"a": 1}, [["nested"]]],
    ),
    "sender_id": (WORD, [5]),
    "email_sender_id": (WORD, [["a"]]),
    "recipients_per_request": (WHOLE, [0, "all", 1.5]),
    "placeholder_format": ([("%name%", "%name%")], [5]),
    "row_updates": ([("partial", "partial"), ("whole", "whole")], [5, "all", True]),
    "callback_secret": ([("one, two", ("one", "two")), (["one", "two"], ("one", "two"))], [5, {"a": 1}, [["nested"]]]),
    "callback_url": (
        [
            ("https://airflow.example.com/cpaas", "https://airflow.example.com/cpaas"),
            (" http://127.0.0.1:8099/cpaas/ ", "http://127.0.0.1:8099/cpaas"),
            ("https://airflow.example.com", "https://airflow.example.com"),
        ],
        [
            5, "airflow.example.com/cpaas", "ftp://airflow.example.com", "https://", "https:///cpaas", "http://a:b/",
            "https://example.com/a b", "https://example.com/?key=1", "https://example.com/#part", "https://exämple.com",
            "https://[::1", "https://exam\nple.com/",
        ],
    ),
    "webhook_secret": (WORD, [5, ["some"]]),
    "signature_header": ([("X-Signature", "X-Signature"), (" x_sig ", "x_sig")], [5, "X Signature", "x:y", "-", "ö"]),
}  # fmt: skip
FOR_OPERATORS = {
    "sender_id": None,
    "email_sender_id": None,
    "recipients_per_request": 500,
    "placeholder_format": "{name}",
    "row_updates": "partial",
    "callback_secret": (),
    "callback_url": None,
    "webhook_secret": None,
    "signature_header": None,
    "share_rate_limit": False,
    "daily_budget": None,
    "monthly_budget": None,
    "budget_timezone": "UTC",
    "price_per_message": None,
    "price_per_passcode": None,
    "price_per_lookup": None,
}


def value_of(one: CpaasConnection, name: str) -> Any:
    return getattr(one, name) if name in FOR_OPERATORS else one.options.get(name)


class TestExtras:
    def test_every_field_of_the_form_is_in_this_table(self) -> None:
        assert set(EXTRAS) == set(CONNECTION_FIELDS)

    @pytest.mark.parametrize(
        ("name", "given", "meant"), [(n, g, m) for n, (good, _) in EXTRAS.items() for g, m in good]
    )
    def test_valid_extra_is_read(self, name: str, given: Any, meant: Any) -> None:
        found = value_of(read({name: given}), name)
        assert (found, type(found)) == (meant, type(meant))

    @pytest.mark.parametrize(("name", "given"), [(name, value) for name, (_, bad) in EXTRAS.items() for value in bad])
    def test_invalid_extra_is_refused_by_name(self, name: str, given: Any) -> None:
        with pytest.raises(CpaasConfigurationError, match=rf"^Connection '\w+': the extra {name} must be .+\.$"):
            read({name: given})

    @pytest.mark.parametrize(
        ("name", "empty"),
        [(name, empty) for name in EXTRAS for empty in ("", None) if (name, empty) != ("auth_scheme", "")],
    )
    def test_empty_extra_counts_as_absent(self, name: str, empty: str | None) -> None:
        one = read({name: empty})
        assert value_of(one, name) == FOR_OPERATORS.get(name)
        assert name not in one.options

    def test_empty_auth_scheme_sends_the_raw_key(self) -> None:
        one = read({"auth_scheme": ""})
        with CpaasClient(one.base_url, one.api_key, **one.options) as client:
            assert client.settings.authorization == KEY

    def test_unknown_extras_are_named_without_their_values_and_go_nowhere(
        self, caplog: pytest.LogCaptureFixture
    ) -> None:
        with caplog.at_level(logging.WARNING):
            one = read({"requests_per_secnd": "secret-value", "base_url": "https://elsewhere.example.com"})
        assert "base_url" in caplog.text
        assert "requests_per_secnd" in caplog.text
        assert "secret-value" not in caplog.text
        assert one.options == {}
        assert one.base_url == "https://api.example.com/v1"

    @pytest.mark.parametrize("extra", ["not json", "[1]", '"text"', "5"])
    def test_extra_that_is_no_json_object_is_refused(self, extra: str) -> None:
        with pytest.raises(CpaasConfigurationError, match="'cpaas_tested' is not a JSON object"):
            read(extra)

    @pytest.mark.parametrize("extra", [None, "", "{}"])
    def test_missing_extra_gives_the_defaults(self, extra: str | None) -> None:
        one = read(extra)
        assert one.options == {}
        assert {name: getattr(one, name) for name in FOR_OPERATORS} == FOR_OPERATORS

    @pytest.mark.parametrize(
        "extra",
        [
            {"requests_per_second": 0},
            {"timeout": -1},
            {"default_region": "Nigeria"},
            {"otp_revoke_path": "otp"},
            {"allowed_recipients": "nobody"},
            {"proxy": "proxy"},
            {"proxy": "http://ada:hunter22@proxy.example.com"},
            {"verify": "/no/such/bundle.pem"},
            {"client_cert": "/no/such/client.pem"},
            {"client_key": "/no/such/client.key"},
        ],
    )
    def test_extra_that_only_the_client_checks_is_refused_by_name(self, extra: dict[str, Any]) -> None:
        one = read(extra)
        with pytest.raises(CpaasConfigurationError, match=next(iter(extra))):
            CpaasClient(one.base_url, one.api_key, **one.options)


class TestJournalSecrets:
    def test_api_key_is_the_secret_without_a_callback_secret(self) -> None:
        assert read().hash_secrets == (KEY,)

    def test_callback_secret_comes_before_the_api_key(self) -> None:
        assert read({"callback_secret": "of-callbacks"}).hash_secrets == ("of-callbacks", KEY)

    def test_while_it_is_changed_the_new_one_comes_first_and_the_old_one_still_opens(self) -> None:
        assert read({"callback_secret": "new, old"}).hash_secrets == ("new", "old", KEY)


LONG = "a long secret of callbacks"
SHORT = "short-4711"
UNSET = ["callback_secret is not set, so the API key signs callback URLs."]
FORGED = "shorter than 16 characters, so reports could be forged by guessing it."
SHORT_CALLBACK = [f"callback_secret has a secret that is {FORGED}"]
SHORT_WEBHOOK = [f"webhook_secret is {FORGED}"]
WITH_URL = {"callback_url": "https://airflow.example.com/cpaas"}


class TestWeakSecrets:
    @pytest.mark.parametrize(
        ("extra", "faults"),
        [
            ({}, []),
            (WITH_URL, UNSET),
            ({**WITH_URL, "callback_secret": " , "}, UNSET),
            ({**WITH_URL, "callback_secret": LONG}, []),
            ({**WITH_URL, "callback_secret": "x" * 16}, []),
            ({**WITH_URL, "callback_secret": "x" * 15}, SHORT_CALLBACK),
            ({**WITH_URL, "callback_secret": f"{LONG},{SHORT}"}, SHORT_CALLBACK),
            ({**WITH_URL, "callback_secret": [SHORT, LONG]}, SHORT_CALLBACK),
            ({"callback_secret": SHORT}, SHORT_CALLBACK),
            ({"webhook_secret": SHORT}, SHORT_WEBHOOK),
            ({"webhook_secret": LONG}, []),
            ({**WITH_URL, "webhook_secret": SHORT}, UNSET + SHORT_WEBHOOK),
            ({**WITH_URL, "callback_secret": SHORT, "webhook_secret": SHORT}, SHORT_CALLBACK + SHORT_WEBHOOK),
        ],
    )
    def test_each_secret_is_judged(self, extra: dict[str, Any], faults: list[str]) -> None:
        found = read(extra).weak_secrets()
        assert [fault for fault, _ in found] == faults
        assert all(advice.endswith(".") for _, advice in found)
        assert SHORT not in str(found)

    def test_warning_is_logged_once_for_a_connection(self, caplog: pytest.LogCaptureFixture) -> None:
        for conn_id in ("cpaas_weak", "cpaas_weak_too"):
            for _ in range(3):
                weak = read_connection(Connection(conn_id=conn_id, conn_type="cpaas", host="x", extra=WEAK))
                weak.warn_of_weak_secrets()
        assert [record.getMessage().partition(" has")[0] for record in caplog.records] == [
            f"Connection '{conn_id}': callback_secret" for conn_id in ("cpaas_weak", "cpaas_weak_too")
        ]
        assert SHORT not in caplog.text


WEAK = json.dumps({**WITH_URL, "callback_secret": SHORT})


class TestSecrets:
    def test_repr_shows_neither_key_nor_proxy_password(self) -> None:
        assert KEY not in repr(read({"proxy_password": "hunter22"}))
        assert "hunter22" not in repr(read({"proxy_password": "hunter22"}))

    @pytest.mark.parametrize("name", ["callback_secret", "webhook_secret"])
    def test_neither_are_the_receiver_s_secrets(self, name: str) -> None:
        assert "of-callbacks" not in repr(read({name: "of-callbacks"}))

    def test_traceback_shows_no_field(self) -> None:
        extra = {name: f"of-{name}" for name in ("callback_secret", "webhook_secret", "proxy_password")}
        shown = pretty_repr(read(extra))
        assert KEY not in shown
        assert "of-" not in shown

    def test_repr_shows_no_password_of_the_host(self) -> None:
        assert "hunter22" not in repr(read(host="https://user:hunter22@api.example.com"))

    @pytest.mark.parametrize("password", [None, "", "   "])
    def test_missing_key_is_an_error_that_names_the_password_field(self, password: str | None) -> None:
        one = read(password=password)
        with pytest.raises(CpaasConfigurationError, match="password of the connection"):
            CpaasClient(one.base_url, one.api_key)
