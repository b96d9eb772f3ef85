"""The contact table and its rows (INTERFACE.md 4.9 to 4.13). Authors name columns; ids are looked up."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any, ClassVar, Literal

from airflow.sdk.exceptions import AirflowFailException, AirflowSkipException

from cpaas_provider.operators import _masking as masking
from cpaas_provider.operators.base import CpaasOperator, select_fields
from cpaas_provider.operators.base_idempotent import IdempotentOperator

if TYPE_CHECKING:
    from airflow.sdk import Context

    from cpaas_provider.api.client import CpaasClient
    from cpaas_provider.hooks.connection import CpaasConnection
    from cpaas_provider.sending.spec import Outcome, SendSpec

# What a template renders where there is no row id yet.
_NO_ROW = frozenset({"", "None", "null"})


class GetContactTableOperator(CpaasOperator):
    """Read the contact table's columns.

    :param cpaas_conn_id: the connection to use (templated)
    :returns: ``{"id", "columns": [{"id", "name", "type"}]}``
    """

    def request(self, client: CpaasClient, connection: CpaasConnection) -> dict[str, Any]:
        """Read the table."""
        table = client.get_contact_table()
        columns = [{"id": column.id, "name": column.name, "type": column.type} for column in table.columns]
        return {"id": table.id, "columns": columns}


class GetContactRowOperator(CpaasOperator):
    """Read one row.

    The cells are personal data, and the XCom contains them. ``return_fields`` narrows them. The task fails at once if
    there is no row with that id.

    :param row_id: the row's id (templated)
    :param return_fields: the column names to return. Default: all
    :param cpaas_conn_id: the connection to use (templated)
    :returns: ``{"row_id", "columns": {name: value}}``
    """

    template_fields = ("row_id", "cpaas_conn_id")

    def __init__(self, *, row_id: str, return_fields: Sequence[str] | None = None, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.row_id = row_id
        self.return_fields = return_fields

    def request(self, client: CpaasClient, connection: CpaasConnection) -> dict[str, Any]:
        """Read the row."""
        from cpaas_provider.contacts.mapping.columns import ContactColumns

        record = client.get_contact_row(self.row_id)
        table = record.table or client.get_contact_table()
        cells = ContactColumns(table).decode(record.row.columns)
        return {"row_id": record.row.id, "columns": select_fields(cells, self.return_fields)}


class _WriteContactRowOperator(CpaasOperator):
    """What creating and changing rows have in common: cells by column name."""

    masked_fields: ClassVar[Mapping[str, Callable[[Any], Any]]] = {"columns": masking.cells}
    template_fields_renderers: ClassVar[dict[str, str]] = {"columns": "json"}

    def __init__(
        self, *, columns: Mapping[str, Any], empty_cell_value: Literal["null", "empty"] = "null", **kwargs: Any
    ) -> None:
        super().__init__(**kwargs)
        self.columns = columns
        self.empty_cell_value = empty_cell_value

    def cells(self, client: CpaasClient) -> dict[str, Any]:
        """Return the cells by column id, checked against the table as it is now."""
        from cpaas_provider.contacts.mapping.columns import ContactColumns

        columns = ContactColumns(client.get_contact_table())
        return columns.encode(
            self.rendered("columns"),
            default_region=client.settings.default_region,
            empty_cell_value=self.empty_cell_value,
        )


class _CreatingOperator(_WriteContactRowOperator, IdempotentOperator):
    """What operators that add a row have in common: a task instance adds one row, in whatever try."""

    def build_request(self, client: CpaasClient, connection: CpaasConnection) -> SendSpec:
        """Return the one creation."""
        from cpaas_provider.sending.spec import SendSpec

        cells: dict[str, Any] = {}
        return SendSpec(
            operation="create_contact_row",
            # Before it exists a row has no name of its own: it is the task instance's row.
            recipients=("row",),
            body={"columns": self.rendered("columns"), "empty_cell_value": self.empty_cell_value},
            # A row that an earlier try added needs no look at the table.
            preflight=lambda: cells.update(self.cells(client)),
            send=partial(self._create, client, cells),
        )

    def result(self, client: CpaasClient, outcome: Outcome) -> dict[str, Any]:
        """Return the row's id."""
        created = (outcome.settled[-1].result if outcome.settled else None) or {}
        row_id = created.get("row_id", created.get("id"))
        return {"row_id": row_id, "created": bool(outcome.settled)}

    def _create(
        self, client: CpaasClient, cells: dict[str, Any], recipients: tuple[str, ...], reference: str, again: bool
    ) -> dict[str, Any]:
        return {"row_id": client.create_contact_row(cells).row.id}


class CreateContactRowOperator(_CreatingOperator):
    """Create a row, at most once per task instance, across retries, crashes and clears.

    The task fails at once if a column is unknown or a value does not fit its type. It also fails at once if the
    outcome of the creation is unknown, unless ``on_unknown`` is ``skip`` or ``resend``.

    :param columns: cells by column name; ``None`` or blank text leaves a cell empty (templated)
    :param empty_cell_value: how an empty cell is sent: ``null`` or ``empty`` (an empty string)
    :param cpaas_conn_id: the connection to use (templated)
    :returns: the row's id, and whether it is known:

        | Key | Value |
        |---|---|
        | ``row_id`` | Id of the row, null if the outcome is unknown. |
        | ``created`` | True if the row was created, false if the outcome is unknown. |
        | ``unknown_recipients`` | 1 if the outcome is unknown, only with ``on_unknown="skip"``. Otherwise 0. |
        | ``unknown_references`` | Reference of the request of unknown outcome. |
    """

    template_fields = ("columns", "cpaas_conn_id")


class UpdateContactRowOperator(_WriteContactRowOperator):
    """Update cells of a row. The other cells do not change.

    The task fails at once if there is no row with that id. It also fails at once if a column is unknown, or if a value
    does not fit its type. An update is idempotent, so the task's retries send it again.

    :param row_id: the row's id (templated)
    :param columns: cells by column name; ``None`` or blank text clears a cell (templated)
    :param empty_cell_value: how a cleared cell is sent: ``null`` or ``empty`` (an empty string)
    :param cpaas_conn_id: the connection to use (templated)
    :returns: ``{"row_id", "created": false}``
    """

    template_fields = ("row_id", "columns", "cpaas_conn_id")

    def __init__(self, *, row_id: str, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.row_id = row_id

    def request(self, client: CpaasClient, connection: CpaasConnection) -> dict[str, Any]:
        """Update the row."""
        return {"row_id": client.update_contact_row(self.row_id, self.cells(client)).row.id, "created": False}


class UpsertContactRowOperator(_CreatingOperator):
    """Update a row, or create it if there is none yet.

    With ``key`` the provider finds the row in the key map that ``SyncContactsOperator`` uses. It sends only cells that
    changed, and creates the row once, across all runs and tasks. Without ``key`` the DAG must store the row's id,
    because the service cannot list rows. A task instance then creates at most one row.

    The task fails at once if a column is unknown or a value does not fit its type. It also fails at once if the
    outcome of a creation is unknown, unless ``on_unknown`` is ``skip`` or ``resend``.

    :param columns: cells by column name; ``None`` clears a cell (templated)
    :param key: the row's key in the key map: a value, or a list of values for several key columns (templated)
    :param map_name: the key map, as of ``SyncContactsOperator`` (templated)
    :param row_id: the row's id, instead of a key. Without an id, or with an empty one, a row is created (templated)
    :param create_if_missing: create a row if the one of ``row_id`` or ``key`` does not exist. Otherwise the task fails
    :param empty_cell_value: how a cleared cell is sent: ``null`` or ``empty`` (an empty string)
    :param cpaas_conn_id: the connection to use (templated)
    :returns: the row's id, and whether it was created:

        | Key | Value |
        |---|---|
        | ``row_id`` | Id of the row, null if the outcome is unknown. |
        | ``created`` | Whether the row was created. |
        | ``unknown_recipients`` | 1 if the outcome is unknown, only with ``on_unknown="skip"``. Otherwise 0. |
        | ``unknown_references`` | Reference of the request of unknown outcome. Empty with ``key``. |
    """

    template_fields = ("row_id", "key", "map_name", "columns", "cpaas_conn_id")
    masked_fields: ClassVar[Mapping[str, Callable[[Any], Any]]] = {
        "columns": masking.cells,
        # Often a number or an address.
        "key": masking.secret,
    }

    def __init__(
        self,
        *,
        row_id: str | None = None,
        key: Any = None,
        map_name: str = "default",
        create_if_missing: bool = True,
        **kwargs: Any,
    ) -> None:
        super().__init__(**kwargs)
        if row_id is not None and key is not None:
            raise ValueError(f"{self}: row_id and key exclude each other: give the one that names the row.")
        self.row_id = row_id
        self.key = key
        self.map_name = map_name
        self.create_if_missing = create_if_missing
        self.keyed = key is not None

    def carry_out(
        self, context: Context, client: CpaasClient, connection: CpaasConnection, deadline: str | None
    ) -> Any:
        """Update the row, or create it."""
        if self.keyed:
            return self._by_key(context, client, connection)
        from cpaas_provider.api.errors import CpaasNotFoundError

        # Native rendering makes a number of digits.
        row_id = "" if self.row_id is None else str(self.row_id).strip()
        if row_id not in _NO_ROW:
            try:
                row = client.update_contact_row(row_id, self.cells(client)).row
            except CpaasNotFoundError:
                if not self.create_if_missing:
                    raise
                self.log.info("The list no longer has a row with this id. Creating a new one.")
            else:
                return {"row_id": row.id, "created": False, "unknown_recipients": 0, "unknown_references": []}
        return super().carry_out(context, client, connection, deadline)

    def result(self, client: CpaasClient, outcome: Outcome) -> dict[str, Any]:
        """Return the row's id; a row that an earlier try created is brought to what the cells are now."""
        result = super().result(client, outcome)
        if outcome.earlier and result["row_id"] is not None:
            client.update_contact_row(result["row_id"], self.cells(client))
        return result

    def _by_key(self, context: Context, client: CpaasClient, connection: CpaasConnection) -> dict[str, Any]:
        from cpaas_provider.operators._runtime.contact_row import upsert_by_key

        row = upsert_by_key(self, context, client, connection, self._install_stop_signal())
        if row.row_id is None and not row.unknown:
            raise AirflowFailException(
                "The key map has no row of this key, and create_if_missing is False. Nothing was sent."
            )
        return {
            "row_id": row.row_id,
            "created": row.created,
            "unknown_recipients": int(row.unknown),
            "unknown_references": [],
        }


class DeleteContactRowOperator(CpaasOperator):
    """Delete a row.

    The task fails at once if there is no row with that id, or is skipped with ``skip_if_missing``. A deletion is
    idempotent, so the task's retries send it again.

    :param row_id: the row's id (templated)
    :param skip_if_missing: skip the task if there is no such row, instead of failing it
    :param cpaas_conn_id: the connection to use (templated)
    :returns: ``{"row_id", "deleted": true}``
    """

    template_fields = ("row_id", "cpaas_conn_id")

    def __init__(self, *, row_id: str, skip_if_missing: bool = False, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.row_id = row_id
        self.skip_if_missing = skip_if_missing

    def request(self, client: CpaasClient, connection: CpaasConnection) -> dict[str, Any]:
        """Delete the row."""
        from cpaas_provider.api.errors import CpaasNotFoundError

        try:
            client.delete_contact_row(self.row_id)
        except CpaasNotFoundError:
            if self.skip_if_missing:
                raise AirflowSkipException("There is no row with this id. Nothing was deleted.") from None
            raise
        return {"row_id": self.row_id, "deleted": True}
