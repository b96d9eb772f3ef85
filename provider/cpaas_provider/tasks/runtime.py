"""One try of a task: what Airflow, the connection and the provider's database give it, as one object."""

from __future__ import annotations

import asyncio
import contextlib
import secrets
import shlex
from collections.abc import Coroutine, Iterable, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import KW_ONLY, dataclass, field
from functools import cached_property
from typing import TYPE_CHECKING, Any, Protocol, TypeVar

from airflow.sdk import timezone

from cpaas_provider.sending.errors import SendingError, TrySupersededError
from cpaas_provider.sending.journal import store
from cpaas_provider.sending.journal.hashing import task_identity
from cpaas_provider.sending.journal.model import INSTANCE_KEY
from cpaas_provider.sending.run_guard import check_run_may_send
from cpaas_provider.tasks.airflow import task_log
from cpaas_provider.tasks.airflow.context import TaskPlace, push_or_warn, record_nothing_sent, run_info, try_info
from cpaas_provider.tasks.airflow.store import open_journal_store, open_task_state
from cpaas_provider.tasks.errors import PreflightError

if TYPE_CHECKING:
    from datetime import timedelta

    from airflow.sdk import Context
    from airflow.sdk.types import Logger

    from cpaas_provider.api.client import AsyncCpaasClient, CpaasClient
    from cpaas_provider.database.database import Database
    from cpaas_provider.hooks.connection import CpaasConnection
    from cpaas_provider.sending.journal.store import StateStore, TryInfo
    from cpaas_provider.sending.shutdown import StopSignal

T = TypeVar("T")

NO_TASK_STATE = (
    "Airflow's task state store is not available here, so no journal can be written. Nothing was sent. Run the "
    "operator as an Airflow task."
)


class Hook(Protocol):
    """What a try needs of ``CpaasHook``."""

    cpaas_conn_id: str

    def get_connection_settings(self) -> CpaasConnection:
        """Return the settings of the connection."""

    def get_conn(self) -> CpaasClient:
        """Return the client, made once per hook."""


@dataclass(eq=False, repr=False)
class TaskRuntime:
    """One try of a task.

    Connection, client, database and state store are opened on first use, once a try, and closed with ``exit_stack``.

    :param hook: the hook of the connection
    :param retries: the task's ``retries``
    :param stop: set when Airflow stops the task
    :param task_type: the operator's class, for the log
    :param arguments: the operator's arguments, of which the log names some
    :param valueless: arguments that the author gave and that have no value after rendering, each with the reason
    """

    context: Context
    hook: Hook
    _: KW_ONLY
    retries: int | None
    stop: StopSignal
    log: Logger
    task_type: str = ""
    arguments: Mapping[str, Any] = field(default_factory=dict)
    valueless: Mapping[str, str] = field(default_factory=dict)
    exit_stack: contextlib.ExitStack = field(default_factory=contextlib.ExitStack, init=False)
    state_failed: bool = field(default=False, init=False)
    """Whether the state store failed in this try, so that nothing more is written to it."""

    suppression_list_checked: bool = field(default=False, init=False)
    """Whether this try found no other database that may have the suppression list."""

    suppression_database_checked: bool = field(default=False, init=False)
    """Whether this try found that the entries of the list are in the database of all workers."""

    delivery_link: str = field(default="", init=False)
    failure: str = field(default="", init=False)
    """Why the try fails, for the pages."""

    _journal_store: StateStore | None = field(default=None, init=False)
    _database_checked: bool = field(default=False, init=False)

    @property
    def conn_id(self) -> str:
        """The id of the connection."""
        return self.hook.cpaas_conn_id

    @property
    def connection(self) -> CpaasConnection:
        """The settings of the connection, which the hook reads once."""
        return self.hook.get_connection_settings()

    @cached_property
    def client(self) -> CpaasClient:
        """The client of the connection, for code outside of an event loop."""
        self._check_shared_database()
        return self.exit_stack.enter_context(self.hook.get_conn())

    @cached_property
    def async_client(self) -> AsyncCpaasClient:
        """The client of the connection, for code that ``run`` runs."""
        return self.open_async_client(self.connection)

    def open_async_client(self, connection: CpaasConnection) -> AsyncCpaasClient:
        """Return a client of a connection for code that ``run`` runs; it is closed at the end of the try."""
        _ = self._runner
        self._check_shared_database()
        client = connection.make_async_client()
        self.exit_stack.callback(lambda: self.run(client.aclose()))
        return client

    def _check_shared_database(self) -> None:
        """Check that all tasks have one database, if the connection has a rate limit or budgets that they share.

        :raises PreflightError: when this worker has another database than others, or none
        """
        connection = self.connection
        if self._database_checked or not (connection.share_rate_limit or connection.budget):
            return
        from cpaas_provider.database.errors import DatabaseError
        from cpaas_provider.hooks._account import budget
        from cpaas_provider.hooks._rate_limit import stored
        from cpaas_provider.tasks.database.shared_database import check_database

        try:
            # With a database of its own, each worker would send at the whole rate, and spend the whole budget.
            check_database(self.database)
        except DatabaseError as error:
            describe = stored.describe_unusable if connection.share_rate_limit else budget.describe_unusable
            message = describe(self.conn_id, error, "nothing was sent in this try")
            raise PreflightError(message, permanent=False) from None
        self._database_checked = True

    @cached_property
    def _runner(self) -> asyncio.Runner:
        """One event loop for the whole try, so that connections to the service are used again."""
        return self.exit_stack.enter_context(asyncio.Runner())

    def run(self, work: Coroutine[Any, Any, T]) -> T:
        """Return what asynchronous work returns, or raise what it raises."""
        try:
            asyncio.get_running_loop()
        except RuntimeError:
            is_running = False
        else:
            is_running = True
        if not is_running:
            # Not in the handler above: its error would be logged as the context of what the work raises.
            return self._runner.run(work)
        # The task runs an event loop, and a thread can run only one.
        with ThreadPoolExecutor(1, "cpaas-send") as thread:
            return thread.submit(self._runner.run, work).result()

    @cached_property
    def database(self) -> Database:
        """The provider's database.

        :raises DatabaseError: when it cannot be opened
        """
        from cpaas_provider.database.database import open_database

        return self.exit_stack.enter_context(open_database())

    @property
    def journal_store(self) -> StateStore | None:
        """The store of the journal: the task state, or the database; ``None`` outside of a task."""
        if self._journal_store is None:
            opening = open_journal_store(self.context, self.try_info, lambda: contextlib.nullcontext(self.database))
            self._journal_store = self.exit_stack.enter_context(opening)
            self.exit_stack.callback(setattr, self, "_journal_store", None)
        return self._journal_store

    def require_journal_store(self) -> StateStore:
        """Return the store of the journal.

        :raises PreflightError: outside of a task, or when it cannot be used
        """
        if self.journal_store is None:
            raise PreflightError(NO_TASK_STATE, permanent=True)
        return self.journal_store

    def require_task_state(self) -> StateStore:
        """Return the task state store.

        :raises PreflightError: outside of a task
        """
        task_state = open_task_state(self.context)
        if task_state is None:
            raise PreflightError(NO_TASK_STATE, permanent=True)
        return task_state

    @cached_property
    def try_info(self) -> TryInfo:
        """Which try this is, and of what."""
        return try_info(self.context, self.retries)

    @cached_property
    def place(self) -> TaskPlace:
        """Where the task instance is."""
        instance: Any = self.context["ti"]
        map_index = -1 if instance.map_index is None else instance.map_index
        return TaskPlace(instance.dag_id, instance.run_id, instance.task_id, map_index)

    @property
    def task_key(self) -> tuple[str | int, ...]:
        """What identifies the task instance in all of its tries."""
        identity = task_identity(*self.place)
        if not self.context.get("loop"):
            return identity
        # Airflow 3.4 has loops: each iteration is a task instance with a state of its own, so it sends for itself.
        instance: Any = self.context["ti"]
        return (*identity, str(instance.region_id), instance.region_index)

    @cached_property
    def instance_nonce(self) -> str:
        """A random name that no other task instance has, the same in all of its tries.

        It is stored beside the journal: a run that is deleted and made again has the same ids.

        :raises PreflightError: outside of a task, or when the task state store cannot be used
        """
        state = self.require_journal_store()
        try:
            nonce = state.get(INSTANCE_KEY)
            if nonce is None:
                nonce = secrets.token_hex(8)
                state.set(INSTANCE_KEY, nonce)
        except Exception as error:  # noqa: BLE001 - Airflow raises several kinds
            raise PreflightError(
                f"The task state store could not be reached ({type(error).__name__}). Nothing was sent in this try. "
                "The task can be retried.",
                permanent=False,
            ) from None
        return str(nonce)

    @property
    def cli_address(self) -> str:
        """The task instance as the arguments of a command."""
        instance: Any = self.context["ti"]
        named = shlex.join(self.place[:3])
        # Of a task in a loop the commands take the iteration.
        index = instance.region_index if self.context.get("loop") else self.place.map_index
        return f"{named} --map-index {index}" if index is not None and index >= 0 else named

    @property
    def is_last_try(self) -> bool:
        """Whether Airflow makes no further try by itself."""
        return self.try_info.number > self.try_info.max_tries

    def log_begin(self, origin: str = "", words: Iterable[str] = ()) -> None:
        """Log the first line of the task, see ``task_log.begins``."""
        self.log.info("%s", task_log.begins(self.task_type, self.conn_id, self.arguments, origin, words))

    def log_done(self, result: Any) -> None:
        """Log the last line of a task that made one request."""
        self.log.info("%s", task_log.done(self.task_type, result))

    def push(self, key: str, value: Any) -> None:
        """Push an XCom.

        :raises Exception: whatever Airflow raises where it cannot be stored
        """
        self.context["ti"].xcom_push(key=key, value=value)

    def push_or_warn(self, key: str, value: Any) -> None:
        """Push an XCom of a try that fails or is skipped, see ``context.push_or_warn``."""
        push_or_warn(self.context, key, value)

    def publish(self, prefix: str, figures: Mapping[str, float]) -> None:
        """Publish figures as metrics of Airflow."""
        from airflow.sdk.observability import stats

        tags = {"dag_id": self.place.dag_id, "task_id": self.place.task_id}
        if self.place.map_index >= 0:
            # Each mapped task instance counts for itself.
            tags["map_index"] = str(self.place.map_index)
        for name, value in figures.items():
            stats.gauge(f"{prefix}.{name}", value, tags=tags)

    def check_run_may_send(self, *, allow_backfill: bool, max_lateness: timedelta | None) -> None:
        """Check that the run is no backfill, does not catch up, and is not stale.

        :raises RunNotAllowedError: when it does not send
        """
        check_run_may_send(
            run_info(self.context), timezone.utcnow(), allow_backfill=allow_backfill, max_lateness=max_lateness
        )

    def confirm_current(self) -> None:
        """Check that this try is the current one of its task instance.

        :raises SendingError: when another try has taken its place, or that cannot be found out
        """
        if self.journal_store is not None:
            store.confirm_current(self.journal_store, self.try_info)

    def is_replaced(self) -> bool:
        """Return whether another try has replaced this one; false if that cannot be found out.

        Airflow 3.3 lets a try that was replaced push XComs, over those of the newer try.
        """
        try:
            store.confirm_current(self.require_task_state(), self.try_info)
        except TrySupersededError:
            return True
        except (SendingError, PreflightError) as error:
            self.log.warning("Whether Airflow has replaced this try could not be found out: %s", error)
        return False

    def record_nothing_sent(self, *, is_new: bool = False) -> None:
        """Record that this try sent nothing, unless there is a journal or its store failed."""
        if self.state_failed:
            return
        if self._journal_store is None:
            record_nothing_sent(self.context, self.try_info, is_new=is_new)
        else:
            # Only one of a try's stores can write to a journal in the database: the last one that opened it.
            store.record_nothing_sent(self._journal_store, self.try_info, is_new=is_new)
