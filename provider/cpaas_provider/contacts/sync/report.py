"""The report of a sync: its plan, an estimate, a masked preview, and the error if a result exceeds the limits."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from cpaas_provider.api.amounts import counted
from cpaas_provider.contacts.errors import NotSyncedError, TooManyFailuresError, UnknownCreationsError
from cpaas_provider.contacts.sync.planning import Plan
from cpaas_provider.contacts.sync.progress import span
from cpaas_provider.contacts.sync.results import Counts
from cpaas_provider.contacts.sync.spool import Spool

_MASK = "•••"


def preview(spool: Spool, count: int, names: Mapping[str, str]) -> list[dict[str, Any]]:
    """Return the first rows that differ, their cells masked.

    :param names: names of the list's columns, by id
    :return: for each row ``row`` (``None`` if it is missing from the source), ``action`` and ``cells``
    """
    return [
        {
            "row": item.number,
            "action": item.action,
            "cells": {names.get(column, column): masked(cell) for column, cell in item.cells.items()},
        }
        for item in spool.work((-1, 0), count)
    ]


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
        f"to update, {plan.deletes:,} to delete, {plan.unchanged + plan.records:,} unchanged, {plan.invalid_rows:,} "
        f"invalid, {plan.rejected_before:,} rejected before, {plan.unknown:,} unknown, {plan.missing:,} gone from the "
        "source."
    )


def estimate_line(requests: int, per_second: float) -> str:
    """Return the log line of a dry run: the number of requests, and how long they would take."""
    return (
        f"A dry run: nothing was sent. The sync would make {counted(requests, 'request')}, which takes at least "
        f"{span(requests / per_second)} at {per_second:g} requests a second."
    )


def figures(plan: Plan, counts: Counts) -> dict[str, Any]:
    """Return the counts of a sync, as small JSON."""
    return {
        "rows": plan.rows,
        "created": counts.created,
        "updated": counts.updated,
        "deleted": counts.deleted,
        "unchanged": plan.unchanged + plan.records,
        "rejected": counts.rejected,
        "rejected_before": plan.rejected_before,
        "invalid_rows": plan.invalid_rows,
        "duplicates": plan.duplicates,
        "unknown": plan.unknown + counts.unknown,
        "unknown_rows": plan.unknown_rows,
        "not_sent": counts.not_sent,
        "not_in_mode": plan.not_in_mode,
        "missing": plan.missing,
        "in_other_partitions": plan.other_partitions,
        "planned_requests": plan.requests,
        "requests": counts.requests,
    }


def check_result(plan: Plan, counts: Counts, on_unknown: str, max_failure_ratio: float, key_map: str) -> None:
    """Check that the result of a sync is within the author's limits.

    :param key_map: the connection's id and the map as arguments of the command line
    :raises NotSyncedError: when rows were not sent
    :raises UnknownCreationsError: when the outcome of creations is unknown, unless ``on_unknown`` allows for it
    :raises TooManyFailuresError: when more rows failed than ``max_failure_ratio`` allows
    """
    unknown = plan.unknown + counts.unknown
    changes = f"{counts.created:,} created, {counts.updated:,} updated, {counts.deleted:,} deleted"
    if counts.not_sent:
        raise NotSyncedError(
            f"{counted(counts.not_sent, 'row')} could not be sent; {changes}. A retry of the task sends "
            "them. The results file has the reason of each."
        )
    if unknown and on_unknown == "fail":
        raise UnknownCreationsError(
            f"The outcome of {counted(unknown, 'creation')} is unknown: the service may or may not have the "
            f"rows. Everything else was done ({changes}). The results file names their rows of the "
            "source. Look for them in the list, then resolve them with: airflow cpaas contacts resolve --conn-id "
            f"{key_map}. on_unknown='create' creates them again, perhaps twice."
        )
    failed = counts.rejected + plan.rejected_before + plan.invalid_rows
    if failed and failed > max_failure_ratio * max(1, plan.here):
        raise TooManyFailuresError(
            f"{counted(failed, 'row')} of {plan.here:,} failed ({counts.rejected:,} rejected now, "
            f"{plan.rejected_before:,} rejected by an earlier run, {plan.invalid_rows:,} invalid), more than "
            f"max_failure_ratio allows. Everything else was done ({changes}). The results file has the "
            "reason of each. Correct these rows in the source."
        )
