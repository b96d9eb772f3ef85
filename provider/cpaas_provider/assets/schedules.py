"""The assets, and the schedules that start a run for each of their partitions."""

from __future__ import annotations

from typing import TYPE_CHECKING

from cpaas_provider.assets._uri import DeliveryAsset

if TYPE_CHECKING:
    from airflow.sdk import Asset, PartitionedAssetTimetable


def campaign_finished(cpaas_conn_id: str | None = None, *, include_single_messages: bool = False) -> Asset:
    """Return the asset of finished campaigns: every recipient has a final delivery status.

    An event is published once for each campaign, at the latest 72 hours after its task ended. Its counts then include
    the recipients without a report. The partition key is the campaign's reference.

    :param cpaas_conn_id: the connection; default: all
    :param include_single_messages: whether requests that belong to no campaign, such as those of ``SendSmsOperator``,
        count as campaigns
    """
    return _asset(DeliveryAsset("campaign_finished", cpaas_conn_id, include_single_messages=include_single_messages))


def messages_failed(cpaas_conn_id: str | None = None, *, by_campaign: bool = False) -> Asset:
    """Return the asset of failed messages and purchases: those of a connection since the last event.

    The partition key identifies the batch.

    :param cpaas_conn_id: the connection; default: all, each with batches of its own
    :param by_campaign: publish an event for each campaign; the partition key then begins with its reference
    """
    return _asset(DeliveryAsset("messages_failed", cpaas_conn_id, by_campaign))


def airtime_succeeded(cpaas_conn_id: str | None = None, *, by_campaign: bool = False) -> Asset:
    """Return the asset of recipients that got airtime since the last event; arguments as ``messages_failed``."""
    return _asset(DeliveryAsset("airtime_succeeded", cpaas_conn_id, by_campaign))


def link_clicked(cpaas_conn_id: str | None = None, *, by_campaign: bool = False) -> Asset:
    """Return the asset of recipients that clicked a link since the last event; arguments as ``messages_failed``."""
    return _asset(DeliveryAsset("link_clicked", cpaas_conn_id, by_campaign))


def contacts_changed(cpaas_conn_id: str) -> Asset:
    """Return the asset of the contact list: a ``SyncContactsOperator`` that changed it publishes an event.

    :param cpaas_conn_id: the connection of the list
    """
    return _asset(DeliveryAsset("contacts_changed", cpaas_conn_id))


def on_campaign_finished(
    cpaas_conn_id: str | None = None, *, include_single_messages: bool = False
) -> PartitionedAssetTimetable:
    """Return the schedule of one run for each finished campaign, see ``campaign_finished``."""
    return _partitioned(campaign_finished(cpaas_conn_id, include_single_messages=include_single_messages))


def on_messages_failed(cpaas_conn_id: str | None = None, *, by_campaign: bool = False) -> PartitionedAssetTimetable:
    """Return the schedule of one run for each event of failures, see ``messages_failed``."""
    return _partitioned(messages_failed(cpaas_conn_id, by_campaign=by_campaign))


def on_airtime_succeeded(cpaas_conn_id: str | None = None, *, by_campaign: bool = False) -> PartitionedAssetTimetable:
    """Return the schedule of one run for each event of airtime, see ``airtime_succeeded``."""
    return _partitioned(airtime_succeeded(cpaas_conn_id, by_campaign=by_campaign))


def on_link_clicked(cpaas_conn_id: str | None = None, *, by_campaign: bool = False) -> PartitionedAssetTimetable:
    """Return the schedule of one run for each event of clicks, see ``link_clicked``."""
    return _partitioned(link_clicked(cpaas_conn_id, by_campaign=by_campaign))


def _asset(asset: DeliveryAsset) -> Asset:
    from airflow.sdk import Asset

    return Asset(name=asset.name, uri=asset.uri, group="cpaas")


def _partitioned(asset: Asset) -> PartitionedAssetTimetable:
    from airflow.sdk import PartitionedAssetTimetable

    return PartitionedAssetTimetable(assets=asset)
