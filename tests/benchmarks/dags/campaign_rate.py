"""What a campaign's pace is measured with in a real task: one DAG a contender, told by parameters what to do."""

from __future__ import annotations

from typing import Any

from airflow.sdk import DAG, task

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
