"""A passcode's request is known by the one record that can only be its own."""

from __future__ import annotations

import asyncio
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from cpaas_provider.api.core import Call
from cpaas_provider.api.errors import (
    CpaasAuthenticationError,
    CpaasNotFoundError,
    CpaasRejectedError,
    CpaasUnknownOutcomeError,
)
from cpaas_provider.api.models.otp import OtpToken
from cpaas_provider.sending.requests.probes import CLOCK_SKEW, OtpRecordProbe
from tests.unit.sending.records import record as request

RECIPIENT = "2348030001111"
NOW = datetime.now(UTC)
MINUTE = timedelta(minutes=1)


def record(name: str, created: datetime = NOW) -> OtpToken:
    return OtpToken.model_validate(
        {
            "id": name,
            "recipient": f"+{RECIPIENT}",
            "status": 1,
            "status_desc": "SENT",
            "created_datetime": created.isoformat(),
            "updated_datetime": None,
        }
    )


class Records:
    """The service's list of a number's passcodes."""

    def __init__(self, *listed: OtpToken, refusal: Exception | None = None) -> None:
        self.listed, self.refusal, self.asked = list(listed), refusal, []

    async def run(self, call: Call[list[OtpToken]]) -> list[OtpToken]:
        self.asked.append(call.fields["recipient"])
        if self.refusal is not None:
            raise self.refusal
        return self.listed


def found(client: Any, evidence: Any = (), started_at: datetime | None = NOW) -> dict[str, Any] | None:
    noted = None if evidence is None else list(evidence)
    entry = request("ref", "request_otp", started_at=started_at, probe_snapshot=noted)
    result = asyncio.run(OtpRecordProbe(RECIPIENT, 15).check(client, entry))
    return result and {"id": result["id"]}


def before(client: Any) -> list[str] | None:
    return asyncio.run(OtpRecordProbe(RECIPIENT, 15).snapshot(client))


def test_exactly_one_new_record_belongs_to_the_request() -> None:
    client = Records(record("old"), record("new"))
    assert found(client, ["old"]) == {"id": "new"}
    assert client.asked == [RECIPIENT]


def test_no_new_record_proves_nothing() -> None:
    assert found(Records(record("old")), ["old"]) is None
    assert found(Records(), []) is None


def test_two_new_records_prove_nothing() -> None:
    assert found(Records(record("new"), record("newer")), []) is None


@pytest.mark.parametrize(
    ("created", "counts"),
    [
        (NOW - CLOCK_SKEW - MINUTE, False),
        (NOW - CLOCK_SKEW + MINUTE, True),
        (NOW + 10 * MINUTE + CLOCK_SKEW - MINUTE, True),
        (NOW + 10 * MINUTE + CLOCK_SKEW + MINUTE, False),
    ],
)
def test_only_a_record_of_the_time_of_the_request_counts(created: datetime, counts: bool) -> None:
    assert (found(Records(record("new", created))) is not None) is counts


def test_record_of_another_time_does_not_hide_that_of_the_request() -> None:
    assert found(Records(record("long ago", NOW - timedelta(days=1)), record("new"))) == {"id": "new"}


def test_missing_snapshot_or_start_time_proves_nothing() -> None:
    client = Records(record("new"))
    assert found(client, evidence=None) is None
    assert found(client, started_at=None) is None
    assert not client.asked


def test_snapshot_before_a_request_holds_recent_records() -> None:
    assert before(Records(record("recent"), record("old", NOW - timedelta(hours=2)))) == ["recent"]


def test_record_that_existed_before_the_request_never_belongs_to_it() -> None:
    """What is too old to be noted must be too old to be taken for the request's, at any clock's word."""
    ages = [timedelta(minutes=minutes) for minutes in range(0, 240, 1)]
    for age in ages:
        client = Records(record("there before", NOW - age))
        assert found(client, before(client)) is None, age


@pytest.mark.parametrize("refusal", [CpaasRejectedError("no"), CpaasAuthenticationError("no")])
def test_refused_listing_gives_no_snapshot(refusal: Exception) -> None:
    assert before(Records(refusal=refusal)) is None


def test_unknown_number_has_no_records() -> None:
    unknown = Records(refusal=CpaasNotFoundError("no such recipient"))
    assert before(unknown) == []
    assert found(unknown) is None


def test_snapshot_without_a_response_raises_an_error() -> None:
    with pytest.raises(CpaasUnknownOutcomeError):
        before(Records(refusal=CpaasUnknownOutcomeError("no answer", maybe_sent=False)))
