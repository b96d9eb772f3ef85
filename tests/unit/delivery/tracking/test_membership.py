"""Which recipients a request has: each of them once, and no more than it was sent to."""

from __future__ import annotations

import datetime as dt
import itertools
import random
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest
from sqlalchemy import delete, event, func, select

from cpaas_provider.database.database import Database, open_database
from cpaas_provider.database.schema.delivery import deliveries, reports, request_counts
from cpaas_provider.delivery.callbacks.tokens import CallbackToken
from cpaas_provider.delivery.receiver.writer import ReceivedReport, StoreResult
from cpaas_provider.delivery.tracking.events import KINDS, detect_events, unpublished
from cpaas_provider.delivery.tracking.sent_requests import SentRequest
from cpaas_provider.sources.delivery_events import DeliveryEventSource
from tests.unit.delivery.report_builders import (
    ADA,
    OBI,
    UMA,
    counts,
    finish_send,
    outcomes,
    report,
    save_recipients,
    save_reports,
    save_requests,
    save_send,
    start_send,
    token_for,
)
from tests.unit.delivery.running_receiver import serving

EVER = dict.fromkeys(KINDS, dt.datetime(2000, 1, 1, tzinfo=dt.UTC))
ONE = token_for(ADA)
TWO = token_for(ADA, OBI)


def single_token(campaign: str = "spring") -> CallbackToken:
    """Return the token of a request to one, of a campaign or one by itself."""
    return CallbackToken(campaign, "pack" if campaign == "spring" else campaign, 1)


def count_rows(database: Database) -> int:
    with database.connect() as connection:
        return connection.execute(select(func.count()).select_from(deliveries)).scalar_one()


def count_reports(database: Database) -> int:
    with database.connect() as connection:
        return connection.execute(select(func.count()).select_from(reports)).scalar_one()


class TestOnlyRecipientOfRequest:
    @pytest.mark.parametrize("campaign", ["spring", "by-itself"])
    @pytest.mark.parametrize("known", [True, False])
    @pytest.mark.parametrize("order", list(itertools.permutations(["send", "nameless", "named"])))
    def test_only_recipient_is_one_row_in_any_order_of_reports_and_send(
        self, database: Database, campaign: str, known: bool, order: tuple[str, ...]
    ) -> None:
        start_send(database, campaign)
        for what in order:
            if what == "send":
                save_send(
                    database, ADA, is_tracked=known, campaign=campaign, reference=single_token(campaign).reference
                )
            else:
                name = ADA if what == "named" else None
                save_reports(database, report(name, "delivered" if name else "sent", token=single_token(campaign)))
        finish_send(database, campaign, expected=1)
        assert (counts(database, campaign), outcomes(database, campaign)) == ((1, 0, 0), {ADA: "delivered"})
        assert count_rows(database) == 1

    @pytest.mark.parametrize("named_first", [True, False])
    def test_only_recipient_is_one_row_if_reports_arrive_together(self, database: Database, named_first: bool) -> None:
        both = [report(ADA, "sent", token=ONE), report(None, "delivered", token=ONE)]
        save_reports(database, *(both if named_first else reversed(both)))
        assert outcomes(database) == {ADA: "delivered"}
        assert count_rows(database) == 1

    @pytest.mark.parametrize("known", [True, False])
    def test_only_recipient_is_one_row_after_early_webhook_reports_without_a_name(
        self, database: Database, known: bool
    ) -> None:
        ours = "cpaas-" + "a" * 24
        save_reports(database, report(None, "delivered", external_ref=ours), report(None, "sent", id="m1"))
        save_reports(database, report(ADA, "sent", token=CallbackToken(ours, ours, 1)))
        save_send(database, ADA, is_tracked=known, campaign=ours, reference=ours)
        finish_send(database, ours, expected=1)
        assert (counts(database, ours), outcomes(database, ours)) == ((1, 0, 0), {ADA: "delivered"})
        assert count_rows(database) == 1

    def test_published_failure_is_not_published_again_once_the_recipient_is_named(self, database: Database) -> None:
        save_reports(database, report(None, "failed", token=ONE))
        detect_events(database, EVER)
        save_reports(database, report(ADA, "rejected", token=ONE))
        with database.connect() as connection:
            assert len(unpublished(connection)) == 1
            assert connection.execute(select(deliveries.c.failed_batch)).scalar_one()
        assert outcomes(database) == {ADA: "undelivered"}

    def test_published_failure_stays_in_its_batch_in_another_spelling(self, database: Database) -> None:
        save_reports(database, report(f"0{ADA[3:]}", "failed", token=TWO))
        detect_events(database, EVER)
        with database.connect() as connection:
            batch = connection.execute(select(deliveries.c.failed_batch)).scalar_one()
        save_reports(database, report(ADA, "sent", token=TWO))
        with database.connect() as connection:
            assert connection.execute(select(deliveries.c.recipient, deliveries.c.failed_batch)).all() == [(ADA, batch)]


class TestCallbackUrl:
    @pytest.mark.parametrize("together", [True, False])
    def test_callback_url_accepts_no_more_recipients_than_its_request_has(
        self, database: Database, together: bool
    ) -> None:
        told = [report(one, "delivered", token=TWO) for one in (ADA, OBI, UMA)]
        found = save_reports(database, *told) if together else [save_reports(database, one)[0] for one in told]
        assert found == [StoreResult.NEW, StoreResult.NEW, StoreResult.EXCESS]
        assert (counts(database), count_reports(database)) == ((2, 0, 0), 3)
        assert save_reports(database, told[2]) == [StoreResult.REPEATED]
        assert save_reports(database, report(ADA, "clicked", token=TWO)) == [StoreResult.NEW]
        assert outcomes(database) == {ADA: "clicked", OBI: "delivered"}

    def test_callback_url_is_limited_beside_reports_without_a_limit(self, database: Database) -> None:
        told = [report(one, "delivered", token=TWO) for one in (ADA, OBI, UMA)]
        others = [report(one, "delivered", message_id=f"m{one}") for one in (ADA, OBI, UMA)]
        found = save_reports(database, *told, *others, report(ADA, "delivered", token=single_token("by-itself")))
        assert found == [*[StoreResult.NEW] * 2, StoreResult.EXCESS, *[StoreResult.NEW] * 4]
        assert counts(database) == (2, 0, 0)
        with database.connect() as connection:
            numbers = {row[:4] for row in connection.execute(select(request_counts))}
        assert numbers == {("spring", "shop", TWO.reference, 2)}

    def test_recipients_of_a_request_are_counted_once_and_not_with_each_report(self, database: Database) -> None:
        token, statements = CallbackToken("spring", "pack", 100), list[str]()
        event.listen(database.engine, "before_cursor_execute", lambda *given: statements.append(given[2]))
        for number in range(20):
            save_reports(database, report(f"23480300{number:05d}", "delivered", token=token))
        assert sum("tracked" in one and "INSERT" not in one for one in statements) == 1

    def test_callback_url_accepts_another_recipient_after_one_was_pruned(self, database: Database) -> None:
        save_reports(database, *(report(one, "delivered", token=TWO) for one in (ADA, OBI)))
        database.write(lambda connection: connection.execute(delete(deliveries).where(deliveries.c.recipient == ADA)))
        told = [report(one, "delivered", token=TWO) for one in (UMA, ADA)]
        assert save_reports(database, *told) == [StoreResult.NEW, StoreResult.EXCESS]
        assert outcomes(database).keys() == {OBI, UMA}

    def test_callback_url_of_one_recipient_accepts_no_other(self, database: Database) -> None:
        told = [report(one, "delivered", token=ONE) for one in (ADA, OBI)]
        assert save_reports(database, *told) == [StoreResult.NEW, StoreResult.EXCESS]
        assert save_reports(database, report(OBI, "failed", token=ONE)) == [StoreResult.EXCESS]
        assert outcomes(database) == {ADA: "delivered"}

    @pytest.mark.parametrize("size", [1, 2])
    def test_callback_url_accepts_only_the_tracked_recipients(self, database: Database, size: int) -> None:
        token = token_for(*(ADA, OBI)[:size])
        start_send(database)
        save_requests(database, SentRequest("pack", size))
        save_recipients(database, *(ADA, OBI)[:size])
        assert save_reports(database, report(UMA, "failed", token=token)) == [StoreResult.EXCESS]
        assert save_reports(database, report(ADA, "delivered", token=token)) == [StoreResult.NEW]
        assert outcomes(database)[ADA] == "delivered"
        assert UMA not in outcomes(database)

    def test_recipients_that_are_recorded_later_replace_a_reported_stranger(self, database: Database) -> None:
        save_reports(database, report(UMA, "failed", token=TWO), report(ADA, "delivered", token=TWO))
        start_send(database)
        save_requests(database, SentRequest("pack", 2))
        save_recipients(database, ADA, OBI)
        assert outcomes(database) == {ADA: "delivered", OBI: "in_flight"}

    def test_callback_url_changes_no_recipient_of_another_request(self, database: Database) -> None:
        other = token_for(OBI, UMA, reference="other")
        save_reports(database, report(OBI, "failed", token=other))
        start_send(database)
        save_requests(database, SentRequest("pack", 1), SentRequest("other", 2))
        finish_send(database, expected=3)
        save_recipients(database, ADA)
        assert save_reports(database, report(OBI, "clicked", token=ONE)) == [StoreResult.EXCESS]
        assert outcomes(database) == {ADA: "in_flight", OBI: "undelivered"}

    def test_reports_beyond_the_recipients_of_a_request_publish_no_event(
        self, database: Database, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setenv("AIRFLOW__CPAAS__DATABASE", database.engine.url.render_as_string(hide_password=False))
        start_send(database)
        save_requests(database, SentRequest("pack", 2), SentRequest("other", 2))
        finish_send(database, expected=4)
        save_reports(database, *(report(one, "delivered", token=TWO) for one in (ADA, OBI)))
        more = [f"23480200000{number:02}" for number in range(10)]
        save_reports(database, *(report(one, word, token=TWO) for one in more for word in ("failed", "clicked")))
        detect_events(database, EVER)
        with database.connect() as connection:
            assert unpublished(connection) == []
        with DeliveryEventSource("spring").open() as table:
            assert list(table.rows(["recipient"])) == []
        assert counts(database) == (2, 0, 0)
        assert count_reports(database) == 22

    def test_reports_beyond_the_recipients_of_a_request_get_200_and_are_counted(self, database: Database) -> None:
        with serving(database) as served:
            statuses = [
                served.post(served.callback(ONE), {"recipient": one, "status": "delivered"}).status_code
                for one in (ADA, OBI, UMA)
            ]
            assert statuses == [200, 200, 200]
            assert (served.counted()["received"], served.counted()["excess"]) == (3, 2)
        assert (outcomes(database), count_reports(database)) == ({ADA: "delivered"}, 3)


def test_concurrent_stores_accept_no_more_recipients_than_a_request_has(url: str) -> None:
    tokens = [CallbackToken("spring", f"pack{number}", 10) for number in range(5)]
    told = [report(f"23480200000{n:02}", "delivered", token=token) for token in tokens for n in range(40)]

    def work(seed: int) -> list[StoreResult]:
        mine: list[ReceivedReport] = random.Random(seed).sample(told, len(told))
        with open_database(url) as database:
            return [
                one for start in range(0, len(mine), 20) for one in save_reports(database, *mine[start : start + 20])
            ]

    with open_database(url), ThreadPoolExecutor(4) as pool:
        found: list[Any] = [one for part in pool.map(work, range(4)) for one in part]
    with open_database(url) as database:
        assert counts(database) == (50, 0, 0)
    assert sum(one is StoreResult.NEW for one in found) == 50
    assert sum(one is StoreResult.EXCESS for one in found) == 150
