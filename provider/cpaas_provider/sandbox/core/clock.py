"""The sandbox's own time: real by default, and adjustable, so that no test waits for an expiry."""

from __future__ import annotations

import datetime as dt
import time

from cpaas_provider.sandbox.core.database import Database

# Far enough for any test, near enough that adding an expiry never leaves the calendar.
EARLIEST = dt.datetime(1980, 1, 1, tzinfo=dt.UTC).timestamp()
LATEST = dt.datetime(9000, 1, 1, tzinfo=dt.UTC).timestamp()


def timestamp(moment: float) -> str:
    """Write a moment as INTERFACE.md section 2 shows it: ISO 8601, UTC offset, fractional seconds."""
    return dt.datetime.fromtimestamp(moment, dt.UTC).isoformat(timespec="microseconds")


class Clock:
    """Real time plus an offset, or a moment that stands still; kept in the database."""

    def __init__(self, database: Database) -> None:
        self._database = database
        self.offset: float
        self.frozen_at: float | None
        self.offset, self.frozen_at = database.load("clock") or (0.0, None)

    def now(self) -> float:
        """Return the present moment in seconds since 1970."""
        return time.time() + self.offset if self.frozen_at is None else self.frozen_at

    def set(self, moment: float | None = None, frozen: bool | None = None) -> None:
        """Move to a moment, stop or go on; raise ValueError outside the calendar we keep."""
        moment = self.now() if moment is None else moment
        if not EARLIEST <= moment <= LATEST:
            raise ValueError(f"the clock runs from {timestamp(EARLIEST)} to {timestamp(LATEST)}")
        stands = self.frozen_at is not None if frozen is None else frozen
        self.frozen_at = moment if stands else None
        self.offset = moment - time.time()
        self._save()

    def advance(self, seconds: float) -> None:
        """Let time pass at once."""
        self.set(self.now() + seconds)

    def reset(self) -> None:
        """Return to real time."""
        self.offset, self.frozen_at = 0.0, None
        self._save()

    def as_json(self) -> dict[str, object]:
        """Describe the clock for the control API."""
        return {"now": timestamp(self.now()), "frozen": self.frozen_at is not None, "offset_seconds": self.offset}

    def _save(self) -> None:
        self._database.save("clock", [self.offset, self.frozen_at])
