"""Importing into a key map: a map that was exported from another database, or the row ids of an existing list.

The whole file is checked before the first write. During the import the map is marked as incomplete, and no sync gets a
lease on it. An import that was stopped continues when it is started again with the same rows.
"""

from __future__ import annotations

import contextlib
import functools
import json
import secrets
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from msgspec import Struct
from sqlalchemy import Connection, insert, select, update

from cpaas_provider.api.amounts import counted
from cpaas_provider.api.settings import canonical_base_url
from cpaas_provider.contacts.errors import MapFileError, MapMismatchError, NoMapError
from cpaas_provider.contacts.key_map.entries import Change, MapEntry, MapFacts
from cpaas_provider.contacts.key_map.files.list_files import Faults, read_list
from cpaas_provider.contacts.key_map.files.map_files import Progress, open_export
from cpaas_provider.contacts.key_map.hashes import ContactHashes
from cpaas_provider.contacts.key_map.key_map import IMPORTING, KeyMap, Lease
from cpaas_provider.contacts.key_map.maps import insert_map, maps_of_list, remove_map
from cpaas_provider.contacts.key_map.overview import CURSOR, KEY_COLUMNS, checked_map, owner_of, released
from cpaas_provider.contacts.key_map.rejections import rejection_from_json
from cpaas_provider.contacts.key_map.staging import StagedEntry, Staging
from cpaas_provider.database.bulk import batched
from cpaas_provider.database.database import Database
from cpaas_provider.database.schema.contacts import contact_map_values, contact_maps
from cpaas_provider.sources.base import Source
from cpaas_provider.sources.files import FileSource


class Target(Struct, frozen=True):
    """The map to import into.

    :param base_url: the base URL of its connection
    :param table_id: the contact table at that service
    """

    database: Database
    conn_id: str
    name: str
    base_url: str
    table_id: str


@dataclass
class ImportReport:
    """The result of an import, or of a dry run.

    :param rows: rows in the file
    :param added: entries that were added
    :param present: entries that the map had already
    :param replaced: entries that got another row id
    :param removed: removed entries of other keys or other maps, which had a row id of the file
    :param changed: entries that were not written, because another task changed them meanwhile. An import that replaces
        row ids is then not finished
    """

    rows: int = 0
    added: int = 0
    present: int = 0
    replaced: int = 0
    removed: int = 0
    changed: int = 0


def restore_map(target: Target, source: FileSource, progress: Progress, *, dry_run: bool = False) -> ImportReport:
    """Import a file of ``export_map`` into a map that is empty or does not exist, so that no row is sent again.

    :param progress: called with the progress
    :param dry_run: check everything and write nothing
    :raises MapFileError: when the file is damaged, or the map has other entries; nothing was written
    :raises MapMismatchError: when the file belongs to another list
    :raises LeaseTakenError: when a task works on the list
    :raises SourceError: when the file cannot be read
    :raises DatabaseError: when the database cannot be used
    """
    with Staging() as staging, open_export(source) as (exported, entries):
        if exported.secret is None:
            raise MapFileError(
                f"{source} was exported without its secret. Nothing was written. Export the map with the secret."
            )
        for name, in_file, in_target in (
            ("base URL", canonical_base_url(exported.base_url), canonical_base_url(target.base_url)),
            ("contact table", exported.table_id, target.table_id),
        ):
            if in_file != in_target:
                raise MapMismatchError(
                    f"{source} was exported from a map of another {name}. Nothing was written. Its row ids mean "
                    "nothing there. Name a connection that leads to the same contact list."
                )
        work = _Import(target, source, staging, progress, _is_equal)
        work.stage(entries, Faults(), "The same key is there twice", "The same row id is there twice")
        existing = _find_target_map(target)
        if existing is not None and existing.facts.secret != exported.secret and any(existing.counts().values()):
            raise MapFileError(
                f"The contact map {target.name!r} of connection {target.conn_id!r} has entries of its own. Nothing was "
                "written. Name another map with --map."
            )
        return work.run(existing, exported.secret, exported.values, dry_run=dry_run)


def adopt_rows(
    target: Target,
    source: Source,
    key: Sequence[str],
    progress: Progress,
    *,
    row_id_column: str = "row_id",
    replace_row_ids: bool = False,
    dry_run: bool = False,
) -> ImportReport:
    """Import the row ids of an existing list, so that no row is created twice.

    The next sync sends all cells of these rows once.

    :param key: the columns of the key, as the sync names them
    :param progress: called with the progress
    :param row_id_column: the column of the row ids
    :param replace_row_ids: use the file's row id if the map has another row id for a key, or another key for a row id,
        and take rows from other maps of the connection
    :param dry_run: check everything and write nothing
    :raises MapFileError: when a key or row id is blank, there twice, or differs from the map; names the lines; nothing
        was written
    :raises MapMismatchError: when the map belongs to another list or has another key
    :raises LeaseTakenError: when a task works on the list
    :raises SourceError: when the file cannot be read
    :raises DatabaseError: when the database cannot be used
    """
    existing = _find_target_map(target)
    stored = existing.value(KEY_COLUMNS) if existing is not None and any(existing.counts().values()) else None
    if stored is not None and list(stored) != list(key):
        raise MapMismatchError(
            f"The keys of contact map {target.name!r} are made of the columns {', '.join(stored)}. Nothing was "
            "written. Give the same columns in the same order with --key."
        )
    secret = secrets.token_hex(16) if existing is None else existing.facts.secret
    faults = Faults()
    with Staging() as staging:
        work = _Import(target, source, staging, progress, _has_row, replaces=replace_row_ids)
        entries = read_list(source, key, row_id_column, ContactHashes(secret), faults)
        work.stage(entries, faults, "The same key is on several lines", "The same row id is on several lines")
        # The rows may be below the cursor, and the next sync sends all their cells.
        return work.run(existing, secret, {KEY_COLUMNS: list(key), CURSOR: None}, dry_run=dry_run)


def _find_target_map(target: Target) -> KeyMap | None:
    """Return the map, ``None`` if it does not exist.

    :raises MapMismatchError: when it belongs to another list
    """
    try:
        return checked_map(
            target.database,
            conn_id=target.conn_id,
            base_url=target.base_url,
            table_id=target.table_id,
            name=target.name,
        )
    except NoMapError:
        return None


@dataclass
class _Import:
    """Writes the rows of a file into a map.

    :param is_present: compares an entry of the map with the file's entry for the same key
    :param replaces: whether the file's entry replaces a different entry of the map, and the entries of its row in other
        maps of the connection
    """

    target: Target
    source: object
    staging: Staging
    progress: Progress
    is_present: Callable[[MapEntry, MapEntry], bool]
    replaces: bool = False
    report: ImportReport = field(default_factory=ImportReport)

    def stage(self, entries: Iterator[StagedEntry], faults: Faults, same_key: str, same_row_id: str) -> None:
        """Read the whole file.

        :param faults: receives the faults that are found while entries are read
        :param same_key: the fault of lines with the same key
        :param same_row_id: the fault of lines with the same row id
        :raises MapFileError: when the file has faults
        """
        self.report.rows = self.staging.add(self._counting(entries))
        faults.add_shared(same_key, self.staging.shared_keys())
        faults.add_shared(same_row_id, self.staging.shared_row_ids())
        faults.refuse(self.source)

    def _counting(self, rows: Iterator[StagedEntry]) -> Iterator[StagedEntry]:
        for count, row in enumerate(rows, 1):
            yield row
            if not count % 1_000:
                self.progress("read", count)

    def run(self, existing: KeyMap | None, secret: str, values: dict[str, Any], *, dry_run: bool) -> ImportReport:
        """Check all rows, then write them.

        :param existing: the map, if it exists
        :param secret: the secret with which the file's keys are hashed
        :param values: the values to store beside the rows at the end
        """
        reused = existing if existing is not None and existing.facts.secret == secret else None
        if reused is not None:
            self._check_resumed(reused)
        taken = self._check_other_maps()
        if dry_run:
            if reused is None:
                self.report.added = self.report.rows
            else:
                self._check(reused, None)
            return self.report
        with contextlib.ExitStack() as leases:
            # No sync of another map may use its rows until this map has them.
            others = [
                (leases.enter_context(released(other_map.lease(owner_of("import-map")))), entries)
                for other_map, entries in taken.items()
            ]
            key_map = reused or _new_map(self.target, secret, existing, {IMPORTING: self._marks})
            lease = leases.enter_context(released(key_map.lease(owner_of("import-map"), while_importing=True)))
            replaced_rows = self._check(key_map, lease)
            lease.write([], {IMPORTING: self._marks})
            for other_lease, entries in others:
                self._remove(other_lease, entries)
            done = 0
            for page in self.staging.pages():
                self._write(lease, page)
                done += len(page)
                self.progress("written", done)
            self._remove(lease, replaced_rows)
            # What another task wrote meanwhile may have left a row with two keys, which no sync may see.
            if not (self.replaces and self.report.changed):
                lease.write([], {**values, IMPORTING: None})
        return self.report

    def _check_other_maps(self) -> dict[KeyMap, list[MapEntry]]:
        """Return the entries of other maps of the list that have row ids of the file.

        :raises MapFileError: when the file must not take these rows: a sync of one map would delete rows of the other
        """
        faults = Faults()
        taken: dict[KeyMap, list[MapEntry]] = {}
        for other_map in maps_of_list(self.target.database, self.target.base_url, self.target.table_id):
            facts = other_map.facts
            if (facts.conn_id, facts.name) == (self.target.conn_id, self.target.name):
                continue
            # Another connection may lead to another account, which may have the same row ids.
            may_take = self.replaces and facts.conn_id == self.target.conn_id
            for page in self.staging.pages():
                lines = {row.entry.row_id: row.line for row in page if row.entry.row_id is not None}
                for entry in other_map.entries_of_rows(lines):
                    line = lines[entry.row_id or ""]
                    if not may_take:
                        named = f"The contact map {facts.name!r} of connection {facts.conn_id!r}"
                        faults.add(f"{named} has the row already, and a row belongs to one map", line)
                    elif entry.is_busy():
                        faults.add("A task has a request for the row under way", line)
                    else:
                        taken.setdefault(other_map, []).append(entry)
        faults.refuse(self.source)
        self.report.removed = sum(map(len, taken.values()))
        return taken

    def _remove(self, lease: Lease, entries: Sequence[MapEntry]) -> None:
        """Remove entries, except those that another task changed meanwhile."""
        for batch in batched(entries):
            self.report.changed += len(lease.write([Change(entry, None) for entry in batch]))

    @functools.cached_property
    def _marks(self) -> dict[str, Any]:
        return {"rows": self.report.rows, "digest": self.staging.digest()}

    def _check_resumed(self, key_map: KeyMap) -> None:
        """Check that a stopped import is resumed with the same file. Otherwise the map would have rows of both files.

        :raises MapFileError: when the map contains a part of another file
        """
        begun = key_map.value(IMPORTING) or {}
        if begun and any(begun.get(name, value) != value for name, value in self._marks.items()):
            raise MapFileError(
                f"The contact map {self.target.name!r} holds a part of another import, of a file with "
                f"{counted(begun['rows'], 'row')}. They differ from the rows of {self.source}. Nothing was written. "
                "Finish that import with its own file. To give it up, export the map, then remove it with: airflow "
                f"cpaas contacts forget-map --conn-id {self.target.conn_id} --map {self.target.name}. The provider "
                "then no longer knows the rows in it, and a sync creates them again."
            )

    def _write(self, lease: Lease, page: Sequence[StagedEntry]) -> None:
        current = lease.key_map.entries(row.entry.key_hash for row in page)
        imported = {row.entry.key_hash: row.entry for row in page}
        rejected = {row.entry.key_hash: row.rejection for row in page}
        changes = []
        for key_hash, entry in imported.items():
            before = current.get(key_hash)
            if before is None or self._is_replaced(before, entry):
                changes.append(Change(before or MapEntry(key_hash), entry))
            elif not self.is_present(before, entry):
                self.report.changed += 1
        rejections = [
            rejection_from_json(change.before.key_hash, text)
            for change in changes
            if (text := rejected[change.before.key_hash]) is not None
        ]
        for key_hash, now in lease.write(changes, None, rejections, moves_rows=self.replaces).items():
            if now is None or not self.is_present(now, imported[key_hash]):
                self.report.changed += 1

    def _check(self, key_map: KeyMap, lease: Lease | None) -> list[MapEntry]:
        """Compare the file with the map, and return the entries of other keys that have row ids of the file.

        :raises MapFileError: when the file must not be imported
        """
        faults = Faults()
        done = 0
        for page in self.staging.pages():
            current = key_map.entries(row.entry.key_hash for row in page)
            for line, entry, _ in page:
                self._compare(line, entry, current.get(entry.key_hash), faults)
            done += len(page)
            self._report_checked(lease, done)
        replaced_rows: list[MapEntry] = []
        for entries in key_map.pages():
            staged = self.staging.by_row_id({entry.row_id for entry in entries if entry.row_id is not None})
            # Two keys have one row if an earlier import was not finished.
            for entry in entries:
                line, key_hash = staged.get(entry.row_id or "", (0, entry.key_hash))
                if entry.key_hash == key_hash:
                    continue
                if not self.replaces:
                    faults.add("The map has another key for the row", line)
                elif entry.is_busy():
                    faults.add("A task has a request for the row under way", line)
                elif not self.staging.has([entry.key_hash]):
                    replaced_rows.append(entry)
            self._report_checked(lease, done)
        faults.refuse(self.source)
        self.report.removed += len(replaced_rows)
        return replaced_rows

    def _compare(self, line: int, entry: MapEntry, before: MapEntry | None, faults: Faults) -> None:
        if before is None:
            self.report.added += 1
        elif self.is_present(before, entry):
            self.report.present += 1
        elif self._is_replaced(before, entry):
            self.report.replaced += 1
        elif before.is_busy():
            faults.add("A task has a request for the key under way", line)
        else:
            faults.add("The map has another row id or other hashes for the key", line)

    def _is_replaced(self, before: MapEntry, entry: MapEntry) -> bool:
        """Return whether the file's entry replaces the map's entry."""
        if self.is_present(before, entry) or before.is_busy():
            return False
        return self.replaces or (before.row_id is None and entry.row_id is not None)

    def _report_checked(self, lease: Lease | None, done: int) -> None:
        if lease is not None:
            lease.renew_if_due()
        self.progress("checked", done)


def _has_row(before: MapEntry, entry: MapEntry) -> bool:
    return before.row_id == entry.row_id


def _is_equal(before: MapEntry, entry: MapEntry) -> bool:
    """Return whether two entries are equal, apart from version and fencing token, which the database sets."""
    return replace(before, version=0, fencing_token=None, cell_hashes=before.cell_hashes or None) == entry


def _new_map(target: Target, secret: str, empty: KeyMap | None, values: Mapping[str, Any]) -> KeyMap:
    """Make a map with the given secret. It replaces the empty map, if there is one.

    :param empty: the map that was found empty, ``None`` if there was none
    :raises MapFileError: when another task made a map meanwhile, or the map is no longer empty
    :raises LeaseTakenError: when a task works on the list
    """
    lease = None if empty is None else empty.lease(owner_of("import-map"), while_importing=True)
    is_target = contact_maps.c.conn_id == target.conn_id, contact_maps.c.name == target.name

    def work(connection: Connection) -> MapFacts:
        stored = connection.execute(select(contact_maps).where(*is_target).with_for_update()).one_or_none()
        expected = None if lease is None else (lease.key_map.facts.map_id, lease.fencing_token)
        if (None if stored is None else (stored.id, stored.fencing_token)) != expected:
            raise MapFileError(
                f"Another task used the contact map {target.name!r} meanwhile. Nothing was written. Run the command "
                "again."
            )
        if stored is not None:
            # The old map is renamed now and removed after the new one is inserted, so that the new one gets another
            # id. A task that has read the old secret must not find a map by the old id.
            aside = f"replaced {secrets.token_hex(8)}"
            connection.execute(update(contact_maps).where(contact_maps.c.id == stored.id).values(name=aside))
        facts = insert_map(
            connection,
            conn_id=target.conn_id,
            name=target.name,
            base_url=target.base_url,
            table_id=target.table_id,
            secret=secret,
        )
        for name, value in values.items():
            text = json.dumps(value)
            connection.execute(insert(contact_map_values).values(map_id=facts.map_id, key=name, value=text))
        if stored is not None and remove_map(connection, stored.id):
            raise MapFileError(f"The contact map {target.name!r} is no longer empty. Nothing was written.")
        return facts

    return KeyMap(target.database, target.database.write(work))
