"""How columns of the contact list are filled, as a DAG author declares it. It imports no library."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from string import Formatter
from typing import Any

from msgspec import Struct
from msgspec.structs import asdict, replace

_REACHES_INTO = frozenset(".[]")


class CellTemplate:
    """A template of cells: text with the names of source columns in braces. It is read once.

    ``{first}`` stands for the source column of that name, ``{{`` and ``}}`` for a brace. A name is only ever looked up
    in the row as it is written.

    :param text: the template, such as ``{first} {last}``
    :raises ValueError: when it has no field, an empty one, one that reaches into a value (``{a.b}``, ``{a[0]}``), or a
        conversion or format (``{a!r}``, ``{a:>5}``)
    """

    def __init__(self, text: str) -> None:
        try:
            pieces = list(Formatter().parse(text))
        except ValueError:
            raise ValueError("has a brace without its counterpart; write {{ or }} for a brace") from None
        parts: list[tuple[str, str | None]] = []
        for literal, field, spec, conversion in pieces:
            if field is not None and (spec or conversion):
                raise ValueError("must not use conversions or formats, such as {name!r} or {name:>5}")
            if field is not None and _REACHES_INTO.intersection(field):
                raise ValueError("must name source columns only; {name.part} and {name[0]} are not supported")
            if field is not None and not field.strip():
                raise ValueError("has a field without a name; write {name}")
            parts.append((literal, field))
        self._parts = tuple(parts)
        self.fields: tuple[str, ...] = tuple(dict.fromkeys(field for _, field in parts if field is not None))
        """The source columns that it names, each once."""
        if not self.fields:
            raise ValueError("names no source column; use constant for a text that is the same in all rows")

    def fill(self, row: Mapping[str, Any], as_text: Callable[[Any], str]) -> str:
        """Return the text with its fields filled in, without blanks around it.

        :param as_text: writes a value as text; what it returns is not read as a template again
        :raises KeyError: when the row does not have one of the columns
        """
        texts = {field: as_text(row[field]) for field in self.fields}
        return "".join(literal + (texts[field] if field is not None else "") for literal, field in self._parts).strip()


class ColumnRule(Struct, frozen=True):
    """How one column of the contact list is filled (contract.md 2.5).

    At most one of ``source``, ``constant`` and ``template`` is given; without any, the source column has the name of
    the list column. The fields from ``date_format`` on say how text is written, each for one type of column.

    :param source: the source column to read
    :param constant: a value for all rows: text, a number or a list of texts
    :param template: text with source columns in braces, such as ``{first} {last}``; ``{{`` is a brace. Names only: no
        attributes, no indexes, no formats. A row in which all of its columns are blank has a blank cell
    :param date_format: DATE: how text is written, such as ``%d.%m.%Y``; then ISO 8601 is not read. Years have four
        digits, and names of months are English
    :param excel_serial: DATE: read numbers as days of Excel's 1900 calendar
    :param decimal: NUMBER: what stands before the decimal part in text: ``.``, ``,`` or the Arabic ``U+066B``
    :param thousands: NUMBER: what stands between groups of digits in text: ``,``, ``.``, a blank, an apostrophe,
        ``_`` or the Arabic ``U+066C``; ``None`` for nothing
    :param region: PHONE NUMBER: two-letter region of national numbers, such as ``NG``; default: the connection's
    :param separator: MULTI SELECT: what stands between options in text, up to 10 characters
    :param keep_when_blank: leave the cell as it is where the source is blank, instead of clearing it
    :raises ValueError: when a field is out of bounds; names the field
    """

    source: str | None = None
    constant: Any = None
    template: str | None = None
    date_format: str | None = None
    excel_serial: bool = False
    decimal: str = "."
    thousands: str | None = None
    region: str | None = None
    separator: str = ","
    keep_when_blank: bool = False

    def __post_init__(self) -> None:
        named = [name for name in ("source", "constant", "template") if getattr(self, name) is not None]
        if len(named) > 1:
            raise ValueError(f"{' and '.join(named)} exclude each other; give one of them")
        for name, check in _CHECKS.items():
            value = getattr(self, name)
            if value is None and name in _MAY_BE_NONE:
                continue
            try:
                check(value)
            except ValueError as error:
                raise ValueError(f"{name} {error}") from None
        if self.thousands is not None and self.thousands == self.decimal:
            raise ValueError("thousands and decimal must differ")

    @classmethod
    def from_dict(cls, values: Mapping[str, Any]) -> ColumnRule:
        """Return the rule with these fields.

        :raises ValueError: when a field is unknown or out of bounds, or ``None`` although it needs a value
        """
        known = cls.__struct_fields__
        if unknown := [str(name) for name in values if name not in known]:
            raise ValueError(f"{', '.join(unknown)}: no such field (there are: {', '.join(known)})")
        return cls(**values)

    def as_dict(self) -> dict[str, Any]:
        """Return the fields that differ from their defaults, as JSON has them."""
        return {name: value for name, value in asdict(self).items() if value != getattr(_UNCHANGED, name)}


ColumnsArgument = Sequence[str] | Mapping[str, "str | Mapping[str, Any] | ColumnRule"] | None


def parse_mapping(columns: ColumnsArgument) -> dict[str, ColumnRule]:
    """Return how each column of the contact list is filled, by the list column's name.

    :param columns: names of list columns whose source columns have the same names; or a mapping of list columns to a
        source column's name, a ``ColumnRule`` or a mapping of its fields; or ``None`` for every source column whose
        name is a list column, which only the source shows. The result is then empty
    :raises ValueError: names each column and field that is wrong
    """
    if columns is None:
        return {}
    if isinstance(columns, Mapping):
        pairs = list(columns.items())
    elif isinstance(columns, Sequence) and not isinstance(columns, (str, bytes)):
        pairs = [(name, name) for name in columns]
    else:
        raise ValueError("columns must be a list of column names, or a mapping of them to source columns.")
    if not pairs:
        raise ValueError("columns must not be empty: name at least one column of the contact list.")
    rules: dict[str, ColumnRule] = {}
    faults: list[str] = []
    for name, given in pairs:
        try:
            if not isinstance(name, str) or not name.strip():
                raise ValueError("a column's name must be text")
            if name in rules:
                raise ValueError("is given twice")
            rules[name] = _rule(name, given)
        except ValueError as error:
            faults.append(f"{name}: {error}")
    if faults:
        raise ValueError(f"columns cannot be used. {'; '.join(faults)}.")
    return rules


def _rule(name: str, written: Any) -> ColumnRule:
    if isinstance(written, ColumnRule):
        rule = written
    elif isinstance(written, str):
        rule = ColumnRule(source=written)
    elif isinstance(written, Mapping):
        rule = ColumnRule.from_dict(written)
    else:
        raise ValueError("must be a source column's name, a ColumnRule or a mapping of its fields")
    if rule.source is None and rule.constant is None and rule.template is None:
        return replace(rule, source=name)
    return rule


def _text(pattern: str, fault: str) -> Callable[[Any], None]:
    """Return a check that a value is text of a pattern."""

    def check(value: Any) -> None:
        if not isinstance(value, str) or not re.fullmatch(pattern, value, re.DOTALL):
            raise ValueError(fault)

    return check


_not_blank = _text(r".*\S.*", "must be text")


def _constant(value: Any) -> None:
    is_list = isinstance(value, (list, tuple)) and bool(value) and all(isinstance(item, str) for item in value)
    if not is_list and not isinstance(value, (str, int, float)):
        raise ValueError("must be text, a number or a list of texts")
    if isinstance(value, str) and not value.strip():
        raise ValueError("must not be blank")


def _template(value: Any) -> None:
    _not_blank(value)
    CellTemplate(value)


def _date_format(value: Any) -> None:
    from cpaas_provider.contacts.mapping.dates import date_pattern

    _not_blank(value)
    date_pattern(value)


def _flag(value: Any) -> None:
    if not isinstance(value, bool):
        raise ValueError("must be true or false")


_MAY_BE_NONE = frozenset({"source", "constant", "template", "date_format", "thousands", "region"})
_CHECKS: dict[str, Callable[[Any], None]] = {
    "source": _not_blank,
    "constant": _constant,
    "template": _template,
    "date_format": _date_format,
    "excel_serial": _flag,
    "decimal": _text("[.,\u066b]", "must be '.' or ','"),
    "thousands": _text("[.,_'\u2019 \u00a0\u2009\u202f\u066c]", "must be ',', '.', ' ', an apostrophe or '_'"),
    "region": _text("[A-Za-z]{2}", "must be two letters of ISO 3166, such as NG"),
    "separator": _text(r"[\W_]{1,10}", "must be 1 to 10 characters that are no letters or digits"),
    "keep_when_blank": _flag,
}


def unfilled_message(columns: Sequence[str]) -> str:
    """Return the error for list columns that ``on_missing`` writes, and that no row of the source fills."""
    return (
        f"on_missing writes into {' and '.join(map(repr, columns))}, which columns does not fill. When a row comes "
        "back, the value would remain. Nothing was sent. Fill it in columns, such as with {'constant': 'active'}."
    )


_UNCHANGED = ColumnRule()
