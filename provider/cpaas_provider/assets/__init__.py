"""Assets of delivery events: a DAG scheduled on one starts when a campaign finishes, a message fails, and so on.

Light to import. A run's ``dag_run.partition_key`` identifies its delivery event. ``triggering_asset_events`` hold
counts and references, never a number or an address. ``cpaas_provider.sources.DeliveryEventSource`` reads the
recipients.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from cpaas_provider._common import lazy_names

if TYPE_CHECKING:
    from cpaas_provider.assets.schedules import airtime_succeeded as airtime_succeeded
    from cpaas_provider.assets.schedules import campaign_finished as campaign_finished
    from cpaas_provider.assets.schedules import contacts_changed as contacts_changed
    from cpaas_provider.assets.schedules import link_clicked as link_clicked
    from cpaas_provider.assets.schedules import messages_failed as messages_failed
    from cpaas_provider.assets.schedules import on_airtime_succeeded as on_airtime_succeeded
    from cpaas_provider.assets.schedules import on_campaign_finished as on_campaign_finished
    from cpaas_provider.assets.schedules import on_link_clicked as on_link_clicked
    from cpaas_provider.assets.schedules import on_messages_failed as on_messages_failed

_EVENTS = ("airtime_succeeded", "campaign_finished", "link_clicked", "messages_failed")
_HOMES = {"schedules": ("contacts_changed", *_EVENTS, *(f"on_{name}" for name in _EVENTS))}

__getattr__, __dir__, __all__ = lazy_names(__name__, _HOMES)
