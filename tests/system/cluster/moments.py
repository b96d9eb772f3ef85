"""When a worker is killed: by how much was sent, so that a slow machine is killed at the same places."""

from __future__ import annotations

from typing import NamedTuple

WAITING = 1.0


class Moment(NamedTuple):
    """A moment of a round.

    :param after: share of the messages that were sent; 0 for the moment in which a worker's first task runs, and 1 for
        the wait for delivery
    :param server_with_worker: whether the API server restarts right after the kill, while the rest is being sent;
        otherwise it does while delivery reports come in
    """

    after: float
    server_with_worker: bool

    def __str__(self) -> str:
        server = "while the rest is sent" if self.server_with_worker else "while reports come in"
        if not self.after:
            return f"worker killed as its first task runs, API server restarted {server}"
        if self.after >= WAITING:
            return f"worker killed while delivery is awaited, API server restarted {server}"
        return f"worker killed after {self.after:.0%} of the messages, API server restarted {server}"


TEN = tuple(
    Moment(after, bool(number % 2))
    for number, after in enumerate((0.0, 0.02, 0.1, 0.2, 0.35, 0.5, 0.65, 0.8, 0.95, WAITING))
)
