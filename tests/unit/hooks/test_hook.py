"""CpaasHook: clients from a connection, and a test of the connection that costs and changes nothing."""

from __future__ import annotations

import json
import logging
from collections.abc import Callable
from typing import Any

import pytest

from cpaas_provider.api import AsyncCpaasClient, CpaasClient, CpaasInvalidRequestError, core
from cpaas_provider.hooks.cpaas import CpaasHook
from tests.airflow.harness.fixed_response import fixed_response_server
from tests.ports import closed_port
from tests.sandbox import Sandbox
from tests.unit.api.loopback import Loopback, answering

Connect = Callable[..., CpaasHook]


@pytest.fixture
def connect(sandbox: Sandbox, monkeypatch: pytest.MonkeyPatch) -> Connect:
    """Return a hook whose connection leads to the service, but for what is given."""
    monkeypatch.setattr(core, "_FIRST_BACKOFF", 0.001)

    def connected(extra: dict[str, Any] | None = None, **fields: Any) -> CpaasHook:
        given = {**sandbox.connection, **fields, "extra": {"timeout": 1, **(extra or {})}}
        monkeypatch.setenv("AIRFLOW_CONN_CPAAS_HOOK", json.dumps(given))
        return CpaasHook("cpaas_hook")

    return connected


async def checked(hook: CpaasHook) -> tuple[bool, str]:
    """Test a connection both ways; they agree."""
    result = hook.test_connection()
    assert await CpaasHook(hook.cpaas_conn_id).atest_connection() == result
    return result


class TestClients:
    def test_client_has_the_settings_of_the_connection(self, connect: Connect) -> None:
        with connect({"requests_per_second": "3", "default_region": "GH"}).get_conn() as client:
            assert isinstance(client, CpaasClient)
            assert (client.settings.requests_per_second, client.settings.default_region) == (3.0, "GH")

    def test_client_refuses_recipients_that_are_not_allowed(self, connect: Connect, sandbox: Sandbox) -> None:
        with connect({"allowed_recipients": "+2348035550101"}).get_conn() as client:
            client.send_sms(["+2348035550101"], sender_id="Example", content="Hello")
            with pytest.raises(CpaasInvalidRequestError, match="1 of 2 recipients are not in allowed_recipients"):
                client.send_sms(["+2348035550101", "+2348035550102"], sender_id="Example", content="Hello")
        assert sandbox.counters()["requests"]["send_sms"] == 1

    def test_hook_makes_one_client_until_it_is_closed(self, connect: Connect) -> None:
        hook = connect()
        first = hook.get_conn()
        assert hook.get_conn() is first
        first.close()
        with hook.get_conn() as second:
            assert second is not first
            assert second.get_contact_table().columns

    async def test_asynchronous_client_reads_the_contact_table(self, connect: Connect) -> None:
        async with await connect().get_async_conn() as client:
            assert isinstance(client, AsyncCpaasClient)
            assert (await client.get_contact_table()).columns


class TestConnectionTest:
    async def test_valid_connection_is_confirmed_with_its_contact_table(
        self, connect: Connect, sandbox: Sandbox
    ) -> None:
        works, words = await checked(connect())
        assert works
        assert words == f"Connected to {sandbox.url}. The API key is accepted. The contact table has 8 columns."

    async def test_connection_test_costs_and_changes_nothing(self, connect: Connect, sandbox: Sandbox) -> None:
        await checked(connect())
        counters = sandbox.counters()
        assert counters["accepted"] == {"get_contact_table": 2}
        assert counters["charged"] == 0

    async def test_wrong_key_is_named_without_being_shown(self, connect: Connect) -> None:
        works, words = await checked(connect(password="sk_wrong"))
        assert not works
        assert words.startswith("Wrong API key: the host responds and rejects it (HTTP 401).")
        assert "sk_wrong" not in words

    async def test_missing_key_is_named(self, connect: Connect) -> None:
        works, words = await checked(connect(password=""))
        assert not works
        assert "API key is empty" in words

    async def test_weak_secrets_are_named_and_not_shown(self, connect: Connect) -> None:
        works, words = await checked(
            connect(
                {"callback_url": "https://airflow.example.com", "callback_secret": "a long enough secret, hunter22"}
            )
        )
        assert works
        assert "The contact table has 8 columns. Warning: callback_secret has a secret that is shorter than 16" in words
        assert "hunter22" not in words
        works, words = await checked(connect({"callback_url": "https://airflow.example.com"}))
        assert works
        assert "Warning: callback_secret is not set, so the API key signs callback URLs." in words

    async def test_proxy_with_its_password_in_the_url(self, connect: Connect, caplog: pytest.LogCaptureFixture) -> None:
        caplog.set_level(logging.DEBUG)
        works, words = await checked(connect({"proxy": "http://ada:hunter22@127.0.0.1:9"}))
        assert not works
        assert "set proxy_password" in words
        assert "hunter22" not in words + caplog.text

    @pytest.mark.parametrize("status", [200, 403, 407])
    async def test_password_of_a_proxy_in_the_environment_is_shown_nowhere(
        self, connect: Connect, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture, status: int
    ) -> None:
        caplog.set_level(logging.DEBUG)
        for name in ("no_proxy", "NO_PROXY"):
            monkeypatch.delenv(name, raising=False)
        with Loopback(answering(status)) as proxy:
            for name in ("https_proxy", "HTTPS_PROXY"):
                monkeypatch.setenv(name, proxy.url.replace("//", "//ada:hunter22@"))
            works, words = await checked(hook := connect(host="https://cpaas.invalid"))
        assert not works
        assert {seen.headers["proxy-authorization"] for seen in proxy.seen} == {"Basic YWRhOmh1bnRlcjIy"}
        shown = words + caplog.text + repr(hook.get_connection_settings()) + repr(hook.get_conn().settings)
        for secret in ("hunter22", "YWRhOmh1bnRlcjIy"):
            assert secret not in shown

    async def test_closed_port_is_no_connection_to_the_host(self, connect: Connect) -> None:
        with closed_port() as url:
            works, words = await checked(connect(host=url))
        assert not works
        assert words.startswith("No connection to the host: ")

    async def test_unknown_host_is_no_connection_to_the_host(self, connect: Connect) -> None:
        works, words = await checked(connect(host="https://cpaas.invalid"))
        assert not works
        assert words.startswith("No connection to the host: ")

    async def test_plain_http_to_elsewhere(self, connect: Connect) -> None:
        works, words = await checked(connect(host="http://api.example.com"))
        assert not works
        assert "allow_http" in words

    @pytest.mark.parametrize(
        ("status", "body", "headers"),
        [
            (404, b"", {}),
            (404, b"<html>not here</html>", {"Content_Type": "text/html"}),
            (200, b"<html>Welcome</html>", {"Content_Type": "text/html"}),
            (200, b'{"hello": "world"}', {}),
            (301, b"", {"Location": "https://elsewhere.example.com/"}),
            (307, b'{"status": 307, "message": "moved"}', {"Location": "https://elsewhere.example.com/"}),
        ],
    )
    async def test_server_that_is_not_the_service_is_a_wrong_path(
        self, connect: Connect, status: int, body: bytes, headers: dict[str, str]
    ) -> None:
        with fixed_response_server(status, body, **headers) as url:
            works, words = await checked(connect(host=url))
        assert not works
        assert words.startswith("Wrong path: a server responds, but not as the service at this base URL.")

    async def test_superfluous_path_is_a_wrong_path(self, connect: Connect, sandbox: Sandbox) -> None:
        works, words = await checked(connect(host=f"{sandbox.url}/v9"))
        assert not works
        assert words.startswith("Wrong path: ")

    @pytest.mark.parametrize(
        ("kind", "params", "words"),
        [
            ("rate_limit", {"retry_after": 300}, "The host responds, but accepts requests only later (HTTP 429)."),
            ("unavailable", {"retry_after": 300}, "The host responds, but accepts requests only later (HTTP 503)."),
            ("error_500", {}, "A server responds, but not with the contact table: "),
            ("cut_before", {}, "A server is reachable, but it sent no response: "),
            ("latency", {"ms": 3000}, "A server is reachable, but it sent no response: "),
        ],
    )
    async def test_failing_service_is_described_by_its_failure(
        self, connect: Connect, sandbox: Sandbox, kind: str, params: dict[str, Any], words: str
    ) -> None:
        sandbox.control("POST", "faults", {"operation": "get_contact_table", "kind": kind, **params})
        works, told = await checked(connect({"timeout": 0.5} if kind == "latency" else {}))
        assert not works
        assert told.startswith(words)

    async def test_invalid_extra_is_named(self, connect: Connect) -> None:
        works, words = await checked(connect({"max_concurrency": "many"}))
        assert not works
        assert "max_concurrency" in words
