"""Tells "all rows are rejected" from "these rows are rejected", and an outage from rows that always fail."""

from __future__ import annotations

import math
from dataclasses import dataclass
from enum import Enum

from cpaas_provider.api.amounts import counted
from cpaas_provider.contacts.errors import NotSyncedError, TooManyFailuresError
from cpaas_provider.contacts.sync.planning import Plan
from cpaas_provider.contacts.sync.rows.requests import Response, Result

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
        others = f"{counted(probes, 'row')} from elsewhere in the source"
        if cause is Cause.REJECTIONS:
            return TooManyFailuresError(
                f"The service rejected {self._rejections} rows in a row, the last {others}, so the cause is likely the "
                f"same for all: {result.reason} Rows that were sent before are recorded; the rest was not sent. "
                "Correct the mapping or the list's columns, then clear the task. It starts at other rows."
            )
        return NotSyncedError(
            f"{self._failures} requests in a row failed, the last for {others}: {result.reason} Rows that were sent "
            "before are recorded. A retry of the task starts at other rows, and sends the rest."
        )


def tolerated_rejections(plan: Plan, max_failure_ratio: float) -> int:
    """Return the number of rejections with which a sync would still succeed."""
    # As floats, 0.29 * 100 is 28.999999999999996.
    return int(max_failure_ratio * max(1, plan.here) + 1e-9) - plan.invalid_rows - plan.rejected_before


def _probes_needed(tolerated: float) -> int:
    """Return how many rows from elsewhere have to be rejected.

    :param tolerated: the share of the work that may be rejected
    """
    if not 0 < tolerated < 1:
        return _REJECTED_PROBES
    return max(_REJECTED_PROBES, math.ceil(math.log(_CHANCE) / math.log(tolerated)))
