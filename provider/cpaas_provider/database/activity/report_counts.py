"""The number of reports that arrived in each minute. The receiver adds to it once a transaction."""

from __future__ import annotations

import functools
import os
from collections.abc import Mapping
from datetime import datetime
from typing import Any, NamedTuple

from sqlalchemy import Connection

from cpaas_provider.database.activity.upsert import insert_into
from cpaas_provider.database.bulk import Statement, insertion_of
from cpaas_provider.database.schema.delivery import report_counts

NO_CAMPAIGN = ""
"""The campaign of all messages that belong to no campaign. There may be millions, so they are counted together."""

_SHARDS = 16


class Counted(NamedTuple):
    """What reports that are counted together have in common."""

    campaign: str
    minute: datetime
    conn_id: str
    delivery_status: int


def adding_report_counts(connection: Connection, numbers: Mapping[Counted, int]) -> Statement | None:
    """Return what adds to the numbers of reports; ``None`` if they are added already.

    Run it last in a transaction: it locks the rows, and other processes wait for them until the commit.
    """
    shard = os.getpid() % _SHARDS
    # Sorted, so that two processes cannot deadlock.
    rows = [{**key._asdict(), "shard": shard, "reports": numbers[key]} for key in sorted(numbers)]
    return insertion_of(connection, _increment(connection.dialect.name), rows)


@functools.cache
def _increment(dialect: str) -> Any:
    insert = insert_into(dialect, report_counts)
    return insert.on_conflict_do_update(
        index_elements=list(report_counts.primary_key.columns),
        set_={"reports": report_counts.c.reports + insert.excluded.reports},
    )
