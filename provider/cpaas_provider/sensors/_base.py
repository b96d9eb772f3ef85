"""The base of sensors that wait on a worker or on the triggerer, with one meaning of ``timeout`` and ``soft_fail``."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from datetime import timedelta
from functools import partial
from typing import TYPE_CHECKING, Any

from airflow.sdk import BaseSensorOperator, PokeReturnValue, conf, timezone
from airflow.sdk.exceptions import AirflowException, AirflowFailException, AirflowSensorTimeout, AirflowSkipException

from cpaas_provider.api.amounts import counted
from cpaas_provider.provider_info import with_documentation

if TYPE_CHECKING:
    import jinja2
    from airflow.sdk import Context
    from airflow.triggers.base import BaseTrigger

_SLACK = timedelta(minutes=5)


class DeferrableSensor(BaseSensorOperator):
    """Reads once on the worker, then waits there or on the triggerer.

    Airflow reports only that a sensor timed out, or skips it without a reason; ``_time_out`` says what was reached. A
    failure that ``soft_fail`` turns into a skip keeps its message.
    """

    def __init__(self, *, deferrable: bool, **kwargs: Any) -> None:
        super().__init__(**with_documentation(type(self), "sensors", kwargs))
        self.deferrable = deferrable

    def execute(self, context: Context) -> Any:
        """Wait, on a worker or on the triggerer."""
        self.log.info("%s", self._start_line())
        begin = self._begin_deferred if self.deferrable else super().execute
        return self._with_reason(context, partial(begin, context))

    def resume_execution(self, next_method: str, next_kwargs: dict[str, Any] | None, context: Context) -> Any:
        """Continue after the trigger, also if it ended without an event."""
        return self._with_reason(context, partial(super().resume_execution, next_method, next_kwargs, context))

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
        """Render as Airflow does, and give natively rendered fields the type that they are for."""
        from cpaas_provider._common.rendering import render_typed

        render = super()._do_render_template_fields
        render_typed(self, render, parent, template_fields, context, jinja_env, seen_oids)

    def _awaited(self) -> tuple[str, str]:
        """Return what the sensor waits for and what it reads, without private values."""
        raise NotImplementedError

    def _trigger(self, deadline: str) -> BaseTrigger:
        """Return the trigger that waits until the deadline and resumes ``execute_complete``."""
        raise NotImplementedError

    def _time_out(self, context: Context, kind: type[AirflowException]) -> Any:
        """Return the result of a wait that timed out, or raise an exception of this kind with the reason."""
        raise NotImplementedError

    def _start_line(self) -> str:
        """Return the first line of the log: what the sensor waits for, where, how often it reads, and for how long."""
        if self.deferrable:
            waits_on = "the triggerer"
        elif self.mode == "reschedule":
            waits_on = "a worker, which is free between two reads"
        else:
            waits_on = "a worker"
        awaited, place = self._awaited()
        return (
            f"{self.task_type} waits for {awaited}, on {waits_on}: {place} is read every "
            f"{_seconds(self.poke_interval)}, for at most {_seconds(self.timeout)}."
        )

    def _begin_deferred(self, context: Context) -> Any:
        """Read once before deferring: a wait that is over needs no trigger."""
        try:
            first = self.poke(context)
        except AirflowFailException as error:
            # Airflow turns failures of execute() and of a resumed task into skips, but not this one.
            if self.soft_fail or self.never_fail:
                raise AirflowSkipException(str(error)) from error
            raise
        if isinstance(first, PokeReturnValue):
            return first.xcom_value
        timeout = timedelta(seconds=self.timeout)
        self.defer(
            trigger=self._trigger((timezone.utcnow() + timeout).isoformat()),
            method_name="execute_complete",
            # The trigger keeps the deadline; this ends the wait if no triggerer is running.
            timeout=timeout + _SLACK,
        )
        return None

    def _with_reason(self, context: Context, wait: Callable[[], Any]) -> Any:
        """Wait. If that ends with a timeout or a skip, end the task with the reason."""
        try:
            return wait()
        except (AirflowSkipException, AirflowSensorTimeout) as error:
            ended = error
        if not isinstance(ended, AirflowSkipException):
            return self._time_out(context, AirflowSensorTimeout)
        cause = ended.__cause__
        if cause is not None and not isinstance(cause, AirflowSensorTimeout):
            raise AirflowSkipException(str(cause)) from None
        return self._time_out(context, AirflowSkipException)


def is_deferrable(deferrable: bool | None) -> bool:
    """Return the author's choice, or Airflow's ``[operators] default_deferrable``."""
    if deferrable is not None:
        return deferrable
    return conf.getboolean("operators", "default_deferrable", fallback=False)


def _seconds(span: timedelta | float) -> str:
    number = span.total_seconds() if isinstance(span, timedelta) else float(span)
    return counted(int(number), "second") if number == int(number) else f"{number:g} seconds"
