"""Rounds in which everybody takes his turn, so that the machine's noise hits all alike."""

from __future__ import annotations

import statistics
from collections import defaultdict
from collections.abc import Callable, Sequence

from tests.benchmarks.campaign.contenders import Contender, ContenderError, Point
from tests.benchmarks.campaign.serving import Arrived, BareServer

# Enough to know about how fast somebody is, before it is decided how much he is given.
FIRST_ROUNDS_IN_FLIGHT, FIRST_AT_LEAST = 10, 20


class Measured:
    """What the server saw, round by round."""

    def __init__(self) -> None:
        self._runs: dict[tuple[str, Point], list[Arrived]] = defaultdict(list)

    def add(self, name: str, point: Point, arrived: Arrived) -> None:
        self._runs[name, point].append(arrived)

    def rates(self, name: str, point: Point) -> list[float]:
        """Return requests a second, one figure a round."""
        return [run.requests_per_second for run in self._runs.get((name, point), ())]

    def ratio(self, name: str, other: str, point: Point) -> float | None:
        """Return how fast one is beside another: the median over rounds of what each round says.

        ``None`` where one of them was not measured.
        """
        rates, others = self.rates(name, point), self.rates(other, point)
        if not rates or not others:
            return None
        return statistics.median(one / another for one, another in zip(rates, others, strict=True))


def measure(
    server: BareServer,
    contenders: Sequence[Contender],
    rounds: int,
    seconds: float,
    say: Callable[[str], None],
) -> Measured:
    """Let everybody send for about so many seconds at each of his points, so many times."""
    measured = Measured()
    points = sorted({point for contender in contenders for point in contender.points})
    enough: dict[tuple[str, Point], int] = {}
    for number in range(rounds):
        for point in points:
            there = [contender for contender in contenders if point in contender.points]
            # Nobody is always the one who comes after the same other one.
            for contender in there[number % len(there) :] + there[: number % len(there)]:
                key = contender.name, point
                if key not in enough:
                    first = max(FIRST_AT_LEAST, FIRST_ROUNDS_IN_FLIGHT * point.in_flight)
                    enough[key] = _enough(one_run(server, contender, first, point), point, seconds)
                arrived = one_run(server, contender, enough[key], point)
                # The machine may have been busier then than it is now.
                enough[key] = _enough(arrived, point, seconds)
                measured.add(*key, arrived)
                say(_line(number, contender, point, arrived))
    return measured


def one_run(server: BareServer, contender: Contender, requests: int, point: Point) -> Arrived:
    """Have a contender send so much, and return what arrived once that was all of it and no more.

    :raises ContenderError: when somebody was left out or reached twice, or more was in flight than allowed
    """
    server.reset()
    contender.run(server.url, requests, point)
    arrived = server.arrived()
    if (arrived.requests, arrived.recipients) != (requests, requests * point.recipients):
        raise ContenderError(
            f"{contender.title} was to send {requests} requests of {point.recipients}; the server saw {arrived}."
        )
    if arrived.most_in_flight > point.in_flight:
        raise ContenderError(f"{contender.title} had {arrived.most_in_flight} in flight instead of {point.in_flight}.")
    return arrived


def _enough(arrived: Arrived, point: Point, seconds: float) -> int:
    """Return how many requests take about so long, going by an earlier run."""
    return max(FIRST_ROUNDS_IN_FLIGHT * point.in_flight, round(arrived.requests_per_second * seconds))


def _line(number: int, contender: Contender, point: Point, arrived: Arrived) -> str:
    return (
        f"round {number + 1}  {point.recipients:>4} a request  {point.in_flight:>4} in flight  {contender.title:<28}"
        f"{arrived.requests_per_second:>8,.0f} requests/s  {arrived.recipients_per_second:>10,.0f} recipients/s  "
        f"({arrived.requests} in {arrived.seconds:.1f} s over {arrived.connections} connections)"
    )
