"""The records that senders make of their sends with callbacks, so that reports can be matched to campaigns."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from typing import NamedTuple

from sqlalchemy import Connection, and_, case, delete, func, or_, select, update

from cpaas_provider.database.activity.upsert import insert_into
from cpaas_provider.database.bulk import batched
from cpaas_provider.database.schema.delivery import deliveries, requests, sends
from cpaas_provider.delivery.reports import DeliveryStatus
from cpaas_provider.delivery.tracking.membership import Moved, lock_names, merge_recipients
from cpaas_provider.delivery.tracking.permanent_failures.entries import BRAKE_MINIMUM, update_brake, update_entries
from cpaas_provider.delivery.tracking.recipient_status import Key, key_of, merge_rows, upsert_statuses
from cpaas_provider.delivery.tracking.report_store import (
    DUPLICATE,
    KINDS,
    OF_REPEATED_PURCHASE,
)
from cpaas_provider.delivery.tracking.request_recipients import UNTRACKED_PREFIX, hash_in_request

_NEWEST_SENDS = 10_000


@dataclass(frozen=True, slots=True)
class TrackedSend:
    """A send of a task: a campaign, or a single request, which counts as a campaign of its own."""

    campaign: str
    operation: str
    conn_id: str
    dag_id: str
    run_id: str
    task_id: str
    map_index: int


class SentRequest(NamedTuple):
    """One request that the service accepted.

    :param recipients: the number of recipients
    :param message_id: the service's id, if known
    :param rejected: the recipients that the service rejected from it, in the form of ``reports.normalise_recipient``
    """

    reference: str
    recipients: int
    message_id: str | None = None
    rejected: tuple[str, ...] = ()


def record_send_started(connection: Connection, send: TrackedSend) -> None:
    """Record that a send starts. A later try of the task continues the same record, which has not ended then."""
    insert = insert_into(connection.dialect.name, sends)
    connection.execute(
        insert.on_conflict_do_update(
            index_elements=[sends.c.campaign],
            set_={"ended_at": None},
            where=and_(sends.c.conn_id == insert.excluded.conn_id, sends.c.finished_at.is_(None)),
        ),
        [{**asdict(send), "started_at": datetime.now(UTC)}],
    )


def record_requests(connection: Connection, campaign: str, conn_id: str, made: Sequence[SentRequest]) -> None:
    """Record requests of a campaign that the service accepted.

    Reports that arrived earlier, under the requests' own references or message ids, move to the campaign. Call this
    once in a transaction, before the rows of recipients are written: it locks the references and message ids.
    """
    if not made:
        return
    now = datetime.now(UTC)
    insert = insert_into(connection.dialect.name, requests)
    message_id, rejected = insert.excluded.message_id, insert.excluded.rejected
    common = {"campaign": campaign, "conn_id": conn_id, "recorded_at": now, "tracked": False}
    connection.execute(
        insert.on_conflict_do_update(
            index_elements=[requests.c.conn_id, requests.c.reference],
            set_={
                "message_id": func.coalesce(message_id, requests.c.message_id),
                "rejected": func.coalesce(requests.c.rejected, rejected),
            },
            where=or_(
                message_id.is_not(None) & requests.c.message_id.is_distinct_from(message_id),
                requests.c.rejected.is_(None) & rejected.is_not(None),
            ),
        ),
        [
            {**common, **request._asdict(), "rejected": _hashes_of_rejected(connection, campaign, conn_id, request)}
            for request in sorted(made)
        ],
    )
    moved: Moved = []
    failed = _attach_untracked_reports(connection, campaign, conn_id, made, now, moved)
    if made[0].reference == campaign:
        failed |= _complete_kind(connection, campaign, conn_id)
    update_entries(connection, failed, (), moved)


def _kind_of(connection: Connection, campaign: str, conn_id: str) -> str | None:
    operation = select(sends.c.operation).where(sends.c.campaign == campaign, sends.c.conn_id == conn_id)
    return KINDS.get(connection.execute(operation).scalar() or "")


def _complete_kind(connection: Connection, campaign: str, conn_id: str) -> set[Key]:
    """Set the kind of reports that arrived before their request was recorded, because they may not contain it.

    :return: the rows that may have a permanent failure of this kind
    """
    if (kind := _kind_of(connection, campaign, conn_id)) is None:
        return set()
    rows = deliveries.c
    incomplete = (rows.campaign == campaign, rows.conn_id == conn_id, rows.kind.is_(None))
    changed = update(deliveries).where(*incomplete).values(kind=kind).returning(deliveries)
    return {key_of(dict(row)) for row in connection.execute(changed).mappings() if row["permanent_failure_at"]}


def record_repeated_purchase(connection: Connection, conn_id: str, reference: str) -> None:
    """Correct the reports of a purchase that was repeated on purpose, and that the service then called a duplicate.

    They say that the repeat bought nothing, because the first request did.
    """
    rows = deliveries.c
    is_duplicate = (rows.campaign == reference, rows.conn_id == conn_id, rows.status == DUPLICATE)
    changed = {**OF_REPEATED_PURCHASE, "updated_at": datetime.now(UTC)}
    connection.execute(update(deliveries).where(*is_duplicate).values(changed))


def _hashes_of_rejected(connection: Connection, campaign: str, conn_id: str, request: SentRequest) -> str | None:
    owner = campaign, conn_id, request.reference
    return "".join(hash_in_request(connection, owner, recipient) for recipient in request.rejected) or None


def count_recorded_recipients(connection: Connection, campaign: str) -> int:
    """Return the number of recipients of a campaign's recorded requests."""
    recorded = select(func.coalesce(func.sum(requests.c.recipients), 0)).where(requests.c.campaign == campaign)
    return int(connection.execute(recorded).scalar_one())


def record_send_finished(connection: Connection, campaign: str, expected: int, unknown: int = 0) -> None:
    """Record the number of recipients of all tries, so that the publisher can see when all have a final status.

    :param expected: the number of recipients the service accepted; all their requests are recorded
    :param unknown: the number of recipients of requests whose outcome is unknown
    """
    # The campaign stays finished only if this try accepted no further recipient.
    finished_at = case((sends.c.expected.is_not_distinct_from(expected), sends.c.finished_at))
    ended = {"expected": expected, "unknown": unknown, "ended_at": datetime.now(UTC), "finished_at": finished_at}
    connection.execute(update(sends).where(sends.c.campaign == campaign).values(ended))
    if expected >= BRAKE_MINIMUM:
        # Only now the number of recipients is complete.
        update_brake(connection, campaign)


def _attach_untracked_reports(
    connection: Connection,
    campaign: str,
    conn_id: str,
    made: Sequence[SentRequest],
    now: datetime,
    moved_rows: Moved,
) -> set[Key]:
    """Move reports of requests that arrived before the requests were recorded to the campaign.

    :param moved_rows: gets the rows that turned out to be another recipient's
    :return: the rows with a permanent failure
    """
    waiting = {f"{UNTRACKED_PREFIX}{request.message_id}": request for request in made if request.message_id}
    waiting |= {request.reference: request for request in made if request.reference != campaign}
    by_reference = {request.reference: request for request in made}
    lock_names(connection, conn_id, {*by_reference, *(request.message_id for request in made if request.message_id)})
    # Earlier reports of a single request are stored under its reference, which is the campaign already.
    attached = {
        request.reference: request.recipients for request in made if request.reference == campaign or request.rejected
    }
    failed: set[Key] = set()
    for names in batched(waiting):
        # Deleted and read by one statement, so that a row which another process adds meanwhile is not lost.
        under_names = and_(deliveries.c.conn_id == conn_id, deliveries.c.campaign.in_(names))
        taken = delete(deliveries).where(under_names).returning(deliveries)
        found = [(row, waiting[row["campaign"]]) for row in connection.execute(taken).mappings()]
        kind = _kind_of(connection, campaign, conn_id) if found else None
        rows = merge_rows(
            {
                **row,
                "campaign": campaign,
                "reference": request.reference,
                "kind": row["kind"] or kind,
                "updated_at": now,
            }
            for row, request in found
            if row["recipient"] or request.recipients == 1
        )
        upsert_statuses(connection, rows)
        attached |= {reference: by_reference[reference].recipients for _, _, reference, _ in rows}
        failed |= {key for key, row in rows.items() if row["permanent_failure_at"]}
    if attached:
        merge_recipients(connection, campaign, conn_id, attached, moved_rows)
    return failed


def record_recipients(connection: Connection, campaign: str, conn_id: str, made: Mapping[str, Iterable[str]]) -> None:
    """Record the recipients of requests, so that those without a report are known, too.

    Reports that arrived earlier and named no recipient are about the only recipient of their request, also for the
    suppression list. Call this once in a transaction: it takes the lock of the list last.

    :param made: the recipients of each request in the form of ``reports.normalise_recipient``, by its reference
    """
    moved: Moved = []
    for reference, recipients in made.items():
        _record_recipients(connection, campaign, conn_id, reference, recipients, moved)
    update_entries(connection, (), (), moved)


def _record_recipients(
    connection: Connection,
    campaign: str,
    conn_id: str,
    reference: str,
    recipients: Iterable[str],
    moved_rows: Moved,
) -> None:
    now, names = datetime.now(UTC), sorted(set(recipients))
    is_request = and_(requests.c.conn_id == conn_id, requests.c.reference == reference)
    # Only once, so that a recipient that was erased since then is not recorded again.
    if not names or connection.execute(select(requests.c.tracked).where(is_request)).scalar():
        return
    known = merge_recipients(connection, campaign, conn_id, {reference: len(names)}, moved_rows, names)
    connection.execute(update(requests).where(is_request).values(tracked=True))
    common = {
        "campaign": campaign,
        "reference": reference,
        "message_id": None,
        "conn_id": conn_id,
        "kind": None,
        "delivery_status": int(DeliveryStatus.IN_FLIGHT),
        "status": "",
        "reason": None,
        **dict.fromkeys(("delivered", "failed", "clicked"), False),
        **dict.fromkeys(("permanent_failure_at", "reached_at")),
        "reported_at": now,
        "updated_at": now,
    }
    insert = insert_into(connection.dialect.name, deliveries)
    missing = insert.on_conflict_do_nothing(index_elements=[*deliveries.primary_key.columns])
    connection.execute(missing, [{**common, "recipient": recipient} for recipient in names if recipient in known])


def sending_connections(connection: Connection) -> set[str]:
    """Return the ids of the connections of the newest sends with callbacks."""
    newest = select(sends.c.conn_id).order_by(sends.c.started_at.desc()).limit(_NEWEST_SENDS).subquery()
    return set(connection.execute(select(newest.c.conn_id).distinct()).scalars())
