"""The assets, their URIs, and the schedules that start a run for each of their partitions."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple
from urllib.parse import parse_qs, quote, unquote, urlencode, urlsplit

if TYPE_CHECKING:
    from airflow.sdk import Asset, PartitionedAssetTimetable

SCHEME = "x-cpaas"
"""Airflow loads all providers to normalise a URI, except for a scheme that begins with ``x-``."""

_BY_CAMPAIGN = ("each", "campaign")
_SINGLE_MESSAGES = ("with", "single_messages")


class DeliveryAsset(NamedTuple):
    """The meaning of an asset.

    :param kind: the kind of delivery event
    :param conn_id: the connection; ``None`` for all
    :param by_campaign: whether each campaign has events of its own
    :param include_single_messages: whether requests that belong to no campaign have events too
    """

    kind: str
    conn_id: str | None = None
    by_campaign: bool = False
    include_single_messages: bool = False

    @property
    def uri(self) -> str:
        """The asset's URI."""
        parameters = [_BY_CAMPAIGN] * self.by_campaign + [_SINGLE_MESSAGES] * self.include_single_messages
        uri = f"{SCHEME}://{self.kind}/{quote(self.conn_id or '', safe='')}"
        return f"{uri}?{urlencode(parameters)}" if parameters else uri

    @property
    def name(self) -> str:
        """The asset's name in Airflow's pages."""
        words = [f"cpaas {self.kind}"]
        words += [f"on {self.conn_id}"] if self.conn_id else []
        words += ["by campaign"] if self.by_campaign else []
        words += ["with single messages"] if self.include_single_messages else []
        return " ".join(words)


def parse_uri(uri: str) -> DeliveryAsset | None:
    """Return the meaning of an asset of this provider; ``None`` for any other."""
    parts = urlsplit(uri)
    if parts.scheme != SCHEME:
        return None
    conn_id = unquote(parts.path.strip("/"))
    parameters = parse_qs(parts.query)
    by_campaign, include_single_messages = (
        parameters.get(name) == [value] for name, value in (_BY_CAMPAIGN, _SINGLE_MESSAGES)
    )
    return DeliveryAsset(parts.netloc, conn_id or None, by_campaign, include_single_messages)


def campaign_finished(cpaas_conn_id: str | None = None, *, include_single_messages: bool = False) -> Asset:
    """Return the asset of finished campaigns.

    A campaign is finished once its task has ended and each accepted or unknown recipient is final, at the latest 72
    hours later. Its event is published once. The counts of recipients without a report are ``unreported`` and
    ``unknown``. The partition key is the campaign's reference.

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
    # In lower case, because the task that syncs the list may have the id in other letters.
    return _asset(DeliveryAsset("contacts_changed", cpaas_conn_id.lower()))


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
