"""What a large campaign takes of memory and time, from each kind of source.

python -m tests.benchmarks.campaign.memory MODULE:FUNCTION FOLDER [--kinds csv ...] [--sizes 10000 ...] [--postgres URL]

The function is given a ``Place`` in a fresh process for each kind and size, with an Airflow home of its own. What it
returns (JSON) stands beside its figures. The recipients are made in the folder and kept there.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

from tests.airflow_home import settings_for, without_airflow
from tests.benchmarks.campaign.places import KINDS, Place
from tests.benchmarks.campaign.serving import IMPORTED_FROM, REPOSITORY

SIZES = (10_000, 100_000, 1_000_000)


def main() -> None:
    arguments = _arguments()
    print("| source | recipients | seconds | µs a further one | peak MiB (VmHWM) | over least | ru_maxrss | said |")
    print("|---|--:|--:|--:|--:|--:|--:|---|", flush=True)
    for kind in arguments.kinds:
        rows: list[tuple[int, dict[str, Any]]] = []
        for size in sorted(arguments.sizes):
            place = Place.of(kind, size, arguments.folder)
            _made(place, arguments)
            rows.append((size, _measured(place, arguments)))
            print(_line(kind, rows), flush=True)


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m tests.benchmarks.campaign.memory")
    parser.add_argument("work", help="what is measured, as MODULE:FUNCTION")
    parser.add_argument("folder", type=Path, help="where the recipients are kept")
    parser.add_argument("--kinds", nargs="+", choices=KINDS, default=KINDS)
    parser.add_argument("--sizes", nargs="+", type=int, default=SIZES)
    parser.add_argument("--postgres", default="postgresql://postgres@127.0.0.1/test", help="URL of a database")
    return parser.parse_args()


def _made(place: Place, arguments: argparse.Namespace) -> None:
    # In a process of its own: a child's ru_maxrss begins where that of its parent stands.
    command = ["-m", "tests.benchmarks.campaign.places", place.kind, str(place.count), str(arguments.folder)]
    _python([*command, "--postgres", arguments.postgres], os.environ)


def _measured(place: Place, arguments: argparse.Namespace) -> dict[str, Any]:
    with tempfile.TemporaryDirectory() as home:
        environment = {
            **without_airflow(os.environ),
            **settings_for(Path(home)),
            **place.environment(arguments.postgres),
            "PYTHONPATH": os.pathsep.join(IMPORTED_FROM),
        }
        command = ["-m", "tests.benchmarks.campaign.measured", arguments.work, json.dumps(place)]
        told: dict[str, Any] = json.loads(_python(command, environment).splitlines()[-1])
        return told


def _python(command: list[str], environment: Any) -> str:
    done = subprocess.run(
        [sys.executable, *command], cwd=REPOSITORY, env=environment, capture_output=True, text=True, check=False
    )
    if done.returncode:
        sys.exit(f"{' '.join(command)} failed:\n{done.stderr[-3000:]}")
    return done.stdout


def _line(kind: str, rows: list[tuple[int, dict[str, Any]]]) -> str:
    size, told = rows[-1]
    further = ""
    if len(rows) > 1:
        # Linear is what stays the same from size to size; what is paid once, such as imports, is in neither.
        before, earlier = rows[-2]
        further = f"{(told['seconds'] - earlier['seconds']) / (size - before) * 1e6:.1f}"
    over = told["vm_hwm"] - rows[0][1]["vm_hwm"]
    said = "" if told["said"] is None else json.dumps(told["said"])
    return (
        f"| {kind} | {size:,} | {told['seconds']:.2f} | {further} "
        f"| {told['vm_hwm']:.1f} | {over:+.1f} | {told['ru_maxrss']:.1f} | {said} |"
    )


if __name__ == "__main__":
    main()
