"""Binds the rules to the contact table and the source before the first row: a reader and a parser for each column."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from operator import itemgetter
from typing import TYPE_CHECKING, Any

from cpaas_provider.api.errors import CpaasInvalidRequestError
from cpaas_provider.contacts.mapping.cells import FIELDS_OF_TYPE, Parse, cell_parser, column_type
from cpaas_provider.contacts.mapping.columns import ContactColumns
from cpaas_provider.contacts.mapping.parsing.values import as_text, is_blank, plain
from cpaas_provider.contacts.mapping.rules import CellTemplate, ColumnRule

if TYPE_CHECKING:
    from cpaas_provider.api.models.contacts import ContactColumn, ContactTable

_TYPED_FIELDS = frozenset().union(*FIELDS_OF_TYPE.values())


@dataclass(frozen=True, slots=True)
class BoundColumn:
    """A column that is written: the source columns it reads, and the parser that makes its cells."""

    id: str
    name: str
    type: str
    reads: tuple[str, ...]
    read: Callable[[Mapping[str, Any]], Any]
    parse: Parse
    keep_when_blank: bool


def bind_columns(
    rules: Mapping[str, ColumnRule],
    table: ContactTable,
    source_columns: Sequence[str] | None,
    *,
    default_region: str | None,
    key: Sequence[str],
) -> list[BoundColumn]:
    """Return the columns to write, checked against the table and the source.

    :raises CpaasInvalidRequestError: names all faults
    """
    known = None if source_columns is None else frozenset(source_columns)
    faults = _key_faults(key, known)
    columns = ContactColumns(table)
    if not rules:
        rules = _same_names(columns, source_columns, faults)
    bound: list[BoundColumn] = []
    written: set[str] = set()
    for name, rule in rules.items():
        try:
            column = columns.find(name)
            if column.id in written:
                raise ValueError("is given twice")
            written.add(column.id)
            bound.append(_bind(column, rule, known, default_region))
        except ValueError as error:
            faults.append(f"{name}: {error}")
    if faults:
        raise CpaasInvalidRequestError(
            f"The contact list cannot be filled from this source. {'; '.join(faults)}. Nothing was sent."
        )
    return bound


def _key_faults(key: Sequence[str], known: frozenset[str] | None) -> list[str]:
    if not key:
        return ["The key names no source column"]
    faults = [f"key: the source has no column {name!r}" for name in key if known is not None and name not in known]
    if len(set(key)) < len(key):
        faults.append("key: names a column twice")
    return faults


def _same_names(
    columns: ContactColumns, source_columns: Sequence[str] | None, faults: list[str]
) -> dict[str, ColumnRule]:
    """Return rules for the source columns that have the name of a list column."""
    if source_columns is None:
        # Otherwise a column that no row of the source has would be cleared in every row of the list.
        faults.append("The source does not say which columns it has: give columns")
        return {}
    rules: dict[str, ColumnRule] = {}
    for name in source_columns:
        try:
            if columns.find_or_none(name) is not None:
                rules[name] = ColumnRule(source=name)
        except ValueError as error:
            faults.append(f"{name}: {error}")
    if not rules and not faults:
        faults.append("No column of the source has the name of a column of the contact table: give columns")
    return rules


def _bind(
    column: ContactColumn, rule: ColumnRule, known: frozenset[str] | None, default_region: str | None
) -> BoundColumn:
    kind = column_type(column.type)
    unusable = sorted(_TYPED_FIELDS.intersection(rule.as_dict()) - FIELDS_OF_TYPE.get(kind, frozenset()))
    if unusable:
        raise ValueError(f"{' and '.join(unusable)} cannot be used for a column of type {kind}")
    if kind == "PHONE NUMBER":
        _check_region(rule.region or default_region)
    parse = cell_parser(kind, rule, default_region)
    bound = partial(BoundColumn, id=column.id, name=column.name, type=kind, keep_when_blank=rule.keep_when_blank)
    if rule.constant is not None:
        return bound(reads=(), read=lambda row: None, parse=_constant(parse, rule.constant))
    if rule.template is not None:
        template = CellTemplate(rule.template)
        reads = template.fields
        read: Callable[[Mapping[str, Any]], Any] = partial(_filled, template)
    else:
        reads = (rule.source or column.name,)
        read = itemgetter(reads[0])
    if lacking := [repr(name) for name in reads if known is not None and name not in known]:
        raise ValueError(f"the source has no column {', '.join(lacking)}")
    return bound(reads=reads, read=read, parse=parse)


def _constant(parse: Parse, value: Any) -> Parse:
    try:
        cell = parse(value)
    except ValueError as error:
        raise ValueError(f"its constant {error}") from None
    # A copy for each row, so that a change of one row's list does not change the others.
    return (lambda _: list(cell)) if isinstance(cell, list) else (lambda _: cell)


def _filled(template: CellTemplate, row: Mapping[str, Any]) -> str | None:
    if all(is_blank(plain(row[name])) for name in template.fields):
        return None
    return template.fill(row, _field_text)


def _field_text(value: Any) -> str:
    value = plain(value)
    return "" if is_blank(value) else as_text(value).strip()


def _check_region(region: str | None) -> None:
    import phonenumbers

    if region and region.upper() not in phonenumbers.SUPPORTED_REGIONS:
        raise ValueError("the region of its numbers is no ISO 3166 region such as NG")
