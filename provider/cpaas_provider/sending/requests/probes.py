"""The probe of a passcode request: it compares the records of the recipient before and after the request."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any

from cpaas_provider.api.errors import CpaasError, CpaasNotFoundError, CpaasRejectedError
from cpaas_provider.api.operations import find_otps
from cpaas_provider.api.recipients.msisdn import Msisdn

if TYPE_CHECKING:
    from cpaas_provider.api.client import CpaasClient
    from cpaas_provider.api.models.otp import OtpToken
    from cpaas_provider.sending.journal.model import RequestRecord
    from cpaas_provider.sending.spec import Client

CLOCK_SKEW = timedelta(minutes=2)
"""The most that the clocks of the service and of the worker may differ."""

_LONGEST_REQUEST = timedelta(minutes=10)
_RECENT = timedelta(hours=1)

DEFAULT_EXPIRES_IN = 15
"""Minutes for which a passcode is valid if the request does not name a time."""


def otp_record(token: OtpToken) -> dict[str, Any]:
    """Return the fields of a record that an XCom may have: neither passcode nor number."""
    return {
        "id": token.id,
        "status": token.status,
        "status_desc": token.status_desc,
        "outcome": token.outcome().value,
        "created_datetime": token.created_datetime.isoformat(),
    }


def otp_result(token: OtpToken, expires_in: Any, requested_at: datetime | None = None) -> dict[str, Any]:
    """Return the result of a request for a passcode from its record.

    :param expires_in: minutes the code is valid; ``None`` for the service's default
    :param requested_at: the time of the request, for a record without a usable one; ``None`` for now
    """
    # Nothing may fail after the request. It accepted any text of a whole number, such as "15.0".
    minutes = int(float(expires_in or DEFAULT_EXPIRES_IN))
    expires_at = token.expires_at(minutes) or (requested_at or datetime.now(UTC)) + timedelta(minutes=minutes)
    return {**otp_record(token), "expires_at": expires_at.isoformat()}


def is_otp_missing(client: CpaasClient, otp_id: str, rejection: CpaasRejectedError) -> bool:
    """Return whether no passcode has an id, after the service rejected a request for it (contract.md 10).

    An error that names the id says so. One in the service's form that names nothing may be about a path of the base
    URL. Then the passcode must not be readable either, while the contact table is.
    """
    if isinstance(rejection, CpaasNotFoundError):
        return True
    if not rejection.names_absence:
        return False
    try:
        client.get_otp(otp_id)
    except CpaasRejectedError as unread:
        return isinstance(unread, CpaasNotFoundError) or (unread.names_absence and _has_table(client))
    except CpaasError:
        pass
    return False


def _has_table(client: CpaasClient) -> bool:
    try:
        client.get_contact_table()
    except CpaasError:
        return False
    return True


@dataclass(eq=False, repr=False)
class OtpRecordProbe:
    """Establishes that a request was accepted if the recipient has exactly one new record, of the time of the request.

    :param recipient: the phone number, in international digits
    :param expires_in: minutes the requested code is valid; ``None`` for the service's default
    """

    recipient: str
    expires_in: Any
    max_wait = timedelta(seconds=30)

    async def snapshot(self, client: Client) -> list[str] | None:
        """Return the ids of recent records, which are not of the request.

        :return: ``None`` if the service rejects the request for them. The probe then establishes nothing
        """
        try:
            records = await self._records(client)
        except CpaasRejectedError:
            return None
        recent = datetime.now(UTC) - _RECENT
        return [record.id for record in records if record.created_datetime >= recent]

    async def check(self, client: Client, entry: RequestRecord) -> dict[str, Any] | None:
        """Return the result of the request if exactly one record can be of the request; else ``None``."""
        if entry.probe_snapshot is None or entry.started_at is None:
            return None
        earliest, latest = entry.started_at - CLOCK_SKEW, entry.started_at + _LONGEST_REQUEST + CLOCK_SKEW
        new = [
            record
            for record in await self._records(client)
            if record.id not in entry.probe_snapshot and earliest <= record.created_datetime <= latest
        ]
        return otp_result(new[0], self.expires_in, entry.started_at) if len(new) == 1 else None

    async def _records(self, client: Client) -> list[OtpToken]:
        try:
            return await client.run(find_otps(Msisdn(self.recipient)))
        except CpaasNotFoundError:
            # The service may answer 404 for a number that it never sent to.
            return []
