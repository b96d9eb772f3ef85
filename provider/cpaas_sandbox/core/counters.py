"""Counters of received, accepted and rejected requests; tests compare their own figures with them."""

from __future__ import annotations

from typing import Any

from cpaas_sandbox.core.database import Database

_ADD = "INSERT INTO counters (name, n) VALUES (?, ?) ON CONFLICT (name) DO UPDATE SET n = n + excluded.n"

# Always present in the response, so that a reader need not guard against a missing key.
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
    """Counters stored in the same transaction as what they count."""

    def __init__(self, database: Database) -> None:
        self._database = database

    def add(self, *names: str, n: int = 1) -> None:
        """Add to each counter, such as ``accepted.send_sms``."""
        self._database.many(_ADD, [(name, n) for name in names])

    def snapshot(self, now: float) -> dict[str, Any]:
        """Return the counters by group; rows, pending reports and due reports are counted from their tables."""
        groups: dict[str, Any] = {group: dict.fromkeys(names, 0) for group, names in GROUPS.items()}
        groups["lookups"] = 0
        for row in self._database.rows("SELECT name, n FROM counters"):
            group, _, member = row["name"].partition(".")
            if member:
                groups[group][member] = row["n"]
            else:
                groups[group] = row["n"]
        groups["contacts"]["rows"] = self._database.number("SELECT count(*) FROM contacts")
        pending = "SELECT count(*) FROM reports WHERE state = 'pending'"
        groups["reports"]["pending"] = self._database.number(pending)
        groups["reports"]["due"] = self._database.number(f"{pending} AND due <= ?", [now])
        return groups
