from __future__ import annotations

from sqlalchemy import select

from cpaas_provider.delivery.arrivals import Kept
from cpaas_provider.delivery.sends import (
    NotedRequest,
    TrackedSend,
    note_end,
    note_requests,
    note_send,
    track,
)
from cpaas_provider.store.database import Database, open_store
from cpaas_provider.store.schema import requests, sends
from tests.unit.delivery.arriving import ADA, OBI, arrival, counts, kept, outcomes, report, to

SPRING = TrackedSend("spring", "send_sms", "shop", "dag", "run", "send", -1)


def note(database: Database, *made: NotedRequest, campaign: str = "spring") -> None:
    database.write(lambda connection: note_requests(connection, campaign, made))


class TestWhatSendersNote:
    def test_a_later_try_goes_on_with_the_same_send(self, database: Database) -> None:
        for _ in range(2):
            database.write(lambda connection: note_send(connection, SPRING))
        database.write(lambda connection: note_end(connection, "spring", 12))
        with database.reading() as connection:
            (row,) = connection.execute(select(sends)).all()
        assert (row.campaign, row.task_id, row.expected) == ("spring", "send", 12)
        assert row.ended >= row.began

    def test_a_request_is_noted_once_and_its_id_when_it_is_known(self, database: Database) -> None:
        note(database, NotedRequest("pack", 2))
        note(database, NotedRequest("pack", 2, "m1"))
        note(database, NotedRequest("pack", 2))
        with database.reading() as connection:
            (row,) = connection.execute(select(requests)).all()
        assert (row.reference, row.campaign, row.recipients, row.message_id) == ("pack", "spring", 2, "m1")

    def test_nothing_is_noted_of_nothing(self, database: Database) -> None:
        note(database)
        with database.reading() as connection:
            assert connection.execute(select(requests)).all() == []


class TestReportsOfTheAccount:
    """What comes to the account's webhook says nothing of campaigns."""

    def test_find_their_campaign_by_the_id_of_the_message(self, database: Database) -> None:
        note(database, NotedRequest("pack", 2, "m1"))
        assert kept(database, report(ADA, "delivered", id="m1")) == [Kept.NEW]
        assert counts(database) == (1, 0, 0)

    def test_find_their_campaign_by_our_reference(self, database: Database) -> None:
        note(database, NotedRequest("pack", 2))
        kept(database, report(ADA, "delivered", external_ref="pack"))
        assert counts(database) == (1, 0, 0)

    def test_are_the_campaign_s_once_their_message_is_noted(self, database: Database) -> None:
        kept(database, report(ADA, "failed", id="m1"), report(OBI, "delivered", id="m1"))
        kept(database, report(ADA, "delivered", ticket=to(ADA, OBI)))
        assert counts(database) == (1, 0, 0)
        note(database, NotedRequest("pack", 2, "m1"))
        assert outcomes(database) == {ADA: "delivered", OBI: "delivered"}
        assert outcomes(database, "~m1") == {}

    def test_that_name_nobody_are_the_one_recipient_s(self, database: Database) -> None:
        kept(database, arrival({"event": "airtime.success", "id": "m1"}))
        note(database, NotedRequest("topup", 1, "m1"), campaign="topup")
        assert counts(database, "topup") == (1, 0, 0)

    def test_under_our_reference_are_the_campaign_s_once_the_request_is_noted(self, database: Database) -> None:
        reference = "cpaas-" + "a" * 24
        assert kept(database, report(ADA, "delivered", external_ref=reference)) == [Kept.NEW]
        assert counts(database, reference) == (1, 0, 0)
        note(database, NotedRequest(reference, 2))
        assert (counts(database), counts(database, reference)) == ((1, 0, 0), (0, 0, 0))

    def test_of_a_request_that_is_a_campaign_by_itself_stay_where_they_are(self, database: Database) -> None:
        reference = "cpaas-" + "a" * 24
        kept(database, report(ADA, "delivered", external_ref=reference, id="m1"))
        note(database, NotedRequest(reference, 1, "m1"), campaign=reference)
        assert outcomes(database, reference) == {ADA: "delivered"}

    def test_that_nobody_can_place_are_kept_as_they_came(self, database: Database) -> None:
        assert kept(database, report(ADA, "delivered", external_ref="somebody else's")) == [Kept.UNREADABLE]


class TestTrackedRecipients:
    def test_are_open_until_something_is_reported_of_them(self, database: Database) -> None:
        kept(database, report(ADA, "delivered", ticket=to(ADA, OBI)))
        for _ in range(2):
            database.write(lambda connection: track(connection, "spring", "shop", "pack", [ADA, OBI]))
        assert outcomes(database) == {ADA: "delivered", OBI: "in_flight"}
        kept(database, report(OBI, "failed", ticket=to(ADA, OBI)))
        assert counts(database) == (1, 1, 0)

    def test_may_be_none(self, database: Database) -> None:
        database.write(lambda connection: track(connection, "spring", "shop", "pack", []))
        assert outcomes(database) == {}


def test_every_store_has_a_name_of_its_own(database: Database, tmp_path: object) -> None:
    with open_store(f"sqlite:///{tmp_path}/other.db") as other, open_store(str(database.engine.url)) as again:
        assert again.identity == database.identity != other.identity
