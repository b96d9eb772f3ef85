"""Records manual resolutions in the database of delivery reports, so that nothing waits for the requests in vain."""

from __future__ import annotations

from collections import Counter
from functools import partial

from cpaas_provider.api.amounts import counted
from cpaas_provider.cli.journal.instances import Found, Instance
from cpaas_provider.database.default_file import may_exist
from cpaas_provider.database.errors import DatabaseError
from cpaas_provider.database.schema.delivery import RequestState
from cpaas_provider.delivery.tracking.counts import open_report_database
from cpaas_provider.delivery.tracking.sent_requests import SentRequest, record_resolution
from cpaas_provider.sending.journal.model import members_of, reached_by, unknown_by_request
from cpaas_provider.sending.journal.resolution import Resolution, ResolutionResult

_NOT_RECORDED = (
    "The journal has the resolution. Run the same command again to record it, or clear the task: the end of its next "
    "try records it. Until then, sensors and DAGs wait for these requests, at most 72 hours."
)


def record_in_database(
    instance: Instance, found: Found, decided: ResolutionResult, decision: Resolution, result_id: str | None
) -> str | None:
    """Record a resolution for delivery tracking, and return the text to show.

    :param found: the journal before the resolution
    :param result_id: the service's id of the message
    :return: ``None`` if there is no database, so that no delivery is tracked
    """
    if not may_exist():
        return None
    place = instance.dag_id, instance.run_id, instance.task_id, instance.map_index
    known = [request.reference for request in found.journal.entries()]
    resolved = _resolved(found, decided, decision, result_id)
    try:
        with open_report_database() as database:
            where = database.redacted_url
            recorded = database.write(partial(record_resolution, place=place, known=known, resolved=resolved))
    except DatabaseError as error:
        return f"The resolution could not be recorded for delivery tracking. {error} {_NOT_RECORDED}"
    number = counted(len({request.reference for request in decided.before}), "request")
    if recorded.tracked is not None:
        return f"Recorded for delivery tracking: {number} of {recorded.tracked}, in {where}."
    if recorded.counted:
        return (
            f"Recorded in the figures of the campaign: {number} of {' and '.join(recorded.counted)}, in {where}. The "
            "delivery of the campaign is not tracked, so nothing else was changed there."
        )
    return f"The database {where} has no record of a campaign of this task, so nothing was changed there."


def _resolved(
    found: Found, decided: ResolutionResult, decision: Resolution, result_id: str | None
) -> list[SentRequest]:
    """Return the resolved requests, each with the number of recipients that no other request was accepted for."""
    state = RequestState.ACCEPTED if decision is Resolution.SENT else RequestState.NOT_SENT
    members: dict[str, set[bytes]] = {}
    for request in decided.before:
        members.setdefault(request.reference, set()).update(request.members)
    reached = reached_by(found.journal.entries(), members_of(decided.before))
    resolved = [SentRequest(name, len(hashes - reached), result_id, state=state) for name, hashes in members.items()]
    return [*resolved, *_unresolved(found, decided, decision)]


def _unresolved(found: Found, decided: ResolutionResult, decision: Resolution) -> list[SentRequest]:
    """Return the other requests of unknown outcome. A recipient of several counts for the newest of them.

    A resend that is resolved as not sent leaves the request that it repeats unknown again. A request is superseded if
    each of its recipients is now known to be reached by another one.
    """
    resolved = {request.number for request in decided.before}
    requests = found.journal.entries()
    unresolved = [request for request in requests if request.is_unresolved and request.number not in resolved]
    reached = reached_by(found.journal.entries(), members_of(unresolved))
    if decision is Resolution.SENT:
        reached |= members_of(decided.before)
    unknown = unknown_by_request(unresolved, reached)
    states = {request.reference: RequestState.SUPERSEDED for request in unresolved}
    counts = Counter[str]()
    for request in unresolved:
        if request.number in unknown:
            states[request.reference] = RequestState.UNKNOWN
            counts[request.reference] += unknown[request.number]
    return [SentRequest(name, counts[name], state=state, unknown=counts[name]) for name, state in states.items()]
