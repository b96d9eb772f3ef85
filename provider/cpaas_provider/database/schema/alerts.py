"""Alerts, and the leases of those who send them."""

from __future__ import annotations

from sqlalchemy import BigInteger, Boolean, Column, Integer, String, Table, Text

from cpaas_provider.database.schema.base import UtcDateTime, metadata

# Leases by name: the owner may do alone what the name stands for.
leases = Table(
    "cpaas_leases",
    metadata,
    Column("name", String(64), primary_key=True),
    Column("owner", String(200), nullable=False),
    Column("fencing_token", BigInteger, nullable=False),
    Column("expires_at", UtcDateTime, nullable=False),
)

# Groups of alerts, which the next notification to the same recipients reports together.
notifications = Table(
    "cpaas_notifications",
    metadata,
    Column("name", String(64), primary_key=True),
    Column("conn_id", String(250), nullable=False),
    # The alerts that no notification has reported yet: their number, the number by subject, the newest one encrypted.
    Column("alerts", Integer, nullable=False),
    Column("subjects", Text),
    Column("message", Text),
    Column("first_at", UtcDateTime),
    Column("last_at", UtcDateTime),
    # The seconds after a notification in which no other is sent.
    Column("window_seconds", Integer, nullable=False),
    Column("sent_at", UtcDateTime),
    # The number of alerts of a notification whose outcome is not recorded, and the fencing token of its sender.
    Column("in_flight", Integer, nullable=False),
    Column("flight_token", BigInteger, nullable=False),
    # The fencing token of the leader, and until when it waits at the latest.
    Column("fencing_token", BigInteger, nullable=False),
    Column("leads_until", UtcDateTime),
    # Until then no other process sends in its place.
    Column("lease_expires_at", UtcDateTime),
    # Whether the background sender can send for this group, and when it last checked.
    Column("sender_ok", Boolean, nullable=False),
    Column("sender_checked_at", UtcDateTime),
)
