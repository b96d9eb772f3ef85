"""What must hold of every campaign, whatever was killed and however its source was changed."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from typing import Any

from cpaas_provider.sending.partitions import Partition
from tests.system.killing_campaigns.campaigns import PARTS
from tests.system.killing_campaigns.evidence import RETRIES, Part, Story
from tests.system.killing_campaigns.places import FIRST_ROW
from tests.system.killing_campaigns.recipients import Row, Version

COUNTED = {
    "sent": "sent",
    "rejected": "rejected",
    "unknown_recipients": "unknown",
    "not_sent": "not_sent",
    "invalid_rows": "invalid_row",
    "duplicates": "duplicate",
}
"""By which name the report counts which outcome."""

SHOWN = 5


def violations(story: Story) -> list[str]:
    """Return what went against the promises, in words; nothing where all were kept."""
    found = [*_nobody_twice(story), *_texts(story)]
    for part in story.parts:
        place = f"[{part.map_index}] " if story.campaign.mapped else ""
        found += [f"{place}{wrong}" for wrong in _of_part(story, part)]
    return found


def _nobody_twice(story: Story) -> Iterator[str]:
    if story.campaign.on_unknown != "resend" and story.twice:
        yield f"Something arrived more than once at {len(story.twice)}: {story.twice[:SHOWN]}."


def _texts(story: Story) -> Iterator[str]:
    """Everybody reads a name they have, or had."""
    names = story.campaign.crowd.names
    strangers = [who for who in story.inbox if who not in names]
    if strangers:
        yield f"Something arrived at {len(strangers)} who never were in the source: {strangers[:SHOWN]}."
    for who, arrivals in story.inbox.items():
        texts = {f"Hello {name}!" for name in names.get(who, ())} if story.campaign.personal else {"Hello"}
        if wrong := [arrival.text for arrival in arrivals if arrival.text not in texts]:
            yield f"{who} read {wrong}, and is {names.get(who)}."
            return


def _of_part(story: Story, part: Part) -> Iterator[str]:
    if part.state not in ("success", "failed"):
        yield f"It ended as {part.state}."
        return
    yield from _unknown_bounded(story, part)
    if part.struck_last and part.tries > RETRIES:
        # Nobody was left to say anything.
        return
    if part.lines is None:
        if not part.given_up_by_airflow:
            yield "There is no outcome file."
        return
    version = _version(part)
    if version is None:
        yield "The outcome file is of no state of the source that its last try can have read."
        return
    yield from _report_agrees(part)
    yield from _file_true(story, part, version)
    yield from _ended_well(story, part, version)


def _unknown_bounded(story: Story, part: Part) -> Iterator[str]:
    """Each death leaves at most a window in doubt; an outage of the state is one, and so is a fault of the service."""
    references = {line["reference"] for line in part.lines or () if line["outcome"] == "unknown"}
    deaths = part.tries - 1 + (part.state == "failed")
    bound = part.campaign.most_in_doubt * deaths + story.obscured
    if len(references) > bound:
        yield f"{len(references)} requests are unknown after {deaths} deaths: more than {bound}."
    if len(part.logbook.claims) and part.logbook.open > part.campaign.most_in_doubt * part.tries:
        yield f"{part.logbook.open} claims without an end after {part.tries} tries."


def _version(part: Part) -> Version | None:
    """Return the state of the source the outcome file is of."""
    given = {line["row"]: line for line in part.lines or () if line["row"] is not None}
    for version in reversed(part.campaign.versions):
        if version.until is not None and version.until < part.began:
            break
        expected = dict(_rows(part, version.rows))
        if given.keys() == expected.keys() and all(_is_of(given[at], row) for at, row in expected.items()):
            return version
    return None


def _rows(part: Part, rows: list[Row]) -> Iterator[tuple[int, Row]]:
    """Yield the rows of one part, by their numbers."""
    whole = Partition(max(part.map_index, 0), PARTS if part.campaign.mapped else 1)
    for number, row in enumerate(rows, FIRST_ROW.get(part.campaign.kind, 1)):
        if whole.holds(row.who) if row.who else number % whole.of == whole.part:
            yield number, row


def _is_of(line: dict[str, Any], row: Row) -> bool:
    if row.who is None or (part_of_name := not row.name and line["outcome"] == "invalid_row"):
        return line["outcome"] == "invalid_row" and line["recipient"] in (None, row.who)
    return bool(line["recipient"] == row.who) and not part_of_name


def _report_agrees(part: Part) -> Iterator[str]:
    told = {name: part.report.get(name) for name in COUNTED}
    counted = {name: part.count(outcome) for name, outcome in COUNTED.items()}
    if told != counted:
        yield f"The report says {told}, the outcome file {counted}."
    if part.report.get("recipients") != sum(
        counted[one] for one in ("sent", "rejected", "unknown_recipients", "not_sent")
    ):
        yield f"The report is for {part.report.get('recipients')} recipients, the outcome file has {counted}."


def _file_true(story: Story, part: Part, version: Version) -> Iterator[str]:
    """The outcome file says of nobody what is not so."""
    lines = part.lines or []
    present = [line for line in lines if line["row"] is not None and line["recipient"]]
    once = Counter(line["recipient"] for line in present if line["outcome"] != "duplicate")
    if several := [who for who, times in once.items() if times > 1]:
        yield f"{len(several)} have several lines that are no duplicates: {several[:SHOWN]}."
    if lonely := [
        one["recipient"] for one in present if one["outcome"] == "duplicate" and one["recipient"] not in once
    ]:
        yield f"{len(lonely)} are duplicates of nobody: {lonely[:SHOWN]}."
    told = {line["recipient"]: line for line in present if line["outcome"] != "duplicate"}
    reached = story.inbox
    if lost := [who for who, line in told.items() if line["outcome"] == "sent" and who not in reached]:
        yield f"{len(lost)} are said to be sent to, and nothing arrived: {lost[:SHOWN]}."
    wrong = [who for who, line in told.items() if line["outcome"] in ("rejected", "not_sent", "invalid_row")]
    if hidden := [who for who in wrong if who in reached]:
        outcomes = Counter(told[who]["outcome"] for who in hidden)
        yield f"Something arrived at {len(hidden)} who are said not to be reached ({dict(outcomes)}): {hidden[:SHOWN]}."
    if false := [who for who in wrong if told[who]["outcome"] == "rejected" and who not in story.refused]:
        yield f"{len(false)} are said to be rejected, whom the service refuses not: {false[:SHOWN]}."
    misnamed = [
        who
        for who, line in told.items()
        if line["outcome"] == "sent" and line["message_id"] not in {one.message_id for one in reached.get(who, ())}
    ]
    if misnamed and part.campaign.on_unknown != "resend":
        yield f"{len(misnamed)} were sent another message than their lines say: {misnamed[:SHOWN]}."
    yield from _gone_counted(story, part, version)


def _gone_counted(story: Story, part: Part, version: Version) -> Iterator[str]:
    """Whoever was reached and is no longer in the source has a line without a row."""
    gone = [line for line in part.lines or () if line["row"] is None]
    if strange := {line["outcome"] for line in gone} - {"sent", "unknown"}:
        yield f"Lines of people no longer in the source say {strange}."
    whole = Partition(max(part.map_index, 0), PARTS if part.campaign.mapped else 1)
    present = version.people
    reached = sum(who not in present and whole.holds(who) for who in story.inbox)
    sent = sum(line["outcome"] == "sent" for line in gone)
    if not sent <= reached <= len(gone):
        yield f"{reached} who are no longer in the source were reached; the file has {sent} sent of {len(gone)}."


def _ended_well(story: Story, part: Part, version: Version) -> Iterator[str]:
    policy, unknown = part.campaign.on_unknown, part.count("unknown")
    failures = part.count("rejected") + part.count("invalid_row")
    everybody = int(part.report.get("recipients") or 0) + part.count("invalid_row")
    if part.state == "success":
        if unknown and policy != "skip":
            yield f"It succeeded with {unknown} unknown, which only `skip` allows."
        if failures > part.campaign.ratio * everybody:
            yield f"It succeeded with {failures} failures of {everybody}."
    if part.count("not_sent") and part.tries <= RETRIES:
        yield f"It ended for good with {part.count('not_sent')} not reached."
    if part.state == "failed" and part.tries <= RETRIES and not unknown and failures <= part.campaign.ratio * everybody:
        yield "It failed for good, and nothing in its report says why."
    if policy == "resend" and part.state == "failed" and not story.campaign.crowd.renames:
        # Who left the source cannot be sent to again, nor whom the service refuses.
        doubtful = [line["recipient"] for line in part.lines or () if line["outcome"] == "unknown"]
        if still := sorted((version.people & set(doubtful)) - story.refused):
            yield f"{len(still)} were not sent to again: {still[:SHOWN]}."
