"""``airflow cpaas db ...``: the provider's own database."""

from __future__ import annotations

from argparse import Namespace
from collections.abc import Callable, Iterable
from datetime import UTC, datetime, timedelta

from cpaas_provider.api.amounts import counted
from cpaas_provider.cli.messages.campaign_database import describe_other_database
from cpaas_provider.cli.running import FAILED, describe, guarded
from cpaas_provider.cli.terminal import confirm, say, typed, warn
from cpaas_provider.contacts.key_map.erasure import erase_entries
from cpaas_provider.database import REVISIONS
from cpaas_provider.database.database import Database, open_database
from cpaas_provider.database.recipients.frequency import erase_counts
from cpaas_provider.database.recipients.suppressions import SuppressionTable
from cpaas_provider.database.schema.campaigns import task_journals
from cpaas_provider.database.task_journals import prune_journals
from cpaas_provider.delivery.tracking.erasure import erase, find_remaining
from cpaas_provider.delivery.tracking.mentions import RecipientMatcher, UnknownRecipientError, find
from cpaas_provider.delivery.tracking.retention import prune

_RUN_THERE = "Run the command where [cpaas] database names it, too."


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
        say(f"{task_journals.name}: {counted(prune_journals(database, before), 'row')} deleted.")
        other = describe_other_database(database)
    if other:
        warn(f"{other} That database was not pruned. {_RUN_THERE}")
        raise SystemExit(FAILED)


@guarded
def cpaas_db_erase(args: Namespace) -> None:
    """Erase a recipient from every table, and print what was erased and what may be left.

    A part that fails does not keep the others from their work.
    """
    recipient = typed(args.recipient)
    confirm("Erase this recipient from every table? This cannot be undone.", args)
    with open_database() as database:
        try:
            matcher = find(recipient, args.region)
        except UnknownRecipientError as error:
            raise SystemExit(str(error)) from None
        # The reports come last: their erasure ends by overwriting all deleted data in a SQLite file.
        parts: tuple[tuple[str, Callable[[], Iterable[str]]], ...] = (
            ("contact maps", lambda: _erase_from_maps(database, recipient, args.region, matcher)),
            ("the suppression list", lambda: _erase_from_suppressions(database, matcher)),
            ("frequency caps", lambda: _erase_from_counts(database, matcher)),
            ("delivery reports", lambda: _erase_from_reports(database, recipient, args.region)),
        )
        remaining: list[str] = []
        for part, erase_part in parts:
            try:
                remaining += erase_part()
            except Exception as error:  # noqa: BLE001 - the other parts must be erased all the same
                remaining.append(describe(error, f"The erasure from {part}"))
        try:
            named = find_remaining(database, recipient, args.region)
        except Exception as error:  # noqa: BLE001 - what was not erased is still to be printed
            named = {}
            remaining.append(describe(error, "The search for what is left"))
        other = describe_other_database(database)
    if named:
        tables = ", ".join(f"{table} ({counted(number, 'row')})" for table, number in named.items())
        say(
            f"Not erased: {tables}. These rows name the recipient in a name that you gave, such as a run id, or in an "
            "id that the service gave. Journals need it, so that a retry does not send again."
        )
    if other:
        warn(f"{other} That database was not searched. {_RUN_THERE}")
    if remaining:
        failures = "\n".join(remaining)
        raise SystemExit(f"The database may still contain the recipient. Run the same command again.\n{failures}")
    if named:
        raise SystemExit("The database still contains the recipient, in names and ids that are not erased.")
    if other:
        raise SystemExit(FAILED)


def _erase_from_maps(database: Database, recipient: str, region: str | None, matcher: RecipientMatcher) -> list[str]:
    entries = erase_entries(database, recipient, region, matcher.keys)
    if entries.removed:
        say(
            f"Removed {counted(entries.removed, 'entry', 'entries')} from {counted(entries.maps, 'contact map')}. "
            "The contact list and the source still hold the recipient. Remove it there too, or the next sync "
            "creates its row again."
        )
    if not entries.busy:
        return []
    busy = counted(entries.busy, "entry", "entries")
    return [f"Not removed from contact maps: {busy}, because a task syncs these rows now."]


def _erase_from_suppressions(database: Database, matcher: RecipientMatcher) -> list[str]:
    gone, kept = SuppressionTable(database).erase(matcher.keys)
    if gone:
        say(f"Removed {counted(gone, 'entry', 'entries')} from the suppression list.")
    if kept:
        say(
            f"Not removed from the suppression list: {counted(kept, 'entry', 'entries')}. The recipient opted out or "
            "complained, and would else be sent to again. The entry is a keyed hash. `airflow cpaas suppressions "
            "remove` removes it."
        )
    return []


def _erase_from_counts(database: Database, matcher: RecipientMatcher) -> list[str]:
    if messages := erase_counts(database, matcher.keys):
        say(f"Removed {counted(messages, 'message')} that frequency caps counted.")
    return []


def _erase_from_reports(database: Database, recipient: str, region: str | None) -> list[str]:
    erased = erase(database, recipient, region)
    say(
        f"Erased the recipient, read as {erased.read_as}, from {counted(erased.rows, 'row')}. Delivery counts are "
        "unchanged, except that messages in flight count as undelivered."
    )
    if erased.unreadable:
        say(
            f"Deleted {counted(erased.unreadable, 'report')} that could not be searched, because they may have named "
            "the recipient."
        )
    if not erased.leftovers:
        return []
    return [
        "The database file may still hold deleted data. It could not be cleaned, because another process reads it or "
        "free space is missing."
    ]
