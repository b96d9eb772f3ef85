"""Reads a file with the plain keys and the row ids of a contact list."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

from cpaas_provider.api.amounts import counted
from cpaas_provider.api.redact import describe_columns
from cpaas_provider.api.values import as_text, is_blank, plain
from cpaas_provider.contacts.errors import MapFileError
from cpaas_provider.contacts.key_map.entries import MapEntry
from cpaas_provider.contacts.key_map.files.map_files import check_row_id
from cpaas_provider.contacts.key_map.hashes import ContactHashes
from cpaas_provider.contacts.key_map.staging import Shared, StagedEntry
from cpaas_provider.contacts.mapping.keys import key_texts
from cpaas_provider.sources.base import InvalidRow, Source
from cpaas_provider.sources.tables import missing_columns

_SHOWN = 10


@dataclass
class Faults:
    """The reasons why a file cannot be imported.

    :param lines: the first lines with each fault, by reason
    :param counts: the number of lines with each fault, by reason
    """

    lines: dict[str, list[str]] = field(default_factory=dict)
    counts: Counter[str] = field(default_factory=Counter)

    def add(self, reason: str, line: int) -> None:
        """Add a fault of one line."""
        self.counts[reason] += 1
        if len(shown := self.lines.setdefault(reason, [])) < _SHOWN:
            shown.append(str(line))

    def add_shared(self, reason: str, shared: Shared) -> None:
        """Add a fault of several lines together."""
        if shared.number:
            self.counts[reason] = shared.number
            self.lines[reason] = [f"{first} and {last}" for first, last in shared.lines]

    def refuse(self, source: object, fault: str = "cannot be imported. Nothing was written.") -> None:
        """Refuse the file if it has faults.

        :param fault: that the file cannot be used, and what was not done
        :raises MapFileError: names all faults
        """
        if not self.counts:
            return
        reasons = [
            f"{reason} ({counted(count, 'time')}, {'first ' if count > len(self.lines[reason]) else ''}on line "
            f"{', '.join(self.lines[reason])})."
            for reason, count in self.counts.items()
        ]
        raise MapFileError(f"{source} {fault} {' '.join(reasons)}")


def read_list(
    source: Source, key: Sequence[str], row_id_column: str, hashes: ContactHashes, faults: Faults
) -> Iterator[StagedEntry]:
    """Yield an entry with its line for each row that can be used, and add the others to ``faults``."""
    with source.open() as table:
        wanted = [*key, row_id_column]
        if table.columns is not None and (missing := missing_columns(source, table.columns, wanted)):
            raise MapFileError(
                f"{source} has no column {', '.join(missing)}. {describe_columns(table.columns)}. Nothing was written."
            )
        for row in table.rows(wanted):
            if isinstance(row, InvalidRow):
                faults.add(f"A row {row.reason}", row.number)
                continue
            *parts, row_id = row.values
            try:
                texts = key_texts(parts)
                row_id = None if is_blank(row_id) else check_row_id(as_text(plain(row_id)))
            except ValueError as error:
                faults.add(f"A key or row id cannot be used: {error}", row.number)
                continue
            if texts is None:
                faults.add("The key is blank", row.number)
            elif not row_id:
                faults.add("The row id is blank", row.number)
            elif any(character.isspace() for character in row_id):
                faults.add("The row id has blanks", row.number)
            else:
                yield StagedEntry(row.number, MapEntry(hashes.of_key(texts), row_id=row_id))
