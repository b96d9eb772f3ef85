"""``airflow cpaas journal``: what tasks noted of their requests, and deciding those nobody knows the outcome of."""

from __future__ import annotations

import itertools
import sys
from argparse import Namespace
from collections.abc import Callable, Iterator, Sequence
from datetime import UTC, datetime
from typing import Any, TextIO

from airflow.cli.simple_table import AirflowConsole, SimpleTable
from airflow.utils.cli import action_cli, suppress_logs_and_warning
from airflow.utils.helpers import ask_yesno
from airflow.utils.providers_configuration_loader import providers_configuration_loaded
from airflow.utils.session import create_session

from cpaas_provider.api.counting import counted
from cpaas_provider.cli import journal_words as words
from cpaas_provider.cli import task_state
from cpaas_provider.cli.instances import Found, Instance, JournalError
from cpaas_provider.sending.by_hand import CannotDecideError, Decided, Decision, Journal
from cpaas_provider.sending.campaign.by_hand import Log, Sum
from cpaas_provider.sending.entries import Entry, State

# What others wait for, verify or change by the id in the result.
_NEEDED_BY_ID = {"request_otp", "create_contact_row"}
_IN_DOUBT = (State.UNKNOWN, State.PENDING)
_ASKED_FOR_READABLE = ("table", "plain")
# What is shown of a campaign's requests where a person reads it, who named the task instance.
_OF_A_CAMPAIGN = ("reference", "state", "recipients", "try", "started_at", "resolution", "result_id", "reason")
_WIDEST = 10_000
# In the table of one request every value stands under "value".
_COPIED = frozenset({"reference", "result_id", "value"})
_MORE = ("resolution", "result_id", "result", "personal", "previous_unknown", "probe_snapshot")
_NOTHING_MORE = dict.fromkeys(_MORE)


@suppress_logs_and_warning
@providers_configuration_loaded
def cpaas_journal_list(args: Namespace) -> None:
    """List requests of many task instances; by default those in doubt."""
    unreadable: list[JournalError] = []
    campaigns: dict[Instance, str] = {}
    try:
        found = list(itertools.islice(_requests(args, unreadable, campaigns), args.limit + 1))
    except JournalError as error:
        raise SystemExit(str(error)) from None
    shown = found[: args.limit]
    _print([_line(instance, one) for instance, one in shown], args.output)
    aside = _aside(args)
    if len(found) > len(shown):
        _say(f"There are more than these {args.limit}: raise --limit, or narrow with --dag-id and --run-id.", aside)
    for instance in dict.fromkeys(instance for instance, _ in shown):
        if instance in campaigns:
            _say(f"Campaign {instance}: {campaigns[instance]}", aside)
    in_doubt = [(instance, one) for instance, one in shown if isinstance(one, Entry) and _is_in_doubt(instance, one)]
    if in_doubt or not unreadable:
        nothing = "Nothing is in doubt." if args.state is None or shown else "There is no such request."
        _say(words.what_to_do(in_doubt) if in_doubt else nothing, aside)
    if unreadable:
        _say("\n".join(str(problem) for problem in unreadable), sys.stderr)
        raise SystemExit(f"Journals that could not be read, so nobody can tell what is in doubt: {len(unreadable)}.")


@suppress_logs_and_warning
@providers_configuration_loaded
def cpaas_journal_show(args: Namespace) -> None:
    """Show all requests of one task instance; those of a campaign summed up, beside what is in doubt."""
    found = _read(args)
    instance, journal = found.instance, found.journal
    doubtful = journal.doubtful()
    if isinstance(journal, Log):
        _print_campaign(instance, journal, args)
    else:
        _print_each(instance, journal, args)
    aside = _aside(args)
    if found.campaign is not None:
        _say(words.where_it_lies(found), aside)
    if journal.lost:
        _say(f"What was sent to people without a request here, nobody can tell: {journal.lost}.", aside)
    in_doubt = [(instance, entry) for entry in doubtful if _is_in_doubt(instance, entry)]
    _say(words.what_to_do(in_doubt) if in_doubt else "Nothing is in doubt.", aside)


@action_cli  # type: ignore[untyped-decorator]  # Airflow leaves it unannotated
@suppress_logs_and_warning
@providers_configuration_loaded
def cpaas_journal_resolve(args: Namespace) -> None:
    """Decide that requests in doubt were carried out, or that they were not."""
    if args.sent == args.not_sent:
        raise SystemExit("Give either --sent or --not-sent, as the service's own records show. Nothing was changed.")
    if args.not_sent and args.result_id is not None:
        raise SystemExit("--id is of what was sent, so it goes with --sent alone. Nothing was changed.")
    decision = Decision.SENT if args.sent else Decision.NOT_SENT
    result_id = args.result_id

    def decided_on(journal: Journal) -> Decided:
        return journal.decide(decision, args.reference or (), result_id=result_id, now=datetime.now(UTC))

    found = _read(args)
    instance = found.instance
    try:
        task_state.refuse_on_its_way(instance)
        decided = decided_on(found.journal)
        if not args.yes:
            _confirm(instance, decided, decision)
        instance = task_state.change(instance, found, decided_on)
    except (JournalError, CannotDecideError) as error:
        raise SystemExit(str(error)) from None
    _say(f"Resolved as {decision.words}: {words.counts(decided.before)} of {instance}.", sys.stdout)
    for line in words.references(decided.before):
        _say(line, sys.stdout)
    _say(words.what_comes_next(instance, decided, decision, campaign=found.campaign is not None), sys.stdout)
    if decision is Decision.SENT and result_id is None and {one.operation for one in decided.before} & _NEEDED_BY_ID:
        _say("Without --id the task's result has no id, and tasks after it that use it will fail.", sys.stdout)


def _read(args: Namespace) -> Found:
    try:
        with create_session(scoped=False) as session:
            asked = Instance(args.dag_id, args.run_id, args.task_id, args.map_index)
            return task_state.read(task_state.find(asked, session), session)
    except JournalError as error:
        raise SystemExit(str(error)) from None


def _confirm(instance: Instance, decided: Decided, decision: Decision) -> None:
    """Ask whether a decision is meant; end the command where it is not."""
    _say(f"{words.counts(decided.before)} of {instance}:", sys.stdout)
    for line in words.stories(decided.before):
        _say(line, sys.stdout)
    consequence = (
        "They are not made again." if decision is Decision.SENT else "They are made again by the task's next try."
    )
    try:
        agreed = ask_yesno(f"Resolve as {decision.words}? {consequence} This cannot be undone. [y/N]", default=False)
    except (EOFError, RuntimeError):
        raise SystemExit("Nobody is there to answer, so nothing was changed. With --yes nobody is asked.") from None
    if not agreed:
        raise SystemExit("Nothing was changed.")


def _requests(
    args: Namespace, unreadable: list[JournalError], campaigns: dict[Instance, str]
) -> Iterator[tuple[Instance, Entry | Sum]]:
    """Yield requests of a state, those of campaigns summed up; what cannot be read is noted in ``unreadable``.

    :param campaigns: takes the counts of the campaigns they are of
    """
    asked = {name: getattr(args, name) for name in ("dag_id", "run_id", "task_id")}
    wanted = set(_IN_DOUBT if args.state is None else State if args.state == "all" else {State(args.state)})
    for instance, journal in task_state.everything(asked, [] if args.state == "all" else sorted(wanted)):
        if isinstance(journal, JournalError):
            unreadable.append(journal)
            continue
        for one in _in_doubt(instance, journal) if args.state is None else _whole(journal, args.each):
            if one.state in wanted:
                if isinstance(journal, Log) and instance not in campaigns:
                    campaigns[instance] = words.campaign_counts(journal.sums())
                yield instance, one


def _in_doubt(instance: Instance, journal: Journal) -> Iterator[Entry]:
    return (entry for entry in journal.doubtful() if _is_in_doubt(instance, entry))


def _whole(journal: Journal, each: bool) -> Iterator[Entry | Sum]:
    """Yield all requests of a journal; of a campaign those in doubt first, and of the others sums."""
    if not isinstance(journal, Log):
        yield from journal.entries()
        return
    yield from journal.doubtful()
    yield from journal.entries(in_doubt=False) if each else journal.sums(in_doubt=False)


def _is_in_doubt(instance: Instance, entry: Entry) -> bool:
    """Tell whether somebody has to decide: what a running try has claimed, it may yet settle."""
    return entry.in_doubt and not (entry.state is State.PENDING and instance.running)


def _line(instance: Instance, one: Entry | Sum) -> dict[str, Any]:
    line = {
        "dag_id": instance.dag_id,
        "run_id": instance.run_id,
        "task_id": instance.task_id,
        "map_index": instance.map_index,
        "task_state": instance.state,
        "reference": None,
        "operation": one.operation,
        "state": one.state.value,
        "recipients": None,
        "try": None,
        "started_at": None,
        "reason": None,
    }
    if isinstance(one, Sum):
        return {**line, "recipients": one.recipients, "reason": f"{counted(one.requests, 'request')} together"}
    return {
        **line,
        "reference": one.reference,
        "recipients": len(one.members),
        "try": one.try_number,
        "started_at": one.started_at.isoformat(timespec="seconds") if one.started_at else None,
        "reason": one.reason,
    }


def _more(entry: Entry) -> dict[str, Any]:
    """Return what is shown of one request alone; never the hashes of its recipients and texts."""
    result = entry.result or {}
    return {
        "resolution": entry.resolution,
        "result_id": result.get("id", result.get("row_id")),
        "result": entry.result,
        "personal": entry.personal is not None,
        "previous_unknown": entry.doubted,
        "probe_snapshot": entry.evidence is not None,
    }


def _print_each(instance: Instance, journal: Journal, args: Namespace) -> None:
    lines = [_line(instance, entry) | _more(entry) for entry in journal.entries()]
    if args.output in _ASKED_FOR_READABLE:
        for line in lines:
            _print([{"field": name, "value": fact} for name, fact in line.items()], args.output)
    else:
        _print(lines, args.output)
    if not lines:
        _say(f"The journal of {instance} has no request.", _aside(args))


def _print_campaign(instance: Instance, journal: Log, args: Namespace) -> None:
    lines = [
        _line(instance, one) | (_more(one) if isinstance(one, Entry) else _NOTHING_MORE)
        for one in _whole(journal, args.each)
    ]
    if args.output in _ASKED_FOR_READABLE:
        lines = [{name: line[name] for name in _OF_A_CAMPAIGN} for line in lines]
    _print(lines, args.output)
    _say(f"Campaign {instance}: {words.campaign_counts(journal.sums())}", _aside(args))


def _print(lines: Sequence[dict[str, Any]], output: str) -> None:
    # A reason may hold brackets and colons, which are no markup and no emoji.
    console = AirflowConsole(markup=False, emoji=False)
    if output not in _ASKED_FOR_READABLE:
        # Airflow's own way would make text of every number.
        write: Callable[[Any], None] = console.print_as_json if output == "json" else console.print_as_yaml
        write(list(lines))
        return
    if not lines:
        return
    lines = [{name: "" if fact is None else fact for name, fact in line.items()} for line in lines]
    if output == "table":
        _print_table(console, lines)
    else:
        console.print_as(lines, output)


def _print_table(console: AirflowConsole, lines: Sequence[dict[str, Any]]) -> None:
    """Print a table in which what people copy stands in one piece, however narrow the terminal is."""
    table = SimpleTable(show_header=True)
    for name in lines[0]:
        table.add_column(name, no_wrap=name in _COPIED)
    for line in lines:
        table.add_row(*map(str, line.values()))
    # Measured within a narrow terminal, nothing is wider than that.
    anywhere = console.options.update(max_width=_WIDEST)
    console.width = max(console.width, console.measure(table, options=anywhere).minimum)
    console.print(table)


def _aside(args: Namespace) -> TextIO:
    """Return where words go that are not to be mixed with output a program reads."""
    return sys.stdout if args.output == "table" else sys.stderr


def _say(text: str, to: TextIO) -> None:
    print(text, file=to)
