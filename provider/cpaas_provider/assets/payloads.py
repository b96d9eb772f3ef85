"""The content of the asset events that are published for delivery events."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import groupby
from typing import Any

from cpaas_provider.assets._uri import AssetName
from cpaas_provider.assets.subscriptions import News
from cpaas_provider.delivery.tracking.events import CAMPAIGN_FINISHED, DeliveryEvent

MOST_NAMED = 100
"""Campaigns of a batch that are named; all are counted."""


def news_for(name: AssetName, happenings: Sequence[DeliveryEvent]) -> list[News]:
    """Return the asset events to publish: one for each campaign, or one for each batch.

    :param happenings: the delivery events, batches whole, the oldest first
    """
    mine = [one for one in happenings if one.kind == name.kind and name.conn_id in (None, one.conn_id)]
    if not name.include_single_messages:
        mine = [one for one in mine if not one.facts.get("single")]
    if name.kind == CAMPAIGN_FINISHED or name.by_campaign:
        # Messages nobody has noted belong to no campaign.
        return [News(one.key, {**_common(one), **one.facts}, one.made) for one in mine if one.campaign]
    batches = groupby(sorted(mine, key=lambda one: (one.batch, one.seq)), key=lambda one: one.batch)
    return [_of_batch(str(batch), list(members)) for batch, members in batches]


def _common(one: DeliveryEvent) -> dict[str, Any]:
    return {"campaign": one.campaign, "connection": one.conn_id}


def _of_batch(key: str, members: list[DeliveryEvent]) -> News:
    named = {one.campaign: one.facts["recipients"] for one in members if one.campaign}
    extra = {
        "connection": members[0].conn_id,
        "recipients": sum(one.facts["recipients"] for one in members),
        "campaigns": len(named),
        "by_campaign": dict(list(named.items())[:MOST_NAMED]),
    }
    return News(key, extra, members[0].made)
