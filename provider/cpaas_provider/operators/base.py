"""The base of all operators: the connection, private fields, and what each kind of failure does to the task."""

from __future__ import annotations

import copy
import time
from collections.abc import Callable, Collection, Iterable, Mapping
from datetime import datetime, timedelta
from typing import TYPE_CHECKING, Any, ClassVar, TypeVar

from airflow.sdk import BaseOperator, timezone
from airflow.sdk.exceptions import AirflowException, AirflowFailException, AirflowSkipException

from cpaas_provider.api.errors import CpaasError
from cpaas_provider.provider_info import DEFAULT_CONN_ID, with_documentation

if TYPE_CHECKING:
    import jinja2
    from airflow.sdk import Context

    from cpaas_provider.api.client import CpaasClient
    from cpaas_provider.hooks.connection import CpaasConnection
    from cpaas_provider.sending.shutdown import StopSignal

T = TypeVar("T")

UI_COLOR = "#d7ecff"

STOP_GRACE = 4.0
"""Seconds a response is awaited after a stop request, unless an argument says otherwise."""

MAX_DEFERRAL = timedelta(hours=24)
"""Longest time a task waits for Retry-After of the service, all waits together."""


class CpaasOperator(BaseOperator):
    """Base of the operators: ``request`` makes one request of the service, this class does everything around it.

    * The task fails without a retry when a retry cannot help, or when the outcome is unknown and a retry could act
      twice. Any other failure is retried as the task's ``retries`` allow.
    * When ``Retry-After`` of the service exceeds ``max_retry_after``, the task defers. It holds no worker slot, uses
      no try, and makes its request on a worker afterwards.
    * Fields named in ``masked_fields`` are rendered, but Airflow stores and shows only a summary of them.

    :param cpaas_conn_id: the connection to use
    """

    ui_color = UI_COLOR
    template_fields: Collection[str] = ("cpaas_conn_id",)
    masked_fields: ClassVar[Mapping[str, Callable[[Any], Any]]] = {}
    stop_grace_period = STOP_GRACE

    def __init__(self, *, cpaas_conn_id: str = DEFAULT_CONN_ID, **kwargs: Any) -> None:
        super().__init__(**with_documentation(type(self), "operators", kwargs))
        self.cpaas_conn_id = cpaas_conn_id

    def request(self, client: CpaasClient, connection: CpaasConnection) -> Any:
        """Make the operator's request and return its result as small JSON."""
        raise NotImplementedError

    def execute(self, context: Context) -> Any:
        """Make the request.

        :return: the result that the operator documents
        :raises AirflowFailException: when a retry would not help or could act twice
        :raises CpaasError: when a retry of the task may make the request again
        """
        return self._attempt(context, deadline=None)

    def resume_after_wait(self, context: Context, event: Any = None, deadline: str | None = None) -> Any:
        """Make the request after the time the service asked for."""
        return self._attempt(context, deadline=deadline)

    def carry_out(
        self, context: Context, client: CpaasClient, connection: CpaasConnection, deadline: str | None
    ) -> Any:
        """Make the operator's request. The caller turns failures into Airflow's exceptions."""
        return self.request(client, connection)

    def log_begin(self, client: CpaasClient, connection: CpaasConnection) -> None:
        """Log the begin and its limits."""
        from cpaas_provider.operators._runtime import task_log as task_log

        self.log.info("%s", task_log.begins(self))

    def log_end(self, result: Any) -> None:
        """Log the result."""
        from cpaas_provider.operators._runtime import task_log as task_log

        self.log.info("%s", task_log.done(self, result))

    def rendered(self, field: str) -> Any:
        """Return a private field as rendered. The attribute holds only its summary."""
        return self.__dict__.get("_rendered_values", {}).get(field, getattr(self, field))

    def _checked(self, check: Callable[[str, Any], T], **argument: Any) -> T:
        """Return a checked argument. An error names the task."""
        ((name, value),) = argument.items()
        try:
            return check(name, value)
        except ValueError as error:
            raise ValueError(f"{self}: {error}") from None

    def on_kill(self) -> None:
        """Send nothing more, and wait ``stop_grace_period`` for a response."""
        # Airflow may stop the task while it is still being rendered, or reads its connection.
        self.__dict__["_told_to_stop"] = True
        stop: StopSignal | None = self.__dict__.get("_stop")
        if stop is not None:
            stop.request()

    def _install_stop_signal(self) -> StopSignal:
        """Return the stop signal, which ``on_kill`` sets from now on."""
        from cpaas_provider.sending.shutdown import StopSignal

        stop: StopSignal = StopSignal(self.stop_grace_period, self.execution_timeout, self.__dict__.get("_began"))
        self.__dict__["_stop"] = stop
        if self.__dict__.get("_told_to_stop"):
            stop.request()
        return stop

    def _push(self, context: Context, key: str, value: Any) -> None:
        try:
            context["ti"].xcom_push(key=key, value=value)
        except Exception as error:  # noqa: BLE001 - what is being reported matters more
            self.log.warning("The %s could not be stored as XCom (%s).", key, type(error).__name__)

    def msisdn(self, client: CpaasClient, recipient: Any) -> str:
        """Return a phone number as international digits, or fail the task."""
        from cpaas_provider.api.recipients.msisdn import InvalidMsisdnError, normalise_msisdn

        try:
            return normalise_msisdn(recipient, client.settings.default_region)
        except InvalidMsisdnError as error:
            raise AirflowFailException(f"The recipient {error}. Nothing was sent.") from None

    def skip_unless_allowed(self, client: CpaasClient, recipient: str) -> None:
        """Skip the task when ``allowed_recipients`` of the connection does not list its one recipient."""
        if client.settings.allowed is not None and not client.settings.allowed.allows(recipient):
            raise AirflowSkipException(
                "The recipient is not on allowed_recipients of the connection. Nothing was sent."
            )

    def _attempt(self, context: Context, deadline: str | None) -> Any:
        # Airflow counts execution_timeout from here, and what follows is imported and looked up first.
        self.__dict__["_began"] = time.monotonic()
        from cpaas_provider.hooks.cpaas import CpaasHook

        hook = CpaasHook(self.cpaas_conn_id)
        try:
            with hook.get_conn() as client:
                self.log_begin(client, connection := hook.get_connection_settings())
                result = self.carry_out(context, client, connection, deadline)
                self.log_end(result)
                return result
        except CpaasError as error:
            if not error.retryable:
                raise AirflowFailException(str(error)) from None
            if error.retry_after is not None and error.retry_after > client.settings.max_retry_after:
                self._wait(error, error.retry_after, deadline)
            raise

    def _wait(self, error: CpaasError, seconds: float, deadline: str | None) -> None:
        """Defer for as long as the service asked, unless that would be longer than the task may be put off."""
        now = timezone.utcnow()
        latest = datetime.fromisoformat(deadline) if deadline else now + MAX_DEFERRAL
        until = now + timedelta(seconds=seconds)
        if until > latest:
            return
        from cpaas_provider.triggers.wait import WaitTrigger

        self.log.warning("%s The task is deferred until %s.", error, until.isoformat(timespec="seconds"))
        self.defer(
            trigger=WaitTrigger(until=until.isoformat()),
            method_name="resume_after_wait",
            kwargs=self.resume_kwargs(latest.isoformat()),
        )

    def resume_kwargs(self, deadline: str | None) -> dict[str, Any]:
        """Return the arguments of a deferred task when it continues."""
        return {"deadline": deadline}

    def _do_render_template_fields(
        self,
        parent: Any,
        template_fields: Iterable[str],
        context: Context,
        jinja_env: jinja2.Environment,
        seen_oids: set[int],
    ) -> None:
        """Render as Airflow does, but keep private fields out of what it stores and shows.

        Airflow renders a mapped task's fields through this method too, so it is the one place that sees both.
        """
        if parent is not self:
            super()._do_render_template_fields(parent, template_fields, context, jinja_env, seen_oids)
            return
        data = self._mapped_fields(context)
        public = [field for field in template_fields if field not in data and field not in self.masked_fields]
        super()._do_render_template_fields(self, public, context, jinja_env, seen_oids)
        rendered = {
            field: given if field in data else self._render_quietly(field, context, jinja_env, seen_oids)
            for field in self.masked_fields
            if (given := getattr(self, field)) is not None
        }
        self._rendered_values = rendered
        for field, value in rendered.items():
            setattr(self, field, self.masked_fields[field](value))

    def _mapped_fields(self, context: Context) -> frozenset[str]:
        """Name the fields that an upstream task filled through ``expand_kwargs``.

        They are data, not templates. Airflow would render them all the same, and a customer's text could read
        connections; a literal list in the DAG file is the author's own and is rendered.
        """
        dag = context.get("dag")
        declared: Any = dag.task_dict.get(self.task_id) if dag is not None else None
        expanded = getattr(getattr(declared, "expand_input", None), "value", None)
        if isinstance(expanded, (list, tuple)):
            # A literal list may hold what an upstream task returned beside the author's own words.
            expanded = expanded[context["ti"].map_index or 0]
        if expanded is None or isinstance(expanded, Mapping):
            return frozenset()
        return frozenset(self.template_fields) - set(declared.partial_kwargs)

    def _render_quietly(self, field: str, context: Context, jinja_env: jinja2.Environment, seen_oids: set[int]) -> Any:
        """Render one field; an error names it and never quotes it, as Airflow's own logging would."""
        from cpaas_provider.api.redact import redact

        try:
            given = getattr(self, field)
            # Rendering fills such an object in place, and mapped instances in one process share it.
            given = copy.copy(given) if hasattr(given, "template_fields") else given
            return self.render_template(given, context, jinja_env, seen_oids)
        except Exception as error:  # noqa: BLE001 - whatever a template raises may quote what it holds
            # What it reads (an XCom, a variable) may be there at the next try; a broken template will not mend.
            broken = type(error).__module__.startswith("jinja2")
            reason = f": {redact(str(error), ())}" if broken else ""
            kind = AirflowFailException if broken else AirflowException
            raise kind(
                f"The template of {field} cannot be rendered ({type(error).__name__}{reason}). Nothing was sent."
            ) from None


def select_fields(record: Mapping[str, Any], return_fields: Iterable[str] | None) -> dict[str, Any]:
    """Return the fields an author asked for, in that order; all where none are named."""
    if return_fields is None:
        return dict(record)
    wanted = list(return_fields)
    if unknown := [field for field in wanted if field not in record]:
        raise AirflowFailException(
            f"return_fields names fields that the record does not have: {', '.join(unknown)}. It has: "
            f"{', '.join(record)}."
        )
    return {field: record[field] for field in wanted}
