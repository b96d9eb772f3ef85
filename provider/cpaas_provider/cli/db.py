"""``airflow cpaas db ...``: the provider's own database."""

from __future__ import annotations

import contextlib
import sys
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any, NoReturn

from cpaas_provider.api.amounts import counted

if TYPE_CHECKING:
    from cpaas_provider.database.database import Database


def cpaas_db_migrate(args: Any) -> None:
    """Create the database or upgrade it, and print where it is."""
    from cpaas_provider.database.migrations import REVISIONS

    with _database() as database:
        _say(f"The database {database.redacted_url} is up to date (version {REVISIONS[-1]}).")


def cpaas_db_prune(args: Any) -> None:
    """Delete what is older than a number of days, and print how much."""
    from cpaas_provider.delivery.tracking.retention import prune

    before, lookups_before = _ago(args.days), _ago(args.lookup_days)
    with _database() as database:
        for table, gone in prune(database, before, lookups_before):
            _say(f"{table}: {counted(gone, 'row')} deleted.")


def cpaas_db_erase(args: Any) -> None:
    """Erase a recipient from delivery reports and contact maps, and print how many rows named it."""
    from cpaas_provider.contacts.key_map.erasure import erase_entries
    from cpaas_provider.database.recipients.frequency import erase_counts
    from cpaas_provider.database.recipients.suppressions import SuppressionTable
    from cpaas_provider.delivery.tracking.erasure import erase
    from cpaas_provider.delivery.tracking.mentions import UnknownRecipientError, find

    recipient = sys.stdin.readline().strip() if args.recipient == "-" else args.recipient
    with _database() as database:
        try:
            wanted = find(recipient, args.region)
        except UnknownRecipientError as error:
            _fail(str(error))
        # Before the reports: what is deleted is overwritten at their end.
        entries = erase_entries(database, recipient, args.region, wanted.keys)
        if entries.removed:
            _say(
                f"Removed {counted(entries.removed, 'entry', 'entries')} from {counted(entries.maps, 'contact map')}. "
                "The contact list and the source still hold the recipient. Remove it there too, or the next sync "
                "creates its row again."
            )
        gone, kept = SuppressionTable(database).erase(wanted.keys)
        messages = erase_counts(database, wanted.keys)
        erased = erase(database, recipient, args.region)
    _say(
        f"Erased the recipient, read as {erased.read_as}, from {counted(erased.rows, 'row')}. Delivery counts are "
        "unchanged, except that messages in flight count as undelivered."
    )
    if messages:
        _say(f"Removed {counted(messages, 'message')} that frequency caps counted.")
    if gone:
        _say(f"Removed {counted(gone, 'entry', 'entries')} from the suppression list.")
    if kept:
        _say(
            f"Not removed from the suppression list: {counted(kept, 'entry', 'entries')}. The recipient opted out or "
            "complained, and would else be sent to again. The entry is a keyed hash. `airflow cpaas suppressions "
            "remove` removes it."
        )
    if entries.busy:
        _fail(
            f"Not removed from contact maps: {counted(entries.busy, 'entry', 'entries')}, because a task syncs these "
            "rows now. Run the same command again after it."
        )
    if erased.leftovers:
        _fail(
            "The database file may still hold deleted data. It could not be cleaned, because another process reads it "
            "or free space is missing. Run the same command again."
        )


@contextlib.contextmanager
def _database() -> Iterator[Database]:
    from cpaas_provider.database.database import open_database
    from cpaas_provider.database.errors import DatabaseError

    try:
        with open_database() as database:
            yield database
    except DatabaseError as error:
        _fail(str(error))


def _ago(days: int) -> datetime:
    return datetime.now(UTC) - timedelta(days=days)


def _say(words: str) -> None:
    sys.stdout.write(f"{words}\n")


def _fail(words: str) -> NoReturn:
    sys.stderr.write(f"{words}\n")
    raise SystemExit(1)
