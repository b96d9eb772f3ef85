"""What must be true in the end of everybody and of every report."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from tests.system.delivering.killer import Kill
from tests.system.delivering.service import Fate, Progress, Said

DELIVERED = frozenset({"delivered", "clicked"})
SHOWN = 5


@dataclass
class Evidence:
    """What all sides say once everything is said.

    :param state: how the run ended
    :param people: who was to be sent to, as digits
    :param report: what the sensor returned
    :param lines: of the sensor's outcome file
    :param rows: what the store knows of everybody
    :param counted: of how many it knows what
    :param stored: how often it kept each report
    """

    state: str
    people: Sequence[str]
    progress: Progress
    statuses: Sequence[Fate]
    said: Sequence[Said]
    report: Mapping[str, Any]
    lines: Sequence[Mapping[str, Any]]
    rows: Sequence[Mapping[str, Any]]
    counted: Mapping[str, int]
    stored: Counter[str]
    kills: Sequence[Kill]

    @property
    def outcomes(self) -> dict[str, str]:
        """What became of everybody, as the service has it."""
        return {status.recipient: status.outcome for status in self.statuses}

    @property
    def acknowledged(self) -> Counter[str]:
        """How often the service was told that a report is kept."""
        return Counter(said.body for said in self.said if said.acknowledged)

    @property
    def attempted(self) -> Counter[str]:
        """How often the service tried to tell it."""
        attempts = Counter[str]()
        for said in self.said:
            attempts[said.body] += said.attempts
        return attempts


def violations(seen: Evidence) -> list[str]:
    """Return everything that is not as it must be."""
    return [*_of_the_run(seen), *_of_the_counts(seen), *_of_everybody(seen), *_of_the_reports(seen)]


def _of_the_run(seen: Evidence) -> Iterator[str]:
    if seen.state != "success":
        yield f"The run ended as {seen.state}."
    sent_to = Counter(status.recipient for status in seen.statuses)
    yield from _some("sent to more than once", [who for who, times in sent_to.items() if times > 1])
    yield from _some("not sent to", set(seen.people) - set(sent_to))
    yield from _some("sent to and never in the source", set(sent_to) - set(seen.people))
    if seen.progress.pending or seen.progress.given_up:
        yield f"The service has {seen.progress.pending} reports left and gave {seen.progress.given_up} up."


def _of_the_counts(seen: Evidence) -> Iterator[str]:
    outcomes = Counter(seen.outcomes.values())
    delivered = sum(outcomes[one] for one in DELIVERED)
    known = {"delivered": delivered, "undelivered": outcomes["undelivered"], "in_flight": 0}
    for who, counts in (("sensor", seen.report), ("store", seen.counted)):
        found = {name: counts.get(name) for name in known}
        if found != known:
            yield f"The {who} counts {found}, the service {known}."
    whole = {"expected": len(seen.people), "unreported": 0, "conflicts": 0}
    if (found := {name: seen.report.get(name) for name in whole}) != whole:
        yield f"The sensor returned {found} instead of {whole}."


def _of_everybody(seen: Evidence) -> Iterator[str]:
    outcomes = seen.outcomes
    for name, told in (("outcome file", seen.lines), ("store", seen.rows)):
        known = Counter(one["recipient"] for one in told)
        yield from _some(f"not in the {name}", set(outcomes) - set(known))
        yield from _some(f"in the {name} and never sent to", set(known) - set(outcomes))
        yield from _some(f"in the {name} more than once", [who for who, times in known.items() if times > 1])
    # The sensor ended when everybody's message had come to something; some clicked after that.
    file = [one for one in seen.lines if one["outcome"] not in _fit(outcomes.get(one["recipient"]))]
    store = [one for one in seen.rows if one["outcome"] != outcomes.get(one["recipient"])]
    yield from _some("otherwise in the outcome file than with the service", map(_told, file))
    yield from _some("otherwise in the store than with the service", map(_told, store))


def _of_the_reports(seen: Evidence) -> Iterator[str]:
    for number, kill in enumerate(seen.kills, 1):
        yield from _some(f"acknowledged and lost by kill {number}", kill.lost)
    attempted = seen.attempted
    yield from _some("acknowledged more often than kept", seen.acknowledged - seen.stored)
    yield from _some("kept more often than sent", seen.stored - attempted)
    acknowledged = sum(one.acknowledged for one in seen.said)
    if (acknowledged, sum(attempted.values())) != (seen.progress.acknowledged, seen.progress.sent):
        yield f"The service shows {acknowledged} reports acknowledged of {sum(attempted.values())}: {seen.progress}."
    if seen.kills and not seen.progress.refused:
        yield "No kill kept any report out."


def _fit(outcome: str | None) -> tuple[str | None, ...]:
    return ("delivered", "clicked") if outcome == "clicked" else (outcome,)


def _told(line: Mapping[str, Any]) -> str:
    return f"{line['recipient']} {line['outcome']}"


def _some(what: str, found: Iterable[str]) -> Iterator[str]:
    if found := sorted(found):
        yield f"{len(found)} {what}: {', '.join(found[:SHOWN])}{' ...' if len(found) > SHOWN else ''}"
