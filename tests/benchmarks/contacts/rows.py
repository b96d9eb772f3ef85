"""Contacts of eight columns in CSV files, made once and kept."""

from __future__ import annotations

import csv
from pathlib import Path

COLUMNS = {
    "Name": "name",
    "Phone": "phone",
    "Email": "email",
    "Birthday": "birthday",
    "Plan": "plan",
    "Tags": "tags",
    "Website": "website",
    "Points": "points",
}
"""Columns of the sandbox's list, and the columns of the files that fill them."""

KEY = "id"
_PLANS = ("basic", "silver", "gold")
_TAGS = ("vip", "newsletter", "vip,beta", "")


def write_rows(folder: Path, count: int, changed: int = 0) -> Path:
    """Write as many contacts, and return the file; where it is there already, it stays.

    :param changed: of how many of them the points differ from the file in which none does
    """
    path = folder / f"contacts_{count}_{changed}.csv"
    if path.exists():
        return path
    folder.mkdir(parents=True, exist_ok=True)
    part = path.with_suffix(".part")
    every = count // changed if changed else 0
    with part.open("w", newline="", encoding="utf-8") as file:
        rows = csv.writer(file)
        rows.writerow([KEY, *COLUMNS.values()])
        for number in range(count):
            differs = bool(every) and number % every == 0
            rows.writerow(
                [
                    f"c-{number:07d}",
                    f"Person {number} of the list",
                    f"+23480{number:08d}",
                    f"person.{number}@people.example.com",
                    f"19{number % 70 + 30}-{number % 12 + 1:02d}-{number % 28 + 1:02d}",
                    _PLANS[number % 3],
                    _TAGS[number % 4],
                    f"https://people.example.com/{number}",
                    number + differs * 1_000_000_000,
                ]
            )
    part.rename(path)
    return path
