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

from cpaas_provider.database.batches import batched
from cpaas_provider.database.database import Database, open_database
from cpaas_provider.delivery.receiver.received import Arrival, Kept
from cpaas_provider.delivery.receiver.writer import Desk
from cpaas_provider.delivery.tracking.report_store import Inbox
from cpaas_provider.delivery.tracking.sent_requests import (
    NotedRequest,
    TrackedSend,
    note_end,
    note_requests,
    note_send,
    track,
)
from tests.benchmarks.waiting.messages import CONN_ID, PEOPLE, RATE, Messages, recipient

READY = "ready"


class Receiver:
    """Stores reports, and remembers when."""

    def __init__(self, database: Database, ending: Iterable[str]) -> None:
        self.came: dict[str, float] = {}
        """When each report that ends a wait was handed to the store, by the machine's monotonic clock."""
        self.took: list[float] = []
        self._inbox = Inbox(database)
        self._ending = frozenset(ending)

    def keep(self, arrivals: Sequence[Arrival]) -> list[Kept]:
        began = time.monotonic()
        kept = self._inbox.keep(arrivals)
        self.took.append(time.monotonic() - began)
        names = (arrival.ticket.campaign for arrival in arrivals if arrival.ticket)
        self.came.update((name, began) for name in names if name in self._ending)
        return kept

    async def take(self, arrivals: Iterator[Arrival], rate: float) -> None:
        """Store reports as they come, evenly."""
        desk, began = Desk(self.keep), time.monotonic()
        try:
            async with asyncio.TaskGroup() as group:
                for number, arrival in enumerate(arrivals):
                    await asyncio.sleep(began + number / rate - time.monotonic())
                    group.create_task(desk.hand_in(arrival))
        finally:
            await desk.close()


def note(database: Database, messages: Messages) -> None:
    """Note everything that is sent, and store what was reported before."""
    sent = [(name, [recipient(number)]) for number, name in enumerate(messages.singles)]
    sent += [(name, [recipient(number) for number in range(PEOPLE)]) for name in messages.campaigns]
    for some in batched(sent):
        database.write(partial(_note, some))
    inbox = Inbox(database)
    for arrivals in batched(messages.earlier()):
        inbox.keep(arrivals)


def _note(sent: Sequence[tuple[str, Sequence[str]]], connection: Connection) -> None:
    for name, recipients in sent:
        note_send(connection, TrackedSend(name, "send_sms", CONN_ID, "dag", "run", "send", -1))
        note_requests(connection, name, CONN_ID, [NotedRequest(name, len(recipients))])
        track(connection, name, CONN_ID, name, recipients)
        note_end(connection, name, len(recipients))


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
