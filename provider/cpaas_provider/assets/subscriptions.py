"""Finds the DAGs that are scheduled on our assets, and publishes asset events for delivery events to them."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from datetime import UTC, datetime, timedelta
from itertools import groupby
from typing import Any

from airflow.assets.manager import asset_manager
from airflow.configuration import conf
from airflow.models.asset import AssetEvent, AssetModel, DagScheduleAssetReference, PartitionedAssetKeyLog
from airflow.models.dag import DagModel
from airflow.models.dagrun import DagRun
from airflow.utils.session import create_session
from msgspec import Struct
from sqlalchemy import exists, func, select, update
from sqlalchemy.orm import Session

from cpaas_provider.assets.schedules import SCHEME, DeliveryAsset, parse_uri
from cpaas_provider.delivery.tracking.events import CAMPAIGN_FINISHED, KINDS, DeliveryEvent

EVENTS_PER_TRANSACTION = 50
"""On SQLite no other process writes during a transaction."""

_CLOCK_SKEW = timedelta(days=1)
"""How far the clocks of two machines may differ."""

MAX_MISSED_AGE = timedelta(days=30)
"""The age of an event up to which an unpaused DAG runs for it; Airflow may have removed the runs of older ones."""

MAX_NAMED_CAMPAIGNS = 100
"""Campaigns of a batch that are named; all are counted."""


class Subscription(Struct, frozen=True):
    """An asset of ours that a DAG is scheduled on.

    :param since: the time from which a DAG is scheduled on it
    """

    asset_id: int
    asset: DeliveryAsset
    since: datetime


class AssetEventPayload(Struct, frozen=True):
    """An asset event to publish: one run for each key.

    :param made: when the delivery event was detected; it cannot have been published earlier
    """

    key: str
    extra: Mapping[str, Any]
    made: datetime


class ScheduledDag(Struct, frozen=True):
    """A DAG that is not paused, on an asset of ours.

    :param since: the time from which it is scheduled on the asset
    """

    asset_id: int
    dag_id: str
    since: datetime


def subscriptions() -> list[Subscription]:
    """Return the assets of ours that DAGs are scheduled on now."""
    reference = DagScheduleAssetReference
    query = (
        select(AssetModel.id, AssetModel.uri, func.min(reference.created_at))
        .join(reference, reference.asset_id == AssetModel.id)
        .where(AssetModel.uri.startswith(f"{SCHEME}://"), AssetModel.active.has())
        .group_by(AssetModel.id, AssetModel.uri)
    )
    with create_session() as session:
        found = [(asset_id, parse_uri(uri), since) for asset_id, uri, since in session.execute(query)]
    return [Subscription(asset_id, asset, since) for asset_id, asset, since in found if asset and asset.kind in KINDS]


def payloads_for(asset: DeliveryAsset, events: Sequence[DeliveryEvent]) -> list[AssetEventPayload]:
    """Return the asset events to publish: one for each campaign, or one for each batch.

    :param events: the delivery events, with all events of each batch, the oldest first
    """
    # One connection may have its id in other letters: Airflow ignores their case in environment variables.
    conn_id = None if asset.conn_id is None else asset.conn_id.lower()
    selected = [event for event in events if event.kind == asset.kind and conn_id in (None, event.conn_id.lower())]
    if not asset.include_single_messages:
        selected = [event for event in selected if not event.facts.get("single")]
    if asset.kind == CAMPAIGN_FINISHED or asset.by_campaign:
        # Requests that were not tracked belong to no campaign.
        return [
            AssetEventPayload(
                event.key, {"campaign": event.campaign, "connection": event.conn_id, **event.facts}, event.created_at
            )
            for event in selected
            if event.campaign
        ]
    batches = groupby(sorted(selected, key=lambda event: (event.batch, event.id)), key=lambda event: event.batch)
    return [_of_batch(str(key), list(batch)) for key, batch in batches]


def _of_batch(key: str, batch: list[DeliveryEvent]) -> AssetEventPayload:
    by_campaign = {event.campaign: event.facts["recipients"] for event in batch if event.campaign}
    extra = {
        "connection": batch[0].conn_id,
        "recipients": sum(event.facts["recipients"] for event in batch),
        "campaigns": len(by_campaign),
        "by_campaign": dict(list(by_campaign.items())[:MAX_NAMED_CAMPAIGNS]),
    }
    return AssetEventPayload(key, extra, batch[0].created_at)


def publish(
    subscription: Subscription, payloads: Sequence[AssetEventPayload], is_stopping: Callable[[], bool]
) -> int | None:
    """Publish asset events that were not published yet, which starts the runs of the asset's DAGs; return their number.

    The check for published events is in the same transaction, under a lock. Two publishers at a time publish once.

    :param is_stopping: called between transactions; if it returns true before all are published, ``None`` is returned
    """
    published = 0
    for start in range(0, len(payloads), EVENTS_PER_TRANSACTION):
        if is_stopping():
            return None
        with create_session() as session:
            published += _publish(session, subscription.asset_id, payloads[start : start + EVENTS_PER_TRANSACTION])
    return published


def _publish(session: Session, asset_id: int, payloads: Sequence[AssetEventPayload]) -> int:
    # An update without a change locks the asset, as Airflow does, and the database on SQLite, before the read.
    session.execute(update(AssetModel).where(AssetModel.id == asset_id).values(id=AssetModel.id))
    asset = session.get(AssetModel, asset_id)
    if asset is None:
        return 0
    known = select(AssetEvent.partition_key).where(
        AssetEvent.asset_id == asset_id,
        AssetEvent.timestamp >= min(payload.made for payload in payloads) - _CLOCK_SKEW,
        AssetEvent.partition_key.in_([payload.key for payload in payloads]),
    )
    published = set(session.scalars(known))
    fresh = [payload for payload in payloads if payload.key not in published]
    for payload in fresh:
        asset_manager.register_asset_change(
            asset=asset, extra=dict(payload.extra), partition_key=payload.key, session=session
        )
    return len(fresh)


def scheduled_dags() -> set[ScheduledDag]:
    """Return the DAGs that are not paused, with the assets of ours that they are scheduled on now."""
    # Between teams, Airflow filters events by rules of its own when they are published.
    if conf.getboolean("core", "multi_team", fallback=False):
        return set()
    reference = DagScheduleAssetReference
    query = (
        select(reference.asset_id, reference.dag_id, reference.created_at)
        .join(AssetModel, AssetModel.id == reference.asset_id)
        .join(DagModel, DagModel.dag_id == reference.dag_id)
        .where(AssetModel.uri.startswith(f"{SCHEME}://"), AssetModel.active.has())
        .where(DagModel.is_paused.is_(False), DagModel.is_stale.is_(False), DagModel.timetable_partitioned.is_(True))
    )
    with create_session() as session:
        return {ScheduledDag(*row) for row in session.execute(query)}


def start_missed_runs(dag: ScheduledDag, is_stopping: Callable[[], bool]) -> int:
    """Start the runs of a DAG for events that were published while it was paused; return their number.

    Airflow handles an event only when it is published. A DAG that is paused then gets no run for it.

    :param is_stopping: called between transactions
    """
    published, after = 0, 0
    while not is_stopping():
        with create_session() as session:
            missed = _missed(session, dag, after)
            for event in missed:
                # Airflow does this for DAGs that are not paused, and has no public function to do it later.
                asset_manager._queue_partitioned_dags(
                    asset_id=dag.asset_id,
                    partition_dags=session.scalars(select(DagModel).where(DagModel.dag_id == dag.dag_id)).all(),
                    event=event,
                    partition_key=event.partition_key,
                    partition_date=None,
                    task_instance=None,
                    session=session,
                )
                after = event.id
        published += len(missed)
        if len(missed) < EVENTS_PER_TRANSACTION:
            break
    return published


def _missed(session: Session, dag: ScheduledDag, after: int) -> Sequence[AssetEvent]:
    session.execute(update(AssetModel).where(AssetModel.id == dag.asset_id).values(id=AssetModel.id))
    log, run = PartitionedAssetKeyLog, DagRun
    handled = exists().where(log.asset_event_id == AssetEvent.id, log.target_dag_id == dag.dag_id)
    ran = exists().where(run.dag_id == dag.dag_id, run.partition_key == AssetEvent.partition_key)
    since = max(dag.since, datetime.now(UTC) - MAX_MISSED_AGE)
    query = (
        select(AssetEvent)
        .where(AssetEvent.asset_id == dag.asset_id, AssetEvent.timestamp >= since, AssetEvent.id > after)
        .where(AssetEvent.partition_key.is_not(None), ~handled, ~ran)
        .order_by(AssetEvent.id)
    )
    return session.scalars(query.limit(EVENTS_PER_TRANSACTION)).all()
