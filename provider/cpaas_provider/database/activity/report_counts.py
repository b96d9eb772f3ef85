"""How many reports arrived in each minute: one statement a transaction of the receiver."""

from __future__ import annotations

import functools
import os
from collections.abc import Mapping
from datetime import datetime
from typing import Any, NamedTuple

from sqlalchemy import Connection

from cpaas_provider.database.activity.upsert import insert_into
from cpaas_provider.database.bulk import insert_many
from cpaas_provider.database.schema import report_counts

NO_CAMPAIGN = ""
"""In the place of the campaign for messages that are in none, of which there may be millions."""

_SHARDS = 16


class Counted(NamedTuple):
    """What reports have in common that are counted together."""

    campaign: str
    minute: datetime
    conn_id: str
    delivery_status: int


_COLUMNS = (*Counted._fields, "shard", "reports")


def add_report_counts(connection: Connection, numbers: Mapping[Counted, int]) -> None:
    """Add to the numbers of reports. The last statement of a transaction, as others may wait for its rows."""
    shard = os.getpid() % _SHARDS
    # In one order, or two processes could wait for each other.
    rows = [dict(zip(_COLUMNS, (*key, shard, numbers[key]), strict=True)) for key in sorted(numbers)]
    insert_many(connection, _adding(connection.dialect.name), rows)


@functools.cache
def _adding(dialect: str) -> Any:
    insert = insert_into(dialect, report_counts)
    return insert.on_conflict_do_update(
        index_elements=list(report_counts.primary_key.columns),
        set_={"reports": report_counts.c.reports + insert.excluded.reports},
    )
