"""The hook: it makes sync and async clients of the service from a connection."""

from __future__ import annotations

import asyncio
from datetime import timedelta
from typing import TYPE_CHECKING, Any, Literal

from airflow.sdk import BaseHook
from airflow.sdk.log import mask_secret

from cpaas_provider.provider_info import DEFAULT_CONN_ID

if TYPE_CHECKING:
    from airflow.sdk import Context

    from cpaas_provider.api.client import AsyncCpaasClient, CpaasClient
    from cpaas_provider.api.errors import CpaasError
    from cpaas_provider.hooks.connection import CpaasConnection
    from cpaas_provider.tasks.idempotent_client import AsyncIdempotentClient, IdempotentClient


class CpaasHook(BaseHook):
    """Make a client of the service for code in a DAG.

    .. code-block:: python

        with CpaasHook("cpaas_default").get_conn() as client:
            client.lookup_phone("+234 803 123 4567")

    :param cpaas_conn_id: the Airflow connection that holds base URL, API key and options
    """

    conn_name_attr = "cpaas_conn_id"
    default_conn_name = DEFAULT_CONN_ID
    conn_type = "cpaas"
    hook_name = "CPaaS"

    def __init__(self, cpaas_conn_id: str = default_conn_name, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.cpaas_conn_id = cpaas_conn_id
        self._connection: CpaasConnection | None = None
        self._client: CpaasClient | None = None

    def get_connection_settings(self) -> CpaasConnection:
        """Return the settings of the connection. They are read once per hook.

        :raises CpaasConfigurationError: when the connection cannot be used
        """
        from cpaas_provider.api.errors import CpaasConfigurationError
        from cpaas_provider.hooks.connection import read_connection

        if self._connection is None:
            connection = self.get_connection(self.cpaas_conn_id)
            try:
                read = read_connection(connection, mask_secret)
                # Checks the bounds here, where the error can name the connection.
                _ = read.settings
            except CpaasConfigurationError as error:
                name = f"onnection {self.cpaas_conn_id!r}"
                raise CpaasConfigurationError(str(error) if name in str(error) else f"C{name}: {error}") from None
            self._connection = read
        return self._connection

    async def aget_connection_settings(self) -> CpaasConnection:
        """Return the settings of the connection, for code on an event loop.

        They are read in a thread, because Airflow's own asynchronous reading can block before 3.3.2.
        """
        return await asyncio.to_thread(self.get_connection_settings)

    def get_conn(self) -> CpaasClient:
        """Return the client, made once per hook. Close it, or use it in a ``with`` block.

        :raises CpaasConfigurationError: when the connection cannot be used
        """
        if self._client is None or self._client.closed:
            self._client = self.get_connection_settings().make_client()
        return self._client

    async def get_async_conn(self) -> AsyncCpaasClient:
        """Return a new client for the running event loop, for use in an ``async with`` block.

        The client is made outside of the loop, because reading a CA bundle takes tens of milliseconds.

        :raises CpaasConfigurationError: when the connection cannot be used
        """
        connection = await self.aget_connection_settings()
        return await asyncio.to_thread(connection.make_async_client)

    def get_idempotent_client(
        self,
        context: Context | None = None,
        *,
        on_unknown: Literal["fail", "skip", "resend"] = "fail",
        unknown_timeout: timedelta | float = timedelta(seconds=30),
        resend_on_clear: bool = False,
        allow_backfill: bool = False,
        max_lateness: timedelta | None = timedelta(days=1),
        track_recipients: bool = False,
        use_suppression_list: bool = True,
        frequency_cap: tuple[int, timedelta] | None = None,
        frequency_category: str | None = None,
        stop_grace_period: float = 4.0,
    ) -> IdempotentClient:
        """Return a client for ``@task`` functions whose sends, purchases and passcodes happen at most once.

        A retry of the task returns the results of accepted requests without a request, and makes only what is left.

        .. code-block:: python

            @task(retries=3)
            def remind(orders: list[dict[str, str]]) -> None:
                with CpaasHook().get_idempotent_client() as idempotent:
                    for order in orders:
                        idempotent.send_sms(order["phone"], order["text"], idempotency_key=order["id"])

        Two sends of one task differ by operation, recipient and ``idempotency_key``, not by content or order. A second
        call with the same recipient and content sends nothing and returns the first result. A second call with the
        same recipient and other content in the same try fails, unless each has an ``idempotency_key`` of its own.

        Open the client first in the task. Requests are made one after the other, through one connection a task. Errors
        and ``CpaasRetryPolicy`` work as without this client.

        :param context: the task's context. Default: that of the running task
        :param on_unknown: what to do about a request of unknown outcome: ``fail`` the task without a retry, ``skip``
            it, or ``resend`` it
        :param unknown_timeout: longest wait for a probe to resolve a request of unknown outcome, counted from the
            request, as a timedelta or in seconds. The task holds its worker slot meanwhile
        :param resend_on_clear: send everything again when the task is cleared
        :param allow_backfill: let backfills and catch-up runs send, too
        :param max_lateness: how long after ``run_after`` any other run may still send. ``None`` sets no limit
        :param track_recipients: record the recipients in the database, so that ``DeliverySensor`` can name recipients
            without a delivery report
        :param use_suppression_list: do not send to recipients on the stored suppression list, as the operators
        :param frequency_cap: how many SMS and emails of ``frequency_category`` a recipient may get, over all DAGs, such
            as ``(3, timedelta(days=7))``
        :param frequency_category: the category in which SMS and emails count
        :param stop_grace_period: seconds to wait for a response after Airflow stops the task
        :raises ValueError: when an argument cannot be used
        """
        from airflow.sdk import get_current_context

        from cpaas_provider.tasks.idempotent_client import IdempotentClient

        return IdempotentClient(
            self,
            context or get_current_context(),
            on_unknown=on_unknown,
            unknown_timeout=unknown_timeout,
            resend_on_clear=resend_on_clear,
            allow_backfill=allow_backfill,
            max_lateness=max_lateness,
            use_suppression_list=use_suppression_list,
            frequency_cap=frequency_cap,
            frequency_category=frequency_category,
            track_recipients=track_recipients,
            stop_grace_period=stop_grace_period,
        )

    def get_async_idempotent_client(self, context: Context | None = None, **options: Any) -> AsyncIdempotentClient:
        """Return the client of ``get_idempotent_client`` for code on an event loop, for an ``async with`` block.

        :param context: the task's context. Default: that of the running task
        :param options: as of ``get_idempotent_client``
        """
        from cpaas_provider.tasks.idempotent_client import AsyncIdempotentClient

        return AsyncIdempotentClient(self.get_idempotent_client(context, **options))

    def test_connection(self) -> tuple[bool, str]:
        """Test the connection by reading the contact table, which changes nothing and costs nothing.

        :return: whether the connection works, and a sentence that distinguishes a wrong key, host and path. Of one
            that works, warnings about its secrets follow
        """
        from cpaas_provider.api.client import CpaasClient
        from cpaas_provider.api.errors import CpaasError
        from cpaas_provider.hooks._account.stops import describe_stop

        try:
            connection = self.get_connection_settings().without_retries()
            with CpaasClient.of_settings(connection.settings) as client:
                table = client.get_contact_table()
        except CpaasError as error:
            return False, describe_failure(error)
        columns = len(table.columns)
        works = f"Connected to {connection.base_url}. The API key is accepted. The contact table has {columns} columns."
        warnings = [" ".join(found) for found in connection.weak_secrets()]
        if stopped := describe_stop(self.cpaas_conn_id):
            warnings.insert(0, stopped)
        return True, " ".join([works, *(f"Warning: {text}" for text in warnings)])

    async def atest_connection(self) -> tuple[bool, str]:
        """Do what ``test_connection`` does, for code on an event loop."""
        return await asyncio.to_thread(self.test_connection)


def describe_failure(error: CpaasError) -> str:
    """Return what to change in the connection, from the most to the least certain cause."""
    from cpaas_provider.api import errors

    if isinstance(error, errors.CpaasConfigurationError):
        return str(error)
    if isinstance(error, errors.CpaasAuthenticationError):
        return f"Wrong API key: the host responds and rejects it (HTTP {error.status}). Check password and auth_scheme."
    if isinstance(error, (errors.CpaasRateLimitedError, errors.CpaasUnavailableError)):
        return f"The host responds, but accepts requests only later (HTTP {error.status}). {error}"
    if isinstance(error, errors.CpaasNotSentError):
        return f"No connection to the host: {error}"
    if error.status is None:
        return f"A server is reachable, but it sent no response: {error}"
    redirected = 300 <= error.status < 400
    unreadable = isinstance(error, errors.CpaasUnknownOutcomeError) and error.status < 500
    if error.status in (404, 405, 410) or redirected or unreadable:
        return f"Wrong path: a server responds, but not as the service at this base URL. {error}"
    return f"A server responds, but not with the contact table: {error}"
