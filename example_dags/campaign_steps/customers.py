"""From a customer list as people keep them to customers who can be reached, without losing a row on the way."""

from __future__ import annotations

import csv
import re
from collections.abc import Iterable, Iterator
from typing import Any

from cpaas_provider.api import normalise_email, normalise_msisdn

Sorted = tuple[str, dict[str, Any]]


def sort_rows(lines: Iterable[str], default_region: str | None, limit: int | None = None) -> Iterator[Sorted]:
    """Read a CSV with a header and yield each of its rows once, as what it turned out to be.

    * ``("customers", {...})``: the row's fields, its number and address in the service's form. ``left_out`` names the
      fields the campaign goes without, and why.
    * ``("bad_rows", {"row", "reason", "fields"})``: nobody can be reached by this row.
    * ``("duplicates", {"row", "of"})``: the number is that of an earlier row.
    * ``("beyond_limit", {"row"})``: a customer, but ``limit`` customers were already taken.

    Rows are counted as a spreadsheet shows them: the header is row 1, and a field may hold several lines.

    :param lines: the file, opened with ``encoding="utf-8-sig"`` (spreadsheets put a byte order mark first) and
        ``newline=""``
    :param default_region: region of numbers in national form whose row names no ``country``
    """
    reader = csv.reader(lines)
    header = [name.strip().lower() for name in next(reader, [])]
    if "phone" not in header:
        raise ValueError("The CSV has no column 'phone' in its first row.")
    by_phone: dict[str, int] = {}
    by_email: dict[str, int] = {}
    for row, cells in enumerate(reader, start=2):
        try:
            customer = _read(row, header, cells, default_region)
        except ValueError as error:
            yield "bad_rows", {"row": row, "reason": str(error), "fields": cells}
            continue
        if (first := by_phone.setdefault(customer["phone"], row)) != row:
            yield "duplicates", {"row": row, "of": first}
        elif limit is not None and len(by_phone) > limit:
            yield "beyond_limit", {"row": row}
        else:
            _share_no_mailbox(customer, by_email)
            yield "customers", customer


def _read(row: int, header: list[str], cells: list[str], default_region: str | None) -> dict[str, Any]:
    if not any(cell.strip() for cell in cells):
        raise ValueError("the row is empty")
    if len(cells) > len(header):
        raise ValueError("the row has more fields than the header")
    fields = {name: cell.strip() for name, cell in zip(header, cells, strict=False)}
    country = fields.get("country", "").upper()
    if country and len(country) != 2:
        raise ValueError("country is not a two-letter code")
    try:
        phone = normalise_msisdn(fields.get("phone", ""), country or default_region)
    except ValueError as error:
        raise ValueError(f"phone {error}") from None
    customer: dict[str, Any] = {**fields, "row": row, "phone": phone, "left_out": {}}
    try:
        customer["email"] = normalise_email(fields["email"]) if fields.get("email") else None
    except ValueError as error:
        customer["email"], customer["left_out"]["email"] = None, str(error)
    return customer


def _share_no_mailbox(customer: dict[str, Any], by_email: dict[str, int]) -> None:
    """Write to one mailbox once, also when two people gave the same address."""
    email = customer["email"]
    if email and by_email.setdefault(email.casefold(), customer["row"]) != customer["row"]:
        customer["email"], customer["left_out"]["email"] = None, "is the address of an earlier row"


def words_for(text: str, customer: dict[str, Any]) -> dict[str, str]:
    """Return the substitutions of one customer: just the fields that the text names in braces."""
    name = customer.get("name") or "customer"
    known = {**customer, "name": name, "first_name": name.split()[0]}
    return {field: str(known.get(field) or "") for field in set(re.findall(r"\{(\w+)\}", text))}
