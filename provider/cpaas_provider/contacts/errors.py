"""The errors of contact syncs and key maps. No message shows the contents of a row."""

from __future__ import annotations

from collections.abc import Mapping


class ContactsError(Exception):
    """Base of these errors.

    ``permanent`` means that a retry of the task would not help.
    """

    permanent = False


class PermanentContactsError(ContactsError):
    """Base of the errors after which a retry of the task would not help."""

    permanent = True


class MapMismatchError(PermanentContactsError):
    """The key map belongs to another service, another table, or another key."""


class NoMapError(PermanentContactsError):
    """There is no key map of this name."""


class MapNameError(PermanentContactsError):
    """The name cannot be that of a key map."""


class SecondMapError(PermanentContactsError):
    """The key map has no rows, and another one has rows of the same contact list."""


class UnfinishedImportError(PermanentContactsError):
    """The key map contains only a part of an import, which was stopped."""


class CursorError(PermanentContactsError):
    """Values of the cursor column have no common order, so that rows could be passed over."""


class CursorChangedError(ContactsError):
    """The stored cursor does not fit the cursor column or the filled columns, and was removed."""


class LeaseTakenError(ContactsError):
    """Another task holds the lease on the same part of the list.

    :param owner: the task that holds the lease
    """

    def __init__(self, message: str, owner: str) -> None:
        super().__init__(message)
        self.owner = owner


class LeaseLostError(ContactsError):
    """The lease ended, and another task may hold it now. This task must stop."""


class TooManyChangesError(PermanentContactsError):
    """``max_changes``, ``max_deletes`` or ``max_new`` stopped the sync before its first request.

    :param exceeded: the rows that each of these limits would have to allow; empty if none of them can allow it
    """

    def __init__(self, message: str, exceeded: Mapping[str, int] | None = None) -> None:
        super().__init__(message)
        self.exceeded = exceeded or {}


class TooManyFailuresError(PermanentContactsError):
    """More rows failed than ``max_failure_ratio`` allows."""


class UnknownCreationsError(PermanentContactsError):
    """The outcome of some creations is unknown, and ``on_unknown`` is ``fail``."""


class NotSyncedError(ContactsError):
    """Some rows were not sent. The next try sends them."""


class SpoolError(ContactsError):
    """The rows could not be stored on the worker's disk."""


class MapFileError(PermanentContactsError):
    """A file cannot be imported into a key map, or a key map cannot be exported to it."""


class CannotResolveError(PermanentContactsError):
    """The manual resolution of a creation was refused. Nothing was changed."""


class ColumnsChangedError(ContactsError):
    """The columns of the contact table changed while rows were sent. The next try reads them again."""


class RowUpdatesError(PermanentContactsError):
    """The service clears the cells that an update does not send. The connection's ``row_updates`` must be ``whole``."""


class UncheckedUpdateError(RowUpdatesError):
    """After an update other cells of a row seem to be empty, and a request to find out why failed."""

    permanent = False


class OtherRowError(PermanentContactsError):
    """The response to a creation has the id or the cells of another row, so the outcome of the creation is unknown."""


class SharedRowError(PermanentContactsError):
    """Another key, in any map of the list, has the row that was to be recorded. Nothing of the write was recorded."""


class UnstoredCellsError(PermanentContactsError):
    """The service accepted a row, and did not store some of its cells."""


class StoppedError(ContactsError):
    """The task was asked to stop, or its time limit is reached."""
