"""``airflow cpaas lookup``."""

from __future__ import annotations

import contextlib
from argparse import Namespace
from datetime import UTC, datetime, timedelta
from functools import partial
from typing import Any

from msgspec.structs import replace

from cpaas_provider.api.amounts import counted
from cpaas_provider.api.client import CpaasClient
from cpaas_provider.api.errors import (
    CpaasAuthenticationError,
    CpaasConnectionStoppedError,
    CpaasError,
    CpaasInsufficientBalanceError,
)
from cpaas_provider.api.recipients.reader import mask_recipient
from cpaas_provider.cli.messages.typed import StandardInput, read_recipients
from cpaas_provider.cli.running import FAILED, STOPPED, connection_of, guarded
from cpaas_provider.cli.terminal import print_lines, warn
from cpaas_provider.database.database import open_database
from cpaas_provider.database.errors import DatabaseError
from cpaas_provider.database.recipients.lookups import DndCache, PhoneRecord, PhoneRecordCache
from cpaas_provider.hooks.connection import CpaasConnection
from cpaas_provider.sending.campaign.guards.lookups import find_cached
from cpaas_provider.sending.journal.hashing import lookup_hashers

_FIELDS = PhoneRecord._fields
_OF_EVERY_NUMBER = (CpaasAuthenticationError, CpaasConnectionStoppedError, CpaasInsufficientBalanceError)
_CACHED = "cache"
_ASKED = "service"


@guarded
def cpaas_lookup(args: Namespace) -> None:
    """Look up phone numbers, each once."""
    connection = connection_of(args.conn_id)
    # A lookup sends nothing, so allowed_recipients does not limit it.
    reader = replace(connection.settings.recipient_reader("phone", args.region), allowed=None)
    numbers = list[str](read_recipients(args.phones, args.phones_file, StandardInput(), reader).allowed)
    with contextlib.ExitStack() as opened:
        cache = _Cache(connection, opened, read=not args.no_cache, max_age=args.max_age)
        known = cache.known(numbers)
        client = opened.enter_context(connection.make_client())
        lines, stopped = _look_up(numbers, known, client, cache)
    print_lines(lines, args.output)
    if flags := sum(1 for record in known.values() if record[:-1] == (None, None, None)):
        warn(
            f"The cache has the do-not-disturb flag only of {counted(flags, 'number')}. --no-cache asks the service, "
            "which charges for it."
        )
    failed = sum(1 for line in lines if line["error"])
    if failed:
        warn(f"{counted(failed, 'lookup')} failed.")
    if len(lines) < len(numbers):
        warn(f"{counted(len(numbers) - len(lines), 'number')} of {len(numbers)} were not looked up.")
    if stopped:
        raise SystemExit(STOPPED)
    if failed:
        raise SystemExit(FAILED)


def _look_up(
    numbers: list[str], known: dict[str, PhoneRecord], client: CpaasClient, cache: _Cache
) -> tuple[list[dict[str, Any]], bool]:
    """Return a line for each number looked up, and whether Ctrl-C stopped the lookups. Paid lookups are kept."""
    lines: list[dict[str, Any]] = []
    try:
        for number in numbers:
            line: dict[str, Any] = {"phone": mask_recipient(number), **dict.fromkeys(_FIELDS)}
            if record := known.get(number):
                lines.append({**line, **record._asdict(), "source": _CACHED, "error": None})
                continue
            try:
                found = client.lookup_phone(number)
            except CpaasError as error:
                lines.append({**line, "source": _ASKED, "error": str(error)})
                if isinstance(error, _OF_EVERY_NUMBER):
                    break
                continue
            record = PhoneRecord(found.operator, found.country, found.ported, found.dnd)
            lines.append({**line, **record._asdict(), "source": _ASKED, "error": None})
            cache.store(number, record)
    except KeyboardInterrupt:
        warn("The service may charge for a number that was being looked up when the command was stopped.")
        return lines, True
    return lines, False


class _Cache:
    """The cache that campaigns and bulk lookups use. If it fails, the command looks up without a cache.

    :param read: whether it returns lookups. It stores them in any case
    :param max_age: days for which a lookup is used
    """

    def __init__(self, connection: CpaasConnection, opened: contextlib.ExitStack, *, read: bool, max_age: int) -> None:
        self._cache: PhoneRecordCache | None = None
        self._hashers = lookup_hashers(connection.hash_secrets)
        self._read = read
        self._max_age = timedelta(days=max_age)
        try:
            database = opened.enter_context(open_database())
        except DatabaseError as error:
            warn(f"{error} Lookups are not cached.")
        else:
            self._cache, self._dnd_cache = PhoneRecordCache(database), DndCache(database)

    def known(self, numbers: list[str]) -> dict[str, PhoneRecord]:
        """Return the stored records that are recent enough. Campaigns store the do-not-disturb flag only."""
        if self._cache is None or not self._read:
            return {}
        since = datetime.now(UTC) - self._max_age
        try:
            records = find_cached(numbers, self._hashers, partial(self._cache.get_many, since=since))
            flags = find_cached(numbers, self._hashers, partial(self._dnd_cache.get_many, since=since))
        except DatabaseError as error:
            warn(f"{error} Lookups are not cached.")
            return {}
        return {number: PhoneRecord(None, None, None, dnd) for number, dnd in flags.items()} | records

    def store(self, number: str, record: PhoneRecord) -> None:
        """Store a record."""
        if self._cache is None:
            return
        try:
            self._cache.set_many({self._hashers[0](number): record}, datetime.now(UTC))
        except DatabaseError as error:
            warn(f"{error} Lookups are not cached.")
            self._cache = None
