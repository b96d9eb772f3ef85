"""How fast campaigns send: ``python -m tests.benchmarks.campaign [--rounds N] [--markdown FILE]``.

Everybody sends to the same bare server, which takes 20 ms for an answer and sees how fast requests arrive. Tasks run
on a real Airflow of separate processes, which is up all the time, so that it takes from everybody alike what it takes.
"""

from __future__ import annotations

import argparse
import contextlib
import os
import signal
import sys
import tempfile
from pathlib import Path

from tests.benchmarks.campaign import table
from tests.benchmarks.campaign.contenders import (
    RECIPIENTS,
    Contender,
    airflow_contenders,
    airflow_for,
    local_contenders,
)
from tests.benchmarks.campaign.in_process import planning_rate
from tests.benchmarks.campaign.rounds import Measured, measure
from tests.benchmarks.campaign.serving import BareServer


def main() -> None:
    for number in (signal.SIGINT, signal.SIGTERM):
        # Whoever ends it wants what it started to end, too; what a shell runs in the background ignores Ctrl-C.
        signal.signal(number, signal.default_int_handler)
    arguments = _arguments()
    with tempfile.TemporaryDirectory() as folder, BareServer(Path(folder) / "server.log") as server:
        airflow = None if arguments.without_airflow else airflow_for(server.url, Path(folder) / "airflow")
        contenders = [*local_contenders(), *(airflow_contenders(airflow) if airflow else ())]
        for contender in contenders:
            contender.points = tuple(one for one in contender.points if one.recipients in arguments.recipients)
        with airflow or contextlib.nullcontext():
            measured = measure(server, contenders, arguments.rounds, arguments.seconds, _say)
    told, cleared = _told(measured, contenders, arguments, server.latency)
    told += f"\nPlanning alone, from a CSV: {planning_rate():,.0f} recipients a second.\n"
    print(f"\n{told}")
    if arguments.markdown:
        arguments.markdown.write_text(told)
    sys.exit(not cleared)


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m tests.benchmarks.campaign", description="How fast campaigns send")
    parser.add_argument("--rounds", type=int, default=5, help="how often everybody takes his turn")
    parser.add_argument("--seconds", type=float, default=8.0, help="about how long a turn is")
    parser.add_argument("--recipients", type=int, nargs="+", default=RECIPIENTS, help="recipients a request")
    parser.add_argument("--without-airflow", action="store_true", help="measure clients only, no campaigns")
    parser.add_argument("--markdown", type=Path, help="a file for the tables")
    return parser.parse_args()


def _say(line: str) -> None:
    print(line, flush=True)


def _told(
    measured: Measured, contenders: list[Contender], arguments: argparse.Namespace, latency: float
) -> tuple[str, bool]:
    reached, cleared = table.bars(measured, contenders)
    how = (
        f"Requests a second (recipients a second), medians of {arguments.rounds} rounds of about "
        f"{arguments.seconds:g} s; the service answers after {latency * 1000:g} ms; {os.cpu_count()} cores. "
        f"Rounds of the same differ by {table.spread(measured, contenders):.0%}."
    )
    return "\n\n".join(part for part in (how, table.rates(measured, contenders), reached) if part) + "\n", cleared


if __name__ == "__main__":
    main()
