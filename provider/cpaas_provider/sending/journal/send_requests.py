"""The requests of a send in all tries, as the resolver reads and changes them: of single sends and of campaigns."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from cpaas_provider.sending.errors import RefutedError
from cpaas_provider.sending.journal.log import JournalLog
from cpaas_provider.sending.journal.model import RequestRecord, Result, State, unresolved_by_reference
from cpaas_provider.sending.journal.resolution import count_recipients


class SendRequests:
    """The requests of a send. A subclass stores them: in memory for a list, on disk for a source."""

    log: JournalLog
    """The journal."""

    body: str
    """Hash of the content that this try sends to all."""

    @property
    def records(self) -> Iterable[RequestRecord]:
        """The requests in order, at least those that a recipient of unknown outcome has.

        Of the references of these, all accepted requests are among them.
        """
        raise NotImplementedError

    def values_hashes(self, members: Sequence[bytes]) -> Mapping[bytes, bytes]:
        """Return the hashes of the placeholder values that this try sends, by recipient.

        :param members: recipients of one request. Those that this try does not send to may be missing in what is
            returned
        """
        raise NotImplementedError

    @property
    def lost(self) -> str | None:
        """Why requests of earlier tries may be missing from the journal; ``None`` if none are."""
        return self.log.lost

    def unresolved(self) -> Sequence[RequestRecord]:
        """Return the newest request of each unresolved reference, unless accepted requests have all its recipients."""
        return unresolved_by_reference(self.records)

    def unknown_recipients(self) -> int:
        """Return the number of recipients of unknown outcome."""
        return count_recipients(self.unresolved())

    def is_changed(self, request: RequestRecord) -> bool:
        """Return whether the content of a request differs from the content of this try."""
        if request.body is None:
            return False
        if request.body != self.body:
            return True
        present = self.values_hashes(request.members)
        return any(present.get(member, sent) != sent for member, sent in request.intent.each())

    def accepted_ids(self) -> Mapping[str, set[str | None]]:
        """Return the service's ids of accepted requests, at least of references that an unresolved request has, too.

        :return: the ids by reference, ``None`` for an id that is not recorded
        """
        ids: dict[str, set[str | None]] = {}
        for request in self.records:
            if request.state is State.ACCEPTED:
                message_id = (request.result or {}).get("id")
                ids.setdefault(request.reference, set()).add(None if message_id is None else str(message_id))
        return ids

    def confirm(self, accepted: Mapping[int, dict[str, Any]]) -> Sequence[Result]:
        """Record that requests were accepted, and return the results for the journal.

        :param accepted: what the probe returned, by the number of the request
        """
        raise NotImplementedError

    def refute(self, request: RequestRecord, error: RefutedError) -> Result | None:
        """Record that a request was not accepted. Return the result for the journal, ``None`` if it stays unknown."""
        return None

    def interrupted(self) -> Sequence[Result]:
        """Return results (unknown) for requests of earlier tries that have none in the journal."""
        return ()

    def end_resends(self, unknown: str, advice: str) -> None:
        """Raise if recipients are still of unknown outcome after the last resend of this try.

        :param unknown: the text of ``UnknownResolver.describe``
        :param advice: the text of ``UnknownResolver.advice``
        """
        raise NotImplementedError
