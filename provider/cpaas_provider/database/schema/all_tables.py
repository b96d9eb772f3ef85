"""All tables, as a new database has them."""

from __future__ import annotations

from sqlalchemy import Connection

from cpaas_provider.database.schema import (
    accounts,
    activity,
    alerts,
    campaigns,
    changes,
    contacts,
    delivery,
    lookups,
    rate_limits,
    recipients,
)
from cpaas_provider.database.schema.base import REPORT_DIALECTS, metadata

__all__ = ["create_all", "metadata"]

# Imported so that `metadata` has their tables.
_MODULES = (accounts, activity, alerts, campaigns, changes, contacts, delivery, lookups, rate_limits, recipients)

# The tables of delivery reports. They need atomic upserts, which only those databases have.
_REPORT_TABLES = (
    delivery.sends,
    delivery.requests,
    delivery.request_counts,
    delivery.deliveries,
    delivery.suppression_brakes,
    delivery.events,
    delivery.reports,
    delivery.report_counts,
    delivery.delivery_summaries,
    changes.campaign_changes,
    activity.task_progress,
    activity.passcodes,
    activity.airtime_purchases,
)


def create_all(connection: Connection) -> None:
    """Create all tables that this kind of database supports."""
    tables = metadata.sorted_tables
    if connection.dialect.name not in REPORT_DIALECTS:
        tables = [table for table in tables if table not in _REPORT_TABLES]
    metadata.create_all(connection, tables)
    if connection.dialect.name in REPORT_DIALECTS:
        changes.create_triggers(connection)
