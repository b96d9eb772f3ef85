"""Evidence of a passcode: the recipient's own records, before the request and after."""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any

from cpaas_provider.api.errors import CpaasNotFoundError, CpaasRejectedError

if TYPE_CHECKING:
    from cpaas_provider.api.client import CpaasClient
    from cpaas_provider.api.models.otp import OtpToken
    from cpaas_provider.sending.journal.model import RequestRecord

CLOCK_SKEW = timedelta(minutes=2)
"""How far the service's clock may be from ours."""

_LONGEST_REQUEST = timedelta(minutes=10)
_RECENT = timedelta(hours=1)


class OtpRecordProbe:
    """Exactly one new record of the recipient, made when the request was, is that request's; anything else is no proof.

    :param recipient: international digits
    :param result_of: makes a record the result the request itself would have had
    """

    max_wait = timedelta(seconds=30)

    def __init__(self, recipient: str, result_of: Callable[[OtpToken], dict[str, Any]]) -> None:
        self._recipient = recipient
        self._result_of = result_of

    def snapshot(self, client: CpaasClient) -> list[str] | None:
        """Return the ids of records that could be mistaken for the request's own.

        :return: ``None`` where the service does not let them be read, and there will be no evidence
        """
        try:
            records = self._records(client)
        except CpaasRejectedError:
            return None
        recent = datetime.now(UTC) - _RECENT
        return [record.id for record in records if record.created_datetime >= recent]

    def check(self, client: CpaasClient, entry: RequestRecord) -> dict[str, Any] | None:
        """Return the result of the request, if there is one record that can only be its own."""
        if entry.probe_snapshot is None or entry.started_at is None:
            return None
        earliest, latest = entry.started_at - CLOCK_SKEW, entry.started_at + _LONGEST_REQUEST + CLOCK_SKEW
        new = [
            record
            for record in self._records(client)
            if record.id not in entry.probe_snapshot and earliest <= record.created_datetime <= latest
        ]
        return self._result_of(new[0]) if len(new) == 1 else None

    def _records(self, client: CpaasClient) -> list[OtpToken]:
        try:
            return client.find_otps(f"+{self._recipient}")
        except CpaasNotFoundError:
            # Some services know no number they have never sent to.
            return []
