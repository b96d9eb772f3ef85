"""The search page: by reference, by message id, or by a recipient that is typed in full."""

from __future__ import annotations

import contextlib
from typing import Any
from urllib.parse import parse_qs

from sqlalchemy import Connection, Row, exists, or_, select, union
from starlette.requests import Request
from starlette.responses import Response

from cpaas_provider.api.recipients.invalid import InvalidMsisdnError
from cpaas_provider.api.recipients.msisdn import NumberReader
from cpaas_provider.database.schema.activity import task_progress
from cpaas_provider.database.schema.delivery import deliveries, requests, sends
from cpaas_provider.delivery.reports import DeliveryStatus, normalise_recipient
from cpaas_provider.pages.access import Viewer
from cpaas_provider.pages.base import Pages, check_text, respond
from cpaas_provider.pages.campaigns import CampaignRow, find_campaign

MOST_LETTERS = 254
MOST_BYTES = 4_096
MOST = 50
"""The most results that the page shows."""


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
    found: list[tuple[Row[Any], str, CampaignRow]] = []
    if asked:
        check_text(asked, most=MOST_LETTERS)
        with pages.reading() as connection:
            campaigns = pages.with_summaries(connection, _by_reference(connection, viewer, asked))
            found = _by_recipient(connection, viewer, asked)
    # The search text is not shown again, because it may be a recipient's number.
    return respond(request, "search.html", campaigns=campaigns, found=found, asked=bool(asked), most=MOST)


def _by_reference(connection: Connection, viewer: Viewer, asked: str) -> list[CampaignRow]:
    """Find campaigns by their reference, or by the reference or the message id of one of their requests."""
    connections = union(select(task_progress.c.conn_id).distinct(), select(sends.c.conn_id).distinct())
    conn_ids = list(connection.execute(connections).scalars())
    matches = or_(requests.c.reference == asked, requests.c.message_id == asked)
    query = select(requests.c.campaign).where(requests.c.conn_id.in_(conn_ids), matches).limit(MOST)
    names = dict.fromkeys([asked, *connection.execute(query).scalars()])
    return viewer.visible(find_campaign(connection, name) for name in names)


def _by_recipient(connection: Connection, viewer: Viewer, asked: str) -> list[tuple[Row[Any], str, CampaignRow]]:
    """Return the deliveries of a recipient, each with its status in words and its campaign."""
    columns = deliveries.c
    of_recipient = columns.recipient.in_(_spellings(asked))
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
    known = (find_campaign(connection, name) for name in {row.campaign for row in rows})
    seen = {row.reference: row for row in viewer.visible(known)}
    return [
        (row, DeliveryStatus(row.delivery_status).word.replace("_", " "), seen[row.campaign])
        for row in rows
        if row.campaign in seen
    ]


def _spellings(asked: str) -> list[str]:
    """Return the forms in which a recipient may be stored."""
    spellings = {normalise_recipient(asked)}
    with contextlib.suppress(InvalidMsisdnError):
        spellings.add(NumberReader(None, "possible").read(asked))
    return sorted(filter(None, spellings))
