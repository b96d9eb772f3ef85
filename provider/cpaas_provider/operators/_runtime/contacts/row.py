"""Rows of the contact list: one that a task instance adds once, and one that is found by its key."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import partial
from typing import TYPE_CHECKING, Any, Literal

from airflow.sdk.exceptions import AirflowFailException

from cpaas_provider.api.errors import CpaasNotFoundError
from cpaas_provider.contacts.errors import StoppedError
from cpaas_provider.contacts.key_map.key_map import KeyMap
from cpaas_provider.contacts.key_map.maps import open_map
from cpaas_provider.contacts.mapping.columns import ContactColumns
from cpaas_provider.contacts.sync.decisions import SyncRules
from cpaas_provider.contacts.sync.single_row import RowUpsert, SingleRow, key_hash
from cpaas_provider.operators._runtime import task_log
from cpaas_provider.operators._runtime.runner import Attempt
from cpaas_provider.operators._runtime.shared_database import check_database
from cpaas_provider.operators._runtime.single.phone import latest_result
from cpaas_provider.sending.errors import StoppedError as NotBegunError
from cpaas_provider.sending.shutdown import AnswerNotAwaitedError
from cpaas_provider.sending.spec import SendSpec

if TYPE_CHECKING:
    from cpaas_provider.api.client import CpaasClient
    from cpaas_provider.operators._runtime.delivery.reports import DeliveryReports
    from cpaas_provider.operators._runtime.runtime import TaskRuntime
    from cpaas_provider.operators._runtime.single.send import SingleSend
    from cpaas_provider.sending.shutdown import StopSignal
    from cpaas_provider.sending.spec import Outcome

_UNKNOWN = {"fail": "fail", "skip": "skip", "resend": "create"}
_NO_ROW = frozenset({"", "None", "null"})
"""What a template renders where there is no row id yet."""


@dataclass(frozen=True)
class RowCells:
    """The cells of one row by column name.

    :param empty_cell_value: how an empty cell is sent
    """

    columns: Mapping[str, Any] = field(repr=False)
    empty_cell_value: Literal["null", "empty"]

    def encode(self, client: CpaasClient) -> dict[str, Any]:
        """Return the cells by column id, checked against the table as it is now."""
        return self.encode_for(ContactColumns(client.get_contact_table()), client)

    def encode_for(self, columns: ContactColumns, client: CpaasClient) -> dict[str, Any]:
        """Return the cells by column id of a table."""
        return columns.encode(
            self.columns, default_region=client.settings.default_region, empty_cell_value=self.empty_cell_value
        )


class RowCreation:
    """One row that a task instance adds, in whatever try.

    :param updates_earlier: whether a row that an earlier try created is brought to what the cells are now
    """

    def __init__(self, cells: RowCells, *, updates_earlier: bool = False) -> None:
        self._cells = cells
        self._updates_earlier = updates_earlier
        self._encoded: dict[str, Any] = {}

    def build_spec(self, runtime: TaskRuntime, reports: DeliveryReports) -> SendSpec:
        """Return the one creation."""
        return SendSpec(
            operation="create_contact_row",
            # Before it exists a row has no name of its own: it is the task instance's row.
            recipients=("row",),
            body={"columns": self._cells.columns, "empty_cell_value": self._cells.empty_cell_value},
            # A row that an earlier try added needs no look at the table.
            preflight=partial(self._encode, runtime),
            send=partial(self._send, runtime),
        )

    def result(self, outcome: Outcome, runtime: TaskRuntime) -> dict[str, Any]:
        """Return the row's id."""
        created = latest_result(outcome)
        row_id = created.get("row_id", created.get("id"))
        if self._updates_earlier and outcome.earlier and row_id is not None:
            runtime.client.update_contact_row(row_id, self._cells.encode(runtime.client))
        return {"row_id": row_id, "created": bool(outcome.settled)}

    def _encode(self, runtime: TaskRuntime) -> None:
        self._encoded = self._cells.encode(runtime.client)

    def _send(self, runtime: TaskRuntime, recipients: tuple[str, ...], reference: str, again: bool) -> dict[str, Any]:
        return {"row_id": runtime.client.create_contact_row(self._encoded).row.id}


class RowUpsertById(Attempt):
    """One try that updates the row of an id, or creates one.

    :param row_id: as rendered; without an id, or with an empty one, a row is created
    :param creation: the try that creates it
    """

    is_send = has_task_journal = True

    def __init__(
        self, row_id: Any, cells: RowCells, runtime: TaskRuntime, *, create_if_missing: bool, creation: SingleSend
    ) -> None:
        # Native rendering makes a number of digits.
        self._row_id = "" if row_id is None else str(row_id).strip()
        self._cells = cells
        self._runtime = runtime
        self._create_if_missing = create_if_missing
        self._creation = creation

    def run(self) -> dict[str, Any]:
        """Update the row, or create it."""
        if self._row_id not in _NO_ROW:
            client = self._runtime.client
            self._runtime.log.info("%s", self._creation.begin_line)
            try:
                row = client.update_contact_row(self._row_id, self._cells.encode(client)).row
            except CpaasNotFoundError:
                if not self._create_if_missing:
                    raise
                self._runtime.log.info("The list no longer has a row with this id. Creating a new one.")
            else:
                result = _result(row.id)
                self._runtime.log.info("%s", task_log.done(self._creation.task_type, result))
                return result
            return self._creation.send()
        return self._creation.run()

    def push_report(self, *, quietly: bool) -> bool:
        """Push the report of the creation."""
        return self._creation.push_report(quietly=quietly)


@dataclass(frozen=True)
class KeyedRow:
    """A row of the key map, and what its cells are to be."""

    key: Any = field(repr=False)
    map_name: str
    cells: RowCells
    create_if_missing: bool
    on_unknown: str


class KeyedUpsert(Attempt):
    """One try that creates or updates the row of a key, through the key map that a sync uses."""

    is_send = has_task_journal = True

    def __init__(self, row: KeyedRow, runtime: TaskRuntime, *, task_type: str, begin_line: str) -> None:
        self._row = row
        self._runtime = runtime
        self._task_type = task_type
        self._begin_line = begin_line

    def run(self) -> dict[str, Any]:
        """Create or update the row."""
        runtime = self._runtime
        client = runtime.client
        runtime.log.info("%s", self._begin_line)
        found = self._upsert(client)
        if found.row_id is None and not found.unknown:
            raise AirflowFailException(
                "The key map has no row of this key, and create_if_missing is False. Nothing was sent."
            )
        result = _result(found.row_id, created=found.created, unknown=int(found.unknown))
        runtime.log.info("%s", task_log.done(self._task_type, result))
        return result

    def _upsert(self, client: CpaasClient) -> SingleRow:
        row, runtime = self._row, self._runtime
        table = client.get_contact_table()
        cells = row.cells.encode_for(ContactColumns(table), client)
        check_database(runtime.database)
        key_map = open_map(
            runtime.database,
            conn_id=runtime.conn_id,
            base_url=runtime.connection.base_url,
            table_id=table.id,
            name=row.map_name,
        )
        upsert = RowUpsert(
            key_map,
            client,
            f"Task instance {runtime.cli_address}",
            rules=SyncRules(mode="upsert" if row.create_if_missing else "update", on_unknown=_UNKNOWN[row.on_unknown]),
            call=partial(_call, runtime.stop, client),
            pause=runtime.stop.pause,
        )
        return upsert.run(_hash(key_map, row.key), cells)


def _result(row_id: str | None, *, created: bool = False, unknown: int = 0) -> dict[str, Any]:
    return {"row_id": row_id, "created": created, "unknown_recipients": unknown, "unknown_references": []}


def _hash(key_map: KeyMap, key: Any) -> bytes:
    try:
        return key_hash(key_map, key)
    except ValueError as error:
        raise AirflowFailException(f"The key {error}. Nothing was sent. Correct the key of the row.") from None


def _call(stop: StopSignal, client: CpaasClient, request: Callable[[], Any]) -> Any:
    """Make a request; where the task has to stop before it leaves, say that nothing left."""
    try:
        return stop.call(request, client)
    except AnswerNotAwaitedError:
        raise
    except NotBegunError as error:
        raise StoppedError(str(error)) from None
