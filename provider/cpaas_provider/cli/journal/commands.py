"""``airflow cpaas journal``: the requests that tasks recorded, and the resolution of unknown outcomes."""

from __future__ import annotations

import functools
import itertools
from argparse import Namespace
from collections.abc import Callable, Iterator, Mapping, Sequence
from datetime import UTC, datetime
from typing import Any, TextIO

import msgspec.structs
from airflow.state import get_state_backend
from airflow.utils.cli import action_cli
from airflow.utils.session import create_session
from sqlalchemy.orm import Session

from cpaas_provider.api.amounts import counted
from cpaas_provider.cli.journal import messages as words
from cpaas_provider.cli.journal import repository
from cpaas_provider.cli.journal.campaigns import DatabaseJournals
from cpaas_provider.cli.journal.instances import Found, Instance, JournalError
from cpaas_provider.cli.journal.tracking import record_in_database
from cpaas_provider.cli.running import guarded
from cpaas_provider.cli.terminal import READABLE, aside, confirm, print_lines, print_record, say, to_iso_time, warn
from cpaas_provider.sending.journal.journal import SEVERAL_OPERATIONS
from cpaas_provider.sending.journal.model import CAMPAIGN_MARKER, NOTHING_SENT_KEY, RequestRecord, State
from cpaas_provider.sending.journal.resolution import (
    NOTHING_CHANGED,
    CannotResolveError,
    Resolution,
    ResolutionResult,
    count_recipients,
)
from cpaas_provider.sending.journal.view import JournalView, StateSummary
from cpaas_provider.tasks.airflow.task_states import read_next_run

# Operations whose result id a later task needs.
_NEEDED_BY_ID = {"request_otp", "create_contact_row", SEVERAL_OPERATIONS}
_UNRESOLVED = (State.UNKNOWN, State.PENDING)
FEW = 1
"""Up to this many requests are shown in full. Of a larger journal, unresolved requests and counts are shown."""
# The columns for people if the task instance is given and its journal has many requests.
_OF_A_CAMPAIGN = (
    *("reference", "state", "recipients", "try", "started_at", "next_probe", "resolution", "result_id", "reason"),
)
_COPIED = frozenset({"reference", "result_id"})
_PROBED = {"send_sms", "send_email", "request_otp", "buy_airtime", SEVERAL_OPERATIONS}
"""The operations whose unknown outcome a probe may establish."""
_CONSEQUENCE = "After a clear, the task sends again to every recipient that [cpaas] database does not have."
_ALL_UNKNOWN = (
    "After a clear, the outcome of all earlier requests is unknown, and on_unknown decides. A part of the journal that "
    "is in [cpaas] database is deleted."
)
_MORE = ("resolution", "result_id", "result", "personal", "previous_unknown", "probe_snapshot")


@guarded
def cpaas_journal_list(args: Namespace) -> None:
    """List requests of many task instances, by default unresolved requests."""
    unreadable: list[JournalError] = []
    campaigns: dict[Instance, str] = {}
    in_flight: dict[Instance, list[RequestRecord]] = {}
    found = list(itertools.islice(_requests(args, unreadable, campaigns, in_flight), args.limit + 1))
    shown = found[: args.limit]
    # A task instance may have many requests, and its next try is looked up once.
    next_probe = functools.cache(_next_probe)
    lines = [_line(instance, request, next_probe) for instance, request in shown]
    print_lines(lines, args.output, _COPIED)
    beside = aside(args)
    if len(found) > len(shown):
        say(f"Only the newest {args.limit} are shown. Raise --limit, or narrow with --dag-id and --run-id.", beside)
    for instance in dict.fromkeys(instance for instance, _ in shown):
        if instance in campaigns:
            say(f"Campaign {instance}: {campaigns[instance]}", beside)
    unresolved = [
        (instance, request)
        for instance, request in shown
        if isinstance(request, RequestRecord) and _is_unresolved(instance, request)
    ]
    if shown or unreadable or args.state is None:
        # Only a list that had every unresolved request can say that there are none.
        is_complete = args.state in (None, "all") and not unreadable and len(found) == len(shown)
        _say_what_to_do(unresolved, in_flight, lines, beside, is_complete=is_complete)
    else:
        say("No such request.", beside)
    if unreadable:
        warn("\n".join(str(problem) for problem in unreadable))
        raise SystemExit(f"{counted(len(unreadable), 'journal')} could not be read and may hold unresolved requests.")


@guarded
def cpaas_journal_show(args: Namespace) -> None:
    """Show the requests of one task instance. Of a large journal, show unresolved requests and counts."""
    found = _read(args)
    instance, journal, beside = found.instance, found.journal, aside(args)
    next_probe = functools.cache(_next_probe)
    shown = _whole(journal, args.each) if len(journal.requests) > FEW else journal.entries()
    lines = [_line(instance, request, next_probe) | _more(request) for request in shown]
    all_lines = lines
    if len(journal.requests) > FEW:
        if args.output in READABLE:
            lines = [{name: line[name] for name in _OF_A_CAMPAIGN} for line in lines]
        print_lines(lines, args.output, _COPIED)
        say(f"Campaign {instance}: {words.campaign_counts(journal.sums())}", beside)
    else:
        for line in lines:
            print_record(line, args.output)
        if not journal.requests:
            print_lines([], args.output)
            say(f"The journal of {instance} has no requests.", beside)
    if found.stored_as is not None:
        say(words.where_it_lies(found), beside)
    if journal.lost:
        say(
            f"The journal does not show whether recipients without a request here were sent to: {journal.lost}.", beside
        )
    unresolved = [(instance, entry) for entry in _unresolved(instance, journal)]
    _say_what_to_do(unresolved, {instance: _in_flight(instance, journal)}, all_lines, beside)


@action_cli  # type: ignore[untyped-decorator]  # Airflow leaves it unannotated
@guarded
def cpaas_journal_resolve(args: Namespace) -> None:
    """Resolve requests of unknown outcome as sent or not sent."""
    if args.sent == args.not_sent:
        raise SystemExit("Give either --sent or --not-sent, as the service's own records show. Nothing was changed.")
    if args.not_sent and args.result_id is not None:
        raise SystemExit("--id is the id of what was sent, so it needs --sent. Nothing was changed.")
    decision = Resolution.SENT if args.sent else Resolution.NOT_SENT
    found = _read(args)
    instance = found.instance
    repository.refuse_on_its_way(instance)
    try:
        decided = found.journal.resolve(decision, args.reference or (), result_id=args.result_id, now=datetime.now(UTC))
    except CannotResolveError:
        _record_again(found, decision, args.reference or ())
        raise
    if not args.yes:
        _confirm(instance, decided, decision, args)
    instance = repository.change(instance, found, decided.values)
    say(f"Resolved as {decision.words}: {words.counts(decided.before)} of {instance}.")
    for line in words.references(decided.before):
        say(line)
    if recorded := record_in_database(instance, found, decided, decision, args.result_id):
        say(recorded)
    say(words.what_comes_next(found, instance, decided, decision))
    needs_id = not _NEEDED_BY_ID.isdisjoint(request.operation for request in decided.before)
    if decision is Resolution.SENT and args.result_id is None and needs_id:
        say("Without --id the task's result has no id. Later tasks that use the id will fail.")


@action_cli  # type: ignore[untyped-decorator]  # Airflow leaves it unannotated
@guarded
def cpaas_journal_forget(args: Namespace) -> None:
    """Delete the record that a task instance stored a journal in a database."""
    with create_session(scoped=False) as session:
        instance, keys = _with_marker(args, session)
    is_campaign = keys == [CAMPAIGN_MARKER]
    sent = "sent a campaign" if is_campaign else "stored its journal in the database"
    consequence = _CONSEQUENCE if is_campaign else _ALL_UNKNOWN
    confirm(f"Delete the record that {instance} {sent}? {consequence}", args)
    with create_session(scoped=False) as session:
        instance, keys = _with_marker(args, session)
        if keys != [CAMPAIGN_MARKER]:
            with DatabaseJournals(session) as stored:
                stored.forget_task(instance)
        # A record of an earlier try, made before [cpaas] journal was changed, is no longer true.
        for key in (*keys, NOTHING_SENT_KEY):
            get_state_backend().delete(instance.scope, key, session=session)
    say(f"Deleted the record that {instance} {sent}. {consequence}")


def _say_what_to_do(
    unresolved: Sequence[tuple[Instance, RequestRecord]],
    in_flight: Mapping[Instance, Sequence[RequestRecord]],
    lines: Sequence[Mapping[str, Any]],
    beside: TextIO,
    *,
    is_complete: bool = True,
) -> None:
    """Print which requests are in flight or unresolved, and that none are if the journals were read completely."""
    if any(in_flight.values()):
        say(words.in_flight(in_flight), beside)
    if unresolved:
        say(words.what_to_do(unresolved, _first_probe(lines)), beside)
    elif is_complete and not any(in_flight.values()):
        say("No unresolved requests.", beside)


def _record_again(found: Found, decision: Resolution, references: Sequence[str]) -> None:
    """Record an earlier resolution in the database again: its command may have ended before it did."""
    if (earlier := found.journal.resolved_earlier(decision, references)) is not None:
        before, decided, result_id = earlier
        found = msgspec.structs.replace(found, journal=before)
        if recorded := record_in_database(found.instance, found, decided, decision, result_id):
            say(recorded)


def _with_marker(args: Namespace, session: Session) -> tuple[Instance, list[str]]:
    """Return a task instance that is not running and has a journal in a database, and the keys of its record.

    :raises JournalError: when it is running, or has no such journal
    """
    instance = repository.find(_asked(args), session)
    repository.refuse_on_its_way(instance)
    if get_state_backend().get(instance.scope, CAMPAIGN_MARKER, session=session) is not None:
        return instance, [CAMPAIGN_MARKER]
    if keys := repository.marker_keys(instance, session):
        if instance.state == "up_for_retry":
            # Only a clear makes a task count a missing journal as a lost one.
            raise JournalError(
                f"Task instance {instance} is up for retry. A retry after this command would send to all recipients "
                f"again. {NOTHING_CHANGED} Mark it failed, run the command again, and then clear it."
            )
        return instance, keys
    raise JournalError(f"Task instance {instance} has no record of a journal in a database. {NOTHING_CHANGED}")


def _read(args: Namespace) -> Found:
    with create_session(scoped=False) as session:
        return repository.read(repository.find(_asked(args), session), session)


def _asked(args: Namespace) -> Instance:
    return Instance(args.dag_id, args.run_id, args.task_id, args.map_index)


def _confirm(instance: Instance, decided: ResolutionResult, decision: Resolution, args: Namespace) -> None:
    """Show what would be resolved, and ask for confirmation."""
    say(f"{words.counts(decided.before)} of {instance}:")
    for line in words.stories(decided.before):
        say(line)
    consequence = "They are not sent again." if decision is Resolution.SENT else "The task's next try sends them."
    confirm(f"Resolve as {decision.words}? {consequence} This cannot be undone.", args)


def _requests(
    args: Namespace,
    unreadable: list[JournalError],
    campaigns: dict[Instance, str],
    in_flight: dict[Instance, list[RequestRecord]],
) -> Iterator[tuple[Instance, RequestRecord | StateSummary]]:
    """Yield the requests in the wanted state, with sums in place of the resolved requests of campaigns.

    :param unreadable: receives the errors of journals that cannot be read
    :param campaigns: receives the counts of campaigns with such requests
    :param in_flight: receives the requests in flight. By default, each task instance that has some yields their sum
    """
    asked = {name: getattr(args, name) for name in ("dag_id", "run_id", "task_id")}
    wanted = set(_UNRESOLVED if args.state is None else State if args.state == "all" else {State(args.state)})
    for instance, journal in repository.everything(asked):
        if isinstance(journal, JournalError):
            unreadable.append(journal)
            continue
        if State.PENDING in wanted and (flying := _in_flight(instance, journal)):
            in_flight[instance] = flying
            if args.state is None:
                yield instance, StateSummary(flying[0].operation, State.PENDING, len(flying), count_recipients(flying))
        for request in _unresolved(instance, journal) if args.state is None else _whole(journal, args.each):
            if request.state in wanted:
                if len(journal.requests) > FEW and instance not in campaigns:
                    campaigns[instance] = words.campaign_counts(journal.sums())
                yield instance, request


def _unresolved(instance: Instance, journal: JournalView) -> Iterator[RequestRecord]:
    return (entry for entry in journal.unresolved() if _is_unresolved(instance, entry))


def _whole(journal: JournalView, each: bool) -> Iterator[RequestRecord | StateSummary]:
    """Yield all requests of a small journal. Of a large one, yield unresolved requests, then sums."""
    if len(journal.requests) <= FEW:
        yield from journal.entries()
        return
    yield from journal.unresolved()
    yield from journal.entries(include_unresolved=False) if each else journal.sums(include_unresolved=False)


def _is_unresolved(instance: Instance, entry: RequestRecord) -> bool:
    """Return whether a person has to resolve the request. A running try may still resolve its own pending requests."""
    return entry.is_unresolved and not (entry.state is State.PENDING and instance.running)


def _in_flight(instance: Instance, journal: JournalView) -> list[RequestRecord]:
    """Return the pending requests that a running try may still resolve, unless its process was killed."""
    return [entry for entry in journal.unresolved() if not _is_unresolved(instance, entry)]


def _next_probe(instance: Instance) -> datetime | None:
    """Return when the next try of a task instance begins by itself, which probes."""
    return read_next_run((instance.dag_id, instance.run_id, instance.task_id, instance.map_index))


def _first_probe(lines: Sequence[Mapping[str, Any]]) -> str | None:
    """Return the earliest time of the next probes; ``None`` if none is planned."""
    return min((line["next_probe"] for line in lines if line["next_probe"]), default=None)


def _line(
    instance: Instance, request: RequestRecord | StateSummary, next_probe: Callable[[Instance], datetime | None]
) -> dict[str, Any]:
    if isinstance(request, RequestRecord):
        recipients, reason = len(request.members), request.reason
    else:
        recipients, reason = request.recipients, f"{counted(request.requests, 'request')} together"
    return {
        "dag_id": instance.dag_id,
        "run_id": instance.run_id,
        "task_id": instance.task_id,
        "map_index": instance.map_index,
        "task_state": instance.state,
        "reference": getattr(request, "reference", None),
        "operation": request.operation,
        "state": request.state.value,
        "recipients": recipients,
        "try": getattr(request, "try_number", None),
        "started_at": to_iso_time(getattr(request, "started_at", None)),
        "next_probe": to_iso_time(next_probe(instance)) if _is_probed(instance, request) else None,
        "reason": reason,
    }


def _is_probed(instance: Instance, request: RequestRecord | StateSummary) -> bool:
    return isinstance(request, RequestRecord) and request.operation in _PROBED and _is_unresolved(instance, request)


def _more(request: RequestRecord | StateSummary) -> dict[str, Any]:
    """Return the further columns of one request. The hashes of its recipients and content are never shown."""
    if isinstance(request, StateSummary):
        return dict.fromkeys(_MORE)
    result = request.result or {}
    values = (
        request.resolution,
        result.get("id", result.get("row_id")),
        request.result,
        request.is_personal,
        request.previous_unknown,
        request.probe_snapshot is not None,
    )
    return dict(zip(_MORE, values, strict=True))
