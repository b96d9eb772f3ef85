"""``airflow cpaas contacts export-map | import-map``: key maps and files."""

from __future__ import annotations

import contextlib
import time
from argparse import Namespace
from collections.abc import Callable, Iterator
from pathlib import Path

from cpaas_provider.api.amounts import counted
from cpaas_provider.cli.running import connection_of, guarded, until_stopped
from cpaas_provider.cli.terminal import say, warn
from cpaas_provider.contacts.key_map.files.map_files import export_map, is_export
from cpaas_provider.contacts.key_map.importing import ImportReport, Target, adopt_rows, restore_map
from cpaas_provider.contacts.key_map.key_map import KeyMap
from cpaas_provider.contacts.key_map.maps import find_map
from cpaas_provider.database.database import open_database
from cpaas_provider.sources.csv_file import CsvSource

PROGRESS_SECONDS = 10.0
"""How often a command shows its progress."""


@contextlib.contextmanager
def open_key_map(args: Namespace) -> Iterator[KeyMap]:
    """Open the database, and yield the key map that the options name."""
    with open_database() as database:
        yield find_map(database, conn_id=args.conn_id, name=args.map_name)


class Timer:
    """Measures when the next line of progress is due: every ten seconds.

    :param clock: counts seconds
    """

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._began = self._last = clock()

    def seconds_if_due(self) -> float | None:
        """Return the seconds since the start if a line is due, else ``None``."""
        now = self._clock()
        if now - self._last < PROGRESS_SECONDS:
            return None
        self._last = now
        return now - self._began


class ProgressLines(Timer):
    """Shows on the standard error how many rows are done."""

    def __call__(self, done: str, rows: int) -> None:
        """Show progress if it is due."""
        if self.seconds_if_due() is not None:
            warn(f"{counted(rows, 'row')} {done}.")


@guarded
def cpaas_contacts_export_map(args: Namespace) -> None:
    """Write a key map into a file."""
    path = Path(args.file)
    with open_database() as database, until_stopped("The export was stopped. Its file was removed."):
        key_map = find_map(database, conn_id=args.conn_id, name=args.map_name)
        count = export_map(key_map, path, ProgressLines(), with_secret=not args.without_secret)
    say(f"Exported {counted(count, 'entry', 'entries')} to {path}.")
    if not args.without_secret:
        say("The file holds the map's secret. Remove it when the map is imported.")


@guarded
def cpaas_contacts_import_map(args: Namespace) -> None:
    """Fill a key map from a file."""
    source = CsvSource(args.file)
    stopped = (
        "The import was stopped. If it had begun to write, no sync uses the map until the same command has finished it."
    )
    with open_database() as database, until_stopped("The check was stopped." if args.dry_run else stopped):
        exported = is_export(source)
        if exported and (args.key or args.replace):
            raise SystemExit(f"{source} is an export. Nothing was written. Leave --key and --replace out.")
        if not exported and not args.key:
            raise SystemExit(
                f"{source} is not an export of export-map. Nothing was written. Name the columns of its key with --key."
            )
        connection = connection_of(args.conn_id)
        with connection.make_client() as client:
            table_id = client.get_contact_table().id
        target = Target(database, args.conn_id, args.map_name, connection.base_url, table_id)
        progress = ProgressLines()
        if exported:
            report = restore_map(target, source, progress, dry_run=args.dry_run)
        else:
            report = adopt_rows(
                target,
                source,
                args.key,
                progress,
                row_id_column=args.row_id_column,
                replace_row_ids=args.replace,
                dry_run=args.dry_run,
            )
    _print(report, args)


def _print(report: ImportReport, args: Namespace) -> None:
    entries = counted(report.added, "entry", "entries")
    named = f"contact map {args.map_name!r} of connection {args.conn_id!r}"
    if args.dry_run:
        say(f"The import would add {entries} to {named}. Nothing was written.")
    else:
        say(f"Added {entries} to {named}.")
    for count, words in (
        (report.present, "in the map already"),
        (report.replaced, "with another row id now"),
        (report.removed, "of other keys or maps removed, because the file has their rows"),
    ):
        if count:
            say(f"{counted(count, 'entry', 'entries')} {words}.")
    if report.changed:
        raise SystemExit(
            f"{counted(report.changed, 'entry', 'entries')} written by another task meanwhile, and left as that task "
            "wrote them. Run the command again to compare them with the file."
        )
