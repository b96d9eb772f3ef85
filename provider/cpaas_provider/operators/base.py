"""The bases of the operators: the connection, masked fields, and one try from ``execute`` to its result.

``SendOperator`` is the base of those that make one request at most once: messages, passcodes and purchases.
"""

from __future__ import annotations

import inspect
import time
from collections.abc import Callable, Collection, Iterable, Mapping
from datetime import timedelta
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, ClassVar, Literal, TypeVar

from airflow.sdk import BaseOperator, get_current_context
from airflow.sdk.bases.operator import BaseOperatorMeta
from airflow.sdk.exceptions import AirflowFailException

from cpaas_provider.provider_info import DEFAULT_CONN_ID, with_documentation
from cpaas_provider.tasks import validators

if TYPE_CHECKING:
    import jinja2
    from airflow.sdk import BaseOperatorLink, Context

    from cpaas_provider.api.client import CpaasClient
    from cpaas_provider.hooks.connection import CpaasConnection
    from cpaas_provider.sending.requests.request import SingleRequest
    from cpaas_provider.tasks.lineage import Lineage
    from cpaas_provider.tasks.runner import Attempt
    from cpaas_provider.tasks.runtime import TaskRuntime

T = TypeVar("T")
SpecT = TypeVar("SpecT")

UI_COLOR = "#d7ecff"

STOP_GRACE_PERIOD = 4.0
"""Default of ``stop_grace_period``: seconds to wait for a response after Airflow stops the task."""

OnUnknown = Literal["fail", "skip", "resend"]

_NO_ARGUMENTS = {"self", "kwargs", "__class__"}
"""What a constructor's ``locals()`` have beside its arguments."""

# BaseOperator has a method dry_run.
_ATTRIBUTES = {"dry_run": "without_sending"}
"""The attributes that are named otherwise than their arguments."""


class _OperatorMeta(BaseOperatorMeta):
    """Makes operators. Airflow makes a mapped one on the worker, where its arguments may be refused."""

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        try:
            return super().__call__(*args, **kwargs)
        except Exception:
            if kwargs.get("_airflow_from_mapped") and issubclass(self, CpaasOperator):
                self._unmapping_failed(kwargs)
            raise


class CpaasOperator(BaseOperator, metaclass=_OperatorMeta):
    """Base of the operators: ``request`` makes one request of the service, this class does everything around it.

    * The task fails without a retry when a retry cannot help, or when the outcome is unknown and a retry could act
      twice. Any other failure is retried as the task's ``retries`` allow.
    * When ``Retry-After`` of the service exceeds ``max_retry_after``, the task defers. It holds no worker slot, uses
      no try, and makes its request on a worker afterwards.
    * Fields named in ``masked_fields`` are rendered, but Airflow stores and shows only a summary of them.

    :param cpaas_conn_id: the connection to use (templated)
    """

    ui_color = UI_COLOR
    template_fields: Collection[str] = ("cpaas_conn_id",)
    masked_fields: ClassVar[Mapping[str, Callable[[Any], Any]]] = {}
    stop_grace_period = STOP_GRACE_PERIOD
    has_task_journal: ClassVar[bool] = False
    """Whether requests are recorded in the task state store before they leave, unless there is an idempotency key."""

    delivery_link: str = ""
    """The address that ``DeliveryLink`` shows; empty without delivery reports."""

    # Airflow may stop the task while it is still being rendered.
    _stop_requested: bool = False
    _runtime: TaskRuntime | None = None
    _lineage: Lineage | None = None
    _rendered_values: Mapping[str, Any] = MappingProxyType({})
    _valueless: Mapping[str, str] = MappingProxyType({})
    optional_fields: ClassVar[frozenset[str]] = frozenset()
    """Templated fields that may be empty after rendering."""
    typed_fields: ClassVar[Mapping[str, validators.Check]] = {}
    """The checks of templated arguments that are booleans or numbers. A template makes text of these."""
    _typed_templates: tuple[str, ...] = ()
    """Those that are templates or outputs of tasks, in the order of the signature. Of all others the DAG file has the
    value, which is checked."""

    if TYPE_CHECKING:

        def __getattr__(self, name: str) -> Any:
            """Return an argument: each is an attribute, see ``_set_arguments``."""

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
        return self._run(context, None)

    def resume_after_wait(
        self, context: Context, event: Any = None, deadline: str | None = None, **resumed: Any
    ) -> Any:
        """Continue after a deferral.

        :param deadline: latest time until which the task may be deferred for ``Retry-After``
        :param resumed: values that the deferred try passed to this one
        """
        return self._run(context, deadline, **resumed)

    def resume_after_answer(
        self, context: Context, event: Any = None, deadline: str | None = None, **resumed: Any
    ) -> Any:
        """Continue after a user responded whether a limit may be exceeded, or did not respond in time.

        :param event: the response, as Airflow gives it
        :param resumed: values that the try that asked passed to this one
        """
        return self._run(context, deadline, answer=event or {}, **resumed)

    def make_attempt(self, runtime: TaskRuntime, **resumed: Any) -> Attempt:
        """Return the work of this try.

        :param resumed: values that a deferred try passed to this one
        """
        from cpaas_provider.tasks.runner import ReadAttempt

        return ReadAttempt(runtime, self.request)

    def rendered(self, field: str) -> Any:
        """Return a masked field as rendered. The attribute holds only its summary."""
        return self._rendered_values.get(field, getattr(self, field))

    def on_kill(self) -> None:
        """Send nothing more, and wait ``stop_grace_period`` for a response."""
        self._stop_requested = True
        if self._runtime is not None:
            self._runtime.stop.request()

    def _run(self, context: Context, deadline: str | None, *, answer: Any = None, **resumed: Any) -> Any:
        # Before the imports and the connection lookup, because Airflow already counts execution_timeout.
        began = time.monotonic()
        try:
            runtime = self._open_runtime(context, began)
            if answer is not None:
                from cpaas_provider.tasks.airflow.confirmation import Confirmations

                Confirmations(runtime).record_answer(answer)
            attempt = self.make_attempt(runtime, **resumed)
        except BaseException:
            # Airflow's timeout of a task is no Exception.
            self._runtime = None
            self._record_nothing_sent(context)
            raise
        from cpaas_provider.tasks.runner import run_attempt

        try:
            return run_attempt(attempt, runtime, deadline)
        finally:
            self.delivery_link = runtime.delivery_link
            self._lineage = attempt.lineage
            self._runtime = None

    def _open_runtime(self, context: Context, began: float) -> TaskRuntime:
        from cpaas_provider.hooks.cpaas import CpaasHook
        from cpaas_provider.sending.shutdown import StopSignal
        from cpaas_provider.tasks.runtime import TaskRuntime

        stop: StopSignal = StopSignal(self.stop_grace_period, self.execution_timeout, began)
        runtime = TaskRuntime(
            context,
            CpaasHook(self.cpaas_conn_id),
            retries=self.retries,
            stop=stop,
            log=self.log,
            task_type=self.task_type,
            arguments=vars(self),
            valueless=self._valueless,
        )
        self._runtime = runtime
        if self._stop_requested:
            stop.request()
        return runtime

    def _build_spec(self, spec_class: Callable[..., SpecT], **set_fields: Any) -> SpecT:
        """Return a spec with these fields. Every other field has the rendered argument of the same name.

        :raises AirflowFailException: when rendered arguments cannot be used
        """
        names = [name for name in inspect.signature(spec_class).parameters if name not in set_fields]
        # If several cannot be used, the error is about the first one of the signature.
        typed = {name: self.option(name) for name in self._typed_templates if name in names}
        options = {name: self.rendered(_ATTRIBUTES.get(name, name)) for name in names} | typed
        try:
            if self._typed_templates:
                self._check_together(options)
        except ValueError as error:
            raise AirflowFailException(f"{error} Nothing was sent.") from None
        return spec_class(**set_fields, **options)

    def option(self, name: str) -> Any:
        """Return an argument as rendered, and one of ``typed_fields`` as a value of its type.

        :raises AirflowFailException: when it was rendered to something else
        """
        value = self.rendered(_ATTRIBUTES.get(name, name))
        try:
            return validators.rendered(self.typed_fields[name])(name, value) if name in self._typed_templates else value
        except ValueError as error:
            raise AirflowFailException(f"{error} Nothing was sent.") from None

    def _check_together(self, options: Mapping[str, Any]) -> None:
        """Check rendered arguments that depend on each other.

        :raises ValueError: when they cannot be used together
        """

    def _set_arguments(self, arguments: Mapping[str, Any], **checks: validators.Check) -> None:
        """Check the arguments of a constructor, and make each an attribute. An error names the task.

        :param arguments: the ``locals()`` of the constructor
        :param checks: the checks of arguments that ``OPTION_CHECKS`` does not have, or that are others here
        """
        typed = {name: validators.templated(check) for name, check in self.typed_fields.items()}
        checks = {**validators.OPTION_CHECKS, **typed, **checks}
        for name, argument in arguments.items():
            if name in _NO_ARGUMENTS:
                continue
            if name in self.typed_fields and not validators.is_final(argument):
                self._typed_templates += (name,)
            try:
                value = checks[name](name, argument) if name in checks else argument
            except ValueError as error:
                raise ValueError(f"{self}: {error}") from None
            setattr(self, _ATTRIBUTES.get(name, name), value)

    def _render(self, template: jinja2.Template, context: Any, dag: Any = None) -> Any:
        """Render one template. Airflow would change texts that look like Python."""
        from cpaas_provider._common.rendering import render

        return render(self, template, context)

    def _do_render_template_fields(
        self,
        parent: Any,
        template_fields: Iterable[str],
        context: Context,
        jinja_env: jinja2.Environment,
        seen_oids: set[int],
    ) -> None:
        """Render as Airflow does, and leave only summaries of masked fields for Airflow to store and show.

        Airflow calls this method for mapped tasks and for other tasks.
        """
        render = super()._do_render_template_fields
        from cpaas_provider._common.rendering import render_typed
        from cpaas_provider.operators._masked_rendering import render_fields

        if parent is not self:
            render_typed(self, render, parent, list(template_fields), context, jinja_env, seen_oids)
            return
        from cpaas_provider.api.values import no_value_reason

        named = [field for field in template_fields if getattr(self, field) is not None]
        try:
            self._rendered_values = render_fields(
                self, render, template_fields, self.masked_fields, context, jinja_env, seen_oids
            )
        except Exception:
            self._record_nothing_sent(context)
            raise
        reasons = {name: no_value_reason(self.rendered(name)) for name in named if name not in self.optional_fields}
        self._valueless = {name: reason for name, reason in reasons.items() if reason}
        for field, value in self._rendered_values.items():
            setattr(self, field, self.masked_fields[field](value))
        if self._may_fail_before_execute():
            self._record_nothing_sent(context)

    def get_openlineage_facets_on_complete(self, task_instance: Any) -> Any:
        """Return the datasets for OpenLineage: the sources, the results file, and the list that a sync writes.

        :return: ``None`` if the task read no source
        """
        if self._lineage is None:
            return None
        from cpaas_provider.tasks.lineage import build_lineage

        return build_lineage(self._lineage)

    def _may_fail_before_execute(self) -> bool:
        """Return whether code of the author or checks of Airflow run between rendering and the provider's code."""
        return bool(
            self._pre_execute_hook
            or self.on_execute_callback
            or self.inlets
            or self.outlets
            # A subclass of the author.
            or not type(self).__module__.startswith("cpaas_provider.")
        )

    def _record_nothing_sent(self, context: Context) -> None:
        """Record that this try has sent nothing so far, so that a later clear does not look for its journal."""
        if self.has_task_journal and not getattr(self, "has_idempotency_key", False):
            from cpaas_provider.tasks.airflow.context import record_nothing_sent

            record_nothing_sent(context)

    @classmethod
    def _unmapping_failed(cls, arguments: Mapping[str, Any]) -> None:
        """Record that this try sent nothing, if it is the one whose arguments cannot be used."""
        if not cls.has_task_journal or arguments.get("idempotency_key") is not None:
            return
        try:
            context = get_current_context()
        except RuntimeError:
            return
        instance: Any = context["ti"]
        if (instance.dag_id, instance.task_id) == (arguments["dag"].dag_id, arguments["task_id"]):
            from cpaas_provider.tasks.airflow.context import record_nothing_sent

            record_nothing_sent(context)
            cls._before_unmapping_fails(context)

    @classmethod
    def _before_unmapping_fails(cls, context: Context) -> None:
        """Do what else a try must do before it fails because its arguments cannot be used."""


class LazyDeliveryLinks:
    """The ``operator_extra_links`` of a class. The link is imported on first use, because a DAG file needs none."""

    def __get__(self, operator: object, owner: Any) -> tuple[BaseOperatorLink, ...]:
        if owner.operation is None:
            # The service sends no delivery reports for passcodes, so there is no page to link to.
            return ()
        from cpaas_provider.links.delivery import DeliveryLink

        return (DeliveryLink(),)


class SendOperator(CpaasOperator):
    """Base of operators whose request must not be made twice (docs: concepts/guarantees).

    Before a request leaves, its intent is written to the journal in Airflow's task state store. Its result is written
    after the response. A later try returns accepted requests and sends requests that were not sent. For a request of
    unknown outcome it runs the probes, then follows ``on_unknown``. A stale run does not send.

    :param on_unknown: what to do about a request of unknown outcome. ``fail`` fails the task without a retry and names
        the request. ``skip`` lets the task succeed and counts its recipients as unknown. ``resend`` sends it again
    :param unknown_timeout: longest wait for a probe to resolve a request of unknown outcome, as a timedelta or in
        seconds, counted from the request. The task is deferred meanwhile. For a passcode the probe is its record, and
        the wait is 30 seconds at most. For SMS, email and airtime it is a delivery report, which needs a
        ``callback_url`` on the connection
    :param resend_on_clear: send everything again when the task is cleared. By default a clear sends only what was not
        accepted
    :param stop_grace_period: seconds to wait for a response after Airflow stops the task, or before its
        ``execution_timeout``. Airflow kills a task 5 seconds after it stops it
    :param allow_backfill: let backfills and catch-up runs send, too
    :param track_recipients: record the recipients in the database, so that ``DeliverySensor`` can name recipients
        without a delivery report. It needs ``callback_url`` on the connection
    :param max_lateness: how long after ``run_after`` any other run may still send. ``None`` sets no limit
    :param use_suppression_list: do not send to recipients on the suppression list that the provider stores. For a
        passcode only ``invalid_number`` counts, because its recipient asked for it. A purchase of airtime does not
        consult it (docs: guides/suppressions)
    :param external_ref: a reference of your own. Default: the provider's, which errors and the journal name (templated)
    :param callback: a URL of your own that receives the delivery reports (templated)
    :param frequency_cap: how many messages of ``frequency_category`` a recipient may get, over all DAGs, such as
        ``(3, timedelta(days=7))`` for three in seven days, at most 90 days. Recipients at the cap are left out
    :param frequency_category: the category in which the message counts, such as ``marketing``. Without a
        ``frequency_cap`` it counts, and no recipient is left out. Default: ``default``, if there is a cap
    """

    has_task_journal = True
    operator_extra_links: Any = LazyDeliveryLinks()
    operation: ClassVar[str | None] = None
    """The operation that delivery reports belong to, ``None`` if the service sends none."""

    # Arguments of some of the operators, which are described above for all of these.
    callback: str | None = None
    external_ref: str | None = None
    frequency_cap: tuple[int, timedelta] | None = None
    frequency_category: str | None = None

    def __init__(
        self,
        *,
        on_unknown: OnUnknown = "fail",
        unknown_timeout: timedelta | float = timedelta(minutes=10),
        resend_on_clear: bool = False,
        stop_grace_period: float = STOP_GRACE_PERIOD,
        allow_backfill: bool = False,
        track_recipients: bool = False,
        max_lateness: timedelta | None = timedelta(days=1),
        use_suppression_list: bool = True,
        **kwargs: Any,
    ) -> None:
        super().__init__(**kwargs)
        self._set_arguments(locals())

    def build_request(self) -> SingleRequest:
        """Return the one request, from the rendered arguments."""
        raise NotImplementedError

    def make_attempt(self, runtime: TaskRuntime, **resumed: Any) -> Attempt:
        """Return one try of the send.

        :param resumed: ``resends``: the number of resends that the try made before it was deferred
        """
        from cpaas_provider.tasks.delivery.reports import ReportOptions
        from cpaas_provider.tasks.single.send import SendOptions, SingleSend

        return SingleSend(
            request=self.build_request(),
            options=self._build_spec(SendOptions, guards_run=True),
            report_options=self._build_spec(ReportOptions),
            runtime=runtime,
            resends=resumed.get("resends", 0),
        )


def select_fields(record: Mapping[str, Any], return_fields: Iterable[str] | None) -> dict[str, Any]:
    """Return the fields that ``return_fields`` names, in that order, or all of them for ``None``."""
    if return_fields is None:
        return dict(record)
    wanted = list(return_fields)
    if unknown := [field for field in wanted if field not in record]:
        raise AirflowFailException(
            f"return_fields names fields that the record does not have: {', '.join(unknown)}. It has: "
            f"{', '.join(record)}."
        )
    return {field: record[field] for field in wanted}
