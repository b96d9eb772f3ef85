"""The source of a killed sync, its versions, and what the list must hold of it."""

from __future__ import annotations

import csv
import random
from dataclasses import dataclass
from pathlib import Path

PLANS = ("basic", "silver", "gold")
PHONES = b"23480"
"""How every phone number begins."""


@dataclass(frozen=True)
class Contact:
    """One row of the source."""

    id: str
    name: str
    phone: str
    plan: str
    points: int


def first_version(size: int, first: int) -> list[Contact]:
    """Return as many contacts.

    :param first: where their numbers begin, so that two sources share none
    """
    return [
        Contact(f"c-{number}", f"Person {number}", f"23480{number:08d}", PLANS[number % 3], number)
        for number in range(first, first + size)
    ]


def next_version(contacts: list[Contact], chance: random.Random, first: int) -> list[Contact]:
    """Return another version: a tenth changed, a twentieth gone, a twentieth new, in another order."""
    kept = [one for one in contacts if chance.random() > 0.05]
    changed = [
        Contact(one.id, one.name, one.phone, chance.choice(PLANS), one.points + 1_000_000)
        if chance.random() < 0.1
        else one
        for one in kept
    ]
    versions = changed + first_version(max(1, len(contacts) // 20), first)
    chance.shuffle(versions)
    return versions


def write(path: Path, contacts: list[Contact]) -> None:
    """Put the rows where the task reads them, at one stroke."""
    part = path.with_suffix(".part")
    with part.open("w", newline="", encoding="utf-8") as file:
        rows = csv.writer(file)
        rows.writerow(["id", "name", "phone", "plan", "points"])
        rows.writerows((one.id, one.name, f"+{one.phone}", one.plan, one.points) for one in contacts)
    part.rename(path)
