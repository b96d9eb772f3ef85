"""The two doors delivery reports come in by, as ASGI applications: what is measured is what stands between them.

No request is logged: a callback URL is a credential.
"""

from __future__ import annotations

import logging
import traceback
from collections.abc import Awaitable, Callable
from datetime import UTC, datetime, timedelta

from cpaas_provider.database.errors import DatabaseError, RejectedDataError
from cpaas_provider.delivery.callbacks.signatures import has_form, verify
from cpaas_provider.delivery.callbacks.tokens import HANDSHAKE, BadTicketError, Ticket, read_ticket
from cpaas_provider.delivery.receiver.http import responses
from cpaas_provider.delivery.receiver.http.load_limits import Room, Turns
from cpaas_provider.delivery.receiver.http.request import (
    Posted,
    Receive,
    Scope,
    SenderGoneError,
    part_of_grace,
    read_json,
)
from cpaas_provider.delivery.receiver.http.responses import (
    BAD_SIGNATURE,
    BROKEN,
    FULL,
    HUNG_UP,
    NO_KEYS,
    NO_STORE,
    NOT_FOUND,
    ONLY_POST,
    STORED,
    TOO_MANY,
    Answer,
    RefusalError,
    Send,
)
from cpaas_provider.delivery.receiver.log_throttle import Complaints
from cpaas_provider.delivery.receiver.received import Arrival, Door, Kept
from cpaas_provider.delivery.receiver.secrets_cache import ConnectionKeys, KeyRing, KeysUnreadableError
from cpaas_provider.delivery.receiver.writer import DeskFullError, TakesArrivals
from cpaas_provider.delivery.reports import read_report, told_at

MOST_IN_FLIGHT = 1000
MOST_BYTES = 64 * 1024 * 1024
"""What each door has room for, of each connection."""

complaints = Complaints(logging.getLogger(__name__))

_NOT_STORED = {
    Kept.EXPIRED: (NOT_FOUND, "the callback URL has expired, or its request was pruned."),
    Kept.TOO_MANY: (TOO_MANY, "a callback URL exceeded the report limit of its request. The URL may have leaked."),
}
"""What is answered where nothing was stored, and why."""

Observe = Callable[[str, "int | float"], None]


class _Way:
    """What both doors do. Each has a room of its own, so that a crowd at one leaves the other free."""

    door: Door

    def __init__(self, ring: KeyRing, desk: TakesArrivals, observe: Observe | None) -> None:
        self._ring = ring
        self._desk = desk
        self._observe = observe
        self._room = Room(MOST_IN_FLIGHT, MOST_BYTES)
        self._turns = Turns(part_of_grace)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer one request."""
        posted = Posted(scope, receive, self._turns)
        try:
            try:
                if scope["method"] != "POST":
                    raise RefusalError(ONLY_POST)
                answer = await self._answer(scope["path_params"], posted)
            except SenderGoneError:
                # It reaches nobody, but a server that mounts us takes no answer for an error of ours.
                answer = self._refusal(RefusalError(HUNG_UP))
            except Exception as error:  # noqa: BLE001 - whoever sent it is told nothing of our insides
                answer = self._refusal(error)
            await answer.say(send, take_rest=None if posted.read_whole else posted.take_rest)
        finally:
            posted.done()

    async def _answer(self, place: dict[str, str], posted: Posted) -> Answer:
        raise NotImplementedError

    async def _keep(self, conn_id: str, posted: Posted, raw: bytes, ticket: Ticket | None) -> Answer:
        """Store an authentic report, and only then say so."""
        posted.check_type()
        text, body = read_json(raw)
        arrival = Arrival(conn_id, self.door, ticket, read_report(body), text, datetime.now(UTC))
        kept = await posted.within(lambda: responses.ANSWER_SECONDS, self._desk.hand_in(arrival))
        self._refuse_where_not_stored(kept, conn_id)
        if self._observe is not None:
            self._count("received")
            if kept is not Kept.NEW:
                self._count(kept.value)
            if told := told_at(body):
                self._observe("lag", max(0.0, (datetime.now(UTC) - told).total_seconds()))
        return STORED

    def _refuse_where_not_stored(self, kept: Kept, conn_id: str) -> None:
        if kept not in _NOT_STORED:
            return
        answer, why = _NOT_STORED[kept]
        self._count(kept.value)
        complaints.say(kept.value, f"Refused delivery reports on connection {conn_id!r}: {why}")
        raise RefusalError(answer)

    def _refusal(self, error: Exception) -> Answer:
        answer = _answer_to(error)
        self._count(f"refused.{answer.status}")
        return answer

    def _count(self, name: str) -> None:
        if self._observe is not None:
            self._observe(name, 1)


class CallbackDoor(_Way):
    """Takes reports at the URL that was given with the request; the URL itself is the proof."""

    door = "callback"

    def __init__(
        self, ring: KeyRing, desk: TakesArrivals, observe: Observe | None, store_name: Callable[[], Awaitable[str]]
    ) -> None:
        super().__init__(ring, desk, observe)
        self._store_name = store_name

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer one request, and leave its ticket to nobody who logs it afterwards."""
        scope["path"] = scope["path"].rpartition("/")[0] + "/..."
        scope["raw_path"] = scope["path"].encode()
        await super().__call__(scope, receive, send)

    async def _answer(self, place: dict[str, str], posted: Posted) -> Answer:
        conn_id = place["conn_id"]
        ticket, lifetime = await self._ticket(conn_id, place["ticket"])
        if ticket.expired(lifetime):
            self._refuse_where_not_stored(Kept.EXPIRED, conn_id)
        posted.enter(self._room, conn_id)
        raw = await posted.body()
        if ticket.campaign == HANDSHAKE:
            return Answer.of(200, {"database": await self._store_name()})
        return await self._keep(conn_id, posted, raw, ticket)

    async def _ticket(self, conn_id: str, text: str) -> tuple[Ticket, timedelta]:
        """Return what the URL says, once it is proved, and how long URLs of its connection live."""
        keys = await self._ring.keys_of(conn_id)
        if keys is None:
            raise RefusalError(NOT_FOUND)
        try:
            return read_ticket(conn_id, text, keys.callback_secrets), keys.callback_lifetime
        except BadTicketError:
            newer = await self._ring.keys_after_doubt(conn_id, keys)
        return read_ticket(conn_id, text, newer.callback_secrets if newer else ()), keys.callback_lifetime


class WebhookDoor(_Way):
    """Takes reports at the URL of the account; the signature over the body is the proof."""

    door = "webhook"

    async def _answer(self, place: dict[str, str], posted: Posted) -> Answer:
        conn_id = place["conn_id"]
        keys = await self._open_keys(conn_id, posted)
        posted.enter(self._room, conn_id)
        raw = await posted.body()
        if not _signed(keys, posted, raw):
            newer = await self._ring.keys_after_doubt(conn_id, keys)
            if newer is None or not _signed(newer, posted, raw):
                raise RefusalError(BAD_SIGNATURE)
        return await self._keep(conn_id, posted, raw, None)

    async def _open_keys(self, conn_id: str, posted: Posted) -> ConnectionKeys:
        """Return what may prove it, as far as its headers can tell."""
        keys = await self._ring.keys_of(conn_id)
        if keys and not (_is_open(keys) and _may_be_signed(keys, posted)):
            keys = await self._ring.keys_after_doubt(conn_id, keys) or keys
        if not keys or not _is_open(keys):
            raise RefusalError(NOT_FOUND)
        if not _may_be_signed(keys, posted):
            raise RefusalError(BAD_SIGNATURE)
        return keys


def _is_open(keys: ConnectionKeys) -> bool:
    return bool(keys.webhook_secret and keys.signature_header)


def _may_be_signed(keys: ConnectionKeys, posted: Posted) -> bool:
    return has_form(_signature(keys, posted))


def _signed(keys: ConnectionKeys, posted: Posted, raw: bytes) -> bool:
    return verify(raw, _signature(keys, posted), keys.webhook_secret or "")


def _signature(keys: ConnectionKeys, posted: Posted) -> str | None:
    return posted.header((keys.signature_header or "").lower().encode())


def _answer_to(error: Exception) -> Answer:
    match error:
        case RefusalError():
            return error.answer
        case BadTicketError():
            return NOT_FOUND
        case DeskFullError():
            return FULL
        case TimeoutError():
            complaints.say("late", "Delivery reports were not stored in time. Their senders were asked to retry.")
            return NO_STORE
        case KeysUnreadableError():
            return NO_KEYS
        case RejectedDataError():
            complaints.say("rejected", f"A delivery report was not stored. Its sender was asked to retry. {error}")
            return NO_STORE
        case DatabaseError():
            complaints.say("store", f"Delivery reports were not stored. Their senders were asked to retry. {error}")
            return NO_STORE
    # Its words may show what was sent.
    place = traceback.extract_tb(error.__traceback__)[-1]
    where = f"{type(error).__name__} at {place.name}:{place.lineno}"
    complaints.say("broken", f"A delivery report was not stored because of an unexpected error: {where}.")
    return BROKEN
