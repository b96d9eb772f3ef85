"""The first line of a sensor's log: what it waits for, where, how often it reads, and for how long."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

from cpaas_provider.api.counting import counted


def start_line(sensor: Any, awaited: str, place: str, poke_interval: timedelta | float) -> str:
    """Return the line.

    :param awaited: what the sensor waits for, without private values
    :param place: what it reads
    :param poke_interval: between two reads
    """
    if sensor.deferrable:
        waits_on = "the triggerer"
    elif sensor.mode == "reschedule":
        waits_on = "a worker, which is free between two reads"
    else:
        waits_on = "a worker"
    return (
        f"{sensor.task_type} waits for {awaited}, on {waits_on}: {place} is read every {_seconds(poke_interval)}, for "
        f"at most {_seconds(sensor.timeout)}."
    )


def _seconds(span: timedelta | float) -> str:
    number = span.total_seconds() if isinstance(span, timedelta) else float(span)
    return counted(int(number), "second") if number == int(number) else f"{number:g} seconds"
