"""``UpsertContactRowOperator`` with a key: one row through the key map that a sync uses."""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING, Any

from airflow.sdk.exceptions import AirflowException, AirflowFailException

from cpaas_provider.contacts.errors import ContactsError, StoppedError
from cpaas_provider.contacts.key_map.key_map import KeyMap
from cpaas_provider.contacts.key_map.maps import open_map
from cpaas_provider.contacts.mapping.columns import ContactColumns
from cpaas_provider.contacts.sync.decisions import SyncRules
from cpaas_provider.contacts.sync.single_row import RowUpsert, SingleRow, key_hash
from cpaas_provider.database.database import open_database
from cpaas_provider.database.errors import DatabaseError
from cpaas_provider.operators._runtime.campaign_database import check_database
from cpaas_provider.operators._runtime.context import cli_address
from cpaas_provider.sending.errors import SendingError
from cpaas_provider.sending.errors import StoppedError as NotBegunError
from cpaas_provider.sending.shutdown import AnswerNotAwaitedError

if TYPE_CHECKING:
    from airflow.sdk import Context

    from cpaas_provider.api.client import CpaasClient
    from cpaas_provider.hooks.connection import CpaasConnection
    from cpaas_provider.operators.contacts import UpsertContactRowOperator
    from cpaas_provider.sending.shutdown import StopSignal

_UNKNOWN = {"fail": "fail", "skip": "skip", "resend": "create"}


def upsert_by_key(
    operator: UpsertContactRowOperator,
    context: Context,
    client: CpaasClient,
    connection: CpaasConnection,
    stop: StopSignal,
) -> SingleRow:
    """Create or update the row of the operator's key.

    :raises AirflowFailException: when a retry would not help
    :raises AirflowException: when a retry may go on
    :raises CpaasError: what the request raised
    """
    table = client.get_contact_table()
    cells = ContactColumns(table).encode(
        operator.rendered("columns"),
        default_region=client.settings.default_region,
        empty_cell_value=operator.empty_cell_value,
    )
    try:
        with contextlib.ExitStack() as exit_stack:
            database = exit_stack.enter_context(open_database())
            check_database(database)
            key_map = open_map(
                database,
                conn_id=operator.cpaas_conn_id,
                base_url=connection.base_url,
                table_id=table.id,
                name=operator.map_name,
            )
            upsert = RowUpsert(
                key_map,
                client,
                f"Task instance {cli_address(context)}",
                rules=SyncRules(
                    mode="upsert" if operator.create_if_missing else "update", on_unknown=_UNKNOWN[operator.on_unknown]
                ),
                call=partial(_call, stop, client),
                pause=stop.pause,
            )
            return upsert.run(_hash(key_map, operator), cells)
    except ContactsError as error:
        raise (AirflowFailException if error.permanent else AirflowException)(str(error)) from None
    except (DatabaseError, SendingError) as error:
        raise AirflowException(str(error)) from None


def _hash(key_map: KeyMap, operator: UpsertContactRowOperator) -> bytes:
    try:
        return key_hash(key_map, operator.rendered("key"))
    except ValueError as error:
        raise AirflowFailException(f"The key {error}. Nothing was sent.") from None


def _call(stop: StopSignal, client: CpaasClient, request: Callable[[], Any]) -> Any:
    """Make a request; where the task has to stop before it leaves, say that nothing left."""
    try:
        return stop.call(request, client)
    except AnswerNotAwaitedError:
        raise
    except NotBegunError as error:
        raise StoppedError(str(error)) from None
