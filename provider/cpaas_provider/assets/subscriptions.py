"""The DAGs scheduled on our assets, and the publishing of asset events in Airflow's database."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any

from airflow.assets.manager import asset_manager
from airflow.configuration import conf
from airflow.models.asset import AssetEvent, AssetModel, DagScheduleAssetReference, PartitionedAssetKeyLog
from airflow.models.dag import DagModel
from airflow.models.dagrun import DagRun
from airflow.utils.session import create_session
from sqlalchemy import exists, func, select, update
from sqlalchemy.orm import Session

from cpaas_provider.assets._uri import SCHEME, AssetName, read_uri
from cpaas_provider.delivery.tracking.events import KINDS

AT_ONCE = 50
"""Events of one transaction: on SQLite nobody else writes meanwhile."""

_CLOCKS = timedelta(days=1)
"""How far the clocks of machines may be apart."""

MISSED_AT_MOST = timedelta(days=30)
"""How old an event may be that reaches a DAG which was paused; of older ones Airflow may have cleaned up the runs."""


@dataclass(frozen=True, slots=True)
class Subscription:
    """An asset of ours that a DAG is scheduled on.

    :param since: the time from which a DAG is scheduled on it
    """

    asset_id: int
    name: AssetName
    since: datetime


@dataclass(frozen=True, slots=True)
class News:
    """An asset event to publish: one run for each key.

    :param made: when the delivery event was found; it cannot have been published before
    """

    key: str
    extra: Mapping[str, Any]
    made: datetime


@dataclass(frozen=True, slots=True)
class Listener:
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
        found = [(asset_id, read_uri(uri), since) for asset_id, uri, since in session.execute(query)]
    return [Subscription(asset_id, name, since) for asset_id, name, since in found if name and name.kind in KINDS]


def tell(subscription: Subscription, news: Sequence[News], going_on: Callable[[], bool] = lambda: True) -> int | None:
    """Publish asset events that were not published yet, which starts the runs of the asset's DAGs; return their number.

    The check for published events is in the same transaction, under a lock. Two publishers at a time publish once.

    :param going_on: called between transactions; if it returns false before all are published, ``None`` is returned
    """
    told = 0
    for start in range(0, len(news), AT_ONCE):
        if not going_on():
            return None
        with create_session() as session:
            told += _tell(session, subscription.asset_id, news[start : start + AT_ONCE])
    return told


def _tell(session: Session, asset_id: int, news: Sequence[News]) -> int:
    # A change of nothing: it locks the asset, as Airflow does, and on SQLite the database, before anything is read.
    session.execute(update(AssetModel).where(AssetModel.id == asset_id).values(id=AssetModel.id))
    asset = session.get(AssetModel, asset_id)
    if asset is None:
        return 0
    known = select(AssetEvent.partition_key).where(
        AssetEvent.asset_id == asset_id,
        AssetEvent.timestamp >= min(one.made for one in news) - _CLOCKS,
        AssetEvent.partition_key.in_([one.key for one in news]),
    )
    told = set(session.scalars(known))
    fresh = [one for one in news if one.key not in told]
    for one in fresh:
        asset_manager.register_asset_change(asset=asset, extra=dict(one.extra), partition_key=one.key, session=session)
    return len(fresh)


def listeners() -> set[Listener]:
    """Return the DAGs that are not paused, with the assets of ours that they are scheduled on now."""
    # Between teams, Airflow lets events through by rules of its own, when they are made.
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
        return {Listener(*row) for row in session.execute(query)}


def tell_missed(listener: Listener, going_on: Callable[[], bool] = lambda: True) -> int:
    """Start the runs of a DAG for events that were published while it was paused; return their number.

    Airflow handles an event only when it is published. A DAG that is paused then gets no run for it.

    :param going_on: called between transactions
    """
    told, after = 0, 0
    while going_on():
        with create_session() as session:
            missed = _missed(session, listener, after)
            for event in missed:
                # What Airflow does for DAGs that are not paused; it has no public name for doing so later.
                asset_manager._queue_partitioned_dags(
                    asset_id=listener.asset_id,
                    partition_dags=session.scalars(select(DagModel).where(DagModel.dag_id == listener.dag_id)).all(),
                    event=event,
                    partition_key=event.partition_key,
                    partition_date=None,
                    task_instance=None,
                    session=session,
                )
                after = event.id
        told += len(missed)
        if len(missed) < AT_ONCE:
            break
    return told


def _missed(session: Session, listener: Listener, after: int) -> Sequence[AssetEvent]:
    session.execute(update(AssetModel).where(AssetModel.id == listener.asset_id).values(id=AssetModel.id))
    log, run = PartitionedAssetKeyLog, DagRun
    heard = exists().where(log.asset_event_id == AssetEvent.id, log.target_dag_id == listener.dag_id)
    ran = exists().where(run.dag_id == listener.dag_id, run.partition_key == AssetEvent.partition_key)
    since = max(listener.since, datetime.now(UTC) - MISSED_AT_MOST)
    query = (
        select(AssetEvent)
        .where(AssetEvent.asset_id == listener.asset_id, AssetEvent.timestamp >= since, AssetEvent.id > after)
        .where(AssetEvent.partition_key.is_not(None), ~heard, ~ran)
        .order_by(AssetEvent.id)
    )
    return session.scalars(query.limit(AT_ONCE)).all()
