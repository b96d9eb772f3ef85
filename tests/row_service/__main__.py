"""The row service as a program: `python -m tests.row_service --port 0`."""

from __future__ import annotations

import argparse
import json
import signal
import sys
import threading
from typing import Any

from tests.row_service import Column, RowService, Switches

COLUMNS = (
    Column("col_key", "Key", "TEXT", required=True),
    Column("col_name", "Name", "TEXT"),
    Column("col_phone", "Phone", "PHONE NUMBER"),
)


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m tests.row_service", description=__doc__)
    parser.add_argument("--port", type=int, default=0, help="port on 127.0.0.1; 0 lets the system pick")
    parser.add_argument("--api-key", default="row-service-key")
    parser.add_argument("--switch", action="append", default=[], metavar="NAME=READING")
    parser.add_argument("--columns", type=json.loads, help='JSON: [{"id": ..., "name": ..., "type": ...}, ...]')
    options = parser.parse_args()
    readings: dict[str, Any] = {}
    for item in options.switch:
        name, _, reading = item.partition("=")
        readings[name] = int(reading) if name in ("invalid_status", "auth_status", "post_status") else reading
    columns = [Column(**item) for item in options.columns] if options.columns else COLUMNS
    ended = threading.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda *_: ended.set())
    with RowService(columns, Switches(**readings), api_key=options.api_key, port=options.port) as service:
        sys.stdout.write(f"{service.url}\n")
        sys.stdout.flush()
        ended.wait()


if __name__ == "__main__":
    main()
