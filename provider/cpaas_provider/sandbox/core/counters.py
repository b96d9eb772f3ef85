"""What was really accepted: the figures others check their own tables against."""

from __future__ import annotations

from collections import defaultdict
from typing import Any

from cpaas_provider.sandbox.core.database import Database

_ADD = "INSERT INTO counters (name, n) VALUES (?, ?) ON CONFLICT (name) DO UPDATE SET n = n + excluded.n"

# Always present in the answer, so that a reader need not guard against a missing key.
GROUPS: dict[str, tuple[str, ...]] = {
    "requests": (),
    "accepted": (),
    "rejected": (),
    "faults": (),
    "sms": ("requests", "recipients"),
    "email": ("requests", "recipients"),
    "airtime": ("purchases", "duplicates", "success", "failed", "error", "refunded"),
    "otp": ("requested", "verified", "wrong_attempts", "failed", "revoked"),
    "contacts": ("rows", "created", "updated", "deleted"),
    "reports": ("booked", "pending", "due", "sent", "acknowledged", "refused", "given_up"),
}


class Counters:
    """Counts kept in the same transaction as what they count."""

    def __init__(self, database: Database) -> None:
        self._database = database

    def add(self, *names: str, **amounts: int) -> None:
        """Count one for each name such as ``accepted.send_sms``; keywords give an amount, ``__`` for the dot."""
        counted = [(name, 1) for name in names]
        counted += [(name.replace("__", "."), n) for name, n in amounts.items()]
        self._database.many(_ADD, counted)

    def snapshot(self, now: float) -> dict[str, Any]:
        """Return the counts as groups; the present sizes (rows, pending reports and those due now) are looked up."""
        groups: dict[str, Any] = {group: dict.fromkeys(names, 0) for group, names in GROUPS.items()}
        groups["lookups"] = 0
        kept: dict[str, int] = defaultdict(int)
        for row in self._database.rows("SELECT name, n FROM counters"):
            kept[row["name"]] = row["n"]
        for name, n in kept.items():
            group, _, member = name.partition(".")
            if member:
                groups[group][member] = n
            else:
                groups[group] = n
        groups["contacts"]["rows"] = self._database.number("SELECT count(*) FROM contacts")
        pending = "SELECT count(*) FROM reports WHERE state = 'pending'"
        groups["reports"]["pending"] = self._database.number(pending)
        groups["reports"]["due"] = self._database.number(f"{pending} AND due <= ?", [now])
        return groups
