"""Campaigns under one frequency cap, each in a process of its own, against the sandbox: to run at once and to kill."""

from __future__ import annotations

import asyncio
import json
import multiprocessing
import os
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import timedelta
from multiprocessing.process import BaseProcess
from pathlib import Path
from typing import Any

import phonenumbers
from airflow.sdk.configuration import conf

from cpaas_provider.api.client import AsyncCpaasClient
from cpaas_provider.api.http import transport
from cpaas_provider.database.database import open_database
from cpaas_provider.database.recipients.frequency import Cap, MessageCounts
from cpaas_provider.sending.campaign.campaign import Campaign, CampaignOptions, campaign_reference
from cpaas_provider.sending.campaign.loader import Columns, RecipientLoader
from cpaas_provider.sending.campaign.recipients import RecipientTable
from cpaas_provider.sending.engine import SendEngine
from cpaas_provider.sending.journal.hashing import task_identity
from cpaas_provider.sending.journal.log import JournalLog
from cpaas_provider.sending.journal.store import TryInfo
from cpaas_provider.sending.spec import OnUnknown, UnknownPolicy
from tests.reading import nigerian_reader
from tests.sandbox import Sandbox
from tests.unit.sending.campaign.parts import OPERATION, Rows, message
from tests.unit.sending.ports import NoDelivery, Ports

# What a child would else import anew each time.
_ = (transport, phonenumbers, conf.get("core", "dags_folder"))

_FORK = multiprocessing.get_context("fork")


class FileStore:
    """A task's state in a folder, which a process that is killed leaves as it is."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        folder.mkdir(exist_ok=True)

    def get(self, key: str) -> Any:
        path = self._folder / key
        return json.loads(path.read_text()) if path.exists() else None

    def set(self, key: str, value: Any) -> None:
        temporary = self._folder / f"{key}.new"
        temporary.write_text(json.dumps(value))
        temporary.replace(self._folder / key)

    def delete(self, key: str) -> None:
        (self._folder / key).unlink(missing_ok=True)


@dataclass
class CappedCampaign:
    """One campaign with a cap of one message, in all its tries."""

    name: str
    folder: Path
    url: str
    sandbox: Sandbox
    recipients: Sequence[str]
    per_request: int = 5
    tries: int = 0

    def start(self) -> BaseProcess:
        """Begin a try in a process of its own."""
        self.tries += 1
        process = _FORK.Process(target=self._run, daemon=True)
        process.start()
        return process

    @property
    def counts(self) -> Counter[str]:
        """Return how many recipients have which status, as the last try that ended found them."""
        return Counter(json.loads((self.folder / f"{self.name}.json").read_text()))

    def _run(self) -> None:
        status = 1
        try:
            self._try()
            status = 0
        finally:
            # Nothing of the test's process, such as its reports, is to be written twice.
            os._exit(status)

    def _try(self) -> None:
        identity = task_identity(self.name, "run", "send", -1)
        info = TryInfo(self.tries, max_tries=9, retries=9)
        content = message()
        store = FileStore(self.folder / self.name)
        with open_database(self.url) as database, RecipientTable() as table:
            journal = JournalLog(store, ("sk_of_the_hashes",), identity, OPERATION, info)
            cap = Cap("offers", 1, timedelta(days=7))
            options = CampaignOptions(self.per_request, window=4, on_unknown=OnUnknown.SKIP)
            campaign = Campaign(
                table,
                journal,
                content,
                options,
                NoDelivery(),
                frequency_cap=MessageCounts(database, cap, campaign_reference(journal, None)),
            )
            loader = RecipientLoader(table, content, journal.hasher, reader=nigerian_reader(content))
            source = Rows(*(f"+{one}" for one in self.recipients))
            campaign.prepare(loader, source, Columns("phone"), tests=None, suppression_list=None)
            asyncio.run(self._send(campaign))
            counts = {status.word: number for status, number in table.counts().items() if number}
        (self.folder / f"{self.name}.json").write_text(json.dumps(counts))

    async def _send(self, campaign: Campaign) -> None:
        client = AsyncCpaasClient(self.sandbox.url, self.sandbox.api_key, requests_per_second=1000)
        async with client:
            await SendEngine(campaign, client, Ports(), UnknownPolicy(OnUnknown.SKIP)).run()


def reached(sandbox: Sandbox) -> Counter[str]:
    """Return how many messages each recipient got, by the sandbox."""
    found: Counter[str] = Counter()
    offset = 0
    while items := sandbox.inbox("sms", limit=1000, offset=offset)["items"]:
        found.update(item["recipient"] for item in items)
        offset += len(items)
    return found
