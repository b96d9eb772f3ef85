"""The base of sensors that wait on a worker or on the triggerer. A wait ends alike in all modes."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from datetime import timedelta
from functools import partial
from typing import TYPE_CHECKING, Any

from airflow.sdk import BaseSensorOperator, PokeReturnValue, conf, timezone
from airflow.sdk.exceptions import (
    AirflowException,
    AirflowFailException,
    AirflowRescheduleException,
    AirflowSensorTimeout,
    AirflowSkipException,
    TaskDeferralTimeout,
)

from cpaas_provider.api import bounds
from cpaas_provider.api.amounts import counted
from cpaas_provider.provider_info import with_documentation

if TYPE_CHECKING:
    import jinja2
    from airflow.sdk import Context
    from airflow.triggers.base import BaseTrigger

    from cpaas_provider.triggers._polling.progress import ProgressLog

_SLACK = timedelta(minutes=5)

SHORTEST_RESCHEDULE = 60
"""Seconds below which ``poke_interval`` is too short for ``mode="reschedule"``."""


class DeferrableSensor(BaseSensorOperator):
    """Reads once on the worker, then waits there or on the triggerer.

    Airflow ends a sensor in each mode by other rules, and a skip or timeout without a reason. Here ``_end`` decides,
    in all modes:

    * A failure for good (``AirflowFailException``) fails the task. With ``soft_fail`` it is skipped, with the reason.
    * A timeout does the same, with what was reached until then (``_time_out``).
    * After any other failure a retry of the task waits again, also with ``soft_fail``. With ``never_fail`` the task is
      skipped.
    """

    def __init__(self, *, deferrable: bool, **kwargs: Any) -> None:
        super().__init__(**with_documentation(type(self), "sensors", kwargs))
        self.deferrable = deferrable
        self._progress: ProgressLog | None = None

    def execute(self, context: Context) -> Any:
        """Wait, on a worker or on the triggerer."""
        begin = self._begin_deferred if self.deferrable else super().execute

        def wait() -> Any:
            self._log_start(context)
            return begin(context)

        return self._end(context, wait)

    def resume_execution(self, next_method: str, next_kwargs: dict[str, Any] | None, context: Context) -> Any:
        """Continue after the trigger, also if it ended without an event."""
        # Not that of Airflow's sensors, which with soft_fail skips the task after a failure of any kind.
        resume = super(BaseSensorOperator, self).resume_execution
        return self._end(context, partial(resume, next_method, next_kwargs, context))

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

    def _time_out(self, context: Context) -> Any:
        """Return the result of a wait that timed out, or raise ``AirflowSensorTimeout`` with the reason."""
        raise NotImplementedError

    def _longest_wait(self) -> float:
        """Return the seconds until the wait ends at the latest."""
        return self.timeout

    @property
    def _is_rescheduling(self) -> bool:
        """Whether a process starts for each read. ``deferrable`` comes before ``mode``."""
        return self.reschedule and not self.deferrable

    def _was_rescheduled(self, context: Context) -> bool:
        """Return whether an earlier process of this try has read already."""
        return self.reschedule and context["ti"].get_first_reschedule_date(context) is not None

    def _log_progress(self, line: str) -> None:
        """Log where the wait stands, if it is time."""
        if self._progress is None:
            from cpaas_provider.triggers._polling.progress import ProgressLog

            self._progress = ProgressLog(self.log)
        self._progress.report(line)

    def _log_start(self, context: Context) -> None:
        if self._was_rescheduled(context):
            return
        self.log.info("%s", self._start_line())
        if self._is_rescheduling and self.poke_interval < SHORTEST_RESCHEDULE:
            self.log.warning(
                "mode='reschedule' starts a process for each read, and poke_interval is %s. Starting a process may "
                "take longer than that. Set poke_interval to %d seconds or more, or use deferrable=True.",
                _seconds(self.poke_interval),
                SHORTEST_RESCHEDULE,
            )

    def _start_line(self) -> str:
        """Return the first line of the log: what the sensor waits for, where, how often it reads, and for how long."""
        if self.deferrable:
            waits_on = "the triggerer"
        elif self.mode == "reschedule":
            waits_on = "a worker, which is free between two reads"
        else:
            waits_on = "a worker"
        awaited, source = self._awaited()
        return (
            f"{self.task_type} waits for {awaited}, on {waits_on}: {source} is read every "
            f"{_seconds(self.poke_interval)}, for at most {_seconds(self._longest_wait())}."
        )

    def _begin_deferred(self, context: Context) -> Any:
        """Read once before deferring: a wait that is over needs no trigger."""
        first = self.poke(context)
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

    def _end(self, context: Context, wait: Callable[[], Any]) -> Any:
        """Wait, and end the task by the rules of this class."""
        try:
            try:
                return wait()
            except AirflowRescheduleException:
                raise
            except AirflowException as error:
                if not _is_timeout(cause := _cause(error)):
                    raise cause from None
            return self._time_out(context)
        except AirflowRescheduleException:
            raise
        except Exception as error:
            is_final = isinstance(error, (AirflowFailException, AirflowSensorTimeout))
            if self.never_fail or (self.soft_fail and is_final):
                from cpaas_provider.tasks.airflow.context import SKIP_REASON_KEY, push_or_warn

                push_or_warn(context, SKIP_REASON_KEY, str(error))
                raise AirflowSkipException(str(error)) from error
            raise


def _cause(error: AirflowException) -> BaseException:
    """Return the error that Airflow's sensor made a skip of, or the error itself."""
    return error.__cause__ or error if isinstance(error, AirflowSkipException) else error


def _is_timeout(error: BaseException) -> bool:
    """Tell whether a wait timed out. Airflow raises a skip of its own for that, and no sensor of ours raises one."""
    return isinstance(error, (AirflowSensorTimeout, AirflowSkipException, TaskDeferralTimeout))


def is_deferrable(deferrable: bool | None) -> bool:
    """Return the author's choice, or Airflow's ``[operators] default_deferrable``."""
    if deferrable is not None:
        return bounds.flag("deferrable", deferrable)
    return conf.getboolean("operators", "default_deferrable", fallback=False)


def _seconds(span: timedelta | float) -> str:
    number = span.total_seconds() if isinstance(span, timedelta) else float(span)
    return counted(int(number), "second") if number == int(number) else f"{number:g} seconds"
