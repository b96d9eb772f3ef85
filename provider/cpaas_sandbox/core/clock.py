"""The sandbox's clock: real time by default, and adjustable, so that no test waits for an expiry."""

from __future__ import annotations

import datetime as dt
import time

from cpaas_sandbox.core.database import Database

# Inside datetime's range by a margin, so that adding an expiry never overflows.
EARLIEST = dt.datetime(1980, 1, 1, tzinfo=dt.UTC).timestamp()
LATEST = dt.datetime(9000, 1, 1, tzinfo=dt.UTC).timestamp()


def timestamp(moment: float) -> str:
    """Return a moment in the form of contract.md 2: ISO 8601, UTC offset, fractional seconds."""
    return dt.datetime.fromtimestamp(moment, dt.UTC).isoformat(timespec="microseconds")


def datetimes(created: float, updated: float | None) -> dict[str, str]:
    """Return the two datetime fields of a record; without an update there is only the first."""
    fields = {"created_datetime": timestamp(created)}
    return fields if updated is None else fields | {"updated_datetime": timestamp(updated)}


class Clock:
    """Real time plus an offset, or a frozen moment; stored in the database."""

    def __init__(self, database: Database) -> None:
        self._database = database
        self.offset: float
        self.frozen_at: float | None
        self.offset, self.frozen_at = database.load("clock") or (0.0, None)

    def now(self) -> float:
        """Return the current moment in seconds since 1970."""
        return time.time() + self.offset if self.frozen_at is None else self.frozen_at

    def set(self, moment: float | None = None, frozen: bool | None = None) -> None:
        """Set the moment, freeze or unfreeze; raise ValueError for a moment outside the clock's range."""
        moment = self.now() if moment is None else moment
        if not EARLIEST <= moment <= LATEST:
            raise ValueError(f"the clock runs from {timestamp(EARLIEST)} to {timestamp(LATEST)}")
        if frozen is None:
            frozen = self.frozen_at is not None
        self.frozen_at = moment if frozen else None
        self.offset = moment - time.time()
        self._save()

    def reset(self) -> None:
        """Return to real time."""
        self.offset, self.frozen_at = 0.0, None
        self._save()

    def as_json(self) -> dict[str, object]:
        """Describe the clock for the control API."""
        return {"now": timestamp(self.now()), "frozen": self.frozen_at is not None, "offset_seconds": self.offset}

    def _save(self) -> None:
        self._database.save("clock", [self.offset, self.frozen_at])
