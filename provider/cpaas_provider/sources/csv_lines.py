"""The physical lines of a CSV file, as text."""

from __future__ import annotations

import codecs
import io
from collections.abc import Iterator
from typing import Any

from cpaas_provider.sources.base import SourceError

UNDECODABLE = "\udcff"
"""Stands for bytes that are no text in the file's encoding. No decoder makes it, so that none is mistaken for it."""

MAX_RECORD_LENGTH = 100_000
"""In characters, and below the 131,072 at which the csv module gives up: a quote that nobody closes ends here."""

_BOMS = {codecs.BOM_UTF8: "utf-8-sig", codecs.BOM_UTF16_LE: "utf-16", codecs.BOM_UTF16_BE: "utf-16"}


def _mark(error: UnicodeError) -> tuple[str, int]:
    if not isinstance(error, UnicodeDecodeError):
        raise error
    return UNDECODABLE, error.end


codecs.register_error("cpaas_provider.sources.undecodable", _mark)


def read_lines(stream: io.BufferedReader[Any], encoding: str | None, source: object) -> Iterator[str]:
    r"""Return the lines of a file with their ends, which are ``\n``, ``\r\n`` or ``\r``, as an editor shows them.

    A line that is longer than a record may be is returned in parts.

    :param encoding: its encoding; default: that of its byte order mark, else UTF-8
    :raises SourceError: when the encoding does not fit the file at all
    """
    if encoding is None:
        head = stream.peek(3)
        encoding = next((name for bom, name in _BOMS.items() if head.startswith(bom)), "utf-8")
    text = io.TextIOWrapper(stream, encoding, errors="cpaas_provider.sources.undecodable", newline="")
    try:
        while line := text.readline(MAX_RECORD_LENGTH + 1):
            yield line
    except UnicodeError as error:
        raise SourceError(
            f"{source} cannot be read as {encoding} ({type(error).__name__}). Set its encoding."
        ) from None
