"""The clock of the sandbox: what expires at the service expires when the test moves it."""

from __future__ import annotations

import datetime as dt
from typing import Any

from cpaas_sandbox.pytest_plugin._control import Control


class Clock:
    """The clock of the sandbox. Airflow, its tasks and the provider keep the real time."""

    def __init__(self, control: Control) -> None:
        self._control = control

    def now(self) -> dt.datetime:
        """Return the current moment of the sandbox, in UTC."""
        return self._read(self._control.call("GET", "clock"))

    def advance(self, **duration: float) -> dt.datetime:
        """Move the clock forward and return the new moment.

        :param duration: as for ``datetime.timedelta``: ``seconds=``, ``minutes=``, ``hours=``, ``days=``
        """
        seconds = dt.timedelta(**duration).total_seconds()
        return self._read(self._control.call("POST", "clock/advance", {"seconds": seconds}))

    def set(self, moment: dt.datetime) -> dt.datetime:
        """Set the clock and return the new moment.

        :param moment: with a time zone
        :raises SandboxError: when it has no time zone
        """
        return self._read(self._control.call("PUT", "clock", {"now": moment.isoformat()}))

    def freeze(self) -> dt.datetime:
        """Stop the clock and return its moment. ``advance`` and ``set`` still move it."""
        return self._read(self._control.call("PUT", "clock", {"frozen": True}))

    @staticmethod
    def _read(clock: dict[str, Any]) -> dt.datetime:
        return dt.datetime.fromisoformat(clock["now"])
