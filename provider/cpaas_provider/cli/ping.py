"""``airflow cpaas ping``."""

from __future__ import annotations

import os
import sys
from typing import Any


def ping(args: Any) -> None:
    """Check a connection and end with status 0 or 1."""
    from cpaas_provider.hooks.cpaas import CpaasHook

    try:
        works, message = CpaasHook(args.conn_id).test_connection()
    except Exception as error:  # noqa: BLE001 - Airflow raises several kinds for a connection that is not there
        works, message = False, f"Connection {args.conn_id!r} cannot be read: {error}. {how_to_define(args.conn_id)}"
    print(message, file=sys.stdout if works else sys.stderr)
    if not works:
        raise SystemExit(1)


def how_to_define(conn_id: str) -> str:
    """Return what to do about a connection that Airflow cannot read: define it, or correct its variable."""
    variable = f"AIRFLOW_CONN_{conn_id.upper()}"
    if variable in os.environ:
        return (
            f"{variable} is set, but Airflow cannot read it. It must be JSON with conn_type, host and password, and "
            'every other field inside "extra".'
        )
    return f"Define it in the UI, with `airflow connections add`, or as JSON in {variable}."
