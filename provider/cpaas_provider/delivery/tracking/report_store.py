"""Stores reports: the raw report and the status of its recipient, in one transaction."""

from __future__ import annotations

import functools
import itertools
import json
import logging
import re
from collections import Counter
from collections.abc import Iterable, Sequence
from datetime import UTC, datetime
from functools import partial
from hashlib import sha256
from typing import Any, NamedTuple

from sqlalchemy import (
    ARRAY,
    ColumnElement,
    CompoundSelect,
    Connection,
    String,
    any_,
    bindparam,
    cast,
    func,
    literal_column,
    select,
    union_all,
)

from cpaas_provider.database.activity.report_counts import NO_CAMPAIGN, Counted, adding_report_counts
from cpaas_provider.database.activity.single_requests import purchases_with_status
from cpaas_provider.database.activity.upsert import insert_into
from cpaas_provider.database.bulk import Statement, batched, insert_many, insert_missing, select_among, select_at_once
from cpaas_provider.database.database import Database
from cpaas_provider.database.errors import RejectedDataError
from cpaas_provider.database.schema.delivery import reports, requests, sends
from cpaas_provider.delivery.hashing import digest_in_chunks
from cpaas_provider.delivery.receiver.quotas import PREFIX_BYTES, Quotas, digest_prefix
from cpaas_provider.delivery.receiver.writer import ReceivedReport, StoreResult
from cpaas_provider.delivery.reports import DeliveryStatus, Report
from cpaas_provider.delivery.tracking.membership import Moved, Row, holding_names, record_statuses
from cpaas_provider.delivery.tracking.permanent_failures.entries import update_entries
from cpaas_provider.delivery.tracking.permanent_failures.reasons import (
    PermanentFailures,
    kind_of,
    proves_reachable,
)
from cpaas_provider.delivery.tracking.recipient_status import Key
from cpaas_provider.delivery.tracking.request_recipients import UNTRACKED_PREFIX

log = logging.getLogger(__name__)

# In JSON only strings contain such characters.
_NOT_ASCII = re.compile(r"[^\x00-\x7f]+")

_OURS = re.compile(r"cpaas-[a-z2-7]{24}")

_MOST_KINDS = 10_000
"""Campaigns whose kind is cached. It never changes."""

KINDS = {"send_sms": "sms", "send_email": "email", "buy_airtime": "airtime"}
"""The kind of message of each operation."""

DUPLICATE = "duplicate"
"""The status of a purchase that bought nothing, because the service knows the same purchase."""

OF_REPEATED_PURCHASE = {"delivery_status": int(DeliveryStatus.IN_FLIGHT), "failed": False}
"""The values of a ``DUPLICATE`` report about a purchase that was repeated on purpose: the first request bought it."""

_KNOWN = select(reports.c.digest).where(reports.c.digest.in_(bindparam("digests", expanding=True)))


class _Owner(NamedTuple):
    """The request that a report belongs to."""

    campaign: str | None = None
    reference: str | None = None
    recipients: int | None = None


class ReportStore:
    """Stores reports for good.

    :param database: SQLite or PostgreSQL
    :raises DatabaseError: when it is another database
    """

    def __init__(self, database: Database) -> None:
        database.require_report_support()
        self._database = database
        self._kinds: dict[str, str] = {}
        self._quotas = Quotas()
        self._owners = _Owners()
        self._permanent = PermanentFailures()

    def save(self, incoming: Sequence[ReceivedReport]) -> list[StoreResult]:
        """Store reports in one transaction, durable when this returns, and return the result of each.

        A repeated report changes only its count. The status of a recipient is that of the highest rank, in whatever
        order reports arrive. A single report that the database rejects is stored as raw text, without its values.

        :raises RejectedDataError: when the database rejects one of several reports, or the raw text of a single one;
            nothing was stored
        :raises DatabaseError: when the transaction failed; nothing was stored
        """
        if not incoming:
            return []
        try:
            return self._database.write(partial(self._save, incoming))
        except RejectedDataError:
            if len(incoming) > 1:
                raise
            return self._database.write(partial(self._save, [_as_raw(incoming[0])]))

    def _save(self, incoming: Sequence[ReceivedReport], connection: Connection) -> list[StoreResult]:
        """Store the reports that are within the quotas of callback URLs, and all reports of the webhook."""
        refused = self._quotas.refused(connection, incoming)
        if not refused:
            return self._store(incoming, connection)
        # A report that is stored already needs no room, and is acknowledged as repeated.
        too_many = [number for number, why in refused.items() if why is StoreResult.TOO_MANY]
        digests = {number: _digest(incoming[number]) for number in too_many}
        stored = _known(connection, digests.values())
        refused = {number: why for number, why in refused.items() if digests.get(number) not in stored}
        accepted = [received for number, received in enumerate(incoming) if number not in refused]
        results = iter(self._store(accepted, connection))
        return [refused[number] if number in refused else next(results) for number in range(len(incoming))]

    def _store(self, incoming: Sequence[ReceivedReport], connection: Connection) -> list[StoreResult]:
        owners = self._owners.find(connection, incoming)
        now = datetime.now(UTC)
        digests = [_digest(received) for received in incoming]
        first = _insert_raw(connection, incoming, owners, digests)
        # Nothing is recorded of the campaign of an untracked message.
        campaigns = {owner.campaign for owner in owners if owner.campaign}
        kinds = self._kinds_of(connection, {name for name in campaigns if not name.startswith(UNTRACKED_PREFIX)})
        purchases = _repeated_purchases(connection, incoming, owners)
        results, rows = [StoreResult.REPEATED] * len(incoming), dict[int, Row]()
        for number, (received, owner, digest) in enumerate(zip(incoming, owners, digests, strict=True)):
            if digest in first:
                first.discard(digest)
                row = self._row(received, owner, kinds.get(owner.campaign or ""), now)
                purchase = (received.conn_id.lower(), owner.reference)
                if row is not None and row["status"] == DUPLICATE and purchase in purchases:
                    row |= OF_REPEATED_PURCHASE
                results[number] = StoreResult.UNREADABLE if row is None else StoreResult.NEW
                if row is not None:
                    rows[number] = row
        moved: Moved = []
        reported = [(row, owners[number].recipients) for number, row in rows.items()]
        keys = record_statuses(connection, reported, moved)
        failed, reached = set[Key](), set[Key]()
        for (number, row), key in zip(rows.items(), keys, strict=True):
            if key is None:
                results[number] = StoreResult.EXCESS
            elif row["permanent_failure_at"]:
                failed.add(key)
            elif row["reached_at"]:
                reached.add(key)
        minute = now.replace(second=0, microsecond=0)
        numbers = Counter(map(_counted, rows.values()))
        added = {Counted(key[0], minute, *key[1:]): number for key, number in numbers.items()}
        update_entries(connection, failed, reached, moved, adding_report_counts(connection, added))
        return results

    def _row(self, received: ReceivedReport, owner: _Owner, kind: str | None, now: datetime) -> dict[str, Any] | None:
        """Return the row for the recipient of a report; ``None`` if the status or the recipient is unknown."""
        report = received.report
        # A report of a request with one recipient need not name it. Of an unrecorded request the number is not known.
        may_be_nameless = owner.recipients in (1, None)
        status = report.delivery_status
        if status is None or owner.campaign is None or not (report.recipient or may_be_nameless):
            return None
        # A clock that is ahead must not decide over later reports.
        happened_at = min(report.reported_at or received.at, received.at)
        kind = kind_of(report, kind)
        is_permanent = status.failed and self._permanent.reports_one(report, kind)
        return {
            "campaign": owner.campaign,
            "recipient": report.recipient,
            # An untracked message is identified by its id alone.
            "reference": "" if owner.campaign.startswith(UNTRACKED_PREFIX) else owner.reference or "",
            "message_id": report.message_id,
            "conn_id": received.conn_id,
            "kind": kind,
            "delivery_status": int(status),
            "status": report.status,
            "reason": report.reason,
            "delivered": status.reached,
            "failed": status.failed,
            "clicked": status is DeliveryStatus.CLICKED,
            "reported_at": received.at,
            "updated_at": now,
            "permanent_failure_at": happened_at if is_permanent else None,
            "failure_received_at": received.at if is_permanent else None,
            "reached_at": happened_at if status.reached and proves_reachable(report, kind) else None,
        }

    def _kinds_of(self, connection: Connection, campaigns: set[str]) -> dict[str, str]:
        """Return the kind of message of campaigns, because their reports may not contain it."""
        if len(self._kinds) > _MOST_KINDS:
            self._kinds.clear()
        operations, unread = select(sends.c.campaign, sends.c.operation), campaigns.difference(self._kinds)
        for campaign, operation in select_among(connection, operations, sends.c.campaign, unread):
            if kind := KINDS.get(operation):
                self._kinds[campaign] = kind
        return self._kinds


def _as_raw(received: ReceivedReport) -> ReceivedReport:
    """Return a report as ASCII, which every database accepts, without the values read from it."""
    body = _NOT_ASCII.sub(lambda found: json.dumps(found[0])[1:-1], received.body)
    return received._replace(report=Report(None), body=body)


class _Owners:
    """Finds the request of each report: by its token, else by the reference or the message id of a recorded request.

    References and ids are those of the connection that proved the report. They match no request of another one. A
    report whose request is not recorded yet is stored under its reference or its message id until it is.

    While a report is stored under a name, the name is held, so that its request is not recorded unnoticed. To hold all
    names at once saves a query if most requests are not recorded. If they are, it would delay their senders.
    """

    def __init__(self) -> None:
        self._holds_all = False

    def find(self, connection: Connection, incoming: Sequence[ReceivedReport]) -> list[_Owner]:
        """Return the request of each report."""
        webhook = [received for received in incoming if received.token is None]
        if webhook:
            names = _names_of(webhook)
            locking = holding_names(connection, itertools.chain(*names)) if self._holds_all else None
            recorded = _recorded(connection, names, locking)
            missing = [received for received in webhook if recorded.request_of(received) is None]
            if missing and locking is None:
                names = _names_of(missing)
                # They may be recorded between the query and the lock.
                if (locking := holding_names(connection, itertools.chain(*names))) is not None:
                    recorded.add(_recorded(connection, names, locking))
            self._holds_all = 2 * len(missing) > len(webhook)
        return [
            _Owner(received.token.campaign, received.token.reference, received.token.recipients)
            if received.token is not None
            else recorded.request_of(received) or _unrecorded(received.report)
            for received in incoming
        ]


def _unrecorded(report: Report) -> _Owner:
    if report.reference and _OURS.fullmatch(report.reference):
        return _Owner(report.reference, report.reference)
    return _Owner(f"{UNTRACKED_PREFIX}{report.message_id}" if report.message_id else None, report.reference)


_Names = tuple[set[tuple[str, str]], set[tuple[str, str]]]
"""References and message ids, each after its connection."""


def _names_of(incoming: Iterable[ReceivedReport]) -> _Names:
    references, message_ids = set[tuple[str, str]](), set[tuple[str, str]]()
    for received in incoming:
        report = received.report
        if report.reference:
            references.add((received.conn_id, report.reference))
        if report.message_id:
            message_ids.add((received.conn_id, report.message_id))
    return references, message_ids


class _Recorded:
    """Recorded requests by their names, see ``_Names``."""

    def __init__(self) -> None:
        self.by_reference: dict[tuple[str, str | None], _Owner] = {}
        self.by_message_id: dict[tuple[str, str | None], _Owner] = {}

    def request_of(self, received: ReceivedReport) -> _Owner | None:
        conn_id, report = received.conn_id, received.report
        by_reference = self.by_reference.get((conn_id, report.reference)) if self.by_reference else None
        return by_reference or (self.by_message_id.get((conn_id, report.message_id)) if self.by_message_id else None)

    def add(self, newer: _Recorded) -> None:
        self.by_reference |= newer.by_reference
        self.by_message_id |= newer.by_message_id


def _recorded(connection: Connection, names: _Names, locking: Statement | None) -> _Recorded:
    """Return the recorded requests with these names.

    :param locking: runs before
    """
    found = _Recorded()
    by_connection: dict[str, tuple[list[str], list[str]]] = {}
    for column, of_column in enumerate(names):
        for conn_id, name in of_column:
            by_connection.setdefault(conn_id, ([], []))[column].append(name)
    query, as_json = _recorded_query(connection.dialect.name), connection.dialect.name == "sqlite"
    for conn_id, lists in by_connection.items():
        for references, message_ids in itertools.zip_longest(*map(batched, lists), fillvalue=list[str]()):
            values: dict[str, Any] = {"references": references, "message_ids": message_ids}
            if as_json:
                values = {name: json.dumps(value) for name, value in values.items()}
            for row in select_at_once(connection, query, {"conn_id": conn_id, **values}, locking):
                by_reference, name, *owner = row
                (found.by_reference if by_reference else found.by_message_id)[conn_id, name] = _Owner(*owner)
            locking = None
    return found


@functools.cache
def _recorded_query(dialect: str) -> CompoundSelect[Any]:
    """Return the query for the requests of a connection by references and message ids."""
    queries = []
    for column, parameter in ((requests.c.reference, "references"), (requests.c.message_id, "message_ids")):
        names: Any = bindparam(parameter, type_=String())
        named: ColumnElement[bool]
        if dialect == "sqlite":
            named = column.in_(select(func.json_each(names).table_valued("value").c.value))
        else:
            named = column == any_(cast(names, ARRAY(String)))
        is_reference: ColumnElement[int] = literal_column(str(int(column is requests.c.reference)))
        owner = requests.c.campaign, requests.c.reference.label("reference"), requests.c.recipients
        of_connection = requests.c.conn_id == bindparam("conn_id", type_=String())
        queries.append(
            select(is_reference.label("is_reference"), column.label("name"), *owner).where(of_connection, named)
        )
    return union_all(*queries)


def _repeated_purchases(
    connection: Connection, incoming: Sequence[ReceivedReport], owners: Sequence[_Owner]
) -> set[tuple[str, str | None]]:
    """Return connection, in lower case, and reference of purchases that an earlier request of the reference made."""
    names = {
        owner.reference
        for received, owner in zip(incoming, owners, strict=True)
        if received.report.status == DUPLICATE and owner.reference
    }
    return {*purchases_with_status(connection, DUPLICATE, names)} if names else set()


def _digest(received: ReceivedReport) -> bytes:
    """Return the digest of a report, the same for a repeat, also if its request was recorded meanwhile."""
    conn_id, source, token, _, text, _ = received
    body = text.encode()
    reference = "" if token is None else token.reference
    whole = _measured(conn_id, source, reference) + len(body).to_bytes(4, "big") + body
    digest = digest_in_chunks(sha256(), whole)
    # The reports of a request share a prefix, so that they can be counted.
    return digest if token is None else digest_prefix(conn_id, token.reference) + digest[PREFIX_BYTES:]


# The same for all reports of a request.
@functools.lru_cache(maxsize=10_000)
def _measured(*texts: str) -> bytes:
    """Return texts joined, each with its length before it."""
    return b"".join([len(part).to_bytes(4, "big") + part for part in [text.encode() for text in texts]])


def _insert_raw(
    connection: Connection, incoming: Sequence[ReceivedReport], owners: Sequence[_Owner], digests: Sequence[bytes]
) -> set[bytes]:
    """Store the raw reports, and return the digests of those that are new."""
    rows: dict[bytes, dict[str, Any]] = {}
    for received, owner, digest in zip(incoming, owners, digests, strict=True):
        if digest in rows:
            rows[digest]["received_count"] += 1
            continue
        rows[digest] = {
            "digest": digest,
            "received_at": received.at,
            "conn_id": received.conn_id,
            "source": received.source,
            "campaign": owner.campaign,
            "recipient": received.report.recipient,
            "body": received.body,
            "received_count": 1,
        }
    # In a fixed order, so that two processes cannot deadlock.
    ordered = [rows[digest] for digest in sorted(rows)]
    if connection.dialect.name == "sqlite":
        known = insert_missing(connection, _raw_insert(), ordered, reports.c.digest)
        insert_many(connection, _raw_upsert("sqlite"), [row for row in ordered if row["digest"] in known])
        return rows.keys() - known
    results = insert_many(connection, _raw_upsert(connection.dialect.name), ordered)
    return {
        digest
        for digest, times in ((bytes(row[0]), row[1]) for row in results)
        if times == rows[digest]["received_count"]
    }


def _known(connection: Connection, digests: Iterable[bytes]) -> set[bytes]:
    found: set[bytes] = set()
    for batch in batched(digests):
        found.update(connection.execute(_KNOWN, {"digests": batch}).scalars())
    return found


def _counted(row: Row) -> tuple[str, str, int]:
    """Return the counter of a new report for the pages, see ``Counted``, without its minute."""
    campaign = row["campaign"]
    # The campaign of a single message is the reference of its request, and there may be millions.
    alone = campaign == row["reference"] or campaign.startswith(UNTRACKED_PREFIX)
    return NO_CAMPAIGN if alone else campaign, row["conn_id"], row["delivery_status"]


# Built once: SQLAlchemy takes longer to build a statement than the database to run it.
@functools.cache
def _raw_upsert(dialect: str) -> Any:
    insert = insert_into(dialect, reports)
    noting = insert.on_conflict_do_update(
        index_elements=[reports.c.digest],
        set_={"received_count": reports.c.received_count + insert.excluded.received_count},
    )
    return noting if dialect == "sqlite" else noting.returning(reports.c.digest, reports.c.received_count)


@functools.cache
def _raw_insert() -> Any:
    return insert_into("sqlite", reports).on_conflict_do_nothing(index_elements=[reports.c.digest])
