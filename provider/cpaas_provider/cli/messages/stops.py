"""``airflow cpaas stop`` and ``airflow cpaas resume``: all requests of a connection."""

from __future__ import annotations

import getpass
from argparse import Namespace

from cpaas_provider.cli.messages.campaign_database import refuse_other_database
from cpaas_provider.cli.running import connection_of, guarded
from cpaas_provider.cli.terminal import say, to_iso_time, warn
from cpaas_provider.database.activity.stops import MAX_REASON, StopTable
from cpaas_provider.database.database import open_database
from cpaas_provider.database.default_file import describe_spreading, spreading_executor
from cpaas_provider.hooks._account.guard import INTERVAL, MAX_AGE


@guarded
def cpaas_stop(args: Namespace) -> None:
    """Stop all requests of a connection that change something or cost money."""
    reason = (args.reason or "").strip()
    if len(reason) > MAX_REASON or not reason.isprintable():
        raise SystemExit(f"--reason must be one line of at most {MAX_REASON} characters. Nothing was stopped.")
    with open_database() as database:
        refuse_other_database(database, "Nothing was stopped.")
        stop, is_new = StopTable(database).stop(args.conn_id, _user(), reason)
        url = database.redacted_url
    if not is_new:
        say(f"It was stopped before. {stop.describe(args.conn_id)} Nothing was changed.")
        return
    say(
        f"Connection {args.conn_id!r} is stopped in the database {url}. Within {INTERVAL:g} s no request that changes "
        f"something or costs money leaves from a process that uses this database. While a process cannot read it, that "
        f"may take {MAX_AGE:g} s. Requests in flight are recorded. Reads go on. To continue: airflow cpaas resume "
        f"--conn-id {args.conn_id}"
    )
    if executor := spreading_executor():
        warn(
            f"{describe_spreading(executor)} Tasks on other machines go on. Run this command on each machine, or set "
            "[cpaas] database to one database for all workers."
        )
    # Last, because a secrets backend that is down must not keep the requests going.
    try:
        connection_of(args.conn_id)
    except (Exception, SystemExit) as error:  # noqa: BLE001 - it is only a hint
        warn(f"See that the name is right: {error}")


@guarded
def cpaas_resume(args: Namespace) -> None:
    """Let the requests of a connection leave again."""
    with open_database() as database:
        refuse_other_database(database, "Nothing was resumed.")
        stop = StopTable(database).resume(args.conn_id)
        url = database.redacted_url
    if stop is None:
        raise SystemExit(f"Connection {args.conn_id!r} is not stopped in the database {url}. Nothing was changed.")
    say(
        f"Connection {args.conn_id!r} is resumed. It was stopped by {stop.stopped_by} since "
        f"{to_iso_time(stop.stopped_at)}. Tasks that failed because of the stop send nothing by themselves. Clear "
        "those that are to send what is left."
    )


def _user() -> str:
    try:
        return getpass.getuser()
    except (KeyError, OSError):
        # In a container without an entry for the user.
        return "an unknown user"
