"""Operators for one-time passcodes (contract.md 4.4 to 4.8). No code reaches a log, a result or a rendered field."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any, ClassVar

from airflow.sdk.exceptions import AirflowFailException, AirflowSkipException

from cpaas_provider.api import bounds
from cpaas_provider.operators import _masking as masking
from cpaas_provider.operators.base import CpaasOperator, SendOperator
from cpaas_provider.tasks import validators

if TYPE_CHECKING:
    from cpaas_provider.api.client import CpaasClient
    from cpaas_provider.hooks.connection import CpaasConnection
    from cpaas_provider.sending.requests.phone import OtpRequest


class RequestOtpOperator(SendOperator):
    """Request a one-time passcode, which the service delivers to a phone.

    A retry never requests a second passcode, unless ``on_unknown`` is ``resend``. The operator lists the recipient's
    records before the request. If the response is lost, exactly one new record resolves the request. Neither the code
    nor the number appears in the result, a log or a rendered field.

    The task ends without a further retry in these cases:

    * It fails when the request breaks the contract, or when the service rejects it.
    * It fails when the request is of unknown outcome, unless ``on_unknown`` is ``skip`` or ``resend``.
    * It is skipped when ``allowed_recipients`` of the connection does not list the recipient, in backfills and in stale
      runs.
    * It is skipped when the suppression list has the number as ``invalid_number``.

    :param recipient: the phone number, in any usual form (templated)
    :param length: digits of the code, 4 to 8. Default: the service's, 4 (templated)
    :param expires_in: minutes for which the code is valid, 1 to 60. Default: the service's, 15 (templated)
    :param token: a code of your own. Default: the service makes one (templated)
    :param channel: ``sms`` or ``whatsapp``. Default: the service's (templated)
    :returns: the record of the passcode:

        | Key | Value |
        |---|---|
        | ``id`` | Id of the passcode, which ``OtpStatusSensor`` and ``VerifyOtpOperator`` take. |
        | ``status`` | Status code of the passcode. |
        | ``status_desc`` | Status of the passcode, such as SENT. |
        | ``outcome`` | ``pending``, ``verified``, ``expired``, ``revoked`` or ``failed``. |
        | ``created_datetime`` | ISO 8601 time at which the passcode was made. |
        | ``expires_at`` | ISO 8601 time at which the passcode expires. |
        | ``unknown_recipients`` | 1 if the outcome is unknown (only with ``on_unknown="skip"``). ``id`` is then null. |
        | ``unknown_references`` | Reference of the request of unknown outcome. |
    """

    template_fields = ("recipient", "length", "expires_in", "token", "channel", "cpaas_conn_id")
    masked_fields: ClassVar[Mapping[str, Callable[[Any], Any]]] = {
        "recipient": masking.recipient,
        "token": masking.secret,
    }

    def __init__(
        self,
        *,
        recipient: str,
        length: int | str | None = None,
        expires_in: int | str | None = None,
        token: str | None = None,
        channel: str | None = None,
        **kwargs: Any,
    ) -> None:
        super().__init__(**kwargs)
        self._set_arguments(
            locals(),
            length=bounds.if_known(bounds.whole_within(*bounds.OTP_DIGITS)),
            expires_in=bounds.if_known(bounds.whole_within(*bounds.OTP_MINUTES)),
            channel=bounds.if_known(validators.one_of(*bounds.CHANNELS)),
        )

    def build_request(self) -> OtpRequest:
        """Return the one request for a passcode."""
        from cpaas_provider.sending.requests.phone import OtpRequest

        return OtpRequest(
            self.rendered("recipient"), self.length, self.expires_in, self.rendered("token"), self.channel
        )


class VerifyOtpOperator(CpaasOperator):
    """Check a code that a user entered.

    A code that is not accepted fails the task without a retry, because a retry would use another attempt. With
    ``fail_if_not_verified=False`` the task succeeds. An unknown outcome fails the task without a retry, too, because
    the attempt may be used. The code does not appear in the result, a log or a rendered field.

    :param otp_id: the passcode's id, as ``RequestOtpOperator`` returned it (templated)
    :param token: the code that the user entered (templated)
    :param require_verified_status: accept only a record with the status VERIFIED. By default an accepted request is
        enough, because the service may answer SENT
    :param fail_if_not_verified: fail the task if the code is not accepted. Otherwise return ``verified: false``
    :returns: the record of the passcode; only ``id`` and ``verified`` if the code was not accepted:

        | Key | Value |
        |---|---|
        | ``id`` | Id of the passcode. |
        | ``verified`` | Whether the code was accepted. |
        | ``status`` | Status code of the passcode. |
        | ``status_desc`` | Status of the passcode, such as VERIFIED. |
        | ``outcome`` | ``pending``, ``verified``, ``expired``, ``revoked`` or ``failed``. |
        | ``created_datetime`` | ISO 8601 time at which the passcode was made. |
    """

    template_fields = ("otp_id", "token", "cpaas_conn_id")
    masked_fields: ClassVar[Mapping[str, Callable[[Any], Any]]] = {"token": masking.secret}

    def __init__(
        self,
        *,
        otp_id: str,
        token: str,
        require_verified_status: bool = False,
        fail_if_not_verified: bool = True,
        **kwargs: Any,
    ) -> None:
        super().__init__(**kwargs)
        self._set_arguments(locals())

    def request(self, client: CpaasClient, connection: CpaasConnection) -> dict[str, Any]:
        """Verify the code."""
        from cpaas_provider.api.errors import CpaasNotVerifiedError
        from cpaas_provider.api.models.otp import OtpOutcome
        from cpaas_provider.api.values import no_value_reason
        from cpaas_provider.hooks.activity import record_passcode_outcome
        from cpaas_provider.sending.requests.probes import otp_record

        token = self.rendered("token")
        if reason := no_value_reason(token):
            raise AirflowFailException(f"token {reason} after rendering. Nothing was sent, so no attempt was used.")
        try:
            record = client.verify_otp(self.otp_id, str(token))
        except CpaasNotVerifiedError as error:
            if self.fail_if_not_verified:
                raise
            self.log.warning("%s", error)
            return {"id": self.otp_id, "verified": False}
        accepted = {OtpOutcome.VERIFIED} if self.require_verified_status else {OtpOutcome.VERIFIED, OtpOutcome.PENDING}
        verified = record.outcome() in accepted
        if verified:
            record_passcode_outcome(self.cpaas_conn_id, str(self.otp_id), "verified")
        if not verified and self.fail_if_not_verified:
            raise AirflowFailException(f"The passcode was not verified: its status is {record.status_desc}.")
        return {"verified": verified, **otp_record(record)}


class GetOtpOperator(CpaasOperator):
    """Read the record of a passcode. The task fails without a retry if no passcode has this id.

    :param otp_id: the passcode's id (templated)
    :returns: the record, without code and number:

        | Key | Value |
        |---|---|
        | ``id`` | Id of the passcode. |
        | ``status`` | Status code of the passcode. |
        | ``status_desc`` | Status of the passcode, such as SENT. |
        | ``outcome`` | ``pending``, ``verified``, ``expired``, ``revoked`` or ``failed``. |
        | ``created_datetime`` | ISO 8601 time at which the passcode was made. |
    """

    template_fields = ("otp_id", "cpaas_conn_id")

    def __init__(self, *, otp_id: str, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.otp_id = otp_id

    def request(self, client: CpaasClient, connection: CpaasConnection) -> dict[str, Any]:
        """Read the record."""
        from cpaas_provider.sending.requests.probes import otp_record

        return otp_record(client.get_otp(self.otp_id))


class FindOtpsOperator(CpaasOperator):
    """Read all passcode records of a phone number.

    :param recipient: the phone number, in any usual form (templated)
    :returns: a list of records in the service's order, empty if there is none. Each has the keys that
        ``GetOtpOperator`` returns. No record has the number or a code.
    """

    template_fields = ("recipient", "cpaas_conn_id")
    masked_fields: ClassVar[Mapping[str, Callable[[Any], Any]]] = {"recipient": masking.recipient}

    def __init__(self, *, recipient: str, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.recipient = recipient

    def request(self, client: CpaasClient, connection: CpaasConnection) -> list[dict[str, Any]]:
        """Read the records."""
        from cpaas_provider.sending.requests.probes import otp_record

        return [otp_record(token) for token in client.find_otps(self.rendered("recipient"))]


class RevokeOtpOperator(CpaasOperator):
    """Revoke a passcode, so that its code is no longer accepted.

    :param otp_id: the passcode's id (templated)
    :param skip_if_missing: skip the task if no passcode has this id. By default the task fails without a retry
    :returns: what was revoked:

        | Key | Value |
        |---|---|
        | ``id`` | Id of the passcode. |
        | ``revoked`` | Always true. |
    """

    template_fields = ("otp_id", "cpaas_conn_id")

    def __init__(self, *, otp_id: str, skip_if_missing: bool = False, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self._set_arguments(locals())

    def request(self, client: CpaasClient, connection: CpaasConnection) -> dict[str, Any]:
        """Revoke the passcode."""
        from cpaas_provider.api.errors import CpaasRejectedError
        from cpaas_provider.sending.requests.probes import is_otp_missing

        try:
            client.revoke_otp(self.otp_id)
        except CpaasRejectedError as rejection:
            if self.skip_if_missing and is_otp_missing(client, self.otp_id, rejection):
                raise AirflowSkipException("No passcode has this id. Nothing was revoked.") from None
            raise
        return {"id": self.otp_id, "revoked": True}
