"""Sends reports over raw sockets: ``python -m tests.benchmarks.receiver.load PORT PATHS CONNECTIONS SECONDS RATE KIND``

As fast as they are answered, or at a fixed rate, where a report that has to wait for its turn is late from then on.
Prints what was answered and how long it took, as JSON.

It shares the machine with the receiver, so it takes as little of it as Python can: no event loop, no streams.
"""

from __future__ import annotations

import json
import selectors
import socket
import sys
import time
from collections import Counter, deque
from collections.abc import Callable
from itertools import count
from pathlib import Path

from tests.benchmarks.receiver.bodies import BODIES

MakeBody = Callable[[int], tuple[str, str]]

_DRAIN_SECONDS = 20.0
_MOST_READ = 65_536


class Sender:
    """One connection, with one report on its way at a time."""

    def __init__(self, port: int) -> None:
        self._socket = socket.create_connection(("127.0.0.1", port))
        self._socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self._answer = b""
        self._due = 0.0
        self.busy = False

    def fileno(self) -> int:
        return self._socket.fileno()

    def send(self, request: bytes, due: float) -> None:
        self.busy, self._due = True, due
        self._socket.sendall(request)

    def receive(self) -> tuple[int, float] | None:
        """Return the status and the seconds since the report was due, once its answer is whole."""
        received = self._socket.recv(_MOST_READ)
        if not received:
            sys.exit("The server closed a connection.")
        self._answer += received
        head, end, body = self._answer.partition(b"\r\n\r\n")
        if not end or len(body) < int(head.lower().partition(b"content-length:")[2].split(b"\r\n", 1)[0]):
            return None
        self.busy, self._answer = False, b""
        return int(head[9:12]), time.perf_counter() - self._due


class Load:
    """What is sent, and what came of it.

    :param rate: reports a second; 0 for as many as are answered
    """

    def __init__(self, senders: list[Sender], paths: list[str], rate: float, first: int, make_body: MakeBody) -> None:
        self.statuses: Counter[int] = Counter()
        self.took: list[float] = []
        self._free = deque(senders)
        self._starts = [f"POST {path} HTTP/1.1\r\nHost: bench\r\nContent-Type: application/json\r\n" for path in paths]
        self._numbers = count(first)
        self._make_body = make_body
        self._rate = rate
        self._made = 0
        self._selector = selectors.DefaultSelector()
        for sender in senders:
            self._selector.register(sender, selectors.EVENT_READ, sender)

    def run(self, seconds: float) -> float:
        """Send for a time, and return how long that was."""
        begun = now = time.perf_counter()
        while now < begun + seconds:
            self._send_due(begun, now)
            self._receive(0.001)
            now = time.perf_counter()
        return now - begun

    def drain(self) -> None:
        """Wait for answers that are still awaited."""
        until = time.perf_counter() + _DRAIN_SECONDS
        while len(self._free) < len(self._selector.get_map()) and time.perf_counter() < until:
            self._receive(0.05)

    def _send_due(self, begun: float, now: float) -> None:
        """Give each free connection a report, as far as they are due."""
        while self._free:
            due = begun + self._made / self._rate if self._rate else now
            if due > now:
                break
            self._made += 1
            self._free.popleft().send(self._request(), due)

    def _receive(self, timeout: float) -> None:
        for key, _ in self._selector.select(timeout):
            sender: Sender = key.data
            if answered := sender.receive():
                self.statuses[answered[0]] += 1
                self.took.append(answered[1])
                self._free.append(sender)

    def _request(self) -> bytes:
        number = next(self._numbers)
        body, headers = self._make_body(number)
        start = self._starts[number % len(self._starts)]
        return f"{start}{headers}Content-Length: {len(body)}\r\n\r\n{body}".encode()


def run(
    port: int, paths: list[str], connections: int, seconds: float, rate: float, make_body: MakeBody
) -> dict[str, object]:
    senders = [Sender(port) for _ in range(connections)]
    load = Load(senders, paths, rate, time.time_ns() // 1_000_000 % 50_000_000, make_body)
    lasted = load.run(seconds)
    answered = len(load.took)
    load.drain()
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
    print(json.dumps(run(int(port), lines, int(connections), float(seconds), float(rate), BODIES[kind])))
