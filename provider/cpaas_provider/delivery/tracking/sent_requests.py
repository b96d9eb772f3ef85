"""The records that senders make of their sends with callbacks, so that reports can be matched to campaigns."""

from __future__ import annotations

import functools
from collections.abc import Collection, Iterable, Mapping, Sequence
from datetime import UTC, datetime
from typing import Any, NamedTuple

from msgspec import Struct
from msgspec.structs import asdict
from sqlalchemy import Connection, Row, and_, case, delete, exists, func, null, or_, select, update

from cpaas_provider.database.activity.progress import record_resolved
from cpaas_provider.database.activity.upsert import insert_into
from cpaas_provider.database.bulk import batched, insert_many, select_among
from cpaas_provider.database.schema.base import has_conn_id
from cpaas_provider.database.schema.delivery import RequestState, deliveries, requests, sends
from cpaas_provider.delivery.reports import DeliveryStatus
from cpaas_provider.delivery.tracking.counts import is_in_state
from cpaas_provider.delivery.tracking.membership import Moved, lock_names, lock_to_change, merge_recipients
from cpaas_provider.delivery.tracking.permanent_failures.brakes import BRAKE_MINIMUM
from cpaas_provider.delivery.tracking.permanent_failures.entries import update_brake, update_entries
from cpaas_provider.delivery.tracking.recipient_status import Key, key_of, merge_rows, upsert_statuses
from cpaas_provider.delivery.tracking.report_store import (
    DUPLICATE,
    KINDS,
    OF_REPEATED_PURCHASE,
)
from cpaas_provider.delivery.tracking.request_recipients import UNTRACKED_PREFIX, hash_in_request

_NEWEST_SENDS = 10_000


class TrackedSend(Struct, frozen=True):
    """A send of a task: a campaign, or a single request, which counts as a campaign of its own."""

    campaign: str
    operation: str
    conn_id: str
    dag_id: str
    run_id: str
    task_id: str
    map_index: int


class SentRequest(NamedTuple):
    """One request.

    :param recipients: the number of recipients
    :param message_id: the service's id, if known
    :param rejected: the recipients that the service rejected from it, in the form of ``reports.normalise_recipient``
    :param unknown: the number of recipients whose outcome is unknown, in that state
    """

    reference: str
    recipients: int
    message_id: str | None = None
    rejected: tuple[str, ...] = ()
    state: RequestState = RequestState.ACCEPTED
    unknown: int = 0


class RecordedResolution(NamedTuple):
    """Where a manual resolution was recorded.

    :param tracked: the campaign whose delivery is tracked; ``None`` if the database tracks none of the task
    :param counted: the campaigns whose figures were changed
    """

    tracked: str | None
    counted: list[str]


def record_send_started(connection: Connection, send: TrackedSend) -> None:
    """Record that a send starts. A later try of the task continues the same record, which has not ended then.

    Until its next end is recorded, its progress has the number of recipients of unknown outcome, and reports count
    whose requests are not recorded yet.
    """
    insert = insert_into(connection.dialect.name, sends)
    connection.execute(
        insert.on_conflict_do_update(
            index_elements=[sends.c.campaign],
            set_={
                "ended_at": case((sends.c.finished_at.is_(None), null()), else_=sends.c.ended_at),
                "unknown": None,
            },
            where=sends.c.conn_id == insert.excluded.conn_id,
        ),
        [{**asdict(send), "started_at": datetime.now(UTC)}],
    )


def record_requests(connection: Connection, campaign: str, conn_id: str, made: Sequence[SentRequest]) -> None:
    """Record the states of requests of a campaign. An accepted request stays accepted.

    Reports that arrived earlier, under the requests' own references or message ids, move to the campaign. Call this
    once in a transaction, before the rows of recipients are written: it locks the references and message ids.
    """
    if not made:
        return
    now = datetime.now(UTC)
    insert = insert_into(connection.dialect.name, requests)
    message_id, rejected = insert.excluded.message_id, insert.excluded.rejected
    is_open = requests.c.state != RequestState.ACCEPTED
    changed = ("state", "unknown", "recipients")
    common = {"campaign": campaign, "conn_id": conn_id, "recorded_at": now, "tracked": False}
    connection.execute(
        insert.on_conflict_do_update(
            index_elements=[requests.c.conn_id, requests.c.reference],
            set_={
                "message_id": func.coalesce(message_id, requests.c.message_id),
                "rejected": func.coalesce(requests.c.rejected, rejected),
                **{name: case((is_open, insert.excluded[name]), else_=requests.c[name]) for name in changed},
            },
            where=or_(
                message_id.is_not(None) & requests.c.message_id.is_distinct_from(message_id),
                requests.c.rejected.is_(None) & rejected.is_not(None),
                and_(is_open, or_(*(requests.c[name] != insert.excluded[name] for name in changed))),
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
    # Reports on the webhook have the one id of its connection, however the DAG writes it.
    is_duplicate = (rows.campaign == reference, has_conn_id(rows.conn_id, conn_id), rows.status == DUPLICATE)
    changed = {**OF_REPEATED_PURCHASE, "updated_at": datetime.now(UTC)}
    connection.execute(update(deliveries).where(*is_duplicate).values(changed))


def _hashes_of_rejected(connection: Connection, campaign: str, conn_id: str, request: SentRequest) -> str | None:
    owner = campaign, conn_id, request.reference
    return "".join(hash_in_request(connection, owner, recipient) for recipient in request.rejected) or None


def record_states(connection: Connection, campaign: str, conn_id: str, made: Sequence[SentRequest]) -> None:
    """Record the states of all requests of a campaign, now that its task has ended.

    A request of unknown outcome that is recorded and not among them is superseded.
    """
    of_campaign = and_(requests.c.campaign == campaign, requests.c.conn_id == conn_id)
    # Accepted requests were recorded while the task sent. Only those are written again that could not be.
    recorded = select(requests.c.reference).where(of_campaign, is_in_state(RequestState.ACCEPTED))
    accepted = set(connection.execute(recorded).scalars())
    named = {request.reference for request in made}
    unknown = select(requests.c.reference).where(of_campaign, is_in_state(RequestState.UNKNOWN))
    superseded = [
        SentRequest(reference, recipients, state=RequestState.SUPERSEDED)
        for reference, recipients in connection.execute(unknown.add_columns(requests.c.recipients))
        if reference not in named
    ]
    missing = [request for request in made if request.reference not in accepted]
    record_requests(connection, campaign, conn_id, [*missing, *superseded])


def record_resolution(
    connection: Connection, place: tuple[str, str, str, int], known: Collection[str], resolved: Sequence[SentRequest]
) -> RecordedResolution:
    """Record that a person established the outcome of requests of a campaign.

    :param place: the task instance that sends it: DAG, run, task and map index
    :param known: the references of all of its requests
    :param resolved: the resolved requests in their new states, each with the number of recipients that it resolves, and
        the other requests of unknown outcome, which stay unknown or are superseded by it
    """
    send = _find_send(connection, place, known)
    sent, not_sent = (
        {request.reference: request.recipients for request in resolved if request.state is state}
        for state in (RequestState.ACCEPTED, RequestState.NOT_SENT)
    )
    counted = record_resolved(connection, None if send is None else send.campaign, place, sent, not_sent)
    if send is None:
        return RecordedResolution(None, counted)
    of_connection = select(requests).where(requests.c.conn_id == send.conn_id)
    references = [request.reference for request in resolved]
    before = {row.reference: row for row in select_among(connection, of_connection, requests.c.reference, references)}
    made, accepted, without_request = [], 0, 0
    for request in resolved:
        row = before.get(request.reference)
        if row is not None and row.state == RequestState.ACCEPTED:
            continue
        if request.state in {RequestState.UNKNOWN, RequestState.SUPERSEDED}:
            # Before the end of the task, none is recorded. Its end does.
            made += [request._replace(recipients=row.recipients)] if row is not None else []
            continue
        # Of a recorded request, the journal may name fewer recipients than it has. If a later request of unknown
        # outcome has some of them, too, they count for that one.
        recipients, number = request.recipients, request.recipients
        if row is not None:
            recipients, number = row.recipients, max(row.unknown, request.recipients)
        made.append(request._replace(recipients=recipients))
        without_request += 0 if row is not None else number
        accepted += number if request.state is RequestState.ACCEPTED else 0
    record_requests(connection, send.campaign, send.conn_id, made)
    if send.expected is not None:
        # While a later try has not ended, it is not known.
        unknown = None if send.unknown is None else max(0, send.unknown - without_request)
        values = {"expected": send.expected + accepted, "unknown": unknown}
        connection.execute(update(sends).where(sends.c.campaign == send.campaign).values(values))
    return RecordedResolution(str(send.campaign), counted)


def _find_send(connection: Connection, place: tuple[str, str, str, int], known: Collection[str]) -> Row[Any] | None:
    """Return the send of a campaign by its requests, or by its task instance if that has only one.

    A request that is a campaign by itself is none: its task records it when it is accepted.
    """
    is_single = exists().where(requests.c.reference == sends.c.campaign, requests.c.campaign == sends.c.campaign)
    query = select(sends).where(~is_single).limit(2).with_for_update(of=sends)
    for references in batched(known):
        named = select(requests.c.campaign).where(requests.c.reference.in_(references))
        if (send := connection.execute(query.where(sends.c.campaign.in_(named))).first()) is not None:
            return send
    columns = (sends.c.dag_id, sends.c.run_id, sends.c.task_id, sends.c.map_index)
    is_place = (column == value for column, value in zip(columns, place, strict=True))
    found = connection.execute(query.where(*is_place)).all()
    return found[0] if len(found) == 1 else None


def record_send_finished(connection: Connection, campaign: str, expected: int, unknown: int = 0) -> None:
    """Record the number of recipients of all tries, so that the publisher can see when all have a final status.

    :param expected: the number of recipients the service accepted; all their requests are recorded
    :param unknown: the number of recipients of unknown outcome, without those of recorded requests
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
    names = {name for request in made for name in (request.reference, request.message_id) if name}
    lock_names(connection, conn_id, names)
    # Earlier reports of a single request are stored under its reference, which is the campaign already.
    attached = {
        request.reference: request.recipients for request in made if request.reference == campaign or request.rejected
    }
    # No other process adds rows under the names now, and the requests are locked before the rows.
    with_reports = select(deliveries.c.campaign).where(deliveries.c.conn_id == conn_id).distinct()
    found_under = [row.campaign for row in select_among(connection, with_reports, deliveries.c.campaign, waiting)]
    attached |= {waiting[name].reference: waiting[name].recipients for name in found_under}
    lock_to_change(connection, ((campaign, conn_id, reference) for reference in attached))
    failed: set[Key] = set()
    for batch in batched(found_under):
        under_names = and_(deliveries.c.conn_id == conn_id, deliveries.c.campaign.in_(batch))
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
    names = {reference: sorted(set(recipients)) for reference, recipients in made.items()}
    # Only once, so that a recipient that was erased since then is not recorded again.
    is_tracked = select(requests.c.reference).where(requests.c.conn_id == conn_id, requests.c.tracked)
    tracked = {row.reference for row in select_among(connection, is_tracked, requests.c.reference, names)}
    names = {
        reference: names[reference] for reference in sorted(names) if names[reference] and reference not in tracked
    }
    if not names:
        return
    for batch in batched(names):
        is_one = and_(requests.c.conn_id == conn_id, requests.c.reference.in_(batch))
        connection.execute(update(requests).where(is_one).values(tracked=True))
    sizes = {reference: len(recipients) for reference, recipients in names.items()}
    moved: Moved = []
    kept = merge_recipients(connection, campaign, conn_id, sizes, moved, names)
    now = datetime.now(UTC)
    common = {
        "campaign": campaign,
        "message_id": None,
        "conn_id": conn_id,
        "kind": None,
        "delivery_status": int(DeliveryStatus.IN_FLIGHT),
        "status": "",
        "reason": None,
        **dict.fromkeys(("delivered", "failed", "clicked"), False),
        **dict.fromkeys(("permanent_failure_at", "failure_received_at", "reached_at")),
        "reported_at": now,
        "updated_at": now,
    }
    rows = [
        {**common, "reference": reference, "recipient": recipient}
        for reference, recipients in names.items()
        for recipient in recipients
        if recipient in kept[reference]
    ]
    insert_many(connection, _missing(connection.dialect.name), rows)
    update_entries(connection, (), (), moved)


# Built once: SQLAlchemy takes longer to build a statement than the database to run it.
@functools.cache
def _missing(dialect: str) -> Any:
    return insert_into(dialect, deliveries).on_conflict_do_nothing(index_elements=[*deliveries.primary_key.columns])


def sending_connections(connection: Connection) -> set[str]:
    """Return the ids of the connections of the newest sends with callbacks."""
    newest = select(sends.c.conn_id).order_by(sends.c.started_at.desc()).limit(_NEWEST_SENDS).subquery()
    return set(connection.execute(select(newest.c.conn_id).distinct()).scalars())
