"""One send on an event loop that has other work, too."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Mapping, Sequence
from typing import Any

import pytest

from cpaas_provider.api.errors import CpaasUnknownOutcomeError
from cpaas_provider.sending.errors import PartlyRejectedError, UnknownOutcomeError
from cpaas_provider.sending.send import NoReports, open_memory_journal, send_once
from cpaas_provider.sending.single import SingleSendState
from cpaas_provider.sending.spec import OnUnknown, SendOutcome, UnknownPolicy
from tests.unit.sending.model import Answer, World, WorldSpec
from tests.unit.sending.ports import FunctionClient, Ports

ADA, OBI = "2348031234567", "2348031234568"


class ReportsInSlowDatabase(NoReports):
    """Delivery tracking whose database answers only once the event loop has run meanwhile."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop
        self.recorded: list[tuple[int, Sequence[str]]] = []

    def record_outcome(self, outcome: SendOutcome, members: Mapping[bytes, str]) -> None:
        has_run = threading.Event()
        self._loop.call_soon_threadsafe(has_run.set)
        assert has_run.wait(5), "the event loop stands still"
        rejected = [members[member] for entry in outcome.accepted for member in entry.left_out]
        self.recorded.append((outcome.sent, rejected))


class Recorder(NoReports):
    """Delivery tracking that has the recipients of each accepted request."""

    def __init__(self) -> None:
        self.recorded: list[list[str]] = []

    def record_outcome(self, outcome: SendOutcome, members: Mapping[bytes, str]) -> None:
        self.recorded += [[members[member] for member in entry.members] for entry in outcome.accepted]


async def recorded_sends(*rejected: str) -> list[tuple[int, Sequence[str]]]:
    reports = ReportsInSlowDatabase(asyncio.get_running_loop())
    spec = WorldSpec("send_sms", (ADA, OBI), {}, world=World())
    state = SingleSendState(spec, open_memory_journal(["secret"]), reports)
    client = FunctionClient(lambda fields: Answer({"id": "1"}, rejected, None))
    try:
        await send_once(state, client, Ports(), reports, UnknownPolicy(OnUnknown.FAIL))
    except PartlyRejectedError:
        assert rejected
    return reports.recorded


@pytest.mark.parametrize("rejected", [(), (OBI,)], ids=["accepted", "partly rejected"])
def test_event_loop_runs_while_the_outcome_is_recorded(rejected: tuple[str, ...]) -> None:
    assert asyncio.run(recorded_sends(*rejected)) == [(2 - len(rejected), list(rejected))]


def test_accepted_request_is_recorded_although_an_earlier_one_is_unknown() -> None:
    reports = Recorder()
    journal = open_memory_journal(["secret"])

    def respond(fields: dict[str, Any]) -> Answer:
        if fields["recipients"] == [ADA]:
            raise CpaasUnknownOutcomeError("The response is lost.")
        return Answer({"id": "1"}, (), None)

    for recipients, recorded in (((ADA,), []), ((ADA, OBI), [[OBI]])):
        state = SingleSendState(WorldSpec("send_sms", recipients, {}, world=World()), journal, reports)
        with pytest.raises(UnknownOutcomeError):
            asyncio.run(send_once(state, FunctionClient(respond), Ports(), reports, UnknownPolicy(OnUnknown.FAIL)))
        assert reports.recorded == recorded
