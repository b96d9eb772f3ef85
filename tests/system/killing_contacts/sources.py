"""The source of a killed sync, its versions, and what the list must hold of it."""

from __future__ import annotations

import csv
import json
import random
from dataclasses import dataclass, replace
from pathlib import Path

PLANS = ("basic", "silver", "gold")
REFUSED = "refused"
"""A plan that a row service refuses."""
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


def with_refused(contacts: list[Contact], chance: random.Random, count: int) -> list[Contact]:
    """Return the contacts with so many more together that a row service refuses, and half of the earlier corrected."""
    first = chance.randrange(max(1, len(contacts) - count))
    return [
        replace(one, plan=REFUSED)
        if first <= number < first + count
        else replace(one, plan="gold")
        if one.plan == REFUSED and chance.random() < 0.5
        else one
        for number, one in enumerate(contacts)
    ]


def to_upsert(path: Path, before: list[Contact], contacts: list[Contact], chance: random.Random, count: int) -> None:
    """Write arguments of keyed upserts: of new and changed contacts, as the source has them."""
    known = set(before)
    changed = [one for one in contacts if one not in known and one.plan != REFUSED]
    arguments = [
        {
            "key": one.id,
            "columns": {"Name": one.name, "Phone": f"+{one.phone}", "Plan": one.plan, "Points": one.points},
        }
        for one in chance.sample(changed, min(count, len(changed)))
    ]
    path.write_text(json.dumps(arguments))


def write(path: Path, contacts: list[Contact]) -> None:
    """Put the rows where the task reads them, at one stroke."""
    part = path.with_suffix(".part")
    with part.open("w", newline="", encoding="utf-8") as file:
        rows = csv.writer(file)
        rows.writerow(["id", "name", "phone", "plan", "points"])
        rows.writerows((one.id, one.name, f"+{one.phone}", one.plan, one.points) for one in contacts)
    part.rename(path)
