"""What a sync reports: progress lines, its plan, a masked preview, and its counts."""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from itertools import islice
from typing import Any

from msgspec import Struct

from cpaas_provider.api.amounts import counted, span
from cpaas_provider.contacts.causes import cause_words
from cpaas_provider.contacts.key_map.key_map import Lease
from cpaas_provider.contacts.sync.decisions import Action, Decision, Plan, SyncRules, decide
from cpaas_provider.contacts.sync.results import Counts
from cpaas_provider.contacts.sync.spool import OutcomeLine, RowOutcome, Spool, WorkItem

log = logging.getLogger(__name__)

Publish = Callable[[Mapping[str, float]], None]

_MASK = "•••"
_PLANNED = {
    Action.CREATE: RowOutcome.TO_CREATE,
    Action.UPDATE: RowOutcome.TO_UPDATE,
    Action.DELETE: RowOutcome.TO_DELETE,
}
_PLANNED_AT_ONCE = 1_000
_PUBLISHED = ("done", "created", "updated", "deleted", "rejected", "unknown", "not_sent")


class SyncProgress:
    """Logs and publishes the figures of one sync.

    :param interval: seconds between progress log lines; 0 for no such lines
    :param publish: publishes the figures as metrics
    """

    def __init__(self, interval: float, publish: Publish = lambda figures: None) -> None:
        self._interval = interval
        self._publish = publish
        self._last = self._began = time.monotonic()
        self._unpublished = False

    def reading(self, plan: Plan) -> None:
        """Log the progress of reading the source, if the interval has passed."""
        now = time.monotonic()
        if not self._interval or now - self._last < self._interval:
            return
        self._last = now
        log.info(
            "Contact sync: %s of the source read in %s; %s so far.",
            counted(plan.rows, "row"),
            span(now - self._began),
            counted(plan.creates + plan.updates, "change"),
        )

    async def sending(self, counts: Counts, total: int) -> None:
        """Log the progress of the requests at each interval, until cancelled."""
        self._began = time.monotonic()
        while self._interval:
            await asyncio.sleep(self._interval)
            self.log(counts, total)

    def log(self, counts: Counts, total: int) -> None:
        """Log and publish the figures now. A failure to publish them is logged once."""
        seconds = max(time.monotonic() - self._began, 1e-6)
        rate = counts.done / seconds
        left = max(0, total - counts.done)
        log.info(
            "Contact sync: %d of %d rows done (%d %%): %d created, %d updated, %d deleted, %d rejected, %d unknown, "
            "%d not sent; %.1f rows a second, time left: %s.",
            counts.done,
            total,
            100 * counts.done // total if total else 100,
            counts.created,
            counts.updated,
            counts.deleted,
            counts.rejected,
            counts.unknown,
            counts.not_sent,
            rate,
            span(left / rate) if rate else "unknown",
        )
        figures = {name: getattr(counts, name) for name in _PUBLISHED}
        try:
            self._publish({**figures, "left": left, "rows_per_second": round(rate, 2)})
        except Exception as error:  # noqa: BLE001 - metrics must not end a sync
            if not self._unpublished:
                log.warning("Metrics could not be published (%s).", type(error).__name__)
            self._unpublished = True


class PlannedChange(Struct, frozen=True):
    """What a sync would do with one row.

    :param row_id: the id of the row in the list, ``None`` if there is none
    """

    item: WorkItem
    decision: Decision
    row_id: str | None


def planned_changes(spool: Spool, rules: SyncRules, lease: Lease) -> Iterator[PlannedChange]:
    """Yield the requests that a sync would make, in the order in which they would leave.

    :raises SpoolError: when the rows cannot be read from the worker's disk
    :raises DatabaseError: when the database cannot be read
    """
    key_map, position = lease.key_map, 0
    while items := spool.work(position, _PLANNED_AT_ONCE):
        position = items[-1].seq
        entries = key_map.entries(item.key_hash for item in items)
        for item in items:
            entry = entries.get(item.key_hash)
            decision = decide(item, entry, rules, lease)
            if decision.action in _PLANNED:
                yield PlannedChange(item, decision, None if entry is None else entry.row_id)


def preview(changes: Iterable[PlannedChange], count: int, names: Mapping[str, str]) -> list[dict[str, Any]]:
    """Return the first changes, with keys and cells masked.

    :param names: names of the list's columns, by id
    :return: for each row ``row`` and ``key`` (``None`` if it is missing from the source), ``key_hash``, ``row_id``,
        ``action`` and ``cells``: those that the request would set
    """
    return [
        {
            "row": change.item.number,
            "key": masked(change.item.name),
            "key_hash": change.item.key_hash.hex(),
            "row_id": change.row_id,
            "action": change.decision.action.value,
            "cells": {names.get(column, column): masked(cell) for column, cell in change.decision.cells.items()},
        }
        for change in islice(changes, count)
    ]


def planned_outcome(change: PlannedChange, names: Mapping[str, str]) -> OutcomeLine:
    """Return the line of the results file for a request that a dry run did not make.

    :param names: names of the list's columns, by id
    """
    item = change.item
    columns = ", ".join(names.get(column, column) for column in change.decision.cells) or None
    reason = f"gone from the source; key hash {item.key_hash.hex()}" if item.is_missing else None
    return OutcomeLine(item.number, item.name, _PLANNED[change.decision.action], change.row_id, columns, reason)


def masked(cell: Any) -> Any:
    """Return a cell masked: an empty cell as it is, a long text with its first character, anything else hidden."""
    if cell is None or cell == "":
        return cell
    if isinstance(cell, list):
        return [masked(option) for option in cell]
    return f"{cell[0]}{_MASK}" if isinstance(cell, str) and len(cell) > 3 else _MASK


def planned_line(plan: Plan, seconds: float) -> str:
    """Return the log line of a plan.

    :param seconds: how long reading the source took
    """
    return (
        f"Planned: {counted(plan.rows, 'row')} read in {span(seconds)}; {plan.creates:,} to create, {plan.updates:,} "
        f"to update, {plan.deletes:,} to delete, {plan.unchanged + plan.records:,} unchanged. {plan.invalid_rows:,} "
        f"invalid, {plan.partial_rows:,} with invalid cells, {plan.rejected_before:,} rejected before, "
        f"{plan.unknown:,} unknown, {plan.missing:,} gone from the source, "
        f"{plan.before_cursor:,} below the cursor."
    )


def estimate_line(requests: int, per_second: float) -> str:
    """Return the log line of a dry run: the number of requests, and how long they would take."""
    return (
        f"A dry run: nothing was sent. The sync would make {counted(requests, 'request')}, which takes at least "
        f"{span(requests / per_second)} at {counted(per_second, 'request')} a second."
    )


def figures(plan: Plan, counts: Counts, *, dry_run: bool) -> dict[str, Any]:
    """Return the counts of a sync, as small JSON.

    Each row of the source, and each one that is missing from it, has one outcome. So ``rows`` and ``missing`` together
    are the sum of ``SUMMANDS``, less ``unknown_missing``. In a dry run ``planned_requests`` is one of them.
    """
    # What a dry run would write into the map only, the list has already.
    records, missing_records = (plan.records, plan.missing_records) if dry_run else (0, 0)
    return {
        "rows": plan.rows,
        "created": counts.created,
        "updated": counts.updated,
        "deleted": counts.deleted,
        "unchanged": plan.unchanged + records + counts.unchanged,
        "before_cursor": plan.before_cursor,
        "future_cursor": plan.future_cursor,
        "rejected": counts.rejected,
        "rejected_before": plan.rejected_before + counts.rejected_before,
        "invalid_rows": plan.invalid_rows,
        "partial_rows": plan.partial_rows - counts.rejected_partial,
        "invalid_cells": dict(plan.invalid_cells.most_common()),
        "duplicates": plan.duplicates,
        "unknown": plan.unknown + counts.unknown,
        "unknown_missing": plan.unknown_missing,
        "unknown_rows": plan.unknown_rows,
        "not_sent": counts.not_sent,
        "remaining": plan.busy if dry_run else max(0, plan.work - counts.done),
        "not_in_mode": plan.not_in_mode + counts.not_in_mode,
        "missing": plan.missing,
        "missing_unchanged": plan.missing_unchanged + missing_records + counts.missing_unchanged,
        "missing_skipped": plan.missing_skipped,
        "in_other_partitions": plan.other_partitions,
        "creates": plan.creates,
        "updates": plan.updates,
        "deletes": plan.deletes,
        "planned_requests": plan.requests,
        "requests": counts.requests,
    }


SUMMANDS = (
    *("created", "updated", "deleted", "unchanged", "before_cursor", "rejected", "rejected_before", "invalid_rows"),
    *("unknown", "not_sent", "remaining", "not_in_mode", "missing_unchanged", "missing_skipped", "in_other_partitions"),
)
"""The figures of a report that each count rows of another outcome."""

_CAUSES = (
    *("remaining", "not_sent", "unknown", "rejected", "rejected_before", "invalid_rows", "partial_rows", "not_in_mode"),
    *("missing_skipped", "failed_before_cursor"),
)


def incomplete_because(report: Mapping[str, Any], *, ended: bool, dry_run: bool) -> dict[str, int]:
    """Return why the list may differ from the source: the number of rows by the name of their figure.

    :param report: the figures
    :param ended: whether the sync came to its end; if not, rows of the source may be unread, which is
        ``ended_early: 1``
    :param dry_run: whether the planned requests were not made
    """
    causes = {} if ended else {"ended_early": 1}
    if dry_run:
        causes["dry_run"] = report["planned_requests"]
    causes |= {name: report[name] for name in _CAUSES}
    return {name: count for name, count in causes.items() if count}


def in_words(causes: Mapping[str, int]) -> str:
    """Return causes of ``incomplete_because`` for a log line."""
    return ", ".join(cause_words(causes))
