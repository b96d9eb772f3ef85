"""The entries that delivery reports make on the suppression list.

A recipient is on the list of a connection by reports if its newest report of a permanent failure is newer than every
report that proves the recipient reachable. Both count by the time of the report, in each order of arrival. A
failure of a message that was delivered, opened or clicked by its rank does not count. Neither does one that a brake
holds back. What a person adds or removes, no report changes.
"""

from __future__ import annotations

import logging
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any

from sqlalchemy import Connection, and_, delete, or_, select, update

from cpaas_provider.database.bulk import Statement, batched, execute, select_at_once
from cpaas_provider.database.recipients.hash_keys import HashSecretMissingError, find_rows, read_hasher
from cpaas_provider.database.recipients.locks import lock_for_reading, lock_for_writing
from cpaas_provider.database.recipients.suppressions import Listed, add_listed, entry_by_report
from cpaas_provider.database.schema.delivery import deliveries, suppression_brakes
from cpaas_provider.database.schema.recipients import suppressions
from cpaas_provider.delivery.tracking.permanent_failures.brakes import (
    HAS_FAILED,
    IS_SINGLE,
    SINGLE_SENDS_WINDOW,
    apply_brake,
    apply_brake_of_single_sends,
    brakes_of_single_sends,
)
from cpaas_provider.delivery.tracking.recipient_status import Key
from cpaas_provider.delivery.tracking.request_recipients import UNNAMED_PREFIX, UNTRACKED_PREFIX

log = logging.getLogger(__name__)

SOURCE = "delivery report"
_LOCK = "suppressions by delivery reports"
_BY_REPORT = suppressions.c.reported_at.is_not(None)
_ANY_ENTRY = select(suppressions.c.reason).where(_BY_REPORT).limit(1)


def update_entries(
    connection: Connection,
    failed: Collection[Key],
    reached: Collection[Key],
    moved: Iterable[tuple[Mapping[str, Any], str | None]] = (),
    before: Statement | None = None,
) -> None:
    """Update the entries of recipients whose rows changed. It comes last in a transaction, because it takes a lock.

    The lock lets a report of a failure see all reports that prove its recipient reachable, and the other way round.
    Reports that prove recipients reachable do not wait for each other.

    :param failed: the rows with a report of a permanent failure
    :param reached: the rows with a report that proves the recipient reachable
    :param moved: rows as they were stored, each with the recipient whose row it became; ``None`` if it was deleted
    :param before: runs first
    """
    withdrawn: _Withdrawn = {}
    failed, reached = set(failed), set(reached)
    for row, recipient in moved:
        failed_at, pair = row["permanent_failure_at"], (row["conn_id"], row["recipient"])
        if failed_at is not None:
            withdrawn.setdefault(pair, []).append(failed_at)
        if recipient is not None and (failed_at is not None or row["reached_at"] is not None):
            key = row["campaign"], row["conn_id"], row["reference"], recipient
            (failed if failed_at is not None else reached).add(key)
    failed, reached = ({key for key in keys if not key[3].startswith(UNNAMED_PREFIX)} for keys in (failed, reached))
    changed = {(key[1], key[3]) for key in failed} | withdrawn.keys()
    if before is not None and (changed or not reached):
        execute(connection, before)
    if changed:
        lock_for_writing(connection, _LOCK)
    elif reached and (locking := lock_for_reading(connection.dialect.name, _LOCK)) is not None:
        before = locking._replace(before=before)
    if changed or (reached and select_at_once(connection, _ANY_ENTRY, {}, before)):
        for campaign in sorted({key[0] for key in failed}):
            changed |= apply_brake(connection, campaign)
        for conn_id in sorted({key[1] for key in failed if key[0] == key[2] or key[0].startswith(UNTRACKED_PREFIX)}):
            changed |= apply_brake_of_single_sends(connection, conn_id)
        _update(connection, changed, {(key[1], key[3]) for key in reached} - changed, withdrawn)


def update_brake(connection: Connection, campaign: str) -> None:
    """Apply the brake of a campaign again, as more of its requests are recorded. It comes last in a transaction."""
    lock_for_writing(connection, _LOCK)
    _update(connection, apply_brake(connection, campaign), ())


@dataclass
class _Reported:
    """What reports say of one recipient of a connection.

    :param failed_at: the newest permanent failure that counts
    :param not_counted: permanent failures that do not
    :param reached_at: the newest report that proves the recipient reachable
    """

    failed_at: datetime | None = None
    not_counted: list[datetime] = field(default_factory=list)
    reached_at: datetime | None = None

    def listed_at(self, before: datetime | None) -> datetime | None:
        """Return the time of the report that lists the recipient, ``None`` if none does.

        :param before: the time of the report by which it is listed now. Its row may be pruned
        """
        is_pruned = before is not None and all(before > moment for moment in self.not_counted)
        failed = max((moment for moment in (self.failed_at, before if is_pruned else None) if moment), default=None)
        return None if failed is None or (self.reached_at is not None and self.reached_at >= failed) else failed


_Withdrawn = dict[tuple[str, str], list[datetime]]
"""The times of permanent failures that turned out to be another recipient's, by connection and recipient."""


def _update(
    connection: Connection,
    changed: Collection[tuple[str, str]],
    reached: Collection[tuple[str, str]],
    withdrawn: _Withdrawn | None = None,
) -> None:
    """Add and remove entries of recipients, each with its connection.

    :param reached: recipients whose entries may only be removed
    """
    withdrawn = withdrawn or {}
    try:
        for conn_id in sorted({pair[0] for pair in (*changed, *reached)}):
            for batch in batched(sorted(pair[1] for pair in changed if pair[0] == conn_id)):
                _update_batch(connection, conn_id, batch, _entries(connection, conn_id, batch), withdrawn)
            for batch in batched(sorted(pair[1] for pair in reached if pair[0] == conn_id)):
                if entries := _entries(connection, conn_id, batch):
                    _update_batch(connection, conn_id, sorted(entries), entries, withdrawn)
    except HashSecretMissingError as error:
        # No error: the report itself is stored, and the service would only repeat it.
        log.warning("%s. The suppression list did not get %d recipients.", str(error).rstrip("."), len(changed))


def _update_batch(
    connection: Connection,
    conn_id: str,
    recipients: Iterable[str],
    entries: Mapping[str, datetime],
    withdrawn: _Withdrawn,
) -> None:
    reported = _read_reported(connection, conn_id, recipients)
    added: list[Listed] = []
    for recipient, of_recipient in reported.items():
        of_recipient.not_counted += withdrawn.get((conn_id, recipient), [])
        before = entries.get(recipient)
        listed_at = of_recipient.listed_at(before)
        if listed_at == before:
            continue
        if before is None:
            reason, channel = entry_by_report(recipient)
            added.append(Listed(recipient, reason, SOURCE, channel, conn_id, listed_at))
            continue
        hasher = read_hasher(connection)
        hashes = [] if hasher is None else hasher.hashes(recipient)
        own = and_(suppressions.c.recipient_hash.in_(hashes), suppressions.c.conn_id == conn_id.lower(), _BY_REPORT)
        if listed_at is None:
            connection.execute(delete(suppressions).where(own))
        else:
            connection.execute(update(suppressions).where(own).values(reported_at=listed_at))
    add_listed(connection, added)


def _entries(connection: Connection, conn_id: str, recipients: Iterable[str]) -> dict[str, datetime]:
    """Return the recipients that reports have listed, with the time of the newest report."""
    hasher = read_hasher(connection)
    if hasher is None:
        return {}
    columns = (suppressions.c.recipient_hash, suppressions.c.reported_at)
    found = find_rows(connection, hasher, recipients, columns, suppressions.c.conn_id == conn_id.lower(), _BY_REPORT)
    return {recipient: row.reported_at for recipient, row in found}


def _read_reported(connection: Connection, conn_id: str, recipients: Iterable[str]) -> dict[str, _Reported]:
    columns = (
        deliveries.c.recipient,
        deliveries.c.failure_received_at,
        HAS_FAILED.label("has_failed"),
        IS_SINGLE.label("is_single"),
        deliveries.c.permanent_failure_at,
        deliveries.c.reached_at,
        suppression_brakes.c.campaign.label("braked"),
    )
    joined = deliveries.outerjoin(suppression_brakes, suppression_brakes.c.campaign == deliveries.c.campaign)
    has_said = or_(deliveries.c.permanent_failure_at.is_not(None), deliveries.c.reached_at.is_not(None))
    query = select(*columns).select_from(joined).where(deliveries.c.conn_id == conn_id, has_said)
    brakes = brakes_of_single_sends(connection, conn_id)
    reported = {recipient: _Reported() for recipient in recipients}
    for row in connection.execute(query.where(deliveries.c.recipient.in_(list(reported)))):
        of_recipient = reported[row.recipient]
        if row.reached_at is not None:
            of_recipient.reached_at = max(row.reached_at, of_recipient.reached_at or row.reached_at)
        if (failed_at := row.permanent_failure_at) is None:
            continue
        is_braked = row.braked is not None or (
            row.is_single and any(abs(row.failure_received_at - moment) < SINGLE_SENDS_WINDOW for moment in brakes)
        )
        if row.has_failed and not is_braked:
            of_recipient.failed_at = max(failed_at, of_recipient.failed_at or failed_at)
        else:
            of_recipient.not_counted.append(failed_at)
    return reported
