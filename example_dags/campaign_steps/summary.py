"""What came of a campaign, as figures for programs and as a table for people."""

from __future__ import annotations

from typing import Any

Figures = dict[str, Any]

_SENT = ("sent", "rejected", "unknown", "not_sent", "not_allowed")


def summary(
    read: Figures | None,
    looked_up: Figures | None,
    contacts: Figures | None,
    sms: Figures | None,
    email: Figures | None,
) -> Figures:
    """Return the figures of all steps; those of a step that did not come to an end are ``None``."""
    read, looked_up, contacts, sms, email = (step or {} for step in (read, looked_up, contacts, sms, email))
    bad_rows = read.get("bad_rows")
    last = max((sms, email), key=lambda step: step.get("at") or "")
    return {
        "read": read.get("read"),
        "bad": sum(bad_rows.values()) if bad_rows is not None else None,
        "bad_rows": bad_rows,
        **{name: read.get(name) for name in ("duplicates", "beyond_limit", "customers")},
        "fields_left_out": {**read.get("fields_left_out", {}), **contacts.get("fields_left_out", {})},
        **{name: looked_up.get(name) for name in ("looked_up", "dnd_skipped", "lookup_failed", "reachable")},
        **{f"contacts_{name}": contacts.get(name) for name in ("created", "updated", "rejected", "unknown")},
        **{f"sms_{name}": sms.get(name) for name in _SENT},
        **{f"email_{name}": email.get(name) for name in _SENT},
        "charge": round(sum(step.get("charge", 0) for step in (sms, email)), 4),
        "balance": last.get("balance"),
    }


def table(figures: Figures) -> str:
    """Return the figures as lines of a plain table."""
    rows = []
    for name, value in figures.items():
        if isinstance(value, dict):
            rows += [(f"  {reason}", count) for reason, count in value.items()]
        else:
            rows.append((name.replace("_", " "), "-" if value is None else value))
    width = max(len(label) for label, _ in rows)
    return "\n".join(f"{label:<{width}}  {value:>14}" for label, value in rows)


def problems(figures: Figures, max_rejected: int) -> list[str]:
    """Return a sentence for everything that is not as it should be."""
    found = []
    if any(figures[name] is None for name in ("read", "looked_up", "contacts_created", "sms_sent", "email_sent")):
        found.append("A step did not come to an end; its log says why.")
    for name in ("contacts_unknown", "sms_unknown", "email_unknown", "sms_not_sent", "email_not_sent"):
        if figures[name]:
            found.append(f"{name.replace('_', ' ')}: {figures[name]}.")
    for name in ("lookup_failed", "contacts_rejected", "sms_rejected", "email_rejected"):
        if (figures[name] or 0) > max_rejected:
            found.append(f"{name.replace('_', ' ')}: {figures[name]}, at most {max_rejected} would do.")
    return found
