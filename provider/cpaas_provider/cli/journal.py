"""``airflow cpaas journal``: what tasks noted of their requests, and deciding those nobody knows the outcome of."""

from __future__ import annotations

import itertools
import shlex
import sys
from argparse import Namespace
from collections.abc import Iterator, Sequence
from datetime import UTC, datetime
from typing import Any, TextIO

from airflow.cli.simple_table import AirflowConsole
from airflow.utils.cli import action_cli, suppress_logs_and_warning
from airflow.utils.helpers import ask_yesno
from airflow.utils.providers_configuration_loader import providers_configuration_loaded
from airflow.utils.session import create_session

from cpaas_provider.cli import task_state
from cpaas_provider.cli.task_state import Instance, JournalError
from cpaas_provider.sending.by_hand import CannotDecideError, Decided, Decision, count_recipients, decide, doubtful
from cpaas_provider.sending.entries import Entry, Pages, State
from cpaas_provider.sending.errors import named

# What others wait for, verify or change by the id in the result.
_NEEDED_BY_ID = {"request_otp", "create_contact_row"}
_IN_DOUBT = (State.UNKNOWN, State.CLAIMED)
_ASKED_FOR_READABLE = ("table", "plain")

_ROW = "create_contact_row"
# How a request is found in the service's own records: not all carry the reference there.
_BY_REFERENCE = "by the reference (there the external_ref, unless the task gives one of its own)"
_FOUND = {
    "request_otp": "by the recipient and the time of the claim",
    _ROW: "by the cells and the time of the claim",
}
# What a task does that makes one request for whatever it is given.
_SINGLE = {
    "request_otp": "requests the passcode for the recipient it then has",
    "buy_airtime": "buys the airtime for the recipient it then has",
    _ROW: "adds the row",
}


@suppress_logs_and_warning
@providers_configuration_loaded
def cpaas_journal_list(args: Namespace) -> None:
    """List requests of many task instances; by default those in doubt."""
    asked = {name: getattr(args, name) for name in ("dag_id", "run_id", "task_id")}
    unreadable: list[JournalError] = []
    try:
        found = list(itertools.islice(_requests(asked, args.state, unreadable), args.limit + 1))
    except JournalError as error:
        raise SystemExit(str(error)) from None
    shown = found[: args.limit]
    _print([_line(instance, entry) for instance, entry in shown], args.output)
    aside = sys.stdout if args.output == "table" else sys.stderr
    if len(found) > len(shown):
        _say(f"There are more than these {args.limit}: raise --limit, or narrow with --dag-id and --run-id.", aside)
    in_doubt = [(instance, entry) for instance, entry in shown if _is_in_doubt(instance, entry)]
    if in_doubt or not unreadable:
        nothing = "Nothing is in doubt." if args.state is None or shown else "There is no such request."
        _say(_what_to_do(in_doubt) if in_doubt else nothing, aside)
    if unreadable:
        _say("\n".join(str(problem) for problem in unreadable), sys.stderr)
        raise SystemExit(f"Journals that could not be read, so nobody can tell what is in doubt: {len(unreadable)}.")


@suppress_logs_and_warning
@providers_configuration_loaded
def cpaas_journal_show(args: Namespace) -> None:
    """Show all requests of one task instance."""
    instance, pages = _read(args)
    entries = list(pages.entries.values())
    lines = [_line(instance, entry) | _more(entry) for entry in entries]
    if args.output in _ASKED_FOR_READABLE:
        for line in lines:
            _print([{"field": name, "value": fact} for name, fact in line.items()], args.output)
    else:
        _print(lines, args.output)
    aside = sys.stdout if args.output == "table" else sys.stderr
    if not entries:
        _say(f"The journal of {instance} has no request.", aside)
    if pages.lost:
        _say(f"What was sent to people without a request here, nobody can tell: {pages.lost}.", aside)
    in_doubt = [(instance, entry) for entry in doubtful(pages) if _is_in_doubt(instance, entry)]
    _say(_what_to_do(in_doubt) if in_doubt else "Nothing is in doubt.", aside)


@action_cli  # type: ignore[untyped-decorator]  # Airflow leaves it unannotated
@suppress_logs_and_warning
@providers_configuration_loaded
def cpaas_journal_mark_sent(args: Namespace) -> None:
    """Decide that requests in doubt were carried out."""
    _mark(args, Decision.SENT, args.result_id)


@action_cli  # type: ignore[untyped-decorator]  # Airflow leaves it unannotated
@suppress_logs_and_warning
@providers_configuration_loaded
def cpaas_journal_mark_unsent(args: Namespace) -> None:
    """Decide that requests in doubt were not carried out."""
    _mark(args, Decision.UNSENT)


def _mark(args: Namespace, decision: Decision, result_id: str | None = None) -> None:
    def decided_on(pages: Pages) -> Decided:
        return decide(pages, decision, args.reference or (), result_id=result_id, now=datetime.now(UTC))

    instance, pages = _read(args)
    try:
        task_state.refuse_on_its_way(instance)
        decided = decided_on(pages)
        if not args.yes:
            _confirm(instance, decided, decision)
        instance = task_state.change(instance, pages, decided_on)
    except (JournalError, CannotDecideError) as error:
        raise SystemExit(str(error)) from None
    _say(f"Marked as {decision.value}: {_counts(decided.before)} of {instance}.", sys.stdout)
    for entry in decided.before:
        _say(f"  {entry.reference}", sys.stdout)
    _say(_what_comes_next(instance, decided, decision), sys.stdout)
    if decision is Decision.SENT and result_id is None and {one.operation for one in decided.before} & _NEEDED_BY_ID:
        _say("Without --id the task's result has no id, and tasks after it that use it will fail.", sys.stdout)


def _read(args: Namespace) -> tuple[Instance, Pages]:
    try:
        with create_session(scoped=False) as session:
            asked = Instance(args.dag_id, args.run_id, args.task_id, args.map_index)
            instance = task_state.find(asked, session)
            return instance, task_state.read(instance, session)
    except JournalError as error:
        raise SystemExit(str(error)) from None


def _confirm(instance: Instance, decided: Decided, decision: Decision) -> None:
    """Ask whether a decision is meant; end the command where it is not."""
    _say(f"{_counts(decided.before)} of {instance}:", sys.stdout)
    for entry in decided.before:
        _say(f"  {entry.reference}  {_story(entry)}", sys.stdout)
    consequence = (
        "They are not made again." if decision is Decision.SENT else "They are made again by the task's next try."
    )
    try:
        agreed = ask_yesno(f"Mark as {decision.value}? {consequence} This cannot be undone. [y/N]", default=False)
    except (EOFError, RuntimeError):
        raise SystemExit("Nobody is there to answer, so nothing was changed. With --yes nobody is asked.") from None
    if not agreed:
        raise SystemExit("Nothing was changed.")


def _requests(
    asked: dict[str, str | None], state: str | None, unreadable: list[JournalError]
) -> Iterator[tuple[Instance, Entry]]:
    """Yield requests of a state; what cannot be read is noted in ``unreadable``."""
    wanted = set(_IN_DOUBT if state is None else State if state == "all" else {State(state)})
    for instance, pages in task_state.everything(asked, [] if state == "all" else sorted(wanted)):
        if isinstance(pages, JournalError):
            unreadable.append(pages)
            continue
        entries = doubtful(pages) if state is None else pages.entries.values()
        for entry in entries:
            if entry.state in wanted and (state is not None or _is_in_doubt(instance, entry)):
                yield instance, entry


def _is_in_doubt(instance: Instance, entry: Entry) -> bool:
    """Tell whether somebody has to decide: what a running try has claimed, it may yet settle."""
    return entry.in_doubt and not (entry.state is State.CLAIMED and instance.running)


def _line(instance: Instance, entry: Entry) -> dict[str, Any]:
    return {
        "dag_id": instance.dag_id,
        "run_id": instance.run_id,
        "task_id": instance.task_id,
        "map_index": instance.map_index,
        "task_state": instance.state,
        "reference": entry.reference,
        "operation": entry.operation,
        "state": entry.state.value,
        "recipients": len(entry.members),
        "try": entry.try_number,
        "claimed_at": entry.claimed_at.isoformat(timespec="seconds") if entry.claimed_at else None,
        "reason": entry.reason,
    }


def _more(entry: Entry) -> dict[str, Any]:
    """Return what is shown of one request alone; never the hashes of its recipients and texts."""
    result = entry.result or {}
    return {
        "by_hand": entry.by_hand,
        "result_id": result.get("id", result.get("row_id")),
        "result": entry.result,
        "personal": entry.personal is not None,
        "earlier_in_doubt": entry.doubted,
        "evidence_noted": entry.evidence is not None,
    }


def _print(lines: Sequence[dict[str, Any]], output: str) -> None:
    if output in _ASKED_FOR_READABLE:
        if not lines:
            return
        lines = [{name: "" if fact is None else fact for name, fact in line.items()} for line in lines]
    # A reason may hold brackets and colons, which are no markup and no emoji.
    AirflowConsole(markup=False, emoji=False).print_as(lines, output)


def _what_to_do(in_doubt: Sequence[tuple[Instance, Entry]]) -> str:
    instance = in_doubt[0][0]
    which = shlex.join([instance.dag_id, instance.run_id, instance.task_id])
    which += f" --map-index {instance.map_index}" if instance.map_index >= 0 else ""
    entries = [entry for _, entry in in_doubt]
    return (
        f"In doubt: {_counts(entries)}. Look into the service's own records: {_ways_to_find(entries)}. Then decide, "
        "e.g.\n"
        f"  airflow cpaas journal mark-sent {which}\n"
        f"  airflow cpaas journal mark-unsent {which}\n"
        "and clear the task. --reference decides single requests of a task."
    )


def _ways_to_find(entries: Sequence[Entry]) -> str:
    ways: dict[str, list[str]] = {}
    for operation in dict.fromkeys(entry.operation for entry in entries):
        ways.setdefault(_FOUND.get(operation, _BY_REFERENCE), []).append(operation)
    return "; ".join(f"{' and '.join(operations)} {way}" for way, operations in ways.items())


def _what_comes_next(instance: Instance, decided: Decided, decision: Decision) -> str:
    if left := doubtful(decided.pages):
        return (
            f"In doubt still: {_counts(left)} ({named([entry.reference for entry in left])}). Until they are decided, "
            "too, the task fails again unless its if_unknown says otherwise."
        )
    if instance.state == "success" and decision is Decision.SENT:
        return "The task has succeeded; there is nothing left to do."
    deed = _deed(decided, decision)
    if instance.state in ("up_for_retry", None):
        return f"Next: nothing to do; the task's next try {deed}"
    return (
        f"Next: clear the task; it then {deed} From Airflow 3.4 on a clear drops the task's state, and with it this "
        "decision, unless it is told to keep it."
    )


def _deed(decided: Decided, decision: Decision) -> str:
    """Say what the task's next try does."""
    operations = {entry.operation for entry in decided.before}
    single = _SINGLE.get(operations.pop()) if len(operations) == 1 else None
    others = "others on its list that nothing was sent to"
    if single == _SINGLE[_ROW]:
        return "succeeds without a request." if decision is Decision.SENT else f"{single}."
    if single and decision is Decision.SENT:
        deed = "succeeds without a request, unless it has another recipient by then."
    elif single:
        deed = f"{single}."
    elif decision is Decision.SENT:
        deed = f"sends only to {others}, and succeeds without a request where there are none."
    else:
        who = "this recipient" if decided.recipients == 1 else f"these {decided.recipients} recipients"
        deed = f"sends to {who}, if still on its list, and to {others}, and to nobody else."
    if decided.pages.lost:
        deed += f" Of others nobody can tell ({decided.pages.lost}); the journal names them then."
    return deed


def _counts(entries: Sequence[Entry]) -> str:
    people, rows = _people_and_rows(entries)
    whom = [f"to {people}"] if people else []
    whom += [f"for {rows}"] if rows else []
    return f"{_number(len(entries), 'request')} {' and '.join(whom)}"


def _people_and_rows(entries: Sequence[Entry]) -> tuple[str, str]:
    """Return how many recipients and how many rows requests have together, in words; nothing where they have none."""
    rows = count_recipients(entry for entry in entries if entry.operation == _ROW)
    people = count_recipients(entries) - rows
    return (_number(people, "recipient") if people else "", _number(rows, "row") if rows else "")


def _number(number: int, what: str) -> str:
    return f"{number} {what}{'' if number == 1 else 's'}"


def _story(entry: Entry) -> str:
    when = f", claimed {entry.claimed_at.isoformat(timespec='seconds')}" if entry.claimed_at else ""
    which = f" by try {entry.try_number}" if entry.try_number else ""
    whom = "".join(_people_and_rows([entry]))
    return f"{entry.operation}, {whom}{when}{which}: {entry.reason or 'no answer noted'}"


def _say(text: str, to: TextIO) -> None:
    print(text, file=to)
