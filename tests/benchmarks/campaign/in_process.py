"""A campaign without Airflow around it: what planning alone takes, what a million take, where the time goes.

python -m tests.benchmarks.campaign.in_process URL PEOPLE IN_FLIGHT RECIPIENTS   prints the profile of one campaign
"""

from __future__ import annotations

import asyncio
import contextlib
import cProfile
import pstats
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from airflow.sdk import ObjectStoragePath

from cpaas_provider.api.client import AsyncCpaasClient
from cpaas_provider.api.recipients.reader import RecipientReader
from cpaas_provider.database.database import open_database
from cpaas_provider.database.leases import LeasedState
from cpaas_provider.sending.campaign.campaign import Campaign, CampaignOptions
from cpaas_provider.sending.campaign.content import Content
from cpaas_provider.sending.campaign.loader import Columns, RecipientLoader
from cpaas_provider.sending.campaign.recipients import RecipientStatus, RecipientTable
from cpaas_provider.sending.engine import SendEngine
from cpaas_provider.sending.journal.log import JournalLog
from cpaas_provider.sending.journal.store import StateStore, TryInfo
from cpaas_provider.sending.requests.channels import SMS
from cpaas_provider.sending.spec import UnknownPolicy
from cpaas_provider.sources import CsvSource, JsonLinesSource, ParquetSource, SqlSource
from cpaas_provider.sources.base import Source
from cpaas_provider.sources.results_file import write_outcomes
from tests.benchmarks.campaign.places import Place
from tests.benchmarks.campaign.recipients import write_csv
from tests.benchmarks.campaign.serving import BareServer
from tests.benchmarks.campaign.variants import API_KEY, NO_LIMIT
from tests.unit.sending.ports import NoDelivery, Ports

TEXT = (
    "Hello {name}, you have {points} points on your {plan} plan; spend them in any of our shops until the end of May."
)
COLUMNS = ("name", "points", "plan")
IN_FLIGHT = 8
RECIPIENTS = 500


def source_of(place: Place) -> Source:
    """Return the recipients of a place as a campaign reads them."""
    if place.sql is not None and place.conn_id is not None:
        return SqlSource(place.conn_id, place.sql)
    kinds = {"csv": CsvSource, "jsonl": JsonLinesSource, "parquet": ParquetSource}
    return kinds[place.kind](place.path)


@contextlib.contextmanager
def planned(
    source: Source, store: StateStore, recipients: int = RECIPIENTS, in_flight: int = IN_FLIGHT
) -> Iterator[Campaign]:
    """Draw up a campaign to everybody a source names."""
    message = Content(
        SMS, {"sender_id": "Shop", "content": TEXT}, [TEXT], {name: name for name in COLUMNS}, measured=True
    )
    ledger = JournalLog(store, [API_KEY], ("task", "bench"), SMS.endpoint.operation, TryInfo(1, 0, 0))
    with RecipientTable() as plan:
        campaign = Campaign(plan, ledger, message, CampaignOptions(recipients, 4 * in_flight), NoDelivery())
        planner = RecipientLoader(plan, message, ledger.hasher, reader=RecipientReader(message.channel.recipients))
        campaign.prepare(planner, source, Columns("phone"), tests=None, suppression_list=None)
        yield campaign


class Nowhere:
    """A store that keeps nothing."""

    def get(self, key: str) -> Any:
        return None

    def set(self, key: str, value: Any) -> None:
        pass

    def delete(self, key: str) -> None:
        pass


def dry_run(place: Place) -> dict[str, Any]:
    """Plan a campaign, its pages counted, and send nothing."""
    with planned(source_of(place), Nowhere()) as campaign:
        counts = campaign.plan.counts()
        pages = sum(pages * texts for _, pages, texts in campaign.plan.lengths())
        return {
            "recipients": counts[RecipientStatus.NOT_SENT],
            "duplicates": counts[RecipientStatus.DUPLICATE],
            "pages": pages,
        }


def send(place: Place) -> dict[str, Any]:
    """Plan a campaign and send it to a bare server, the journal kept in a store on disk."""
    with tempfile.TemporaryDirectory() as folder, BareServer(Path(folder) / "server.log") as server:
        with open_database(f"sqlite:///{folder}/store.db") as database:
            state = LeasedState(database, "bench", "bench")
            state.acquire()
            with planned(source_of(place), state) as campaign:
                send_to(server.url, campaign, IN_FLIGHT)
                counts = campaign.plan.counts()
        return {"sent": counts[RecipientStatus.SENT], "requests": server.arrived().requests}


def stages(place: Place) -> dict[str, Any]:
    """Plan, send and write the results file; return the seconds and the CPU seconds of each, the server's left out."""
    spent: dict[str, Any] = {}

    @contextlib.contextmanager
    def timed(stage: str) -> Iterator[None]:
        began, worked = time.perf_counter(), time.process_time()
        yield
        spent[stage] = [round(time.perf_counter() - began, 2), round(time.process_time() - worked, 2)]

    with tempfile.TemporaryDirectory() as folder, BareServer(Path(folder) / "server.log") as server:
        results = ObjectStoragePath(f"{folder}/results.jsonl")
        with open_database(f"sqlite:///{folder}/store.db") as database, contextlib.ExitStack() as opened:
            state = LeasedState(database, "bench", "bench")
            state.acquire()
            with timed("plan"):
                campaign = opened.enter_context(planned(source_of(place), state))
            with timed("send"):
                send_to(server.url, campaign, IN_FLIGHT)
            with timed("file"):
                write_outcomes(results, campaign.plan.rows())
    return spent


def planning_rate(count: int = 200_000) -> float:
    """Return how many recipients a second are planned from a CSV."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "people.csv"
        write_csv(path, count, repeats=False)
        began = time.perf_counter()
        with planned(CsvSource(str(path)), Nowhere()):
            return count / (time.perf_counter() - began)


def send_to(url: str, campaign: Campaign, in_flight: int) -> None:
    """Send a campaign that is planned to a server."""

    async def work() -> None:
        limits = {"requests_per_second": NO_LIMIT, "max_concurrency": in_flight}
        async with await asyncio.to_thread(AsyncCpaasClient, url, API_KEY, **limits) as client:
            await SendEngine(campaign, client, Ports(), UnknownPolicy()).run()

    asyncio.run(work())


def main() -> None:
    url, people, in_flight, recipients = sys.argv[1], *map(int, sys.argv[2:5])
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "people.csv"
        write_csv(path, people, repeats=False)
        profile = cProfile.Profile()
        profile.enable()
        with planned(CsvSource(str(path)), Nowhere(), recipients, in_flight) as campaign:
            send_to(url, campaign, in_flight)
        profile.disable()
    told = pstats.Stats(profile)
    for room, seconds in _by_room(told).most_common(12):
        print(f"{room:<40} {seconds:7.2f} s  {seconds / people * 1e6:6.1f} µs a recipient")


def _by_room(stats: pstats.Stats) -> Counter[str]:
    """Return the time spent in each part of the code itself, what it calls left out."""
    rooms: Counter[str] = Counter()
    for (file, _, name), (_, _, own, _, _) in stats.stats.items():  # type: ignore[attr-defined]  # not declared
        rooms[_room(file, name)] += own
    return rooms


def _room(file: str, name: str) -> str:
    if file == "~":
        known = ("sqlite3", "pydantic", "hmac", "epoll", "socket")
        return "built in: " + next((word for word in known if word in name), "other")
    parts = Path(file).parts
    if "cpaas_provider" in parts:
        return ".".join(parts[parts.index("cpaas_provider") :]).removesuffix(".py")
    return parts[parts.index("site-packages") + 1] if "site-packages" in parts else "the standard library"


if __name__ == "__main__":
    main()
