"""Recipients and texts from arguments, files and standard input."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from pathlib import Path

from cpaas_provider.api.recipients.reader import RecipientList, RecipientReader

STDIN = "-"


class StandardInput:
    """The standard input, which one argument of a command can read."""

    def __init__(self) -> None:
        self._reader: str | None = None

    def read(self, reader: str) -> str:
        """Return the whole text.

        :param reader: what the command reads, in words
        :raises SystemExit: when another argument has read it, or it is not text
        """
        if self._reader is not None:
            raise SystemExit(
                f"Standard input cannot have both {self._reader} and {reader}. Give one of them as a file. Nothing was "
                "sent."
            )
        self._reader = reader
        try:
            return sys.stdin.read()
        except UnicodeDecodeError:
            raise SystemExit("Standard input is not UTF-8 text. Nothing was sent.") from None


def read_file(path: str, stdin: StandardInput, what: str) -> str:
    """Return the text of a file, or of standard input for ``-``.

    :param what: its content, in words
    :raises SystemExit: when it cannot be read
    """
    if path == STDIN:
        return stdin.read(what)
    try:
        return Path(path).read_text(encoding="utf-8-sig")
    except OSError as error:
        raise SystemExit(f"The file with {what} cannot be read ({error.strerror}). Nothing was sent.") from None
    except ValueError:
        raise SystemExit(f"The file with {what} is not UTF-8 text. Nothing was sent.") from None


def read_recipients(
    arguments: Sequence[str], file: str | None, stdin: StandardInput, reader: RecipientReader
) -> RecipientList:
    """Return the recipients of a command.

    :param arguments: each may be a list with commas, and ``-`` reads standard input
    :param file: a file with more recipients, in lines or with commas
    :raises SystemExit: when there is none, or one is invalid. The message shows its place only
    """
    texts = [stdin.read("the recipients") if text == STDIN else text for text in arguments]
    if file is not None:
        texts.append(read_file(file, stdin, "the recipients"))
    pieces = (piece.strip() for text in texts for line in text.splitlines() for piece in line.split(","))
    found = reader.read_list([piece for piece in pieces if piece])
    if found.invalid:
        raise SystemExit(f"Not usable: {found.describe_invalid()}. Nothing was sent.")
    if not (found.allowed or found.not_allowed):
        raise SystemExit("There is no recipient. Nothing was sent. Give one as an argument, in a file, or as - .")
    return found
