"""Brakes: of a campaign, or of a connection's single sends, with too many permanent failures no recipient is listed.

Then the cause is not the recipients. A brake of a campaign is released by more recipients, never by fewer failures,
because rows of failures may be pruned. That of single sends holds for what was reported within a day around it.
"""

from __future__ import annotations

import logging
import secrets
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime, timedelta
from typing import Any

from sqlalchemy import ColumnElement, Connection, and_, delete, exists, func, or_, select

from cpaas_provider.database.activity.upsert import upsert
from cpaas_provider.database.schema.delivery import RequestState, deliveries, requests, sends, suppression_brakes
from cpaas_provider.delivery.tracking.counts import COMMIT_LAG, IS_ACCEPTED, IS_FINAL, is_in_state
from cpaas_provider.delivery.tracking.permanent_failures.reasons import KINDS
from cpaas_provider.delivery.tracking.request_recipients import UNTRACKED_PREFIX

log = logging.getLogger(__name__)

BRAKE_SHARE = 0.05
"""The share of a campaign's recipients of which permanent failures may list more than ``BRAKE_MINIMUM``."""

BRAKE_MINIMUM = 20
"""Fewer permanent failures of a campaign never stop it from listing them."""

SINGLE_SENDS_WINDOW = timedelta(days=1)
"""The single sends of a connection within this time are compared with the same numbers as one campaign."""

_SINGLE_SENDS = f"{UNTRACKED_PREFIX}single-"
"""Prefix of what takes the place of the campaign in a brake of single sends."""

_MOST_SHOWN = 20
HAS_FAILED = and_(
    deliveries.c.permanent_failure_at.is_not(None),
    or_(
        *(
            and_(deliveries.c.delivery_status == int(status), deliveries.c.kind == kind)
            for status, kind in KINDS.items()
        )
    ),
)
"""The condition on a row of ``deliveries``: its permanent failure counts. Before its kind is known, none does."""

IS_SINGLE = or_(
    and_(deliveries.c.campaign == deliveries.c.reference, IS_ACCEPTED),
    deliveries.c.campaign.startswith(UNTRACKED_PREFIX),
)
"""The condition on a row of ``deliveries``: its message is no campaign's. An unrecorded request may still be one's."""


def read_brakes(connection: Connection, campaign: str | None = None) -> list[Mapping[str, Any]]:
    """Return the campaigns whose reports list no recipient, the newest first, or only this one."""
    query = select(suppression_brakes).order_by(suppression_brakes.c.braked_at.desc()).limit(_MOST_SHOWN)
    if campaign is not None:
        query = query.where(suppression_brakes.c.campaign == campaign)
    return [dict(row) for row in connection.execute(query).mappings()]


def may_hold(before: datetime) -> ColumnElement[bool]:
    """Return the condition for a row of ``suppression_brakes``: it may hold for rows of ``deliveries``.

    :param before: a moment at least ``SINGLE_SENDS_WINDOW`` after the brake was applied
    """
    rows, brakes = deliveries.c, suppression_brakes.c
    in_campaign = rows.campaign == brakes.campaign
    in_time = and_(
        brakes.campaign.startswith(_SINGLE_SENDS),
        rows.conn_id == brakes.conn_id,
        rows.failure_received_at < before,
    )
    return exists().where(rows.permanent_failure_at.is_not(None), or_(in_campaign, in_time))


def is_of_single_sends(brake: Mapping[str, Any]) -> bool:
    """Return whether a brake holds for the single sends of a connection, and not for a campaign."""
    return str(brake["campaign"]).startswith(_SINGLE_SENDS)


def _is_too_large(failures: int, size: int) -> bool:
    return failures >= BRAKE_MINIMUM and failures > BRAKE_SHARE * size


def apply_brake(connection: Connection, campaign: str) -> set[tuple[str, str]]:
    """Store whether a campaign has too many permanent failures. Return the recipients whose entries that changes."""
    of_campaign = and_(deliveries.c.campaign == campaign, HAS_FAILED)
    if (owner := _connection_of(connection, campaign)) is not None:
        # What the service of another connection reports says nothing about the recipients of this one.
        of_campaign = and_(of_campaign, deliveries.c.conn_id == owner)
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


def apply_brake_of_single_sends(connection: Connection, conn_id: str) -> set[tuple[str, str]]:
    """Store whether a connection's single sends have too many permanent failures.

    The brake holds for the reports of one window before and one after it. They never count, also if the share is small
    later, because a gateway that was repaired does not take its reports back.

    :return: the recipients whose entries that changes
    """
    now, brakes = datetime.now(UTC), brakes_of_single_sends(connection, conn_id)
    ends = [braked_at + SINGLE_SENDS_WINDOW for braked_at in brakes]
    if any(now < end for end in ends):
        return set()
    rows, since = deliveries.c, max((now - SINGLE_SENDS_WINDOW, *ends))
    # Other changes move `updated_at`, so it only makes the query use its index.
    recent = and_(rows.conn_id == conn_id, rows.updated_at >= since - COMMIT_LAG, IS_SINGLE)
    is_failure = and_(rows.failure_received_at >= since, HAS_FAILED)
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


def brakes_of_single_sends(connection: Connection, conn_id: str) -> Sequence[datetime]:
    """Return when the brakes of a connection's single sends were applied."""
    brakes = suppression_brakes.c
    of_connection = (brakes.conn_id == conn_id, brakes.campaign.startswith(_SINGLE_SENDS))
    return connection.execute(select(brakes.braked_at).where(*of_connection)).scalars().all()


def _connection_of(connection: Connection, campaign: str) -> str | None:
    """Return the connection that sends a campaign; ``None`` while its send is not recorded."""
    return connection.execute(select(sends.c.conn_id).where(sends.c.campaign == campaign)).scalar()


def _recipients(connection: Connection, campaign: str, failures: int) -> int:
    """Return the number of recipients of a campaign, as far as its requests are recorded, else by its reports."""
    is_accepted = and_(requests.c.campaign == campaign, is_in_state(RequestState.ACCEPTED))
    recorded = select(func.sum(requests.c.recipients)).where(is_accepted)
    if size := connection.execute(recorded).scalar():
        return int(size)
    # No more than it takes to decide.
    rows = select(deliveries.c.recipient).where(deliveries.c.campaign == campaign).limit(round(failures / BRAKE_SHARE))
    return connection.execute(select(func.count()).select_from(rows.subquery())).scalar_one()
