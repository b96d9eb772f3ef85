"""What must hold of every case, whatever was killed."""

from __future__ import annotations

from collections.abc import Iterator

from tests.system.killing.evidence import Story
from tests.system.killing.journal import ACCEPTED

# As in the DAG.
RETRIES = 6


def violations(story: Story) -> list[str]:
    """Return what went against the promises, in words; nothing where all were kept."""
    return [
        *_ended(story),
        *_nobody_twice(story),
        *_everybody_named(story),
        *_journal_true(story),
        *_doubt_told(story),
        *_result_true(story),
    ]


def _ended(story: Story) -> Iterator[str]:
    if story.state not in ("success", "failed"):
        yield f"It ended as {story.state}."


def _nobody_twice(story: Story) -> Iterator[str]:
    if story.case.on_unknown != "resend" and story.twice:
        yield f"Something arrived more than once at {story.twice}."


def _everybody_named(story: Story) -> Iterator[str]:
    """Whoever is missing belongs to a case that failed, or that counts them as unknown and may."""
    if not story.succeeded:
        return
    if story.unknown and story.case.on_unknown != "skip":
        yield f"It succeeded with {story.unknown} unknown, which only `skip` allows."
    if story.missing and not story.unknown:
        yield f"It succeeded and counts nobody as unknown, but nothing arrived at {story.missing}."
    if story.unknown not in (0, len(story.case.recipients)):
        yield f"It counts {story.unknown} as unknown, but made one request for {len(story.case.recipients)}."
    if story.unknown and not story.journal.unresolved:
        yield "It counts people as unknown whom the journal has no open entry for."
    told = story.result.get("unknown_references")
    if told is not None and sorted(told) != sorted(story.journal.unresolved):
        yield f"It names {told} as unknown, the journal {story.journal.unresolved}."


def _journal_true(story: Story) -> Iterator[str]:
    """The journal says of every request no more than what is so."""
    states, reached = story.journal.states, len(story.arrivals) - len(story.missing)
    if len(states) > 1:
        yield f"It made one request and the journal has {len(states)} entries."
    if ACCEPTED in states and story.missing:
        yield f"The journal says accepted, but nothing arrived at {story.missing}."
    if reached and ACCEPTED not in states and not story.journal.unresolved:
        yield f"Something arrived at {reached}, and the journal has {states or 'no entry'} for it."
    if story.succeeded and not story.unknown and ACCEPTED not in states:
        yield f"It succeeded, and the journal has {states or 'no entry'} for it."


def _doubt_told(story: Story) -> Iterator[str]:
    """A task that gave up with tries left names what nobody knows; one whose last try was ended could not."""
    if story.succeeded or story.tries > RETRIES:
        return
    told = f"{(story.report or {}).get('unknown_references')} {story.log}"
    if unnamed := [reference for reference in story.journal.unresolved if reference not in told]:
        yield f"It gave up without naming {unnamed}."


def _result_true(story: Story) -> Iterator[str]:
    """A result handed on from an earlier try, or made from evidence, is that of what arrived."""
    if story.succeeded and not story.unknown:
        strangers = [one for one, ids in story.arrivals.items() if ids and story.result_id not in ids]
        if strangers:
            yield f"Its result is of {story.result_id}, which is not what arrived at {strangers}."
