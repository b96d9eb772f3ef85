"""The recipients of a request; those seeded as refused reject it, or are left out."""

from __future__ import annotations

from dataclasses import asdict
from typing import Any

from cpaas_sandbox.core.context import Sandbox
from cpaas_sandbox.core.errors import FieldError, invalid, invalid_field


def read_recipients(sandbox: Sandbox, listed: str) -> tuple[list[str], dict[str, Any]]:
    """Return the recipients of a comma-separated list, and the fields of the record that name those left out.

    Raises the 400 for too many recipients, and for refused recipients unless the settings leave them out.
    """
    recipients = [recipient.strip() for recipient in listed.split(",")]
    limit = sandbox.settings.max_recipients
    if len(recipients) > limit:
        raise invalid_field("recipients", f"at most {limit} recipients in one request", "too_long")
    errors = _errors(sandbox, recipients, "recipients")
    if sandbox.settings.refused_recipients == "leave_out" and 0 < len(errors) < len(recipients):
        allowed = [recipient for recipient in recipients if not _is_refused(sandbox, recipient)]
        return allowed, {"message": "Some recipients are left out", "errors": [asdict(error) for error in errors]}
    _reject(sandbox, errors)
    return recipients, {}


def check_recipient(sandbox: Sandbox, recipient: str) -> None:
    """Raise the 400 for a refused recipient."""
    _reject(sandbox, _errors(sandbox, [recipient], "recipient"))


def _is_refused(sandbox: Sandbox, recipient: str) -> bool:
    return recipient.lower() in sandbox.outcomes.get("refused", {})


def _errors(sandbox: Sandbox, recipients: list[str], field: str) -> list[FieldError]:
    return [
        FieldError(field, f"{recipient} is not a valid recipient", "invalid_recipient")
        for recipient in recipients
        if _is_refused(sandbox, recipient)
    ]


def _reject(sandbox: Sandbox, errors: list[FieldError]) -> None:
    """Raise the 400 for errors, if any; without ``name_refused_recipients`` it is one error that names no recipient."""
    if errors and not sandbox.settings.name_refused_recipients:
        raise invalid_field(errors[0].field, "a recipient is not valid", "invalid_recipient")
    if errors:
        raise invalid(errors)
