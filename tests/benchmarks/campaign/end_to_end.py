"""How long a personalised campaign with a results file takes on a real Airflow, from its trigger to its success.

python -m tests.benchmarks.campaign.end_to_end [--recipients N] [--rounds N]
"""

from __future__ import annotations

import argparse
import signal
import statistics
import tempfile
import time
from pathlib import Path

from tests.benchmarks.campaign.contenders import Point, airflow_for, connection_id
from tests.benchmarks.campaign.recipients import write_csv
from tests.benchmarks.campaign.serving import BareServer
from tests.system.standalone import ENDED, Standalone, wait_for

DAG_ID = "campaign_end_to_end"
POINT = Point(recipients=500, in_flight=8)
WITHIN = 900.0


def main() -> None:
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, signal.default_int_handler)
    parser = argparse.ArgumentParser(prog="python -m tests.benchmarks.campaign.end_to_end", description=__doc__)
    parser.add_argument("--recipients", type=int, default=1_000_000)
    parser.add_argument("--rounds", type=int, default=1)
    given = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder, BareServer(Path(folder) / "server.log") as server:
        people = Path(folder) / "people.csv"
        write_csv(people, given.recipients)
        with airflow_for(server.url, Path(folder) / "airflow") as airflow:
            taken = [run(airflow, server, people, given.recipients) for _ in range(given.rounds)]
    print(f"{given.recipients:,} rows: median {statistics.median(taken):.1f} s from trigger to success")


def run(airflow: Standalone, server: BareServer, people: Path, rows: int) -> float:
    """Run the campaign once, tell what came of it, and return the seconds."""
    results = people.with_name("results.jsonl")
    results.unlink(missing_ok=True)
    server.reset()
    began = time.monotonic()
    conf = {"connection": connection_id(POINT), "people": str(people), "results": str(results)}
    run_id = airflow.trigger(DAG_ID, conf)

    def ended() -> str | None:
        state = str(airflow.api("GET", f"dags/{DAG_ID}/dagRuns/{run_id}")["state"])
        return state if state in ENDED else None

    state = wait_for("the campaign to end", ended, WITHIN, 0.5)
    seconds = time.monotonic() - began
    if state != "success":
        raise RuntimeError(f"The campaign failed:\n{airflow.task_log(DAG_ID, run_id, 'send')}")
    arrived = server.arrived()
    lines = results.read_bytes().count(b"\n")
    print(
        f"{seconds:.1f} s for {rows:,} rows: {arrived.recipients:,} recipients in {arrived.requests:,} requests over "
        f"{arrived.seconds:.1f} s, {lines:,} lines in the results file",
        flush=True,
    )
    return seconds


if __name__ == "__main__":
    main()
