"""The lines of a text file in its encoding."""

from __future__ import annotations

import codecs
import io
from collections.abc import Iterator
from typing import Any

from cpaas_provider.sources.base import SourceError

UNDECODABLE = "\udcff"
"""Replaces bytes that are not valid in the file's encoding. No decoder returns this character for valid bytes."""

MAX_RECORD_LENGTH = 100_000
"""In characters, and below the csv module's limit of 131,072. A record with an unclosed quote ends here."""

_BOMS = {codecs.BOM_UTF8: "utf-8-sig", codecs.BOM_UTF16_LE: "utf-16", codecs.BOM_UTF16_BE: "utf-16"}


def _replace_undecodable(error: UnicodeError) -> tuple[str, int]:
    if not isinstance(error, UnicodeDecodeError):
        raise error
    return UNDECODABLE, error.end


codecs.register_error("cpaas_provider.sources.undecodable", _replace_undecodable)


def read_lines(stream: io.BufferedReader[Any], encoding: str | None, source: object) -> Iterator[str]:
    r"""Return the lines of a file with their ends, which are ``\n``, ``\r\n`` or ``\r``, as an editor shows them.

    A line longer than ``MAX_RECORD_LENGTH`` is returned in parts.

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
