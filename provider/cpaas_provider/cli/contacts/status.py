"""``airflow cpaas contacts status | forget-map``: show what key maps hold, and remove a key map."""

from __future__ import annotations

from argparse import Namespace
from typing import Any

from cpaas_provider.api.amounts import counted
from cpaas_provider.cli.contacts.files import open_key_map
from cpaas_provider.cli.running import guarded
from cpaas_provider.cli.terminal import READABLE, aside, confirm, print_lines, say, to_iso_time, typed
from cpaas_provider.contacts.key_map import overview
from cpaas_provider.contacts.key_map.key_map import KeyMap
from cpaas_provider.contacts.key_map.maps import all_maps, forget_map
from cpaas_provider.contacts.key_map.resolution import entry_of_key, forget_row
from cpaas_provider.database.database import open_database


@guarded
def cpaas_contacts_status(args: Namespace) -> None:
    """Show what key maps hold."""
    with open_database() as database:
        chosen = [
            key_map
            for key_map in all_maps(database)
            if (args.conn_id is None or args.conn_id.lower() == key_map.facts.conn_id.lower())
            and args.map_name in (None, key_map.facts.name)
        ]
        shown = [(key_map, overview.status_of(key_map, limit=args.limit)) for key_map in chosen]
    if args.output in READABLE:
        _print_readable(shown, args)
    else:
        print_lines([_facts(key_map) | _more(status) for key_map, status in shown], args.output)
    if shown:
        return
    if args.conn_id is not None or args.map_name is not None:
        raise SystemExit("There is no such contact map. `airflow cpaas contacts status` shows all of them.")
    say("There is no contact map.", aside(args))


@guarded
def cpaas_contacts_forget_map(args: Namespace) -> None:
    """Remove a key map."""
    with open_key_map(args) as key_map:
        entries = counted(sum(key_map.counts().values()), "entry", "entries")
        confirm(
            f"Remove {_named(key_map)} with {entries}? The contact list retains its rows. The next sync creates "
            "every row of its source again, so that the list has them twice. This cannot be undone.",
            args,
        )
        removed = counted(forget_map(key_map), "entry", "entries")
    say(
        f"Removed {_named(key_map)} with {removed}. The contact list retains its rows. The next sync creates every row "
        "of its source again.",
    )


@guarded
def cpaas_contacts_forget_row(args: Namespace) -> None:
    """Remove one row from a key map."""
    with open_key_map(args) as key_map:
        entry = entry_of_key(key_map, [typed(part) for part in args.key])
        kept = (
            "The contact list has no row of this key."
            if entry.row_id is None
            else f"The contact list retains row {entry.row_id}, which no sync updates, clears or deletes any more."
        )
        follows = "If the source has the key, the next sync creates a row for it."
        confirm(f"Remove the entry of this key from {_named(key_map)}? {kept} {follows} This cannot be undone.", args)
        forget_row(key_map, entry)
    say(f"Removed the entry of this key from {_named(key_map)}. {kept} {follows}")


def _named(key_map: KeyMap) -> str:
    return f"contact map {key_map.facts.name!r} of connection {key_map.facts.conn_id!r}"


def _facts(key_map: KeyMap) -> dict[str, Any]:
    facts = key_map.facts
    return {
        "conn_id": facts.conn_id,
        "map": facts.name,
        "table_id": facts.table_id,
        "base_url": facts.base_url,
        "created": to_iso_time(facts.created),
    }


def _more(status: overview.MapStatus) -> dict[str, Any]:
    return {
        "counts": {overview.STATE_WORDS[state]: count for state, count in status.counts.items()},
        "leases": [
            {
                "owner": lease.owner,
                "until": to_iso_time(lease.until),
                "of": f"{lease.share:.0%} of the keys" if lease.share else "single rows",
            }
            for lease in status.leases
        ],
        "cursor": status.cursor,
        "key_columns": status.key_columns,
        "unknown": [
            {"source_row": entry.source_row, "requested": to_iso_time(entry.requested)} for entry in status.unknown
        ],
        "rejected_rows": status.rejected_rows,
        "rejected": [
            {
                "source_row": rejection.source_row,
                "columns": ", ".join(rejection.columns),
                "reason": rejection.reason,
                "first": to_iso_time(rejection.since),
                "last": to_iso_time(rejection.at),
                "times": rejection.times,
                "retry": rejection.is_retried,
            }
            for rejection in status.rejected
        ],
    }


def _print_readable(shown: list[tuple[KeyMap, overview.MapStatus]], args: Namespace) -> None:
    """Print a table of all maps, and then leases, cursor, key columns, unknown creations and rejected rows of each."""
    beside = aside(args)
    lines = [_facts(key_map) | _more(status)["counts"] for key_map, status in shown]
    print_lines([{name: line[name] for name in line if name != "base_url"} for line in lines], args.output)
    for key_map, status in shown:
        named, more = _named(key_map), _more(status)
        stored = {"cursor": status.cursor, "key_columns": ", ".join(status.key_columns)}
        for title, table in (
            (f"Leases on {named}:", more["leases"]),
            (f"Cursor and key columns of {named}:", [stored] if any(stored.values()) else []),
            (f"Unknown creations of {named}:", more["unknown"]),
            (f"Rejected rows of {named}:", more["rejected"]),
        ):
            if table:
                say(title, beside)
                print_lines(table, args.output)
        unknown = more["counts"]["unknown_creations"]
        if unknown > len(status.unknown):
            say(f"There are {counted(unknown, 'unknown creation')}. Raise --limit to show more.", beside)
        if status.rejected_rows > len(status.rejected):
            say(f"There are {counted(status.rejected_rows, 'rejected row')}. Raise --limit to show more.", beside)
        if status.rejected:
            say("They are sent again once they change in the source, or with: airflow cpaas contacts retry-row", beside)
        if unknown:
            say("Find these rows in the contact list, then run: airflow cpaas contacts resolve", beside)
        if status.is_importing:
            say("The map holds a part of an import. Run the same import-map again to finish it.", beside)
