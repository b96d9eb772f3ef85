"""Exports a key map to a file, and reads such a file, to move a map to another database.

The file is CSV between a first and a last line of its own. The first line names the list and contains the map's
secret. The last line has the number of entries, so that an incomplete file is noticed. With the secret, the hash
of a known key can be computed, so only the file's owner may read it.
"""

from __future__ import annotations

import contextlib
import csv
import io
import json
import os
import re
from collections.abc import Callable, Iterator, Sequence
from datetime import datetime
from pathlib import Path
from typing import IO, Any

from msgspec import Struct

from cpaas_provider._common.local_files import create_text_file
from cpaas_provider.api.values import missing_word
from cpaas_provider.contacts.errors import MapFileError
from cpaas_provider.contacts.key_map.entries import MapEntry, RowState
from cpaas_provider.contacts.key_map.hashes import KEY_BYTES
from cpaas_provider.contacts.key_map.key_map import IMPORTING, KeyMap, Lease
from cpaas_provider.contacts.key_map.overview import is_alone, leases_of, owner_of, released, values_of
from cpaas_provider.contacts.key_map.rejections import Rejection, rejection_from_json, rejection_to_json
from cpaas_provider.contacts.key_map.staging import StagedEntry
from cpaas_provider.sources.files import FileSource

MAX_ROW_ID = 200
"""The most characters of a row id."""

Progress = Callable[[str, int], None]
"""Called repeatedly with the current step, such as ``checked``, and the number of rows so far."""

_HEAD = "# cpaas contact map "
_END = "# end of the contact map: "
_VERSION = 2
_COLUMNS = (
    *("key_hash", "row_id", "state", "raw_hash", "rejected_hash", "missing_hash", "cell_hashes", "source_row"),
    *("requested", "rejection"),
)
_HEX = re.compile("[0-9a-f]*")
_ENTRY_DIGITS = 24
_FORMULA = "=+-@\t\r'"
"""A spreadsheet would compute a cell that begins with one of these."""


class ExportFacts(Struct, frozen=True):
    """The first line of an exported file.

    :param secret: ``None`` if the map was exported without it
    :param values: the values that are stored beside the rows
    """

    base_url: str
    table_id: str
    secret: str | None
    values: dict[str, Any]


def export_map(key_map: KeyMap, path: Path, progress: Progress, *, with_secret: bool = True) -> int:
    """Write a map to a new file that only its owner may read, and return the number of entries.

    :param progress: called after each page
    :param with_secret: include the secret; a file without it cannot be imported
    :raises MapFileError: when the file exists already or cannot be written, or when the map changed meanwhile; no file
        is left
    :raises LeaseTakenError: when a task works on the list
    :raises DatabaseError: when the database cannot be used
    """
    with released(key_map.lease(owner_of("export-map"))) as lease:
        owners = [held.owner for held in leases_of(key_map) if held.owner != lease.owner]
        if owners:
            raise MapFileError(f"{owners[0]} writes to this contact map now. Nothing was exported. Try again later.")
        try:
            with create_text_file(path) as file:
                count = _write(key_map, file, lease, progress, with_secret=with_secret)
                if not is_alone(lease):
                    raise MapFileError(
                        "Another task wrote to the contact map during the export. Nothing was exported, because "
                        "the file would miss rows. Run the command again while no task uses the map."
                    )
        except FileExistsError:
            raise MapFileError(f"{path} exists. Nothing was exported. Name another file, or remove this one.") from None
        except OSError as error:
            raise MapFileError(
                f"{path} cannot be written ({error.strerror or type(error).__name__}). Nothing was exported."
            ) from None
    return count


def _write(key_map: KeyMap, file: IO[str], lease: Lease, progress: Progress, *, with_secret: bool) -> int:
    facts = key_map.facts
    values = {name: value for name, value in values_of(key_map).items() if name != IMPORTING}
    head = {
        "version": _VERSION,
        "base_url": facts.base_url,
        "table_id": facts.table_id,
        "secret": facts.secret if with_secret else None,
        "values": values,
    }
    file.write(f"{_HEAD}{json.dumps(head)}\n")
    lines = csv.writer(file, lineterminator="\n")
    lines.writerow(_COLUMNS)
    count = 0
    for page in key_map.pages():
        rejected = key_map.rejections(entry.key_hash for entry in page if entry.rejected_hash is not None)
        lines.writerows(_cells(entry, rejected.get(entry.key_hash)) for entry in page)
        count += len(page)
        lease.renew_if_due()
        progress("exported", count)
    file.write(f"{_END}{count}\n")
    file.flush()
    os.fsync(file.fileno())
    return count


def _cells(entry: MapEntry, rejection: Rejection | None) -> tuple[Any, ...]:
    hashes = (entry.raw_hash, entry.rejected_hash, entry.missing_hash, entry.cell_hashes)
    return (
        entry.key_hash.hex(),
        _escaped(entry.row_id),
        entry.state.name.lower(),
        *((packed or b"").hex() for packed in hashes),
        entry.source_row,
        entry.requested.isoformat() if entry.requested else None,
        None if rejection is None else rejection_to_json(rejection),
    )


def _escaped(row_id: str | None) -> str | None:
    """Return a row id, with an apostrophe before it if a spreadsheet would compute it."""
    return f"'{row_id}" if row_id and row_id[0] in _FORMULA else row_id


def is_export(source: FileSource) -> bool:
    """Return whether a file was written by ``export_map``.

    :raises SourceError: when it cannot be read
    """
    with source.open_bytes() as stream:
        return stream.read(len(_HEAD)) == _HEAD.encode()


@contextlib.contextmanager
def open_export(source: FileSource) -> Iterator[tuple[ExportFacts, Iterator[StagedEntry]]]:
    """Open an exported file. Yield its first line, and an iterator of its entries with lines and rejections.

    :raises MapFileError: when the file is damaged; reading the entries raises it, too
    :raises SourceError: when it cannot be read
    """
    with source.open_bytes() as stream:
        text = io.TextIOWrapper(stream, encoding="utf-8", newline="")
        try:
            head = text.readline()
        except UnicodeDecodeError:
            raise _damaged(source, 1, "it is not UTF-8") from None
        yield _read_head(source, head), _read_entries(source, text)


def _read_head(source: FileSource, line: str) -> ExportFacts:
    try:
        head = json.loads(line.removeprefix(_HEAD))
        version = head["version"]
        facts = ExportFacts(str(head["base_url"]), str(head["table_id"]), head["secret"], dict(head["values"]))
        if facts.secret is not None and not re.fullmatch("[0-9a-f]{32,64}", facts.secret):
            raise ValueError
    except (KeyError, TypeError, ValueError):
        raise _damaged(source, 1, "it does not name the contact map") from None
    if version != _VERSION:
        raise MapFileError(
            f"{source} was written by another version of airflow-provider-cpaas. Nothing was written. Export the map "
            "with this version."
        )
    return facts


class _Lines:
    """The CSV lines of a file. ``end`` is the number in the last line once it was read."""

    def __init__(self, text: io.TextIOWrapper) -> None:
        self._text = text
        self.end: str | None = None

    def __iter__(self) -> Iterator[str]:
        for line in self._text:
            if line.startswith(_END):
                self.end = line.removeprefix(_END).strip() + ("" if self._text.readline() == "" else " and more")
                return
            yield line


def _read_entries(source: FileSource, text: io.TextIOWrapper) -> Iterator[StagedEntry]:
    lines = _Lines(text)
    records = csv.reader(iter(lines), strict=True)
    count = 0
    try:
        if tuple(next(records, ())) != _COLUMNS:
            raise _damaged(source, 2, "it does not name the columns of an export")
        for cells in records:
            count += 1
            entry = _entry(cells[:-1])
            if cells[-1]:
                rejection_from_json(entry.key_hash, cells[-1])
            yield StagedEntry(records.line_num + 1, entry, cells[-1] or None)
    except UnicodeDecodeError:
        raise _damaged(source, records.line_num + 2, "it is not UTF-8") from None
    except (csv.Error, ValueError) as error:
        raise _damaged(source, records.line_num + 1, str(error)) from None
    if lines.end != str(count):
        raise MapFileError(
            f"{source} is incomplete: its last line does not count the {count} entries before it. Nothing was written. "
            "Copy or export it again."
        )


def _entry(cells: Sequence[str]) -> MapEntry:
    if len(cells) != len(_COLUMNS) - 1:
        raise ValueError("it has too few or too many cells")
    key_hash, row_id, state, raw, rejected, missing, packed, source_row, requested = cells
    row_state = next((member for member in RowState if member.name.lower() == state), None)
    if row_state is None:
        raise ValueError("its state is unknown")
    row_id = row_id.removeprefix("'")
    if row_id:
        check_row_id(row_id)
    elif row_state in (RowState.SYNCED, RowState.UPDATING, RowState.DELETING):
        raise ValueError("it has no row id")
    if not key_hash:
        raise ValueError("it has no key")
    return MapEntry(
        key_hash=_bytes(key_hash, KEY_BYTES) or b"",
        state=row_state,
        row_id=row_id or None,
        raw_hash=_bytes(raw, KEY_BYTES),
        rejected_hash=_bytes(rejected, KEY_BYTES),
        missing_hash=_bytes(missing, KEY_BYTES),
        cell_hashes=_bytes(packed, None),
        source_row=int(source_row) if source_row else None,
        requested=datetime.fromisoformat(requested) if requested else None,
    )


def _bytes(digits: str, size: int | None) -> bytes | None:
    """Read a hash of ``size`` bytes, or the packed hashes of a row's cells if ``size`` is ``None``."""
    if not digits:
        return None
    wrong = len(digits) % _ENTRY_DIGITS if size is None else len(digits) - 2 * size
    if wrong or not _HEX.fullmatch(digits):
        raise ValueError("a hash is damaged, as when a spreadsheet saved the file")
    return bytes.fromhex(digits)


def check_row_id(row_id: str) -> str:
    """Check a row id, and return it unchanged.

    :raises ValueError: when it cannot be a row id
    """
    if len(row_id) > MAX_ROW_ID or not row_id.isprintable():
        raise ValueError(f"the row id has control characters or more than {MAX_ROW_ID} characters")
    if (word := missing_word(row_id)) is not None:
        raise ValueError(f"the row id is the word {word}, which means that there is no value")
    return row_id


def _damaged(source: FileSource, line: int, reason: str) -> MapFileError:
    return MapFileError(f"{source} is damaged on line {line}: {reason}. Nothing was written. Copy or export it again.")
