"""Limits that stop a sync: too many changes for the author's limits, or too many failed requests in a row."""

from __future__ import annotations

from cpaas_provider.api.amounts import counted
from cpaas_provider.contacts.errors import NotSyncedError, TooManyChangesError, TooManyFailuresError
from cpaas_provider.contacts.sync.planning import Plan
from cpaas_provider.contacts.sync.requests import Response, Result

Limit = int | float | None

_FAILURES_IN_A_ROW = 5
_REJECTIONS_IN_A_ROW = 20


def check_changes(plan: Plan, *, max_changes: Limit, max_deletes: Limit) -> None:
    """Check that a sync changes no more rows than the author allows.

    :param max_changes: a number of rows, or a share of the rows in the map, 0 to 1. A share does not limit the first
        sync, whose map is empty
    :param max_deletes: the same limit for rows that are missing from the source and would be deleted or cleared
    :raises TooManyChangesError: when the plan exceeds a limit
    """
    if plan.missing_changes and not plan.rows:
        raise TooManyChangesError(
            f"The source has no rows, and this sync would delete or clear {counted(plan.missing_changes, 'row')}. "
            "Nothing was sent. See that the source is complete. To empty the list, delete its rows at the service, "
            "and remove the map with: airflow cpaas contacts forget-map"
        )
    for name, limit, count, what in (
        ("max_deletes", max_deletes, plan.missing_changes, "delete or clear"),
        ("max_changes", max_changes, plan.requests, "change"),
    ):
        if limit is None or (isinstance(limit, float) and not plan.mapped):
            continue
        # As floats, 0.29 * 100 is 28.999999999999996.
        most = int(limit * plan.mapped + 1e-9) if isinstance(limit, float) else limit
        if count > most:
            share = f" ({limit:.0%} of {plan.mapped:,})" if isinstance(limit, float) else ""
            raise TooManyChangesError(
                f"This sync would {what} {counted(count, 'row')}, and {name} allows {most:,}{share}. Nothing was sent. "
                f"See that the source is complete. To let it happen, raise {name} for one run."
            )


class FailureLimits:
    """Ends a sync after too many failures or rejections in a row."""

    def __init__(self) -> None:
        self._failures = 0
        self._rejections = 0

    @property
    def all_rejected(self) -> bool:
        """Whether the service rejected so many rows in a row that it probably rejects all rows."""
        return self._rejections >= _REJECTIONS_IN_A_ROW

    def check(self, result: Result) -> Exception | None:
        """Count a result, and return the error that ends the sync if there are too many failures."""
        if result.response is Response.ACCEPTED:
            self._failures = 0
            if not self.all_rejected:
                self._rejections = 0
        elif result.response is Response.REJECTED:
            self._failures = 0
            self._rejections += 1
            if self.all_rejected:
                return TooManyFailuresError(
                    f"The service rejected {_REJECTIONS_IN_A_ROW} rows in a row, so the cause is likely the same for "
                    f"all: {result.reason} Rows that were sent before are recorded; the rest was not sent. Correct the "
                    "mapping or the list's columns, then clear the task."
                )
        elif result.response in (Response.NOT_SENT, Response.UNKNOWN):
            self._failures += 1
            if self._failures >= _FAILURES_IN_A_ROW:
                return NotSyncedError(
                    f"{self._failures} requests in a row failed: {result.reason} Rows that were sent before are "
                    "recorded. A retry of the task sends the rest."
                )
        return None
