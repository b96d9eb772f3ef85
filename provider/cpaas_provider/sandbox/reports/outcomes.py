"""What becomes of a recipient: seeded, or drawn at the rates set; the same recipient always fares the same.

Every draw is a hash of the setting ``report_seed``, of what is drawn for and of the recipient, so that a run can be
repeated and two programs agree on it.
"""

from __future__ import annotations

from dataclasses import dataclass
from hashlib import blake2b

from cpaas_provider.sandbox.core.context import Sandbox

IN_FLIGHT = "sent"
# How good a word is: the best that was said of a message is its outcome.
RANK = {IN_FLIGHT: 0, "undelivered": 1, "delivered": 2, "bounced": 3, "opened": 4, "clicked": 5}

# kind -> what may be seeded for a recipient; the first is what happens otherwise
OUTCOMES: dict[str, tuple[str, ...]] = {
    "sms": ("delivered", "undelivered", "clicked"),
    "email": ("delivered", "bounced", "opened", "clicked"),
    "airtime": ("success", "failed", "error"),
}
# kind -> how it fails, and the setting that says how often
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
    """Return a number from 0 up to 1 that depends on nothing else."""
    digest = blake2b(f"{seed}\0{purpose}\0{recipient}".encode(), digest_size=7).digest()
    return int.from_bytes(digest, "big") / 2**56


def reason_of(seed: int, status: str, recipient: str) -> str | None:
    """Return why it came to a status; None where nothing failed."""
    reasons = REASONS.get(status)
    return reasons[int(seeded_uniform(seed, "reason", recipient) * len(reasons))] if reasons else None


@dataclass(frozen=True, slots=True)
class Outcome:
    """What will be said of one recipient once it is final, in order, and why where it failed."""

    statuses: tuple[str, ...]
    reason: str | None = None

    @property
    def outcome(self) -> str:
        """What it comes to in the end."""
        return self.statuses[-1]


def draw_outcome(sandbox: Sandbox, kind: str, recipient: str, trackable: bool = True) -> Outcome:
    """Return what becomes of a recipient; clicks and openings are drawn only where they can be tracked."""
    settings = sandbox.settings
    seed = settings.report_seed

    def hit(rate: str) -> bool:
        share: float = getattr(settings, rate)
        return share > 0 and seeded_uniform(seed, rate, recipient) < share

    good = OUTCOMES[kind][0]
    bad, failure_rate = _FAILURES[kind]
    seeded = sandbox.outcomes.get(kind, {}).get(recipient)
    if seeded is not None:
        engaged = seeded in ("opened", "clicked")
        return Outcome((good, seeded) if engaged else (seeded,), reason_of(seed, seeded, recipient))
    if hit(failure_rate):
        return Outcome((bad,), reason_of(seed, bad, recipient))
    more = [status for status, rate in _ENGAGEMENT.get(kind, ()) if trackable and hit(rate)]
    return Outcome((good, *more))
