"""Templates of cells: text with the names of source columns in braces. They call nothing and look into nothing."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from string import Formatter
from typing import Any

_REACHES_INTO = frozenset(".[]")


class CellTemplate:
    """A template, read once.

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
