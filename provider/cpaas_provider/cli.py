"""``airflow cpaas ...``: the provider on the command line."""

from __future__ import annotations

import sys
from typing import Any

from airflow.cli.cli_config import ActionCommand, Arg, CLICommand, GroupCommand, lazy_load_command

_CONN_ID = Arg(("conn_id",), nargs="?", default="cpaas_default", help="connection to use (default: cpaas_default)")


def get_cli_commands() -> list[CLICommand]:
    """Return the commands Airflow adds to its own."""
    return [
        GroupCommand(
            name="cpaas",
            help="Messaging service: check a connection",
            subcommands=(
                ActionCommand(
                    name="ping",
                    help="Check a connection without cost or change",
                    description=(
                        "Ask the service for the contact table, which costs and changes nothing, and say whether host, "
                        "path and API key of the connection are right. Exit status 0 if they are, 1 if not."
                    ),
                    func=lazy_load_command("cpaas_provider.cli.ping"),
                    args=(_CONN_ID,),
                ),
            ),
        )
    ]


def ping(args: Any) -> None:
    """Check a connection and end with status 0 or 1."""
    from cpaas_provider.hooks.cpaas import CpaasHook

    try:
        works, message = CpaasHook(args.conn_id).test_connection()
    except Exception as error:  # noqa: BLE001 - Airflow raises several kinds for a connection that is not there
        works, message = False, f"Connection {args.conn_id!r} cannot be read: {error}"
    print(message, file=sys.stdout if works else sys.stderr)
    if not works:
        raise SystemExit(1)
