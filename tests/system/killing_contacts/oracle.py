"""Whether the list is the source, apart from creations that are named as unknown and rows that are rejected."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Mapping, Sequence
from typing import Any

from tests.system.killing_contacts.sources import REFUSED, Contact
from tests.unit.contacts.listed import NAME, PHONE, PLAN, POINTS

_SHOWN = 5


def violations(
    contacts: Sequence[Contact], listed: Mapping[str, Mapping[str, Any]], unknown: Collection[str]
) -> list[str]:
    """Return what is wrong with the list.

    :param listed: the cells of the list's rows, by row id
    :param unknown: the names of contacts, in any version of the source, whose creation is named as unknown
    """
    unsure = {*unknown, *(one.name for one in contacts if one.plan == REFUSED)}
    by_name: dict[str, list[Mapping[str, Any]]] = defaultdict(list)
    for row in listed.values():
        by_name[str(row.get(NAME))].append(row)
    wrongs: list[str] = []
    twice = [name for name, rows in by_name.items() if len(rows) > 1]
    lost = [one.name for one in contacts if one.name not in by_name and one.name not in unsure]
    differ = [
        one.name
        for one in contacts
        if one.name not in unsure and any(row != cells_of(one) for row in by_name.get(one.name, ()))
    ]
    present = {one.name for one in contacts}
    stale = [name for name in by_name if name not in present and name not in unknown]
    for what, names in (
        ("in the list more than once", twice),
        ("not in the list, and not named as unknown", lost),
        ("in the list with other cells", differ),
        ("in the list, and gone from the source", stale),
    ):
        if names:
            wrongs.append(f"{len(names)} contacts are {what}: {', '.join(names[:_SHOWN])}")
    return wrongs


def cells_of(contact: Contact) -> dict[str, Any]:
    """Return the cells that the list must have."""
    return {NAME: contact.name, PHONE: contact.phone, PLAN: contact.plan, POINTS: contact.points}
