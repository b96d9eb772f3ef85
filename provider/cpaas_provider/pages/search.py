"""The search page: by reference, by message id, or by a recipient that is typed in full."""

from __future__ import annotations

import contextlib
from collections.abc import Sequence
from typing import Any
from urllib.parse import parse_qs

from sqlalchemy import Connection, Row, exists, or_, select, union
from starlette.requests import Request
from starlette.responses import Response

from cpaas_provider.api.recipients.invalid import InvalidMsisdnError
from cpaas_provider.api.recipients.msisdn import NumberReader
from cpaas_provider.database.schema.activity import task_progress
from cpaas_provider.database.schema.delivery import deliveries, requests, sends
from cpaas_provider.delivery.campaigns import CampaignRecord, read_campaigns
from cpaas_provider.delivery.reports import DeliveryStatus, normalise_recipient
from cpaas_provider.pages.access import Viewer
from cpaas_provider.pages.base import Pages, check_text, respond
from cpaas_provider.pages.campaigns import CampaignRow

MOST_LETTERS = 254
MOST_BYTES = 4_096
MOST = 50
"""The most results that the page shows."""

MOST_CONNECTIONS = 50
"""The most connections whose region is read for a national number."""


async def read_question(request: Request) -> str | None:
    """Return the search text of a form, ``None`` if the form is not valid."""
    body = b""
    async for part in request.stream():
        body += part
        if len(body) > MOST_BYTES:
            return None
    try:
        fields = parse_qs(body.decode(), max_num_fields=5)
    except ValueError:
        return None
    return (fields.get("q") or [""])[0].strip()


def search_page(pages: Pages, request: Request, viewer: Viewer, asked: str | None) -> Response:
    """Return the search page with its results.

    :param asked: the search text; ``None`` for the form alone
    """
    campaigns: list[CampaignRow] = []
    found: list[tuple[Row[Any], str, CampaignRecord]] = []
    if asked:
        check_text(asked, most=MOST_LETTERS)
        with pages.reading() as connection:
            campaigns = pages.rows(connection, _by_reference(connection, viewer, asked))
            found = _by_recipient(connection, viewer, _spellings(pages, connection, asked))
    # The search text is not shown again, because it may be a recipient's number.
    return respond(request, "search.html", campaigns=campaigns, found=found, asked=bool(asked), most=MOST)


def _by_reference(connection: Connection, viewer: Viewer, asked: str) -> list[CampaignRecord]:
    """Find campaigns by their reference, or by the reference or the message id of one of their requests."""
    conn_ids = _connections(connection)
    matches = or_(requests.c.reference == asked, requests.c.message_id == asked)
    query = select(requests.c.campaign).where(requests.c.conn_id.in_(conn_ids), matches).limit(MOST)
    names = dict.fromkeys([asked, *connection.execute(query).scalars()])
    return viewer.visible(read_campaigns(connection, names).values())


def _by_recipient(
    connection: Connection, viewer: Viewer, spellings: Sequence[str]
) -> list[tuple[Row[Any], str, CampaignRecord]]:
    """Return the deliveries of a recipient, each with its status in words and its campaign."""
    columns = deliveries.c
    of_recipient = columns.recipient.in_(spellings)
    names = select(columns.campaign).where(of_recipient)
    own, tracked = task_progress.c, sends.c
    dag_ids = union(
        select(own.dag_id).where(own.reference.in_(names)), select(tracked.dag_id).where(tracked.campaign.in_(names))
    )
    # A condition of the query, because deliveries of other DAGs and other connections must not count towards its limit.
    allowed = sorted(viewer.readable(connection.execute(dag_ids).scalars()))
    seen_by_viewer = or_(
        exists().where(own.reference == columns.campaign, own.conn_id == columns.conn_id, own.dag_id.in_(allowed)),
        exists().where(
            tracked.campaign == columns.campaign, tracked.conn_id == columns.conn_id, tracked.dag_id.in_(allowed)
        ),
    )
    newest = columns.reported_at.desc(), columns.campaign, columns.reference
    rows = connection.execute(
        select(deliveries).where(of_recipient, seen_by_viewer).order_by(*newest).limit(MOST)
    ).all()
    known = read_campaigns(connection, (row.campaign for row in rows))
    seen = {record.reference: record for record in viewer.visible(known.values())}
    return [
        (row, DeliveryStatus(row.delivery_status).word.replace("_", " "), seen[row.campaign])
        for row in rows
        if row.campaign in seen
    ]


def _connections(connection: Connection) -> list[str]:
    """Return the ids of the connections that sent something."""
    connections = union(select(task_progress.c.conn_id).distinct(), select(sends.c.conn_id).distinct())
    return sorted(connection.execute(connections).scalars())


def _spellings(pages: Pages, connection: Connection, asked: str) -> list[str]:
    """Return the forms in which a recipient may be stored. A national number is read by the connections' regions."""
    spellings = {normalise_recipient(asked)}
    regions: set[str | None] = {None}
    if "@" not in asked and not asked.startswith("+"):
        regions |= {pages.default_region(conn_id) for conn_id in _connections(connection)[:MOST_CONNECTIONS]}
    for region in regions:
        with contextlib.suppress(InvalidMsisdnError):
            spellings.add(NumberReader(region, "possible").read(asked))
    return sorted(filter(None, spellings))
