"""What a campaign's pace is measured with in a real task: one DAG a contender, told by parameters what to do."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Self

from airflow.sdk import DAG, task
from tests.benchmarks.campaign.variants import PERSONAL_CONTENT

from cpaas_provider.operators import SmsCampaignOperator

PARAMS: dict[str, Any] = {
    "server_url": "",
    "connection": "",
    "people": "",
    "requests": 0,
    "in_flight": 1,
    "recipients": 1,
}

with DAG("campaign_rate_transport_in_task", schedule=None, params=PARAMS):

    @task
    def send(params: dict[str, Any]) -> None:
        """Drive the bare transport: what an Airflow task costs by being one."""
        from tests.benchmarks.campaign.variants import BareTransport

        BareTransport().run(params["server_url"], params["requests"], params["in_flight"], params["recipients"])

    send()


class _WithoutJournal:
    """Stands where the journal is written, and stores nothing: every intent is taken as stored at once."""

    def __init__(self, *journal: Any) -> None:
        pass

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *error: object) -> None:
        pass

    async def record_head(self) -> None:
        pass

    def begin(self, intent: Any, on_stored: Callable[[Any, None], object]) -> None:
        on_stored(intent, None)

    def withdraw(self, intent: Any) -> None:
        pass

    def end(self, result: Any) -> None:
        pass


class _MeasuredCampaign(SmsCampaignOperator):
    """A campaign whose journal's window goes by the connection it is given.

    :param windows: how many times ``max_concurrency`` may be claimed; 0 leaves the journal out
    """

    def __init__(self, *, windows: int, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.windows = windows

    def make_attempt(self, runtime: Any, **resumed: Any) -> Any:
        if not self.windows:
            from cpaas_provider.sending import engine

            engine.JournalWriter = _WithoutJournal  # type: ignore[assignment,misc]  # for this process alone
        self.max_pending_requests = runtime.connection.settings.max_concurrency * max(1, self.windows)
        return super().make_attempt(runtime, **resumed)


for name, windows in (("unjournaled", 0), ("narrow", 1), ("journaled", 4)):
    with DAG(f"campaign_rate_{name}", schedule=None, params=PARAMS):
        _MeasuredCampaign(
            task_id="send",
            windows=windows,
            source="{{ params.people }}",
            content=PERSONAL_CONTENT,
            sender_id="Shop",
            cpaas_conn_id="{{ params.connection }}",
        )
