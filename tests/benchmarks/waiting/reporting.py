"""Sender and receiver in one process: python -m tests.benchmarks.waiting.reporting STORE --waiters N --seconds S

Notes what was sent, says that it is ready, and on a line of input stores reports at a fixed rate as the receiver does.
Its last line tells when each report that ends a wait came to the store, and how long transactions took.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import sys
import time
from collections.abc import Iterable, Iterator, Sequence
from functools import partial

from sqlalchemy import Connection

from cpaas_provider.database.bulk import batched
from cpaas_provider.database.database import Database, open_database
from cpaas_provider.delivery.receiver.writer import ReceivedReport, ReportWriter, StoreResult
from cpaas_provider.delivery.tracking.report_store import ReportStore
from cpaas_provider.delivery.tracking.sent_requests import (
    SentRequest,
    TrackedSend,
    record_recipients,
    record_requests,
    record_send_finished,
    record_send_started,
)
from tests.benchmarks.waiting.messages import CONN_ID, PEOPLE, RATE, Messages, recipient

READY = "ready"


class Receiver:
    """Stores reports, and remembers when."""

    def __init__(self, database: Database, ending: Iterable[str]) -> None:
        self.came: dict[str, float] = {}
        """When each report that ends a wait was handed to the store, by the machine's monotonic clock."""
        self.took: list[float] = []
        self._report_store = ReportStore(database)
        self._ending = frozenset(ending)

    def keep(self, incoming: Sequence[ReceivedReport]) -> list[StoreResult]:
        began = time.monotonic()
        kept = self._report_store.save(incoming)
        self.took.append(time.monotonic() - began)
        names = (arrival.token.campaign for arrival in incoming if arrival.token)
        self.came.update((name, began) for name in names if name in self._ending)
        return kept

    async def take(self, incoming: Iterator[ReceivedReport], rate: float) -> None:
        """Store reports as they come, evenly."""
        writer, began = ReportWriter(self.keep), time.monotonic()
        try:
            async with asyncio.TaskGroup() as group:
                for number, arrival in enumerate(incoming):
                    await asyncio.sleep(began + number / rate - time.monotonic())
                    group.create_task(writer.submit(arrival))
        finally:
            await writer.close()


def note(database: Database, messages: Messages) -> None:
    """Note everything that is sent, and store what was reported before."""
    sent = [(name, [recipient(number)]) for number, name in enumerate(messages.singles)]
    sent += [(name, [recipient(number) for number in range(PEOPLE)]) for name in messages.campaigns]
    for some in batched(sent):
        database.write(partial(_note, some))
    report_store = ReportStore(database)
    for incoming in batched(messages.earlier()):
        report_store.save(incoming)


def _note(sent: Sequence[tuple[str, Sequence[str]]], connection: Connection) -> None:
    for name, recipients in sent:
        record_send_started(connection, TrackedSend(name, "send_sms", CONN_ID, "dag", "run", "send", -1))
        record_requests(connection, name, CONN_ID, [SentRequest(name, len(recipients))])
        record_recipients(connection, name, CONN_ID, {name: recipients})
        record_send_finished(connection, name, len(recipients))


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m tests.benchmarks.waiting.reporting")
    parser.add_argument("store")
    parser.add_argument("--waiters", type=int, required=True)
    parser.add_argument("--seconds", type=float, required=True)
    given = parser.parse_args()
    messages = Messages(given.waiters, given.seconds)
    with open_database(given.store) as database:
        note(database, messages)
        receiver = Receiver(database, messages.ended)
        print(READY, flush=True)
        sys.stdin.readline()
        asyncio.run(receiver.take(messages.reports(), RATE))
    print(json.dumps({"came": receiver.came, "took": receiver.took}))


if __name__ == "__main__":
    main()
