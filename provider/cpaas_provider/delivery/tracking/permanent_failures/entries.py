"""The entries that delivery reports make on the suppression list.

A recipient is on the list of a connection by reports if its newest report of a permanent failure is newer than every
report that proves the recipient reachable. Both count by the time of the report, in each order of arrival. A
failure of a message that was delivered, opened or clicked by its rank does not count. Neither do the failures of a
campaign with too many of them, or of a connection's single sends within a day: then the cause is not the recipients.
What a person adds or removes, no report changes.
"""

from __future__ import annotations

import logging
import secrets
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from typing import Any

from sqlalchemy import ColumnElement, Connection, and_, delete, exists, func, or_, select, update

from cpaas_provider.database.activity.upsert import upsert
from cpaas_provider.database.bulk import batched
from cpaas_provider.database.recipients.hash_keys import HashSecretMissingError, find_rows, read_hasher
from cpaas_provider.database.recipients.locks import lock_for_reading, lock_for_writing
from cpaas_provider.database.recipients.suppressions import HARD_BOUNCE, INVALID_NUMBER, Listed, add_listed
from cpaas_provider.database.schema.delivery import RequestState, deliveries, requests, suppression_brakes
from cpaas_provider.database.schema.recipients import suppressions
from cpaas_provider.delivery.tracking.counts import COMMIT_LAG, IS_ACCEPTED, IS_FINAL, is_in_state
from cpaas_provider.delivery.tracking.permanent_failures.reasons import KINDS
from cpaas_provider.delivery.tracking.recipient_status import Key
from cpaas_provider.delivery.tracking.request_recipients import UNNAMED_PREFIX, UNTRACKED_PREFIX

log = logging.getLogger(__name__)

SOURCE = "delivery report"

BRAKE_SHARE = 0.05
"""The share of a campaign's recipients of which permanent failures may list more than ``BRAKE_MINIMUM``."""

BRAKE_MINIMUM = 20
"""Fewer permanent failures of a campaign never stop it from listing them."""

SINGLE_SENDS_WINDOW = timedelta(days=1)
"""The single sends of a connection within this time are compared with the same numbers as one campaign."""

_SINGLE_SENDS = f"{UNTRACKED_PREFIX}single-"
"""Prefix of what takes the place of the campaign in a brake of single sends."""

_MOST_SHOWN = 20
_LOCK = "suppressions by delivery reports"
_HAS_FAILED = and_(
    deliveries.c.permanent_failure_at.is_not(None),
    or_(
        *(
            and_(deliveries.c.delivery_status == int(status), deliveries.c.kind == kind)
            for status, kind in KINDS.items()
        )
    ),
)
"""The condition on a row of ``deliveries``: its permanent failure counts. Before its kind is known, none does."""

_IS_SINGLE = or_(
    and_(deliveries.c.campaign == deliveries.c.reference, IS_ACCEPTED),
    deliveries.c.campaign.startswith(UNTRACKED_PREFIX),
)
"""The condition on a row of ``deliveries``: its message is no campaign's. An unrecorded request may still be one's."""

_BY_REPORT = suppressions.c.reported_at.is_not(None)


def update_entries(
    connection: Connection,
    failed: Collection[Key],
    reached: Collection[Key],
    moved: Iterable[tuple[Mapping[str, Any], str | None]] = (),
) -> None:
    """Update the entries of recipients whose rows changed. It comes last in a transaction, because it takes a lock.

    The lock lets a report of a failure see all reports that prove its recipient reachable, and the other way round.
    Reports that prove recipients reachable do not wait for each other.

    :param failed: the rows with a report of a permanent failure
    :param reached: the rows with a report that proves the recipient reachable
    :param moved: rows as they were stored, each with the recipient whose row it became; ``None`` if it was deleted
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
    if changed:
        lock_for_writing(connection, _LOCK)
    elif reached:
        lock_for_reading(connection, _LOCK)
    if changed or (reached and connection.execute(select(suppressions.c.reason).where(_BY_REPORT).limit(1)).first()):
        for campaign in sorted({key[0] for key in failed}):
            changed |= _apply_brake(connection, campaign)
        for conn_id in sorted({key[1] for key in failed if key[0] == key[2] or key[0].startswith(UNTRACKED_PREFIX)}):
            changed |= _apply_brake_of_single_sends(connection, conn_id)
        _update(connection, changed, {(key[1], key[3]) for key in reached} - changed, withdrawn)


def update_brake(connection: Connection, campaign: str) -> None:
    """Apply the brake of a campaign again, as more of its requests are recorded. It comes last in a transaction."""
    lock_for_writing(connection, _LOCK)
    _update(connection, _apply_brake(connection, campaign), ())


def read_brakes(connection: Connection, campaign: str | None = None) -> list[Mapping[str, Any]]:
    """Return the campaigns whose reports list no recipient, the newest first, or only this one."""
    query = select(suppression_brakes).order_by(suppression_brakes.c.braked_at.desc()).limit(_MOST_SHOWN)
    if campaign is not None:
        query = query.where(suppression_brakes.c.campaign == campaign)
    return [dict(row) for row in connection.execute(query).mappings()]


def may_hold(before: datetime) -> ColumnElement[bool]:
    """Return the condition for a row of ``suppression_brakes``: it may hold for rows of ``deliveries``.

    :param before: a moment after the brake was applied
    """
    rows, brakes = deliveries.c, suppression_brakes.c
    in_campaign = rows.campaign == brakes.campaign
    in_time = and_(
        brakes.campaign.startswith(_SINGLE_SENDS),
        rows.conn_id == brakes.conn_id,
        rows.failure_received_at < before + SINGLE_SENDS_WINDOW,
    )
    return exists().where(rows.permanent_failure_at.is_not(None), or_(in_campaign, in_time))


def is_of_single_sends(brake: Mapping[str, Any]) -> bool:
    """Return whether a brake holds for the single sends of a connection, and not for a campaign."""
    return str(brake["campaign"]).startswith(_SINGLE_SENDS)


def _is_too_large(failures: int, size: int) -> bool:
    return failures >= BRAKE_MINIMUM and failures > BRAKE_SHARE * size


def _apply_brake(connection: Connection, campaign: str) -> set[tuple[str, str]]:
    """Store whether a campaign has too many permanent failures. Return the recipients whose entries that changes."""
    of_campaign = and_(deliveries.c.campaign == campaign, _HAS_FAILED)
    number = func.count(deliveries.c.recipient.distinct())
    failures, conn_id = connection.execute(select(number, func.max(deliveries.c.conn_id)).where(of_campaign)).one()
    is_brake = suppression_brakes.c.campaign == campaign
    brake = connection.execute(select(suppression_brakes).where(is_brake)).first()
    was_braked = brake is not None
    if brake is not None:
        # Fewer failures release no brake, because rows of failures may be pruned. Only more recipients do.
        failures, conn_id = max(failures, brake.failures), brake.conn_id
    size = _recipients(connection, campaign, failures) if failures >= BRAKE_MINIMUM else 0
    braked = _is_too_large(failures, size)
    if braked:
        values = {"campaign": campaign, "conn_id": conn_id, "failures": failures, "recipients": size}
        upsert(connection, suppression_brakes, {**values, "braked_at": datetime.now(UTC)})
    elif was_braked:
        connection.execute(delete(suppression_brakes).where(is_brake))
    if braked and not was_braked:
        log.warning(
            "Campaign %s on connection %r has %d permanent failures among %d recipients. More than %d %% are no fault "
            "of the recipients, so its delivery reports add no recipient to the suppression list. What they added was "
            "removed. Look at the reasons in the results file of its DeliverySensor, and at its sender and service.",
            campaign,
            conn_id,
            failures,
            size,
            round(100 * BRAKE_SHARE),
        )
    elif was_braked and not braked:
        log.info("Campaign %s has few permanent failures now. They are on the suppression list.", campaign)
    if braked is was_braked:
        return set()
    found = connection.execute(select(deliveries.c.conn_id, deliveries.c.recipient).where(of_campaign).distinct())
    return {(row.conn_id, row.recipient) for row in found}


def _apply_brake_of_single_sends(connection: Connection, conn_id: str) -> set[tuple[str, str]]:
    """Store whether a connection's single sends have too many permanent failures.

    The brake holds for the reports of one window before and one after it. They never count, also if the share is small
    later, because a gateway that was repaired does not take its reports back.

    :return: the recipients whose entries that changes
    """
    now, brakes = datetime.now(UTC), _brakes_of_single_sends(connection, conn_id)
    ends = [braked_at + SINGLE_SENDS_WINDOW for braked_at in brakes]
    if any(now < end for end in ends):
        return set()
    rows, since = deliveries.c, max((now - SINGLE_SENDS_WINDOW, *ends))
    # Other changes move `updated_at`, so it only makes the query use its index.
    recent = and_(rows.conn_id == conn_id, rows.updated_at >= since - COMMIT_LAG, _IS_SINGLE)
    is_failure = and_(rows.failure_received_at >= since, _HAS_FAILED)
    failed = connection.execute(select(rows.recipient).where(recent, is_failure).distinct()).scalars().all()
    if not _is_too_large(len(failed), 0):
        return set()
    reported = and_(recent, IS_FINAL, or_(is_failure, rows.reported_at >= since))
    size = connection.execute(select(func.count()).select_from(deliveries).where(reported)).scalar_one()
    if not _is_too_large(len(failed), size):
        return set()
    values = {"conn_id": conn_id, "failures": len(failed), "recipients": size, "braked_at": now}
    upsert(connection, suppression_brakes, {"campaign": f"{_SINGLE_SENDS}{secrets.token_hex(8)}", **values})
    log.warning(
        "The single sends on connection %r have %d permanent failures among %d recipients within %d hours. More than "
        "%d %% are no fault of the recipients. Their delivery reports add no recipient to the suppression list for "
        "this time and as long after it. What they added was removed. Look at the reasons in the delivery reports, and "
        "at the sender and the service.",
        conn_id,
        len(failed),
        size,
        SINGLE_SENDS_WINDOW / timedelta(hours=1),
        round(100 * BRAKE_SHARE),
    )
    return {(conn_id, recipient) for recipient in failed}


def _brakes_of_single_sends(connection: Connection, conn_id: str) -> Sequence[datetime]:
    brakes = suppression_brakes.c
    of_connection = (brakes.conn_id == conn_id, brakes.campaign.startswith(_SINGLE_SENDS))
    return connection.execute(select(brakes.braked_at).where(*of_connection)).scalars().all()


def _recipients(connection: Connection, campaign: str, failures: int) -> int:
    """Return the number of recipients of a campaign, as far as its requests are recorded, else by its reports."""
    is_accepted = and_(requests.c.campaign == campaign, is_in_state(RequestState.ACCEPTED))
    recorded = select(func.sum(requests.c.recipients)).where(is_accepted)
    if size := connection.execute(recorded).scalar():
        return int(size)
    # No more than it takes to decide.
    rows = select(deliveries.c.recipient).where(deliveries.c.campaign == campaign).limit(round(failures / BRAKE_SHARE))
    return connection.execute(select(func.count()).select_from(rows.subquery())).scalar_one()


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
            is_address = "@" in recipient
            reason, channel = (HARD_BOUNCE, "email") if is_address else (INVALID_NUMBER, "sms")
            added.append(Listed(recipient, reason, SOURCE, channel, conn_id, listed_at))
            continue
        hasher = read_hasher(connection)
        hashes = [] if hasher is None else hasher.hashes(recipient)
        own = and_(suppressions.c.recipient_hash.in_(hashes), suppressions.c.conn_id == conn_id, _BY_REPORT)
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
    found = find_rows(connection, hasher, recipients, columns, suppressions.c.conn_id == conn_id, _BY_REPORT)
    return {recipient: row.reported_at for recipient, row in found}


def _read_reported(connection: Connection, conn_id: str, recipients: Iterable[str]) -> dict[str, _Reported]:
    columns = (
        deliveries.c.recipient,
        deliveries.c.failure_received_at,
        _HAS_FAILED.label("has_failed"),
        _IS_SINGLE.label("is_single"),
        deliveries.c.permanent_failure_at,
        deliveries.c.reached_at,
        suppression_brakes.c.campaign.label("braked"),
    )
    joined = deliveries.outerjoin(suppression_brakes, suppression_brakes.c.campaign == deliveries.c.campaign)
    has_said = or_(deliveries.c.permanent_failure_at.is_not(None), deliveries.c.reached_at.is_not(None))
    query = select(*columns).select_from(joined).where(deliveries.c.conn_id == conn_id, has_said)
    brakes = _brakes_of_single_sends(connection, conn_id)
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
