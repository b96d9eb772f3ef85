"""``airflow cpaas db ...``: the provider's own database."""

from __future__ import annotations

from argparse import Namespace
from datetime import UTC, datetime, timedelta

from cpaas_provider.api.amounts import counted
from cpaas_provider.cli.running import guarded
from cpaas_provider.cli.terminal import say, typed
from cpaas_provider.contacts.key_map.erasure import erase_entries
from cpaas_provider.database.database import open_database
from cpaas_provider.database.migrations import REVISIONS
from cpaas_provider.database.recipients.frequency import erase_counts
from cpaas_provider.database.recipients.suppressions import SuppressionTable
from cpaas_provider.delivery.tracking.erasure import erase
from cpaas_provider.delivery.tracking.mentions import UnknownRecipientError, find
from cpaas_provider.delivery.tracking.retention import prune


@guarded
def cpaas_db_migrate(args: Namespace) -> None:
    """Create the database or upgrade it, and print where it is."""
    with open_database() as database:
        say(f"The database {database.redacted_url} is up to date (version {REVISIONS[-1]}).")


@guarded
def cpaas_db_prune(args: Namespace) -> None:
    """Delete what is older than a number of days, and print how much."""
    now = datetime.now(UTC)
    before, lookups_before = now - timedelta(days=args.days), now - timedelta(days=args.lookup_days)
    with open_database() as database:
        for table, gone in prune(database, before, lookups_before):
            say(f"{table}: {counted(gone, 'row')} deleted.")


@guarded
def cpaas_db_erase(args: Namespace) -> None:
    """Erase a recipient from delivery reports and contact maps, and print how many rows named it."""
    recipient = typed(args.recipient)
    with open_database() as database:
        try:
            wanted = find(recipient, args.region)
        except UnknownRecipientError as error:
            raise SystemExit(str(error)) from None
        # The reports come last: their erasure ends by overwriting all deleted data in a SQLite file.
        entries = erase_entries(database, recipient, args.region, wanted.keys)
        if entries.removed:
            say(
                f"Removed {counted(entries.removed, 'entry', 'entries')} from {counted(entries.maps, 'contact map')}. "
                "The contact list and the source still hold the recipient. Remove it there too, or the next sync "
                "creates its row again."
            )
        gone, kept = SuppressionTable(database).erase(wanted.keys)
        messages = erase_counts(database, wanted.keys)
        erased = erase(database, recipient, args.region)
    say(
        f"Erased the recipient, read as {erased.read_as}, from {counted(erased.rows, 'row')}. Delivery counts are "
        "unchanged, except that messages in flight count as undelivered."
    )
    if messages:
        say(f"Removed {counted(messages, 'message')} that frequency caps counted.")
    if gone:
        say(f"Removed {counted(gone, 'entry', 'entries')} from the suppression list.")
    if kept:
        say(
            f"Not removed from the suppression list: {counted(kept, 'entry', 'entries')}. The recipient opted out or "
            "complained, and would else be sent to again. The entry is a keyed hash. `airflow cpaas suppressions "
            "remove` removes it."
        )
    if entries.busy:
        raise SystemExit(
            f"Not removed from contact maps: {counted(entries.busy, 'entry', 'entries')}, because a task syncs these "
            "rows now. Run the same command again after it."
        )
    if erased.leftovers:
        raise SystemExit(
            "The database file may still hold deleted data. It could not be cleaned, because another process reads it "
            "or free space is missing. Run the same command again."
        )
