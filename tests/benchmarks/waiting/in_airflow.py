"""The same waits in a real Airflow: one run that maps sensors, one triggerer, and times that tell ours from Airflow's.

The service's passcodes are verified, and reports stored by another process, one of each a second.
"""

from __future__ import annotations

import asyncio
import json
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

from tests.benchmarks.campaign.bare_server import LATENCY
from tests.benchmarks.waiting.bare_otps import VERIFIED, OtpServer
from tests.benchmarks.waiting.messages import CONN_ID, Messages
from tests.benchmarks.waiting.percentiles import percentile
from tests.benchmarks.waiting.reporting import READY
from tests.benchmarks.waiting.stages import moments, table
from tests.benchmarks.waiting.table import MOST_DELAY
from tests.ports import reserved_ports
from tests.system.delivering.places import a_store
from tests.system.killing.parts import AirflowInParts
from tests.system.standalone import wait_for

REPOSITORY = Path(__file__).parents[3]
DAG_ID = "waiting"
EVERY = 1.0
"""Seconds between two waits of a kind that end: a small machine's workers can go on with about two tasks a second."""
READ_WITHIN = 180.0
A_TASK_WITHIN = 5.0
"""Seconds allowed for each task to defer, and to go on."""


def run(tasks: int, url: str | None) -> int:
    """Have so many tasks wait, half of each kind, print how long what took, and return 1 where ours took too long."""
    with ExitStack() as stack:
        home = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="cpaas-waiting-")))
        store = stack.enter_context(a_store(url, home))
        number = tasks // 2
        # Two of five messages are reported to be delivered meanwhile; those are waited for.
        messages = Messages(int(2.5 * number) + 1, number * EVERY)
        deliveries = messages.ended
        passcodes = [f"otp-{one}" for one in range(tasks - number)]
        plan = {"delivery": deliveries, "passcode": passcodes, "conn_id": CONN_ID}
        (home / "plan.json").write_text(json.dumps(plan))
        service, port = OtpServer(LATENCY), reserved_ports(1)[0]
        threading.Thread(target=asyncio.run, args=(service.serve(port),), daemon=True).start()
        extra = {"requests_per_second": max(10.0, tasks / 10), "max_concurrency": 32}
        connection = {"conn_type": "cpaas", "host": f"http://127.0.0.1:{port}", "password": "sk_bench", "extra": extra}
        airflow = AirflowInParts(
            home / "airflow",
            Path(__file__).parent / "dags",
            {
                "WAITING": str(home),
                "AIRFLOW__CPAAS__DATABASE": store,
                f"AIRFLOW_CONN_{CONN_ID.upper()}": json.dumps(connection),
                # Its own; the shorter ones of a killing end tasks on a machine that is busy.
                "AIRFLOW__SCHEDULER__TASK_INSTANCE_HEARTBEAT_TIMEOUT": "300",
            },
        )
        reporting = stack.enter_context(_reporting(store, messages))
        # Also where it is ended while it starts.
        stack.callback(airflow.stop)
        stack.enter_context(airflow)
        run_id = airflow.trigger(DAG_ID, within=READ_WITHIN)
        print(f"{tasks} tasks defer ...", flush=True)
        _wait(airflow, run_id, "deferred", tasks)
        print("Reports come in, passcodes are verified ...", flush=True)
        arrived = _let_come(service, passcodes, reporting, deliveries)
        state = airflow.ended(DAG_ID, run_id, within=60 + A_TASK_WITHIN * tasks)
        found = moments(airflow, home, arrived)
    print(f"\n{table(found)}\n")
    delays = [one["fired"] - one["arrived"] for one in found.get("delivery", [])]
    late = percentile(delays, 95)
    print(f"The run ended as {state}. From report to event p95 {late:.2f} s (bar: below {MOST_DELAY:g} s).")
    return int(state != "success" or len(delays) < len(deliveries) or late >= MOST_DELAY)


@contextmanager
def _reporting(store: str, messages: Messages) -> Iterator[subprocess.Popen[str]]:
    command = [sys.executable, "-m", "tests.benchmarks.waiting.reporting", store]
    command += ["--waiters", str(messages.waiters), "--seconds", str(messages.seconds)]
    piped = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE}
    with subprocess.Popen(command, cwd=REPOSITORY, text=True, start_new_session=True, **piped) as process:
        try:
            assert process.stdout
            if process.stdout.readline().strip() != READY:
                sys.exit("What stores the reports did not begin.")
            yield process
        finally:
            process.kill()


def _wait(airflow: AirflowInParts, run_id: str, state: str, number: int) -> None:
    query = "SELECT state, count(*) FROM task_instance WHERE run_id = ? GROUP BY state"

    def look() -> bool | None:
        counted = dict(airflow.query(query, run_id))
        if counted.get("failed"):
            sys.exit(f"Tasks fail: {counted}")
        return counted.get(state) == number or None

    wait_for(f"{number} tasks to be {state}", look, 60 + A_TASK_WITHIN * number, 1.0)


def _let_come(
    service: OtpServer, passcodes: list[str], reporting: subprocess.Popen[str], deliveries: list[str]
) -> dict[tuple[str, int], float]:
    """Let everything happen that is waited for, and return when each came to store or service."""
    assert reporting.stdin
    assert reporting.stdout
    reporting.stdin.write("\n")
    reporting.stdin.flush()
    arrived = {}
    for number, name in enumerate(passcodes):
        service.says[name] = VERIFIED
        arrived["passcode", number] = time.time()
        time.sleep(EVERY)
    came = json.loads(reporting.stdout.read())["came"]
    # One clock of the machine is as good as the other, but for where it begins.
    since_1970 = time.time() - time.monotonic()
    return arrived | {("delivery", number): came[name] + since_1970 for number, name in enumerate(deliveries)}
