"""A database as it is after months: many campaigns of all sizes, filled by bulk SQL."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta

from sqlalchemy import Connection, insert, text

from cpaas_provider.database.database import Database
from cpaas_provider.database.schema.activity import airtime_purchases, passcodes, task_progress
from cpaas_provider.database.schema.delivery import deliveries, report_counts, sends

DAGS, CONNECTIONS, PER_REQUEST = 40, 4, 500
DAYS = 90

_FIGURES = {
    "rejected": 3, "unknown_recipients": 0, "not_sent": 0, "invalid_rows": 12, "requests": 2, "charge": 1234.5,
    "balance": 98765.4, "recipients_per_second": 120.5, "delivery_reports": "callback",
    "results_path": "/data/results.jsonl",
}  # fmt: skip
_SETTINGS = {"max_charge": 5000, "send_window": "09:00 to 20:00", "timezone": "Africa/Lagos", "on_unknown": "fail"}

_NUMBERS = {
    "sqlite": "WITH RECURSIVE numbers(n) AS (SELECT 1 UNION ALL SELECT n + 1 FROM numbers WHERE n < :size) ",
    "postgresql": "WITH numbers(n) AS (SELECT generate_series(1, :size)) ",
}

# Of ten recipients seven are delivered, two are not, and one is in flight.
_DELIVERIES = """
INSERT INTO cpaas_deliveries (campaign, conn_id, reference, recipient, message_id, kind, delivery_status, status,
    reason, delivered, failed, clicked, reported_at, updated_at)
SELECT :campaign, :conn_id, :campaign || '-' || (n / 500), '23480' || CAST(10000000 + :first + n AS VARCHAR(20)),
    NULL, 'sms', CASE WHEN n % 10 < 7 THEN 20 WHEN n % 10 < 9 THEN 10 ELSE 0 END,
    CASE WHEN n % 10 < 7 THEN 'delivered' WHEN n % 10 < 9 THEN 'failed' ELSE 'sent' END,
    CASE WHEN n % 10 = 7 THEN 'Absent subscriber' WHEN n % 10 = 8 THEN 'Handset memory full' END,
    n % 10 < 7, n % 10 IN (7, 8), FALSE, :at, :at
FROM numbers
"""
_REQUESTS = """
INSERT INTO cpaas_requests (conn_id, reference, campaign, recipients, message_id, tracked, recorded_at)
SELECT :conn_id, :campaign || '-' || (n - 1), :campaign, 500, :campaign || '-m' || (n - 1), FALSE, :at FROM numbers
"""


@dataclass(frozen=True)
class Filled:
    """What there is to look at."""

    large: str
    small: str
    recipient: str
    request: str


def sizes_of(campaigns: int, reports: int) -> list[int]:
    """Return the recipients of each campaign: one has a tenth of all, ten a hundredth each, the others the rest."""
    large = [reports // 10, *[reports // 100] * 10]
    rest = (reports - sum(large)) // (campaigns - len(large))
    return large + [rest] * (campaigns - len(large))


def fill(database: Database, campaigns: int, reports: int, say: Callable[[str], None]) -> Filled:
    """Fill an empty database."""
    sizes = sizes_of(campaigns, reports)
    indexes = [one for one in deliveries.indexes if one.name]
    with database.engine.begin() as connection:
        for index in indexes:
            index.drop(connection)
    now, first = datetime.now(UTC).replace(second=0, microsecond=0), 0
    for start in range(0, len(sizes), 200):
        with database.engine.begin() as connection:
            for place in range(start, min(start + 200, len(sizes))):
                at = now - timedelta(days=DAYS) * place / len(sizes)
                _campaign(connection, place, sizes[place], first, at)
                first += sizes[place]
        if start % 2000 == 0:
            say(f"{first:,} deliveries of {reports:,}")
    say("indexes")
    with database.engine.begin() as connection:
        for index in indexes:
            index.create(connection)
        _others(connection, now)
    with database.engine.connect().execution_options(isolation_level="AUTOCOMMIT") as connection:
        connection.execute(text("ANALYZE"))
    return Filled("c000000", f"c{campaigns // 2:06}", f"23480{10000000 + reports // 2}", f"c{campaigns // 2:06}-0")


def _campaign(connection: Connection, place: int, size: int, first: int, at: datetime) -> None:
    name, conn_id, dag_id = f"c{place:06}", f"conn_{place % CONNECTIONS}", f"dag_{place % DAGS:03}"
    whole = {"campaign": name, "conn_id": conn_id, "first": first, "at": at.replace(tzinfo=None)}
    numbers = _NUMBERS[connection.dialect.name]
    select = _DELIVERIES.partition("\nSELECT")
    connection.execute(text(_with(numbers, connection, *select)), {**whole, "size": size})
    requests = _REQUESTS.partition("\nSELECT")
    del whole["first"]
    connection.execute(text(_with(numbers, connection, *requests)), {**whole, "size": size // PER_REQUEST + 1})
    task = {"operation": "send_sms", "conn_id": conn_id, "dag_id": dag_id, "run_id": f"run {place}", "task_id": "send"}
    common = {**task, "map_index": -1, "started_at": at}
    ended = {"ended_at": at + timedelta(minutes=5)}
    connection.execute(
        insert(sends), [{**common, **ended, "campaign": name, "expected": size, "unknown": 0, "finished_at": at}]
    )
    row = {
        **common,
        **ended,
        "reference": name,
        "kind": "campaign",
        "try_number": 1,
        "state": "finished",
        "updated_at": at,
        "figures": json.dumps({**_FIGURES, "recipients": size + 3, "sent": size}),
        "settings": json.dumps(_SETTINGS),
    }
    sync = {**row, "reference": f"sync-{name}", "kind": "contact_sync", "operation": "sync_contacts"}
    connection.execute(insert(task_progress), [row, sync] if place % 5 == 0 else [row])
    minutes = [
        {
            "campaign": name,
            "minute": at + timedelta(minutes=minute),
            "conn_id": conn_id,
            "delivery_status": status,
            "shard": 0,
            "reports": max(1, size * share // 200),
        }
        for minute in range(20)
        for status, share in ((0, 1), (10, 2), (20, 7))
    ]
    connection.execute(insert(report_counts), minutes)


def _with(numbers: str, connection: Connection, head: str, select: str, tail: str) -> str:
    """Return the statement with the numbers where the dialect wants them."""
    return f"{head} {numbers}{select}{tail}"


def _others(connection: Connection, now: datetime) -> None:
    outcomes = ("verified", "verified", "expired", "pending")
    for start in range(0, 100_000, 5_000):
        rows = [
            {
                "conn_id": f"conn_{number % CONNECTIONS}",
                "otp_id": str(number),
                "dag_id": f"dag_{number % DAGS:03}",
                "outcome": outcomes[number % 4],
                "requested_at": now - timedelta(days=DAYS) * number / 100_000,
                "expires_at": now,
            }
            for number in range(start, start + 5_000)
        ]
        connection.execute(insert(passcodes), rows)
    bought = [
        {
            "conn_id": f"conn_{number % CONNECTIONS}",
            "reference": f"a{number:06}",
            "dag_id": f"dag_{number % DAGS:03}",
            "run_id": "run",
            "task_id": "buy",
            "map_index": -1,
            "network": ("MTN", "Airtel", "Glo")[number % 3],
            "amount": 100.0,
            "charge": 97.5,
            "status": "pending",
            "bought_at": now - timedelta(days=DAYS) * number / 10_000,
        }
        for number in range(10_000)
    ]
    connection.execute(insert(airtime_purchases), bought)
