"""SELECT and MULTI SELECT cells: one option, or a list of options."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

from cpaas_provider.api.text import trim_invisible
from cpaas_provider.api.values import MAX_CELL_BYTES, as_text, is_blank, plain
from cpaas_provider.contacts.mapping.parsing.values import checked_text

_WRONG_OPTION = "must be one option, as text"
_WRONG_LIST = "must be a list of options"


def parse_option(value: Any) -> str:
    """Return one option, without blanks and invisible marks around it.

    Numbers are taken, as a file of text would have them; booleans are not, because files write them in many ways.
    """
    if isinstance(value, bool):
        raise ValueError(_WRONG_OPTION)
    try:
        text = trim_invisible(as_text(value))
    except ValueError:
        raise ValueError(_WRONG_OPTION) from None
    if not text:
        raise ValueError(_WRONG_OPTION)
    return checked_text(text, one_line=True)


def options_parser(separator: str) -> Callable[[Any], list[str]]:
    """Return a reader of lists of options, in the order they have, each once, without blank ones.

    Takes a list, or text with the separator between options. Text that is a JSON list is read as one, because some
    databases give JSON columns as text. A set has no order and is sorted.

    :param separator: what stands between options in text
    """

    def read(value: Any) -> list[str]:
        if type(value) is str:
            found = _json_list(value)
            value = value.split(separator) if found is None else found
        elif isinstance(value, (set, frozenset)):
            return sorted(_options(value))
        elif not isinstance(value, (list, tuple)):
            raise ValueError(_WRONG_LIST)
        return _options(value)

    return read


def _options(values: Any) -> list[str]:
    options = list(dict.fromkeys(parse_option(one) for one in map(plain, values) if not is_blank(one)))
    if sum(map(len, options)) > MAX_CELL_BYTES // 4 and sum(len(one.encode()) for one in options) > MAX_CELL_BYTES:
        raise ValueError(f"is longer than {MAX_CELL_BYTES} bytes")
    return options


def _json_list(text: str) -> list[Any] | None:
    if not text.lstrip().startswith("["):
        return None
    try:
        found = json.loads(text)
    except (ValueError, RecursionError):
        return None
    return found if isinstance(found, list) else None
