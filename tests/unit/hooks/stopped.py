"""Processes that send until their connection is stopped: ``python -m tests.unit.hooks.stopped``.

Its arguments are the number of processes, and the address and key of the service. Each writes when it has sent, and at
the end how often, and why no more.
"""

from __future__ import annotations

import asyncio
import itertools
import sys

from cpaas_provider.api.errors import CpaasConnectionStoppedError
from cpaas_provider.database import database as database  # loaded before the fork
from cpaas_provider.hooks._account import guard as guard  # as above
from cpaas_provider.hooks.connection import CpaasConnection
from tests.forking import run_forked


def write_line(text: str) -> None:
    """Write a line at once: the processes share the output, and an unbuffered ``print`` writes the line end apart."""
    print(f"{text}\n", end="", flush=True)


async def main(url: str, api_key: str) -> None:
    sent = 0
    async with CpaasConnection(
        url, api_key, {"requests_per_second": 40.0}, conn_id="busy"
    ).make_async_client() as client:
        try:
            for number in itertools.count():
                await client.send_sms(["+2348031234567"], sender_id="Shop", content=str(number))
                sent += 1
                if sent == 1:
                    write_line("sending")
        except CpaasConnectionStoppedError as error:
            write_line(f"{sent} {error}")


if __name__ == "__main__":
    run_forked(int(sys.argv[1]), lambda: asyncio.run(main(*sys.argv[2:])))
