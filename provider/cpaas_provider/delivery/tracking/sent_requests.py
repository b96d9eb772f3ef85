"""What senders note of what they send with callbacks, so that reports find their place."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from typing import NamedTuple

from sqlalchemy import Connection, and_, case, delete, func, select, update

from cpaas_provider.database.bulk import batched
from cpaas_provider.database.schema import deliveries, requests, sends
from cpaas_provider.delivery.reports import DeliveryStatus
from cpaas_provider.delivery.tracking.counts import COMMIT_LAG
from cpaas_provider.delivery.tracking.membership import merge_recipients
from cpaas_provider.delivery.tracking.recipient_status import insert_for, merge_rows, upsert_statuses
from cpaas_provider.delivery.tracking.report_store import UNTRACKED_PREFIX

_NEWEST = 10_000


@dataclass(frozen=True, slots=True)
class TrackedSend:
    """What a task sends: a campaign, or a request that is one by itself."""

    campaign: str
    operation: str
    conn_id: str
    dag_id: str
    run_id: str
    task_id: str
    map_index: int


class SentRequest(NamedTuple):
    """One request.

    :param recipients: how many it names
    :param message_id: the service's id of it, once known
    """

    reference: str
    recipients: int
    message_id: str | None = None


def record_send_started(connection: Connection, send: TrackedSend) -> None:
    """Note that something is about to be sent; a later try of the same goes on with it."""
    connection.execute(
        insert_for(connection, sends).on_conflict_do_nothing(index_elements=[sends.c.campaign]),
        [{**asdict(send), "started_at": datetime.now(UTC)}],
    )


def record_requests(connection: Connection, campaign: str, conn_id: str, made: Sequence[SentRequest]) -> None:
    """Note requests of a campaign that the service accepted.

    Reports that came on their connection under their own names or ids before are theirs from now on.
    """
    if not made:
        return
    now = datetime.now(UTC)
    insert = insert_for(connection, requests)
    known = requests.c.message_id
    common = {"campaign": campaign, "conn_id": conn_id, "recorded_at": now, "tracked": False}
    connection.execute(
        insert.on_conflict_do_update(
            index_elements=[requests.c.conn_id, requests.c.reference],
            set_={"message_id": insert.excluded.message_id},
            where=insert.excluded.message_id.is_not(None) & known.is_distinct_from(insert.excluded.message_id),
        ),
        [{**common, **one._asdict()} for one in sorted(made)],
    )
    _attach_untracked_reports(connection, campaign, conn_id, made, now)


def count_recorded_recipients(connection: Connection, campaign: str) -> int:
    """Return how many recipients the requests of a campaign have that were noted."""
    noted = select(func.coalesce(func.sum(requests.c.recipients), 0)).where(requests.c.campaign == campaign)
    return int(connection.execute(noted).scalar_one())


def record_send_finished(connection: Connection, campaign: str, expected: int, unknown: int = 0) -> None:
    """Note to how many was sent in all tries, so that it can be told when all of them are final.

    :param expected: recipients of requests that the service accepted, all of which were noted
    :param unknown: recipients of requests whose outcome is unknown
    """
    now = datetime.now(UTC)
    same = sends.c.expected.is_not_distinct_from(expected)
    finished = case((same, sends.c.finished_at))
    ended = {"expected": expected, "unknown": unknown, "ended_at": now, "finished_at": finished}
    connection.execute(update(sends).where(sends.c.campaign == campaign).values(ended))
    # Who was storing a report of a request while that was noted did not see it.
    columns = select(requests.c.conn_id, requests.c.reference, requests.c.recipients, requests.c.message_id)
    lately: dict[str, list[SentRequest]] = {}
    for row in connection.execute(
        columns.where(requests.c.campaign == campaign, requests.c.recorded_at >= now - COMMIT_LAG)
    ):
        lately.setdefault(row.conn_id, []).append(SentRequest(*row[1:]))
    for conn_id, made in lately.items():
        _attach_untracked_reports(connection, campaign, conn_id, made, now)


def _attach_untracked_reports(
    connection: Connection, campaign: str, conn_id: str, made: Sequence[SentRequest], now: datetime
) -> None:
    """File under their campaign what was reported of requests before they were recorded."""
    waiting = {f"{UNTRACKED_PREFIX}{one.message_id}": one for one in made if one.message_id}
    waiting |= {one.reference: one for one in made if one.reference != campaign}
    by_reference = {one.reference: one for one in made}
    # What came before of a request that is a campaign by itself is where it belongs already.
    adopted = {one.reference: one.recipients for one in made if one.reference == campaign}
    for names in batched(waiting):
        # Taken as they are read: what another process brings meanwhile is not lost.
        theirs = and_(deliveries.c.conn_id == conn_id, deliveries.c.campaign.in_(names))
        taken = delete(deliveries).where(theirs).returning(deliveries)
        found = [(row, waiting[row["campaign"]]) for row in connection.execute(taken).mappings()]
        rows = merge_rows(
            {**row, "campaign": campaign, "reference": request.reference, "updated_at": now}
            for row, request in found
            if row["recipient"] or request.recipients == 1
        )
        upsert_statuses(connection, rows)
        adopted |= {request.reference: request.recipients for request in (by_reference[key[2]] for key in rows)}
    if adopted:
        merge_recipients(connection, campaign, conn_id, adopted)


def record_recipients(
    connection: Connection, campaign: str, conn_id: str, reference: str, recipients: Iterable[str]
) -> None:
    """Note who was sent to, so that those nothing is ever reported of are known, too.

    :param recipients: as ``reports.normalise_recipient`` writes them
    """
    now, known = datetime.now(UTC), sorted(set(recipients))
    theirs = and_(requests.c.conn_id == conn_id, requests.c.reference == reference)
    # Once is enough: a recipient that was erased since is not recorded again.
    if not known or connection.execute(select(requests.c.tracked).where(theirs)).scalar():
        return
    merge_recipients(connection, campaign, conn_id, {reference: len(known)}, known)
    connection.execute(update(requests).where(theirs).values(tracked=True))
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
        "reported_at": now,
        "updated_at": now,
    }
    insert = insert_for(connection, deliveries)
    there = list(deliveries.primary_key.columns)
    rows = [{**common, "recipient": recipient} for recipient in known]
    connection.execute(insert.on_conflict_do_nothing(index_elements=there), rows)


def sending_connections(connection: Connection) -> set[str]:
    """Return the ids of the connections that the newest of what was sent with callbacks went by."""
    newest = select(sends.c.conn_id).order_by(sends.c.started_at.desc()).limit(_NEWEST).subquery()
    return set(connection.execute(select(newest.c.conn_id).distinct()).scalars())
