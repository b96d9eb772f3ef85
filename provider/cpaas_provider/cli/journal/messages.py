"""The commands' texts about requests, their resolution, and the next step."""

from __future__ import annotations

import shlex
from collections.abc import Mapping, Sequence

from cpaas_provider.api.amounts import counted, span
from cpaas_provider.cli.journal.instances import Found, Instance
from cpaas_provider.database.leases import LEASE
from cpaas_provider.sending.errors import join_references
from cpaas_provider.sending.journal.journal import SEVERAL_OPERATIONS
from cpaas_provider.sending.journal.model import RequestRecord
from cpaas_provider.sending.journal.resolution import Resolution, ResolutionResult, count_recipients
from cpaas_provider.sending.journal.view import StateSummary

_MAX_LINES = 20

_ROW = "create_contact_row"
# How a request is found in the service's own records: not all carry the reference there.
_BY_REFERENCE = "by reference (the service's external_ref, unless the task sets its own)"
# After a lost journal the reference is a new one, and the service has another.
_AFTER_LOSS = "by recipient, before the task was cleared"
_FOUND = {
    # Some of them are passcodes, which carry no reference.
    SEVERAL_OPERATIONS: f"by recipient and start time, messages and purchases also {_BY_REFERENCE}",
    "request_otp": "by recipient and start time",
    _ROW: "by cells and start time",
}
# What the task does next, for operations that make one request a task.
_SINGLE = {
    "request_otp": "requests the passcode for the recipient in its arguments",
    "buy_airtime": "buys the airtime for the recipient in its arguments",
    _ROW: "adds the row",
}


def in_flight(requests: Mapping[Instance, Sequence[RequestRecord]]) -> str:
    """Return that requests are in flight, and when they are unresolved if their task was killed."""
    entries = [entry for of_instance in requests.values() for entry in of_instance]
    # With an idempotency_key, the lease of the campaign shows whether a task works on it.
    is_shared = any(instance.campaign_taken is not None for instance in requests)
    of_leases = " or the lease of the campaign (idempotency_key)" if is_shared else ""
    until = f" and the lease ends ({span(LEASE.total_seconds())} after its last write)" if of_leases else ""
    return (
        f"In flight: {counts(entries)}, in tasks that Airflow{of_leases} shows as running. If such a task was killed, "
        f"they are unresolved once Airflow notices (task_instance_heartbeat_timeout, 300 s by default){until}."
    )


def what_to_do(unresolved: Sequence[tuple[Instance, RequestRecord]], next_probe: str | None = None) -> str:
    """Return how to find and resolve unresolved requests.

    :param next_probe: when a task's next try probes by itself; ``None`` if none is planned
    """
    instance = unresolved[0][0]
    which = shlex.join([instance.dag_id, instance.run_id, instance.task_id])
    which += f" --map-index {instance.map_index}" if instance.map_index >= 0 else ""
    entries = [entry for _, entry in unresolved]
    waiting = (
        f"At {next_probe} a task continues, and looks for proof by itself (next_probe): the record of a "
        "passcode, or a delivery report if the request had a callback URL. A campaign first sends to the remaining "
        "recipients. Wait for it. To resolve them before, mark a deferred task failed first.\n"
        if next_probe
        else ""
    )
    return waiting + (
        f"Unresolved: {counts(entries)}. Look for them in the service's own records: {_ways_to_find(entries)}. Then "
        "resolve them with one of:\n"
        f"  airflow cpaas journal resolve --sent {which}\n"
        f"  airflow cpaas journal resolve --not-sent {which}\n"
        "Then clear the task. --reference resolves single requests of a task."
    )


def _ways_to_find(entries: Sequence[RequestRecord]) -> str:
    ways: dict[str, list[str]] = {}
    for operation, is_lost in dict.fromkeys((entry.operation, entry.started_at is None) for entry in entries):
        way = _AFTER_LOSS if is_lost else _FOUND.get(operation, _BY_REFERENCE)
        ways.setdefault(way, []).append("requests" if operation == SEVERAL_OPERATIONS else operation)
    return ", ".join(f"{' and '.join(operations)} {way}" for way, operations in ways.items())


def what_comes_next(found: Found, instance: Instance, decided: ResolutionResult, decision: Resolution) -> str:
    """Return what is left to do, and what the task's next try does.

    :param found: the journal before the resolution
    :param instance: the task instance after it
    """
    if left := decided.left:
        return (
            f"Still unresolved: {counts(left)} ({join_references([entry.reference for entry in left])}). Until they "
            "are resolved, the task fails again, unless its on_unknown is skip or resend."
        )
    if instance.state == "success" and decision is Resolution.SENT:
        return "The task has succeeded. Nothing is left to do."
    resolved = _resolved(decided, decision)
    if instance.state in ("up_for_retry", None):
        return f"Next: nothing to do. The task's next try {resolved}"
    if found.is_shared:
        return f"Next: clear the task, or start another run with the same idempotency_key. It then {resolved}"
    if found.stored_as is not None:
        return f"Next: clear the task. It then {resolved}"
    return (
        f"Next: clear the task. It then {resolved} From Airflow 3.4 on, a clear drops the task's state and this "
        "decision, unless you choose to keep the state."
    )


def _resolved(decided: ResolutionResult, decision: Resolution) -> str:
    """Return what the task's next try does."""
    operations = {entry.operation for entry in decided.before}
    single = _SINGLE.get(operations.pop()) if len(operations) == 1 else None
    others = "other recipients on its list that were not sent to"
    if single == _SINGLE[_ROW]:
        return "succeeds without a request." if decision is Resolution.SENT else f"{single}."
    if single and decision is Resolution.SENT:
        resolved = "succeeds without a request, unless its recipient has changed."
    elif single:
        resolved = f"{single}."
    elif decision is Resolution.SENT:
        resolved = f"sends only to {others}. If there are none, it succeeds without a request."
    else:
        who = "this recipient" if decided.recipients == 1 else f"these {decided.recipients} recipients"
        resolved = f"sends only to {who}, if still on its list, and to {others}."
    if decided.lost:
        resolved += (
            f" The outcome for other recipients is unknown ({decided.lost}). The journal lists them after that try."
        )
    return resolved


def counts(entries: Sequence[RequestRecord]) -> str:
    """Return the number of requests, recipients and rows, in words."""
    recipients, rows = _recipients_and_rows(entries)
    counts = [f"to {recipients}"] if recipients else []
    counts += [f"for {rows}"] if rows else []
    return f"{counted(len(entries), 'request')} {' and '.join(counts)}"


def _recipients_and_rows(entries: Sequence[RequestRecord]) -> tuple[str, str]:
    """Return the number of recipients and the number of rows, in words; an empty text for none."""
    rows = count_recipients(entry for entry in entries if entry.operation == _ROW)
    recipients = count_recipients(entries) - rows
    return (counted(recipients, "recipient") if recipients else "", counted(rows, "row") if rows else "")


def where_it_lies(found: Found) -> str:
    """Return where a journal is stored that is not in the task's state."""
    if not found.is_shared:
        return f"This journal is stored in the database {found.database}."
    at_work = f" {found.locked_by} is working on it now." if found.locked_by else ""
    return (
        "This journal belongs to the campaign, not to one run (idempotency_key). It is stored in the database "
        f"{found.database}.{at_work}"
    )


def campaign_counts(sums: Sequence[StateSummary]) -> str:
    """Return the number of a campaign's requests in each state, in words."""
    each = (f"{total.requests} {total.state.value} ({counted(total.recipients, 'recipient')})" for total in sums)
    return f"{counted(sum(total.requests for total in sums), 'request')} in all: {', '.join(each)}."


def stories(entries: Sequence[RequestRecord]) -> list[str]:
    """Return a line for each request, for the first 20."""
    return _lines([f"{entry.reference}  {_story(entry)}" for entry in entries])


def references(entries: Sequence[RequestRecord]) -> list[str]:
    """Return a line with the reference of each request, for the first 20."""
    return _lines([entry.reference for entry in entries])


def _lines(texts: list[str]) -> list[str]:
    more = [f"and {len(texts) - _MAX_LINES} more"] if len(texts) > _MAX_LINES else []
    return [f"  {text}" for text in texts[:_MAX_LINES] + more]


def _story(entry: RequestRecord) -> str:
    when = f", started {entry.started_at.isoformat(timespec='seconds')}" if entry.started_at else ""
    which = f" by try {entry.try_number}" if entry.try_number else ""
    counts = "".join(_recipients_and_rows([entry]))
    return f"{entry.operation}, {counts}{when}{which}: {entry.reason or 'no response recorded'}"
