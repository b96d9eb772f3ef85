"""The contact table and its rows (INTERFACE.md 4.9 to 4.13). Authors name columns; ids are looked up."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any, ClassVar, Literal

from airflow.sdk.exceptions import AirflowFailException, AirflowSkipException

from cpaas_provider.operators import _summaries as summaries
from cpaas_provider.operators.base import CpaasOperator, narrow
from cpaas_provider.operators.journaled import JournaledOperator

if TYPE_CHECKING:
    from airflow.sdk import Context

    from cpaas_provider.api.client import CpaasClient
    from cpaas_provider.hooks.connection import CpaasConnection
    from cpaas_provider.sending.deed import Deed, Outcome

# What a template renders where there is no row id yet.
_NO_ROW = frozenset({"", "None", "null"})


class GetContactTableOperator(CpaasOperator):
    """Read the contact table's columns.

    Returns ``{"id", "columns": [{"id", "name", "type"}]}``.

    :param cpaas_conn_id: the connection to use (templated)
    """

    def request(self, client: CpaasClient, connection: CpaasConnection) -> dict[str, Any]:
        """Read the table."""
        table = client.get_contact_table()
        columns = [{"id": column.id, "name": column.name, "type": column.type} for column in table.columns]
        return {"id": table.id, "columns": columns}


class GetContactRowOperator(CpaasOperator):
    """Read one row.

    Returns ``{"row_id", "columns": {name: value}}``. The cells are personal data and stand in the XCom;
    ``return_fields`` narrows them. Fails at once when there is no row of that id.

    :param row_id: the row's id (templated)
    :param return_fields: the column names to return; default: all
    :param cpaas_conn_id: the connection to use (templated)
    """

    template_fields = ("row_id", "cpaas_conn_id")

    def __init__(self, *, row_id: str, return_fields: Sequence[str] | None = None, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.row_id = row_id
        self.return_fields = return_fields

    def request(self, client: CpaasClient, connection: CpaasConnection) -> dict[str, Any]:
        """Read the row."""
        from cpaas_provider.contacts.columns import ContactColumns

        record = client.get_contact_row(self.row_id)
        table = record.table or client.get_contact_table()
        cells = ContactColumns(table).decode(record.row.columns)
        return {"row_id": record.row.id, "columns": narrow(cells, self.return_fields)}


class _WriteContactRowOperator(CpaasOperator):
    """What creating and changing rows have in common: cells by column name."""

    private_fields: ClassVar[Mapping[str, Callable[[Any], Any]]] = {"columns": summaries.cells}
    template_fields_renderers: ClassVar[dict[str, str]] = {"columns": "json"}

    def __init__(
        self, *, columns: Mapping[str, Any], empty_cell_value: Literal["null", "empty"] = "null", **kwargs: Any
    ) -> None:
        super().__init__(**kwargs)
        self.columns = columns
        self.empty_cell_value = empty_cell_value

    def cells(self, client: CpaasClient) -> dict[str, Any]:
        """Return the cells by column id, checked against the table as it is now."""
        from cpaas_provider.contacts.columns import ContactColumns

        columns = ContactColumns(client.get_contact_table())
        return columns.encode(
            self.private("columns"),
            default_region=client.settings.default_region,
            empty_cell_value=self.empty_cell_value,
        )


class _CreatingOperator(_WriteContactRowOperator, JournaledOperator):
    """What operators that add a row have in common: a task instance adds one row, in whatever try."""

    def deed(self, client: CpaasClient, connection: CpaasConnection) -> Deed:
        """Return the one creation."""
        from cpaas_provider.sending.deed import Deed

        cells: dict[str, Any] = {}
        return Deed(
            operation="create_contact_row",
            # Before it exists a row has no name of its own: it is the task instance's row.
            recipients=("row",),
            body={"columns": self.private("columns"), "empty_cell_value": self.empty_cell_value},
            # A row that an earlier try added needs no look at the table.
            may_begin=lambda: cells.update(self.cells(client)),
            perform=partial(self._create, client, cells),
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
    """Add a row.

    Returns ``{"row_id", "created": true, "unknown_recipients", "unknown_references"}``. A task instance adds one row,
    whatever ends a try. Fails at once when a column is unknown or a value does not fit its type, and, unless
    ``on_unknown`` says otherwise, when nobody can find out whether the row was created (``unknown_recipients`` is then
    1, and there is no id).

    :param columns: cells by column name; ``None`` or blank text leaves a cell empty (templated)
    :param empty_cell_value: what an empty cell is on the wire: ``null`` or ``empty`` (an empty string)
    :param cpaas_conn_id: the connection to use (templated)
    """

    template_fields = ("columns", "cpaas_conn_id")


class UpdateContactRowOperator(_WriteContactRowOperator):
    """Change cells of a row; the others are kept.

    Returns ``{"row_id", "created": false}``. Fails at once when there is no row of that id, when a column is unknown,
    or when a value does not fit its type. Repeating an update is safe, so the task's retries may.

    :param row_id: the row's id (templated)
    :param columns: cells by column name; ``None`` or blank text clears a cell (templated)
    :param empty_cell_value: what clears a cell on the wire: ``null`` or ``empty`` (an empty string)
    :param cpaas_conn_id: the connection to use (templated)
    """

    template_fields = ("row_id", "columns", "cpaas_conn_id")

    def __init__(self, *, row_id: str, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.row_id = row_id

    def request(self, client: CpaasClient, connection: CpaasConnection) -> dict[str, Any]:
        """Update the row."""
        return {"row_id": client.update_contact_row(self.row_id, self.cells(client)).row.id, "created": False}


class UpsertContactRowOperator(_CreatingOperator):
    """Change a row, or create it where there is none yet.

    With ``key`` the provider finds the row in the key map that ``SyncContactsOperator`` uses, sends only cells that
    changed, and creates the row once, whatever run or task asks for it. Without ``key`` the DAG has to store the row's
    id, because the service lists no rows; a task instance then creates one row at most.

    Returns ``{"row_id", "created", "unknown_recipients", "unknown_references"}``. Fails at once when a column is
    unknown or a value does not fit its type. Fails at once, too, when the outcome of a creation is unknown, unless
    ``on_unknown`` says otherwise (``unknown_recipients`` is then 1, and there is no id).

    :param columns: cells by column name; ``None`` clears a cell (templated)
    :param key: the key of the row in the key map: a value, or a list of the values of several key columns (templated)
    :param map_name: the key map, as of ``SyncContactsOperator`` (templated)
    :param row_id: the row's id, instead of a key; none, or an empty one, creates a row (templated)
    :param create_if_missing: create a row when the one of ``row_id`` or ``key`` is not there; otherwise that fails the
        task
    :param empty_cell_value: what clears a cell on the wire: ``null`` or ``empty`` (an empty string)
    :param cpaas_conn_id: the connection to use (templated)
    """

    template_fields = ("row_id", "key", "map_name", "columns", "cpaas_conn_id")
    private_fields: ClassVar[Mapping[str, Callable[[Any], Any]]] = {
        "columns": summaries.cells,
        # Often a number or an address.
        "key": summaries.secret,
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
        self, context: Context, client: CpaasClient, connection: CpaasConnection, give_up_at: str | None
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
                self.log.info("The list has no row of this id any more; the provider creates a new one.")
            else:
                return {"row_id": row.id, "created": False, "unknown_recipients": 0, "unknown_references": []}
        return super().carry_out(context, client, connection, give_up_at)

    def result(self, client: CpaasClient, outcome: Outcome) -> dict[str, Any]:
        """Return the row's id; a row that an earlier try created is brought to what the cells are now."""
        result = super().result(client, outcome)
        if outcome.earlier and result["row_id"] is not None:
            client.update_contact_row(result["row_id"], self.cells(client))
        return result

    def _by_key(self, context: Context, client: CpaasClient, connection: CpaasConnection) -> dict[str, Any]:
        from cpaas_provider.operators._contact_row import upsert_by_key

        row = upsert_by_key(self, context, client, connection, self._listen())
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
    """Remove a row.

    Returns ``{"row_id", "deleted": true}``. Fails at once when there is no row of that id, or skips with
    ``skip_if_missing``. Repeating a deletion is safe, so the task's retries may.

    :param row_id: the row's id (templated)
    :param skip_if_missing: skip the task when there is no such row, instead of failing it
    :param cpaas_conn_id: the connection to use (templated)
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
                raise AirflowSkipException("There is no row of this id: nothing to delete.") from None
            raise
        return {"row_id": self.row_id, "deleted": True}
