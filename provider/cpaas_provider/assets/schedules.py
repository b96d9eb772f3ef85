"""The assets themselves, and the schedules that start a run for each of their partitions."""

from __future__ import annotations

from typing import TYPE_CHECKING

from cpaas_provider.assets.names import AssetName

if TYPE_CHECKING:
    from airflow.sdk import Asset, PartitionedAssetTimetable


def campaign_finished(cpaas_conn_id: str | None = None, *, include_single_messages: bool = False) -> Asset:
    """Return the asset of campaigns of which every recipient is known to be delivered to or not.

    A campaign is told once, at the latest 72 hours after its task ended; then with those counted of whom nothing is
    known. The partition key is the campaign's reference.

    :param cpaas_conn_id: the connection; default: all
    :param include_single_messages: take requests that belong to no campaign, such as those of ``SendSmsOperator``, for
        campaigns
    """
    return _asset(AssetName("campaign_finished", cpaas_conn_id, include_single_messages=include_single_messages))


def messages_failed(cpaas_conn_id: str | None = None, *, by_campaign: bool = False) -> Asset:
    """Return the asset of messages and purchases that failed: what failed on a connection since the last time.

    The partition key names the batch.

    :param cpaas_conn_id: the connection; default: all, each with batches of its own
    :param by_campaign: tell of each campaign by itself; the key begins with its reference then
    """
    return _asset(AssetName("messages_failed", cpaas_conn_id, by_campaign))


def airtime_succeeded(cpaas_conn_id: str | None = None, *, by_campaign: bool = False) -> Asset:
    """Return the asset of recipients who got airtime since the last time; arguments as ``messages_failed``."""
    return _asset(AssetName("airtime_succeeded", cpaas_conn_id, by_campaign))


def link_clicked(cpaas_conn_id: str | None = None, *, by_campaign: bool = False) -> Asset:
    """Return the asset of recipients who clicked a link since the last time; arguments as ``messages_failed``."""
    return _asset(AssetName("link_clicked", cpaas_conn_id, by_campaign))


def contacts_changed(cpaas_conn_id: str) -> Asset:
    """Return the asset of the contact list: a ``SyncContactsOperator`` that changed it publishes an event.

    :param cpaas_conn_id: the connection of the list
    """
    return _asset(AssetName("contacts_changed", cpaas_conn_id))


def on_campaign_finished(
    cpaas_conn_id: str | None = None, *, include_single_messages: bool = False
) -> PartitionedAssetTimetable:
    """Return the schedule of one run for each campaign that finished, see ``campaign_finished``."""
    return _each(campaign_finished(cpaas_conn_id, include_single_messages=include_single_messages))


def on_messages_failed(cpaas_conn_id: str | None = None, *, by_campaign: bool = False) -> PartitionedAssetTimetable:
    """Return the schedule of one run for what failed since the last one, see ``messages_failed``."""
    return _each(messages_failed(cpaas_conn_id, by_campaign=by_campaign))


def on_airtime_succeeded(cpaas_conn_id: str | None = None, *, by_campaign: bool = False) -> PartitionedAssetTimetable:
    """Return the schedule of one run for who got airtime since the last one, see ``airtime_succeeded``."""
    return _each(airtime_succeeded(cpaas_conn_id, by_campaign=by_campaign))


def on_link_clicked(cpaas_conn_id: str | None = None, *, by_campaign: bool = False) -> PartitionedAssetTimetable:
    """Return the schedule of one run for who clicked since the last one, see ``link_clicked``."""
    return _each(link_clicked(cpaas_conn_id, by_campaign=by_campaign))


def _asset(name: AssetName) -> Asset:
    from airflow.sdk import Asset

    return Asset(name=name.title, uri=name.uri, group="cpaas")


def _each(asset: Asset) -> PartitionedAssetTimetable:
    from airflow.sdk import PartitionedAssetTimetable

    return PartitionedAssetTimetable(assets=asset)
