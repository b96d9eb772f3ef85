"""Reports of requests of unknown outcome: they count beside the accepted recipients, never in the place of one."""

from __future__ import annotations

import datetime as dt
from typing import Any

import pytest

from cpaas_provider.database.database import Database
from cpaas_provider.delivery.callbacks.tokens import CallbackToken
from cpaas_provider.delivery.tracking.counts import read_counts
from cpaas_provider.delivery.tracking.events import CAMPAIGN_FINISHED, KINDS, DeliveryEvent, detect_events, unpublished
from cpaas_provider.delivery.tracking.sent_requests import SentRequest
from cpaas_provider.sources.delivery_events import DeliveryEventSource
from cpaas_provider.triggers.delivery import DeliveryTrigger
from tests.unit.delivery.report_builders import ADA, OBI, UMA, begun, ended, noted, outcomes, report, save_reports, to

EVER = dict.fromkeys(KINDS, dt.datetime(2000, 1, 1, tzinfo=dt.UTC))
SURE, LOST = to(ADA, OBI, reference="sure"), CallbackToken("spring", "lost", 10)
OTHERS = [f"23480200000{number:02}" for number in range(10)]


@pytest.fixture
def sent(database: Database, monkeypatch: pytest.MonkeyPatch) -> Database:
    """A campaign of which the service accepted a request to two; of one to ten nobody knows."""
    monkeypatch.setenv("AIRFLOW__CPAAS__DATABASE", database.engine.url.render_as_string(hide_password=False))
    begun(database)
    noted(database, SentRequest("sure", 2))
    ended(database, expected=2, unknown=10)
    return database


def finished(database: Database) -> list[DeliveryEvent]:
    detect_events(database, EVER)
    with database.connect() as connection:
        return [one for one in unpublished(connection) if one.kind == CAMPAIGN_FINISHED]


async def looked(
    *campaigns: str, accepted: int = 2, share: float | None = None, unknown: tuple[str, ...] = ()
) -> dict[str, Any]:
    """Return what a sensor is told that looks now."""
    more: dict[str, Any] = {"unknown": unknown} if unknown else {}
    now = dt.datetime.now(dt.UTC).isoformat()
    trigger = DeliveryTrigger(list(campaigns or ["spring"]), accepted, share, now, 1, **more)
    (found,) = [dict(event.payload) async for event in trigger.run()]
    return found


def told(outcome: str, expected: int, delivered: int, undelivered: int, in_flight: int, unreported: int) -> Any:
    names = ("outcome", "expected", "delivered", "undelivered", "in_flight", "unreported")
    return dict(zip(names, (outcome, expected, delivered, undelivered, in_flight, unreported), strict=True))


class TestASensor:
    @pytest.mark.parametrize("share", [None, 1.0, 0.9])
    async def test_waits_for_the_accepted_whatever_is_reported_of_others(
        self, sent: Database, share: float | None
    ) -> None:
        save_reports(sent, *(report(one, "delivered", token=LOST) for one in OTHERS))
        assert await looked(share=share) == told("timed_out", 12, 10, 0, 0, 2)
        save_reports(sent, *(report(one, "delivered", token=SURE) for one in (ADA, OBI)))
        assert await looked(share=share) == told("done", 12, 12, 0, 0, 0)

    async def test_does_not_wait_for_others_of_whom_nothing_is_reported(self, sent: Database) -> None:
        save_reports(sent, *(report(one, "delivered", token=SURE) for one in (ADA, OBI)))
        assert await looked(share=1.0) == told("done", 2, 2, 0, 0, 0)

    async def test_counts_others_on_both_sides_of_a_share(self, sent: Database) -> None:
        save_reports(sent, *(report(one, "delivered", token=SURE) for one in (ADA, OBI)))
        save_reports(sent, report(OTHERS[0], "failed", token=LOST), report(OTHERS[1], "delivered", token=LOST))
        assert await looked(share=0.75) == told("done", 4, 3, 1, 0, 0)
        assert await looked(share=0.9) == told("missed", 4, 3, 1, 0, 0)

    async def test_waits_for_others_that_are_reported_to_be_on_their_way(self, sent: Database) -> None:
        save_reports(sent, *(report(one, "delivered", token=SURE) for one in (ADA, OBI)))
        save_reports(sent, report(OTHERS[0], "sent", token=LOST))
        assert await looked() == told("timed_out", 3, 2, 0, 1, 0)

    async def test_of_requests_that_are_campaigns_by_themselves_goes_by_what_their_senders_returned(
        self, sent: Database
    ) -> None:
        for name, recipients in (("one", 1), ("lost-one", 3)):
            token = CallbackToken(name, name, recipients)
            save_reports(sent, *(report(phone, "delivered", token=token) for phone in OTHERS[:recipients]))
        names = ("one", "silent", "lost-one")
        found = await looked(*names, share=1.0, unknown=("lost-one",))
        assert found == told("timed_out", 5, 4, 0, 0, 1)

    async def test_takes_one_that_a_report_settled_later_for_accepted(self, sent: Database) -> None:
        save_reports(sent, *(report(one, "delivered", token=LOST) for one in OTHERS))
        noted(sent, SentRequest("lost", 10, "m1"))
        ended(sent, expected=12)
        assert await looked(accepted=12) == told("timed_out", 12, 10, 0, 0, 2)


class TestACampaign:
    def test_is_not_finished_while_accepted_recipients_are_open(self, sent: Database) -> None:
        save_reports(sent, *(report(one, "delivered", token=LOST) for one in OTHERS))
        assert finished(sent) == []
        save_reports(sent, report(ADA, "delivered", token=SURE), report(OBI, "failed", token=SURE))
        (one,) = finished(sent)
        figures = ("recipients", "delivered", "undelivered", "unreported")
        assert [one.facts[name] for name in figures] == [12, 11, 1, 0]

    def test_is_finished_without_others_of_whom_nothing_is_reported(self, sent: Database) -> None:
        save_reports(sent, report(ADA, "delivered", token=SURE), report(OBI, "failed", token=SURE))
        (one,) = finished(sent)
        assert one.facts["recipients"] == 2

    def test_is_shown_with_the_accepted_open(self, sent: Database) -> None:
        save_reports(sent, *(report(one, "delivered", token=LOST) for one in OTHERS))
        with sent.connect() as connection:
            counts = read_counts(connection, ["spring"])["spring"]
        assert (counts.expected(2), counts.expected(2) - counts.known) == (12, 2)

    def test_has_those_of_unknown_outcome_whom_it_did_not_reach_among_its_concerned(self, sent: Database) -> None:
        save_reports(sent, report(UMA, "failed", token=LOST), report(ADA, "failed", token=SURE))
        with DeliveryEventSource("spring").open() as table:
            assert [row.values for row in table.rows(["recipient"])] == [(f"+{ADA}",), (f"+{UMA}",)]
        assert outcomes(sent).keys() == {ADA, UMA}
