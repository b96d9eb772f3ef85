"""A process that sends at a shared rate limit: ``python -m tests.unit.database.rate_limited``.

Its arguments are the address and key of the service, the database, the limit, and how many requests it makes. It says
when it is ready, and begins once it reads a line.
"""

from __future__ import annotations

import asyncio
import sys

from cpaas_provider.api.client import AsyncCpaasClient
from cpaas_provider.hooks._rate_limit.limiter import SharedRateLimiter
from cpaas_provider.hooks._rate_limit.stored import StoredReservations

AT_ONCE = 4


async def main(url: str, api_key: str, database: str, per_second: str, count: str) -> None:
    limiter = SharedRateLimiter(float(per_second), StoredReservations("shared", database), "connection 'shared'")
    async with AsyncCpaasClient(url, api_key, rate_limiter=limiter, max_concurrency=AT_ONCE, timeout=60) as client:
        print("ready", flush=True)
        await asyncio.to_thread(sys.stdin.readline)
        sends = (client.send_sms(["+2348031234567"], sender_id="Shop", content="Hello") for _ in range(int(count)))
        await asyncio.gather(*sends)


if __name__ == "__main__":
    asyncio.run(main(*sys.argv[1:]))
