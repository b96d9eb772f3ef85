"""Campaigns against a service that answers oddly: who may be sent to again, and when a batch may be bisected."""

from __future__ import annotations

import asyncio
import logging
import random
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from cpaas_provider.api import core
from cpaas_provider.api.client import AsyncCpaasClient
from cpaas_provider.sending import engine
from cpaas_provider.sending.campaign.campaign import Campaign, CampaignOptions
from cpaas_provider.sending.campaign.loader import Columns, RecipientLoader
from cpaas_provider.sending.campaign.recipients import RecipientTable
from cpaas_provider.sending.engine import SendEngine
from cpaas_provider.sending.journal.store import TryInfo
from cpaas_provider.sending.spec import OnUnknown, UnknownPolicy
from tests.reading import nigerian_reader
from tests.unit.api.question import Question
from tests.unit.sending.campaign.parts import MemoryStore, Rows, journal_log, message, phones, statuses
from tests.unit.sending.odd_service import OddService, Respond, always, oddly, rejecting, serving, targets
from tests.unit.sending.ports import NoDelivery, Ports

PEOPLE = tuple(phones(8))
RETRIES = 3


@pytest.fixture(autouse=True)
def hurried(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setattr(core, "_FIRST_BACKOFF", 0.0)
    monkeypatch.setattr(engine, "_FIRST_PAUSE", 0.0)
    logging.disable(logging.CRITICAL)
    yield
    logging.disable(logging.NOTSET)


@dataclass
class CampaignRun:
    """One campaign of one run: its tries and what each recipient is called after the last."""

    service: OddService
    policy: OnUnknown = OnUnknown.SKIP
    per_request: int = 8
    store: MemoryStore = field(default_factory=MemoryStore)
    number: int = 0
    max_tries: int = RETRIES
    statuses: dict[str, str] = field(default_factory=dict)
    error: Exception | None = None

    def once(self) -> CampaignRun:
        """Make the next try."""
        self.number += 1
        tries = TryInfo(self.number, self.max_tries, RETRIES)
        said, log = message(), journal_log(self.store, tries)
        options = CampaignOptions(self.per_request, 1, self.policy, in_flight=1, max_failure_ratio=1.0)
        self.error = None
        with RecipientTable() as table:
            campaign = Campaign(table, log, said, options, NoDelivery())
            loader = RecipientLoader(table, said, log.hasher, reader=nigerian_reader(said))
            source = Rows(*(f"+{phone}" for phone in PEOPLE))
            campaign.prepare(loader, source, Columns("phone"), tests=None, suppression_list=None)
            try:
                asyncio.run(self._send(campaign))
                campaign.check_result()
            except Exception as error:  # noqa: BLE001 - the test looks at it
                self.error = error
            self.statuses = statuses(table)
        return self

    async def _send(self, campaign: Campaign) -> None:
        options: dict[str, Any] = {"max_concurrency": 1, "requests_per_second": 10_000, "max_retries": 2, "timeout": 10}
        async with AsyncCpaasClient(self.service.url, "sk_test_of_a_model", default_region="NG", **options) as client:
            await SendEngine(campaign, client, Ports(), UnknownPolicy(self.policy)).run()

    def clear(self) -> CampaignRun:
        """Clear the task as Airflow 3.3 does."""
        self.max_tries = self.number + RETRIES
        return self

    def check(self) -> None:
        """Check what must be true after any try."""
        twice = self.service.twice
        assert not twice, f"{twice} after {[exchange.answer for exchange in self.service.exchanges]}"
        sent = {recipient for recipient, status in self.statuses.items() if status == "sent"}
        assert sent <= self.service.claimed, "they are called accepted, and no answer with an id is about them"
        assert set(self.statuses) == set(PEOPLE), "some are missing"
        if self.error is None:
            assert "not_sent" not in self.statuses.values()


@pytest.mark.parametrize("policy", [OnUnknown.FAIL, OnUnknown.SKIP])
@settings(suppress_health_check=list(HealthCheck))
@given(seed=st.integers(0, 2**32), per_request=st.integers(1, 8), most=st.integers(1, 12))
def test_odd_responses_reach_no_recipient_twice_and_hide_no_unsent_one(
    policy: OnUnknown, seed: int, per_request: int, most: int
) -> None:
    with serving(OddService(oddly(seed, most), random.Random(seed))) as service:
        run = CampaignRun(service, policy, per_request)
        for _ in range(2):
            run.once().check()
        run.clear().once().check()
        run.clear().once().check()


# -- what a rejected batch allows ------------------------------------------------------------------------------------

BAD = PEOPLE[2]


def item(field_: str | None, text: str = "is invalid", **more: Any) -> dict[str, Any]:
    return {"field": field_, "message": text, "type": "invalid", **more}


def error(*items: Any, **more: Any) -> dict[str, Any]:
    return {"message": "The request is not valid", "errors": list(items), **more}


def refused(status: int, body: Any) -> Respond:
    """Refuse what the bad recipient is in."""
    return rejecting(frozenset({BAD}), lambda question, bad: always(status, body)(question))


ENDS: dict[str, tuple[int, Any]] = {
    "401": (401, error()),
    "401 of no words": (401, ""),
    "403": (403, error(item("recipients", f"{BAD} is not valid"))),
    "no balance": (400, error(message="Insufficient balance")),
    "402": (402, error()),
    "sender": (400, error(item("sender_id"))),
    "content": (422, error(item("content"))),
    "sender and content": (400, error(item("sender_id"), item("content"))),
    "sender under 200": (200, error(item("sender_id"))),
    "content under a status of 400": (200, error(item("content"), status=400)),
    "template": (400, error(item("template_id"))),
    "sender, named beside a recipient's number": (400, error(item("sender_id", f"may not send to {BAD}"))),
}
UNKNOWN: dict[str, tuple[int, Any]] = {
    "gateway timeout": (200, {"message": "Gateway timeout", "errors": ["upstream timed out"]}),
    "null item": (200, error(None)),
    "empty item": (200, error({})),
    "code in an item": (200, error(item("recipients", code=504))),
    "status in an item": (200, error(item("recipients", status="503"))),
    "GraphQL": (200, {"data": None, "errors": [{"message": "It failed", "path": ["send"]}]}),
    "JSON:API": (200, {"errors": [{"status": "422", "title": "Invalid", "source": {"pointer": "/data"}}]}),
    "accepted in the message": (200, error(item("recipients"), message="Accepted")),
    "ids beside": (200, error(item("recipients"), messages=[{"id": "m-1"}])),
    "ids inside": (400, error(item("recipients"), {"id": "m-1", "to": BAD})),
    "400 with an id": (400, error(item("recipients", f"{BAD} is not valid"), id="m-1")),
    "400 queued": (400, {"message": "Message queued"}),
    "dead id": (200, {"id": "null", "recipients": list(PEOPLE)}),
    "460": (460, error(item("recipients"))),
    "499": (499, error(item("recipients"))),
    "408": (408, error(item("recipients"))),
}


@pytest.mark.parametrize(("status", "body"), ENDS.values(), ids=ENDS)
def test_rejection_that_concerns_all_ends_the_campaign_at_the_first_request(status: int, body: Any) -> None:
    with serving(OddService(always(status, body))) as service:
        run = CampaignRun(service, per_request=4).once()
    assert (len(service.batches), service.reached) == (1, {})
    assert run.error is not None
    assert set(run.statuses.values()) <= {"not_sent", "rejected"}


@pytest.mark.parametrize(("status", "body"), UNKNOWN.values(), ids=UNKNOWN)
def test_unknown_batch_is_never_bisected_nor_sent_again(status: int, body: Any) -> None:
    with serving(OddService(always(status, body))) as service:
        run = CampaignRun(service, per_request=4).once()
        run.clear().once()
    sent_to = [recipient for batch in service.batches for recipient in batch]
    assert sorted(sent_to) == sorted(PEOPLE)
    assert set(run.statuses.values()) == {"unknown"}


@pytest.mark.parametrize("status", [200, 400, 422])
def test_recipients_named_in_a_rejection_are_removed_and_the_others_sent(status: int) -> None:
    with serving(OddService(refused(status, error(item("recipients", f"{BAD} is not valid"))))) as service:
        run = CampaignRun(service).once()
    assert service.batches == [PEOPLE, tuple(one for one in PEOPLE if one != BAD)]
    assert run.statuses == dict.fromkeys(PEOPLE, "sent") | {BAD: "rejected"}


@pytest.mark.parametrize("body", [error(), {"message": "Bad request"}, "Bad request"], ids=["error", "message", "text"])
@pytest.mark.parametrize("status", [400, 422])
def test_batch_of_a_4xx_that_names_no_field_is_bisected(status: int, body: Any) -> None:
    with serving(OddService(refused(status, body))) as service:
        run = CampaignRun(service).once()
    assert run.statuses == dict.fromkeys(PEOPLE, "sent") | {BAD: "rejected"}
    assert len(service.batches) <= 2 * 3 + 1


@pytest.mark.parametrize("kind", ["warning", "note", "info"])
def test_warning_beside_an_id_leaves_all_recipients_accepted(kind: str) -> None:
    def answer(question: Question) -> dict[str, Any]:
        record = {"id": "m-1", "recipients": list(targets(question))}
        return {**record, "errors": [item("recipients", f"{BAD} is a ported number", type=kind)]}

    with serving(OddService(always(200, answer))) as service:
        run = CampaignRun(service).once()
        run.clear().once()
    assert service.batches == [PEOPLE]
    assert run.statuses == dict.fromkeys(PEOPLE, "sent")
