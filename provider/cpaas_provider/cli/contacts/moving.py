"""``airflow cpaas contacts move-map``: move a key map to another connection, name or list, or rename its key."""

from __future__ import annotations

import asyncio
from argparse import Namespace

from cpaas_provider.api.amounts import counted
from cpaas_provider.cli.contacts.files import open_key_map
from cpaas_provider.cli.running import connection_of, guarded
from cpaas_provider.cli.terminal import say
from cpaas_provider.contacts.key_map.key_map import KeyMap
from cpaas_provider.contacts.key_map.moving import Destination, move_map
from cpaas_provider.contacts.sync.rows.finder import WITH_ROW
from cpaas_provider.contacts.sync.verify import Verification, VerifyReport
from cpaas_provider.hooks.connection import CpaasConnection

SAMPLE = 20
"""The number of rows that are read at the new list."""


@guarded
def cpaas_contacts_move_map(args: Namespace) -> None:
    """Move a key map."""
    conn_id = args.conn_id if args.to_conn_id is None else args.to_conn_id
    name = args.map_name if args.to_map is None else args.to_map
    with open_key_map(args) as key_map:
        connection = connection_of(conn_id)
        with connection.make_client() as client:
            table_id = client.get_contact_table().id
        destination = Destination(conn_id, name, connection.base_url, table_id)
        if destination.is_other_list_of(key_map):
            asyncio.run(_check_rows(key_map, connection))
        move_map(key_map, destination, args.key)
        entries = counted(sum(key_map.counts().values()), "entry", "entries")
    say(
        f"Moved contact map {args.map_name!r} of connection {args.conn_id!r} with {entries}. It is map {name!r} of "
        f"connection {conn_id!r} now."
    )


async def _check_rows(key_map: KeyMap, connection: CpaasConnection) -> None:
    """Refuse the move unless most rows of a sample are in the list of a connection, with the cells that are known.

    Another list may have the same row ids, so a row without a known cell proves nothing.
    """
    report = VerifyReport()
    async with await asyncio.to_thread(connection.make_async_client) as client:
        table = await client.get_contact_table()
        verification = Verification(key_map, client, table, report, numbers=client.settings.numbers)
        await verification.run(SAMPLE, lambda checked, total: None, with_cells=True)
    if not report.checked and any(map(key_map.counts().get, WITH_ROW)):
        raise SystemExit(
            "The map knows no cell of a row that is in step, so nothing shows whether the list has its rows. Nothing "
            "was changed. Run a sync on the connection of the map first. If that is not possible, import the row ids "
            "into another map with: airflow cpaas contacts import-map"
        )
    if report.checked and 2 * report.equal <= report.checked:
        raise SystemExit(
            f"The list does not have the rows of the map: {counted(report.checked, 'row')} read, "
            f"{report.gone:,} are not there, {report.different:,} have other cells, {report.unreadable:,} cannot be "
            f"read, and {report.unknown:,} have no cell to compare. Nothing was changed. Check the connection. If the "
            "service moved the list under new row ids, import these into another map with: airflow cpaas contacts "
            "import-map"
        )
