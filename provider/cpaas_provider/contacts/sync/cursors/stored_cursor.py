"""The cursor that a key map stores from run to run, and the invalid rows below it."""

from __future__ import annotations

import logging
from collections.abc import Mapping
from typing import Any

from cpaas_provider.api.amounts import counted
from cpaas_provider.contacts.key_map.key_map import Lease
from cpaas_provider.contacts.sync.cursors.cursor import Cursor, UnorderedTextError, cursor_from_json, cursor_to_json
from cpaas_provider.contacts.sync.planning import Plan

log = logging.getLogger(__name__)

CURSOR = "cursor"
"""The name of the value that a map stores beside its rows."""


class StoredCursor:
    """Loads and moves the cursor of one sync.

    :param column: the cursor column
    :param settings: a hash of the settings that the cursor depends on
    :param date_format: how text in the column is written, if a column rule says so
    """

    def __init__(self, lease: Lease, column: str, settings: str, date_format: str | None) -> None:
        self._lease = lease
        self._column = column
        self._settings = settings
        self._date_format = date_format
        self._invalid_rows = 0
        self.cursor = self._load()

    def failed_before(self, plan: Plan) -> int:
        """Return the number of rows below the cursor that an earlier run could not use, or the service rejected."""
        return self._invalid_rows + plan.rejected_before_cursor

    def _load(self) -> Cursor:
        """Return the cursor of the last run, or one that reads all rows."""
        stored = self._lease.key_map.value(CURSOR)
        if not isinstance(stored, dict) or stored.get("of") != self._settings:
            # It belongs to another column or mapping, so rows before it may differ from the list.
            return self._at(None)
        try:
            cursor = self._at(cursor_from_json(stored["value"]))
        except (ValueError, UnorderedTextError):
            return self._at(None)
        if cursor.is_future:
            log.warning("The stored cursor is in the future, so this run reads all rows.")
            return self._at(None)
        if cursor.stored is not None:
            self._invalid_rows = stored.get("invalid_rows", 0)
        return cursor

    def _at(self, stored: Any) -> Cursor:
        return Cursor(self._column, stored, self._date_format)

    def remove(self) -> None:
        """Remove the stored cursor, so that the next try reads all rows."""
        self._lease.write([], {CURSOR: None})

    def move(self, plan: Plan, report: Mapping[str, Any]) -> None:
        """Store the cursor, if every row up to it was sent, or has failed and is counted.

        A rejected or invalid row does not hold the cursor, or each run would read all rows after it. The number of
        such rows is stored with the cursor, so that later runs, which pass over them, are not reported as complete.

        :param report: the figures of the run
        """
        if plan.future_cursor:
            log.warning(
                "%s of the source have a future value in the cursor column %r. They were compared as all others. The "
                "cursor does not move beyond now, or later rows would be passed over. Correct these values.",
                counted(plan.future_cursor, "row"),
                self._column,
            )
        if plan.cursor is None or report["remaining"] or report["not_sent"]:
            return
        if report["unknown"]:
            log.warning(
                "The cursor stays where it was, so that rows whose creation is unknown are read again once they are "
                "resolved."
            )
            return
        stored = {
            "of": self._settings,
            "value": cursor_to_json(plan.cursor),
            "invalid_rows": self._invalid_rows + plan.invalid_before_cursor,
        }
        self._lease.write([], {CURSOR: stored})


def recount_invalid_rows(lease: Lease, plan: Plan) -> None:
    """Record how many rows a run without a cursor, which read all rows, could not use.

    A later run with the cursor may pass over them. Those above the cursor count, too, until the next such run.
    """
    stored = lease.key_map.value(CURSOR)
    count = plan.invalid_rows + plan.partial_rows
    if isinstance(stored, dict) and stored.get("invalid_rows", 0) != count:
        lease.write([], {CURSOR: {**stored, "invalid_rows": count}})
