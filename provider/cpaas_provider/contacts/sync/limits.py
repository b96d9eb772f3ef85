"""The limits of a sync: the changes that an author allows, and the failures after which it ends.

It tells "all rows are rejected" from "these rows are rejected", and an outage from rows that always fail.
"""

from __future__ import annotations

import logging
import math
from collections.abc import Mapping
from dataclasses import dataclass
from enum import Enum

from msgspec import Struct

from cpaas_provider.api.amounts import counted, share_of
from cpaas_provider.contacts.errors import (
    NotSyncedError,
    TooManyChangesError,
    TooManyFailuresError,
    UnknownCreationsError,
)
from cpaas_provider.contacts.sync.decisions import Plan
from cpaas_provider.contacts.sync.results import Counts
from cpaas_provider.contacts.sync.rows.requests import Response, Result

log = logging.getLogger(__name__)

Limit = int | float | None
"""A number of rows, or a share of the rows in the map; ``None`` for no limit."""

REJECTIONS_IN_A_ROW = 20
FAILURES_IN_A_ROW = 5
_REJECTED_PROBES = 10
"""The fewest rejected rows from elsewhere that end a sync."""
_FAILED_PROBES = 3
"""The failed rows from elsewhere that end a sync. Few, because a failed creation has an unknown outcome."""
_CHANCE = 0.001
"""How likely the probes may all be rejected although no more rows are bad than the author tolerates."""


class Cause(Enum):
    """Why rows are taken from elsewhere in the work."""

    REJECTIONS = "rejections"
    FAILURES = "failures"


@dataclass
class Probing:
    """Rows from elsewhere in the work, which show whether the service handles any row.

    :param needed: the number of them that have to fail before the sync ends
    :param table_read: whether the contact table could be read. After failures it is read before a row is risked
    """

    cause: Cause
    needed: int
    failed: int = 0
    table_read: bool = False


class FailureLimits:
    """Decides when the results of a sync are bad enough to end it.

    After 20 rejections or 5 failures in a row, the dispatcher takes rows from elsewhere in the work. One that is
    accepted shows that the cause lies in the rows, and the sync goes on. If they fail as well, the sync ends. Then no
    row counts as rejected, and the next run starts elsewhere.

    ``max_failure_ratio`` is the author's only limit on rejections. If even the rejection of all rows of the work would
    be within it, the sync does not end early. Otherwise so many rows from elsewhere are tried that a tolerable share
    of bad rows would hardly reject them all.

    The work may hold no other rows than rejected ones. Then the sync goes on to its end, and ``max_failure_ratio``
    decides whether the task fails. Nothing was accepted after these rows, so it is not proved that they are at fault:
    a service that rejects everything looks the same. They are reported, but stored as rejected only if the run before
    had ended in the same way. Until then the next run sends them again, which costs one request a row.

    :param requests: the number of requests that the plan needs
    :param tolerated: the number of rejections that the author tolerates
    :param ended_before: the cause for which the run before had ended early or without proof, if it had
    """

    def __init__(self, requests: int, tolerated: int, ended_before: str | None = None) -> None:
        self._tolerates_all = tolerated >= requests
        self._probes_needed = _probes_needed(tolerated / requests if requests else 1.0)
        self._rejected_before = ended_before == Cause.REJECTIONS.value
        self._rejections = 0
        self._failures = 0
        self.probing: Probing | None = None
        self.stopped: Cause | None = None

    @property
    def is_holding(self) -> bool:
        """Whether no row may be sent: after failures, until the contact table was read."""
        probing = self.probing
        return probing is not None and probing.cause is Cause.FAILURES and not probing.table_read

    @property
    def unproved(self) -> Cause | None:
        """The cause for which the run ended early, or with rejections that may be those of every row."""
        if self.stopped is not None:
            return self.stopped
        return Cause.REJECTIONS if self._rejections >= REJECTIONS_IN_A_ROW else None

    def proves_rejections(self, *, all_sent: bool) -> bool:
        """Tell whether the last rejections in a row may be stored, so that later runs do not send these rows again.

        :param all_sent: whether the run sent all rows of its work
        """
        return self.unproved is None or (self.stopped is None and all_sent and self._rejected_before)

    def check(self, result: Result, *, is_probe: bool) -> Exception | None:
        """Count a result, and return the error that ends the sync if there is reason to.

        :param is_probe: whether the row was taken from elsewhere in the work
        """
        if result.response in (Response.ACCEPTED, Response.NOT_FOUND, Response.NOT_STORED):
            self._failures = 0
            self._end_probing(Cause.FAILURES)
            if result.response is Response.ACCEPTED:
                self._rejections = 0
                self._end_probing(Cause.REJECTIONS)
        elif result.response is Response.REJECTED:
            self._failures = 0
            self._end_probing(Cause.FAILURES)
            self._rejections += 1
            if self._rejections >= REJECTIONS_IN_A_ROW and not self._tolerates_all:
                return self._probe(Cause.REJECTIONS, self._probes_needed, result, is_probe=is_probe)
        elif result.response in (Response.NOT_SENT, Response.UNKNOWN):
            self._failures += 1
            if self._failures >= FAILURES_IN_A_ROW:
                return self._probe(Cause.FAILURES, _FAILED_PROBES, result, is_probe=is_probe)
        return None

    def end_probing(self) -> None:
        """Go on, because no row from elsewhere remains."""
        self.probing = None
        self._failures = 0

    def end_holding(self) -> None:
        """Let rows from elsewhere be sent, because the contact table could be read."""
        if self.probing is not None:
            self.probing.table_read = True

    def outage(self, reason: str) -> Exception:
        """Return the error that ends the sync because the contact table cannot be read after failures."""
        self.stopped = Cause.FAILURES
        return NotSyncedError(
            f"{self._failures} requests in a row failed, and the contact table cannot be read: {reason} Rows that were "
            "sent before are recorded. A retry of the task sends the rest."
        )

    def _end_probing(self, cause: Cause) -> None:
        if self.probing is not None and self.probing.cause is cause:
            self.probing = None

    def _probe(self, cause: Cause, needed: int, result: Result, *, is_probe: bool) -> Exception | None:
        """Begin to take rows from elsewhere, or count one of these that failed."""
        if self.probing is None or (self.probing.cause is not cause and cause is Cause.FAILURES):
            self.probing = Probing(cause, needed)
        elif self.probing.cause is cause and is_probe:
            self.probing.failed += 1
            if self.probing.failed >= needed:
                self.stopped = cause
                return self._error(cause, self.probing.failed, result)
        return None

    def _error(self, cause: Cause, probes: int, result: Result) -> Exception:
        probed = f"{counted(probes, 'row')} from elsewhere in the source"
        if cause is Cause.REJECTIONS:
            return TooManyFailuresError(
                f"The service rejected {self._rejections} rows in a row, the last {probed}, so the cause is likely the "
                f"same for all: {result.reason} Rows that were sent before are recorded; the rest was not sent. "
                "Correct the mapping or the list's columns, then clear the task. It starts at other rows."
            )
        return NotSyncedError(
            f"{self._failures} requests in a row failed, the last for {probed}: {result.reason} Rows that were sent "
            "before are recorded. A retry of the task starts at other rows, and sends the rest."
        )


def tolerated_rejections(plan: Plan, max_failure_ratio: float) -> int:
    """Return the number of rejections with which a sync would still succeed."""
    return share_of(max_failure_ratio, max(1, plan.here)) - plan.invalid_rows - plan.rejected_before


def _probes_needed(tolerated: float) -> int:
    """Return how many rows from elsewhere have to be rejected.

    :param tolerated: the share of the work that may be rejected
    """
    if not 0 < tolerated < 1:
        return _REJECTED_PROBES
    return max(_REJECTED_PROBES, math.ceil(math.log(_CHANCE) / math.log(tolerated)))


class ConfirmedChanges(Struct, frozen=True):
    """The changes that a user confirmed after a limit had stopped the sync.

    :param limits: the rows that were confirmed, by the name of the limit
    :param done: what the run had changed by then, by the names of ``DONE``
    """

    limits: Mapping[str, int]
    done: Mapping[str, int]

    def remaining(self, done: Mapping[str, int]) -> dict[str, int]:
        """Return the confirmed rows that are not changed yet.

        :param done: what the run has changed now
        """
        created, updated, deleted, unchanged = (max(0, done[name] - self.done.get(name, 0)) for name in DONE)
        changed = {
            "max_new": created,
            # Rows that were cleared are missing still, and need no request.
            "max_deletes": deleted + unchanged,
            "max_changes": created + updated + deleted,
        }
        return {name: max(0, limit - changed[name]) for name, limit in self.limits.items()}


DONE = ("created", "updated", "deleted", "missing_unchanged")
"""What tells how much of a confirmed plan is done."""


def check_changes(
    plan: Plan,
    *,
    max_changes: Limit,
    max_deletes: Limit,
    max_new: Limit = None,
    confirmed: Mapping[str, int] | None = None,
) -> None:
    """Check that a sync changes no more rows than the author allows.

    :param max_changes: a number of rows, or a share of the rows in the map, 0 to 1. A share does not limit the first
        sync, whose map is empty
    :param max_deletes: the same limit for rows that are missing from the source and would be deleted or cleared
    :param max_new: the same limit for rows that would be created although the map has rows. A share does not limit a
        sync whose source has at least half of the rows in the map
    :param confirmed: the rows that a user confirmed, by the names of limits, in place of these limits
    :raises TooManyChangesError: when the plan exceeds a limit
    """
    if plan.missing_changes and not plan.rows:
        raise TooManyChangesError(
            f"The source has no rows, and this sync would delete or clear {counted(plan.missing_changes, 'row')}. "
            "Nothing was sent. See that the source is complete. To empty the list on purpose, delete its rows at the "
            "service first. Then remove the map with airflow cpaas contacts forget-map. With rows in the list, a sync "
            "after that creates each of them a second time."
        )
    confirmed = confirmed or {}
    counts = _counts(plan)
    limits = {"max_new": max_new, "max_deletes": max_deletes, "max_changes": max_changes}
    log.info("%s", _describe(plan, limits, confirmed))
    exceeded = {
        name: count
        for name, count in counts.items()
        if (count > confirmed[name] if name in confirmed else _exceeds(name, count, limits[name], plan))
    }
    if not exceeded:
        return
    name, count = next(iter(exceeded.items()))
    does = {"max_new": "create", "max_deletes": "delete or clear"}.get(name, "change")
    would = f"This sync would {does} {counted(count, 'row')}"
    if name in confirmed:
        raise TooManyChangesError(
            f"{would}, and {confirmed[name]:,} of those that were confirmed are left. Nothing was sent in this try. "
            "Clear the task to be asked again.",
            exceeded,
        )
    allowed = _allowed(limits[name] or 0, plan)
    if name == "max_new":
        raise TooManyChangesError(
            f"{would}, and max_new allows {allowed}. The map has {counted(plan.mapped, 'row')}, and the source has "
            f"{plan.known:,} of these. Nothing was sent. If the source writes keys in another form now, such as 1.0 "
            "for 1, correct it. If it has other contacts, set map_name to another map, and new_map=True. If the rows "
            "are new, start a run with max_new='unlimited', or set on_limit='ask' and confirm it.",
            exceeded,
        )
    raise TooManyChangesError(
        f"{would}, and {name} allows {allowed}. Nothing was sent. See that the source is complete. To let it happen, "
        f"start a run with a higher {name}, or set on_limit='ask' and confirm it.",
        exceeded,
    )


def _counts(plan: Plan) -> dict[str, int]:
    """Return the rows that each limit counts, by its name."""
    return {"max_new": plan.creates, "max_deletes": plan.missing_changes, "max_changes": plan.requests}


def _describe(plan: Plan, limits: Mapping[str, Limit], confirmed: Mapping[str, int]) -> str:
    """Return the planned changes, and what each limit means for them."""
    counts = _counts(plan)
    words = []
    for name in ("max_deletes", "max_changes", "max_new"):
        limit = limits[name]
        if name in confirmed:
            meaning = f"{confirmed[name]:,} (confirmed)"
        elif limit is None:
            meaning = "unlimited"
        elif isinstance(limit, float):
            meaning = f"{limit} ({limit * 100:g} %: {_most(limit, plan):,} of {counted(plan.mapped, 'row')})"
        else:
            meaning = f"{limit:,}"
        words.append(f"{name} {meaning}")
    return (
        f"Planned: {counted(plan.creates, 'row')} to create, {counts['max_deletes']:,} to delete, clear or set, "
        f"{counted(plan.requests, 'request')}. Limits: {', '.join(words)}."
    )


def _exceeds(name: str, count: int, limit: Limit, plan: Plan) -> bool:
    """Return whether a plan has more rows than one of the author's limits allows."""
    if limit is None or (isinstance(limit, float) and not plan.mapped):
        return False
    if name == "max_new":
        # With other keys than those of the map, each contact would be created again.
        grows = isinstance(limit, float) and 2 * plan.known >= plan.mapped
        # A list that grows, or an earlier first sync that did not end.
        if not plan.mapped or grows:
            return False
    return count > _most(limit, plan)


def _most(limit: float, plan: Plan) -> int:
    return share_of(limit, plan.mapped) if isinstance(limit, float) else int(limit)


def _allowed(limit: float, plan: Plan) -> str:
    share = f" ({limit * 100:g}% of {plan.mapped:,})" if isinstance(limit, float) else ""
    return f"{_most(limit, plan):,}{share}"


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
    partial = plan.partial_rows - counts.rejected_partial
    failed = counts.rejected + plan.rejected_before + plan.invalid_rows + partial
    if failed and failed > share_of(max_failure_ratio, max(1, plan.here)):
        raise TooManyFailuresError(
            f"{counted(failed, 'row')} of {plan.here:,} failed ({counts.rejected:,} rejected now, "
            f"{plan.rejected_before:,} rejected by an earlier run, {plan.invalid_rows:,} invalid, "
            f"{partial:,} with invalid cells), more than "
            f"max_failure_ratio allows. Everything else was done ({changes}). The results file has the "
            "reason of each. Correct these rows in the source."
        )
