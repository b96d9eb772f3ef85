"""The sensor that waits for the delivery of messages (docs/guides/delivery-tracking.md)."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from datetime import timedelta
from typing import TYPE_CHECKING, Any

from airflow.sdk import PokeReturnValue
from airflow.sdk.exceptions import AirflowException, AirflowFailException, AirflowSensorTimeout

from cpaas_provider.api import bounds
from cpaas_provider.sensors._base import DeferrableSensor, is_deferrable

if TYPE_CHECKING:
    from airflow.sdk import Context

    from cpaas_provider.sensors._delivery_status import DeliverySnapshot
    from cpaas_provider.sensors._send_result import AwaitedSends
    from cpaas_provider.triggers.delivery import DeliveryTrigger

# On the triggerer one cheap query serves all waiting sensors. On a worker each sensor makes its own.
DEFAULT_ROUND = 1.0
DEFAULT_POKE_INTERVAL = 10.0
# A process starts for each read.
DEFAULT_RESCHEDULE_INTERVAL = 60.0
DEFAULT_TIMEOUT = timedelta(days=1)

REPORT_KEY = "report"
"""The XCom with the report of a sensor that fails."""

_ENDS = {
    "missed": "Too few recipients were delivered: min_delivered={share} can no longer be reached. ",
    "timed_out": "The wait for delivery timed out after {timeout:g} s. ",
}


class DeliverySensor(DeferrableSensor):
    """Wait until messages are delivered, by the delivery reports in the provider's database.

    Without ``min_delivered`` the sensor succeeds once every recipient has a final status, delivered or not. With
    ``min_delivered`` it succeeds once that share of the recipients is delivered. It fails once that share can no longer
    be reached. It also fails when ``timeout`` is over. With ``soft_fail`` the task is skipped instead. If the results
    file cannot be written, a retry of the task waits again, also with ``soft_fail``.

    ``expected`` is the number of recipients the service accepted. Recipients of a request of unknown outcome are added
    once a delivery report names them, or at once with ``wait_for_unknown``. They never replace a recipient without a
    report. A database that cannot be read does not end the wait. Only the results file holds numbers and addresses.

    A sensor that fails pushes its figures as the XCom ``report``.

    :param send_result: the result (``.output``) of ``SendSmsOperator``, ``SendEmailOperator``, a campaign operator or
        ``BuyAirtimeOperator``. It can also be a list of results, such as the output of a mapped task, or references
        (templated)
    :param min_delivered: share of the expected recipients that must be delivered, above 0 and up to 1, at least one of
        them. Default: none
    :param wait_for_unknown: wait for a delivery report of each recipient of unknown outcome, too. ``expected`` counts
        them. A request that the service did not accept has no report, so the wait may last until ``timeout``, or until
        ``airflow cpaas journal resolve`` establishes its outcome
    :param results_path: path of the results file, ``.jsonl`` or ``.parquet``, also written if the sensor fails. It has
        one line for each recipient that the database has a record of. A file of an earlier wait is removed when the
        wait begins (templated)
    :param deferrable: wait on the triggerer instead of a worker. Default: Airflow's ``[operators] default_deferrable``
    :param poke_interval: seconds between two reads of the database, at least 1. Default: 1 on the triggerer, where one
        query serves all waiting sensors, 60 with ``mode="reschedule"``, otherwise 10
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
        wait_for_unknown: bool = False,
        results_path: Any = None,
        deferrable: bool | None = None,
        poke_interval: timedelta | float | None = None,
        timeout: timedelta | float = DEFAULT_TIMEOUT,
        **kwargs: Any,
    ) -> None:
        try:
            deferrable = is_deferrable(deferrable)
            wait_for_unknown = bounds.flag("wait_for_unknown", wait_for_unknown)
            is_default = poke_interval is None
            if poke_interval is None:
                poke_interval = DEFAULT_ROUND if deferrable else DEFAULT_POKE_INTERVAL
            bounds.poke_interval("poke_interval", poke_interval)
            if results_path is not None:
                from cpaas_provider.sources.results_file import SUFFIXES

                bounds.file_name(SUFFIXES)("results_path", results_path)
        except ValueError as error:
            raise ValueError(f"Task {kwargs.get('task_id')}: {error}") from None
        super().__init__(deferrable=deferrable, poke_interval=poke_interval, timeout=timeout, **kwargs)
        if is_default and self._is_rescheduling:
            self.poke_interval = DEFAULT_RESCHEDULE_INTERVAL
        self.send_result = send_result
        self.min_delivered = min_delivered
        self.wait_for_unknown = wait_for_unknown
        self.results_path = results_path
        if min_delivered is not None and not _is_ratio(min_delivered):
            raise ValueError(f"{self}: min_delivered must be a number above 0 and up to 1; it is {min_delivered!r}.")
        self._snapshot: DeliverySnapshot | None = None
        self._trigger_result: Mapping[str, Any] | None = None
        self._warned: set[str] = set()
        self._has_begun = False

    def poke(self, context: Context) -> bool | PokeReturnValue:
        """Read the database once."""
        self._remove_earlier_results(context)
        snapshot = self._read_status(context)
        if snapshot is None:
            return False
        criteria = snapshot.sent.criteria
        if result := criteria.evaluate(snapshot.counts):
            return PokeReturnValue(is_done=True, xcom_value=self._conclude(context, result))
        self._log_progress(criteria.describe(snapshot.counts))
        return False

    def execute_complete(self, context: Context, event: Any = None) -> dict[str, Any]:
        """Continue on a worker with the trigger's event."""
        from cpaas_provider.triggers._polling.criteria import DONE, ERROR, FIGURES, MISSED, NOTHING, TIMED_OUT

        event = event if isinstance(event, dict) else {}
        outcome = event.get("outcome")
        if outcome == ERROR:
            raise AirflowFailException(str(event.get("message")))
        if event == {"outcome": TIMED_OUT}:
            raise AirflowSensorTimeout
        if outcome not in (DONE, MISSED, NOTHING, TIMED_OUT) or not all(_is_count(event.get(name)) for name in FIGURES):
            raise AirflowException("The trigger returned no delivery figures. A retry of the task waits again.")
        if outcome == TIMED_OUT:
            self._trigger_result = event
            raise AirflowSensorTimeout
        return self._conclude(context, event)

    def _awaited(self) -> tuple[str, str]:
        share = (
            "a final status of every recipient"
            if self.min_delivered is None
            else f"delivery to a share of {self.min_delivered:g} of the recipients"
        )
        return share, "the database of delivery reports"

    def _trigger(self, deadline: str) -> DeliveryTrigger:
        from cpaas_provider.triggers.delivery import DeliveryTrigger

        sent = self._snapshot.sent if self._snapshot else self._parse_send_result()
        return DeliveryTrigger(
            campaigns=list(sent.campaigns),
            expected=sent.criteria.expected,
            min_delivered=self.min_delivered,
            deadline=deadline,
            poke_interval=self.poke_interval,
            unknown=sorted(sent.criteria.unknown_requests),
            unknown_recipients=sent.criteria.unknown,
            without_count=list(sent.criteria.without_count),
            to_resolve=list(map(list, sent.criteria.to_resolve)),
        )

    def _time_out(self, context: Context) -> dict[str, Any]:
        """End the wait after a last read, which may show the final result after all."""
        from cpaas_provider.triggers._polling.criteria import TIMED_OUT

        snapshot = self._read_status(context) or self._snapshot
        result = snapshot.sent.criteria.evaluate_timeout(snapshot.counts) if snapshot else self._trigger_result
        if result is None:
            self._require_results_file("DatabaseError")
            raise AirflowSensorTimeout(
                f"{_ENDS['timed_out'].format(timeout=self.timeout)}The database could not be read."
            )
        if result["outcome"] != TIMED_OUT:
            return self._conclude(context, result)
        raise AirflowSensorTimeout(self._failure(context, result))

    def _read_status(self, context: Context) -> DeliverySnapshot | None:
        """Return what the database shows, ``None`` if it cannot be read this time."""
        from cpaas_provider.database.errors import DatabaseError, ReportsNotSupportedError
        from cpaas_provider.delivery.tracking.counts import NOT_IN_DATABASE, PRUNED
        from cpaas_provider.sensors._delivery_status import read_status

        try:
            due = getattr(context.get("dag_run"), "run_after", None)
            self._snapshot = read_status(self._snapshot.sent if self._snapshot else self._parse_send_result(), due)
        except (ValueError, ReportsNotSupportedError) as error:
            raise AirflowFailException(str(error)) from None
        except DatabaseError as error:
            self._warn_once("database", f"{error} The wait continues.")
            return None
        if self._snapshot.is_pruned:
            raise AirflowFailException(PRUNED)
        if self._snapshot.is_unknown and not self._was_rescheduled(context):
            self._warn_once("unknown", NOT_IN_DATABASE)
        return self._snapshot

    def _parse_send_result(self) -> AwaitedSends:
        from cpaas_provider.sensors._send_result import parse_send_result

        try:
            return parse_send_result(
                self.send_result, min_delivered=self.min_delivered, wait_for_unknown=self.wait_for_unknown
            )
        except ValueError as error:
            raise AirflowFailException(str(error)) from None

    def _conclude(self, context: Context, result: Mapping[str, Any]) -> dict[str, Any]:
        """Return the result of a wait that reached its goal; fail the task for good where it no longer can."""
        from cpaas_provider.database.errors import DatabaseError
        from cpaas_provider.sources.results_file import ResultsFileError
        from cpaas_provider.triggers._polling.criteria import DONE, describe_figures

        if result["outcome"] != DONE:
            raise AirflowFailException(self._failure(context, result))
        self.log.info("%s", describe_figures(result))
        try:
            return self._report(result)
        except (ResultsFileError, DatabaseError) as error:
            raise AirflowException(str(error)) from None

    def _failure(self, context: Context, result: Mapping[str, Any]) -> str:
        """Leave the report for tasks downstream, and return why the sensor fails."""
        from cpaas_provider.triggers._polling.criteria import NOTHING, NOTHING_ACCEPTED, describe_figures

        try:
            report = self._report(result)
        except Exception as error:  # noqa: BLE001 - the failure that is being reported matters more
            self._require_results_file(type(error).__name__)
            self.log.warning("The results file could not be written (%s).", type(error).__name__)
            report = {**_figures(result), "conflicts": None, "results_path": None}
        try:
            context["ti"].xcom_push(key=REPORT_KEY, value=report)
        except Exception as error:  # noqa: BLE001 - as above
            self.log.warning("The report could not be stored as XCom (%s).", type(error).__name__)
        if result["outcome"] == NOTHING:
            return NOTHING_ACCEPTED
        end = _ENDS[result["outcome"]].format(share=self.min_delivered, timeout=self.timeout)
        return end + describe_figures(result)

    def _require_results_file(self, reason: str) -> None:
        """Fail instead of a skip that has no results file: after a skip, tasks downstream run and read it."""
        if self.soft_fail and self.results_path is not None:
            raise AirflowException(
                f"The wait is over, and its results file could not be written ({reason}). A retry of the task waits "
                "again."
            )

    def _report(self, result: Mapping[str, Any]) -> dict[str, Any]:
        from cpaas_provider.sensors._delivery_status import count_conflicts, write_results
        from cpaas_provider.sources.files import redacted_path
        from cpaas_provider.sources.results_file import as_results_path

        campaigns = self._parse_send_result().campaigns
        if self.results_path is None:
            conflicts, shown_path = count_conflicts(campaigns), None
        else:
            path = as_results_path(self.results_path)
            conflicts, shown_path = write_results(campaigns, path), redacted_path(path)
            self.log.info("Results file written: %s.", shown_path)
        return {**_figures(result), "conflicts": conflicts, "results_path": shown_path}

    def _warn_once(self, kind: str, message: str) -> None:
        if kind not in self._warned:
            self.log.warning("%s", message)
            self._warned.add(kind)

    def _remove_earlier_results(self, context: Context) -> None:
        """Remove the results file of an earlier wait, before this one begins."""
        from cpaas_provider.sources.results_file import ResultsFileError, as_results_path, remove_results

        if self.results_path is None or self._has_begun or self._was_rescheduled(context):
            return
        try:
            remove_results(as_results_path(self.results_path))
        except ValueError as error:
            raise AirflowFailException(str(error)) from None
        except ResultsFileError as error:
            raise AirflowException(str(error)) from None
        self._has_begun = True


def _is_ratio(value: Any) -> bool:
    return isinstance(value, (int, float)) and not isinstance(value, bool) and 0 < value <= 1


def _is_count(value: Any) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and value >= 0


def _figures(result: Mapping[str, Any]) -> dict[str, Any]:
    from cpaas_provider.triggers._polling.criteria import FIGURES

    return {name: result[name] for name in FIGURES}
