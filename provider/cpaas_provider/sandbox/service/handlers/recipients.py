"""Which recipients of a request are reachable: those seeded as refused are rejected, or left out."""

from __future__ import annotations

from dataclasses import asdict
from typing import Any

from cpaas_provider.sandbox.core.context import Sandbox
from cpaas_provider.sandbox.core.errors import FieldError, invalid, invalid_field


def read_recipients(sandbox: Sandbox, listed: str) -> tuple[list[str], dict[str, Any]]:
    """Split the comma-separated list of a send; reject recipients that are not reachable, or leave them out.

    Returns the recipients, and what the record says of those that are left out.
    """
    recipients = [recipient.strip() for recipient in listed.split(",")]
    most = sandbox.settings.max_recipients
    if len(recipients) > most:
        raise invalid_field("recipients", f"at most {most} recipients in one request", "too_long")
    refused = sandbox.outcomes.get("refused", {})
    allowed = [recipient for recipient in recipients if recipient not in refused]
    if sandbox.settings.refused_recipients == "leave_out" and 0 < len(allowed) < len(recipients):
        errors = [asdict(_unreachable("recipients", one)) for one in recipients if one in refused]
        return allowed, {"message": "Some recipients are left out", "errors": errors}
    refuse_unreachable(sandbox, recipients, "recipients")
    return recipients, {}


def refuse_unreachable(sandbox: Sandbox, recipients: list[str], field: str) -> None:
    """Reject recipients seeded as unreachable, naming them where the settings say so."""
    refused = sandbox.outcomes.get("refused")
    bad = [recipient for recipient in recipients if recipient in refused] if refused else []
    if bad and sandbox.settings.name_refused_recipients:
        raise invalid([_unreachable(field, recipient) for recipient in bad])
    if bad:
        raise invalid_field(field, "a recipient is not valid", "invalid_recipient")


def _unreachable(field: str, recipient: str) -> FieldError:
    return FieldError(field, f"{recipient} is not a valid recipient", "invalid_recipient")
