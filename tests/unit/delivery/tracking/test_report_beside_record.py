"""A report that is stored while its request is being recorded counts for the campaign, whichever commits first."""

from __future__ import annotations

import random
import secrets
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import SimpleNamespace
from typing import Any

import pytest
from sqlalchemy import Connection, Engine, create_engine, event, select, text

from cpaas_provider.database.database import Database, open_database
from cpaas_provider.database.errors import DatabaseError
from cpaas_provider.database.schema.delivery import deliveries
from cpaas_provider.delivery.callbacks.tokens import CallbackToken
from cpaas_provider.delivery.receiver.writer import ReceivedReport, StoreResult
from cpaas_provider.delivery.tracking.membership import holding_names, lock
from cpaas_provider.delivery.tracking.report_store import ReportStore
from cpaas_provider.delivery.tracking.request_recipients import UNTRACKED_PREFIX
from cpaas_provider.delivery.tracking.sent_requests import SentRequest, record_requests
from cpaas_provider.tasks.delivery.tracker import DeliveryTracker
from tests.unit.database.migrated import POSTGRES
from tests.unit.delivery.report_builders import (
    ADA,
    OBI,
    counts,
    outcomes,
    report,
    save_reports,
    save_requests,
    start_send,
    token_for,
)

OURS = "cpaas-" + "a" * 24
MOST_STATEMENTS = 40
BLOCKED = 0.05
"""Seconds after which the second transaction is taken to wait for the first."""

Work = Callable[[Database], object]


def reference_of(number: int) -> str:
    return "cpaas-" + f"{number:024b}".translate({ord("0"): "a", ord("1"): "b"})


def statements_of(database: Database, work: Work) -> int:
    """Return the number of statements of a transaction."""
    statements: list[str] = []

    def add(*given: Any) -> None:
        statements.append(given[2])

    event.listen(database.engine, "before_cursor_execute", add)
    try:
        work(database)
    finally:
        event.remove(database.engine, "before_cursor_execute", add)
    return len(statements)


@contextmanager
def held_before(database: Database, step: int, other: Callable[[], object]) -> Iterator[None]:
    """Run something else within a transaction, before its statement of this number, or before its commit."""
    count = 0
    thread = threading.Thread(target=other)

    def start() -> None:
        thread.start()
        thread.join(BLOCKED)

    def look(*given: Any) -> None:
        nonlocal count
        count += 1
        if count == step:
            start()

    def at_commit(connection: Any) -> None:
        if not thread.ident:
            start()

    event.listen(database.engine, "before_cursor_execute", look)
    event.listen(database.engine, "commit", at_commit)
    try:
        yield
    finally:
        event.remove(database.engine, "before_cursor_execute", look)
        event.remove(database.engine, "commit", at_commit)
        thread.join(20)
        assert not thread.is_alive()


REPORTS: dict[str, tuple[str, Callable[[], ReceivedReport]]] = {
    "by reference": ("spring", lambda: report(ADA, "delivered", external_ref=OURS)),
    "by message id": ("spring", lambda: report(ADA, "delivered", id="m1")),
    "by message id, of a single request": (OURS, lambda: report(ADA, "delivered", id="m1")),
    "by reference, of a single request": (OURS, lambda: report(ADA, "delivered", external_ref=OURS)),
}


@pytest.mark.parametrize("name", REPORTS)
@pytest.mark.parametrize("held", ["report", "record"])
@pytest.mark.parametrize("are_mostly_recorded", [True, False])
def test_report_counts_whichever_transaction_is_held_at_whichever_statement(
    url: str, held: str, name: str, *, are_mostly_recorded: bool
) -> None:
    campaign, make = REPORTS[name]
    stores: dict[Database, ReportStore] = {}

    def store(database: Database) -> object:
        return stores[database].save([make()])

    def record(database: Database) -> object:
        request = SentRequest(OURS, 2 if campaign == "spring" else 1, "m1")
        return database.write(lambda connection: record_requests(connection, campaign, "shop", [request]))

    first, second = (store, record) if held == "report" else (record, store)
    with open_database(url) as database, open_database(url) as other:

        def clear() -> None:
            for table in ("cpaas_deliveries", "cpaas_requests", "cpaas_request_counts", "cpaas_reports"):
                database.write(lambda connection, table=table: connection.execute(text(f"DELETE FROM {table}")))

        start_send(database, campaign)
        for one in (database, other):
            stores[one] = ReportStore(one)
        if are_mostly_recorded:
            save_requests(database, SentRequest("pack", 2, "m0"))
        # From the reports before, a store learns whether to hold names before it looks for their requests.
        for one in stores.values():
            one.save([report(ADA, "delivered", id="m0")])
        steps = statements_of(database, first)
        assert steps < MOST_STATEMENTS
        for step in range(1, steps + 2):
            clear()
            if are_mostly_recorded:
                save_requests(database, SentRequest("pack", 2, "m0"))
            for one in stores.values():
                one.save([report(ADA, "delivered", id="m0")])
            database.write(lambda connection: connection.execute(text("DELETE FROM cpaas_deliveries")))
            with held_before(database, step, lambda: second(other)):
                first(database)
            assert outcomes(database, campaign) == {ADA: "delivered"}, step
            with database.connect() as connection:
                assert connection.execute(select(deliveries.c.campaign)).scalars().all() == [campaign], step


def test_only_recipient_of_a_request_is_the_first_of_two_reports_at_once(postgres_url: str) -> None:
    only, results = token_for(ADA), dict[str, list[StoreResult]]()
    with (
        open_database(postgres_url) as first,
        open_database(postgres_url) as second,
        open_database(postgres_url) as observer,
    ):

        def store(database: Database, recipient: str) -> None:
            results[recipient] = save_reports(database, report(recipient, "delivered", token=only))

        thread = threading.Thread(target=store, args=(second, OBI))

        def let_second_run(connection: Connection) -> None:
            """Before the first commits, have the second run until it waits for the first, or to its end."""
            if thread.ident:
                return
            pid = connection.exec_driver_sql("SELECT pg_backend_pid()").scalar_one()
            waits = text("SELECT count(*) FROM pg_stat_activity WHERE :pid = ANY(pg_blocking_pids(pid))")
            thread.start()
            while thread.is_alive():
                with observer.connect() as looking:
                    if looking.execute(waits, {"pid": pid}).scalar_one():
                        return
                thread.join(0.01)

        event.listen(first.engine, "commit", let_second_run)
        store(first, ADA)
        thread.join(20)
        assert results == {ADA: [StoreResult.NEW], OBI: [StoreResult.EXCESS]}
        assert outcomes(first) == {ADA: "delivered"}


def test_thousands_of_reports_beside_their_records_are_all_counted(postgres_url: str) -> None:
    """The account's webhook beside a callback_url: each request is reported while it is recorded."""
    number, each = 1000, 50
    with open_database(postgres_url) as database:
        start_send(database)
    starts = list(range(0, number, each))
    barriers = {start: threading.Barrier(2) for start in starts}
    failures: list[str] = []

    def send(mine: list[int]) -> None:
        with open_database(postgres_url) as database:
            for start in mine:
                made = [SentRequest(reference_of(n), 2, f"m{n}") for n in range(start, start + each)]
                barriers[start].wait(30)
                database.write(lambda connection, made=made: record_requests(connection, "spring", "shop", made))

    def receive(mine: list[int]) -> None:
        choice = random.Random(mine[0])
        with open_database(postgres_url, write_timeout=5) as database:
            for start in mine:
                incoming = []
                for n in range(start, start + each):
                    by_id = {"id": f"m{n}"} if choice.random() < 0.5 else {"external_ref": reference_of(n)}
                    incoming.append(report(ADA, "delivered", **by_id))
                    token = token_for(ADA, OBI, reference=reference_of(n))
                    incoming.append(report(OBI, "failed", token=token))
                choice.shuffle(incoming)
                barriers[start].wait(30)
                for position in range(0, len(incoming), 20):
                    save_reports(database, *incoming[position : position + 20])

    def run(work: Callable[[list[int]], None], mine: list[int]) -> None:
        try:
            work(mine)
        except (DatabaseError, threading.BrokenBarrierError) as error:
            failures.append(str(error))

    threads = [
        threading.Thread(target=run, args=(work, starts[part::3])) for part in range(3) for work in (send, receive)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(120)
    assert failures == []
    with open_database(postgres_url) as database:
        assert counts(database) == (number, number, 0)


def test_stalled_sender_does_not_stop_the_receiver_for_long(postgres_url: str) -> None:
    with open_database(postgres_url) as database, open_database(postgres_url, write_timeout=5) as receiver:
        start_send(database)
        late = report(ADA, "delivered", external_ref=OURS)
        stored: list[object] = []

        def hold(connection: Any) -> None:
            record_requests(connection, "spring", "shop", [SentRequest(OURS, 2, "m1")])
            stored.extend(save_reports(receiver, late))

        with pytest.raises(DatabaseError):
            database.write(hold)
        assert stored
        database.write(lambda connection: record_requests(connection, "spring", "shop", [SentRequest(OURS, 2, "m1")]))
        assert outcomes(database) == {ADA: "delivered"}


def test_untracked_message_is_locked_by_its_name(postgres_url: str) -> None:
    with open_database(postgres_url) as database, open_database(postgres_url) as other:

        def lock_message(connection: Connection, message_id: str) -> None:
            connection.exec_driver_sql("SET LOCAL lock_timeout = '100ms'")
            lock(connection, [(f"{UNTRACKED_PREFIX}{message_id}", "shop", "")])

        def hold(connection: Connection) -> None:
            holding = holding_names(connection, [("shop", "m1")])
            assert holding is not None
            connection.exec_driver_sql(holding.text, dict(holding.values))
            other.write(lambda connection: lock_message(connection, "m2"))
            with pytest.raises(DatabaseError, match="lock timeout"):
                other.write(lambda connection: lock_message(connection, "m1"))

        database.write(hold)


@pytest.mark.parametrize("number", [1, 40, 400])
def test_number_of_statements_does_not_grow_with_each_report(database: Database, number: int) -> None:
    start_send(database)
    save_reports(database, report(ADA, "delivered", id="first"))
    made = [SentRequest(reference_of(n), 2, f"m{n}") for n in range(number)]
    database.write(lambda connection: record_requests(connection, "spring", "shop", made))
    recorded = [report(ADA, "delivered", id=f"m{n}", external_ref=reference_of(n)) for n in range(number)]
    unrecorded = [report(ADA, "delivered", id=f"other{n}", external_ref=reference_of(1000 + n)) for n in range(number)]
    newer = [report(ADA, "delivered", id=f"newer{n}", external_ref=reference_of(2000 + n)) for n in range(number)]
    store = ReportStore(database)
    of_recorded = statements_of(database, lambda _: store.save(recorded))
    of_unrecorded = statements_of(database, lambda _: store.save(unrecorded))
    of_newer = statements_of(database, lambda _: store.save(newer))
    if database.engine.dialect.name == "sqlite":
        # It inserts 64 rows with a statement, and the webhook's reports of recorded requests are bounded.
        assert of_recorded <= 11 + 4 * (number // 64)
        assert of_newer <= of_unrecorded <= 7 + 4 * (number // 64)
    else:
        # Locks are taken together with the statement that needs them.
        assert of_recorded <= 7
        # A second look for the requests, with the locks of names. It is the only one once most have not been recorded.
        assert of_unrecorded <= 7
        assert of_newer <= 6


def deadlocks(engine: Engine, name: str) -> int:
    """Return the number of deadlocks of a database. A session reports its own when it ends, or after a second."""
    time.sleep(1.1)
    with engine.connect() as connection:
        query = text("SELECT deadlocks FROM pg_stat_database WHERE datname = :name")
        return int(connection.execute(query, {"name": name}).scalar_one())


@pytest.fixture
def own_database() -> Iterator[tuple[str, Callable[[], int]]]:
    """A database of PostgreSQL that nothing else uses, and the number of its deadlocks."""
    name = f"cpaas_test_{secrets.token_hex(6)}"
    engine = create_engine(POSTGRES, isolation_level="AUTOCOMMIT")
    with engine.connect() as connection:
        connection.execute(text(f"CREATE DATABASE {name}"))
    try:
        yield POSTGRES.rpartition("/")[0] + f"/{name}", lambda: deadlocks(engine, name)
    finally:
        with engine.connect() as connection:
            connection.execute(text(f"DROP DATABASE {name} WITH (FORCE)"))
        engine.dispose()


def test_reports_beside_the_records_of_their_recipients_never_deadlock(
    own_database: tuple[str, Callable[[], int]],
) -> None:
    """Campaigns with ``track_recipients``: group commits of reports on what is being recorded."""
    url, count_deadlocks = own_database
    blocks, requests_of_block, size = 12, 20, 10
    made: list[tuple[str, str, list[str]]] = []
    failures: list[str] = []
    ended = threading.Event()

    def send(number: int) -> None:
        with open_database(url) as database:
            runtime: Any = SimpleNamespace(database=database, place=("dag", "run", "send", number))
            tracker = DeliveryTracker("send_sms", runtime, track_recipients=True, conn_id="shop")
            campaign = f"spring{number}"
            tracker.record_begin(campaign)
            for block in range(blocks):
                requests = []
                for position in range(requests_of_block):
                    reference = f"{campaign}-{block}-{position}"
                    recipients = [f"234803{block:03}{position:02}{one:02}" for one in range(size)]
                    requests.append((SentRequest(reference, size, f"m-{reference}"), recipients))
                    made.append((campaign, reference, recipients))
                if not tracker.record_accepted(campaign, requests):
                    failures.append("a block was not recorded")

    def receive(number: int) -> None:
        choice = random.Random(number)
        with open_database(url, write_timeout=30) as database:
            while not ended.is_set():
                incoming = []
                for _ in range(60 if made else 0):
                    campaign, reference, recipients = choice.choice(made[-50:])
                    recipient = choice.choice(recipients)
                    named = f"0{recipient[3:]}" if choice.random() < 0.3 else recipient
                    word = choice.choice(["sent", "delivered", "failed"])
                    incoming.append(report(named, word, token=CallbackToken(campaign, reference, size)))
                try:
                    save_reports(database, *incoming)
                except DatabaseError as error:
                    failures.append(str(error))

    open_database(url).close()
    before = count_deadlocks()
    senders, receivers = ([threading.Thread(target=work, args=(one,)) for one in range(2)] for work in (send, receive))
    for thread in (*senders, *receivers):
        thread.start()
    for thread in senders:
        thread.join(120)
    ended.set()
    for thread in receivers:
        thread.join(60)
    assert failures == []
    assert count_deadlocks() - before == 0
    with open_database(url) as database:
        assert sum(map(sum, (counts(database, f"spring{one}") for one in range(2)))) == (
            2 * blocks * requests_of_block * size
        )
