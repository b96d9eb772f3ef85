"""The outcome of a recipient: seeded, or drawn at the rates of the settings.

Every draw is a hash of the setting ``report_seed``, the purpose of the draw and the recipient. The same recipient
therefore always has the same outcome, in every run and every process.
"""

from __future__ import annotations

from dataclasses import dataclass
from hashlib import blake2b

from cpaas_sandbox.core.context import Sandbox

IN_FLIGHT = "sent"
# The status of the highest rank is the outcome of a message.
RANK = {IN_FLIGHT: 0, "undelivered": 1, "delivered": 2, "bounced": 3, "opened": 4, "clicked": 5}

# kind -> outcomes that can be seeded; the first is the default
OUTCOMES: dict[str, tuple[str, ...]] = {
    "sms": ("delivered", "undelivered", "clicked"),
    "email": ("delivered", "bounced", "opened", "clicked"),
    "airtime": ("success", "failed", "error"),
}
# kind -> status of a failure, and the setting of its rate
_FAILURES = {
    "sms": ("undelivered", "report_undelivered_rate"),
    "email": ("bounced", "report_bounced_rate"),
    "airtime": ("failed", "report_failed_rate"),
}
_ENGAGEMENT = {
    "sms": (("clicked", "report_clicked_rate"),),
    "email": (("opened", "report_opened_rate"), ("clicked", "report_clicked_rate")),
}
REASONS: dict[str, tuple[str, ...]] = {
    "undelivered": ("Absent subscriber", "Handset memory full", "Unknown subscriber", "Blocked by the operator"),
    "bounced": ("Mailbox does not exist", "Mailbox full", "Domain has no mail server", "Rejected by the recipient"),
    "failed": ("Network of the recipient is unavailable", "Recipient is not on this network"),
    "error": ("Carrier error",),
    "duplicate": ("Same amount to the same recipient a short time ago",),
}


def seeded_uniform(seed: int, purpose: str, recipient: str) -> float:
    """Return a number of at least 0 and less than 1 that depends on the arguments only."""
    digest = blake2b(f"{seed}\0{purpose}\0{recipient}".encode(), digest_size=7).digest()
    return int.from_bytes(digest, "big") / 2**56


def hit(sandbox: Sandbox, rate: str, purpose: str, recipient: str) -> bool:
    """Draw at the rate of a setting; return whether the recipient is hit."""
    share: float = getattr(sandbox.settings, rate)
    return share > 0 and seeded_uniform(sandbox.settings.report_seed, purpose, recipient) < share


def reason_of(seed: int, status: str, recipient: str) -> str | None:
    """Return the reason of a failure; None for other statuses."""
    reasons = REASONS.get(status)
    return reasons[int(seeded_uniform(seed, "reason", recipient) * len(reasons))] if reasons else None


@dataclass(frozen=True, slots=True)
class Outcome:
    """The statuses of one recipient, from the first final one on, and the reason of a failure."""

    statuses: tuple[str, ...]
    reason: str | None = None

    @property
    def final(self) -> str:
        """The last status."""
        return self.statuses[-1]


def draw_outcome(sandbox: Sandbox, kind: str, recipient: str, trackable: bool = True) -> Outcome:
    """Return the outcome of a recipient; a message that is not trackable is neither opened nor clicked."""
    success = OUTCOMES[kind][0]
    failure, failure_rate = _FAILURES[kind]
    status = sandbox.outcomes.get(kind, {}).get(recipient.lower())
    if status is None and hit(sandbox, failure_rate, failure_rate, recipient):
        status = failure
    engaged = status in ("opened", "clicked")
    if engaged and not trackable:
        return Outcome((success,))
    if status is not None:
        reason = reason_of(sandbox.settings.report_seed, status, recipient)
        return Outcome((success, status) if engaged else (status,), reason)
    rates = _ENGAGEMENT.get(kind, ()) if trackable else ()
    return Outcome((success, *(status for status, rate in rates if hit(sandbox, rate, rate, recipient))))
