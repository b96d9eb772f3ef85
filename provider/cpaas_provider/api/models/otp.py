"""One-time passcodes (contract.md 2.4, 4.4 to 4.8). A record never carries the code itself."""

from __future__ import annotations

from collections.abc import Collection
from enum import StrEnum
from typing import Annotated

import pendulum
from pydantic import Field

from cpaas_provider.api.bounds import OTP_DIGITS, OTP_MINUTES
from cpaas_provider.api.models.base import (
    UNKNOWN_ZONE,
    Channel,
    GivenText,
    Msisdn,
    Number,
    OptionalTimestamp,
    PasscodeStatus,
    ResourceId,
    Timestamp,
    WireRequest,
    WireResource,
)

SUCCESS_STATUSES = frozenset({"VERIFIED"})
FAILURE_STATUSES = frozenset({"EXPIRED", "FAILED", "REVOKED", "DELETED"})


class OtpOutcome(StrEnum):
    """The status of a passcode, independent of the words the service uses for it."""

    PENDING = "pending"
    VERIFIED = "verified"
    EXPIRED = "expired"
    REVOKED = "revoked"
    FAILED = "failed"


_OUTCOME_OF_FAILURE = {
    "EXPIRED": OtpOutcome.EXPIRED,
    "REVOKED": OtpOutcome.REVOKED,
    "DELETED": OtpOutcome.REVOKED,
}


class RequestOtpRequest(WireRequest):
    """Body of ``POST /otp/request_token``; ``expires_in`` counts minutes."""

    recipient: Msisdn
    length: Annotated[int, Field(ge=OTP_DIGITS[0], le=OTP_DIGITS[1])] | None = None
    expires_in: Annotated[int, Field(ge=OTP_MINUTES[0], le=OTP_MINUTES[1])] | None = None
    token: GivenText | None = Field(default=None, repr=False)
    channel: Channel | None = None


class VerifyOtpRequest(WireRequest):
    """Body of ``POST /otp/verify``."""

    token: GivenText = Field(repr=False)
    id: GivenText


class OtpReference(WireRequest):
    """Path of ``GET`` and ``DELETE /otp/{id}``."""

    id: GivenText


class FindOtpsRequest(WireRequest):
    """Query of ``GET /otp/get-by-recipient``."""

    recipient: Msisdn


class OtpToken(WireResource):
    """A passcode's record: its recipient and its status, never the code."""

    id: ResourceId
    recipient: str
    status: Number
    status_desc: PasscodeStatus
    created_datetime: Timestamp
    updated_datetime: OptionalTimestamp = None

    def outcome(
        self,
        success: Collection[str] = SUCCESS_STATUSES,
        failure: Collection[str] = FAILURE_STATUSES,
    ) -> OtpOutcome:
        """Return the status of the passcode by ``status_desc``, in upper or lower case (contract.md 10).

        :param success: descriptions that mean verified
        :param failure: descriptions that mean expired, revoked or failed; one that contract.md does not list counts as
            failed
        """
        description = self.status_desc.strip().upper()
        if description in {word.strip().upper() for word in success}:
            return OtpOutcome.VERIFIED
        if description in {word.strip().upper() for word in failure}:
            return _OUTCOME_OF_FAILURE.get(description, OtpOutcome.FAILED)
        return OtpOutcome.PENDING

    def expires_at(self, expires_in: int) -> pendulum.DateTime | None:
        """Return the moment the passcode stops being valid; the record does not carry it (contract.md 10).

        ``None`` if the record has a time without a zone, which may be hours from UTC.

        :param expires_in: minutes, as given when the passcode was requested
        """
        if self.created_datetime.tzinfo is UNKNOWN_ZONE:
            return None
        return self.created_datetime.add(minutes=expires_in)
