"""One-time passcodes: request, verify, fetch, revoke (INTERFACE.md sections 2.4, 3 and 4.4 to 4.8)."""

from __future__ import annotations

import hmac
import secrets
import uuid
from typing import Any

from cpaas_provider.sandbox.core.clock import timestamp
from cpaas_provider.sandbox.core.context import Sandbox
from cpaas_provider.sandbox.core.database import Row
from cpaas_provider.sandbox.core.errors import FieldError, ServiceError, not_found
from cpaas_provider.sandbox.service.handlers.recipients import refuse_unreachable
from cpaas_provider.sandbox.service.http import Request

SENT, VERIFIED, EXPIRED, FAILED, REVOKED = 1, 2, 3, 4, 5
STATUS = {SENT: "SENT", VERIFIED: "VERIFIED", EXPIRED: "EXPIRED", FAILED: "FAILED", REVOKED: "REVOKED"}

_INSERT = """
INSERT INTO otps (id, recipient, channel, code, text, status, charge, created, expires)
VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?)"""


def present_status(row: Row, now: float) -> int:
    """Return the status a token has now; time alone turns SENT into EXPIRED."""
    expired = row["status"] == SENT and now >= row["expires"]
    return EXPIRED if expired else int(row["status"])


def _record(sandbox: Sandbox, row: Row) -> dict[str, Any]:
    """Return the token's record; the code is never part of it."""
    now = sandbox.clock.now()
    status = present_status(row, now)
    updated = row["expires"] if status == EXPIRED else row["updated"]
    if sandbox.settings.otp_status_mode == "sent":
        status, updated = SENT, None
    record = {
        "id": row["id"],
        "recipient": row["recipient"],
        "status": status,
        "status_desc": STATUS[status],
        "created_datetime": timestamp(row["created"]),
    }
    if updated is not None:
        record["updated_datetime"] = timestamp(updated)
    return record


def _is_gone(sandbox: Sandbox, row: Row) -> bool:
    return bool(row["status"] == REVOKED and sandbox.settings.revoked_otps == "gone")


def _found(sandbox: Sandbox, token_id: str) -> Row:
    row = sandbox.database.row("SELECT * FROM otps WHERE id = ?", [token_id])
    if row is None or _is_gone(sandbox, row):
        raise not_found("id", "There is no OTP token with this id")
    return row


def _change(sandbox: Sandbox, row: Row, status: int, attempts: int | None = None) -> Row:
    changed = row | {"status": status, "updated": sandbox.clock.now()}
    changed["attempts"] = row["attempts"] if attempts is None else attempts
    values = [status, changed["updated"], changed["attempts"], row["id"]]
    sandbox.database.execute("UPDATE otps SET status = ?, updated = ?, attempts = ? WHERE id = ?", values)
    return changed


def request_token(sandbox: Sandbox, request: Request) -> dict[str, Any]:
    """Answer POST /otp/request_token."""
    body = request.body
    refuse_unreachable(sandbox, [body["recipient"]], "recipient")
    length, minutes = int(body.get("length", 4)), body.get("expires_in", 15)
    code = body.get("token") or "".join(secrets.choice("0123456789") for _ in range(length))
    charge = sandbox.account.charge(sandbox.account.prices["otp"]).amount
    now = sandbox.clock.now()
    text = f"Your verification code is {code}. It expires in {minutes:g} minutes."
    token_id, channel = uuid.uuid4().hex, body.get("channel", "sms")
    values = [token_id, body["recipient"], channel, code, text, SENT, charge, now, now + 60 * minutes]
    sandbox.database.execute(_INSERT, values)
    sandbox.counters.add("otp.requested")
    return _record(sandbox, _found(sandbox, token_id))


def _refused(message: str, code: str) -> ServiceError:
    return ServiceError(404, message, [FieldError("token", message, code)])


def verify(sandbox: Sandbox, request: Request) -> dict[str, Any]:
    """Answer POST /otp/verify; a code serves once, and too many wrong ones end it."""
    row = _found(sandbox, request.body["id"])
    status = present_status(row, sandbox.clock.now())
    if status != SENT:
        raise _refused(f"The token is {STATUS[status].lower()}", STATUS[status].lower())
    if hmac.compare_digest(row["code"].encode(), request.body["token"].encode()):
        row = _change(sandbox, row, VERIFIED)
        sandbox.counters.add("otp.verified")
        return _record(sandbox, row)
    attempts = row["attempts"] + 1
    failed = attempts >= sandbox.settings.otp_max_attempts
    _change(sandbox, row, FAILED if failed else SENT, attempts)
    sandbox.counters.add("otp.wrong_attempts", *(["otp.failed"] if failed else []))
    raise _refused("The code is wrong", "wrong_token")


def get(sandbox: Sandbox, request: Request) -> dict[str, Any]:
    """Answer GET /otp/{id}."""
    return _record(sandbox, _found(sandbox, request.ids[0]))


def find(sandbox: Sandbox, request: Request) -> list[dict[str, Any]]:
    """Answer GET /otp/get-by-recipient, newest first."""
    sql = "SELECT * FROM otps WHERE recipient = ? ORDER BY seq DESC"
    rows = sandbox.database.rows(sql, [request.query["recipient"]])
    return [_record(sandbox, row) for row in rows if not _is_gone(sandbox, row)]


def revoke(sandbox: Sandbox, request: Request) -> dict[str, Any]:
    """Answer DELETE /otp/{id}; what is over already stays as it ended."""
    row = _found(sandbox, request.ids[0])
    if present_status(row, sandbox.clock.now()) == SENT:
        row = _change(sandbox, row, REVOKED)
        sandbox.counters.add("otp.revoked")
    return _record(sandbox, row)
