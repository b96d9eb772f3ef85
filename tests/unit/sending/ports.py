"""What the engine needs of a try, of the client and of delivery tracking, for tests whose service is a function."""

from __future__ import annotations

import asyncio
import inspect
import math
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any

from cpaas_provider.api.core import Call
from cpaas_provider.api.rate_limit import RateLimiter
from cpaas_provider.api.settings import ClientSettings
from cpaas_provider.sending.campaign.campaign import Campaign
from cpaas_provider.sending.campaign.message_series import SeriesMessage
from cpaas_provider.sending.engine import SendEngine
from cpaas_provider.sending.shutdown import StopSignal
from cpaas_provider.sending.spec import UnknownPolicy


class FunctionClient:
    """A client whose service is a function that takes the fields of a call.

    :param answer: returns the resource, or an awaitable of it, or raises what the client raises
    """

    def __init__(self, answer: Callable[[dict[str, Any]], Any], on_stop: Callable[[], object] = bool) -> None:
        self.settings = ClientSettings("http://localhost:1", "sk_of_a_function")
        self.rate_limiter = RateLimiter(math.inf)
        self.guard = None
        self._answer = answer
        self._on_stop = on_stop

    async def run(self, call: Call[Any] | SeriesMessage) -> Any:
        alone = call.series.call(call) if isinstance(call, SeriesMessage) else call
        found = self._answer(dict(alone.fields))
        return await found if inspect.isawaitable(found) else found

    def stop(self) -> None:
        self._on_stop()


@dataclass
class Ports:
    """A try in which a run may send unless ``check`` raises."""

    stop: StopSignal = field(default_factory=StopSignal)
    check: Callable[[], object] = bool
    cli_address: str = "DAG_ID RUN_ID TASK_ID"
    resends: int = 0

    def check_may_send(self) -> None:
        self.check()


class NoDelivery:
    """No delivery reports are asked for."""

    external_ref: str | None = None

    def callback_url(self, reference: str, recipients: int) -> str | None:
        return None

    def recording(self) -> AbstractContextManager[None]:
        return nullcontext()

    def record(
        self, reference: str, recipients: Sequence[str], message_id: str | None, rejected: Sequence[str]
    ) -> None:
        pass


def send(
    campaign: Campaign,
    client: FunctionClient,
    ports: Ports,
    policy: UnknownPolicy | None = None,
    clock: Callable[[], datetime] = lambda: datetime.now(UTC),
) -> None:
    """Send a campaign that is prepared, as its operator does."""
    engine = SendEngine(campaign, client, ports, policy or UnknownPolicy(campaign.options.on_unknown), clock=clock)
    asyncio.run(engine.run(resolve=not campaign.options.test_only))
    if not campaign.options.test_only:
        campaign.check_result()
