"""Sending to many people in packs, and to nobody twice, whatever ends a try."""

from __future__ import annotations

import hashlib
import logging
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any

from airflow.sdk import NEVER_EXPIRE

from cpaas_provider.api import (
    CpaasAuthenticationError,
    CpaasError,
    CpaasInsufficientBalanceError,
    CpaasRejectedError,
)

if TYPE_CHECKING:
    from airflow.sdk.execution_time.context import TaskStateStoreAccessor

log = logging.getLogger(__name__)

# Refused because of the account, not because of somebody in the pack.
_ACCOUNT_REFUSED = (CpaasAuthenticationError, CpaasInsufficientBalanceError)
_OUTCOMES = ("sent", "rejected", "unknown", "not_sent")


class RecipientsChangedError(ValueError):
    """An earlier try of this task sent to another list of people."""


class Journal:
    """What became of each pack of a list of recipients. A note is stored for good before the call returns.

    A pack is ``intended`` from just before its request until its answer. One that a later try finds so was cut off in
    between and may have been sent: it is ``unknown``. Packs are named by their place in the list, and the list is
    known by its hash, so no number and no address is stored.

    :param store: the task's ``context["task_state_store"]``, which outlives tries
    :raises RecipientsChangedError: when an earlier try had begun with another list
    """

    def __init__(self, store: TaskStateStoreAccessor, recipients: list[str], pack_size: int) -> None:
        self.recipients = recipients
        self._size = pack_size
        self._store = store
        self._list = hashlib.sha256("\n".join([str(pack_size), *recipients]).encode()).hexdigest()
        kept = store.get("journal") or {"list": self._list, "packs": {}}
        self.notes: dict[str, dict[str, Any]] = kept["packs"]
        if self.notes and kept["list"] != self._list:
            raise RecipientsChangedError(
                "The recipients are not those of the earlier try, so nobody can tell who got the message already. "
                "This try sent nothing. Start a new run to send to the new list."
            )
        for note in self.notes.values():
            if note["state"] == "intended":
                note["state"] = "unknown"

    def packs(self) -> Iterator[range]:
        """Yield every pack as its places in the list; of one that was split its halves, also when split meanwhile."""
        everybody = range(len(self.recipients))
        waiting = [everybody[start : start + self._size] for start in everybody[:: self._size]][::-1]
        while waiting:
            pack = waiting.pop()
            if self.state(pack) != "split":
                yield pack
            if self.state(pack) == "split":
                middle = len(pack) // 2
                waiting += [pack[middle:], pack[:middle]]

    def state(self, pack: range) -> str:
        """Return ``sent``, ``rejected``, ``split``, ``unknown``, or ``not_sent`` where that is still to be done."""
        return str(self.of(pack).get("state", "not_sent"))

    def of(self, pack: range) -> dict[str, Any]:
        """Return all that is noted of a pack."""
        return self.notes.get(f"{pack.start}-{pack.stop}", {})

    def note(self, pack: range, state: str, **facts: Any) -> None:
        """Store what became of a pack: ids, figures and reasons."""
        self.notes[f"{pack.start}-{pack.stop}"] = {"state": state, **facts}
        self._save()

    def take_back(self, pack: range) -> None:
        """Store that a pack was not sent after all."""
        del self.notes[f"{pack.start}-{pack.stop}"]
        self._save()

    def _save(self) -> None:
        self._store.set("journal", {"list": self._list, "packs": self.notes}, retention=NEVER_EXPIRE)


def send_in_packs(journal: Journal, send: Callable[[range], Any]) -> None:
    """Send to everybody who was not sent to before.

    A rejected pack is halved until the person it was rejected for stands alone. A pack whose outcome nobody knows is
    noted and never sent again. What makes going on pointless is raised, with nothing left in doubt.

    :param send: sends to a pack and returns the message the service made of it
    """
    for pack in journal.packs():
        if journal.state(pack) != "not_sent":
            continue
        journal.note(pack, "intended")
        try:
            message = send(pack)
        except CpaasError as error:
            if error.maybe_sent:
                journal.note(pack, "unknown", reason=str(error))
            elif not isinstance(error, CpaasRejectedError) or isinstance(error, _ACCOUNT_REFUSED):
                journal.take_back(pack)
                raise
            elif len(pack) > 1:
                journal.note(pack, "split")
            else:
                journal.note(pack, "rejected", reason=str(error))
        else:
            journal.note(pack, "sent", id=message.id, **_figures(message))
            log.info("Message %s was accepted, recipients: %d", message.id, len(pack))


def figures(journal: Journal) -> dict[str, Any]:
    """Return counts of recipients by outcome, and cost and balance, over all tries so far."""
    counts = dict.fromkeys(_OUTCOMES, 0)
    for pack in journal.packs():
        counts[journal.state(pack)] += len(pack)
    sent = [note for note in journal.notes.values() if note["state"] == "sent"]
    latest = max(sent, key=lambda note: note["at"] or "", default={})
    return {
        **counts,
        "requests": len(sent),
        "charge": round(sum(note["charge"] or 0 for note in sent), 4),
        "balance": latest.get("balance"),
        "at": latest.get("at"),
    }


def outcomes(journal: Journal) -> Iterator[dict[str, Any]]:
    """Yield one line for each recipient: what became of the message to them, and why."""
    for pack in journal.packs():
        noted = journal.of(pack)
        facts = {"message_id": noted.get("id"), "reason": noted.get("reason")}
        for place in pack:
            said = {name: fact for name, fact in facts.items() if fact}
            yield {"to": journal.recipients[place], "outcome": journal.state(pack), **said}


def _figures(message: Any) -> dict[str, Any]:
    """Return cost and balance, which the service tells with this answer and nowhere else."""
    estimate = message.meta.estimate if message.meta else None
    return {
        "charge": estimate.charge if estimate else None,
        "balance": estimate.available_balance if estimate else None,
        "at": message.created_datetime.isoformat() if message.created_datetime else None,
    }
