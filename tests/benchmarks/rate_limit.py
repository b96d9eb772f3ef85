"""How well campaigns keep to ``requests_per_second``: ``python -m tests.benchmarks.rate_limit``.

A real Airflow sends to the sandbox, which notes when each request came; no ten seconds may have more than 5 % above the
limit, whether one task sends or four at once share it. What is reached of the limit is printed beside that.
"""

from __future__ import annotations

import json
import signal
import sys
import tempfile
from bisect import bisect_left
from datetime import datetime
from itertools import pairwise
from pathlib import Path
from typing import NamedTuple

from tests.benchmarks.campaign.recipients import write_csv
from tests.benchmarks.campaign.serving import IMPORTED_FROM
from tests.sandbox import Sandbox
from tests.system.killing.parts import AirflowInParts

DAGS = Path(__file__).parent / "dags"
DAG_IDS = {"campaign_limit_whole": "one task", "campaign_limit_parted": "four mapped partitions"}
PER_SECOND = 20
SECONDS = 40
SPAN = 10.0
TOLERANCE = 1.05
RUN_WITHIN = 240.0
_AT_ONCE = 200


class Seen(NamedTuple):
    """What the sandbox saw of one campaign.

    :param busiest: requests in the ten seconds that had most
    :param pace: requests a second from the first to the last
    :param longest: seconds between two requests, at most
    """

    requests: int
    busiest: int
    pace: float
    longest: float

    @property
    def kept(self) -> bool:
        """Whether the limit was kept."""
        return self.busiest <= PER_SECOND * SPAN * TOLERANCE


def busiest(moments: list[float], span: float) -> int:
    """Return how many moments the fullest span of that length has."""
    return max(bisect_left(moments, moment + span) - place for place, moment in enumerate(moments))


def seen(moments: list[float]) -> Seen:
    """Return what a campaign's requests look like."""
    moments = sorted(moments)
    pace = (len(moments) - 1) / (moments[-1] - moments[0])
    longest = max(after - before for before, after in pairwise(moments))
    return Seen(len(moments), busiest(moments, SPAN), pace, longest)


def run(airflow: AirflowInParts, sandbox: Sandbox, dag_id: str, people: Path) -> Seen:
    """Send one campaign, and return what the sandbox saw of it."""
    sandbox.control("POST", "reset")
    run_id = airflow.trigger(dag_id, {"people": str(people)})
    if airflow.ended(dag_id, run_id, RUN_WITHIN) != "success":
        sys.exit(f"The run of {dag_id} failed.")
    return seen(_moments(sandbox))


def _moments(sandbox: Sandbox) -> list[float]:
    moments: list[float] = []
    while True:
        path = f"inbox/sms?limit={_AT_ONCE}&offset={len(moments)}"
        page = sandbox.control("GET", path)["items"]
        moments += [datetime.fromisoformat(message["created_datetime"]).timestamp() for message in page]
        if len(page) < _AT_ONCE:
            return moments


def main() -> None:
    for number in (signal.SIGINT, signal.SIGTERM):
        # Whoever ends it wants what it started to end, too; what a shell runs in the background ignores Ctrl-C.
        signal.signal(number, signal.default_int_handler)
    with tempfile.TemporaryDirectory() as folder, Sandbox(Path(folder) / "sandbox.log") as sandbox:
        people = Path(folder) / "people.csv"
        write_csv(people, PER_SECOND * SECONDS, repeats=False)
        extra = {"requests_per_second": PER_SECOND, "recipients_per_request": 1, "max_concurrency": 8}
        connection = {"conn_type": "cpaas", "host": sandbox.url, "password": sandbox.api_key, "extra": extra}
        settings = {"AIRFLOW_CONN_CPAAS_DEFAULT": json.dumps(connection), "PYTHONPATH": ":".join(IMPORTED_FROM)}
        with AirflowInParts(Path(folder) / "airflow", DAGS, settings) as airflow:
            airflow.wait_until_healthy()
            results = {title: run(airflow, sandbox, dag_id, people) for dag_id, title in DAG_IDS.items()}
    print(f"requests_per_second = {PER_SECOND}; at most {PER_SECOND * SPAN * TOLERANCE:g} in any {SPAN:g} s\n")
    print("| | requests | most in any 10 s | a second, on average | longest gap |")
    print("|---|--:|--:|--:|--:|")
    for title, one in results.items():
        print(f"| {title} | {one.requests} | {one.busiest} | {one.pace:.2f} | {one.longest:.2f} s |")
    sys.exit(not all(one.kept for one in results.values()))


if __name__ == "__main__":
    main()
