"""What the commands of ``airflow cpaas suppressions`` do."""

from __future__ import annotations

import contextlib
import csv
import sys
from argparse import Namespace
from collections.abc import Iterator, Mapping
from datetime import UTC, datetime
from itertools import islice
from pathlib import Path
from typing import Any

from cpaas_provider._common.local_files import create_text_file
from cpaas_provider.api.amounts import counted
from cpaas_provider.api.recipients.invalid import InvalidRecipientError
from cpaas_provider.api.recipients.reader import RecipientReader, recipient_key
from cpaas_provider.cli.messages.campaign_database import (
    describe_other_database,
    record_database,
    refuse_other_database,
)
from cpaas_provider.cli.running import guarded
from cpaas_provider.cli.terminal import aside, print_lines, say, to_iso_time, typed, warn
from cpaas_provider.database.database import Database, open_database
from cpaas_provider.database.recipients.hash_keys import HASH_BYTES
from cpaas_provider.database.recipients.suppressions import Listed, Suppression, SuppressionTable
from cpaas_provider.database.schema.base import REPORT_DIALECTS
from cpaas_provider.delivery.tracking.permanent_failures.brakes import is_of_single_sends, read_brakes
from cpaas_provider.hooks.suppressions import add_suppressions, check_entry, list_reader, remove_suppressions
from cpaas_provider.sources import as_source
from cpaas_provider.sources.base import InvalidRow, Source
from cpaas_provider.sources.tables import missing_columns

_SHOWN = 12
"""Letters of a hash that are shown: enough to tell entries apart."""

_NAMED = 5
_EXPORTED = tuple(name for name in Suppression._fields if name != "reported_at")
"""The columns of an export. A person imports it, so no report removes what was imported."""


@guarded
def cpaas_suppressions_list(args: Namespace) -> None:
    """Print entries."""
    with _value_errors_shown(), open_database() as database:
        table = SuppressionTable(database)
        wanted = _read_recipient(args.recipient, list_reader(args.region, args.number_check))
        found = table.entries(_where(args)) if wanted is None else table.entries_of(wanted, _where(args))
        lines = [_line(entry) for entry in islice(found, args.limit)]
        counts = table.counts()
        brakes = _brakes(database)
        other = describe_other_database(database)
    print_lines(lines, args.output, copied=("recipient_hash",))
    total = sum(counts.values())
    reasons = ", ".join(f"{number:,} {reason}" for reason, number in sorted(counts.items()))
    shown = f"Showing {len(lines):,} of " if len(lines) < total else ""
    say(f"{shown}{counted(total, 'entry', 'entries')}{f': {reasons}' if reasons else ''}.", aside(args))
    if other:
        warn(f"{other} Its entries are not shown.")
    for brake in brakes:
        what = "single sends" if is_of_single_sends(brake) else f"campaign {brake['campaign']}"
        warn(
            f"Delivery reports of {what} on connection {brake['conn_id']!r} add no recipient. "
            f"They report permanent failures of {brake['failures']:,} of {counted(brake['recipients'], 'recipient')}, "
            "too many to be the fault of the recipients. Look at the reasons in the results file or the reports."
        )


def _brakes(database: Database) -> list[Mapping[str, Any]]:
    """Return the campaigns whose delivery reports list no recipient. Other databases store no reports."""
    if database.engine.dialect.name not in REPORT_DIALECTS:
        return []
    with database.connect() as connection:
        return read_brakes(connection)


@guarded
def cpaas_suppressions_add(args: Namespace) -> None:
    """Add recipients, and print how many entries are new."""
    with _value_errors_shown(), _list_of_tasks():
        added = add_suppressions(
            _read_recipients(args.recipients),
            reason=args.reason,
            source=args.source or "airflow cpaas suppressions add",
            channel=args.channel,
            conn_id=args.conn_id,
            region=args.region,
            number_check=args.number_check,
        )
    say(f"Added {counted(added, 'entry', 'entries')}.")


@guarded
def cpaas_suppressions_remove(args: Namespace) -> None:
    """Remove recipients, and print how many entries went."""
    with _value_errors_shown(), open_database() as database:
        refuse_other_database(database, "A task would not see the removal, so nothing was removed.")
        removed = remove_suppressions(
            _read_recipients(args.recipients),
            reason=args.reason,
            channel=args.channel,
            conn_id=args.conn_id,
            region=args.region,
            number_check=args.number_check,
        )
    if not removed:
        raise SystemExit("The list has no such entry. Nothing was removed.")
    say(f"Removed {counted(removed, 'entry', 'entries')}.")


@guarded
def cpaas_suppressions_import(args: Namespace) -> None:
    """Add the recipients of a file, or the entries of an export."""
    source_name = args.source or f"import of {Path(args.file).name}"[:100]
    with _value_errors_shown(), _list_of_tasks() as table:
        check_entry(source=source_name)
        source = as_source(args.file)
        if _is_export(source):
            say(f"Added {counted(table.restore(_restored(source)), 'entry', 'entries')} of an export.")
            return
        listed, invalid = _read(source, args, source_name)
        if invalid and not args.skip_invalid:
            raise SystemExit(
                f"{counted(len(invalid), 'row')} cannot be read ({'; '.join(invalid[:_NAMED])}). Nothing was added. "
                "Correct the file, or give --skip-invalid to add the other rows."
            )
        added = table.add(listed)
    skipped = f" Skipped {counted(len(invalid), 'row')} that cannot be read." if invalid else ""
    say(f"Read {counted(len(listed), 'recipient')}, added {counted(added, 'new entry', 'new entries')}.{skipped}")


@guarded
def cpaas_suppressions_export(args: Namespace) -> None:
    """Write every entry to a CSV file."""
    with _value_errors_shown(), open_database() as database:
        refuse_other_database(database, "The file would lack its entries, so no file was written.")
        try:
            with create_text_file(Path(args.file)) as file:
                writer = csv.writer(file)
                writer.writerow(_EXPORTED)
                number = 0
                for entry in SuppressionTable(database).entries(_where(args)):
                    writer.writerow([entry.recipient_hash.hex(), *entry[1:6], entry.added_at.isoformat()])
                    number += 1
        except OSError as error:
            raise SystemExit(f"The file could not be written ({error.strerror}).") from None
    say(f"Wrote {counted(number, 'entry', 'entries')}.")


def _read(source: Source, args: Namespace, source_name: str) -> tuple[list[Listed], list[str]]:
    """Return what the rows of a file add, and the rows that cannot be read."""
    listed, invalid = [], []
    read = list_reader(args.region, args.number_check).read
    with source.open() as rows:
        if missing_columns(source, rows.columns, [args.column]):
            raise ValueError(f"The file has no column {args.column}. Give --column. Nothing was added.")
        for row in rows.rows([args.column]):
            if isinstance(row, InvalidRow):
                invalid.append(f"row {row.number}: {row.reason}")
                continue
            try:
                recipient = recipient_key(read(row.values[0]))
            except InvalidRecipientError as error:
                invalid.append(f"row {row.number} {error}")
            else:
                listed.append(Listed(recipient, args.reason, source_name, args.channel, args.conn_id or ""))
    return listed, invalid


def _is_export(source: Source) -> bool:
    with source.open() as rows:
        return rows.columns is not None and set(_EXPORTED) <= set(rows.columns)


def _restored(source: Source) -> Iterator[Suppression]:
    with source.open() as rows:
        for row in rows.rows(_EXPORTED):
            try:
                if isinstance(row, InvalidRow):
                    raise ValueError
                hexadecimal, key_id, channel, conn_id, reason, name, moment = (
                    "" if value is None else str(value) for value in row.values
                )
                check_entry(reason=reason, channel=channel, source=name)
                hashed, added_at = bytes.fromhex(hexadecimal), datetime.fromisoformat(moment).astimezone(UTC)
                if len(hashed) != HASH_BYTES:
                    # It would match no recipient.
                    raise ValueError
                yield Suppression(hashed, key_id, channel, conn_id, reason, name, added_at)
            except (ValueError, OverflowError):
                raise ValueError(f"Row {row.number} is not as an export has it. Earlier rows may be added.") from None


def _line(entry: Suppression) -> dict[str, Any]:
    return {
        "recipient_hash": entry.recipient_hash.hex()[:_SHOWN],
        "channel": entry.channel,
        "conn_id": entry.conn_id or "all",
        "reason": entry.reason,
        "source": entry.source,
        "added_at": to_iso_time(entry.added_at),
    }


def _where(args: Namespace) -> dict[str, str]:
    given = {"reason": args.reason, "channel": args.channel, "conn_id": args.conn_id}
    return {name: value for name, value in given.items() if value is not None}


def _read_recipients(recipients: list[str]) -> list[str]:
    """Return the recipients of a command, of which - stands for lines of standard input."""
    if "-" not in recipients:
        return recipients
    lines = [text for line in sys.stdin if (text := line.strip())]
    return [*(recipient for recipient in recipients if recipient != "-"), *lines]


def _read_recipient(recipient: str | None, reader: RecipientReader) -> str | None:
    if recipient is None:
        return None
    try:
        return recipient_key(reader.read(typed(recipient)))
    except InvalidRecipientError as error:
        raise SystemExit(f"The recipient {error}.") from None


@contextlib.contextmanager
def _list_of_tasks() -> Iterator[SuppressionTable]:
    """Open the list to add to it, if it is that of the tasks, and record its database."""
    with open_database() as database:
        refuse_other_database(database, "A task would not see the entries, so nothing was added.")
        yield SuppressionTable(database)
        record_database(database)


@contextlib.contextmanager
def _value_errors_shown() -> Iterator[None]:
    """End the command with the text of a ``ValueError``. Here these texts are for users, and show no recipient."""
    try:
        yield
    except ValueError as error:
        raise SystemExit(str(error)) from None
