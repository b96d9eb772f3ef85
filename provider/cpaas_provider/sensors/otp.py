"""The sensor that waits for a passcode to be verified (contract.md 3, 4.6 and 10)."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import asdict
from datetime import datetime, timedelta
from typing import TYPE_CHECKING, Any

from airflow.sdk import PokeReturnValue, timezone
from airflow.sdk.exceptions import AirflowException, AirflowFailException, AirflowSensorTimeout

from cpaas_provider.api import bounds
from cpaas_provider.api.errors import CpaasConfigurationError, CpaasError
from cpaas_provider.provider_info import DEFAULT_CONN_ID
from cpaas_provider.sensors._base import DeferrableSensor, is_deferrable

if TYPE_CHECKING:
    from airflow.sdk import Context

    from cpaas_provider.triggers._polling.backoff import FailureStreak, LogInterval
    from cpaas_provider.triggers._polling.criteria import OtpCriteria
    from cpaas_provider.triggers.otp import OtpStatusTrigger

DEFAULT_POKE_INTERVAL = 10.0
# No passcode outlives 60 minutes (contract.md 4.4).
DEFAULT_TIMEOUT = 3660.0

_check_minutes = bounds.whole_within(*bounds.OTP_MINUTES)
_STREAK_KEY = "cpaas_otp_failures"
_FAILURES = {
    "expired": "OTP expired: the code was not entered in time (status {status_desc}).",
    "expired by clock": (
        "OTP expired: its {expires_in} minutes are over, and its status is still {status_desc}. If the service never "
        "changes the status, let the application that verifies the code notify the DAG, or use VerifyOtpOperator."
    ),
    "revoked": "OTP revoked: the passcode was revoked before the code was entered (status {status_desc}).",
    "failed": "OTP failed: the service ended the passcode, as after too many wrong codes (status {status_desc}).",
}
_TIMED_OUT = "OTP wait timed out after {timeout:g} s: the passcode is still pending. Raise timeout to wait longer."


class OtpStatusSensor(DeferrableSensor):
    """Wait until a one-time passcode is verified.

    The sensor succeeds when the passcode is verified. It fails without a retry when the passcode is expired, revoked or
    failed, when the service has no such passcode, or when ``timeout`` is over. With ``soft_fail`` the task is skipped
    instead. With ``fail_if_not_verified=False`` it succeeds in each of these cases, so that a branch can use
    ``outcome``.

    A temporary error while reading, such as a timeout or an HTTP 500, does not end the wait. Three other failures do if
    they go on for three minutes: a rejected key, a response that is not about the passcode, such as a redirect or the
    404 of a gateway, and an unusable connection. Then a retry of the task waits again. A 404 or 400 is about the
    passcode only as the documented error that names the field ``id``. Neither the code nor the number appears in the
    result or a log.

    :param otp_id: the passcode's id, as ``RequestOtpOperator`` returned it (templated)
    :param expires_in: minutes for which the code is valid, as given in the request. The wait then ends when the
        passcode expires, even if its status stays SENT: that long after the passcode was made, and at the latest that
        long after the wait began. Default: only the status counts (templated)
    :param success_statuses: values of ``status_desc`` that mean verified. Default: VERIFIED
    :param failure_statuses: values of ``status_desc`` that end the wait. Default: EXPIRED, FAILED, REVOKED, DELETED
    :param fail_if_not_verified: fail the task if the passcode is not verified. Otherwise return its outcome
    :param deferrable: wait on the triggerer instead of a worker. Default: Airflow's ``[operators] default_deferrable``
    :param poke_interval: seconds between two reads, at least 1. Default: 10. On the triggerer, all sensors of a
        connection share its ``requests_per_second``. If that is not enough, each passcode is read less often
    :param timeout: seconds after which the wait ends. Default: 3660, because no passcode is valid for more than 60
        minutes
    :param cpaas_conn_id: the connection to use (templated)
    :returns: the end of the wait:

        | Key | Value |
        |---|---|
        | ``outcome`` | ``verified``, ``expired``, ``revoked``, ``failed``, ``not_found`` or ``timed_out``. |
        | ``id`` | Id of the passcode. |
        | ``status`` | Status code of the passcode, null after ``not_found`` and ``timed_out``. |
        | ``status_desc`` | Status of the passcode, null after ``not_found`` and ``timed_out``. |
    """

    template_fields: Collection[str] = ("otp_id", "expires_in", "cpaas_conn_id")
    ui_color = "#e3d7ff"

    def __init__(
        self,
        *,
        otp_id: str,
        expires_in: int | str | None = None,
        success_statuses: Sequence[str] | None = None,
        failure_statuses: Sequence[str] | None = None,
        fail_if_not_verified: bool = True,
        deferrable: bool | None = None,
        cpaas_conn_id: str = DEFAULT_CONN_ID,
        poke_interval: timedelta | float = DEFAULT_POKE_INTERVAL,
        timeout: timedelta | float = DEFAULT_TIMEOUT,
        **kwargs: Any,
    ) -> None:
        try:
            bounds.poke_interval("poke_interval", poke_interval)
            bounds.if_known(_check_minutes)("expires_in", expires_in)
            _check_statuses(success_statuses, failure_statuses)
            deferrable = is_deferrable(deferrable)
            fail_if_not_verified = bounds.flag("fail_if_not_verified", fail_if_not_verified)
        except ValueError as error:
            raise ValueError(f"Task {kwargs.get('task_id')}: {error}") from None
        super().__init__(deferrable=deferrable, poke_interval=poke_interval, timeout=timeout, **kwargs)
        self.otp_id = otp_id
        self.expires_in = expires_in
        self.success_statuses = success_statuses
        self.failure_statuses = failure_statuses
        self.fail_if_not_verified = fail_if_not_verified
        self.cpaas_conn_id = cpaas_conn_id
        self._streak: FailureStreak | None = None
        self._log_interval: LogInterval | None = None
        self._began_at: datetime | None = None

    def poke(self, context: Context) -> bool | PokeReturnValue:
        """Read the record once."""
        from cpaas_provider.hooks.cpaas import CpaasHook
        from cpaas_provider.triggers._polling.criteria import otp_error_result

        streak, is_first = self._begin(context)
        try:
            with CpaasHook(self.cpaas_conn_id).get_conn() as client:
                record = client.get_otp(self.otp_id)
        except Exception as error:
            ends = self._ends_wait(error, streak, is_first=is_first)
            self._save_streak(context, streak)
            if ends:
                if not isinstance(error, CpaasError):
                    raise
                return PokeReturnValue(is_done=True, xcom_value=self._conclude(otp_error_result(self.otp_id, error)))
            reason = error if isinstance(error, CpaasError) else f"Connection unreadable ({type(error).__name__})."
            if self._log_interval is not None and self._log_interval.is_over():
                self.log.warning("%s The wait continues.", reason)
            return False
        if streak.count:
            streak.reset()
            self._save_streak(context, streak)
        criteria = self._criteria()
        if result := criteria.evaluate(record, timezone.utcnow()):
            return PokeReturnValue(is_done=True, xcom_value=self._conclude(result))
        began_at = self._began_at or timezone.utcnow()
        self._log_progress(criteria.describe(record, began_at + timedelta(seconds=self.timeout)))
        return False

    def execute_complete(self, context: Context, event: Any = None) -> dict[str, Any]:
        """Continue on a worker with the trigger's event."""
        if not isinstance(event, dict) or "outcome" not in event:
            raise AirflowException("The trigger returned no outcome of the passcode. A retry of the task waits again.")
        return self._conclude(event)

    def _begin(self, context: Context) -> tuple[FailureStreak, bool]:
        """Return the failures in a row, also of earlier processes of the wait, and whether this is its first read."""
        from cpaas_provider.triggers._polling.backoff import FailureStreak, LogInterval

        if self._streak is not None:
            return self._streak, False
        self._streak, self._began_at = FailureStreak(), timezone.utcnow()
        self._log_interval = LogInterval()
        if not self._was_rescheduled(context):
            return self._streak, True
        instance = context["ti"]
        self._began_at = instance.get_first_reschedule_date(context)
        stored: Any = context["task_state_store"].get(_STREAK_KEY)
        if isinstance(stored, dict) and stored.get("try_number") == instance.try_number:
            self._streak = FailureStreak(stored["count"], stored["since"])
        return self._streak, False

    def _save_streak(self, context: Context, streak: FailureStreak) -> None:
        """Keep the failures in a row for the process that continues a rescheduled wait."""
        if self.reschedule and not self.deferrable:
            stored: dict[str, Any] = {"try_number": context["ti"].try_number, **asdict(streak)}
            context["task_state_store"].set(_STREAK_KEY, stored)

    def _ends_wait(self, error: Exception, streak: FailureStreak, *, is_first: bool) -> bool:
        """Return whether a failed read ends the wait, by the same rules as on the triggerer."""
        from cpaas_provider.triggers._polling.criteria import ReadFailure, classify_failure

        failure = classify_failure(error)
        if failure is not ReadFailure.INCONCLUSIVE:
            return failure is ReadFailure.FINAL
        if is_first and (isinstance(error, CpaasConfigurationError) or not isinstance(error, CpaasError)):
            # The connection never worked.
            return True
        return streak.add(timezone.utcnow().timestamp())

    def _awaited(self) -> tuple[str, str]:
        return f"passcode {self.otp_id} to be verified", f"its record on connection {self.cpaas_conn_id!r}"

    def _longest_wait(self) -> float:
        """Return the seconds until the wait ends: the passcode may expire before its timeout."""
        minutes = self._criteria().expires_in
        return self.timeout if minutes is None else min(self.timeout, minutes * 60)

    def _trigger(self, deadline: str) -> OtpStatusTrigger:
        from cpaas_provider.triggers.otp import OtpStatusTrigger

        criteria = self._criteria()
        return OtpStatusTrigger(
            cpaas_conn_id=self.cpaas_conn_id,
            otp_id=self.otp_id,
            deadline=deadline,
            poke_interval=self.poke_interval,
            expires_in=criteria.expires_in,
            success_statuses=None if self.success_statuses is None else list(self.success_statuses),
            failure_statuses=None if self.failure_statuses is None else list(self.failure_statuses),
            expires_by=None if criteria.expires_by is None else criteria.expires_by.isoformat(),
        )

    def _time_out(self, context: Context) -> dict[str, Any]:
        message = _TIMED_OUT.format(timeout=self.timeout)
        if self.fail_if_not_verified:
            raise AirflowSensorTimeout(message)
        self.log.warning("%s", message)
        return self._without_record("timed_out")

    def _criteria(self) -> OtpCriteria:
        from cpaas_provider.triggers._polling.criteria import OtpCriteria

        expires_in = None
        if self.expires_in is not None and str(self.expires_in).strip():
            try:
                _check_minutes("expires_in", self.expires_in)
            except ValueError as error:
                raise AirflowFailException(str(error)) from None
            expires_in = int(float(self.expires_in))
        began_at = self._began_at or timezone.utcnow()
        # The passcode was requested before the wait began.
        expires_by = None if expires_in is None else began_at + timedelta(minutes=expires_in)
        return OtpCriteria(expires_in, self.success_statuses, self.failure_statuses, expires_by)

    def _without_record(self, outcome: str) -> dict[str, Any]:
        return {"outcome": outcome, "id": self.otp_id, "status": None, "status_desc": None}

    def _conclude(self, result: dict[str, Any]) -> dict[str, Any]:
        """Return the result of a passcode; unless the author wants it, end the task for every one not verified."""
        outcome = result["outcome"]
        if outcome in ("verified", "expired", "revoked", "failed"):
            from cpaas_provider.hooks.activity import record_passcode_outcome

            record_passcode_outcome(self.cpaas_conn_id, str(self.otp_id), outcome)
        if outcome == "verified":
            self.log.info("OTP verified (status %s).", result["status_desc"])
            return result
        if outcome == "timed_out":
            raise AirflowSensorTimeout(_TIMED_OUT.format(timeout=self.timeout))
        if outcome == "error":
            raise (AirflowException if result.get("retry") else AirflowFailException)(result["message"])
        if outcome == "not_found":
            if self.fail_if_not_verified:
                raise AirflowFailException(result["message"])
            self.log.warning("%s", result["message"])
            return self._without_record(outcome)
        kind = "expired by clock" if result.get("by") == "clock" else outcome
        if kind not in _FAILURES:
            raise AirflowException(
                "The trigger returned an outcome that this version of the provider does not know. Install the same "
                "version on triggerer and workers."
            )
        message = _FAILURES[kind].format(status_desc=result["status_desc"], expires_in=self.expires_in)
        if self.fail_if_not_verified:
            raise AirflowFailException(message)
        self.log.warning("%s", message)
        return {name: result[name] for name in ("outcome", "id", "status", "status_desc")}


def _check_statuses(success: Any, failure: Any) -> None:
    for name, value in (("success_statuses", success), ("failure_statuses", failure)):
        if value is not None:
            bounds.texts(name, value)
    if success is not None and not success:
        raise ValueError("success_statuses is empty, so no passcode could be verified.")
    if both := {word.strip().upper() for word in success or ()} & {word.strip().upper() for word in failure or ()}:
        raise ValueError(f"success_statuses and failure_statuses both have {', '.join(sorted(both))}.")
