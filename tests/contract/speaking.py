"""Speaks every operation of the service through the client, sync or async, in the same words."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from cpaas_provider.api import AsyncCpaasClient, CpaasClient
from tests.sandbox import Sandbox

PHONE = "2348031234567"
ADDRESS = "ada@example.com"
SENDER = "shop@example.com"


class Speaker:
    """Carries out one operation at a time with a client of its own kind."""

    def __init__(self, sandbox: Sandbox, kind: str, **options: Any) -> None:
        self.sandbox = sandbox
        self.kind = kind
        defaults = {"requests_per_second": 10_000, "timeout": 2.0}
        self.options = {**defaults, **options}
        self.api_key = sandbox.api_key

    def __call__(self, operation: str, *args: Any, **kwargs: Any) -> Any:
        if self.kind == "sync":
            with CpaasClient(self.sandbox.url, self.api_key, **self.options) as client:
                return getattr(client, operation)(*args, **kwargs)
        return asyncio.run(self._speak(operation, *args, **kwargs))

    async def _speak(self, operation: str, *args: Any, **kwargs: Any) -> Any:
        async with AsyncCpaasClient(self.sandbox.url, self.api_key, **self.options) as client:
            return await getattr(client, operation)(*args, **kwargs)

    def first_column(self) -> str:
        return str(self("get_contact_table").columns[0].id)

    def new_row(self) -> str:
        return str(self("create_contact_row", {self.first_column(): "Ada"}).row.id)

    def new_otp(self) -> str:
        return str(self("request_otp", PHONE).id)

    def code(self) -> str:
        return str(self.sandbox.inbox("otp")["items"][0]["code"])


Prepared = tuple[tuple[Any, ...], dict[str, Any]]


@dataclass(frozen=True)
class Operation:
    """An operation, how to prepare a request for it that succeeds, and what it does to the world."""

    name: str
    prepare: Callable[[Speaker], Prepared]
    repeatable: bool
    """Whether an unknown outcome may be repeated."""

    def __str__(self) -> str:
        return self.name


def _call(*args: Any, **kwargs: Any) -> Prepared:
    return args, kwargs


def _verifiable(speaker: Speaker) -> Prepared:
    otp_id = speaker.new_otp()
    return _call(id=otp_id, token=speaker.code())


def _findable(speaker: Speaker) -> Prepared:
    speaker.new_otp()
    return _call(PHONE)


OPERATIONS = (
    Operation("send_sms", lambda _: _call([PHONE], "ACME", "Hello"), repeatable=False),
    Operation("send_email", lambda _: _call(ADDRESS, SENDER, "Hello", subject="Hi"), repeatable=False),
    Operation("request_otp", lambda _: _call(PHONE, length=6), repeatable=False),
    Operation("verify_otp", _verifiable, repeatable=False),
    Operation("get_otp", lambda speaker: _call(speaker.new_otp()), repeatable=True),
    Operation("find_otps", _findable, repeatable=True),
    Operation("revoke_otp", lambda speaker: _call(speaker.new_otp()), repeatable=True),
    Operation("buy_airtime", lambda _: _call("MTN", 100, PHONE), repeatable=False),
    Operation("get_contact_table", lambda _: _call(), repeatable=True),
    Operation("get_contact_row", lambda speaker: _call(speaker.new_row()), repeatable=True),
    Operation("create_contact_row", lambda speaker: _call({speaker.first_column(): "Ada"}), repeatable=False),
    Operation(
        "update_contact_row",
        lambda speaker: _call(speaker.new_row(), {speaker.first_column(): "Bea"}),
        repeatable=True,
    ),
    Operation("delete_contact_row", lambda speaker: _call(speaker.new_row()), repeatable=True),
    Operation("lookup_phone", lambda _: _call(PHONE), repeatable=True),
)
