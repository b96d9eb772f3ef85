"""Reads rows to find out what the service does not say: whether a row is gone, and what an update did to its cells."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Awaitable, Callable, Iterable, Mapping
from enum import Enum
from itertools import chain, islice
from typing import Any, Generic, Protocol, TypeVar

from msgspec import Struct

from cpaas_provider.api import errors
from cpaas_provider.api.models.contacts import ContactRowRecord, ContactTable
from cpaas_provider.contacts.errors import NotSyncedError, StoppedError
from cpaas_provider.contacts.key_map.entries import RowState
from cpaas_provider.contacts.key_map.key_map import KeyMap
from cpaas_provider.contacts.mapping.cells import is_empty_cell

ACCOUNT_ERRORS = (
    errors.CpaasAuthenticationError,
    errors.CpaasInsufficientBalanceError,
    errors.CpaasConfigurationError,
)
"""Errors that every request would have."""

_NOT_THERE = frozenset({404, 410})
"""Statuses that say by themselves that there is no such row."""
_ROW_FIELDS = frozenset({"id", "row", "row_id"})
"""Fields of an error item that may name the row, also if a column has that name."""
WITH_ROW = (RowState.SYNCED, RowState.UPDATING, RowState.DELETING)
READ_EACH = 100
READ_EVERY = 10
"""Of rejections in the same words, the first hundred rows are read, then every tenth."""
_SAMPLE = 20
"""The most rows of the map that are read to see whether the service lets any row be read."""


class RowClient(Protocol):
    """The requests that find out about a row, as of ``AsyncCpaasClient``."""

    def get_contact_row(self, row_id: str) -> Awaitable[ContactRowRecord]:
        """Read a row."""

    def get_contact_table(self) -> Awaitable[ContactTable]:
        """Read the table."""

    def update_contact_row(self, row_id: str, columns: Mapping[str, Any]) -> Awaitable[ContactRowRecord]:
        """Update a row."""


T = TypeVar("T")


class _SharedReading(Generic[T]):
    """One reading for all rows that wait for it at the same time."""

    def __init__(self) -> None:
        self._latest: asyncio.Future[T] | None = None

    async def begin(self, read: Callable[[], Awaitable[T]]) -> T:
        """Return the result of a reading that begins after this call."""
        if (running := self._latest) is not None:
            await asyncio.wait([running])
        if self._latest is None or self._latest is running:
            self._latest = asyncio.ensure_future(read())
        return await asyncio.shield(self._latest)


class Presence(Enum):
    """Whether the list has a row."""

    PRESENT = "present"
    GONE = "gone"
    NOT_PROVED = "not proved"
    """The row cannot be read, and no other row can."""


def is_proved_gone(presence: Presence, rejection: errors.CpaasRejectedError) -> bool:
    """Tell whether the list no longer has the row of a task, whose request was rejected.

    :raises NotSyncedError: when nothing proves it, and the rejection alone would fail the task for good
    """
    if presence is Presence.NOT_PROVED and rejection.is_permanent:
        raise NotSyncedError(
            f"{rejection} The row could not be read to see whether it is gone. A retry of the task sends it again."
        )
    return presence is Presence.GONE


class RowFinder:
    """Tells whether the list still has a row, however the service words that it is gone.

    The contract lists no status for it (contract.md 4.12, 4.13, 7). So a row is gone if it cannot be read, although
    another row can, and then cannot be read again. A failure to read is no proof, but an error, and a page of a gateway
    proves nothing. A service may reject the reading of every row, or have other ids for all of them. Then nothing is
    proved. Where no other row is known, the table must be readable, and each response about the row must be a 404 or
    410. A key must not get a second row, so for the only row of a map each must be the service's documented error.

    :param key_maps: name other rows of the list
    :param columns: the names of the list's columns, by id
    """

    def __init__(self, client: RowClient, key_maps: Iterable[KeyMap], columns: Mapping[str, str]) -> None:
        self._client = client
        self._maps = tuple(key_maps)
        self._columns = {text.casefold() for text in chain(columns, columns.values())} - _ROW_FIELDS
        self._may_read_rows = False
        self.known_row: str | None = None
        """A row that the list has, the latest that was written or read."""
        self._sample: list[str] | None = None
        self._tried: set[str] = set()
        self._proof = asyncio.Lock()
        self._seen: Counter[str] = Counter()
        self._absent: set[str] = set()
        self._table = _SharedReading[ContactTable]()
        self._other_row = _SharedReading[bool]()

    def add_read(self, row_id: str) -> None:
        """Remember a row that was read."""
        self.known_row, self._may_read_rows = row_id, True

    def is_about_cells(self, error: errors.CpaasRejectedError) -> bool:
        """Tell whether a rejected update needs no reading of its row, because of its words.

        An error that names columns and nothing else is about cells. Other words are learned: the rows of the first
        hundred such rejections are read, then every tenth. As soon as one is gone, all are read.
        """
        words = _words(error)
        fields = [(item.field or "").casefold().rpartition(".")[2] for item in error.items]
        if fields and self._columns.issuperset(fields):
            return True
        if words in self._absent or names_absence(error):
            return False
        seen = self._seen[words]
        # Counted before the row is read, because several rows are under way at a time.
        self._seen[words] += 1
        return seen >= READ_EACH and seen % READ_EVERY != 0

    async def find_updated(self, row_id: str, rejection: errors.CpaasRejectedError) -> Presence:
        """Tell whether the list has a row whose update was rejected. Some rejections show it without a reading.

        :raises CpaasError: as of ``find``
        """
        if isinstance(rejection, ACCOUNT_ERRORS) or self.is_about_cells(rejection):
            return Presence.PRESENT
        return await self.find(row_id, rejection)

    async def find(self, row_id: str, rejection: errors.CpaasRejectedError) -> Presence:
        """Tell whether the list has a row whose update or deletion was rejected.

        :raises CpaasError: when the row or the table cannot be read for a reason that is not about the row
        """
        try:
            await self._client.get_contact_row(row_id)
        except ACCOUNT_ERRORS:
            raise
        except errors.CpaasRejectedError as unread:
            if not is_about_row(unread):
                raise
            presence = await self._prove_gone(row_id, rejection, unread)
            if presence is Presence.GONE:
                self._absent.add(_words(rejection))
            return presence
        self.add_read(row_id)
        return Presence.PRESENT

    async def find_unreadable(self, row_id: str, unread: errors.CpaasRejectedError) -> Presence:
        """Tell whether a row is gone whose reading was rejected.

        :raises CpaasError: when that was not about the row, or the table cannot be read
        """
        if isinstance(unread, ACCOUNT_ERRORS) or not is_about_row(unread):
            raise unread
        return await self._prove_gone(row_id, unread)

    async def _prove_gone(self, row_id: str, *responses: errors.CpaasRejectedError) -> Presence:
        """Tell whether a row is gone that could not be read.

        :param responses: what was said of it so far, the reading last
        """
        if responses[-1].is_foreign:
            return Presence.NOT_PROVED
        # A gateway may reject every request, or those for rows alone, and the service may come back at any moment. So
        # the other row is read between two readings of this one.
        is_alone = False
        if not (self._may_read_rows and await self._other_row.begin(self._can_read_known)):
            await self._table.begin(self._client.get_contact_table)
            can_read = await self._can_read_another(row_id)
            is_alone = can_read is None
            if can_read is False or (is_alone and not all(map(self._proves_absence, responses))):
                return Presence.NOT_PROVED
        if (unread := await self._rejection(row_id)) is None:
            return Presence.PRESENT
        return (
            Presence.NOT_PROVED
            if unread.is_foreign or (is_alone and not self._proves_absence(unread))
            else Presence.GONE
        )

    def _proves_absence(self, error: errors.CpaasRejectedError) -> bool:
        """Tell whether a rejection shows that a row is not there, where no other row is known."""
        return names_absence(error) and not (error.may_be_gateway if self._maps else error.is_foreign)

    async def _can_read_known(self) -> bool:
        """Tell whether the row that the list had last can be read now."""
        return self.known_row is not None and await self._rejection(self.known_row) is None

    async def _can_read_another(self, row_id: str) -> bool | None:
        """Tell whether another row of the map can be read, ``None`` if it has no other row."""
        async with self._proof:
            if self._may_read_rows and await self._can_read_known():
                return True
            if self._sample is None:
                self._sample = await asyncio.to_thread(self._some_rows)
            row_ids = [known for known in (self.known_row, *self._sample) if known not in (None, row_id)]
            for known in row_ids:
                if known is not None and known not in self._tried and await self._rejection(known) is None:
                    self.add_read(known)
                    return True
            return False if row_ids else None

    async def _rejection(self, row_id: str) -> errors.CpaasRejectedError | None:
        """Read a row, and return why it cannot be read; ``None`` if it can."""
        self._tried.add(row_id)
        try:
            await self._client.get_contact_row(row_id)
        except ACCOUNT_ERRORS:
            raise
        except errors.CpaasRejectedError as rejection:
            return rejection
        return None

    def _some_rows(self) -> list[str]:
        pages = chain.from_iterable(key_map.pages(states=WITH_ROW, size=_SAMPLE) for key_map in self._maps)
        entries = chain.from_iterable(pages)
        return [entry.row_id for entry in islice(entries, _SAMPLE) if entry.row_id is not None]


def is_about_row(rejection: errors.CpaasRejectedError) -> bool:
    """Tell whether a rejection is an answer about the row. A redirect or an unknown method is none."""
    status = rejection.status or 0
    return status < 300 or status in (400, 404, 409, 410, 422)


def names_absence(error: errors.CpaasRejectedError) -> bool:
    """Tell whether a rejection names, by its status, a row that is not there."""
    return error.status in _NOT_THERE or isinstance(error, errors.CpaasNotFoundError)


def _words(error: errors.CpaasRejectedError) -> str:
    """Return what a rejection says, without the figures and ids that differ from row to row."""
    items = sorted(f"{item.field}:{item.type}" for item in error.items)
    text = "".join(character for character in str(error) if not character.isdigit())
    return f"{error.status} {items or text}"


def empty_columns(record: ContactRowRecord, columns: Iterable[str]) -> list[str]:
    """Return those of these columns in which a row, as the service returned it, has no value."""
    return [column for column in columns if is_empty_cell(record.row.columns.get(column))]


class Unstored(Struct, frozen=True):
    """The columns that are empty in the list, although the service accepted a value for them.

    :param is_proved: whether the row was read; without that, the response may show the row as it was before
    """

    columns: tuple[str, ...] = ()
    is_proved: bool = True

    def reason(self, names: Mapping[str, str]) -> str:
        """Return the reason for a row of which cells were not stored.

        :param names: the names of the list's columns, by id
        """
        columns = ", ".join(names.get(column, column) for column in self.columns)
        if self.is_proved:
            return f"the service accepted the row, and stored no value in {columns}"
        return (
            f"the service accepted the row, and its response has no value in {columns}. The row could not be read to "
            "see whether it is so"
        )


async def find_unstored(client: RowClient, record: ContactRowRecord, cells: Mapping[str, Any]) -> Unstored:
    """Return which cells the service did not store, although it accepted them.

    The response holds the whole row. It may show the row as it was before, so the row is read. If the service rejects
    that, the response counts.

    :param record: the response
    :param cells: the cells that were sent, by column id
    """
    unstored = empty_columns(record, [column for column, cell in cells.items() if not is_empty_cell(cell)])
    if not unstored or record.row.columns.keys().isdisjoint(cells):
        return Unstored()
    try:
        return Unstored(tuple(empty_columns(await client.get_contact_row(record.row.id), unstored)))
    except (errors.CpaasError, StoppedError) as unread:
        is_rejected = isinstance(unread, errors.CpaasRejectedError) and not unread.is_foreign
        return Unstored(tuple(unstored), is_proved=is_rejected)
