"""Short stories about deliveries in which something once went wrong, each with what it is about."""

from __future__ import annotations

from typing import Any

from tests.unit.delivery.tracking.model.delivery_records import STRANGER, Outcome
from tests.unit.delivery.tracking.model.delivery_script import Step
from tests.unit.delivery.tracking.model.delivery_world import RECIPIENTS

ADA, OBI, UMA, EZE = RECIPIENTS


def send(*recipients: str, campaign: str = "spring") -> Step:
    return Step("send", {"campaign": campaign, "recipients": recipients})


def record(number: int = 0, outcome: Outcome = Outcome.ACCEPTED, **options: Any) -> Step:
    return Step("record", {"number": number, "outcome": outcome, **options})


def sent(*recipients: str, number: int = 0, campaign: str = "spring") -> tuple[Step, Step]:
    return send(*recipients, campaign=campaign), record(number)


def report(word: str, named: int | str | None = 0, number: int = 0, **options: Any) -> Step:
    return Step("report", {"number": number, "word": word, "named": named, **options})


def overlap(word: str, by: str, *, is_report_first: bool) -> Step:
    return Step("overlap", {"number": 0, "word": word, "by": by, "is_report_first": is_report_first})


def end(campaign: str = "spring") -> Step:
    return Step("end", {"campaign": campaign})


def erase(recipient: str) -> Step:
    return Step("erase", {"recipient": recipient})


def age(hours: float) -> Step:
    return Step("age", {"hours": hours})


def single(kind: str, *recipients: str) -> Step:
    return Step("send_single", {"kind": kind, "recipients": recipients})


def edit_key(*, is_kept: bool) -> Step:
    return Step("edit_key", {"conn_id": "shop", "is_kept": is_kept})


def fails_for_good(named: int = 0, number: int = 0, **options: Any) -> Step:
    return report("failed", named, number, is_permanent=True, **options)


PUBLISH, PRUNE, COMPARE = Step("publish"), Step("prune"), Step("compare")
FALL, RISE = Step("fall"), Step("rise")
UNKNOWN = Outcome.UNKNOWN

SCENES: dict[str, tuple[Step, ...]] = {
    "who opened the message does not get the next channel": (*sent(ADA, OBI), report("opened")),
    "who clicked the link does not get the next channel": (*sent(ADA, OBI), report("clicked")),
    "who was sent to twice with an unknown outcome is unknown once": (send(ADA), end(), send(ADA), end(), COMPARE),
    "a report of the first of two requests of unknown outcome counts": (
        send(ADA, OBI),
        end(),
        send(ADA, OBI),
        end(),
        report("delivered"),
        COMPARE,
        end(),
    ),
    "a report of the first of two requests of unknown outcome counts if it comes before the second has ended": (
        send(ADA, OBI),
        end(),
        send(ADA, OBI),
        report("delivered"),
        end(),
        COMPARE,
    ),
    "reports of both requests of unknown outcome count once": (
        send(ADA, OBI),
        end(),
        send(ADA, OBI),
        report("delivered"),
        report("delivered", number=1),
        end(),
        COMPARE,
    ),
    "reports of two requests of unknown outcome count for both of their recipients": (
        send(ADA, OBI),
        end(),
        send(ADA, OBI),
        end(),
        report("delivered"),
        report("bounced", named=1, number=1),
        COMPARE,
    ),
    "of two requests of unknown outcome a person resolves the first": (
        send(ADA, OBI),
        end(),
        send(ADA, OBI),
        end(),
        Step("resolve", {"number": 0, "is_sent": True}),
        COMPARE,
        end(),
    ),
    "a report stored while its request is recorded counts after more than a minute": (
        send(ADA, OBI),
        overlap("delivered", "reference", is_report_first=True),
        age(0.05),
        end(),
        COMPARE,
    ),
    "a request recorded while its report is stored counts after more than a minute": (
        send(ADA, OBI),
        overlap("delivered", "message_id", is_report_first=False),
        age(0.05),
        end(),
        COMPARE,
    ),
    "a request of another campaign makes no unknown attempt count": (
        send(ADA),
        record(0, UNKNOWN),
        *sent(ADA, number=1),
        report("failed", number=0),
        *sent(OBI, number=2, campaign="summer"),
        report("failed", number=2),
    ),
    "a request of another connection makes no unknown attempt count": (
        send(ADA),
        record(0, UNKNOWN),
        *sent(ADA, number=1),
        report("failed", number=0),
        *sent(OBI, number=2, campaign="loan"),
        report("failed", number=2),
    ),
    "a rejected recipient takes no place of one that is open": (
        send(ADA, OBI),
        record(rejected=(OBI,)),
        report("delivered", 1),
    ),
    "a report of a rejected recipient that came early is nobody's place": (
        send(ADA, OBI),
        report("delivered", 1),
        record(rejected=(OBI,)),
    ),
    "a rejected recipient that only the end of the try records is nobody's place": (
        send(ADA, OBI),
        record(rejected=(ADA,), dies="before"),
        report("delivered"),
        end(),
    ),
    "a second spelling is the same recipient": (
        *sent(ADA, OBI),
        report("delivered", spelling="trunk"),
        report("delivered", spelling="plus"),
        report("delivered", 1),
    ),
    "a number with the international prefix is the same recipient": (
        *sent(ADA, OBI),
        report("sent"),
        report("delivered", spelling="prefix"),
        report("bounced", 1),
    ),
    "the only recipient in another spelling is not refused": (
        *sent(ADA),
        report("sent"),
        report("delivered", spelling="trunk"),
    ),
    "a recipient that is erased leaves the others their places": (
        *sent(ADA, OBI),
        report("delivered"),
        erase(ADA),
        report("clicked", spelling="plus"),
        report("delivered", 1),
    ),
    "a recipient that is erased before its request is recorded is expected once": (
        send(ADA, OBI, UMA),
        report("failed", 2, by="message_id"),
        erase(UMA),
        record(),
    ),
    "a campaign is not finished while recipients are unknown": (
        *sent(ADA),
        send(OBI, UMA),
        record(1, UNKNOWN),
        report("delivered"),
        end(),
        PUBLISH,
        report("delivered", 0, 1),
        report("delivered", 1, 1),
    ),
    "a campaign whose recipients are all unknown finishes once they are reported": (
        send(ADA, OBI),
        record(0, UNKNOWN),
        end(),
        PUBLISH,
        report("delivered", 0),
        PUBLISH,
        report("failed", 1),
        PUBLISH,
    ),
    "an attempt that was resent finishes no campaign for another unknown one": (
        send(ADA),
        record(0, UNKNOWN),
        send(OBI),
        record(1, UNKNOWN),
        *sent(ADA, number=2),
        report("delivered", number=0),
        report("delivered", number=2),
        end(),
        PUBLISH,
        report("delivered", number=1),
        PUBLISH,
    ),
    "an attempt that was resent in part waits for the rest of it": (
        send(ADA, OBI),
        record(0, UNKNOWN),
        end(),
        *sent(ADA, number=1),
        report("delivered", number=0),
        report("delivered", number=1),
        end(),
        PUBLISH,
        report("failed", 1, number=0),
        PUBLISH,
    ),
    "a person who decides about an unknown request ends the wait for it": (
        *sent(ADA),
        send(OBI),
        record(1, UNKNOWN),
        report("delivered"),
        end(),
        PUBLISH,
        Step("resolve", {"number": 1, "is_sent": False}),
        PUBLISH,
    ),
    "a request that a person decides was sent is waited for": (
        *sent(ADA),
        send(OBI, UMA),
        record(1, UNKNOWN),
        report("delivered"),
        end(),
        report("delivered", number=1),
        PUBLISH,
        Step("resolve", {"number": 1, "is_sent": True}),
        COMPARE,
        PUBLISH,
        report("bounced", 1, number=1),
        PUBLISH,
    ),
    "an erasure by itself finishes no campaign": (
        *sent(ADA, OBI),
        report("delivered"),
        report("sent", 1),
        end(),
        PUBLISH,
        erase(OBI),
        PUBLISH,
    ),
    "who was reached by an unknown attempt is not among the failed": (
        send(ADA),
        record(0, UNKNOWN),
        *sent(ADA, number=1),
        report("delivered", number=0),
        report("failed", number=1),
        end(),
        PUBLISH,
    ),
    "who was reached by a resend is not among the failed": (
        send(ADA),
        record(0, UNKNOWN),
        *sent(ADA, number=1),
        report("failed", number=0),
        report("delivered", number=1),
        end(),
        PUBLISH,
    ),
    "a campaign that is unfinished outlives a prune": (
        *sent(ADA, OBI),
        report("delivered"),
        end(),
        age(48),
        PRUNE,
        age(80),
        PUBLISH,
    ),
    "a campaign that is pruned and reported on finishes": (
        *sent(ADA, OBI),
        end(),
        age(48),
        PRUNE,
        report("delivered"),
        report("delivered", 1),
        PUBLISH,
    ),
    "a stranger in the reports takes no recorded recipient's place": (
        *sent(ADA, OBI),
        report("delivered", STRANGER),
        report("delivered"),
        COMPARE,
    ),
    "a reported recipient of unknown outcome is shown as unknown nowhere": (
        *sent(ADA),
        send(OBI, UMA),
        record(1, UNKNOWN),
        report("delivered"),
        report("delivered", 0, 1),
        end(),
        COMPARE,
        report("delivered", 1, 1),
    ),
    "an unknown request without a report is waited for everywhere": (
        *sent(ADA),
        send(OBI),
        record(1, UNKNOWN),
        report("delivered"),
        end(),
        COMPARE,
    ),
    "a single send beside a campaign has its own figures": (
        *sent(ADA, OBI),
        single("notice", ADA, UMA),
        record(1, rejected=(UMA,)),
        single("receipt", ADA),
        record(2, dies="after"),
        report("delivered"),
        report("failed", 0, 1, by="reference"),
        report("clicked", None, 2, by="message_id"),
        end(),
        PUBLISH,
    ),
    "a single send that is reported before its record counts": (
        single("notice", ADA, OBI),
        report("delivered", by="reference"),
        report("failed", 1, by="message_id"),
        record(dies="before"),
    ),
    "airtime that arrives is a success and lists nobody": (
        single("topup", ADA),
        fails_for_good(),
        record(),
        report("success"),
        PUBLISH,
    ),
    "an address that bounced is listed until its email is opened": (
        *sent(ADA, OBI, campaign="letter"),
        fails_for_good(),
        fails_for_good(1, spelling="plus"),
        end("letter"),
        COMPARE,
        *sent(ADA, number=1, campaign="spring"),
        single("receipt", ADA),
        record(2),
        report("opened", number=2),
        end(),
    ),
    "a number that fails for good is listed by the newest report": (
        *sent(ADA, OBI),
        single("notice", ADA),
        record(1),
        fails_for_good(minutes_ago=5),
        fails_for_good(1),
        report("delivered", number=1, minutes_ago=90),
        COMPARE,
        report("delivered", number=1),
    ),
    "a message that arrived after all lists nobody": (
        *sent(ADA, OBI),
        report("delivered", minutes_ago=90),
        fails_for_good(),
    ),
    "reports that come while the database refuses are repeated": (
        *sent(ADA, OBI),
        report("sent", 1),
        end(),
        FALL,
        report("delivered"),
        report("clicked", 1, by="message_id"),
        COMPARE,
        RISE,
        PUBLISH,
    ),
    "a report by a key that was removed changes nothing": (
        *sent(ADA, OBI),
        edit_key(is_kept=False),
        report("delivered"),
        report("failed", 1, by="reference"),
        end(),
        COMPARE,
        report("delivered", by="message_id"),
    ),
    "a key that is still listed proves reports of earlier requests": (
        *sent(ADA, OBI),
        edit_key(is_kept=True),
        Step("edit_webhook_key", {"conn_id": "shop"}),
        *sent(UMA, number=1),
        report("delivered"),
        report("failed", 1, by="reference"),
        report("delivered", number=1),
        end(),
        PUBLISH,
    ),
    "a reported recipient of unknown outcome stands in for no accepted one": (
        *sent(ADA),
        send(OBI),
        record(1, UNKNOWN),
        report("delivered", number=1),
        end(),
        COMPARE,
        PUBLISH,
    ),
    "a share of a few recipients is rounded up": (*sent(ADA, OBI, UMA), report("delivered"), end(), COMPARE),
    "a report of a lower rank that comes later changes nothing": (
        *sent(ADA, OBI),
        report("clicked"),
        report("sent"),
        report("bounced", 1),
        report("delivered", 1),
        end(),
        COMPARE,
    ),
    "a national number is the same recipient": (
        *sent(ADA, OBI),
        report("sent", spelling="national"),
        report("delivered", spelling="plus"),
        report("bounced", 1),
        end(),
        COMPARE,
    ),
    "an erased recipient has one place for good": (
        *sent(ADA, OBI),
        report("delivered"),
        end(),
        erase(ADA),
        report("clicked", spelling="plus"),
        report("failed", 1),
        COMPARE,
    ),
    "a report of another connection is none of a single send": (
        single("notice", ADA, OBI),
        record(),
        report("failed", by="reference", conn_id="bank"),
        report("delivered", 1),
        COMPARE,
    ),
    "reports to the webhook before their request is recorded count": (
        send(ADA, OBI, UMA),
        report("delivered", 0, by="reference"),
        report("failed", 1, by="message_id"),
        record(),
        end(),
        COMPARE,
    ),
    "a request has no more recipients than it was sent to": (
        *sent(ADA, OBI),
        report("delivered", STRANGER),
        report("delivered"),
        report("delivered", 1),
        end(),
        COMPARE,
    ),
    "a failure of an attempt that was sent again is none": (
        send(ADA),
        record(0, UNKNOWN),
        report("failed"),
        *sent(ADA, number=1),
        end(),
        COMPARE,
        PUBLISH,
    ),
    "a campaign that a later try continues finishes once": (
        *sent(ADA),
        report("delivered"),
        end(),
        PUBLISH,
        *sent(OBI, number=1),
        end(),
        PUBLISH,
        report("delivered", number=1),
        PUBLISH,
    ),
    "a probe of a partly repeated request keeps the size of the request": (
        send(ADA, OBI, UMA),
        record(0, UNKNOWN),
        *sent(ADA, number=1),
        end(),
        report("delivered", 1),
        Step("probe", {"number": 0}),
        end(),
        COMPARE,
        report("delivered", by="reference"),
        report("failed", 2, by="reference"),
        COMPARE,
    ),
    "a recipient of two accepted requests stands for no other recipient": (
        send(ADA, OBI),
        record(0, UNKNOWN),
        *sent(ADA, number=1),
        end(),
        report("delivered"),
        Step("probe", {"number": 0}),
        report("delivered", number=1),
        end(),
        COMPARE,
        PUBLISH,
        report("failed", 1),
        COMPARE,
        PUBLISH,
    ),
    "a recipient of two accepted requests has two messages": (
        send(ADA, OBI),
        record(0, UNKNOWN),
        *sent(ADA, number=1),
        end(),
        report("delivered"),
        Step("probe", {"number": 0}),
        report("failed", 1),
        end(),
        COMPARE,
        report("delivered", number=1),
        COMPARE,
        PUBLISH,
    ),
    "a report of another connection resolves no request": (
        send(ADA),
        record(0, UNKNOWN),
        report("delivered", by="reference", conn_id="bank"),
        Step("probe", {"number": 0}),
        end(),
        COMPARE,
    ),
    "a campaign is waited for during 72 hours": (
        *sent(ADA, OBI),
        report("delivered"),
        end(),
        age(71),
        PUBLISH,
        age(2),
        PUBLISH,
    ),
    "a campaign that a later try continues has not ended": (
        send(ADA),
        record(0, UNKNOWN),
        end(),
        *sent(ADA, number=1),
        report("delivered", number=1),
        age(73),
        PUBLISH,
        end(),
        PUBLISH,
    ),
    "a task that never recorded its end has ended after a week": (
        *sent(ADA, OBI),
        report("delivered"),
        age(160),
        PUBLISH,
        age(10),
        PUBLISH,
    ),
    "a resent attempt stands in for no other recipient of unknown outcome": (
        send(ADA),
        record(0, UNKNOWN),
        *sent(ADA, number=1),
        send(OBI),
        record(2, UNKNOWN),
        report("delivered", number=0),
        report("delivered", number=1),
        end(),
        COMPARE,
        PUBLISH,
    ),
    "a resent attempt changes no figure while another outcome is unknown": (
        send(ADA),
        record(0, UNKNOWN),
        *sent(ADA, number=1),
        send(OBI),
        record(2, UNKNOWN),
        report("failed", number=0),
        report("delivered", number=1),
        end(),
        COMPARE,
    ),
}

TRACKED = frozenset(
    {
        "a recipient that is erased before its request is recorded is expected once",
        "a stranger in the reports takes no recorded recipient's place",
    }
)
"""Scenes whose recipients are recorded."""
