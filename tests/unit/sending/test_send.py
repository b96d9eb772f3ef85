"""One send on an event loop that has other work, too."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Sequence

import pytest

from cpaas_provider.sending.errors import PartlyRejectedError
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

    def record_outcome(self, outcome: SendOutcome, recipients: Sequence[str], rejected: Sequence[str]) -> None:
        has_run = threading.Event()
        self._loop.call_soon_threadsafe(has_run.set)
        assert has_run.wait(5), "the event loop stands still"
        self.recorded.append((outcome.sent, rejected))


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
