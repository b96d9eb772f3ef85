"""What must be true at the end: nothing twice, nothing lost, reports complete, the list equal to the source."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from tests.system.killing_contacts import oracle as contact_list
from tests.system.killing_contacts.sources import Contact

SHOWN = 5
DELIVERED = ("delivered", "clicked")


@dataclass(frozen=True)
class Evidence:
    """What all sides say of one round.

    :param state: how the run ended
    :param tasks: how each task instance ended, by its name
    :param people: who was to be sent to, as digits
    :param arrived: the outcome of each message at the service, one entry for each message and recipient
    :param reports: what the partitions of the campaign returned
    :param lines: of the results files of the last tries
    :param awaited: what the sensor returned
    :param stored: outcomes in the provider's database, one entry for each recipient
    :param contacts: the source of the sync
    :param listed: the cells of the list's rows, by row id
    """

    state: str
    tasks: Mapping[str, str]
    people: Collection[str]
    arrived: Sequence[tuple[str, str]]
    reports: Sequence[Mapping[str, Any]]
    lines: Sequence[Mapping[str, Any]]
    awaited: Mapping[str, Any]
    stored: Sequence[tuple[str, str]]
    contacts: Sequence[Contact] = ()
    listed: Mapping[str, Mapping[str, Any]] | None = None

    @property
    def named(self) -> set[str]:
        """The recipients whom results files name as unknown."""
        return {line["recipient"] for line in self.lines if line["outcome"] == "unknown"}

    @property
    def missing(self) -> set[str]:
        """The recipients without a message."""
        return set(self.people) - {recipient for recipient, _ in self.arrived}

    def __str__(self) -> str:
        outcomes = Counter(outcome for _, outcome in self.arrived)
        return (
            f"{len(self.arrived):,} messages to {len({who for who, _ in self.arrived}):,} of {len(self.people):,} "
            f"recipients ({len(self.missing)} none, {len(self.named)} named as unknown), "
            f"{dict(sorted(outcomes.items()))}; "
            f"sensor: {self.awaited.get('delivered')} delivered, {self.awaited.get('undelivered')} undelivered, "
            f"{self.awaited.get('unreported')} unreported; list: {len(self.listed or ()):,} rows of "
            f"{len(self.contacts):,} contacts"
        )


def violations(seen: Evidence) -> list[str]:
    """Return everything that is not as it must be."""
    found = [*_of_the_run(seen), *_of_the_messages(seen), *_of_the_reports(seen), *_of_the_delivery(seen)]
    if seen.listed is not None:
        found += contact_list.violations(seen.contacts, seen.listed, ())
    return found


def _of_the_run(seen: Evidence) -> Iterator[str]:
    if seen.state != "success":
        yield f"The run ended as {seen.state}."
    yield from _some("tasks did not succeed", [name for name, state in seen.tasks.items() if state != "success"])


def _of_the_messages(seen: Evidence) -> Iterator[str]:
    arrived = Counter(recipient for recipient, _ in seen.arrived)
    yield from _some("recipients got more than one message", [who for who, times in arrived.items() if times > 1])
    yield from _some("got a message and are not in the source", arrived.keys() - set(seen.people))
    yield from _some("recipients got no message and are not named as unknown", seen.missing - seen.named)


def _of_the_reports(seen: Evidence) -> Iterator[str]:
    lines = Counter(line["recipient"] for line in seen.lines)
    yield from _some("recipients are in no results file", set(seen.people) - lines.keys())
    yield from _some("are in a results file and not in the source", lines.keys() - set(seen.people))
    yield from _some("recipients are in the results files more than once", [who for who, n in lines.items() if n > 1])
    reached = {recipient for recipient, _ in seen.arrived}
    sent = {line["recipient"] for line in seen.lines if line["outcome"] == "sent"}
    yield from _some("are said to be sent to, and got no message", sent - reached)
    yield from _some("got a message and are said not to be reached", reached - sent - seen.named)
    counted = {"sent": len(sent), "unknown_recipients": len(seen.named), "recipients": len(seen.people)}
    told = {name: sum(int(report.get(name) or 0) for report in seen.reports) for name in counted}
    if told != counted:
        yield f"The reports of the partitions add up to {told}, the results files to {counted}."


def _of_the_delivery(seen: Evidence) -> Iterator[str]:
    outcomes = dict(seen.arrived)
    delivered = sum(outcome in DELIVERED for outcome in outcomes.values())
    known = {"delivered": delivered, "undelivered": len(outcomes) - delivered, "in_flight": 0, "unreported": 0}
    told = {name: seen.awaited.get(name) for name in known}
    if told != known:
        yield f"The sensor returned {told}, the service has {known}."
    stored = Counter(recipient for recipient, _ in seen.stored)
    yield from _some("recipients with a message are not in the database", outcomes.keys() - stored.keys())
    yield from _some("recipients are in the database more than once", [who for who, n in stored.items() if n > 1])
    other = [who for who, outcome in seen.stored if who in outcomes and outcome != outcomes[who]]
    yield from _some("recipients have another outcome in the database than at the service", other)


def _some(what: str, found: Iterable[str]) -> Iterator[str]:
    if found := sorted(found):
        yield f"{len(found)} {what}: {', '.join(found[:SHOWN])}{' ...' if len(found) > SHOWN else ''}"
