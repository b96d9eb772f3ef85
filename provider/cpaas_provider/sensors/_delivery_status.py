"""Reads of the database for a sensor that waits for deliveries on a worker, and its results file."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import TYPE_CHECKING, Any

from msgspec import Struct
from msgspec.structs import replace

from cpaas_provider.database.errors import DatabaseError
from cpaas_provider.delivery.tracking import counts
from cpaas_provider.delivery.tracking.counts import (
    DeliveryCounts,
    expected_recipients,
    known_campaigns,
    open_report_database,
    read_counts,
    read_recipients,
    read_sends,
)
from cpaas_provider.delivery.tracking.retention import lost_first_reports, pruned_before
from cpaas_provider.sources.results_file import Columns, write_outcomes

if TYPE_CHECKING:
    from datetime import datetime

    from cpaas_provider.sensors._send_result import AwaitedSends

COLUMNS: Columns = {
    "campaign": "text",
    "recipient": "recipient",
    "outcome": "text",
    "status": "text",
    "reason": "text",
    "conflict": "flag",
    "reported": "text",
    "reference": "text",
    "message_id": "text",
}
"""The columns of the results file. It has one line for each recipient that the database has a record of."""


class DeliverySnapshot(Struct, frozen=True):
    """What one read of the database shows.

    :param sent: the awaited sends, with the number of recipients of all of them
    :param is_unknown: the database has no record of any of them
    :param is_pruned: retention deleted the record of some of them, so that delivered recipients may look unreported
    """

    sent: AwaitedSends
    counts: DeliveryCounts
    is_unknown: bool
    is_pruned: bool


def read_status(sent: AwaitedSends, due: datetime | None) -> DeliverySnapshot:
    """Read the database once.

    :param due: when the DAG run was due; ``None`` if that is not known
    :raises ValueError: when the number of recipients is unknown, with a message for a DAG author
    :raises ReportsNotSupportedError: when no reports are stored there
    :raises DatabaseError: when it cannot be read this time
    """
    with open_report_database() as database, database.connect(one_moment=True) as connection:
        criteria = sent.criteria.with_references(expected_recipients(connection, sent.criteria.without_count))
        found = {
            campaign: criteria.counted(campaign, counts)
            for campaign, counts in read_counts(connection, sent.campaigns).items()
        }
        sends = read_sends(connection, (send.campaign for send in criteria.to_resolve))
        sent = replace(sent, criteria=criteria.with_resolutions(sends, found))
        is_unknown = not found and not known_campaigns(connection, sent.campaigns)
        pruned = None if due is None else pruned_before(connection)
        is_pruned = (
            pruned is not None
            and due is not None
            and due < pruned
            and len(known_campaigns(connection, sent.campaigns)) < len(set(sent.campaigns))
        ) or lost_first_reports(connection, sent.first_days)
    return DeliverySnapshot(sent, sum(found.values(), DeliveryCounts()), is_unknown, is_pruned)


def write_results(campaigns: Iterable[str], path: Any) -> int:
    """Write the results file, completely or not at all. Return the number of recipients with conflicting reports.

    :param path: as ``as_results_path`` returns it
    :raises ResultsFileError: when it could not be written
    :raises DatabaseError: when the database could not be read
    """
    conflicts = 0
    with open_report_database() as database, database.connect() as connection:

        def lines() -> Iterator[Mapping[str, Any]]:
            nonlocal conflicts
            for line in read_recipients(connection, campaigns):
                conflicts += bool(line["conflict"])
                yield line

        write_outcomes(path, lines(), COLUMNS, unread=DatabaseError)
    return conflicts


def count_conflicts(campaigns: Iterable[str]) -> int | None:
    """Return the same number without a file, ``None`` if the database cannot be read: that is no reason to fail."""
    try:
        with open_report_database() as database, database.connect() as connection:
            return counts.count_conflicts(connection, campaigns)
    except DatabaseError:
        return None
