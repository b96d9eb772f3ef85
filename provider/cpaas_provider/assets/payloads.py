"""The content of the asset events that are published for delivery events."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import groupby
from typing import Any

from cpaas_provider.assets._uri import DeliveryAsset
from cpaas_provider.assets.subscriptions import AssetEventPayload
from cpaas_provider.delivery.tracking.events import CAMPAIGN_FINISHED, DeliveryEvent

MAX_NAMED_CAMPAIGNS = 100
"""Campaigns of a batch that are named; all are counted."""


def payloads_for(asset: DeliveryAsset, events: Sequence[DeliveryEvent]) -> list[AssetEventPayload]:
    """Return the asset events to publish: one for each campaign, or one for each batch.

    :param events: the delivery events, with all events of each batch, the oldest first
    """
    selected = [one for one in events if one.kind == asset.kind and asset.conn_id in (None, one.conn_id)]
    if not asset.include_single_messages:
        selected = [one for one in selected if not one.facts.get("single")]
    if asset.kind == CAMPAIGN_FINISHED or asset.by_campaign:
        # Requests that were not tracked belong to no campaign.
        return [
            AssetEventPayload(one.key, {**_common(one), **one.facts}, one.created_at)
            for one in selected
            if one.campaign
        ]
    batches = groupby(sorted(selected, key=lambda one: (one.batch, one.id)), key=lambda one: one.batch)
    return [_of_batch(str(key), list(batch)) for key, batch in batches]


def _common(one: DeliveryEvent) -> dict[str, Any]:
    return {"campaign": one.campaign, "connection": one.conn_id}


def _of_batch(key: str, batch: list[DeliveryEvent]) -> AssetEventPayload:
    by_campaign = {one.campaign: one.facts["recipients"] for one in batch if one.campaign}
    extra = {
        "connection": batch[0].conn_id,
        "recipients": sum(one.facts["recipients"] for one in batch),
        "campaigns": len(by_campaign),
        "by_campaign": dict(list(by_campaign.items())[:MAX_NAMED_CAMPAIGNS]),
    }
    return AssetEventPayload(key, extra, batch[0].created_at)
