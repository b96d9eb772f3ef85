"""Campaigns over time: cost and delivery by day and by network, as a page and as JSON."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable
from datetime import UTC, date, datetime, time, timedelta
from typing import Any

from msgspec import Struct
from msgspec.structs import asdict, replace
from starlette.requests import Request
from starlette.responses import JSONResponse, Response

from cpaas_provider.database.activity.progress import CAMPAIGN
from cpaas_provider.delivery.campaigns import read_campaigns
from cpaas_provider.pages import campaigns
from cpaas_provider.pages.access import Viewer
from cpaas_provider.pages.base import REFRESH, Pages, respond
from cpaas_provider.pages.campaigns import CampaignRow, Filter
from cpaas_provider.pages.html import charts
from cpaas_provider.pages.summaries import Group

DAYS = 30
"""The days that are shown without a filter."""

MOST = 500
"""The most campaigns that are summed up, which bounds the time that a page takes."""

_KINDS = ("delivered", "undelivered", "open", "accepted", "unknown")


class Sums(Struct):
    """The figures of campaigns, summed up.

    :param accepted: the accepted recipients of campaigns whose delivery is not known
    :param cost: ``None`` if no campaign has one
    """

    campaigns: int = 0
    recipients: int = 0
    delivered: int = 0
    undelivered: int = 0
    open: int = 0
    accepted: int = 0
    unknown: int = 0
    cost: float | None = None

    def add(self, row: CampaignRow) -> None:
        """Add a campaign."""
        self.campaigns += 1
        self.recipients += row.figures.recipients
        for kind, count in row.figures.parts:
            if kind in _KINDS:
                setattr(self, kind, getattr(self, kind) + count)
        if (charge := row.record.report.get("charge")) is not None:
            self.cost = (self.cost or 0.0) + float(charge)

    @property
    def tracked(self) -> int:
        """The number of accepted recipients whose delivery is known or awaited."""
        return self.delivered + self.undelivered + self.open


def over_time_page(pages: Pages, request: Request, viewer: Viewer, wanted: Filter) -> Response:
    """Return cost and delivery of campaigns by day and by network, as a page or as JSON."""
    if wanted.first is None and wanted.last is None:
        wanted = replace(wanted, first=datetime.now(UTC).date() - timedelta(days=DAYS - 1))
    with pages.reading() as connection:
        conn_ids = campaigns.connections_by_dag(connection, CAMPAIGN)
        dag_ids = viewer.readable(conn_ids)
        keys = campaigns.list_names(connection, dag_ids, wanted, CAMPAIGN, MOST)
        rows = pages.rows(connection, list(read_campaigns(connection, (name for _, name in keys[:MOST])).values()))
    days = _by_day(rows)
    networks = _by_network(rows)
    counting = sum(row.record.is_tracked and (row.summary is None or _lacks_networks(row)) for row in rows)
    is_cut = len(keys) > MOST
    if "application/json" in request.headers.get("accept", ""):
        return JSONResponse(
            {
                "days": [
                    {"day": str(day), **asdict(sums), "delivery_rate": _rate(sums.delivered, sums.tracked)}
                    for day, sums in days
                ],
                "networks": [
                    {**asdict(group), "delivery_rate": _rate(group.delivered, group.total)} for group in networks
                ],
                "campaigns_being_counted": counting,
                "is_complete": not is_cut,
            }
        )
    return respond(
        request,
        "over_time.html",
        days=days,
        networks=networks,
        kinds=[(kind, kind) for kind in _KINDS if any(getattr(sums, kind) for _, sums in days)],
        chart=_chart(days),
        most_cost=max((sums.cost or 0.0 for _, sums in days), default=0.0),
        counting=counting,
        most=MOST if is_cut else None,
        wanted=wanted,
        conn_ids=sorted({conn_id for dag_id in dag_ids for conn_id in conn_ids[dag_id]}),
        dag_ids=sorted(dag_ids),
        refresh=REFRESH if counting else 0,
    )


def _by_day(rows: Iterable[CampaignRow]) -> list[tuple[date, Sums]]:
    """Return the sums of each day on which campaigns began, the newest first."""
    days: defaultdict[date, Sums] = defaultdict(Sums)
    for row in rows:
        days[row.record.started_at.astimezone(UTC).date()].add(row)
    return sorted(days.items(), reverse=True)


def _by_network(rows: Iterable[CampaignRow]) -> list[Group]:
    """Return the recipients of each network or domain, the largest first."""
    groups: dict[str, Group] = {}
    for row in rows:
        for group in row.summary.networks if row.summary else ():
            groups[group.name] = groups.get(group.name, Group(group.name)) + group
    return sorted(groups.values(), key=lambda group: (-group.total, group.name))


def _lacks_networks(row: CampaignRow) -> bool:
    """Return whether reports are counted that are not grouped by network yet."""
    summary = row.summary
    return summary is not None and not summary.networks and summary.counts.deliveries.known > 0


def _rate(part: int, whole: int) -> float | None:
    return round(part / whole, 4) if whole else None


def _chart(days: Iterable[tuple[date, Sums]]) -> Any:
    buckets = {
        datetime.combine(day, time.min, UTC): {kind: getattr(sums, kind) for kind in _KINDS} for day, sums in days
    }
    has_any = any(any(counts.values()) for counts in buckets.values())
    each = timedelta(days=1)
    return charts.over_time(buckets if has_any else {}, _KINDS, "Recipients by day and delivery", each=each)
