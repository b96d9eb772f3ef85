"""A process that sends until the budget of its connection is reached: ``python -m tests.airflow.account.spending``.

Its arguments are the address and key of the service, the budget of a day, and how many messages it sends at most. Its
last line has how many it sent.
"""

from __future__ import annotations

import asyncio
import sys

from cpaas_provider.api.errors import CpaasBudgetReachedError
from cpaas_provider.hooks.connection import CpaasConnection


async def main(url: str, api_key: str, budget: str, count: str) -> None:
    options = {"requests_per_second": 1000.0, "timeout": 60.0}
    connection = CpaasConnection(url, api_key, options, daily_budget=float(budget), conn_id="busy")  # type: ignore[arg-type]
    async with connection.make_async_client() as client:
        sends = (client.send_sms(["+2348031234567"], sender_id="Shop", content="Hello") for _ in range(int(count)))
        ends = await asyncio.gather(*sends, return_exceptions=True)
    errors = [end for end in ends if isinstance(end, BaseException)]
    unexpected = [error for error in errors if not isinstance(error, CpaasBudgetReachedError)]
    if unexpected:
        raise unexpected[0]
    print(len(ends) - len(errors))


if __name__ == "__main__":
    asyncio.run(main(*sys.argv[1:]))
