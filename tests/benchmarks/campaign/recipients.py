"""The recipients of all runs: as many as wanted, the same ones every time."""

from __future__ import annotations

import csv
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

PLANS = ("basic", "family", "business")
CITIES = ("Lagos", "Ibadan", "Kano", "Enugu", "Port Harcourt", "Abuja", "Jos")
# One row in so many has the number of an earlier one.
REPEAT_EVERY = 100
_NUMBERS = 10**8
# Without a common divisor with the count of numbers: every step meets another number until all were met.
_STRIDE = 38_196_601


class Person(NamedTuple):
    """One row; the fields are the columns."""

    phone: str
    name: str
    plan: str
    city: str
    points: int


def phone(place: int) -> str:
    """Return a number that belongs to this place alone."""
    return f"+23480{place * _STRIDE % _NUMBERS:08}"


def phones(count: int, start: int = 0) -> list[str]:
    """Return so many numbers, no two alike."""
    return [phone(place) for place in range(start, start + count)]


def people(count: int, repeats: bool = True) -> Iterator[Person]:
    """Yield so many rows; with ``repeats``, one in a hundred is somebody who was there before."""
    for place in range(count):
        again = repeats and place % REPEAT_EVERY == REPEAT_EVERY - 1
        yield Person(
            # Far back, and nobody who is a repeat himself.
            phone(place // 2 - 1 if again else place),
            f"Person {place:07}",
            PLANS[place % len(PLANS)],
            CITIES[place % len(CITIES)],
            place % 5_000,
        )


def write_csv(path: Path, count: int, repeats: bool = True) -> None:
    """Write them as a CSV file."""
    with path.open("w", newline="") as file:
        writer = csv.writer(file)
        writer.writerow(Person._fields)
        writer.writerows(people(count, repeats))
