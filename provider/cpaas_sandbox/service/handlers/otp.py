"""One-time passcodes: request, verify, fetch, revoke (contract.md 2.4, 3 and 4.4 to 4.8)."""

from __future__ import annotations

import hmac
import secrets
import uuid
from typing import Any

from cpaas_sandbox.core.clock import datetimes
from cpaas_sandbox.core.context import Sandbox
from cpaas_sandbox.core.database import Row
from cpaas_sandbox.core.errors import not_found
from cpaas_sandbox.service.handlers.recipients import check_recipient
from cpaas_sandbox.service.http import Request

SENT, VERIFIED, EXPIRED, FAILED, REVOKED = 1, 2, 3, 4, 5
STATUS = {SENT: "SENT", VERIFIED: "VERIFIED", EXPIRED: "EXPIRED", FAILED: "FAILED", REVOKED: "REVOKED"}

OUTCOMES = {"verified": VERIFIED, "expired": EXPIRED, "failed": FAILED, "revoked": REVOKED}
"""Outcomes that can be seeded by recipient, and the status of the passcode right after its request."""

_INSERT = """
INSERT INTO otps (id, recipient, channel, code, text, status, charge, created, expires)
VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?)"""


def current_status(row: Row, now: float) -> int:
    """Return a token's status at a moment; EXPIRED is never stored, it follows from SENT and the expiry."""
    expired = row["status"] == SENT and now >= row["expires"]
    return EXPIRED if expired else int(row["status"])


def _record(sandbox: Sandbox, row: Row, is_new: bool = False) -> dict[str, Any]:
    """Return the token's record; the code is never part of it. A new token is SENT, whatever becomes of it."""
    status = SENT if is_new else current_status(row, sandbox.clock.now())
    updated = row["expires"] if status == EXPIRED else row["updated"]
    if sandbox.settings.otp_status_mode == "sent":
        status, updated = SENT, None
    record = {"id": row["id"], "recipient": row["recipient"], "status": status, "status_desc": STATUS[status]}
    return record | datetimes(row["created"], updated)


def _is_gone(sandbox: Sandbox, row: Row) -> bool:
    """Return whether a token is hidden, because it is REVOKED and the settings hide revoked tokens."""
    return bool(row["status"] == REVOKED and sandbox.settings.revoked_otps == "gone")


def _found(sandbox: Sandbox, token_id: str) -> Row:
    row = sandbox.database.row("SELECT * FROM otps WHERE id = ?", [token_id])
    if row is None or _is_gone(sandbox, row):
        raise not_found("id", "There is no OTP token with this id")
    return row


def _update(sandbox: Sandbox, row: Row, **changes: int) -> Row:
    """Store a changed status or number of wrong attempts; return the changed row."""
    row = row | changes | {"updated": sandbox.clock.now()}
    sql = "UPDATE otps SET status = :status, updated = :updated, attempts = :attempts WHERE id = :id"
    sandbox.database.execute(sql, row)
    return row


def request_token(sandbox: Sandbox, request: Request) -> dict[str, Any]:
    """Answer POST /otp/request_token."""
    body = request.fields
    check_recipient(sandbox, body["recipient"])
    length, minutes = int(body.get("length", 4)), body.get("expires_in", 15)
    code = body.get("token") or "".join(secrets.choice("0123456789") for _ in range(length))
    charge = sandbox.account.charge(sandbox.account.prices["otp"]).amount
    now = sandbox.clock.now()
    text = f"Your verification code is {code}. It expires in {minutes:g} minutes."
    token_id, channel = uuid.uuid4().hex, body.get("channel", "sms")
    status, expires = _seeded(sandbox, body["recipient"], now, now + 60 * minutes)
    values = [token_id, body["recipient"], channel, code, text, status, charge, now, expires]
    sandbox.database.execute(_INSERT, values)
    sandbox.counters.add("otp.requested")
    row = sandbox.database.row("SELECT * FROM otps WHERE id = ?", [token_id])
    assert row is not None  # noqa: S101 - it was inserted above
    return _record(sandbox, row, is_new=True)


def _seeded(sandbox: Sandbox, recipient: str, now: float, expires: float) -> tuple[int, float]:
    """Return the stored status and the expiry of a new token, as they are seeded for the recipient."""
    status = OUTCOMES.get(sandbox.outcomes.get("otp", {}).get(recipient, ""), SENT)
    return (SENT, now) if status == EXPIRED else (status, expires)


def verify(sandbox: Sandbox, request: Request) -> dict[str, Any]:
    """Answer POST /otp/verify; a code verifies once, and ``otp_max_attempts`` wrong codes make the token FAILED."""
    row = _found(sandbox, request.fields["id"])
    status = current_status(row, sandbox.clock.now())
    if status != SENT:
        word = STATUS[status].lower()
        raise not_found("token", f"The token is {word}", word)
    if hmac.compare_digest(row["code"].encode(), request.fields["token"].encode()):
        sandbox.counters.add("otp.verified")
        return _record(sandbox, _update(sandbox, row, status=VERIFIED))
    attempts = row["attempts"] + 1
    failed = attempts >= sandbox.settings.otp_max_attempts
    _update(sandbox, row, status=FAILED if failed else SENT, attempts=attempts)
    sandbox.counters.add("otp.wrong_attempts", *(["otp.failed"] if failed else []))
    raise not_found("token", "The code is wrong", "wrong_token")


def get(sandbox: Sandbox, request: Request) -> dict[str, Any]:
    """Answer GET /otp/{id}."""
    return _record(sandbox, _found(sandbox, request.id))


def find(sandbox: Sandbox, request: Request) -> list[dict[str, Any]]:
    """Answer GET /otp/get-by-recipient, newest first."""
    sql = "SELECT * FROM otps WHERE recipient = ? ORDER BY seq DESC"
    rows = sandbox.database.rows(sql, [request.fields["recipient"]])
    return [_record(sandbox, row) for row in rows if not _is_gone(sandbox, row)]


def revoke(sandbox: Sandbox, request: Request) -> dict[str, Any]:
    """Answer DELETE /otp/{id}; only a SENT token becomes REVOKED, another keeps its status."""
    row = _found(sandbox, request.id)
    if current_status(row, sandbox.clock.now()) == SENT:
        row = _update(sandbox, row, status=REVOKED)
        sandbox.counters.add("otp.revoked")
    return _record(sandbox, row)
