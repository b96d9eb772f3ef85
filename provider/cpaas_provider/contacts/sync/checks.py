"""The checks of a sync before its first request: that key, mapping and columns fit the map and the list."""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from cpaas_provider.api.bounds import WHOLE
from cpaas_provider.api.errors import CpaasInvalidRequestError
from cpaas_provider.api.recipients.msisdn import NumberReader
from cpaas_provider.contacts.errors import MapMismatchError
from cpaas_provider.contacts.key_map.key_map import KeyMap
from cpaas_provider.contacts.key_map.overview import KEY_COLUMNS
from cpaas_provider.contacts.mapping.columns import ContactColumns
from cpaas_provider.contacts.mapping.rows import RowMapping
from cpaas_provider.contacts.mapping.rules import unfilled_message
from cpaas_provider.contacts.sync.decisions import SyncRules

if TYPE_CHECKING:
    from cpaas_provider.api.models.contacts import ContactTable

log = logging.getLogger(__name__)

_COLUMN_TYPES, _COLUMNS = "column_types", "columns"
"""Names of values that a map stores beside its rows."""


def stored_columns(mapping: RowMapping) -> dict[str, Any]:
    """Return the values to store in the map, with which the next sync is compared."""
    return {_COLUMN_TYPES: mapping.type_signature, _COLUMNS: sorted(mapping.column_sources)}


def check_key(key_map: KeyMap, key: Sequence[str], arguments: str) -> None:
    """Refuse a key other than that of the rows in the map.

    :param arguments: the map as the arguments of a command
    :raises MapMismatchError: when the map has rows of another key
    """
    stored = key_map.value(KEY_COLUMNS)
    if stored is not None and list(stored) != list(key) and any(key_map.counts().values()):
        raise MapMismatchError(
            f"The contact map {key_map.facts.name!r} was made with the key {' and '.join(stored)}. With another "
            "key every row would be created again. Nothing was sent. Use that key. If its columns were only "
            f"renamed, run: airflow cpaas contacts move-map {arguments} "
            f"{' '.join(f'--key {name}' for name in key)}. If rows have other keys now, import their "
            "row ids into another map with: airflow cpaas contacts import-map"
        )


def encode_missing_cells(
    table: ContactTable, missing_cells: Mapping[str, Any], numbers: NumberReader, empty_cell_value: Any
) -> dict[str, Any]:
    """Return the cells to write into rows that are missing from the source, by column id."""
    if not missing_cells:
        return {}
    try:
        return ContactColumns(table).encode(missing_cells, numbers=numbers, empty_cell_value=empty_cell_value)
    except CpaasInvalidRequestError as error:
        raise CpaasInvalidRequestError(f"on_missing: {error}") from None


def check_mapping(
    mapping: RowMapping, rules: SyncRules, key_map: KeyMap, table: ContactTable, *, takes_columns_by_name: bool
) -> None:
    """Log the columns and changes of their types, and refuse a sync that would leave a column as it is without a word.

    :param takes_columns_by_name: whether the author maps no columns, so that those of the same name are taken
    :raises CpaasInvalidRequestError: when a column that the last sync filled by its name alone is gone from source
        or list, when ``on_missing`` writes into a column that no row of the source fills, or when updates that clear
        the cells they do not send cannot work
    """
    if rules.row_updates == WHOLE:
        _check_whole_rows(mapping, rules, table)
    stored = key_map.value(_COLUMN_TYPES)
    if stored is not None and (changed := mapping.changed_types(stored)):
        log.warning(
            "The types of columns changed at the service since the last sync: %s. Cells that do not fit the new "
            "type are invalid rows now.",
            "; ".join(changed),
        )
    column_sources = mapping.column_sources
    log.info(
        "Columns of the list: %s.",
        "; ".join(
            f"{column} from {' and '.join(sources) if sources else 'a constant'}"
            for column, sources in column_sources.items()
        ),
    )
    gone = sorted(set(key_map.value(_COLUMNS) or ()) - set(column_sources))
    if gone and takes_columns_by_name:
        raise CpaasInvalidRequestError(
            f"The last sync filled {' and '.join(map(repr, gone))}, and source and list no longer share that name. "
            "Nothing was sent. If a column was renamed, map it in columns, such as columns={'List column': "
            "'source_column'}. If it should no longer be sent, name the others in columns."
        )
    names = {column.id: column.name for column in table.columns}
    written = [names[column] for column in rules.missing_cells]
    if unfilled := [name for name in written if name not in column_sources]:
        raise CpaasInvalidRequestError(unfilled_message(unfilled))


def _check_whole_rows(mapping: RowMapping, rules: SyncRules, table: ContactTable) -> None:
    """Refuse what cannot work if an update clears the cells that it does not send."""
    if rules.on_invalid_cell == "skip_cell":
        raise CpaasInvalidRequestError(
            "The connection's row_updates is whole, so an update without the invalid cell would clear it. Nothing "
            "was sent. Use on_invalid_cell='skip_row'."
        )
    if faults := mapping.whole_row_faults(rules.missing_cells):
        raise CpaasInvalidRequestError(
            "The connection's row_updates is whole, so each update must send all cells of its row. "
            f"{'; '.join(faults)}. Nothing was sent. Remove keep_when_blank from the mapping, and use on_missing "
            "'keep' or 'delete', or have it write every column of the mapping."
        )
    if unfilled := mapping.columns_not_filled(table):
        log.warning(
            "row_updates of the connection is whole: updates send no cells of %s, which the mapping does not fill. "
            "A service that clears such cells empties them.",
            ", ".join(unfilled),
        )
