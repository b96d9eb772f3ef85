"""``airflow cpaas contacts verify | resolve``: compare the contact list with its key map, and resolve creations."""

from __future__ import annotations

import asyncio
from argparse import Namespace
from typing import Any

from cpaas_provider.api.amounts import counted
from cpaas_provider.api.errors import CpaasError
from cpaas_provider.cli.contacts.files import Timer
from cpaas_provider.cli.running import connection_of, guarded, until_stopped
from cpaas_provider.cli.terminal import aside, confirm, print_lines, say, typed, warn
from cpaas_provider.contacts.errors import ContactsError
from cpaas_provider.contacts.key_map import overview
from cpaas_provider.contacts.key_map.entries import MapEntry
from cpaas_provider.contacts.key_map.files.decision_files import apply_decisions, read_decisions
from cpaas_provider.contacts.key_map.key_map import KeyMap
from cpaas_provider.contacts.key_map.resolution import (
    find_by_key,
    find_by_row_number,
    resolve_created,
    resolve_not_created,
)
from cpaas_provider.contacts.sync.verify import Verification, VerifyReport
from cpaas_provider.database.database import Database, open_database
from cpaas_provider.database.errors import DatabaseError
from cpaas_provider.hooks.connection import CpaasConnection
from cpaas_provider.sources.csv_file import CsvSource


class ChecksLeft(Timer):
    """Shows on the standard error how many rows were checked, and the time left."""

    def __call__(self, checked: int, total: int) -> None:
        """Show progress if it is due."""
        if (seconds := self.seconds_if_due()) is not None:
            left = seconds / checked * (total - checked)
            warn(f"Checked {checked:,} of {counted(total, 'row')}, about {_duration(left)} left.")


@guarded
def cpaas_contacts_verify(args: Namespace) -> None:
    """Compare rows of the contact list with a key map."""
    with open_database() as database:
        connection = connection_of(args.conn_id)
        report = VerifyReport()
        failed: Exception | None = None
        try:
            with until_stopped("The check was stopped."):
                try:
                    asyncio.run(_verify(args, database, connection, report))
                except (ContactsError, CpaasError, DatabaseError) as error:
                    failed = error
        finally:
            if report.total:
                print_lines(_lines(report), args.output)
        if failed is not None:
            raise failed
    beside = aside(args)
    drifted = report.different + report.gone
    if report.mended:
        say(f"The next sync mends {counted(report.mended, 'row')}.", beside)
    if drifted > report.mended:
        raise SystemExit(
            f"{counted(drifted - report.mended, 'row')} of the contact list differ from the key map. With --mend the "
            "next sync mends them."
        )
    if report.unreadable:
        raise SystemExit(f"{counted(report.unreadable, 'row')} could not be read. Run the command again.")


async def _verify(args: Namespace, database: Database, connection: CpaasConnection, report: VerifyReport) -> None:
    async with await asyncio.to_thread(connection.make_async_client) as client:
        table = await client.get_contact_table()
        verification = Verification(
            _map_of(args, database, connection, table.id),
            client,
            table,
            report,
            numbers=client.settings.numbers,
            mend=args.mend,
            max_gone=args.max_gone,
        )
        await verification.run(None if args.all else args.sample, ChecksLeft())


def _map_of(args: Namespace, database: Database, connection: CpaasConnection, table_id: str) -> KeyMap:
    return overview.checked_map(
        database, conn_id=args.conn_id, base_url=connection.base_url, table_id=table_id, name=args.map_name
    )


def _lines(report: VerifyReport) -> list[dict[str, Any]]:
    lines: list[dict[str, Any]] = []
    for name in ("equal", "different", "gone", "unknown", "changed", "unreadable", "not_checked", "mended"):
        lines.append({"result": name, "column": None, "rows": getattr(report, name)})
        if name == "different":
            found = sorted(report.columns.items(), key=lambda one: (-one[1], one[0]))
            lines += [{"result": name, "column": column, "rows": rows} for column, rows in found]
    return lines


@guarded
def cpaas_contacts_resolve(args: Namespace) -> None:
    """Resolve creations of unknown outcome."""
    chosen = [args.key is not None, args.row_number is not None, args.all, args.file is not None]
    if sum(chosen) != 1:
        raise SystemExit("Give one of --key, --row-number, --all and --file. Nothing was changed.")
    if args.file is not None:
        if args.created is not None or args.not_created:
            raise SystemExit("--file has what to record in its column row_id. Nothing was changed.")
        _resolve_by_file(args)
        return
    if (args.created is not None) == args.not_created:
        raise SystemExit("Give either --created ROW_ID or --not-created. Nothing was changed.")
    if args.all and not args.not_created:
        raise SystemExit("--all goes with --not-created alone: a row id belongs to one key. Nothing was changed.")
    with open_database() as database:
        connection = connection_of(args.conn_id)
        with connection.make_client() as client:
            key_map = _map_of(args, database, connection, client.get_contact_table().id)
            entries = _chosen(args, key_map)
            if not entries:
                say("The contact map has no unknown creations.")
                return
            if not args.yes:
                _confirm(args, entries)
            if args.created is not None:
                resolve_created(key_map, entries[0], args.created, client)
                say("Resolved: the key has this row now. The next sync sends all its cells once.")
                return
            changed = resolve_not_created(key_map, entries)
    resolved = counted(len(entries) - changed, "creation")
    say(f"Resolved as not created: {resolved}. The next sync creates the row of each one.")
    if changed:
        raise SystemExit(f"{counted(changed, 'creation')} changed meanwhile and were left. Run the command again.")


def _resolve_by_file(args: Namespace) -> None:
    with open_database() as database, until_stopped("The command was stopped. What was resolved before is recorded."):
        connection = connection_of(args.conn_id)
        with connection.make_client() as client:
            key_map = _map_of(args, database, connection, client.get_contact_table().id)
            decisions = read_decisions(key_map, CsvSource(args.file), client.get_contact_row)
        words = (
            f"{counted(len(decisions.created), 'creation')} as created, {len(decisions.not_created):,} as not created"
        )
        confirm(f"Resolve {words}? The next sync creates the latter, so that rows that exist are there twice.", args)
        changed = apply_decisions(key_map, decisions)
    say(f"Resolved: {words}." if not changed else f"Resolved {len(decisions) - changed:,} of {len(decisions):,}.")
    if changed:
        raise SystemExit(f"{counted(changed, 'creation')} changed meanwhile and were left. Run status again.")


def _chosen(args: Namespace, key_map: KeyMap) -> list[MapEntry]:
    if args.all:
        return list(overview.unknown_creations(key_map))
    if args.row_number is not None:
        return [find_by_row_number(key_map, args.row_number)]
    return [find_by_key(key_map, [typed(part) for part in args.key])]


def _confirm(args: Namespace, entries: list[MapEntry]) -> None:
    for entry in entries[:20]:
        since = "at an unknown time" if entry.requested is None else f"{entry.requested:%Y-%m-%d %H:%M:%S} UTC"
        say(f"  row {entry.source_row or 'unknown'} of the source, requested {since}")
    if len(entries) > 20:
        say(f"  and {len(entries) - 20:,} more")
    if args.created is not None:
        question = "Resolve as created? The key gets this row."
    else:
        question = "Resolve as not created? The next sync creates these rows, so that rows that exist are there twice."
    confirm(question, args)


def _duration(seconds: float) -> str:
    if seconds < 90:
        return f"{seconds:.0f} s"
    minutes = round(seconds / 60)
    return f"{minutes} min" if minutes < 120 else f"{minutes / 60:.1f} h"
