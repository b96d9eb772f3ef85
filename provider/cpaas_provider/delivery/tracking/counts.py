"""Counts of recipients by delivery status, for many campaigns in one query."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator, Sequence
from datetime import datetime, timedelta
from typing import Any, NamedTuple

from msgspec import Struct
from msgspec.structs import replace
from sqlalchemy import (
    JSON,
    ColumnElement,
    Connection,
    Select,
    String,
    and_,
    case,
    cast,
    exists,
    false,
    func,
    literal,
    literal_column,
    null,
    or_,
    select,
    true,
    union_all,
)

from cpaas_provider.database.activity.progress import RUNNING
from cpaas_provider.database.bulk import batched, select_among
from cpaas_provider.database.database import Database, open_database
from cpaas_provider.database.errors import DatabaseError
from cpaas_provider.database.schema.activity import task_progress
from cpaas_provider.database.schema.delivery import RequestState, deliveries, requests, sends
from cpaas_provider.delivery.reports import DeliveryStatus
from cpaas_provider.delivery.tracking.request_recipients import ERASED_PREFIX, UNNAMED_PREFIX

NOT_IN_DATABASE = (
    "The database has neither the send nor a delivery report of what this task waits for. If this does not change, "
    "sender, receiver and triggerer do not share one database. Set [cpaas] database to the same database for workers, "
    "API server and triggerer."
)

PRUNED = (
    "Retention has deleted delivery reports of what this task waits for, so recipients that the message reached look "
    "unreported. No figures and no results file were written. To send to the others, take the recipients from the "
    "service's own records."
)

MAX_REPORT_WAIT = timedelta(hours=72)
"""How long after its task ended a campaign counts as finished, even if recipients have no final status."""

MAX_SEND_DURATION = timedelta(days=7)
"""How long after its start a campaign counts as finished, if its task never recorded an end."""

PUBLISHING_TIME = timedelta(days=1)
"""How long a campaign that is finished by its age is available to the publisher, which may not run all the time."""

COMMIT_LAG = timedelta(seconds=60)
"""How much later than its ``updated_at`` a row may be committed, because its transaction waits for a lock."""


def _is_any(statuses: Iterable[DeliveryStatus], rows: Any = deliveries) -> ColumnElement[bool]:
    return rows.c.delivery_status.in_([int(status) for status in statuses])  # type: ignore[no-any-return]  # of an alias


IS_REACHED = _is_any(status for status in DeliveryStatus if status.reached)
"""The condition on a row of ``deliveries``: the message reached the recipient."""

IS_UNDELIVERED = _is_any(status for status in DeliveryStatus if status.failed)
"""The condition on a row of ``deliveries``: the message will not reach the recipient."""

_FINAL = [status for status in DeliveryStatus if status.final]
IS_FINAL = _is_any(_FINAL)
"""The condition on a row of ``deliveries``: the recipient has a final status."""


def _number(condition: ColumnElement[bool]) -> ColumnElement[int]:
    return func.count(case((condition, 1)))


_BY_REQUEST = select(
    deliveries.c.campaign,
    deliveries.c.conn_id,
    deliveries.c.reference,
    _number(IS_REACHED).label("delivered"),
    _number(IS_UNDELIVERED).label("undelivered"),
    _number(~IS_FINAL).label("in_flight"),
    func.max(deliveries.c.updated_at).label("updated_at"),
    literal(0).label("messages"),
).group_by(deliveries.c.campaign, deliveries.c.conn_id, deliveries.c.reference)


def is_request_of(rows: Any) -> ColumnElement[bool]:
    """Return the condition for the row of ``requests`` that rows of deliveries belong to."""
    return and_(*(requests.c[name] == rows.c[name] for name in ("conn_id", "reference", "campaign")))


def is_in_state(*states: RequestState) -> ColumnElement[bool]:
    """Return the condition for requests in one of some states."""
    # As literals: the query of unknown requests then uses their partial index.
    return or_(*(requests.c.state == literal_column(f"'{state}'") for state in states))


_MESSAGES = select(
    requests.c.campaign,
    requests.c.conn_id,
    requests.c.reference,
    *(literal(0) for _ in range(3)),
    null(),
    requests.c.recipients,
).where(is_in_state(RequestState.ACCEPTED))
"""The accepted requests, in the columns of ``_BY_REQUEST``."""


def exists_for_row(*conditions: ColumnElement[bool]) -> ColumnElement[bool]:
    """Return whether rows of other tables meet conditions on a row of ``deliveries``.

    The row is named, because SQLAlchemy finds it by itself only one level up. Nested deeper, the condition would be
    about any row of the table.
    """
    return exists().where(*conditions).correlate(deliveries)


_NOT_COUNTED = (RequestState.SUPERSEDED, RequestState.NOT_SENT)


def _has_request(*states: RequestState) -> ColumnElement[bool]:
    return exists_for_row(is_request_of(deliveries), is_in_state(*states))


HAS_REQUEST = exists_for_row(is_request_of(deliveries))
"""The condition on a row of ``deliveries``: the state of the recipient's request is recorded."""

IS_ACCEPTED = _has_request(RequestState.ACCEPTED)
"""The condition on a row of ``deliveries``: the service is known to have accepted the recipient's request."""

OTHER = deliveries.alias()
"""Another row of ``deliveries``, see ``exists_in_other_request``."""

IS_SEND = and_(sends.c.campaign == deliveries.c.campaign, sends.c.conn_id == deliveries.c.conn_id)
"""The condition on rows of ``sends`` and ``deliveries``: the row of a recipient belongs to the send."""


def _is_superseded(has_all_states: ColumnElement[bool]) -> ColumnElement[bool]:
    """Return the condition on a row of ``deliveries``: its request was repeated, or not sent.

    :param has_all_states: the condition that the state of each request of the row's send is recorded
    """
    return or_(_has_request(*_NOT_COUNTED), and_(has_all_states, ~HAS_REQUEST))


IS_SUPERSEDED = _is_superseded(exists_for_row(IS_SEND, sends.c.unknown == 0))
"""The condition on a row of ``deliveries``: its request was repeated, or not sent. Another one counts instead."""

IS_COUNTED = or_(
    and_(exists_for_row(IS_SEND), ~IS_SUPERSEDED),
    and_(
        ~exists_for_row(sends.c.campaign == deliveries.c.campaign),
        ~exists_for_row(OTHER.c.campaign == deliveries.c.campaign, OTHER.c.conn_id != deliveries.c.conn_id),
    ),
)
"""The condition on a row of ``deliveries``: it counts for its campaign, by the same rules as in ``read_counts``."""


def is_counted(unknown: int | None) -> ColumnElement[bool]:
    """Return ``IS_COUNTED`` for the rows of a send, which takes less time for each row.

    :param unknown: the send's number of recipients of unknown outcome whose requests are not recorded
    """
    return ~_is_superseded(true() if unknown == 0 else false())


IS_IN_OTHER_REQUEST = and_(
    *(OTHER.c[name] == deliveries.c[name] for name in ("campaign", "conn_id", "recipient")),
    OTHER.c.reference != deliveries.c.reference,
)
"""The condition on a row of ``deliveries`` and ``OTHER``: another request of its campaign has the recipient, too."""


def exists_in_other_request(condition: ColumnElement[bool]) -> ColumnElement[bool]:
    """Return whether another request of its campaign has the recipient of a row of ``deliveries``.

    :param condition: on the row ``OTHER`` of that request
    """
    return exists_for_row(IS_IN_OTHER_REQUEST, condition)


IS_SENT_AGAIN = exists_in_other_request(
    exists().where(is_request_of(OTHER), is_in_state(RequestState.ACCEPTED)).correlate(OTHER),
)
"""The condition on a row of ``deliveries``: its recipient is in another request, which the service accepted."""


def _is_last_report(condition: ColumnElement[bool]) -> ColumnElement[bool]:
    """Return the condition on a row of ``deliveries``: no later request of unknown outcome has its recipient, too.

    So a recipient of several such requests counts once.

    :param condition: on the row ``OTHER`` of the later request
    """
    is_unknown = exists().where(is_request_of(OTHER), is_in_state(RequestState.UNKNOWN)).correlate(OTHER)
    return ~exists_in_other_request(and_(OTHER.c.reference > deliveries.c.reference, is_unknown, condition))


_REPORTED_WITHOUT_REQUEST = (
    select(func.count()).select_from(deliveries).where(IS_SEND, ~HAS_REQUEST).correlate(sends).scalar_subquery()
)
_UNREPORTED_WITHOUT_REQUEST = case((sends.c.unknown > 0, sends.c.unknown - _REPORTED_WITHOUT_REQUEST), else_=0)


def number_of_request(*conditions: ColumnElement[bool]) -> ColumnElement[int]:
    """Return the number of recipients of a row of ``requests`` that meet conditions on rows of ``deliveries``."""
    number = select(func.count()).select_from(deliveries).where(is_request_of(deliveries), *conditions)
    return number.correlate(requests).scalar_subquery()


_NOT_REPORTED = requests.c.recipients - number_of_request()
_NOT_NAMED = case((_NOT_REPORTED > 0, _NOT_REPORTED), else_=0)
"""The number of recipients of a row of ``requests`` that no row of ``deliveries`` names."""

_NAME = deliveries.c.recipient
_FORM = case((~_NAME.contains("@"), cast(func.length(_NAME), String).concat(func.substr(_NAME, 1, 1))))
"""The length and the first digit of a number. Its national and its international form differ in one of the two."""

_HAVE_UNCLEAR_NAME = or_(
    func.min(_FORM) != func.max(_FORM),
    _number(or_(_NAME == "", _NAME.startswith(UNNAMED_PREFIX))) > 0,
)
"""The condition on the rows of a campaign: a name is missing or erased, or one number may be in two forms."""


def unknown_without_report(of_campaigns: ColumnElement[bool], *, final: bool = False) -> Select[Any]:
    """Return a query of the unknown recipients of campaigns that no row of ``deliveries`` is about: campaign, number.

    A recipient of several requests counts as unknown for the newest, but each may have the report. Then the number of a
    request is below 0, and only the sum over the requests of a campaign says something.

    Only by its name is a recipient known to be in an accepted request, too. If a name in the campaign is unclear, each
    row may be about such a recipient, and stands for no other one. So may as many rows as accepted requests have
    recipients that no row names.

    :param of_campaigns: the condition on rows of ``requests``, and of ``sends`` of an enclosing query
    :param final: whether only rows with a final status count
    """
    is_counted, is_other_counted = (IS_FINAL, _is_any(_FINAL, OTHER)) if final else (true(), true())
    named = number_of_request(is_counted, ~IS_SENT_AGAIN, _is_last_report(is_other_counted))
    columns = (requests.c[name] for name in ("campaign", "conn_id", "unknown", "recipients"))
    of_request = select(*columns, named.label("named"), number_of_request(is_counted).label("reported"))
    # The offset has the database count the rows of a request only once.
    each = of_request.where(is_in_state(RequestState.UNKNOWN), of_campaigns).correlate(sends).offset(0).subquery().c
    # Reports of strangers do not stand for recipients of other requests.
    by_name = each.unknown - case((each.named > each.recipients, each.recipients), else_=each.named)
    most = each.recipients - each.reported
    if_unclear = case((most <= by_name, by_name), (most > each.unknown, each.unknown), else_=most)
    total, total_if_unclear = func.sum(by_name), func.sum(if_unclear)
    # Once for the campaign, because it reads all of its rows.
    of_campaign = (deliveries.c.campaign == each.campaign, deliveries.c.conn_id == each.conn_id)
    unclear = select(_HAVE_UNCLEAR_NAME).where(*of_campaign).correlate(each.campaign.table).scalar_subquery()
    hidden = select(func.sum(_NOT_NAMED)).where(
        requests.c.campaign == each.campaign, requests.c.conn_id == each.conn_id, is_in_state(RequestState.ACCEPTED)
    )
    most_hidden = func.coalesce(hidden.correlate(each.campaign.table).scalar_subquery(), 0)
    number = case(
        (total == total_if_unclear, total),
        (unclear, total_if_unclear),
        (total + most_hidden >= total_if_unclear, total_if_unclear),
        else_=total + most_hidden,
    )
    return select(each.campaign, number.label("number")).group_by(each.campaign, each.conn_id)


def overdue(now: datetime) -> list[ColumnElement[bool]]:
    """Return the conditions of which one holds for a send that is finished by its age."""
    return [
        sends.c.ended_at < now - MAX_REPORT_WAIT,
        and_(sends.c.ended_at.is_(None), sends.c.started_at < now - MAX_SEND_DURATION),
    ]


def is_unfinished(now: datetime) -> ColumnElement[bool]:
    """Return the condition for sends whose end the publisher may still have to find.

    If no DAG is scheduled on it, no end is recorded. A send is then unfinished until it is finished by its age.
    """
    is_overdue = func.coalesce(or_(*overdue(now - PUBLISHING_TIME)), false())
    return and_(sends.c.finished_at.is_(None), ~is_overdue)


_NAMES: dict[str, Callable[[ColumnElement[str]], Any]] = {
    "sqlite": func.json_each,
    "postgresql": lambda names: func.json_array_elements_text(cast(names, JSON)),
}
"""By dialect: the function that turns a JSON list into a table."""


class DeliveryCounts(Struct, frozen=True):
    """The number of recipients of a campaign by delivery status.

    :param updated_at: when a status last changed
    :param unknown: the recipients among them whose request the service is not known to have accepted. There are
        reports of them, so they count in addition to the accepted recipients, never instead of one.
    :param messages: the number of recipients of all accepted requests. A recipient of two of them has two messages, and
        the report of one is not the report of another recipient
    """

    delivered: int = 0
    undelivered: int = 0
    in_flight: int = 0
    updated_at: datetime | None = None
    unknown: int = 0
    messages: int = 0

    @property
    def final(self) -> int:
        """The number of recipients with a final status."""
        return self.delivered + self.undelivered

    @property
    def known(self) -> int:
        """The number of recipients with any status."""
        return self.final + self.in_flight

    def expected(self, accepted: int) -> int:
        """Return the number of recipients that shall get a final status, one of two accepted requests twice.

        :param accepted: the number of recipients the service accepted
        """
        return max(max(accepted, self.messages) + self.unknown, self.known)

    def unknown_without_report(self, unknown: int) -> int:
        """Return how many recipients of unknown outcome no report is about.

        :param unknown: the number of recipients of requests whose outcome is unknown
        """
        return max(0, unknown - self.unknown)

    def as_unknown(self) -> DeliveryCounts:
        """Return the same counts for a request whose outcome is unknown."""
        return replace(self, unknown=self.known, messages=0)

    def __add__(self, other: DeliveryCounts) -> DeliveryCounts:
        """Return the sum of both."""
        return DeliveryCounts(
            self.delivered + other.delivered,
            self.undelivered + other.undelivered,
            self.in_flight + other.in_flight,
            max((moment for moment in (self.updated_at, other.updated_at) if moment), default=None),
            self.unknown + other.unknown,
            self.messages + other.messages,
        )


def read_counts(connection: Connection, campaigns: Iterable[str]) -> dict[str, DeliveryCounts]:
    """Return the counts of campaigns, without those that have neither an accepted request nor a status.

    Only reports on the connection that sent the campaign count. If the sender recorded none, they count if all of them
    are on one connection. The recipients of a request of unknown outcome count as unknown. Those of a request that was
    repeated under another reference, or not sent, do not count. A request whose state is not recorded counts as unknown
    as long as the campaign may have such requests.
    """
    counts: dict[str, DeliveryCounts] = {}
    for batch in batched(dict.fromkeys(campaigns)):
        counts |= _count(connection, batch)
    return counts


def counts_changed_since(connection: Connection, since: datetime, wanted: Iterable[str]) -> dict[str, DeliveryCounts]:
    """Return the counts of those campaigns that may have changed since a moment, without ``updated_at``, by one query.

    :param since: rows that were written within ``COMMIT_LAG`` before count as changed, too
    :param wanted: the campaigns to look at; the database may have far more
    """
    # The database filters by name, because to read and skip rows of other campaigns takes a thread long if the other
    # threads are busy.
    names: Any = _NAMES[connection.dialect.name](literal(json.dumps(list(wanted)))).table_valued("value")
    recent = select(deliveries.c.campaign).where(deliveries.c.updated_at >= since - COMMIT_LAG)
    changed = recent.where(deliveries.c.campaign.in_(select(names.c.value)))
    counts = _count(connection, changed)
    return {campaign: replace(count, updated_at=None) for campaign, count in counts.items()}


def _count(connection: Connection, campaigns: Sequence[str] | Select[Any]) -> dict[str, DeliveryCounts]:
    by = union_all(
        _BY_REQUEST.where(deliveries.c.campaign.in_(campaigns)), _MESSAGES.where(requests.c.campaign.in_(campaigns))
    ).subquery()
    sums = (func.sum(by.c[name]) for name in ("delivered", "undelivered", "in_flight", "messages"))
    group = (by.c.campaign, by.c.conn_id, sends.c.conn_id, sends.c.unknown, requests.c.state)
    query = (
        select(*group, *sums, func.max(by.c.updated_at))
        .outerjoin(sends, sends.c.campaign == by.c.campaign)
        .outerjoin(requests, is_request_of(by))
        .where(or_(sends.c.conn_id.is_(None), sends.c.conn_id == by.c.conn_id))
        .group_by(*group)
    )
    totals: dict[str, DeliveryCounts] = {}
    connections: dict[str, str] = {}
    ambiguous: set[str] = set()
    for campaign, conn_id, sent_by, unknown, state, *numbers, updated_at in connection.execute(query):
        if sent_by is None and connections.setdefault(campaign, conn_id) != conn_id:
            ambiguous.add(campaign)
        if sent_by is not None and (state in _NOT_COUNTED or (state is None and unknown == 0)):
            continue
        delivered, undelivered, in_flight, messages = map(int, numbers)
        counts = DeliveryCounts(delivered, undelivered, in_flight, updated_at, messages=messages)
        if sent_by is not None and state != RequestState.ACCEPTED:
            counts = counts.as_unknown()
        totals[campaign] = totals.get(campaign, DeliveryCounts()) + counts
    return {campaign: counts for campaign, counts in totals.items() if campaign not in ambiguous}


def read_recipients(connection: Connection, campaigns: Iterable[str]) -> Iterator[dict[str, Any]]:
    """Yield the delivery status of each recipient, campaign by campaign, as plain values.

    Keys: ``campaign``, ``recipient`` (empty if no report names it, ``None`` if it was erased), ``outcome``, ``status``,
    ``reason``, ``conflict`` (both delivered and failed were reported), ``reported``, ``reference`` and ``message_id``.
    """
    for campaign in dict.fromkeys(campaigns):
        query = select(deliveries).where(deliveries.c.campaign == campaign, IS_COUNTED).order_by(deliveries.c.recipient)
        for row in connection.execution_options(yield_per=1000).execute(query):
            yield {
                "campaign": row.campaign,
                "recipient": _shown_name(row.recipient),
                "outcome": DeliveryStatus(row.delivery_status).word,
                "status": row.status,
                "reason": row.reason,
                "conflict": row.delivered and row.failed,
                "reported": row.reported_at.isoformat(),
                "reference": row.reference,
                "message_id": row.message_id,
            }


def _shown_name(recipient: str) -> str | None:
    if recipient.startswith(ERASED_PREFIX):
        return None
    return "" if recipient.startswith(UNNAMED_PREFIX) else recipient


class StrongestReport(Struct, frozen=True):
    """The strongest report of a request.

    :param at: when the report was received
    """

    status: str
    message_id: str | None
    at: datetime


def strongest_report(connection: Connection, conn_id: str, reference: str) -> StrongestReport | None:
    """Return the strongest report of a single request, ``None`` if there is none.

    :param reference: the reference of a request that belongs to no campaign
    """
    rows = deliveries.c
    query = (
        select(rows.status, rows.message_id, rows.reported_at)
        .where(rows.campaign == reference, rows.conn_id == conn_id, rows.status != "")
        .order_by(rows.delivery_status.desc(), rows.reported_at)
        .limit(1)
    )
    row = connection.execute(query).first()
    return None if row is None else StrongestReport(*row)


def confirmed_requests(connection: Connection, conn_id: str, names: Iterable[str]) -> dict[str, str | None]:
    """Return the references of requests that the service is known to have accepted, each with its message id if known.

    :param names: references of requests, which are confirmed if they are recorded as accepted or have a report; and
        campaigns, of which each request with a report is confirmed
    """
    rows = deliveries.c
    confirmed: dict[str, str | None] = {}
    for batch in batched(dict.fromkeys(names)):
        recorded = select(requests.c.reference, requests.c.message_id).where(is_in_state(RequestState.ACCEPTED))
        recorded = recorded.where(requests.c.conn_id == conn_id, requests.c.reference.in_(batch))
        # A recipient without a report has an empty status: its sender recorded it.
        has_report = and_(rows.conn_id == conn_id, rows.campaign.in_(batch), rows.status != "", rows.reference != "")
        reported = select(rows.reference, func.max(rows.message_id)).where(has_report).group_by(rows.reference)
        for reference, message_id in connection.execute(union_all(recorded, reported)):
            confirmed[reference] = message_id or confirmed.get(reference)
    return confirmed


def open_report_database() -> Database:
    """Open the configured database to read reports.

    :raises ReportsNotSupportedError: when this kind of database cannot store reports
    :raises DatabaseError: when the database cannot be opened
    """
    database = open_database()
    try:
        database.require_report_support()
    except DatabaseError:
        database.close()
        raise
    return database


def known_campaigns(connection: Connection, campaigns: Iterable[str]) -> set[str]:
    """Return those of the campaigns whose sender recorded them."""
    return {row.campaign for row in select_among(connection, select(sends.c.campaign), sends.c.campaign, campaigns)}


def expected_recipients(connection: Connection, campaigns: Iterable[str]) -> dict[str, int]:
    """Return the number of recipients of each campaign that its sender recorded as accepted.

    A later try records its requests before its end, and a killed one records no end. So the larger number counts: that
    of the last end, or that of the requests.
    """
    names = list(campaigns)
    recorded = _recipients_of_requests(connection, names)
    ended = select(sends.c.campaign, sends.c.expected).where(sends.c.expected.is_not(None))
    for name, number in select_among(connection, ended, sends.c.campaign, names):
        recorded[name] = max(number, recorded.get(name, 0))
    return recorded


def _recipients_of_requests(connection: Connection, campaigns: Sequence[str]) -> dict[str, int]:
    """Return the number of recipients in the accepted requests of each campaign that has some."""
    accepted = select(requests.c.campaign, func.sum(requests.c.recipients)).where(is_in_state(RequestState.ACCEPTED))
    accepted = accepted.group_by(requests.c.campaign)
    return {name: int(number) for name, number in select_among(connection, accepted, requests.c.campaign, campaigns)}


class SendCounts(NamedTuple):
    """What is known of the requests of a campaign, apart from reports about their delivery.

    :param accepted: the number of recipients the service accepted; ``None`` while it is not known
    :param unknown: the number of recipients of unknown outcome that no report is about; ``None`` while it is not known
    """

    accepted: int | None = None
    unknown: int | None = None


def read_sends(connection: Connection, campaigns: Iterable[str]) -> dict[str, SendCounts]:
    """Return what is known of the requests of campaigns, without those of which nothing is.

    The numbers change with each end of the task, and when a report, a probe or a person establishes an outcome. Until
    the first end, and while a later try has not ended, they are those that the task last recorded of its progress. The
    requests that it has recorded as accepted count, too.
    """
    names, found = dict.fromkeys(campaigns), dict[str, SendCounts]()
    continued, running, working = set[str](), set[str](), list[str]()
    progress = select(task_progress.c.reference, task_progress.c.state, task_progress.c.figures)
    for name, state, figures in select_among(connection, progress, task_progress.c.reference, names):
        numbers = (json.loads(figures).get(key) for key in ("sent", "unknown_recipients"))
        found[name] = SendCounts(*(number if isinstance(number, int) else None for number in numbers))
        if state == RUNNING:
            running.add(name)
    started = select(sends.c.campaign, sends.c.expected, sends.c.unknown.is_(None), _UNREPORTED_WITHOUT_REQUEST)
    for name, expected, is_continued, unreported in select_among(connection, started, sends.c.campaign, names):
        if is_continued or name in running:
            working.append(name)
        if expected is None:
            continue
        # While a later try sends, its progress is newer.
        progressed = found.get(name, SendCounts())
        unknown = max(0, unreported)
        if is_continued and progressed.unknown is not None:
            continued.add(name)
            unknown = progressed.unknown
        found[name] = SendCounts(max(expected, progressed.accepted or 0), unknown)
    for name, accepted in _recipients_of_requests(connection, working).items():
        counts = found.get(name, SendCounts())
        found[name] = counts._replace(accepted=max(accepted, counts.accepted or 0))
    without_report = (unknown_without_report(requests.c.campaign.in_(batch)) for batch in batched(names))
    for name, number in (row for query in without_report for row in connection.execute(query)):
        if name in continued:
            # Its progress has them, too.
            continue
        counts = found.get(name, SendCounts())
        found[name] = counts._replace(unknown=(counts.unknown or 0) + max(0, int(number)))
    return found


def count_conflicts(connection: Connection, campaigns: Iterable[str]) -> int:
    """Return the number of recipients that were reported both as delivered and as failed."""
    rows = deliveries.c
    both = select(func.count()).where(rows.delivered, rows.failed, IS_COUNTED)
    return sum(connection.execute(both.where(rows.campaign.in_(batch))).scalar_one() for batch in batched(campaigns))
