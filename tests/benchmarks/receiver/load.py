"""Sends reports over raw sockets: ``python -m tests.benchmarks.receiver.load PORT PATHS CONNECTIONS SECONDS RATE KIND``

As fast as they are answered, or at a fixed rate, where a report that has to wait for its turn is late from then on.
Prints what was answered and how long it took, as JSON.
"""

from __future__ import annotations

import asyncio
import json
import sys
import time
from collections import Counter, deque
from collections.abc import Callable
from itertools import count
from pathlib import Path

from tests.benchmarks.receiver.bodies import BODIES

MakeBody = Callable[[int], tuple[str, str]]

_REQUEST = (
    "POST {path} HTTP/1.1\r\nHost: bench\r\nContent-Type: application/json\r\n{headers}Content-Length: {length}\r\n\r\n"
    "{body}"
)
_DRAIN_ROUNDS = 400


class Load:
    """What is sent, and what came of it."""

    def __init__(self, paths: list[str], rate: float, seconds: float, first: int, make_body: MakeBody) -> None:
        self.statuses: Counter[int] = Counter()
        self.took: list[float] = []
        self._paths = paths
        self._numbers = count(first)
        self._make_body = make_body
        self._rate = rate
        self._free: deque[Sender] = deque()
        self._due: deque[float] = deque()
        self.over = time.perf_counter() + seconds

    def is_free(self, sender: Sender) -> None:
        """Give a connection its next report, if one is due."""
        if self._rate:
            if self._due:
                sender.send(self._request(), self._due.popleft())
            else:
                self._free.append(sender)
        elif time.perf_counter() < self.over:
            sender.send(self._request(), time.perf_counter())

    async def keep_pace(self) -> None:
        """Have so many sent a second, whoever is free."""
        begun, made = time.perf_counter(), 0
        while (now := time.perf_counter()) < self.over:
            while made < (now - begun) * self._rate:
                due = begun + made / self._rate
                made += 1
                if self._free:
                    self._free.popleft().send(self._request(), due)
                else:
                    self._due.append(due)
            await asyncio.sleep(0.001)

    def _request(self) -> bytes:
        number = next(self._numbers)
        body, headers = self._make_body(number)
        path = self._paths[number % len(self._paths)]
        return _REQUEST.format(path=path, headers=headers, length=len(body), body=body).encode()


class Sender(asyncio.Protocol):
    """One connection, with one report on its way at a time."""

    def __init__(self, load: Load) -> None:
        self._load = load
        self._answer = b""
        self.busy = False

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = transport
        self._load.is_free(self)

    def send(self, request: bytes, due: float) -> None:
        self.busy, self._due = True, due
        self._transport.write(request)  # type: ignore[attr-defined]

    def data_received(self, data: bytes) -> None:
        self._answer += data
        head, end, body = self._answer.partition(b"\r\n\r\n")
        length = head.lower().partition(b"content-length:")[2].split(b"\r\n")[0]
        if not end or len(body) < int(length):
            return
        self.busy, self._answer = False, b""
        self._load.took.append(time.perf_counter() - self._due)
        self._load.statuses[int(head[9:12])] += 1
        self._load.is_free(self)


async def run(
    port: int, paths: list[str], connections: int, seconds: float, rate: float, make_body: MakeBody
) -> dict[str, object]:
    load = Load(paths, rate, seconds, time.time_ns() // 1_000_000 % 50_000_000, make_body)
    loop = asyncio.get_running_loop()
    begun = time.perf_counter()
    senders = [(await loop.create_connection(lambda: Sender(load), "127.0.0.1", port))[1] for _ in range(connections)]
    if rate:
        await load.keep_pace()
    else:
        await asyncio.sleep(load.over - time.perf_counter())
    lasted = time.perf_counter() - begun
    answered = len(load.took)
    for _ in range(_DRAIN_ROUNDS):
        if any(sender.busy for sender in senders):
            await asyncio.sleep(0.05)
    took = sorted(load.took) or [0.0]
    return {
        "rate": answered / lasted,
        "p50": took[len(took) // 2],
        "p99": took[min(len(took) - 1, int(len(took) * 0.99))],
        "statuses": load.statuses,
        "left": sum(sender.busy for sender in senders),
    }


if __name__ == "__main__":
    port, paths, connections, seconds, rate, kind = sys.argv[1:]
    lines = Path(paths).read_text().splitlines()
    made = run(int(port), lines, int(connections), float(seconds), float(rate), BODIES[kind])
    print(json.dumps(asyncio.run(made)))
