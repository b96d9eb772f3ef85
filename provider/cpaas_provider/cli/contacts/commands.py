"""The commands and options of ``airflow cpaas contacts``. Every ``airflow`` command imports this module."""

from __future__ import annotations

from airflow.cli.cli_config import ARG_OUTPUT, ARG_VERBOSE, ARG_YES, Arg

from cpaas_provider.cli.arguments import command, number, switch
from cpaas_provider.provider_info import DEFAULT_CONN_ID

_CONN_ID = Arg(
    ("--conn-id",), "Connection that leads to the contact list (default: %(default)s)", default=DEFAULT_CONN_ID
)
_MAP = Arg(
    ("--map",),
    "Name of the key map, as map_name of the operator (default: %(default)s)",
    dest="map_name",
    default="default",
    metavar="MAP",
)
_ANY_CONN_ID = Arg(("--conn-id",), "Only maps of this connection (default: all)")
_ANY_MAP = Arg(("--map",), "Only maps of this name (default: all)", dest="map_name", metavar="MAP")
_LIMIT = number("--limit", 100, "Show at most this number of unknown creations and of rejected rows of each map")
_NEW_FILE = Arg(("file",), "CSV file to write; it must not exist", metavar="FILE")
_FILE = Arg(("file",), "An export of export-map, or a CSV file with keys and row ids", metavar="FILE")
_WITHOUT_SECRET = switch(
    "--without-secret", "Leave the map's secret out: the file then cannot be imported, and shows nothing of a key"
)
_KEY_COLUMN = Arg(
    ("--key",),
    "Column with the key, named as in the source of the sync; give it again for each further column of the key. "
    "Required, except for an export",
    action="append",
    metavar="COLUMN",
)
_ROW_ID_COLUMN = Arg(
    ("--row-id-column",), "Column with the row ids (default: %(default)s)", default="row_id", metavar="COLUMN"
)
_REPLACE = switch(
    "--replace",
    "Let the file win where the map has another row id for a key, or another key for a row, and take rows from other "
    "maps of the connection",
)
_DRY_RUN = switch("--dry-run", "Check the file against the map, and write nothing")
_SAMPLE = number("--sample", 100, "Check this number of rows, chosen at random")
_ALL_ROWS = switch("--all", "Check all rows")
_MEND = switch("--mend", "Have the next sync send the cells that differ, and create the rows that are gone")
_MAX_GONE = number("--max-gone", 100, "With --mend, stop and mend none of them when more rows are gone", least=0)
_KEY_TEXT = (
    "Key of the row, as the source has it; give it again for each further part of the key. - reads a part from "
    "standard input, so that no list of processes and no shell history has it"
)
_KEY = Arg(("--key",), _KEY_TEXT, action="append", metavar="VALUE")
_REQUIRED_KEY = Arg(("--key",), _KEY_TEXT, action="append", metavar="VALUE", required=True)
_ROW_NUMBER = number("--row-number", None, "Number of the row in the source, as status shows it")
_ALL_CREATIONS = switch("--all", "All unknown creations; only with --not-created")
_ALL_REJECTED = switch("--all", "All rejected rows")
_TO_CONN_ID = Arg(("--to-conn-id",), "New connection of the map (default: the same)", metavar="CONN_ID")
_TO_MAP = Arg(("--to-map",), "New name of the map (default: the same)", metavar="MAP")
_TO_KEY = Arg(
    ("--key",),
    "New name of the key column; give it again for each further column, in the same order (default: the same)",
    action="append",
    metavar="COLUMN",
)
_CREATED = Arg(("--created",), "The contact list has the row, and this is its id", metavar="ROW_ID")
_NOT_CREATED = switch("--not-created", "The contact list has no such row; the next sync creates it")
_DECISIONS = Arg(
    ("--file",),
    "CSV file that resolves many creations. It has the columns of the key, named as in the source of the sync, or the "
    "column row with row numbers; and row_id, with a row id or the words: not created",
    metavar="FILE",
)

CONTACT_COMMANDS = (
    command(
        "status",
        "contacts.status.cpaas_contacts_status",
        (_ANY_CONN_ID, _ANY_MAP, _LIMIT, ARG_OUTPUT, ARG_VERBOSE),
        "Show key maps: rows by state, leases, unknown creations, rejected rows",
        "Show the key maps of contact lists: how many rows are in which state, which tasks hold a lease, the cursor "
        "and the key columns, and the creations whose outcome is unknown. Rows that the service rejected have their "
        "columns and the reason. Nothing of a contact is shown.",
    ),
    command(
        "export-map",
        "contacts.files.cpaas_contacts_export_map",
        (_CONN_ID, _MAP, _NEW_FILE, _WITHOUT_SECRET, ARG_VERBOSE),
        "Write a key map into a file, to move it to another database",
        "Write a key map into a new CSV file: hashes of keys, row ids, states and hashes of cells. It holds the map's "
        "secret, so only its owner may read it: with the secret, a known key can be found in the file. Refused while a "
        "task uses the map. Exit status 0 when the file is complete, 1 if not.",
    ),
    command(
        "import-map",
        "contacts.files.cpaas_contacts_import_map",
        (_CONN_ID, _MAP, _FILE, _KEY_COLUMN, _ROW_ID_COLUMN, _REPLACE, _DRY_RUN, ARG_VERBOSE),
        "Fill a key map: from an export, or from a file with the row ids of an existing list",
        "Fill a key map. An export of export-map restores the map in another database, and nothing is sent again. With "
        "--key, FILE is a CSV file with the keys in plain and the row ids of a list that exists already: the next sync "
        "then sends all cells of these rows once, and creates none of them again. Everything is checked before the "
        "first write. A run that was stopped goes on when it is started again; until then no sync uses the map. Exit "
        "status 0 when the import is complete, 1 if not.",
    ),
    command(
        "verify",
        "contacts.checks.cpaas_contacts_verify",
        (_CONN_ID, _MAP, _SAMPLE, _ALL_ROWS, _MEND, _MAX_GONE, ARG_OUTPUT, ARG_VERBOSE),
        "Compare rows of the contact list with the key map",
        "Read rows of the contact list, and compare their cells with what the key map knows of them. Shows how many "
        "rows are equal, different and gone, and which columns differ; never a value. The connection's rate and "
        "concurrency hold. Exit status 0 when nothing differs or all of it is mended, 1 if not.",
    ),
    command(
        "resolve",
        "contacts.checks.cpaas_contacts_resolve",
        (
            *(_CONN_ID, _MAP, _KEY, _ROW_NUMBER, _ALL_CREATIONS, _CREATED, _NOT_CREATED, _DECISIONS),
            *(ARG_YES, ARG_VERBOSE),
        ),
        "Decide what an unknown creation came to",
        "Decide what creations of unknown outcome came to, as the contact list itself shows: a row that is there gets "
        "its key (--created), and a row that is not there is created by the next sync (--not-created). The row id is "
        "read first, and refused if another key has it. With --file everything is checked before the first write. Exit "
        "status 0 when it is decided, 1 if not.",
    ),
    command(
        "retry-row",
        "contacts.rejected.cpaas_contacts_retry_row",
        (_CONN_ID, _MAP, _KEY, _ROW_NUMBER, _ALL_REJECTED, ARG_VERBOSE),
        "Have the next sync send a rejected row again",
        "Have the next sync send rejected rows again, although they did not change in the source. Nothing is sent now. "
        "Exit status 0 when they are marked, 1 if not.",
    ),
    command(
        "move-map",
        "contacts.moving.cpaas_contacts_move_map",
        (_CONN_ID, _MAP, _TO_CONN_ID, _TO_MAP, _TO_KEY, ARG_VERBOSE),
        "Move a key map to a renamed connection, map or key column, or to a list that moved",
        "Give a key map another connection, another name, or other names of its key columns. Without these, the map "
        "follows its connection to the base URL and contact table that it has now. For another connection, base URL or "
        "table, 20 rows of the map are read there first. The move is refused unless most of them are there, with the "
        "cells that the map knows. No entry of the map changes, and the next sync sends nothing again. Refused while a "
        "task uses the map. Exit status 0 when the map is moved, 1 if not.",
    ),
    command(
        "forget-row",
        "contacts.status.cpaas_contacts_forget_row",
        (_CONN_ID, _MAP, _REQUIRED_KEY, ARG_YES, ARG_VERBOSE),
        "Remove one row from a key map; the contact list retains it",
        "Remove the entry of one key from a key map. The contact list retains its row, and the command shows its id. "
        "The next sync creates the row again if its source has the key; syncs no longer update, clear or delete the "
        "old row. Refused while a task has a request for the row in flight, and for a creation of unknown outcome.",
    ),
    command(
        "forget-map",
        "contacts.status.cpaas_contacts_forget_map",
        (_CONN_ID, _MAP, ARG_YES, ARG_VERBOSE),
        "Remove a key map; the contact list retains its rows",
        "Remove a key map with all its entries. The contact list retains its rows, and the provider no longer knows "
        "which of them belongs to which key. The next sync creates every row of its source again. Export the map "
        "first. Refused while a task syncs the list.",
    ),
)
