"""Processes that send until the budget of their connection is reached: ``python -m tests.airflow.account.spending``.

Its arguments are the number of processes, the address and key of the service, the budget of a day, and how many
messages each sends at most. Each writes a line with how many it sent.
"""

from __future__ import annotations

import asyncio
import sys

from cpaas_provider.api.errors import CpaasBudgetReachedError
from cpaas_provider.database import database as database  # loaded before the fork
from cpaas_provider.hooks._account import budget as budget  # as above
from cpaas_provider.hooks.connection import CpaasConnection
from tests.forking import run_forked


async def main(url: str, api_key: str, daily_budget: str, count: str) -> None:
    options = {"requests_per_second": 1000.0, "timeout": 60.0}
    connection = CpaasConnection(url, api_key, options, daily_budget=float(daily_budget), conn_id="busy")  # type: ignore[arg-type]
    async with connection.make_async_client() as client:
        sends = (client.send_sms(["+2348031234567"], sender_id="Shop", content="Hello") for _ in range(int(count)))
        ends = await asyncio.gather(*sends, return_exceptions=True)
    errors = [end for end in ends if isinstance(end, BaseException)]
    unexpected = [error for error in errors if not isinstance(error, CpaasBudgetReachedError)]
    if unexpected:
        raise unexpected[0]
    print(len(ends) - len(errors))


if __name__ == "__main__":
    run_forked(int(sys.argv[1]), lambda: asyncio.run(main(*sys.argv[2:])))
