"""The sensor that waits for the delivery of messages (docs/guides/delivery-tracking.md)."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from datetime import timedelta
from typing import TYPE_CHECKING, Any

from airflow.sdk import BaseSensorOperator, PokeReturnValue, conf, timezone
from airflow.sdk.exceptions import AirflowException, AirflowFailException, AirflowSensorTimeout, AirflowSkipException

from cpaas_provider.api import bounds
from cpaas_provider.provider_info import with_documentation
from cpaas_provider.sensors._start_log import begins

if TYPE_CHECKING:
    from airflow.sdk import Context

    from cpaas_provider.sensors._delivery_status import Look
    from cpaas_provider.sensors._send_result import Sent
    from cpaas_provider.triggers._polling.delivery_criteria import DeliveryCriteria

# On the triggerer a round is one cheap query for all who wait; on a worker each has its own.
DEFAULT_ROUND = 1.0
DEFAULT_POKE_INTERVAL = 10.0
DEFAULT_TIMEOUT = timedelta(days=1)

REPORT_KEY = "report"
"""The XCom with the report of a sensor that fails."""

_SLACK = timedelta(minutes=5)
_STANDING = (
    "Of {expected:,} recipients {delivered:,} are delivered, {undelivered:,} undelivered, {in_flight:,} in flight and "
    "{unreported:,} unreported."
)
_ENDS = {
    "missed": "Too few recipients were delivered: min_delivered={share} can no longer be reached. ",
    "timed_out": "The wait for delivery timed out after {timeout:g} s. ",
}


class DeliverySensor(BaseSensorOperator):
    """Wait until messages are delivered, by the delivery reports in the provider's database.

    Without ``min_delivered`` the sensor succeeds once every recipient has a final status, delivered or not. With
    ``min_delivered`` it succeeds once that share of the recipients is delivered. It fails once that share can no longer
    be reached. It also fails when ``timeout`` is over. With ``soft_fail`` the task is skipped instead.

    ``expected`` is the number of recipients the service accepted. Recipients of a request of unknown outcome are added
    once a delivery report names them. They never replace a recipient without a report. A database that cannot be read
    does not end the wait. Only the results file holds numbers and addresses.

    A sensor that fails pushes its figures as the XCom ``report``.

    :param send_result: the result (``.output``) of ``SendSmsOperator``, ``SendEmailOperator``, a campaign operator or
        ``BuyAirtimeOperator``. It can also be a list of results, such as the output of a mapped task, or references
        (templated)
    :param min_delivered: share of the expected recipients that must be delivered, above 0 and up to 1. Default: none
    :param results_path: path of the results file, ``.jsonl`` or ``.parquet``, also written if the sensor fails. It has
        one line for each recipient that the database has a record of (templated)
    :param deferrable: wait on the triggerer instead of a worker. Default: Airflow's ``[operators] default_deferrable``
    :param poke_interval: seconds between two reads of the database, at least 1. Default: 1 on the triggerer, where one
        query serves all waiting sensors, otherwise 10
    :param timeout: seconds after which the wait ends. Default: one day
    :returns: the delivery figures:

        | Key | Value |
        |---|---|
        | ``expected`` | Number of recipients accepted, the sum of the next four. |
        | ``delivered`` | Number of recipients the message was delivered to. |
        | ``undelivered`` | Number of recipients the message could not be delivered to. |
        | ``in_flight`` | Number of recipients with a report and no final status yet. |
        | ``unreported`` | Number of recipients without a report. |
        | ``conflicts`` | Number of recipients reported as both delivered and undelivered. |
        | ``results_path`` | Path of the results file, null without one. |
    """

    template_fields: Collection[str] = ("send_result", "results_path")
    ui_color = "#e3d7ff"

    def __init__(
        self,
        *,
        send_result: Any,
        min_delivered: float | None = None,
        results_path: Any = None,
        deferrable: bool | None = None,
        poke_interval: timedelta | float | None = None,
        timeout: timedelta | float = DEFAULT_TIMEOUT,
        **kwargs: Any,
    ) -> None:
        if deferrable is None:
            deferrable = conf.getboolean("operators", "default_deferrable", fallback=False)
        if poke_interval is None:
            poke_interval = DEFAULT_ROUND if deferrable else DEFAULT_POKE_INTERVAL
        _refuse_out_of_bounds(kwargs.get("task_id"), poke_interval, results_path)
        kwargs = with_documentation(type(self), "sensors", kwargs)
        super().__init__(poke_interval=poke_interval, timeout=timeout, **kwargs)
        self.send_result = send_result
        self.min_delivered = min_delivered
        self.results_path = results_path
        self.deferrable = deferrable
        if min_delivered is not None and not _is_share(min_delivered):
            raise ValueError(f"{self}: min_delivered must be a number above 0 and up to 1; it is {min_delivered!r}.")
        self._seen: Look | None = None
        self._of_the_trigger: Mapping[str, Any] | None = None
        self._told: set[str] = set()

    def execute(self, context: Context) -> Any:
        """Wait, on a worker or on the triggerer."""
        share = (
            "a final status of every recipient"
            if self.min_delivered is None
            else f"delivery to a share of {self.min_delivered:g} of the recipients"
        )
        self.log.info("%s", begins(self, share, "the database of delivery reports", self.poke_interval))
        on_worker = super().execute
        return self._to_its_end(context, lambda: self._defer(context) if self.deferrable else on_worker(context))

    def resume_execution(self, next_method: str, next_kwargs: dict[str, Any] | None, context: Context) -> Any:
        """Continue after the trigger, also where it ended without an event."""
        resume = super().resume_execution
        return self._to_its_end(context, lambda: resume(next_method, next_kwargs, context))

    def poke(self, context: Context) -> bool | PokeReturnValue:
        """Read the database once."""
        seen = self._look(context)
        verdict = self._criteria(seen.sent).evaluate(seen.counts) if seen else None
        return PokeReturnValue(is_done=True, xcom_value=self._conclude(context, verdict)) if verdict else False

    def execute_complete(self, context: Context, event: Any = None) -> dict[str, Any]:
        """Continue on a worker with the trigger's event."""
        from cpaas_provider.triggers._polling.delivery_criteria import DONE, ERROR, FIGURES, MISSED, TIMED_OUT

        event = event if isinstance(event, dict) else {}
        outcome = event.get("outcome")
        if outcome == ERROR:
            raise AirflowFailException(str(event.get("message")))
        if outcome not in (DONE, MISSED, TIMED_OUT) or not all(_is_count(event.get(name)) for name in FIGURES):
            raise AirflowException("The trigger returned no delivery figures. A retry of the task waits again.")
        if outcome == TIMED_OUT:
            self._of_the_trigger = event
            raise AirflowSensorTimeout
        return self._conclude(context, event)

    def _to_its_end(self, context: Context, wait: Callable[[], Any]) -> Any:
        """Report the delivery figures where Airflow only reports that a sensor timed out, or skips softly."""
        kind: type[AirflowException] = AirflowSensorTimeout
        try:
            return wait()
        except AirflowSkipException as skip:
            ended_by = skip.__cause__
            if ended_by is not None and not isinstance(ended_by, AirflowSensorTimeout):
                raise AirflowSkipException(str(ended_by)) from None
            kind = AirflowSkipException
        except AirflowSensorTimeout:
            pass
        return self._give_up(context, kind)

    def _give_up(self, context: Context, kind: type[AirflowException]) -> dict[str, Any]:
        """End the wait after a last look, which may show that it came to its end after all."""
        from cpaas_provider.triggers._polling.delivery_criteria import DONE

        seen = self._look(context) or self._seen
        verdict = self._criteria(seen.sent).evaluate_timeout(seen.counts) if seen else self._of_the_trigger
        if verdict is None:
            raise kind(f"{_ENDS['timed_out'].format(timeout=self.timeout)}The database could not be read.")
        if verdict["outcome"] == DONE:
            return self._conclude(context, verdict)
        raise kind(self._failure(context, verdict))

    def _defer(self, context: Context) -> Any:
        """Look once before deferring: what is over already needs no trigger."""
        from cpaas_provider.triggers.delivery import DeliveryTrigger

        try:
            first = self.poke(context)
        except AirflowFailException as error:
            # Airflow softens failures of execute() and of a resumed task, but not of this one.
            if self.soft_fail or self.never_fail:
                raise AirflowSkipException(str(error)) from error
            raise
        if isinstance(first, PokeReturnValue):
            return first.xcom_value
        sent = self._seen.sent if self._seen else self._read_sent()
        if sent.untold:
            raise AirflowException(
                "The database could not be read, so the number of recipients to wait for is unknown. Nothing was "
                "changed. A retry of the task reads it again."
            )
        self.defer(
            trigger=DeliveryTrigger(
                campaigns=list(sent.campaigns),
                expected=sent.expected,
                min_delivered=self.min_delivered,
                deadline=(timezone.utcnow() + timedelta(seconds=self.timeout)).isoformat(),
                poke_interval=self.poke_interval,
                unknown=list(sent.unknown),
            ),
            method_name="execute_complete",
            # The trigger keeps the deadline; this ends the wait where no triggerer is running.
            timeout=timedelta(seconds=self.timeout) + _SLACK,
        )
        return None

    def _look(self, context: Context) -> Look | None:
        """Return what the database shows, ``None`` where it cannot be read this time."""
        from cpaas_provider.database.errors import DatabaseError, ReportsNotSupportedError
        from cpaas_provider.delivery.tracking.awaited import NOT_IN_DATABASE
        from cpaas_provider.sensors._delivery_results import results_file
        from cpaas_provider.sensors._delivery_status import look

        try:
            if self.results_path is not None:
                results_file(self.results_path)
            self._seen = look(self._seen.sent if self._seen else self._read_sent())
        except (ValueError, ReportsNotSupportedError) as error:
            raise AirflowFailException(str(error)) from None
        except DatabaseError as error:
            self._warn_once("store", f"{error} The wait continues.")
            return None
        if self._seen.is_strange and not self._was_rescheduled(context):
            self._warn_once("strange", NOT_IN_DATABASE)
        return self._seen

    def _read_sent(self) -> Sent:
        from cpaas_provider.sensors._send_result import read_sent

        try:
            return read_sent(self.send_result)
        except ValueError as error:
            raise AirflowFailException(str(error)) from None

    def _criteria(self, sent: Sent) -> DeliveryCriteria:
        from cpaas_provider.triggers._polling.delivery_criteria import DeliveryCriteria

        return DeliveryCriteria(sent.expected, self.min_delivered)

    def _conclude(self, context: Context, verdict: Mapping[str, Any]) -> dict[str, Any]:
        """Return the result of a wait that reached its goal; fail the task for good where it no longer can."""
        from cpaas_provider.database.errors import DatabaseError
        from cpaas_provider.sending.errors import SendingError
        from cpaas_provider.triggers._polling.delivery_criteria import DONE

        if verdict["outcome"] != DONE:
            raise AirflowFailException(self._failure(context, verdict))
        self.log.info("%s", _STANDING.format_map(verdict))
        try:
            return self._report(verdict)
        except (SendingError, DatabaseError) as error:
            raise AirflowException(str(error)) from None

    def _failure(self, context: Context, verdict: Mapping[str, Any]) -> str:
        """Leave the report for tasks downstream, and return why the sensor fails."""
        try:
            report = self._report(verdict)
        except Exception as error:  # noqa: BLE001 - the failure that is being reported matters more
            self.log.warning("The results file could not be written (%s).", type(error).__name__)
            report = {**_figures(verdict), "conflicts": None, "results_path": None}
        try:
            context["ti"].xcom_push(key=REPORT_KEY, value=report)
        except Exception as error:  # noqa: BLE001 - as above
            self.log.warning("The report could not be stored as XCom (%s).", type(error).__name__)
        end = _ENDS[verdict["outcome"]].format(share=self.min_delivered, timeout=self.timeout)
        return end + _STANDING.format_map(verdict)

    def _report(self, verdict: Mapping[str, Any]) -> dict[str, Any]:
        from cpaas_provider.sensors._delivery_results import results_file
        from cpaas_provider.sensors._delivery_status import count_conflicts, write_outcomes
        from cpaas_provider.sources.files import place_of

        campaigns = self._read_sent().campaigns
        if self.results_path is None:
            return {**_figures(verdict), "conflicts": count_conflicts(campaigns), "results_path": None}
        path = results_file(self.results_path)
        conflicts = write_outcomes(campaigns, path)
        self.log.info("Results file written: %s.", place_of(path))
        return {**_figures(verdict), "conflicts": conflicts, "results_path": place_of(path)}

    def _warn_once(self, what: str, words: str) -> None:
        if what not in self._told:
            self.log.warning("%s", words)
            self._told.add(what)

    def _was_rescheduled(self, context: Context) -> bool:
        """Return whether an earlier process of this try has read the database already."""
        return self.reschedule and context["ti"].get_first_reschedule_date(context) is not None


def _refuse_out_of_bounds(task_id: Any, poke_interval: Any, results_path: Any) -> None:
    """Refuse arguments that cannot work, where the DAG is written."""
    try:
        bounds.poke_interval("poke_interval", poke_interval)
        if results_path is not None:
            from cpaas_provider.sending.campaign.results_file import SUFFIXES

            bounds.file_name(SUFFIXES)("results_path", results_path)
    except ValueError as error:
        raise ValueError(f"Task {task_id}: {error}") from None


def _is_share(value: Any) -> bool:
    return isinstance(value, (int, float)) and not isinstance(value, bool) and 0 < value <= 1


def _is_count(value: Any) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and value >= 0


def _figures(verdict: Mapping[str, Any]) -> dict[str, Any]:
    from cpaas_provider.triggers._polling.delivery_criteria import FIGURES

    return {name: verdict[name] for name in FIGURES}
