"""Operators for the contact table and its rows (contract.md 4.9 to 4.13).

Authors name columns. The provider looks up the column ids.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from datetime import timedelta
from typing import TYPE_CHECKING, Any, ClassVar, Literal

from cpaas_provider.operators import _masking as masking
from cpaas_provider.operators.base import STOP_GRACE_PERIOD, CpaasOperator, select_fields

if TYPE_CHECKING:
    from cpaas_provider.api.client import CpaasClient
    from cpaas_provider.hooks.connection import CpaasConnection
    from cpaas_provider.sending.requests.request import SingleRequest
    from cpaas_provider.tasks.contacts.row import RowCells
    from cpaas_provider.tasks.runner import Attempt
    from cpaas_provider.tasks.runtime import TaskRuntime
    from cpaas_provider.tasks.single.send import SingleSend


class _NoKey:
    """The default of ``key``. With ``None`` a mapped task without a key would look like a task that needs none."""

    def __repr__(self) -> str:
        return "no key"


_NO_KEY = _NoKey()


class GetContactTableOperator(CpaasOperator):
    """Read the contact table's columns.

    :returns: ``{"id", "columns": [{"id", "name", "type"}]}``
    """

    def request(self, client: CpaasClient, connection: CpaasConnection) -> dict[str, Any]:
        """Read the table."""
        table = client.get_contact_table()
        columns = [{"id": column.id, "name": column.name, "type": column.type} for column in table.columns]
        return {"id": table.id, "columns": columns}


class GetContactRowOperator(CpaasOperator):
    """Read one row.

    The XCom contains the cells, which are personal data. ``return_fields`` limits them to the columns you need. The
    task fails at once if there is no row with that id.

    :param row_id: the row's id (templated)
    :param return_fields: the column names to return. Default: all
    :returns: ``{"row_id", "columns": {name: value}}``
    """

    template_fields = ("row_id", "cpaas_conn_id")

    def __init__(self, *, row_id: str, return_fields: Sequence[str] | None = None, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self._set_arguments(locals())

    def request(self, client: CpaasClient, connection: CpaasConnection) -> dict[str, Any]:
        """Read the row."""
        from cpaas_provider.contacts.mapping.columns import ContactColumns

        record = client.get_contact_row(self.row_id)
        table = record.table or client.get_contact_table()
        cells = ContactColumns(table).decode(record.row.columns)
        return {"row_id": record.row.id, "columns": select_fields(cells, self.return_fields)}


class ContactRowOperator(CpaasOperator):
    """Base of operators that add a row, at most once per task instance (docs: concepts/guarantees).

    :param columns: cells by column name
    :param empty_cell_value: how an empty cell is sent: ``null`` or ``empty`` (an empty string)
    :param on_unknown: what to do about a creation of unknown outcome. ``fail`` fails the task without a retry and names
        the request. ``skip`` lets the task succeed and counts the row as unknown. ``resend`` sends it again
    :param unknown_timeout: longest wait for a probe to resolve a creation of unknown outcome. There is no probe of a
        row, so it has no effect yet
    :param resend_on_clear: create the row again when the task is cleared. By default a clear creates it only if it was
        not created
    :param stop_grace_period: seconds to wait for a response after Airflow stops the task, or before its
        ``execution_timeout``. Airflow kills a task 5 seconds after it stops it
    """

    has_task_journal = True
    masked_fields: ClassVar[Mapping[str, Callable[[Any], Any]]] = {"columns": masking.cells}
    template_fields_renderers: ClassVar[dict[str, str]] = {"columns": "json"}

    def __init__(
        self,
        *,
        columns: Mapping[str, Any],
        empty_cell_value: Literal["null", "empty"] = "null",
        on_unknown: Literal["fail", "skip", "resend"] = "fail",
        unknown_timeout: timedelta | float = timedelta(minutes=10),
        resend_on_clear: bool = False,
        stop_grace_period: float = STOP_GRACE_PERIOD,
        **kwargs: Any,
    ) -> None:
        super().__init__(**kwargs)
        self._set_arguments(locals())

    def make_attempt(self, runtime: TaskRuntime, **resumed: Any) -> Attempt:
        """Return one try of the creation."""
        from cpaas_provider.sending.requests.contact_row import RowCreation

        return self._creation(RowCreation(self._cells()), runtime)

    def _cells(self) -> RowCells:
        from cpaas_provider.tasks.contacts.row import RowCells

        return RowCells(self.rendered("columns"), self.empty_cell_value)

    def _creation(self, request: SingleRequest, runtime: TaskRuntime) -> SingleSend:
        from cpaas_provider.tasks.delivery.reports import ReportOptions
        from cpaas_provider.tasks.single.send import SendOptions, SingleSend

        options = SendOptions(
            on_unknown=self.on_unknown,
            unknown_timeout=self.unknown_timeout,
            resend_on_clear=self.resend_on_clear,
            guards_run=False,
        )
        return SingleSend(request=request, options=options, report_options=ReportOptions(), runtime=runtime)


class CreateContactRowOperator(ContactRowOperator):
    """Create a row, at most once per task instance, across retries, crashes and clears.

    The task fails at once if a column is unknown or a value does not fit its type. It also fails at once if the
    outcome of the creation is unknown, unless ``on_unknown`` is ``skip`` or ``resend``.

    :param columns: cells by column name; ``None`` or blank text leaves a cell empty (templated)
    :returns: the row's id, and whether it is known:

        | Key | Value |
        |---|---|
        | ``row_id`` | Id of the row, null if the outcome is unknown. |
        | ``created`` | True if the row was created, false if the outcome is unknown. |
        | ``unknown_recipients`` | 1 if the outcome is unknown, only with ``on_unknown="skip"``. Otherwise 0. |
        | ``unknown_references`` | Reference of the request of unknown outcome. |
    """

    template_fields = ("columns", "cpaas_conn_id")


class UpdateContactRowOperator(CpaasOperator):
    """Update cells of a row. The other cells do not change, unless the service clears what an update does not send.

    Then ``columns`` must have every cell that the row is to keep (docs: guides/contacts, ``row_updates``).

    The task fails at once if there is no row with that id. It also fails at once if a column is unknown, or if a value
    does not fit its type. An update is idempotent, so the task's retries send it again.

    :param row_id: the row's id (templated)
    :param columns: cells by column name; ``None`` or blank text clears a cell (templated)
    :param empty_cell_value: how a cleared cell is sent: ``null`` or ``empty`` (an empty string)
    :param allow_backfill: let backfills and catch-up runs send, too. Their cells may be older than the row's
    :param max_lateness: how long after ``run_after`` any other run may still send, such as one that was cleared.
        ``None`` sets no limit
    :returns: ``{"row_id", "created": false}``
    """

    template_fields = ("row_id", "columns", "cpaas_conn_id")
    masked_fields: ClassVar[Mapping[str, Callable[[Any], Any]]] = {"columns": masking.cells}
    template_fields_renderers: ClassVar[dict[str, str]] = {"columns": "json"}

    def __init__(
        self,
        *,
        row_id: str,
        columns: Mapping[str, Any],
        empty_cell_value: Literal["null", "empty"] = "null",
        allow_backfill: bool = False,
        max_lateness: timedelta | None = timedelta(days=1),
        **kwargs: Any,
    ) -> None:
        super().__init__(**kwargs)
        self._set_arguments(locals())

    def make_attempt(self, runtime: TaskRuntime, **resumed: Any) -> Attempt:
        """Return one try of the update."""
        from cpaas_provider.tasks.contacts.row import RowUpdate, RunGuard

        return RowUpdate(runtime, self.request, run_guard=RunGuard(self.allow_backfill, self.max_lateness))

    def request(self, client: CpaasClient, connection: CpaasConnection) -> dict[str, Any]:
        """Update the row."""
        from cpaas_provider.contacts.mapping.columns import ContactColumns
        from cpaas_provider.tasks.contacts.row import RowCells

        columns = ContactColumns(client.get_contact_table())
        rendered = RowCells(self.rendered("columns"), self.empty_cell_value)
        cells = rendered.encode_for(columns, client.settings.numbers)
        return {"row_id": client.update_contact_row(self.row_id, cells).row.id, "created": False}


class UpsertContactRowOperator(ContactRowOperator):
    """Update a row, or create it if there is none yet.

    With ``key`` the provider finds the row in the key map that ``SyncContactsOperator`` uses. It sends only cells that
    changed, or all of ``columns`` if ``row_updates`` of the connection is ``whole``. It creates the row once, across
    all runs and tasks. Without ``key`` the DAG must store the row's id, because the service cannot list rows. A task
    instance then creates at most one row.

    The task fails at once if a column is unknown or a value does not fit its type. It also fails at once if the
    outcome of a creation is unknown, unless ``on_unknown`` is ``skip`` or ``resend``.

    :param columns: cells by column name; ``None`` clears a cell (templated)
    :param key: the row's key in the key map: a value, or a list of values for several key columns. With the key
        ``None``, as a mapped task may get it, the task fails (templated)
    :param map_name: the key map, as of ``SyncContactsOperator`` (templated)
    :param new_map: let the first row of a map be created although another map has rows of the same list, as of
        ``SyncContactsOperator``
    :param row_id: the row's id, instead of a key. Without an id, or with an empty one, a row is created (templated)
    :param create_if_missing: create a row if the one of ``row_id`` or ``key`` does not exist. Otherwise the task fails
    :param allow_backfill: let backfills and catch-up runs send, too. Their cells may be older than the row's
    :param max_lateness: how long after ``run_after`` any other run may still send, such as one that was cleared.
        ``None`` sets no limit
    :returns: the row's id, and whether it was created:

        | Key | Value |
        |---|---|
        | ``row_id`` | Id of the row, null if the outcome is unknown. |
        | ``created`` | Whether the row was created. |
        | ``unknown_recipients`` | 1 if the outcome is unknown, only with ``on_unknown="skip"``. Otherwise 0. |
        | ``unknown_references`` | Reference of the request of unknown outcome. Empty with ``key``. |
    """

    template_fields = ("row_id", "key", "map_name", "columns", "cpaas_conn_id")
    optional_fields: ClassVar[frozenset[str]] = frozenset({"row_id"})
    masked_fields: ClassVar[Mapping[str, Callable[[Any], Any]]] = {
        "columns": masking.cells,
        # A key is often a phone number or an email address.
        "key": masking.secret,
    }

    def __init__(
        self,
        *,
        row_id: str | None = None,
        key: Any = _NO_KEY,
        map_name: str = "default",
        new_map: bool = False,
        create_if_missing: bool = True,
        allow_backfill: bool = False,
        max_lateness: timedelta | None = timedelta(days=1),
        **kwargs: Any,
    ) -> None:
        super().__init__(**kwargs)
        if row_id is not None and key is not None and key is not _NO_KEY:
            raise ValueError(f"{self}: row_id and key exclude each other: give the one that names the row.")
        self._set_arguments(locals())
        self.key = None if key is _NO_KEY else key
        # A mapped task may get the key None. It must not create a row without a key in each run.
        self.has_key = key is not _NO_KEY and row_id is None

    def make_attempt(self, runtime: TaskRuntime, **resumed: Any) -> Attempt:
        """Return one try of the update or creation."""
        from cpaas_provider.tasks.contacts.row import KeyedUpsert, RowOfEarlierTry, RowUpsertById, RunGuard

        run_guard = RunGuard(self.allow_backfill, self.max_lateness)
        if self.has_key:
            return KeyedUpsert(
                self.rendered("key"),
                self.map_name,
                self._cells(),
                runtime,
                run_guard=run_guard,
                create_if_missing=self.create_if_missing,
                new_map=self.new_map,
                on_unknown=self.on_unknown,
            )
        return RowUpsertById(
            self.row_id,
            self._cells(),
            runtime,
            run_guard=run_guard,
            create_if_missing=self.create_if_missing,
            creation=self._creation(RowOfEarlierTry(self._cells(), runtime), runtime),
        )


class DeleteContactRowOperator(CpaasOperator):
    """Delete a row.

    The task fails at once if there is no row with that id, or is skipped with ``skip_if_missing``. A deletion is
    idempotent, so the task's retries send it again.

    :param row_id: the row's id (templated)
    :param skip_if_missing: skip the task if there is no such row, instead of failing it
    :returns: ``{"row_id", "deleted": true}``
    """

    template_fields = ("row_id", "cpaas_conn_id")

    def __init__(self, *, row_id: str, skip_if_missing: bool = False, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self._set_arguments(locals())

    def make_attempt(self, runtime: TaskRuntime, **resumed: Any) -> Attempt:
        """Return one try of the deletion."""
        from cpaas_provider.tasks.contacts.row import RowDeletion

        return RowDeletion(self.row_id, runtime, skip_if_missing=self.skip_if_missing)
