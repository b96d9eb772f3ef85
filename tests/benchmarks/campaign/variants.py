"""What a campaign is measured against, each in a process of its own.

python -m tests.benchmarks.campaign.variants NAME URL REQUESTS IN_FLIGHT RECIPIENTS_PER_REQUEST
"""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Awaitable, Callable
from typing import Any, Protocol

from tests.benchmarks.campaign.recipients import phones

CONTENT = "Hello"
PERSONAL_CONTENT = "Hello {name}"
SENDER_ID = "Shop"
API_KEY = "sk_bench"
# Far above what one machine can do.
NO_LIMIT = 1e6


class Variant(Protocol):
    """One way to have a number of requests sent."""

    def run(self, server_url: str, requests: int, in_flight: int, recipients_per_request: int) -> None: ...


class LoopWithOneClient:
    """``send_sms`` of one client, one call after the other: what a loop in a ``@task`` does."""

    def run(self, server_url: str, requests: int, in_flight: int, recipients_per_request: int) -> None:
        from cpaas_provider.api import CpaasClient

        with CpaasClient(server_url, API_KEY, requests_per_second=NO_LIMIT) as client:
            for number in range(requests):
                recipients = phones(recipients_per_request, number * recipients_per_request)
                client.send_sms(recipients, SENDER_ID, CONTENT)


class HttpProvidersOperator:
    """``HttpOperator`` of the http provider, executed one after the other.

    Mapped over tasks it would wait for the scheduler and a new process each time as well; that is not counted here.
    """

    def run(self, server_url: str, requests: int, in_flight: int, recipients_per_request: int) -> None:
        import json
        import os

        from tests.airflow_home import move_in

        move_in()
        connection = {"conn_type": "http", "host": server_url, "password": API_KEY}
        os.environ["AIRFLOW_CONN_HTTP_DEFAULT"] = json.dumps(connection)

        from airflow.providers.http.operators.http import HttpOperator

        context: Any = {}
        for number in range(requests):
            recipients = ",".join(phones(recipients_per_request, number * recipients_per_request))
            HttpOperator(
                task_id="send",
                endpoint="sms/send",
                method="POST",
                headers={"Content-Type": "application/json", "Authorization": f"Bearer {API_KEY}"},
                data=json.dumps({"recipients": recipients, "sender_id": SENDER_ID, "content": CONTENT}),
                # As basic authentication the key would be lost: the header holds it.
                auth_type=lambda *_: None,
            ).execute(context)


class BareAiohttp:
    """aiohttp with one body made and one answer read a request, and nothing checked: the measure for our client."""

    def run(self, server_url: str, requests: int, in_flight: int, recipients_per_request: int) -> None:
        asyncio.run(self._run(server_url, requests, in_flight, recipients_per_request))

    async def _run(self, server_url: str, requests: int, in_flight: int, recipients_per_request: int) -> None:
        import json

        import aiohttp

        async def send(number: int) -> None:
            recipients = ",".join(phones(recipients_per_request, number * recipients_per_request))
            body = {"recipients": recipients, "sender_id": SENDER_ID, "content": CONTENT}
            async with session.post(f"{server_url}/sms/send", json=body) as response:
                if response.status != 200 or not json.loads(await response.read())["id"]:
                    raise RuntimeError(f"The bare server did not accept a request: {response.status}")

        headers = {"Authorization": f"Bearer {API_KEY}"}
        async with aiohttp.ClientSession(headers=headers, connector=aiohttp.TCPConnector(limit=in_flight)) as session:
            await _in_flight(in_flight, requests, send)


class OurClient:
    """``send_sms`` of our asynchronous client, for others each time."""

    def run(self, server_url: str, requests: int, in_flight: int, recipients_per_request: int) -> None:
        asyncio.run(self._run(server_url, requests, in_flight, recipients_per_request))

    async def _run(self, server_url: str, requests: int, in_flight: int, recipients_per_request: int) -> None:
        from cpaas_provider.api import AsyncCpaasClient

        async def send(number: int) -> None:
            recipients = phones(recipients_per_request, number * recipients_per_request)
            await client.send_sms(recipients, SENDER_ID, CONTENT)

        async with AsyncCpaasClient(
            server_url, API_KEY, requests_per_second=NO_LIMIT, max_concurrency=in_flight
        ) as client:
            await _in_flight(in_flight, requests, send)


class PersonalClient:
    """The same client with the very requests of the campaign: a text with a placeholder, its values and a reference."""

    def run(self, server_url: str, requests: int, in_flight: int, recipients_per_request: int) -> None:
        asyncio.run(self._run(server_url, requests, in_flight, recipients_per_request))

    async def _run(self, server_url: str, requests: int, in_flight: int, recipients_per_request: int) -> None:
        from cpaas_provider.api import AsyncCpaasClient

        async def send(number: int) -> None:
            recipients = phones(recipients_per_request, number * recipients_per_request)
            own = [{"to": one, "substitutions": {"name": f"Person {number:07}"}} for one in recipients]
            reference = f"cpaas-{number:024}"
            await client.send_sms(recipients, SENDER_ID, PERSONAL_CONTENT, personalisation=own, external_ref=reference)

        async with AsyncCpaasClient(
            server_url, API_KEY, requests_per_second=NO_LIMIT, max_concurrency=in_flight
        ) as client:
            await _in_flight(in_flight, requests, send)


class BareTransport:
    """The transport beneath our clients, given one finished request again and again: nothing can be faster on it."""

    def run(self, server_url: str, requests: int, in_flight: int, recipients_per_request: int) -> None:
        asyncio.run(self._run(server_url, requests, in_flight, recipients_per_request))

    async def _run(self, server_url: str, requests: int, in_flight: int, recipients_per_request: int) -> None:
        from cpaas_provider.api.http.transport import AsyncTransport
        from cpaas_provider.api.http.wire import HttpResponse
        from cpaas_provider.api.operations import send_sms
        from cpaas_provider.api.settings import ClientSettings

        settings = ClientSettings(server_url, API_KEY, requests_per_second=NO_LIMIT, max_concurrency=in_flight)
        request = send_sms(phones(recipients_per_request), SENDER_ID, CONTENT).build(settings)[0]
        transport = AsyncTransport(settings)

        async def send(_: int) -> None:
            answer = await transport.send(request)
            if not isinstance(answer, HttpResponse) or answer.status != 200:
                raise RuntimeError(f"The bare server did not accept a request: {answer}")

        try:
            await _in_flight(in_flight, requests, send)
        finally:
            await transport.aclose()


async def _in_flight(in_flight: int, requests: int, send: Callable[[int], Awaitable[None]]) -> None:
    """Send so many requests, so many at a time."""
    left = iter(range(requests))

    async def one_after_the_other() -> None:
        for number in left:
            await send(number)

    async with asyncio.TaskGroup() as group:
        for _ in range(in_flight):
            group.create_task(one_after_the_other())


VARIANTS: dict[str, type[Variant]] = {
    "loop": LoopWithOneClient,
    "http": HttpProvidersOperator,
    "aiohttp": BareAiohttp,
    "transport": BareTransport,
    "client": OurClient,
    "personal": PersonalClient,
}


def main() -> None:
    name, url, *numbers = sys.argv[1:]
    VARIANTS[name]().run(url, *map(int, numbers))


if __name__ == "__main__":
    main()
