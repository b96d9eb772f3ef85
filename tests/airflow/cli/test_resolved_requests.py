"""What a resolution records of the requests beside the resolved ones, for delivery tracking."""

from __future__ import annotations

from typing import Any

import pytest

from cpaas_provider.cli.journal.instances import Found, Instance
from cpaas_provider.cli.journal.tracking import _unresolved
from cpaas_provider.database.schema.delivery import RequestState
from cpaas_provider.sending.journal.model import Result, State
from cpaas_provider.sending.journal.resolution import Resolution
from cpaas_provider.sending.journal.view import JournalView
from tests.unit.sending.journal.test_resolution import stored

ACCEPTED = Result(1, State.ACCEPTED, extra={"id": "m1"})


@pytest.mark.parametrize(
    ("decision", "recorded"),
    [
        (Resolution.SENT, {"first": (RequestState.UNKNOWN, 1), "fourth": (RequestState.SUPERSEDED, 0)}),
        (Resolution.NOT_SENT, {"first": (RequestState.UNKNOWN, 1), "fourth": (RequestState.UNKNOWN, 1)}),
    ],
)
def test_recipients_of_accepted_requests_are_not_recorded_as_unknown(
    decision: Resolution, recorded: dict[str, tuple[RequestState, int]]
) -> None:
    """The second request reached one of the first. The third is resolved, and the fourth repeats it."""
    journal: dict[str, Any] = stored(
        ("first", "ab", None), ("second", "a", ACCEPTED), ("third", "c", None), ("fourth", "c", None)
    )
    view = JournalView.read(journal.get)
    found = Found(Instance("dag", "run", "send", -1), view, {})
    made = _unresolved(found, view.resolve(decision, ["third"]), decision)
    assert {request.reference: (request.state, request.unknown) for request in made} == recorded
