"""What a contact sync costs beside a bare loop, and what peers do after a kill.

python -m tests.benchmarks.contacts [--rows 1000000] [--rounds 1] [--folder .bench/contacts] [--only unchanged]
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

from tests.airflow_home import settings_for, without_airflow
from tests.benchmarks.campaign.serving import IMPORTED_FROM, REPOSITORY
from tests.benchmarks.contacts.peers import compare_peers
from tests.benchmarks.contacts.rows import write_rows
from tests.sandbox import Sandbox

_SMALL = 10_000
_CHANGED_OF, _CHANGED = 50_000, 1_000
_CREATED = 100_000
_PER_SECOND = 250


def main() -> None:
    """Run what was asked for, and print its tables."""
    arguments = _arguments()
    with tempfile.TemporaryDirectory() as folder, Sandbox(Path(folder) / "sandbox.log") as sandbox:
        for name, part in _PARTS.items():
            if arguments.only in (None, name):
                print(f"\n## {part.__doc__}\n", flush=True)
                part(arguments, sandbox)


def unchanged(arguments: argparse.Namespace, sandbox: Sandbox) -> None:
    """A sync in which nothing changed, beside a loop that reads, hashes and looks up the same rows"""
    print("| rows | work | seconds | CPU seconds | peak MiB | requests that write |")
    print("|--:|---|--:|--:|--:|--:|", flush=True)
    for count in (_SMALL, arguments.rows):
        path = write_rows(arguments.folder, count)
        ours, bare = _database(arguments.folder, f"map_{count}"), _database(arguments.folder, f"bare_{count}")
        _work("fill", sandbox, path, ours)
        _work("fill_bare", sandbox, path, bare)
        for _ in range(arguments.rounds):
            for name, database in (("bare", bare), ("sync", ours)):
                before = _writes(sandbox)
                done = _work(name, sandbox, path, database)
                if done["unchanged"] != count:
                    sys.exit(f"{name} found {done['unchanged']} of {count} rows unchanged")
                _row(count, name, done, _writes(sandbox) - before)


def changed(arguments: argparse.Namespace, sandbox: Sandbox) -> None:
    """A sync in which some rows changed, each in one cell"""
    print("| rows | changed | requests | cells sent | most cells a request | seconds |")
    print("|--:|--:|--:|--:|--:|--:|", flush=True)
    database = _database(arguments.folder, "map_changed")
    _work("sync", sandbox, write_rows(arguments.folder, _CHANGED_OF), database)
    before = _writes(sandbox)
    done = _work("sync", sandbox, write_rows(arguments.folder, _CHANGED_OF, _CHANGED), database)
    requests = _writes(sandbox) - before
    print(
        f"| {_CHANGED_OF:,} | {_CHANGED:,} | {requests:,} | {done['cells']:,} | {done['most_cells']} "
        f"| {done['seconds']} |",
        flush=True,
    )


def created(arguments: argparse.Namespace, sandbox: Sandbox) -> None:
    """First creations of rows, under the rate limit of the connection"""
    print("| rows | created | requests a second | seconds | CPU seconds | peak MiB |")
    print("|--:|--:|--:|--:|--:|--:|", flush=True)
    for count in (_SMALL, _CREATED):
        database = _database(arguments.folder, f"map_created_{count}")
        done = _work("sync", sandbox, write_rows(arguments.folder, count), database, per_second=_PER_SECOND)
        print(
            f"| {count:,} | {done['created']:,} | {done['created'] / done['seconds']:.1f} | {done['seconds']} "
            f"| {done['cpu_seconds']} | {done['peak_mib']} |",
            flush=True,
        )


def peers(arguments: argparse.Namespace, sandbox: Sandbox) -> None:
    """Killed in the middle and run again, then run on the next day without a change"""
    compare_peers(sandbox, arguments.folder)


_PARTS: dict[str, Callable[[argparse.Namespace, Sandbox], None]] = {
    "unchanged": unchanged,
    "changed": changed,
    "created": created,
    "peers": peers,
}


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m tests.benchmarks.contacts")
    parser.add_argument("--rows", type=int, default=1_000_000, help="rows of the large file")
    parser.add_argument("--rounds", type=int, default=1)
    parser.add_argument("--folder", type=Path, default=Path(".bench/contacts"), help="where files are kept")
    parser.add_argument("--only", choices=_PARTS)
    return parser.parse_args()


def _database(folder: Path, name: str) -> str:
    """Return the URL of a new database."""
    folder.mkdir(parents=True, exist_ok=True)
    path = (folder / f"{name}.db").resolve()
    for suffix in ("", "-wal", "-shm"):
        path.with_name(path.name + suffix).unlink(missing_ok=True)
    return f"sqlite:///{path}"


def _work(name: str, sandbox: Sandbox, path: Path, database: str, **further: Any) -> dict[str, Any]:
    given = {
        **further,
        "url": sandbox.url,
        "key": sandbox.connection["password"],
        "path": str(path.resolve()),
        "database": database,
    }
    with tempfile.TemporaryDirectory() as home:
        environment = {
            **without_airflow(os.environ),
            **settings_for(Path(home)),
            "PYTHONPATH": os.pathsep.join(IMPORTED_FROM),
        }
        done = subprocess.run(
            [sys.executable, "-m", "tests.benchmarks.contacts.in_process", name, json.dumps(given)],
            cwd=REPOSITORY,
            env=environment,
            capture_output=True,
            text=True,
            check=False,
        )
    if done.returncode:
        sys.exit(f"{name} failed:\n{done.stderr[-3000:]}")
    told: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    return told


def _writes(sandbox: Sandbox) -> int:
    requests = sandbox.counters()["requests"]
    return sum(int(requests.get(f"{verb}_contact_row", 0)) for verb in ("create", "update", "delete"))


def _row(count: int, name: str, done: dict[str, Any], writes: int) -> None:
    figures = f"{done['seconds']} | {done['cpu_seconds']} | {done['peak_mib']}"
    print(f"| {count:,} | {name} | {figures} | {writes if name == 'sync' else '-'} |", flush=True)


if __name__ == "__main__":
    main()
