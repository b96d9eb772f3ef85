"""What becomes of a list when a pipeline is killed and run again: ours, a hand-written loop, the http operator.

python -m tests.benchmarks.contacts.peers PEER JSON   runs one of them in this process
"""

from __future__ import annotations

import csv
import json
import os
import signal
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

from tests.airflow_home import settings_for, without_airflow
from tests.benchmarks.campaign.serving import IMPORTED_FROM, REPOSITORY
from tests.benchmarks.contacts.in_process import sync
from tests.benchmarks.contacts.rows import COLUMNS, write_rows
from tests.sandbox import Sandbox

_ROWS = 200
_KILLED_AT = 100
_PEERS_FOLDER = REPOSITORY / ".venv" / "peers"
_PATIENCE = 120.0


def compare_peers(sandbox: Sandbox, folder: Path) -> None:
    """Kill each of them when half of the rows arrived, run it again, and once more without a change."""
    path = write_rows(folder, _ROWS)
    print(f"{_ROWS} rows, killed after {_KILLED_AT} rows were created.\n")
    print("| | requests until done | rows twice | rows missing | named as unknown | requests of the second night |")
    print("|---|--:|--:|--:|--:|--:|", flush=True)
    for name in _PEERS:
        sandbox.reset()
        database = (folder / f"peer_{name}.db").resolve()
        for suffix in ("", "-wal", "-shm"):
            database.with_name(database.name + suffix).unlink(missing_ok=True)
        given = {
            "url": sandbox.url,
            "key": sandbox.connection["password"],
            "path": str(path.resolve()),
            "database": f"sqlite:///{database}",
        }
        _run(name, given, sandbox, kill=True)
        ended = _run(name, given, sandbox)
        until_done = _writes(sandbox)
        names = Counter(row["columns"]["col_7f3a01"] for row in sandbox.inbox("contacts", limit=1000)["items"])
        twice = sum(count - 1 for count in names.values())
        _run(name, given, sandbox)
        unknown = ended.get("unknown", "-")
        print(
            f"| {name} | {until_done} | {twice} | {_ROWS - len(names)} | {unknown} | {_writes(sandbox) - until_done} |",
            flush=True,
        )


def _run(name: str, given: dict[str, Any], sandbox: Sandbox, *, kill: bool = False) -> dict[str, Any]:
    before = _writes(sandbox)
    with tempfile.TemporaryDirectory() as home:
        environment = {
            **without_airflow(os.environ),
            **settings_for(Path(home)),
            "PYTHONPATH": os.pathsep.join([*IMPORTED_FROM, str(_PEERS_FOLDER)]),
        }
        process = subprocess.Popen(
            [sys.executable, "-m", "tests.benchmarks.contacts.peers", name, json.dumps(given)],
            cwd=REPOSITORY,
            env=environment,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        deadline = time.monotonic() + _PATIENCE
        while kill and process.poll() is None and _writes(sandbox) - before < _KILLED_AT:
            if time.monotonic() > deadline:
                process.send_signal(signal.SIGKILL)
                sys.exit(f"{name} did not come to {_KILLED_AT} rows in {_PATIENCE:g} s")
        if kill:
            process.send_signal(signal.SIGKILL)
        out, errors = process.communicate(timeout=_PATIENCE)
    if process.returncode and not kill:
        sys.exit(f"{name} failed:\n{errors[-3000:]}")
    told: dict[str, Any] = {} if kill else json.loads(out.splitlines()[-1])
    return told


def _writes(sandbox: Sandbox) -> int:
    requests = sandbox.counters()["requests"]
    return sum(int(requests.get(f"{verb}_contact_row", 0)) for verb in ("create", "update", "delete"))


def _ours(given: dict[str, Any]) -> dict[str, Any]:
    return sync(given)


def _loop(given: dict[str, Any]) -> dict[str, Any]:
    """Create each row with the client, as a task's Python function would."""
    from cpaas_provider.api.client import CpaasClient
    from cpaas_provider.contacts.mapping.columns import ContactColumns

    with CpaasClient(given["url"], given["key"], requests_per_second=10_000) as client:
        columns = ContactColumns(client.get_contact_table())
        for row in _rows(given):
            client.create_contact_row(columns.encode({column: row[name] for column, name in COLUMNS.items()}))
    return {}


def _http_operator(given: dict[str, Any]) -> dict[str, Any]:
    """Create each row with the http provider's operator."""
    os.environ["AIRFLOW_CONN_HTTP_DEFAULT"] = json.dumps(
        {"conn_type": "http", "host": given["url"], "password": given["key"]}
    )
    from airflow.providers.http.operators.http import HttpOperator

    from cpaas_provider.api.client import CpaasClient
    from cpaas_provider.contacts.mapping.columns import ContactColumns

    with CpaasClient(given["url"], given["key"]) as client:
        columns = ContactColumns(client.get_contact_table())
    for number, row in enumerate(_rows(given)):
        cells = columns.encode({column: row[name] for column, name in COLUMNS.items()})
        HttpOperator(
            task_id=f"row_{number}",
            endpoint="lists/contact/rows",
            data=json.dumps({"columns": cells}),
            headers={"Content-Type": "application/json", "Authorization": f"Bearer {given['key']}"},
            log_response=False,
        ).execute({})
    return {}


def _rows(given: dict[str, Any]) -> list[dict[str, str]]:
    with Path(given["path"]).open(newline="", encoding="utf-8") as file:
        return list(csv.DictReader(file))


_PEERS: dict[str, Callable[[dict[str, Any]], dict[str, Any]]] = {
    "SyncContactsOperator": _ours,
    "loop over the client": _loop,
    "HttpOperator": _http_operator,
}


if __name__ == "__main__":
    print(json.dumps(_PEERS[sys.argv[1]](json.loads(sys.argv[2]))))
